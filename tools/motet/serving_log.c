/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was begun: a file for each stage under way, in the folder "stages" of motet's state,
 * named COMMAND.STAGE.PID and written to the disk before the stage begins. One that came
 * back is removed. So a file whose process is gone, or that is of an earlier boot, is a
 * stage that did not come back.
 */
#include "serving_parts.h"

#include "base/param.h"
#include "trace/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Stages that one process has under way at once. */
#define STAGES_MAX 8
/* Longest "COMMAND.STAGE", with its NUL; of a longer one the end is hashed. */
#define KEY_MAX  160
#define KEY_KEPT (KEY_MAX - 18)

static struct {
    _Atomic int used; /* the signal handler reads it */
    char path[PATH_MAX];
} under_way[STAGES_MAX];

static pid_t owner; /* of under_way: a child's signals are not this process's */

static bool is_used(int slot)
{
    return atomic_load_explicit(&under_way[slot].used, memory_order_acquire) != 0;
}

static void set_used(int slot, bool used)
{
    atomic_store_explicit(&under_way[slot].used, used, memory_order_release);
}

/* ---- the folder ---- */

/* Each part of @p path that is missing. */
static bool make_folders(char *path)
{
    for (char *at = path + 1; *at != 0; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        (void)mkdir(path, 0700); /* what matters is the last one */
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool serving_state(const char *what, char *buf, size_t bytes)
{
    const char *own = motet_param_environment("MOTET_STATE_DIR");
    const char *xdg = motet_param_environment("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (own != NULL && *own != 0)
        n = snprintf(buf, bytes, "%s/%s", own, what);
    else if (xdg != NULL && *xdg == '/')
        n = snprintf(buf, bytes, "%s/motet/%s", xdg, what);
    else if (home != NULL && *home == '/')
        n = snprintf(buf, bytes, "%s/.local/state/motet/%s", home, what);
    return n > 0 && (size_t)n < bytes && make_folders(buf);
}

/* "COMMAND.STAGE" as part of a file's name. */
static void make_key(const char *command, const char *stage, char buf[KEY_MAX])
{
    static const char kept[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    if (snprintf(buf, KEY_MAX, "%s.%s", command, stage) >= KEY_MAX) {
        for (const char *at = stage; *at != 0; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
        snprintf(buf + KEY_KEPT, KEY_MAX - KEY_KEPT, "-%016" PRIx64, hash);
    }
    for (char *at = buf; *at != 0; at++)
        if (strchr(kept, *at) == NULL)
            *at = '_';
}

static void host_name(char *buf, size_t bytes)
{
    struct utsname host;

    snprintf(buf, bytes, "%s", uname(&host) == 0 ? host.nodename : "");
}

/* Which pids a number means. */
static void pid_namespace(char *buf, size_t bytes)
{
    ssize_t n = readlink("/proc/self/ns/pid", buf, bytes - 1);

    buf[n > 0 ? n : 0] = 0;
}

/* ---- writing ---- */

/* Leave as the signal wants, but first: whoever interrupts sees the machine alive. */
static void interrupted(int signal_number)
{
    if (getpid() == owner)
        for (int i = 0; i < STAGES_MAX; i++)
            if (is_used(i))
                (void)unlink(under_way[i].path);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void watch_signals(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = interrupted }, old;

    owner = getpid();
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            (void)sigaction(signals[i], &action, NULL);
}

static bool write_record(int fd, const char *command, const char *stage)
{
    motet_trace_process self = { 0 };
    char boot[64], host[sizeof(((struct utsname *)0)->nodename)], pids[64];

    motet_trace_boot_id(boot, sizeof(boot));
    host_name(host, sizeof(host));
    pid_namespace(pids, sizeof(pids));
    (void)motet_trace_process_read(getpid(), &self);
    return dprintf(fd,
                   "boot %s\nhost %s\npids %s\npid %d\nstart %llu\nat %lld\n"
                   "command %s\nstage %s\n",
                   boot, host, pids, (int)getpid(), (unsigned long long)self.start,
                   (long long)time(NULL), command, stage) > 0 &&
            fsync(fd) == 0;
}

/* A name is on the disk once its folder is. */
static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

/* Once a process: it goes on without, as it does where motet has no folder. */
static void not_written(const char *command, const char *folder)
{
    static bool said;

    if (!said)
        fprintf(stderr,
                "motet %s: '%s': %s, so if this does not come back nobody will know\n",
                command, folder, strerror(errno));
    said = true;
}

void serving_begin(const char *command, const char *stage)
{
    char folder[PATH_MAX - KEY_MAX - 24] = "the folder of MOTET_STATE_DIR",
                                     key[KEY_MAX];
    int slot = 0, fd = -1;

    while (slot < STAGES_MAX && is_used(slot))
        slot++;
    errno = slot == STAGES_MAX ? ENOSPC : ENOENT;
    if (slot == STAGES_MAX || !serving_state("stages", folder, sizeof(folder))) {
        not_written(command, folder);
        return;
    }
    make_key(command, stage, key);
    snprintf(under_way[slot].path, sizeof(under_way[slot].path), "%s/%s.%d", folder,
            key, (int)getpid());
    watch_signals();
    /* a left-over of a process that had this number is forgotten with this */
    (void)unlink(under_way[slot].path);
    fd = open(under_way[slot].path,
            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    set_used(slot, fd >= 0);
    if (fd < 0 || !write_record(fd, command, stage))
        not_written(command, under_way[slot].path);
    if (fd >= 0)
        close(fd);
    sync_folder(folder);
}

void serving_end(const char *command, const char *stage)
{
    char key[KEY_MAX], name[KEY_MAX + 24];

    make_key(command, stage, key);
    snprintf(name, sizeof(name), "/%s.%d", key, (int)getpid());
    for (int i = 0; i < STAGES_MAX; i++) {
        size_t n = strlen(under_way[i].path), m = strlen(name);

        if (!is_used(i) || n < m || strcmp(under_way[i].path + n - m, name) != 0)
            continue;
        (void)unlink(under_way[i].path);
        set_used(i, false);
    }
}

/* ---- reading ---- */

struct record {
    char boot[64], host[128], pids[64];
    int pid;
    unsigned long long start;
    long long at;
};

/* One without an end, as a crash leaves it, has its file's time and nothing else. */
static bool read_record(const char *path, struct record *out)
{
    char text[4096], line[200];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = -1;

    *out = (struct record){ .pid = 0 };
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid == geteuid()) {
        n = read(fd, text, sizeof(text) - 1);
        out->at = (long long)st.st_mtime;
    }
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    text[n] = 0;
    for (const char *at = text; *at != 0; at += *at == '\n') {
        const size_t length = strcspn(at, "\n");

        snprintf(line, sizeof(line), "%.*s", (int)length, at);
        at += length;
        (void)(sscanf(line, "boot %63s", out->boot) == 1 ||
                sscanf(line, "host %127s", out->host) == 1 ||
                sscanf(line, "pids %63s", out->pids) == 1 ||
                sscanf(line, "pid %d", &out->pid) == 1 ||
                sscanf(line, "start %llu", &out->start) == 1 ||
                sscanf(line, "at %lld", &out->at) == 1);
    }
    return true;
}

/* Whether what @p r says began did not come back; @p said gets when, and why so. */
static bool did_not_return(const struct record *r, char *said, size_t bytes)
{
    motet_trace_process process;
    char boot[64], host[128], pids[64], when[64];
    time_t at = (time_t)r->at;
    struct tm utc;

    motet_trace_boot_id(boot, sizeof(boot));
    host_name(host, sizeof(host));
    pid_namespace(pids, sizeof(pids));
    if (r->host[0] != 0 && strcmp(r->host, host) != 0)
        return false; /* several hosts share the folder */
    if (gmtime_r(&at, &utc) == NULL ||
            strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &utc) == 0)
        snprintf(when, sizeof(when), "an unknown time");
    if (strcmp(r->boot, boot) != 0) {
        snprintf(said, bytes, "at %s, and this machine was started anew since", when);
        return true;
    }
    if (strcmp(r->pids, pids) != 0)
        return false; /* another container's, which may run */
    if (motet_trace_process_read(r->pid, &process) && process.start == r->start &&
            strchr("ZXx", process.state) == NULL)
        return false;
    snprintf(said, bytes, "at %s, and its process (pid %d) is gone", when, r->pid);
    return true;
}

/* Look at the records whose names begin with @p key and have a pid after it, or, with
 * @p any_stage, a stage too. Removes those that did not return if @p forget. */
static bool look_for(const char *key, bool any_stage, bool forget, char *said,
        size_t bytes)
{
    char folder[PATH_MAX - 300], path[PATH_MAX];
    size_t length = strlen(key);
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    if (!serving_state("stages", folder, sizeof(folder)) ||
            (dir = opendir(folder)) == NULL)
        return false;
    while ((!found || forget) && (entry = readdir(dir)) != NULL) {
        const char *rest = entry->d_name + length;
        struct record record;

        if (strncmp(entry->d_name, key, length) != 0 || *rest != '.' ||
                (!any_stage && serving_pid(rest + 1) == 0))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (!read_record(path, &record) || !did_not_return(&record, said, bytes))
            continue;
        found = true;
        if (forget)
            (void)unlink(path);
    }
    closedir(dir);
    return found;
}

bool serving_did_not_return(const char *command, const char *stage, char *said,
        size_t bytes)
{
    char key[KEY_MAX];

    *said = 0;
    make_key(command, stage, key);
    return look_for(key, false, false, said, bytes);
}

void serving_forget(const char *command)
{
    char key[KEY_MAX], said[128];

    snprintf(key, sizeof(key), "%s", command);
    (void)look_for(key, true, true, said, sizeof(said));
}

void serving_forget_stage(const char *command, const char *stage)
{
    char key[KEY_MAX], said[128];

    make_key(command, stage, key);
    (void)look_for(key, false, true, said, sizeof(said));
}
