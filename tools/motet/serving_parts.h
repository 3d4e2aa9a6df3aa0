/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of serving.h share among themselves. */
#ifndef MOTET_TOOLS_SERVING_PARTS_H
#define MOTET_TOOLS_SERVING_PARTS_H

#include "serving.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** A process that a driver names, once for each GPU. */
struct serving_seen {
    pid_t pid;
    bool display; /* it only draws, says the driver */
    bool outside; /* of another pid namespace: /proc here says nothing of it */
    char gpu[96];
};

/** What a look has found so far. */
struct serving_list {
    struct serving_seen *seen;
    size_t count, room;
    char unknown[256]; /* "" if everything could be looked at; the first reason stays */
};

/* ---- files of the host, below MOTET_HOST_ROOT if it is set ---- */

/** "" where the host is this one. */
const char *serving_root(void);

/** The first @p bytes − 1 of a file; its length, −1 with errno if it cannot be read. */
ssize_t serving_read(char *buf, size_t bytes, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/** NULL with errno if it cannot be opened. */
DIR *serving_folder(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** A number that is a name ("4711"); 0 if it is none. */
pid_t serving_pid(const char *name);

/* ---- what looks ---- */

/** Add a process; without memory, `unknown` says so. */
void serving_add(struct serving_list *list, struct serving_seen seen);

void serving_not_seen(struct serving_list *list, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

void serving_kfd(struct serving_list *list);
void serving_nvml(struct serving_list *list);

/** Whether the calling process has children, which may compute. */
bool serving_has_children(void);

/** Whether this process sees the pids that the kernel gives in a list for all. */
bool serving_sees_all_pids(void);

/* ---- who it is ---- */

/** Whether @p pid is the first caller of serving_look() or descends from it. */
bool serving_is_own(pid_t pid);

/** Whether there is no such process any more. */
bool serving_is_gone(pid_t pid);

/** A GPU's own daemon, which computes nothing. */
bool serving_is_daemon(pid_t pid);

/** Fill in command, unit, stop, is_unit; and display, if its name is a display server's. */
void serving_describe(struct serving_user *user);

/** unit, stop and is_unit from the text of /proc/PID/cgroup. */
void serving_place(const char *cgroup, struct serving_user *user);

/* ---- units, and what is remembered of them ---- */

/** Fill in `unmasked`; a unit that somebody in @p s belongs to is none. */
void serving_units(struct serving *s);

/** Remember the units of @p s: once stopped, they are to be masked. */
void serving_remember(const struct serving *s);

/** motet's folder for @p what ("stages"), made if it is missing; false without one. */
bool serving_state(const char *what, char *buf, size_t bytes);

#endif
