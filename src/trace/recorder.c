/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writing side of the flight recorder: where its file goes, how it is made and
 * how it ends. The hot path is inline in the header.
 *
 * The file's memory is allocated before it is mapped, since a full tmpfs would else
 * show as SIGBUS in the middle of an operation. The magic is stored last, so a reader
 * that meets a half-made file sees no recorder file.
 */
#include "trace/recorder.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHY_BYTES 256

static bool is_writable_folder(const char *dir)
{
    struct stat status;

    return dir[0] != '\0' && stat(dir, &status) == 0 && S_ISDIR(status.st_mode) &&
            faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0;
}

void motet_trace_dir(const motet_params *params, char *buf, size_t bytes)
{
    const char *own = motet_param_text(params, MOTET_P_TRACE_DIR);
    const char *candidates[] = { motet_param_text(params, MOTET_P_XDG_RUNTIME_DIR),
        "/dev/shm" };
    char absolute[PATH_MAX];

    buf[0] = '\0';
    if (own[0] != '\0') {
        /* Absolute, so that the file is still found after chdir(). */
        if (is_writable_folder(own) && realpath(own, absolute) != NULL &&
                strlen(absolute) < bytes)
            snprintf(buf, bytes, "%s", absolute);
        return;
    }
    for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++) {
        if (candidates[i][0] == '/' && strlen(candidates[i]) < bytes &&
                is_writable_folder(candidates[i])) {
            snprintf(buf, bytes, "%s", candidates[i]);
            return;
        }
    }
}

/* Creates PATH anew. A leftover of that very name (its pid was ours once) is replaced;
 * a link is never followed, and what another user planted cannot be removed. */
static int create_file(const char *path)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0600);

    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = open(path, flags, 0600);
    return fd;
}

static motet_trace_file *map_file(int fd)
{
    void *map;
    int failed = posix_fallocate(fd, 0, sizeof(motet_trace_file));

    if (failed != 0) {
        errno = failed;
        return NULL;
    }
    map = mmap(NULL, sizeof(motet_trace_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
            0);
    return map == MAP_FAILED ? NULL : map;
}

/* Puts the recorder into a file. On false @p why says why not, and nothing is left. */
static bool place_in_folder(const motet_params *params, const motet_recorder_args *args,
        motet_recorder *recorder, char why[WHY_BYTES])
{
    const char *own = motet_param_text(params, MOTET_P_TRACE_DIR);
    char dir[sizeof(recorder->path)];
    int fd, n;

    motet_trace_dir(params, dir, sizeof(dir));
    if (dir[0] == '\0') {
        snprintf(why, WHY_BYTES, "no writable folder: tried %.200s",
                own[0] != '\0' ? own : "$XDG_RUNTIME_DIR and /dev/shm");
        return false;
    }
    n = snprintf(recorder->path, sizeof(recorder->path),
            "%s/motet-%d-%016" PRIx64 "-%d.trace", dir, (int)getpid(), args->comm,
            args->rank);
    if (n < 0 || (size_t)n >= sizeof(recorder->path)) {
        snprintf(why, WHY_BYTES, "folder name of %zu bytes is too long", strlen(dir));
        recorder->path[0] = '\0';
        return false;
    }
    motet_trace_prune(dir);
    fd = create_file(recorder->path);
    if (fd >= 0)
        recorder->file = map_file(fd);
    if (recorder->file == NULL) {
        snprintf(why, WHY_BYTES, "%.180s: %s", recorder->path, strerror(errno));
        if (fd >= 0)
            (void)unlink(recorder->path);
        recorder->path[0] = '\0';
    }
    if (fd >= 0)
        close(fd);
    return recorder->file != NULL;
}

static void read_command(char *buf, size_t bytes)
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, bytes - 1);

    if (fd >= 0)
        close(fd);
    buf[n < 0 ? 0 : n] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
}

static void fill_header(motet_trace_file *file, const motet_recorder_args *args)
{
    motet_trace_process self = { 0 };

    (void)motet_trace_process_read(getpid(), &self);
    file->version = MOTET_TRACE_VERSION;
    file->header_bytes = offsetof(motet_trace_file, op);
    file->op_bytes = sizeof(motet_trace_op);
    file->ops = MOTET_TRACE_OPS;
    file->rank = args->rank;
    file->nranks = args->nranks;
    file->pid = getpid();
    file->device = args->device;
    file->pid_start = self.start;
    file->comm = args->comm;
    file->created_wall_ns = motet_wall_ns();
    file->created_ns = motet_now_coarse_ns();
    motet_trace_boot_id(file->boot_id, sizeof(file->boot_id));
    if (gethostname(file->host, sizeof(file->host) - 1) != 0)
        file->host[0] = '\0';
    snprintf(file->comm_name, sizeof(file->comm_name), "%s",
            args->comm_name == NULL ? "" : args->comm_name);
    read_command(file->command, sizeof(file->command));
    atomic_store_explicit(&file->heartbeat_ns, file->created_ns, memory_order_relaxed);
    __atomic_store_n(&file->magic, MOTET_TRACE_MAGIC, __ATOMIC_RELEASE);
}

motet_result motet_recorder_create(const motet_params *params,
        const motet_recorder_args *args, motet_recorder *out)
{
    motet_recorder recorder = { .next = 1 };
    char why[WHY_BYTES];

    if (!place_in_folder(params, args, &recorder, why)) {
        void *map = mmap(NULL, sizeof(motet_trace_file), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (map == MAP_FAILED)
            return motet_fail_errno(MOTET_ERR_SYSTEM,
                    "map %zu bytes for the flight recorder of rank %d",
                    sizeof(motet_trace_file), args->rank);
        recorder.file = map;
        motet_info(MOTET_SUB_INIT,
                "flight recorder of rank %d lives in memory only: %s", args->rank, why);
    }
    fill_header(recorder.file, args);
    *out = recorder;
    return MOTET_OK;
}

void motet_recorder_destroy(motet_recorder *recorder, bool clean)
{
    if (recorder->file == NULL)
        return;
    if (clean) {
        /* Whoever has the file open, or copied it a moment ago, sees how it ended. */
        atomic_store_explicit(&recorder->file->closed, 1, memory_order_release);
        if (recorder->path[0] != '\0')
            (void)unlink(recorder->path);
    }
    munmap(recorder->file, sizeof(motet_trace_file));
    recorder->file = NULL;
    recorder->path[0] = '\0';
}

void motet_recorder_path(motet_recorder *recorder, const char *path)
{
    snprintf(recorder->file->path, sizeof(recorder->file->path), "%s", path);
}

void motet_recorder_fail(motet_recorder *recorder, motet_result result,
        const char *text)
{
    motet_trace_file *file = recorder->file;

    if (file == NULL || result == MOTET_OK ||
            atomic_exchange_explicit(&recorder->failing, 1, memory_order_relaxed) != 0)
        return;
    snprintf(file->failure, sizeof(file->failure), "%s", text == NULL ? "" : text);
    atomic_store_explicit(&file->failed, (uint32_t)result, memory_order_release);
}

void motet_recorder_after_fork(motet_recorder *recorder)
{
    motet_trace_file *file = recorder->file;
    char header[offsetof(motet_trace_file, op)];

    recorder->path[0] = '\0';
    if (file == NULL)
        return;
    /* Private memory takes the place of the shared pages, at the same address, so that
     * the child writes into nobody's file and no pointer to a record dangles. */
    memcpy(header, file, sizeof(header));
    if (mmap(file, sizeof(*file), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return;
    memcpy(file, header, sizeof(header));
    file->pid = getpid();
}
