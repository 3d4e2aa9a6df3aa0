/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registering a window: collective over the communicator. The ranks agree out of band,
 * hand each other the memory behind their buffers where it can be handed on (memory of
 * ncclMemAlloc()), and map it read-only. A part that not every rank could map stays
 * private: its owner goes through the arena, as with any other buffer.
 */
#include "comm/gpu.h"

#include "base/clock.h"
#include "base/segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a rank says of its part. */
typedef struct part_blob {
    uint64_t offset; /* of the buffer in what is handed on */
    uint64_t bytes;  /* of the buffer                      */
    uint64_t map_bytes;
    uint64_t device, inode; /* of the segment: proves that it is the one */
} part_blob;

/* Whom this rank has mapped, and whether its table has room. */
typedef struct report {
    uint32_t has_room;
    uint32_t mapped[(MOTET_MAX_RANKS + 31) / 32];
} report;

typedef struct registering {
    motet_comm *comm;
    motet_window_part *part;
    uint64_t deadline_ns;
} registering;

/* Ends when the communicator fails, too: a window of a failed one is of no use. */
static motet_result say(registering *g, const void *mine, size_t bytes, void *all)
{
    motet_engine *engine = &g->comm->engine;

    return motet_comm_say(g->comm, mine, bytes, all, g->deadline_ns, &engine->stop);
}

/* Map one rank's part; a part that cannot be mapped, or is not the one, is passed over. */
static bool map_part(motet_roster_entry *entry, motet_window_part *part)
{
    part_blob blob;
    struct stat seen;
    void *map;

    if (entry->fds[0] < 0 || entry->blob_bytes != sizeof(blob))
        return false;
    memcpy(&blob, entry->blob, sizeof(blob));
    if (fstat(entry->fds[0], &seen) != 0 || (uint64_t)seen.st_dev != blob.device ||
            (uint64_t)seen.st_ino != blob.inode || blob.offset > blob.map_bytes ||
            blob.bytes > blob.map_bytes - blob.offset)
        return false;
    if (motet_segment_map(entry->fds[0], blob.map_bytes, false, &map) != MOTET_OK) {
        motet_error_clear(); /* the arena serves as well */
        return false;
    }
    *part = (motet_window_part){
        .base = (uint8_t *)map + blob.offset,
        .bytes = blob.bytes,
        .map = map,
        .map_bytes = blob.map_bytes,
    };
    return true;
}

static void unmap_part(const motet_comm *comm, motet_window_part *part)
{
    if (part->map != NULL)
        motet_segment_unmap(part->map, part->map_bytes);
    if (part->shared != NULL)
        comm->device->unshare(part->shared);
    *part = (motet_window_part){ 0 };
}

static motet_window *free_entry(motet_comm *comm)
{
    for (int i = 0; i < MOTET_WINDOWS; i++)
        if (atomic_load(&comm->engine.window[i].number) == 0)
            return &comm->engine.window[i];
    return NULL;
}

/* Map the others' parts, then keep those that everybody has mapped; none if a table is
 * full anywhere. */
static motet_result map_all(registering *g, motet_roster *roster)
{
    motet_comm *comm = g->comm;
    report mine = { .has_room = free_entry(comm) != NULL },
           *all = calloc((size_t)comm->nranks, sizeof(*all));
    motet_result result;

    if (all == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "exchange with %d ranks",
                comm->nranks);
    for (int r = 0; r < comm->nranks; r++) {
        bool has = r == comm->rank ? g->part[r].base != NULL
                                   : map_part(&roster->rank[r], &g->part[r]);

        if (has)
            mine.mapped[r / 32] |= 1u << (r % 32);
    }
    result = say(g, &mine, sizeof(mine), all);
    for (int r = 0; r < comm->nranks && result == MOTET_OK; r++)
        for (int who = 0; who < comm->nranks; who++)
            if (!all[who].has_room || (all[who].mapped[r / 32] & 1u << (r % 32)) == 0)
                unmap_part(comm, &g->part[r]);
    free(all);
    return result;
}

/* This rank's own part. Returns the segment behind it, −1 if it cannot be handed on: the
 * others are told so, rather than left waiting. */
static int own_part(registering *g, void *base, size_t bytes, part_blob *blob)
{
    struct stat seen;
    size_t offset = 0, map_bytes = 0;
    int fd = -1;

    *blob = (part_blob){ .bytes = bytes };
    if (g->comm->device->share(base, bytes, &fd, &offset, &map_bytes) != MOTET_OK) {
        motet_error_clear(); /* the arena serves as well */
        return -1;
    }
    if (fd >= 0 && fstat(fd, &seen) != 0) {
        g->comm->device->unshare(base);
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        return -1;
    blob->offset = offset;
    blob->map_bytes = map_bytes;
    blob->device = (uint64_t)seen.st_dev;
    blob->inode = (uint64_t)seen.st_ino;
    g->part[g->comm->rank] =
            (motet_window_part){ .base = base, .bytes = bytes, .shared = base };
    return fd;
}

static motet_result exchange(registering *g, void *base, size_t bytes)
{
    motet_roster roster = { 0 };
    part_blob blob;
    int fd = own_part(g, base, bytes, &blob);
    motet_result result = motet_comm_meet(g->comm, &blob, sizeof(blob), fd,
            g->deadline_ns, &g->comm->engine.stop, &roster);

    if (result == MOTET_OK)
        result = map_all(g, &roster);
    motet_roster_release(&roster);
    if (fd >= 0)
        close(fd);
    return result;
}

/* Is there anything to read in place? The same on all ranks. */
static bool any_part(const motet_window_part *part, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (part[r].base != NULL)
            return true;
    return false;
}

static void free_parts(const motet_comm *comm, motet_window_part *part)
{
    for (int r = 0; part != NULL && r < comm->nranks; r++)
        unmap_part(comm, &part[r]);
    free(part);
}

motet_result motet_window_map(motet_comm *comm, void *base, size_t bytes,
        uint32_t *number_out)
{
    registering g = {
        .comm = comm,
        .deadline_ns = motet_deadline_after_s(comm->init_timeout_s),
    };
    motet_window *entry;
    motet_result result;

    if (comm->gpu_device != NULL) {
        *number_out = 0;
        return comm->gpu == NULL
                ? MOTET_OK
                : motet_comm_gpu_window_map(comm, base, bytes, number_out);
    }
    g.part = calloc((size_t)comm->nranks, sizeof(*g.part));
    if (g.part == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "window of %d ranks", comm->nranks);
    comm->windows_made++;
    *number_out = 0;
    result = comm->nranks == 1 ? MOTET_OK : exchange(&g, base, bytes);
    entry = any_part(g.part, comm->nranks) ? free_entry(comm) : NULL;
    if (result != MOTET_OK || entry == NULL) {
        free_parts(comm, g.part);
        return result;
    }
    entry->part = g.part;
    *number_out = comm->windows_made;
    atomic_store_explicit(&entry->number, *number_out, memory_order_release);
    return MOTET_OK;
}

void motet_window_unmap(motet_comm *comm, uint32_t number)
{
    if (comm->gpu != NULL && number != 0) {
        motet_comm_gpu_window_unmap(comm, number);
        return;
    }
    for (int i = 0; i < MOTET_WINDOWS && number != 0; i++) {
        motet_window *window = &comm->engine.window[i];

        if (atomic_load(&window->number) != number)
            continue;
        atomic_store(&window->number, 0);
        free_parts(comm, window->part);
        window->part = NULL;
    }
}
