/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where GPU ranks' memory meets. Each rank makes its own words and an arena (in device
 * memory on the direct path, in a shared segment that its device has registered on the
 * staged path), hands the arena on, and maps those of the others.
 *
 * A link outlives its communicator when a graph still holds it: kernels of a replay look
 * at the own words first, find `closed`, and leave before they touch an arena.
 */
#ifndef MOTET_TRANSPORT_GPU_H
#define MOTET_TRANSPORT_GPU_H

#include "device/gpu.h"
#include "kernels/gpu/gpu.h"
#include "transport/gpu_path.h"

#include <stdatomic.h>
#include <stdbool.h>

/** What a rank tells the others of its arena: goes over the wire beside a descriptor. */
typedef struct motet_gpu_offer {
    uint32_t path; /* motet_gpu_path                                */
    uint32_t reserved;
    uint64_t bytes; /* of the arena                                  */
    uint64_t nonce; /* lies in the arena's first line: proves a mapping */
    motet_gpu_export memory;
} motet_gpu_offer;

typedef struct motet_gpu_link {
    struct motet_gpu_link *next; /* of those that wait to be freed */
    const motet_gpu_ops *ops;
    motet_gpu *gpu;
    int rank, nranks;
    motet_gpu_layout layout;
    motet_gpu_path path;
    void *stream; /* ours, for set-up and for looking                                 */
    void *order;  /* event behind the last operation: graphs touch it, so it stays as
                     long as they do                                                  */

    motet_gpu_memory own;
    motet_gpu_control *control; /* as the host sees it                                */
    uint64_t control_device;    /* as the device does                                 */
    motet_gpu_memory arena;     /* direct                                             */
    void *segment;              /* staged: the own arena here                         */
    uint64_t at
            [MOTET_GPU_RANKS]; /* every rank's arena, as kernels of this rank see it */
    motet_gpu_memory imported[MOTET_GPU_RANKS];
    void *mapped[MOTET_GPU_RANKS]; /* staged: peers' segments                         */
    uint32_t ticket, blocks; /* of the last launch that reports its end, and its grid */
    bool used;               /* there was one */
    _Atomic int holds;       /* the communicator and its graphs                    */
} motet_gpu_link;

/** Control page, stream and event of @p rank; no memory of the device yet. */
MOTET_MUST_USE motet_result motet_gpu_link_make(const motet_gpu_ops *ops,
        motet_gpu *gpu, int rank, int nranks, motet_gpu_link **out);

/**
 * Make the own words and arena for @p path, of @p layout.
 * @param nonce goes into the arena, for the peers to see
 * @param fd_out a descriptor that goes along with the offer, the caller's; −1 if none
 */
MOTET_MUST_USE motet_result motet_gpu_link_offer(motet_gpu_link *link,
        motet_gpu_path path, const motet_gpu_layout *layout, uint64_t process,
        uint64_t nonce, motet_gpu_offer *out, int *fd_out);

/** Map @p peer's arena and see its nonce. */
MOTET_MUST_USE motet_result motet_gpu_link_map(motet_gpu_link *link, int peer,
        const motet_gpu_offer *offer, uint64_t process, int fd);

/** Fresh words everywhere in this rank's memory: positions begin at @p start. The peers
 *  must not run anything meanwhile. Waits for the device. */
MOTET_MUST_USE motet_result motet_gpu_link_reset(motet_gpu_link *link, uint32_t start);

/** Copy @p bytes, host or device to either, and wait until they are there. */
MOTET_MUST_USE motet_result motet_gpu_link_copy(motet_gpu_link *link, uint64_t dst,
        uint64_t src, size_t bytes);

/** Give up own words and arenas, own and mapped: another path may follow. */
void motet_gpu_link_unmap(motet_gpu_link *link);

/** Kernels of replays that come later leave at once. Waits for the device. */
motet_result motet_gpu_link_close(motet_gpu_link *link);

/** Have all blocks of the launch with @p ticket left? Later launches imply it. */
bool motet_gpu_link_ended(const motet_gpu_link *link, uint32_t ticket, uint32_t blocks);
/** Have all launches that report their end left? */
bool motet_gpu_link_idle(const motet_gpu_link *link);

/** One more holder. */
void motet_gpu_link_hold(motet_gpu_link *link);
/**
 * One holder less; may be called where the runtime must not be. The last one leaves the
 * memory to the next motet_gpu_link_sweep().
 */
void motet_gpu_link_release(motet_gpu_link *link);
/** Free links that nobody holds any more, and whose kernels have left. */
void motet_gpu_link_sweep(void);

#endif
