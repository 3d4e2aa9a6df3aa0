/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of GPU ranks, and buffers that the device can reach. Registering is collective:
 * the ranks hand each other the memory behind their buffers and map it for their devices.
 * A window counts only if every rank has mapped every part; then all ranks write where
 * its parts lie into the table that their kernels read.
 */
#include "comm/gpu.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a rank says of its part. */
typedef struct part_offer {
    motet_gpu_export memory;
    uint64_t bytes;
} part_offer;

typedef struct registering {
    motet_comm *comm;
    motet_gpu_window *window;
    uint64_t deadline_ns;
} registering;

/* The same slot on all ranks, since the number is. */
static motet_gpu_window *slot_of(motet_comm *comm, uint32_t number)
{
    return &comm->gpu->window[(number - 1) % MOTET_GPU_WINDOWS];
}

static motet_result offer_part(registering *g, void *base, part_offer *out, int *fd_out)
{
    const motet_gpu_ops *ops = g->comm->device->gpu;
    motet_pointer pointer;

    *fd_out = -1;
    MOTET_TRY(ops->pointer((uint64_t)(uintptr_t)base, &pointer), "window");
    if (pointer.kind != MOTET_POINTER_DEVICE)
        return MOTET_OK; /* export kind NONE: others cannot map it */
    MOTET_TRY(ops->export_memory(g->comm->gpu_device, (uint64_t)(uintptr_t)base,
                      &out->memory, fd_out),
            "window");
    out->memory.process = g->comm->gpu_process;
    return MOTET_OK;
}

static motet_result import_all(registering *g, const motet_roster *roster)
{
    motet_comm *comm = g->comm;

    for (int r = 0; r < comm->nranks; r++) {
        const motet_roster_entry *entry = &roster->rank[r];
        part_offer offer;

        if (r == comm->rank)
            continue;
        if (entry->blob_bytes != sizeof(offer))
            return motet_fail(MOTET_ERR_USAGE, "rank %d offers no window", r);
        memcpy(&offer, entry->blob, sizeof(offer));
        if (offer.memory.kind == MOTET_GPU_EXPORT_NONE &&
                offer.memory.process != comm->gpu_process)
            return motet_fail(MOTET_ERR_DEVICE, "rank %d cannot hand its buffer on", r);
        MOTET_TRY(comm->device->gpu->import(comm->gpu_device, &offer.memory,
                          comm->gpu_process, entry->fds[0], &g->window->part[r]),
                "map the window of rank %d", r);
    }
    return MOTET_OK;
}

static motet_result write_table(registering *g, void *base)
{
    motet_comm *comm = g->comm;
    motet_gpu_link *link = comm->gpu->link;
    uint64_t at[MOTET_GPU_RANKS];
    uint32_t index = (uint32_t)(g->window - comm->gpu->window);

    for (int r = 0; r < comm->nranks; r++)
        at[r] = r == comm->rank ? (uint64_t)(uintptr_t)base
                                : g->window->part[r].address;
    return motet_gpu_link_copy(link,
            (uint64_t)(uintptr_t)
                    motet_gpu_window_at((uint8_t *)(uintptr_t)link->own.address,
                            &link->layout, index + 1, 0),
            (uint64_t)(uintptr_t)at, (size_t)comm->nranks * sizeof(*at));
}

static void drop_parts(motet_comm *comm, motet_gpu_window *window)
{
    for (int r = 0; r < comm->nranks; r++)
        comm->device->gpu->unimport(comm->gpu_device, &window->part[r]);
}

/* Map and note; *good_out is the same on all ranks. */
static motet_result exchange(registering *g, void *base, size_t bytes, bool *good_out)
{
    motet_comm *comm = g->comm;
    part_offer offer = { .bytes = bytes };
    motet_roster roster = { 0 };
    uint32_t mine, all[MOTET_GPU_RANKS];
    motet_result result;
    int fd;

    if (offer_part(g, base, &offer, &fd) != MOTET_OK)
        motet_error_clear(); /* the arena serves as well */
    result = motet_comm_meet(comm, &offer, sizeof(offer), fd, g->deadline_ns,
            &comm->engine.stop, &roster);
    if (result == MOTET_OK) {
        mine = offer.memory.kind != MOTET_GPU_EXPORT_NONE && g->window->bytes == 0 &&
                import_all(g, &roster) == MOTET_OK && write_table(g, base) == MOTET_OK;
        motet_error_clear();
        result = motet_comm_say(comm, &mine, sizeof(mine), all, g->deadline_ns,
                &comm->engine.stop);
    }
    *good_out = result == MOTET_OK;
    for (int r = 0; r < comm->nranks && *good_out; r++)
        *good_out = all[r] != 0;
    motet_roster_release(&roster);
    if (fd >= 0)
        close(fd);
    return result;
}

motet_result motet_comm_gpu_window_map(motet_comm *comm, void *base, size_t bytes,
        uint32_t *number_out)
{
    registering g = { .comm = comm,
        .deadline_ns = motet_deadline_after_s(comm->init_timeout_s) };
    bool good = false;
    motet_result result;

    *number_out = 0;
    g.window = slot_of(comm, ++comm->windows_made);
    /* No rank may reach around a path that a pair does not have. */
    if (comm->nranks == 1 || comm->gpu->link->paths != 1u << MOTET_GPU_PATH_DIRECT)
        return MOTET_OK;
    result = exchange(&g, base, bytes, &good);
    if (result != MOTET_OK || !good) {
        if (g.window->bytes == 0)
            drop_parts(comm, g.window);
        return result;
    }
    g.window->base = (uint64_t)(uintptr_t)base;
    g.window->bytes = bytes;
    comm->gpu->windows++;
    *number_out = comm->windows_made;
    return MOTET_OK;
}

void motet_comm_gpu_window_unmap(motet_comm *comm, uint32_t number)
{
    motet_gpu_window *window = slot_of(comm, number);

    window->bytes = 0;
    drop_parts(comm, window);
    comm->gpu->windows--;
}

static motet_result check_buffer(motet_comm *comm, const void *buffer, uint64_t bytes,
        const char *name)
{
    uint64_t at = (uint64_t)(uintptr_t)buffer;
    motet_pointer seen;

    if (bytes == 0)
        return MOTET_OK;
    MOTET_TRY(comm->device->gpu->pointer(at, &seen), "%s", name);
    if (seen.kind == MOTET_POINTER_UNKNOWN)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s %p is no memory that the device knows: ordinary memory, or freed",
                name, buffer);
    if (seen.kind == MOTET_POINTER_DEVICE && seen.ordinal != comm->ordinal)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s %p lies on device %d, and the communicator's is %d", name, buffer,
                seen.ordinal, comm->ordinal);
    if (seen.bytes != 0 && bytes > seen.base + seen.bytes - at)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s %p has %llu bytes to the end of its memory, need %llu", name,
                buffer, (unsigned long long)(seen.base + seen.bytes - at),
                (unsigned long long)bytes);
    return MOTET_OK;
}

motet_result motet_comm_gpu_check_buffers(motet_comm *comm, const motet_op *op)
{
    size_t send, recv;

    motet_op_pieces(op, comm->rank, comm->nranks, &send, &recv);
    MOTET_TRY(check_buffer(comm, op->send, send * motet_op_bytes(op), "sendbuff"), "%s",
            motet_kind_table[op->kind].api_name);
    return check_buffer(comm, op->recv, recv * motet_op_bytes(op), "recvbuff");
}
