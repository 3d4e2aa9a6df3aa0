/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations by copy engines: see gpu_copies.c.
 */
#ifndef MOTET_ENGINE_GPU_COPIES_H
#define MOTET_ENGINE_GPU_COPIES_H

#include "device/gpu.h"
#include "kernels/gpu/gpu.h"
#include "plan/gpu.h"
#include "plan/op.h"

typedef struct motet_gpu_engine motet_gpu_engine;

/** Streams of one direction each: what is filled, what is read. */
enum { MOTET_LANE_FILL, MOTET_LANE_READ, MOTET_LANES };

enum {
    MOTET_COPIES_FLAG,
    MOTET_COPIES_PAIR_FLAG,
    MOTET_COPIES_STEP,
    MOTET_COPIES_KERNELS
};

/** Both lanes have come to it; the lanes' ends; a step's sums are there. */
enum {
    MOTET_COPIES_FORK,
    MOTET_COPIES_JOIN,
    MOTET_COPIES_REDUCED = MOTET_COPIES_JOIN + MOTET_LANES,
    MOTET_COPIES_EVENTS
};

typedef struct motet_gpu_copies {
    void *lane[MOTET_LANES];
    void *event[MOTET_COPIES_EVENTS];
    void *kernel[MOTET_COPIES_KERNELS];
} motet_gpu_copies;

/** Find the kernels, make streams and events. */
MOTET_MUST_USE motet_result motet_gpu_copies_init(motet_gpu_engine *g, void *module);
void motet_gpu_copies_release(motet_gpu_engine *g);

/** Enqueue a collective that was planned so. Nothing waits. */
MOTET_MUST_USE motet_result motet_gpu_copies_collective(motet_gpu_engine *g,
        const motet_op *op, const motet_gpu_plan *plan, uint32_t fingerprint,
        void *stream, const motet_stream_state *state);

/** Lanes of one operation; in a graph, both are the caller's stream. */
typedef struct motet_gpu_lanes {
    void *lane[MOTET_LANES];
    void *stream; /* the caller's, which they leave and come back to */
    bool captured;
    motet_gpu_ring_args step; /* captured: what the next kernel moves */
} motet_gpu_lanes;

/** Take @p stream its turn in the communicator's order, and let lanes begin there. */
MOTET_MUST_USE motet_result motet_gpu_copies_fork(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state, motet_gpu_lanes *out);

/** A send or receive that was planned so. */
typedef struct motet_gpu_message {
    const motet_op *op;
    uint64_t step, steps;
} motet_gpu_message;

/**
 * Enqueue messages with the other of two ranks, those of each direction in the order
 * given, and let the caller's stream wait for them.
 */
MOTET_MUST_USE motet_result motet_gpu_copies_messages(motet_gpu_engine *g,
        const motet_gpu_message *messages, int count, motet_gpu_lanes *lanes,
        const motet_stream_state *state);

#endif
