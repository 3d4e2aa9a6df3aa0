/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to run on GPUs: pure functions of what every rank knows alike, like plan.h.
 *
 * Protocols
 *   LL       every 4 bytes carry their tag: one trip, no barrier, twice the bytes
 *   staged   chunks through slots of the arenas, with flags
 *   two-shot all_reduce as reduce-scatter and all-gather over staged chunks
 *   pairs    sends and receives
 */
#ifndef MOTET_PLAN_GPU_H
#define MOTET_PLAN_GPU_H

#include "base/error.h"
#include "kernels/gpu/gpu.h"
#include "plan/op.h"
#include "transport/gpu_path.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum motet_gpu_protocol {
    MOTET_GPU_NOTHING, /* count 0 */
    MOTET_GPU_LL,
    MOTET_GPU_STAGED,
    MOTET_GPU_TWOSHOT,
    MOTET_GPU_NUM_PROTOCOLS
} motet_gpu_protocol;

extern const char *const motet_gpu_protocol_names[MOTET_GPU_NUM_PROTOCOLS];

/** Rank 0's figures for GPUs: alike on all ranks. Bytes are of one rank's buffer. */
typedef struct motet_gpu_constants {
    uint32_t blocks; /* most blocks of a collective, ≤ MOTET_GPU_BLOCKS            */
    uint32_t
            pair_blocks; /* most blocks of one transfer                                */
    uint32_t ll_bytes; /* payload of a block's LL slot                               */
    uint32_t chunk;    /* bytes of a staging slot                                    */
    uint32_t pair_chunk;
    uint32_t
            ll_reduce_max; /* all_reduce: LL up to here, two-shot above                  */
    uint32_t
            ll_other_max; /* the other collectives: LL while a rank sends so much at most */
    uint32_t
            ll_block_bytes; /* LL: bytes of a piece that are worth a block                */
    uint32_t
            block_bytes; /* staged and two-shot: the same                              */
    uint32_t pair_block_bytes;
    uint8_t forced; /* motet_gpu_protocol, 0 = choose                             */
    uint8_t vetoed; /* bit per protocol that failed its proof                     */
    uint8_t reserved[2];
} motet_gpu_constants;

/** Figures of this build for @p nranks ranks over @p path. */
void motet_gpu_constants_default(int nranks, motet_gpu_path path,
        motet_gpu_constants *out);

/** The arena that @p constants ask for. */
void motet_gpu_layout_of(const motet_gpu_constants *constants, int nranks,
        motet_gpu_layout *out);

/** Read NCCL_PROTO or MOTET_ALGO words for GPUs ("ll", "simple", "twoshot"); "" forces nothing. */
MOTET_MUST_USE motet_result motet_gpu_force(const char *text,
        motet_gpu_constants *constants);

typedef struct motet_gpu_plan {
    motet_gpu_protocol protocol;
    uint32_t blocks;
    uint32_t send_mask,
            recv_mask; /* as in motet_gpu_args                              */
    bool reduce;
    uint64_t piece; /* bytes                                             */
    uint64_t send_stride, recv_stride;
} motet_gpu_plan;

/**
 * Plan @p op, which is no pairwise kind, for @p rank of @p nranks. Everything but the
 * masks and strides is alike on all ranks.
 * @param limit most blocks, ≥ 1, alike on all ranks
 */
void motet_gpu_plan_make(const motet_op *op, int rank, int nranks,
        const motet_gpu_constants *constants, uint32_t limit, motet_gpu_plan *out);

/** Blocks that move a message of @p bytes: alike at both ends. */
uint32_t motet_gpu_pair_blocks(uint64_t bytes, const motet_gpu_constants *constants,
        uint32_t limit);

#endif
