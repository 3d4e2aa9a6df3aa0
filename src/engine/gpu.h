/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running operations on GPU ranks: each becomes a kernel launch on the caller's stream.
 * Nothing here waits, allocates or loads. comm sees to it that one thread at a time
 * enqueues; looking (motet_gpu_look()) is the watcher's.
 *
 * Order. Kernels of one communicator must not overlap. On one stream they do not. When
 * the caller changes streams, the new one waits for an event of the old; from then on an
 * event follows every operation, so that a stream is never touched after its owner has
 * destroyed it. A capture waits for that event when it begins and records it when its
 * graph ends, so that replays and eager operations keep apart, too.
 */
#ifndef MOTET_ENGINE_GPU_H
#define MOTET_ENGINE_GPU_H

#include "engine/gpu_copies.h"
#include "engine/wait.h"
#include "plan/gpu.h"
#include "transport/gpu.h"

/** Operations whose end the watcher looks for, at most; a power of two. */
#define MOTET_GPU_PENDING 256

typedef struct motet_gpu_pending {
    motet_trace_op *record;
    uint64_t seq; /* of the record: the ring may have moved on */
    uint32_t ticket, blocks;
} motet_gpu_pending;

/** Kernels for small exchanges. */
#define MOTET_GPU_NUM_SMALL 4

/** A window: bytes 0 is a free slot. */
typedef struct motet_gpu_window {
    uint64_t base, bytes; /* this rank's part                    */
    motet_gpu_memory part[MOTET_GPU_RANKS];
} motet_gpu_window;

struct motet_gpu_engine {
    motet_engine *engine; /* failure, peers, recorder: as for CPU ranks               */
    motet_gpu_link *link;
    motet_gpu_constants constants;
    uint32_t limit; /* most blocks of a grid: alike on all ranks                      */
    bool said_policy; /* that CTA policy ZERO is not kept everywhere                   */
    bool unrecorded; /* what runs is nobody's operation: a proof                      */
    bool mixing; /* captured and eager use may alternate                           */
    void *collective[MOTET_GPU_NUM_PROTOCOLS]
                    [2];              /* copies, reduces; NULL: it does not */
    void *small[MOTET_GPU_NUM_SMALL]; /* see gpu_small.c */
    void *pairs;
    motet_gpu_copies copies;

    motet_gpu_window window[MOTET_GPU_WINDOWS];
    int windows; /* in use: alike on all ranks, since registering is collective       */

    void *join; /* event: between streams of one capture                       */
    const void
            *stream;   /* of the last eager operation                                 */
    bool used, events; /* any eager operation yet; an event follows each              */
    uint64_t capture;  /* of the last captured operation, 0 none                      */
    const void *capture_stream;
    void *leaf;

    motet_gpu_pending pending[MOTET_GPU_PENDING];
    _Atomic uint32_t pending_head, pending_tail;

    /* the watcher's: what a block has waited in for long */
    motet_wait wait;
    motet_running waiting;
    motet_op waiting_op;
    uint32_t waiting_position;
    int waiting_peer; /* −1: nothing waits */
    bool busy;        /* counted as working, by the watcher */
};

/**
 * Events and kernels of an engine whose engine, link, constants and limit are filled.
 * @param module loaded, holds every kernel
 */
MOTET_MUST_USE motet_result motet_gpu_engine_init(motet_gpu_engine *g, void *module);
void motet_gpu_engine_release(motet_gpu_engine *g);

/** Enqueue one collective. @retval see motet_engine_fail(); nothing waits. */
MOTET_MUST_USE motet_result motet_gpu_collective(motet_gpu_engine *g,
        const motet_op *op, const void *stream);

/** Enqueue the sends and receives of one group, which progress together. */
MOTET_MUST_USE motet_result motet_gpu_pairs(motet_gpu_engine *g,
        motet_transfer *transfers, int count, const void *stream);
/** Would copy engines move one of them? Then the group cannot be captured. */
bool motet_gpu_pairs_by_copies(const motet_gpu_engine *g,
        const motet_transfer *transfers, int count);

/* ---- shared by the files of this subsystem ---- */

/** The state of the caller's stream; refuses a capture that has failed. */
MOTET_MUST_USE motet_result motet_gpu_stream_state(motet_gpu_engine *g, void *stream,
        motet_stream_state *out);
/** What @p stream gets next runs after all that this communicator was given before … */
MOTET_MUST_USE motet_result motet_gpu_order_before(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state);
/** … and before all that it is given from now on. */
MOTET_MUST_USE motet_result motet_gpu_order_after(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state);
/** What the arguments of all operations have in common; the rest becomes 0. */
void motet_gpu_fill_common(const motet_gpu_engine *g, motet_gpu_args *args);
/**
 * An operation was enqueued, or @p result says why not: its peers would wait for the rest,
 * so the communicator fails as a whole. In a proof they have a deadline, and other paths
 * follow: then @p result it is.
 */
MOTET_MUST_USE motet_result motet_gpu_enqueued(motet_gpu_engine *g,
        motet_result result);
/** Launch on @p stream in this communicator's order; ends as motet_gpu_enqueued(). */
MOTET_MUST_USE motet_result motet_gpu_enqueue(motet_gpu_engine *g,
        const motet_launch *launch, void *stream, const motet_stream_state *state);
/** The number of the next launch; 0 in a capture, whose kernels run any number of times. */
uint32_t motet_gpu_next_ticket(motet_gpu_engine *g, const motet_stream_state *state,
        uint32_t blocks);
/** The kernels for small exchanges, of a loaded module. */
MOTET_MUST_USE motet_result motet_gpu_small_find(motet_gpu_engine *g, void *module);
/** Do they serve this operation, with this rank's buffers? */
bool motet_gpu_small_fits(const motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan);
/** Enqueue an operation that they serve. */
MOTET_MUST_USE motet_result motet_gpu_small(motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, void *stream,
        const motet_stream_state *state);

/** Look for the end of the operation behind @p record from now on. */
void motet_gpu_note_pending(motet_gpu_engine *g, motet_trace_op *record, bool captured,
        uint32_t blocks);

/** motet_engine_failure(), with what a kernel has reported meanwhile. Any thread. */
motet_result motet_gpu_failure(motet_gpu_engine *g);

/** What kernels report: ended, waiting since, failed. The watcher calls it. */
motet_result motet_gpu_look(motet_gpu_engine *g, uint64_t now_ns);
/** No look follows: it counts no longer among those that work. */
void motet_gpu_look_end(motet_gpu_engine *g);

#endif
