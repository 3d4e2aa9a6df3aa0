/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size is checked against the memory that is there before anything is taken: the
 * kernel would hand out pages of a memory file until it kills processes, whoever they
 * belong to. Then all pages are taken at once, so that no later store finds none.
 *
 * Sealed against resizing, because a mapping of a file that its owner shrinks
 * turns a load into SIGBUS: whoever maps a segment can rely on its size for good.
 */
#include "base/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
/* Since Linux 6.1; newer than some C libraries. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Give back what the room has before and after the mapping. */
static void trim(uint8_t *room, uint8_t *start, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *end = start + (bytes + page - 1) / page * page;
    uint8_t *room_end = room + (bytes + HUGE_PAGE_BYTES + page - 1) / page * page;

    if (start > room)
        (void)munmap(room, (size_t)(start - room)); /* ours: cannot fail */
    if (room_end > end)
        (void)munmap(end, (size_t)(room_end - end));
}

/* Map a segment so that it can have huge pages: a large one starts where one can. */
static void *map_shared(int fd, size_t bytes, int protection)
{
    const int flags = MAP_SHARED | MAP_POPULATE;
    uint8_t *room, *start;
    void *map;

    if (bytes < HUGE_PAGE_BYTES)
        return mmap(NULL, bytes, protection, flags, fd, 0);
    room = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
            -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    start = (uint8_t *)(((uintptr_t)room + HUGE_PAGE_BYTES - 1) &
            ~(HUGE_PAGE_BYTES - 1));
    map = mmap(start, bytes, protection, flags | MAP_FIXED, fd, 0);
    if (map == MAP_FAILED) {
        const int error = errno;

        (void)munmap(room, bytes + HUGE_PAGE_BYTES); /* ours and whole */
        errno = error;
        return MAP_FAILED;
    }
    trim(room, start, bytes);
    return map;
}

/* Bytes of memory that could be taken without swapping; all of it if that is unknown. */
static uint64_t available_bytes(void)
{
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    char text[1024];
    struct sysinfo machine;
    ssize_t n = 0;

    if (fd >= 0) {
        const char *line;

        n = read(fd, text, sizeof(text) - 1);
        (void)close(fd); /* only read from */
        text[n > 0 ? n : 0] = '\0';
        line = strstr(text, "MemAvailable:");
        if (line != NULL)
            return strtoull(line + strlen("MemAvailable:"), NULL, 10) << 10;
    }
    if (sysinfo(&machine) == 0)
        return (uint64_t)machine.totalram * machine.mem_unit;
    return UINT64_MAX;
}

/* Give @p fd its size, all of its memory, and the seals. */
static motet_result prepare(const char *label, int fd, size_t bytes)
{
    const uint64_t available = available_bytes();
    int error = EINTR;

    if (bytes > (size_t)INT64_MAX || bytes > available) {
        errno = ENOMEM;
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "reserve %zu bytes for segment '%s' with %llu available", bytes, label,
                (unsigned long long)available);
    }
    if (ftruncate(fd, (off_t)bytes) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "resize segment '%s' to %zu bytes",
                label, bytes);
    /* Without this, memory that is not there shows as SIGBUS at the first store. A
     * signal undoes it; a process that gets them all the time goes on without. */
    for (int tries = 0; error == EINTR && tries < 100; tries++)
        error = posix_fallocate(fd, 0, (off_t)bytes);
    if (error != 0 && error != EINTR) {
        errno = error;
        return motet_fail_errno(MOTET_ERR_SYSTEM, "reserve %zu bytes for segment '%s'",
                bytes, label);
    }
    if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "seal segment '%s' of %zu bytes",
                label, bytes);
    return MOTET_OK;
}

motet_result motet_segment_create(const char *label, size_t bytes, void **map_out,
        int *fd_out)
{
    motet_result result;
    void *map;
    int fd;

    if (bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "segment '%s' is 0 bytes, need at least 1", label);
    fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "create a memory file for segment '%s' of %zu bytes", label, bytes);
    result = prepare(label, fd, bytes);
    if (result != MOTET_OK)
        goto out;
    map = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    if (map == MAP_FAILED) {
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "map %zu bytes of segment '%s'",
                bytes, label);
        goto out;
    }
    *map_out = map;
    *fd_out = fd;
    return MOTET_OK;
out:
    (void)close(fd); /* nobody else has it: its memory goes with it */
    return result;
}

motet_result motet_segment_map(int fd, size_t bytes, bool writable, void **map_out)
{
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    struct stat st;
    void *map;
    int seals;

    if (bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "map 0 bytes of a segment, need at least 1");
    if (fstat(fd, &st) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "look at a segment of %zu bytes",
                bytes);
    if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return motet_fail(MOTET_ERR_SYSTEM,
                "a peer's segment has %lld bytes, need at least %zu",
                (long long)st.st_size, bytes);
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "read the seals of a peer's segment of %zu bytes", bytes);
    if (!(seals & F_SEAL_SHRINK))
        return motet_fail(MOTET_ERR_SYSTEM,
                "a peer's segment of %zu bytes can be resized, need a sealed one",
                bytes);
    map = map_shared(fd, bytes, protection);
    if (map == MAP_FAILED)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "map %zu bytes of a peer's segment",
                bytes);
    *map_out = map;
    return MOTET_OK;
}

void motet_segment_compact(void *map, size_t bytes)
{
    const int saved = errno;

    if (bytes >= HUGE_PAGE_BYTES)
        (void)madvise(map, bytes, MADV_COLLAPSE); /* a wish */
    errno = saved;
}

void motet_segment_unmap(void *map, size_t bytes)
{
    if (map != NULL)
        (void)munmap(map, bytes); /* fails only for a range that is not one */
}
