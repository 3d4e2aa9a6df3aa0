/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where GPU ranks' memory meets. Each rank makes its own words, and up to two arenas: in
 * device memory for the peers that it has a direct path with, in a shared segment that its
 * device has registered for those that it meets in host memory. It hands them on, and maps
 * of each peer the one that this peer has for it.
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
    uint32_t path; /* motet_gpu_path of those whom it is for        */
    uint32_t reserved;
    uint64_t bytes; /* of the arena; 0: there is none                */
    uint64_t nonce; /* lies in the arena's first line: proves a mapping */
    motet_gpu_export memory;
} motet_gpu_offer;

typedef struct motet_gpu_link {
    struct motet_gpu_link *next; /* of those that wait to be freed */
    const motet_gpu_ops *ops;
    motet_gpu *gpu;
    int rank, nranks;
    motet_gpu_layout layout;
    uint32_t
            paths; /* bit per path that a pair of the communicator takes: alike on all ranks */
    motet_gpu_path
            path[MOTET_GPU_RANKS]; /* to and from each peer; of a lone rank: its own */
    void *stream; /* ours, for set-up and for looking                                 */
    void *order;  /* event behind the last operation: graphs touch it, so it stays as
                     long as they do                                                  */

    motet_gpu_memory own;
    motet_gpu_control *control; /* as the host sees it                                */
    uint64_t control_device;    /* as the device does                                 */
    motet_gpu_memory arena;     /* for peers on the direct path                       */
    void *segment;              /* for those on the staged path                       */
    int segment_fd;             /* until it was handed on, else −1                    */
    /* both, as kernels of this rank see them; if only one was made, twice that one */
    uint64_t inbox[MOTET_GPU_INBOXES];
    uint32_t
            hosted; /* bit per peer on the staged path                                */
    uint64_t
            at[MOTET_GPU_RANKS]; /* peers' arenas, as kernels of this rank see them   */
    motet_gpu_memory imported[MOTET_GPU_RANKS];
    void *mapped[MOTET_GPU_RANKS]; /* staged: peers' segments                         */
    uint32_t ticket, blocks; /* of the last launch that reports its end, and its grid */
    bool used;               /* there was one */
    bool stuck; /* its device runs a kernel that does not leave: nothing can be freed  */
    _Atomic int holds; /* the communicator and its graphs                    */
} motet_gpu_link;

/** Control page, stream and event of @p rank; no memory of the device yet. */
MOTET_MUST_USE motet_result motet_gpu_link_make(const motet_gpu_ops *ops,
        motet_gpu *gpu, int rank, int nranks, motet_gpu_link **out);

/**
 * Make the own words; arenas will be of @p layout.
 * @param path to each peer, and to this rank itself: that of a lone one
 */
MOTET_MUST_USE motet_result motet_gpu_link_begin(motet_gpu_link *link,
        const motet_gpu_layout *layout, const motet_gpu_path *path);

/** Make the arena for those on @p path, if there are any: the direct one first. */
MOTET_MUST_USE motet_result motet_gpu_link_make_arena(motet_gpu_link *link,
        motet_gpu_path path);

/**
 * Describe the arena for those on @p path to them.
 * @param nonce goes into the arena, for the peers to see
 * @param out on failure an offer of nothing
 * @param fd_out a descriptor that goes along with the offer, the caller's; −1 if none
 */
MOTET_MUST_USE motet_result motet_gpu_link_offer(motet_gpu_link *link,
        motet_gpu_path path, uint64_t process, uint64_t nonce, motet_gpu_offer *out,
        int *fd_out);

/** Map the arena that @p peer has for this rank, and see its nonce. */
MOTET_MUST_USE motet_result motet_gpu_link_map(motet_gpu_link *link, int peer,
        const motet_gpu_offer *offer, uint64_t process, int fd);

/** Write words that follow from @p nonce and both ranks into @p peer's arena, here and
 *  there where only this rank writes. Not for an arena in use. Waits for the device. */
MOTET_MUST_USE motet_result motet_gpu_link_sign(motet_gpu_link *link, int peer,
        uint64_t nonce);
/** After that: see whether what @p peer wrote is here. @retval MOTET_ERR_DEVICE it is not */
MOTET_MUST_USE motet_result motet_gpu_link_verify(motet_gpu_link *link, int peer,
        uint64_t nonce);

/** Write a word into the own arenas, when all peers have mapped them; … */
MOTET_MUST_USE motet_result motet_gpu_link_change(motet_gpu_link *link, uint64_t nonce);
/** … and after that: see whether @p peer's is to be seen. @retval MOTET_ERR_DEVICE it is not */
MOTET_MUST_USE motet_result motet_gpu_link_see_change(motet_gpu_link *link, int peer,
        uint64_t nonce);

/** Fresh words everywhere in this rank's memory: positions begin at @p start. The peers
 *  must not run anything meanwhile. Waits for the device. */
MOTET_MUST_USE motet_result motet_gpu_link_reset(motet_gpu_link *link, uint32_t start);

/** Copy @p bytes, host or device to either, and wait until they are there. */
MOTET_MUST_USE motet_result motet_gpu_link_copy(motet_gpu_link *link, uint64_t dst,
        uint64_t src, size_t bytes);

/** Give up own words and arenas, own and mapped: other paths may follow. */
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
/**
 * Free links of @p gpu that nobody holds any more, and whose kernels have left. May wait
 * for all that @p gpu runs, so it is for those who own it: another device's kernels may
 * wait for what the caller launches next.
 */
void motet_gpu_link_sweep(const motet_gpu *gpu);

#endif
