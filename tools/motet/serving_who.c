/* SPDX-License-Identifier: Apache-2.0 */
/* A process: whose it is, how it was started, and what has to be stopped to stop it. */
#include "serving_parts.h"

#include "trace/recorder.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a chain of parents. */
#define DEPTH_MAX 64
/* The pid namespace of the host: PROC_PID_INIT_INO of the kernel. */
#define HOST_PIDS "pid:[4026531836]"
#define COMM_MAX  15

/* ---- files ---- */

const char *serving_root(void)
{
    const char *root = getenv("MOTET_HOST_ROOT");

    return root != NULL ? root : "";
}

/* False if the path is too long. */
static bool under_root(char *buf, size_t bytes, const char *fmt, va_list args)
{
    int n = snprintf(buf, bytes, "%s", serving_root());
    int m;

    if (n < 0 || (size_t)n >= bytes)
        return false;
    m = vsnprintf(buf + n, bytes - (size_t)n, fmt, args);
    errno = ENAMETOOLONG;
    return m >= 0 && (size_t)m < bytes - (size_t)n;
}

ssize_t serving_read(char *buf, size_t bytes, const char *fmt, ...)
{
    char path[4096];
    va_list args;
    FILE *file;
    size_t n;
    bool fits, failed;

    *buf = 0;
    va_start(args, fmt);
    fits = under_root(path, sizeof(path), fmt, args);
    va_end(args);
    file = fits ? fopen(path, "re") : NULL;
    if (file == NULL)
        return -1;
    n = fread(buf, 1, bytes - 1, file);
    failed = ferror(file) != 0;
    fclose(file);
    buf[n] = 0;
    return failed ? -1 : (ssize_t)n;
}

DIR *serving_folder(const char *fmt, ...)
{
    char path[4096];
    va_list args;
    bool fits;

    va_start(args, fmt);
    fits = under_root(path, sizeof(path), fmt, args);
    va_end(args);
    return fits ? opendir(path) : NULL;
}

pid_t serving_pid(const char *name)
{
    char *end;
    long pid = isdigit((unsigned char)*name) ? strtol(name, &end, 10) : 0;

    return pid > 0 && pid <= INT32_MAX && *end == 0 ? (pid_t)pid : 0;
}

/* ---- whose it is ---- */

bool serving_sees_all_pids(void)
{
    char name[64];
    ssize_t n;

    if (*serving_root() != 0)
        return true;
    n = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = 0;
    return n <= 0 || strcmp(name, HOST_PIDS) == 0;
}

/* The parent of @p pid; 0 if there is none or it cannot be read. */
static pid_t parent_of(pid_t pid)
{
    char text[1024];
    const char *at;
    int parent;

    if (serving_read(text, sizeof(text), "/proc/%d/stat", (int)pid) <= 0)
        return 0;
    at = strrchr(text, ')'); /* the command may hold anything */
    return at != NULL && sscanf(at + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

bool serving_is_own(pid_t pid)
{
    static pid_t first;

    if (first == 0)
        first = getpid();
    for (int depth = 0; pid > 0 && depth < DEPTH_MAX; depth++) {
        if (pid == first)
            return true;
        pid = parent_of(pid);
    }
    return false;
}

bool serving_is_gone(pid_t pid)
{
    motet_trace_process process;

    if (*serving_root() != 0)
        return false;
    if (motet_trace_process_read(pid, &process))
        return strchr("ZXx", process.state) != NULL;
    return kill(pid, 0) != 0 && errno == ESRCH;
}

/* One name of a process: as a table has it, cut as the kernel cuts it. */
static bool is_named(pid_t pid, const char *const *names)
{
    char comm[64];

    if (serving_read(comm, sizeof(comm), "/proc/%d/comm", (int)pid) <= 0)
        return false;
    comm[strcspn(comm, "\n")] = 0;
    for (; *names != NULL; names++)
        if (strncmp(comm, *names, COMM_MAX) == 0 &&
                (strlen(comm) == strlen(*names) || strlen(comm) == COMM_MAX))
            return true;
    return false;
}

bool serving_is_daemon(pid_t pid)
{
    static const char *const names[] = { "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server", "nvidia-persistenced", NULL };

    return is_named(pid, names);
}

static bool is_display(pid_t pid)
{
    static const char *const names[] = { "Xorg", "X", "Xwayland", "gnome-shell",
        "kwin_x11", "kwin_wayland", "plasmashell", "sway", "Hyprland", "weston",
        "mutter", "muffin", "cinnamon", "cosmic-comp", "wayfire", "labwc", "river",
        "niri", "gamescope", "gdm-x-session", "sddm-greeter", "lightdm", NULL };

    return is_named(pid, names);
}

/* ---- how it was started ---- */

/* One line of printable text of @p count bytes with NULs between the arguments. */
static void clean(char *text, size_t count)
{
    while (count > 0 && text[count - 1] == 0)
        count--;
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = ' ';
    text[count] = 0;
}

static void take_command(struct serving_user *user)
{
    ssize_t n = serving_read(user->command, sizeof(user->command), "/proc/%d/cmdline",
            (int)user->pid);

    if (n > 0)
        clean(user->command, (size_t)n);
    if (user->command[0] != 0)
        return;
    n = serving_read(user->command, sizeof(user->command), "/proc/%d/comm",
            (int)user->pid);
    if (n > 0)
        user->command[strcspn(user->command, "\n")] = 0;
    if (n <= 0 || user->command[0] == 0)
        snprintf(user->command, sizeof(user->command),
                "(its command cannot be read from here)");
}

void serving_describe(struct serving_user *user)
{
    char cgroup[4096];

    take_command(user);
    user->display |= is_display(user->pid);
    snprintf(user->stop, sizeof(user->stop), "kill %d", (int)user->pid);
    if (serving_read(cgroup, sizeof(cgroup), "/proc/%d/cgroup", (int)user->pid) > 0)
        serving_place(cgroup, user);
}
