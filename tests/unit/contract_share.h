/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one device or process in another, for any kind of GPU; a rig is included
 * before. */
#ifndef MOTET_TEST_CONTRACT_SHARE_H
#define MOTET_TEST_CONTRACT_SHARE_H

#include "contract_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#define MIB         ((size_t)1 << 20)
#define DEADLINE_MS 30000

/* ---- two processes ---- */

typedef struct parcel {
    motet_gpu_export export;
    uint32_t token, has_fd;
} parcel;

static inline bool readable(int sock)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };

    return poll(&p, 1, DEADLINE_MS) == 1;
}

static inline bool post(int sock, const parcel *p, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = { .bytes = { 0 } };
    struct iovec io = { .iov_base = (void *)(uintptr_t)p, .iov_len = sizeof(*p) };
    struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

    if (fd >= 0) {
        struct cmsghdr *head;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    return sendmsg(sock, &message, 0) == (ssize_t)sizeof(*p);
}

static inline bool fetch(int sock, parcel *p, int *fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec io = { .iov_base = p, .iov_len = sizeof(*p) };
    struct msghdr message = { .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes) };
    struct cmsghdr *head;

    *fd = -1;
    if (!readable(sock) ||
            recvmsg(sock, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*p))
        return false;
    head = CMSG_FIRSTHDR(&message);
    if (head != NULL)
        memcpy(fd, CMSG_DATA(head), sizeof(*fd));
    return true;
}

static inline bool post_token(int sock, uint32_t token)
{
    const parcel p = { .token = token };

    return post(sock, &p, -1);
}

static inline bool fetch_token(int sock, uint32_t token)
{
    parcel p;
    int fd;

    return fetch(sock, &p, &fd) && p.token == token;
}

/* Export @p address and send it. */
static inline bool post_export(int sock, motet_gpu *gpu, uint64_t address,
        uint32_t kind)
{
    parcel p = { .token = 1 };
    int fd = -1;
    bool sent;

    if (ops->export_memory(gpu, address, &p.export, &fd) != MOTET_OK ||
            p.export.kind != kind || (fd >= 0) != (kind == MOTET_GPU_EXPORT_FD) ||
            (fd >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC)))
        return false;
    sent = post(sock, &p, fd);
    if (fd >= 0)
        close(fd);
    return sent;
}

static inline bool fetch_import(int sock, motet_gpu *gpu, motet_gpu_memory *out)
{
    motet_result result;
    parcel p;
    int fd;

    if (!fetch(sock, &p, &fd))
        return false;
    result = ops->import(gpu, &p.export, ~p.export.process, fd, out);
    if (fd >= 0)
        close(fd);
    return result == MOTET_OK;
}

typedef struct pair_case {
    int (*exporter)(int sock, uint32_t kind);
    int (*importer)(int sock);
    bool fake;
    uint32_t kind;
    /* "NAME=VALUE" or NULL: of both, and of each alone */
    const char *both, *exports, *imports;
} pair_case;

static inline void set(const char *variable)
{
    char *copy = variable != NULL ? strdup(variable) : NULL;

    if (copy != NULL)
        putenv(copy);
}

static inline int start_driver(bool fake)
{
    return rig_start(fake, 0) ? 0 : RIG_SKIP;
}

