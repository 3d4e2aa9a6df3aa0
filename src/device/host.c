/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU as a device: its memory is shared segments, so that other ranks can map it
 * (windows), its streams are host streams,
 * its ordinals are only labels. Allocations are kept in a table, so that a pointer from
 * elsewhere is refused without being looked at.
 */
#include "device/device.h"

#include "base/segment.h"
#include "device/stream.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* CUDA's handles for "the default stream": legacy and per thread (api.md 1.3). */
#define STREAM_LEGACY     ((uintptr_t)1)
#define STREAM_PER_THREAD ((uintptr_t)2)

#define NUM_BUCKETS        256
#define PAGE_SHIFT_OF_HASH 12

typedef struct allocation {
    struct allocation *next;
    void *ptr;
    size_t bytes;
    int fd;         /* of the segment */
    bool shared;    /* others have been handed it */
    unsigned holds; /* times shared and not yet given back                     */
    bool freed;     /* by its owner; stays in its place as long as it is held  */
} allocation;

static allocation *buckets[NUM_BUCKETS];
static pthread_mutex_t buckets_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&buckets_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&buckets_lock);
}

/* A child may free what its parent had allocated, whatever other threads were doing. */
static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork,
            after_fork); /* fails without memory */
}

static allocation **bucket_of(const void *ptr)
{
    return &buckets[((uintptr_t)ptr >> PAGE_SHIFT_OF_HASH) % NUM_BUCKETS];
}

static motet_result host_count(int *count_out)
{
    *count_out = INT_MAX;
    return MOTET_OK;
}

/* The model's name from /proc/cpuinfo; not every architecture has one there. */
static bool read_model_name(char *buf, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');

        if (colon == NULL || strncmp(line, "model name", 10) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
        found = buf[0] != '\0';
    }
    (void)fclose(file); /* only read from */
    return found;
}

static motet_result host_describe(int ordinal, motet_device_info *info_out)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    motet_device_info info = { .memory_bytes = 0 };
    struct utsname host;

    if (ordinal < 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "cpu ordinal is %d, need at least 0",
                ordinal);
    if (!read_model_name(info.name, sizeof(info.name)))
        snprintf(info.name, sizeof(info.name), "%.40s CPU",
                uname(&host) == 0 ? host.machine : "unknown");
    snprintf(info.identity, sizeof(info.identity), "cpu:%d", ordinal);
    if (pages > 0 && page_bytes > 0)
        info.memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    *info_out = info;
    return MOTET_OK;
}

static motet_result host_alloc(size_t bytes, void **ptr_out)
{
    allocation *entry;
    motet_result result;

    if (bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "allocate 0 bytes, need at least 1");
    pthread_once(&fork_once, watch_forks);
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate %zu bytes", bytes);
    result = motet_segment_create("motet-memory", bytes, &entry->ptr, &entry->fd);
    if (result != MOTET_OK) {
        free(entry);
        return motet_error_wrap(result, "allocate %zu bytes", bytes);
    }
    entry->bytes = bytes;
    pthread_mutex_lock(&buckets_lock);
    entry->next = *bucket_of(entry->ptr);
    *bucket_of(entry->ptr) = entry;
    *ptr_out = entry->ptr;
    pthread_mutex_unlock(&buckets_lock);
    return MOTET_OK;
}

/* The allocation that holds all of @p bytes at @p ptr, also a freed one that is held, or
 * NULL. With the lock held. */
static allocation *holder_of(const void *ptr, size_t bytes)
{
    uintptr_t at = (uintptr_t)ptr;

    for (size_t i = 0; i < NUM_BUCKETS; i++)
        for (allocation *a = buckets[i]; a != NULL; a = a->next)
            if (at >= (uintptr_t)a->ptr && bytes <= a->bytes &&
                    at - (uintptr_t)a->ptr <= a->bytes - bytes)
                return a;
    return NULL;
}

static motet_result host_share(const void *ptr, size_t bytes, int *fd_out,
        size_t *offset_out, size_t *bytes_out)
{
    size_t offset = 0, whole = 0;
    bool first = false;
    allocation *a;
    int fd = -1;

    pthread_mutex_lock(&buckets_lock);
    a = holder_of(ptr, bytes);
    if (a != NULL && a->freed)
        a = NULL;
    if (a != NULL) {
        fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
        offset = (size_t)((uintptr_t)ptr - (uintptr_t)a->ptr);
        whole = a->bytes;
        first = !a->shared;
        a->shared = true;
        a->holds += fd >= 0;
    }
    pthread_mutex_unlock(&buckets_lock);
    if (first)
        motet_segment_compact((uint8_t *)(uintptr_t)ptr - offset, whole);
    if (a != NULL && fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "duplicate a segment's descriptor");
    *fd_out = fd;
    if (a != NULL) {
        *offset_out = offset;
        *bytes_out = whole;
    }
    return MOTET_OK;
}

/* Take @p entry out of the table. With the lock held. */
static void forget(const allocation *entry)
{
    allocation **at = bucket_of(entry->ptr);

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
}

static void give_back(allocation *entry)
{
    motet_segment_unmap(entry->ptr, entry->bytes);
    (void)close(entry->fd); /* of a memory file: nothing to lose */
    free(entry);
}

static void host_unshare(const void *ptr)
{
    allocation *entry;
    bool last = false;

    pthread_mutex_lock(&buckets_lock);
    entry = holder_of(ptr, 1);
    if (entry != NULL && entry->holds > 0)
        last = --entry->holds == 0 && entry->freed;
    if (last)
        forget(entry);
    pthread_mutex_unlock(&buckets_lock);
    if (last)
        give_back(entry);
}

/* Were the place of memory that is shared given to somebody else, his data would be taken
 * for what is shared. */
static motet_result host_free(void *ptr)
{
    allocation *entry;
    bool now;

    if (ptr == NULL)
        return MOTET_OK;
    pthread_mutex_lock(&buckets_lock);
    entry = *bucket_of(ptr);
    while (entry != NULL && (entry->ptr != ptr || entry->freed))
        entry = entry->next;
    now = entry != NULL && entry->holds == 0;
    if (now)
        forget(entry);
    else if (entry != NULL)
        entry->freed = true;
    pthread_mutex_unlock(&buckets_lock);
    if (entry == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "free %p: it was not allocated here, or was freed already", ptr);
    if (now)
        give_back(entry);
    return MOTET_OK;
}

static bool host_stream_blocks(const void *stream)
{
    return stream == NULL || (uintptr_t)stream == STREAM_LEGACY ||
            (uintptr_t)stream == STREAM_PER_THREAD;
}

static motet_result host_stream_check(const void *stream)
{
    if (host_stream_blocks(stream) || motet_host_stream_valid(stream))
        return MOTET_OK;
    return motet_fail(MOTET_ERR_ARGUMENT,
            "stream %p is not usable by a CPU rank, need NULL or a live host stream",
            stream);
}

const motet_device_ops motet_device_cpu = {
    .name = "cpu",
    .kind = MOTET_DEVICE_KIND_CPU,
    .count = host_count,
    .describe = host_describe,
    .alloc = host_alloc,
    .free = host_free,
    .share = host_share,
    .unshare = host_unshare,
    .stream_check = host_stream_check,
    .stream_blocks = host_stream_blocks,
};
