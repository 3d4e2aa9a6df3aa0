/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorder files of dead processes: the newest MOTET_TRACE_KEEP stay, older ones go.
 *
 * Only files of our own user go, and only those whose owner is surely dead: its pid
 * is gone and so is its heartbeat, since a process of another pid namespace that
 * shares this folder has a pid that means nothing here.
 */
#include "trace/recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A heartbeat comes each 250 ms; this long without one is silence. */
#define SILENT_NS (2 * MOTET_NS_PER_S)

#define NAME_BYTES 64

typedef struct dead_file {
    char name[NAME_BYTES];
    uint64_t last_sign_wall_ns;
} dead_file;

bool motet_trace_name_parse(const char *name, int32_t *pid_out, uint64_t *comm_out,
        int32_t *rank_out)
{
    char again[NAME_BYTES];
    uint64_t comm;
    int32_t pid, rank;

    if (strlen(name) >= sizeof(again) ||
            sscanf(name, "motet-%" SCNd32 "-%" SCNx64 "-%" SCNd32, &pid, &comm,
                    &rank) != 3)
        return false;
    /* sscanf takes blanks, signs and any tail; the name that we would write does not. */
    snprintf(again, sizeof(again), "motet-%" PRId32 "-%016" PRIx64 "-%" PRId32 ".trace",
            pid, comm, rank);
    if (strcmp(name, again) != 0 || pid <= 0 || rank < 0)
        return false;
    *pid_out = pid;
    *comm_out = comm;
    *rank_out = rank;
    return true;
}

/* Reads as much of the header as there is; the rest is zero. */
static bool header_read(int dir_fd, const char *name, motet_trace_file *out,
        struct stat *status)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool ours;

    if (fd < 0)
        return false;
    ours = fstat(fd, status) == 0 && S_ISREG(status->st_mode) &&
            status->st_uid == geteuid() &&
            pread(fd, out, offsetof(motet_trace_file, op), 0) >= 0;
    close(fd);
    return ours;
}

static uint64_t newest_ns(const motet_trace_file *file)
{
    uint64_t beat = atomic_load_explicit(&file->heartbeat_ns, memory_order_relaxed);

    return beat > file->created_ns ? beat : file->created_ns;
}

/* True if @p name is a dead process's; when it last ran goes to @p last_sign_out. */
static bool is_dead(int dir_fd, const char *name, const char *boot_id,
        uint64_t *last_sign_out)
{
    motet_trace_file file = { 0 };
    motet_trace_process process;
    struct stat status;
    uint64_t comm, changed_ns;
    int32_t pid, rank;

    if (!motet_trace_name_parse(name, &pid, &comm, &rank) ||
            !header_read(dir_fd, name, &file, &status))
        return false;
    changed_ns = (uint64_t)status.st_ctim.tv_sec * MOTET_NS_PER_S;
    if (file.magic != MOTET_TRACE_MAGIC || file.version != MOTET_TRACE_VERSION) {
        /* Half made: by a process that died doing it, or that does it right now. */
        *last_sign_out = 0;
        return !motet_trace_process_read(pid, &process) &&
                changed_ns + SILENT_NS < motet_wall_ns();
    }
    *last_sign_out = file.created_wall_ns + (newest_ns(&file) - file.created_ns);
    if (strncmp(file.boot_id, boot_id, sizeof(file.boot_id)) != 0)
        return true;
    if (motet_trace_process_read(file.pid, &process) && process.start == file.pid_start)
        return strchr("ZXx", process.state) != NULL;
    return newest_ns(&file) + SILENT_NS < motet_now_ns();
}

/* Takes @p candidate in if it is among the newest; leaves in it what has to go, "" if nothing. */
static void keep_newest(dead_file kept[MOTET_TRACE_KEEP], int *count,
        dead_file *candidate)
{
    int oldest = 0;

    if (*count < MOTET_TRACE_KEEP) {
        kept[(*count)++] = *candidate;
        candidate->name[0] = '\0';
        return;
    }
    for (int i = 1; i < MOTET_TRACE_KEEP; i++)
        if (kept[i].last_sign_wall_ns < kept[oldest].last_sign_wall_ns)
            oldest = i;
    if (kept[oldest].last_sign_wall_ns < candidate->last_sign_wall_ns) {
        dead_file older = kept[oldest];

        kept[oldest] = *candidate;
        *candidate = older;
    }
}

void motet_trace_prune(const char *dir)
{
    dead_file kept[MOTET_TRACE_KEEP], candidate;
    char boot_id[40];
    struct dirent *entry;
    DIR *stream = opendir(dir);
    int count = 0;

    if (stream == NULL)
        return;
    motet_trace_boot_id(boot_id, sizeof(boot_id));
    while ((entry = readdir(stream)) != NULL) {
        if (strncmp(entry->d_name, "motet-", 6) != 0 ||
                !is_dead(dirfd(stream), entry->d_name, boot_id,
                        &candidate.last_sign_wall_ns))
            continue;
        snprintf(candidate.name, sizeof(candidate.name), "%.*s", NAME_BYTES - 1,
                entry->d_name);
        keep_newest(kept, &count, &candidate);
        /* Another process may have been faster: nothing to report. */
        if (candidate.name[0] != '\0')
            (void)unlinkat(dirfd(stream), candidate.name, 0);
    }
    closedir(stream);
}
