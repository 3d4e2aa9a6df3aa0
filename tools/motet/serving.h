/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else computes on this host's GPUs. A test beside a service that runs has taken whole
 * hosts down, so every command that launches work on a GPU asks here first, and again
 * before each stage; and it writes down what it is about to do, so that what did not come
 * back is not done a second time.
 *
 *     serving.c        what is said, and whether to go on
 *     serving_kfd.c    AMD: what the kernel's compute driver knows of its processes
 *     serving_nvml.c   NVIDIA: what libnvidia-ml.so.1 says
 *     serving_who.c    a process: whose it is and how it was started
 *     serving_place.c  its unit or container, and how to stop that
 *     serving_units.c  units that use GPUs, are stopped, and may come back
 *     serving_log.c    what was begun
 *
 * Only files are read, and NVML in a process of its own. All of it lies below
 * MOTET_HOST_ROOT where that is set, which is for tests.
 */
#ifndef MOTET_TOOLS_SERVING_H
#define MOTET_TOOLS_SERVING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** Users that are named; further ones are counted. */
#define SERVING_MAX 16
/** Stopped units that are named. */
#define SERVING_UNITS_MAX 4

struct serving_user {
    pid_t pid;         /* 0: of another namespace, and not to be told */
    char command[256]; /* as it was started, one line of printable text */
    char gpu[128];     /* what shows it: "KFD gpu_id 51234 (0000:03:00.0)", "GPU-…" */
    char unit[128];    /* "vllm.service", "docker container 3f2a…", "" unknown */
    char stop[320];    /* "systemctl stop U && systemctl mask U", "kill 4711" */
    bool is_unit;      /* a unit of systemd */
    bool display;      /* draws on a screen: named, no reason to stop */
};

struct serving {
    size_t num_users, num_more; /* listed, in the order of pids; and not listed */
    size_t num_busy; /* of both, those that compute: all but display servers */
    struct serving_user users[SERVING_MAX];
    size_t num_unmasked; /* units with GPUs that are stopped and can be started again */
    char unmasked[SERVING_UNITS_MAX][128];
    const char *unknown; /* what could not be looked at, NULL if all could */
};

/**
 * Look at all GPUs of the host. The first caller's process and all that it starts, then
 * and later, are not counted.
 */
void serving_look(struct serving *out);

/** Whether somebody in @p s computes: a display server does not. */
bool serving_busy(const struct serving *s);

/**
 * Refuse if anyone computes on a GPU: prints who, where they come from and how to stop and
 * mask them. With @p anyway it only warns.
 * @return −1: go on; otherwise an exit code
 */
int serving_refuse(const char *command, bool anyway);

/**
 * Write down, before it begins, that @p stage of @p command runs now, with the boot id; and
 * after it came back, that it did. In the folder of motet's state (MOTET_STATE_DIR).
 * Several stages may be under way. An interrupt from the keyboard, SIGTERM and SIGHUP
 * count as coming back.
 */
void serving_begin(const char *command, const char *stage);
void serving_end(const char *command, const char *stage);

/**
 * Whether @p stage began earlier, did not come back, and the machine was started anew
 * since or its process is gone; @p said gets when. It is not to be repeated then.
 */
bool serving_did_not_return(const char *command, const char *stage, char *said,
        size_t bytes);

/** Forget what serving_did_not_return() says of @p command, or of one stage of it. */
void serving_forget(const char *command);
void serving_forget_stage(const char *command, const char *stage);

/**
 * What stands before a stage: refuse while somebody computes, refuse to repeat one that did
 * not return, write down that it begins. With @p anyway it warns, forgets, and begins.
 * @return −1: it is begun, and serving_end() is due; otherwise an exit code
 */
int serving_enter(const char *command, const char *stage, bool anyway);

#endif