static inline int pair_child(const void *arg)
{
    const pair_case *c = arg;
    int ends[2], status, skipped;
    pid_t pid;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    set(c->both);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        set(c->imports);
        skipped = start_driver(c->fake);
        status = skipped != 0 ? skipped : c->importer(ends[1]);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    set(c->exports);
    skipped = start_driver(c->fake);
    if (skipped != 0) {
        close(ends[0]);
        waitpid(pid, &status, 0);
        return RIG_SKIP;
    }
    CHECK(c->exporter(ends[0], c->kind) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    return 0;
}

static inline void run_pair(pair_case c)
{
    child_result child = child_run(pair_child, &c, NULL);

    if (child.status == RIG_SKIP)
        skip();
    if (child.status != 0)
        fail_msg("status %d\n%s%s", child.status, child.out, child.err);
}

/* ---- what is shared arrives, in both directions, once for each allocation ---- */

static inline int exporter(int sock, uint32_t kind)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, 5 * MIB, &memory) == MOTET_OK);
    CHECK(ops->fill(gpu, memory.address, 11, memory.bytes / 4, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(post_export(sock, gpu, memory.address, kind));
    CHECK(post_export(sock, gpu, memory.address + 3 * MIB, kind));
    CHECK(fetch_token(sock, 2));
    CHECK(rig_word(gpu, memory.address + 3 * MIB) == 22);
    ops->free(gpu, &memory);

    /* another one, as likely as not at the same place */
    CHECK(ops->alloc(gpu, 5 * MIB, &memory) == MOTET_OK);
    CHECK(ops->fill(gpu, memory.address, 33, memory.bytes / 4, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(post_export(sock, gpu, memory.address, kind));
    CHECK(fetch_token(sock, 3));
    ops->free(gpu, &memory);
    return 0;
}

static inline int importer(int sock)
{
    motet_gpu_memory whole, part, next;
    motet_gpu *gpu;
    uint64_t at;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(fetch_import(sock, gpu, &whole));
    CHECK(fetch_import(sock, gpu, &part));
    CHECK(part.address == whole.address + 3 * MIB);
    CHECK(whole.bytes >= 5 * MIB && part.bytes == whole.bytes - 3 * MIB);
    CHECK(rig_word(gpu, whole.address) == 11);
    CHECK(rig_word(gpu, whole.address + 5 * MIB - 4) == 11);
    at = whole.address;
    ops->unimport(gpu, &whole);
    CHECK(whole.address == 0);
    ops->unimport(gpu, &whole); /* again: nothing happens */
    CHECK(rig_word(gpu, at) == 11);
    CHECK(ops->fill(gpu, part.address, 22, 1, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(post_token(sock, 2));

    CHECK(fetch_import(sock, gpu, &next));
    CHECK(next.address != at);
    CHECK(rig_word(gpu, next.address) == 33);
    ops->unimport(gpu, &part);
    CHECK(rig_word(gpu, next.address + 5 * MIB - 4) == 33);
    ops->unimport(gpu, &next);
    CHECK(post_token(sock, 3));
    return 0;
}

/* ---- memory of the application ---- */

static inline int application(int sock, uint32_t kind)
{
    uint64_t small[2];
    motet_gpu *gpu;

    CHECK(rig_use(0) && ops->open(0, &gpu) == MOTET_OK);
    for (uint32_t i = 0; i < 2; i++) {
        small[i] = rig_app_alloc(8192);
        CHECK(small[i] != 0);
        CHECK(ops->fill(gpu, small[i], 55 + 11 * i, 2048, NULL) == MOTET_OK);
    }
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(post_export(sock, gpu, small[0] + 4096, kind));
    CHECK(post_export(sock, gpu, small[1], kind));
    CHECK(fetch_token(sock, 4));
    CHECK(rig_word(gpu, small[0] + 4096) == 77 && rig_word(gpu, small[0] + 4092) == 55);
    return 0;
}

static inline int guest(int sock)
{
    motet_gpu_memory first, second;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(fetch_import(sock, gpu, &first));
    CHECK(fetch_import(sock, gpu, &second));
    CHECK(rig_word(gpu, first.address) == 55 && rig_word(gpu, second.address) == 66);
    CHECK(rig_word(gpu, first.address - 4096) == 55);
    CHECK(ops->fill(gpu, first.address, 77, 1, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    ops->unimport(gpu, &first);
    ops->unimport(gpu, &second);
    CHECK(post_token(sock, 4));
    return 0;
}

static inline int what_is_no_device_memory_is_not_exported(void)
{
    motet_gpu_export export = { .kind = 99 };
    uint64_t managed;
    motet_gpu *gpu;
    int fd = -7;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(rig_use(0));
    managed = rig_app_managed(4096);
    CHECK(managed != 0);
    CHECK(ops->export_memory(gpu, managed, &export, &fd) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("not memory of a device");
    CHECK(ops->export_memory(gpu, (uint64_t)(uintptr_t)&fd, &export, &fd) ==
            MOTET_ERR_ARGUMENT);
    CHECK(export.kind == 99 && fd == -7);
    return 0;
}

static inline void test_what_is_no_device_memory_is_not_exported(void **state)
{
    (void)state;
    rig_run(what_is_no_device_memory_is_not_exported, false, 1, NULL);
}

static inline int peers_write_to_each_other(void)
{
    motet_gpu_memory own[2], other[2];
    motet_gpu_export export;
    motet_gpu *gpu[2];
    void *kernel;
    int fd;

    for (int i = 0; i < 2; i++) {
        CHECK(ops->open(i, &gpu[i]) == MOTET_OK);
        CHECK(ops->alloc(gpu[i], 4096, &own[i]) == MOTET_OK);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(ops->export_memory(gpu[!i], own[!i].address + 64, &export, &fd) ==
                MOTET_OK);
        CHECK(export.ordinal == !i && export.offset == 64);
        CHECK(ops->import(gpu[i], &export, export.process, -1, &other[i]) == MOTET_OK);
        CHECK(ops->import(gpu[i], &export, export.process, fd, &other[i]) == MOTET_OK);
        CHECK(other[i].address == own[!i].address + 64);
        if (fd >= 0)
            close(fd);
        kernel = rig_store_kernel(gpu[i]);
        CHECK(kernel != NULL);
        CHECK(rig_store(gpu[i], kernel, other[i].address, (uint32_t)(40 + i), NULL) ==
                MOTET_OK);
        CHECK(ops->stream_sync(gpu[i], NULL) == MOTET_OK);
        CHECK(rig_word(gpu[!i], own[!i].address + 64) == (uint32_t)(40 + i));
        ops->unimport(gpu[i], &other[i]);
    }
    return 0;
}

static inline int a_missing_way_is_a_sentence(void)
{
    motet_gpu_memory memory = { .address = 9 }, own;
    motet_gpu_export export;
    motet_gpu *gpu[2];
    int fd;

    CHECK(ops->open(0, &gpu[0]) == MOTET_OK && ops->open(1, &gpu[1]) == MOTET_OK);
    CHECK(ops->alloc(gpu[0], 4096, &own) == MOTET_OK);
    CHECK(ops->export_memory(gpu[0], own.address, &export, &fd) == MOTET_OK);
    CHECK(ops->import(gpu[1], &export, export.process, fd, &memory) ==
            MOTET_ERR_DEVICE);
    CHECK_SAID("device 1 (");
    CHECK_SAID("has no peer access to device 0 (");
    CHECK(memory.address == 9);
    CHECK(ops->import(gpu[0], &export, export.process, fd, &memory) == MOTET_OK);
    CHECK(memory.address == own.address);
    return 0;
}

typedef struct import_job {
    const motet_gpu_export *export;
    int fd;
    motet_gpu *gpu;
    motet_gpu_memory memory;
    motet_result result;
} import_job;

static inline void *import_one(void *arg)
{
    import_job *job = arg;

    job->result = ops->import(job->gpu, job->export, ~job->export->process, job->fd,
            &job->memory);
    return NULL;
}

static inline int crowd(int sock)
{
    import_job jobs[8];
    pthread_t threads[8];
    motet_gpu *gpu;
    parcel p;
    int fd;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    for (int round = 0; round < 2; round++) {
        CHECK(fetch(sock, &p, &fd));
        for (int i = 0; i < 8; i++) {
            jobs[i] = (import_job){ .export = &p.export, .fd = fd, .gpu = gpu };
            CHECK(pthread_create(&threads[i], NULL, import_one, &jobs[i]) == 0);
        }
        for (int i = 0; i < 8; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        for (int i = 0; i < 8; i++) {
            CHECK(jobs[i].result == MOTET_OK);
            CHECK(jobs[i].memory.address == jobs[0].memory.address);
        }
        for (int i = 0; i < 7; i++)
            ops->unimport(gpu, &jobs[i].memory);
        CHECK(rig_word(gpu, jobs[7].memory.address) == 11);
        /* another allocation, though it lies where the first did: a mapping of its own */
        p.export.buffer_id++;
        import_one(&jobs[0]);
        CHECK(jobs[0].result == MOTET_OK);
        CHECK(rig_word(gpu, jobs[0].memory.address) == 11);
        ops->unimport(gpu, &jobs[0].memory);
        CHECK(rig_word(gpu, jobs[7].memory.address) == 11);
        ops->unimport(gpu, &jobs[7].memory);
        if (fd >= 0)
            close(fd);
    }
    CHECK(post_token(sock, 2));
    return 0;
}

static inline int crowded(int sock, uint32_t kind)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, MIB, &memory) == MOTET_OK);
    CHECK(ops->fill(gpu, memory.address, 11, memory.bytes / 4, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(post_export(sock, gpu, memory.address, kind));
    CHECK(post_export(sock, gpu, memory.address, kind));
    CHECK(fetch_token(sock, 2));
    return 0;
}

#endif
