/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registering a window: collective over the communicator. The ranks agree out of band,
 * hand each other the memory behind their buffers where it can be handed on (memory of
 * ncclMemAlloc()), and map it read-only. A part that not every rank could map stays
 * private: its owner goes through the arena, as with any other buffer.
 */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/segment.h"

#include <errno.h>
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

/* The first round: rank 0 brings the rendezvous. The second: whom this rank has mapped. */
typedef struct invitation {
    motet_id id;
    uint64_t number;
} invitation;

typedef struct report {
    uint32_t mapped[(MOTET_MAX_RANKS + 31) / 32];
} report;

typedef struct registering {
    motet_comm *comm;
    motet_window_part *part;
    bool everybody[MOTET_MAX_RANKS];
    uint64_t deadline_ns;
} registering;

static motet_result say(registering *g, const void *mine, size_t bytes, void *all)
{
    return motet_engine_oob(&g->comm->engine, g->everybody, mine, bytes, all,
            g->deadline_ns, &g->comm->cancel);
}

/* Rank 0 makes an id; all meet there with what they hand on. */
static motet_result meet(registering *g, int fd, const part_blob *blob,
        motet_roster *roster)
{
    motet_comm *comm = g->comm;
    motet_params *params = malloc(sizeof(*params));
    invitation mine = { .number = comm->number },
               *all = calloc((size_t)comm->nranks, sizeof(*all));
    motet_join_args args = {
        .rank = comm->rank,
        .nranks = comm->nranks,
        .settings = "",
        .blob = blob,
        .blob_bytes = sizeof(*blob),
        .fds = { fd },
        .nfds = fd >= 0 ? 1 : 0,
        .deadline_ns = g->deadline_ns,
        .cancel = &comm->cancel,
    };
    motet_result result = MOTET_OK;

    if (params == NULL || all == NULL)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "exchange with %d ranks",
                comm->nranks);
    if (result == MOTET_OK)
        result = motet_params_from_environment(params);
    if (result == MOTET_OK) {
        params->value[MOTET_P_COMM_ID].text[0] = '\0';
        if (comm->rank == 0)
            result = motet_id_create(params, &mine.id);
    }
    if (result == MOTET_OK)
        result = say(g, &mine, sizeof(mine), all);
    if (result == MOTET_OK)
        result = motet_bootstrap_join(params, &all[0].id, &args, roster);
    free(params);
    free(all);
    return result;
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

static void unmap_part(motet_window_part *part)
{
    if (part->map != NULL)
        motet_segment_unmap(part->map, part->map_bytes);
    *part = (motet_window_part){ 0 };
}

/* Map the others' parts, then keep those that everybody has mapped. */
static motet_result map_all(registering *g, motet_roster *roster)
{
    motet_comm *comm = g->comm;
    report mine = { { 0 } }, *all = calloc((size_t)comm->nranks, sizeof(*all));
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
            if ((all[who].mapped[r / 32] & 1u << (r % 32)) == 0)
                unmap_part(&g->part[r]);
    free(all);
    return result;
}

/* This rank's own part, and the segment behind it (−1: it cannot be handed on). */
static motet_result own_part(registering *g, void *base, size_t bytes, part_blob *blob,
        int *fd_out)
{
    struct stat seen;
    size_t offset = 0, map_bytes = 0;

    MOTET_TRY(g->comm->device->share(base, bytes, fd_out, &offset, &map_bytes),
            "look at the window's memory");
    *blob = (part_blob){ .offset = offset, .bytes = bytes, .map_bytes = map_bytes };
    if (*fd_out < 0)
        return MOTET_OK;
    if (fstat(*fd_out, &seen) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "look at the window's segment");
    blob->device = (uint64_t)seen.st_dev;
    blob->inode = (uint64_t)seen.st_ino;
    g->part[g->comm->rank] = (motet_window_part){ .base = base, .bytes = bytes };
    return MOTET_OK;
}

static motet_result exchange(registering *g, void *base, size_t bytes)
{
    motet_roster roster = { 0 };
    part_blob blob;
    int fd = -1;
    motet_result result = own_part(g, base, bytes, &blob, &fd);

    if (result == MOTET_OK)
        result = meet(g, fd, &blob, &roster);
    if (result == MOTET_OK)
        result = map_all(g, &roster);
    motet_roster_release(&roster);
    if (fd >= 0)
        close(fd);
    return result;
}

static void free_parts(motet_window_part *part, int nranks)
{
    for (int r = 0; part != NULL && r < nranks; r++)
        unmap_part(&part[r]);
    free(part);
}

motet_result motet_window_map(motet_comm *comm, void *base, size_t bytes,
        uint32_t *number_out)
{
    registering g = {
        .comm = comm,
        .part = calloc((size_t)comm->nranks, sizeof(*g.part)),
        .deadline_ns = motet_deadline_after_s(comm->init_timeout_s),
    };
    motet_window *free_entry = NULL;
    motet_result result;

    if (g.part == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "window of %d ranks", comm->nranks);
    for (int r = 0; r < comm->nranks; r++)
        g.everybody[r] = true;
    comm->windows_made++;
    *number_out = 0;
    result = comm->nranks == 1 ? MOTET_OK : exchange(&g, base, bytes);
    for (int i = 0; i < MOTET_WINDOWS && free_entry == NULL; i++)
        if (atomic_load(&comm->engine.window[i].number) == 0)
            free_entry = &comm->engine.window[i];
    if (result != MOTET_OK || free_entry == NULL || comm->nranks == 1) {
        free_parts(g.part, comm->nranks);
        return result;
    }
    free_entry->part = g.part;
    *number_out = comm->windows_made;
    atomic_store_explicit(&free_entry->number, *number_out, memory_order_release);
    return MOTET_OK;
}

void motet_window_unmap(motet_comm *comm, uint32_t number)
{
    for (int i = 0; i < MOTET_WINDOWS && number != 0; i++) {
        motet_window *window = &comm->engine.window[i];

        if (atomic_load(&window->number) != number)
            continue;
        atomic_store(&window->number, 0);
        free_parts(window->part, comm->nranks);
        window->part = NULL;
    }
}
