/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to run on GPUs: pure functions of what every rank knows alike, like plan.h.
 *
 * Protocols
 *   LL       every 4 bytes carry their tag: one trip, no barrier, twice the bytes
 *   staged   chunks through slots of the arenas, with flags
 *   two-shot all_reduce as reduce-scatter and all-gather over staged chunks
 *   copies   the device's copy engines, through a ring of few large chunks
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
    MOTET_GPU_PAIRS, /* sends and receives by kernels */
    MOTET_GPU_COPIES,
    MOTET_GPU_NUM_PROTOCOLS
} motet_gpu_protocol;

extern const char *const motet_gpu_protocol_names[MOTET_GPU_NUM_PROTOCOLS];

/** Most rules of a MOTET_PLAN. */
#define MOTET_GPU_RULES 16
/** Figures in bytes from which on something is done: it never is. */
#define MOTET_GPU_NEVER UINT32_MAX

/** A rule of MOTET_PLAN: operations of a kind with at least `from` and less than `to` bytes. */
typedef struct motet_gpu_rule {
    uint8_t kind;     /* motet_kind; MOTET_SEND stands for receives, too */
    uint8_t protocol; /* motet_gpu_protocol; STAGED of a send: by kernels */
    uint16_t blocks;  /* at most; 0: as many as without the rule      */
    uint32_t reserved;
    uint64_t from, to;
} motet_gpu_rule;

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
    uint32_t ring_chunk;  /* bytes of a ring slot                                     */
    uint32_t copies_step; /* copies: least bytes of a step, unless a slot is smaller  */
    uint32_t
            copies_reduce_min; /* reductions: copies from here on                          */
    uint32_t
            copies_other_min; /* the other collectives                                    */
    uint32_t
            copies_pair_min; /* sends and receives: never, in this build's figures       */
    uint8_t forced; /* motet_gpu_protocol, 0 = choose                             */
    uint8_t vetoed; /* bit per protocol that failed its proof                     */
    uint8_t zero; /* bool: no kernels where copies serve a collective (CTA policy ZERO) */
    uint8_t rules; /* of `rule`                                                */
    motet_gpu_rule rule[MOTET_GPU_RULES];
} motet_gpu_constants;

/** Figures of this build for @p nranks ranks over @p path. */
void motet_gpu_constants_default(int nranks, motet_gpu_path path,
        motet_gpu_constants *out);

/** Those of a communicator some of whose pairs are on the direct path, some on the staged
 *  one, from the latter's: its arenas in device memory have room for small rings only. */
void motet_gpu_constants_mix(int nranks, motet_gpu_constants *constants);

/** Leave out, unless it is asked for, what takes many calls for an operation. */
void motet_gpu_constants_few_calls(motet_gpu_constants *constants);

/** The arena that @p constants ask for. */
void motet_gpu_layout_of(const motet_gpu_constants *constants, int nranks,
        motet_gpu_layout *out);

/** Read NCCL_PROTO ("ll", "simple", "twoshot", "ce"); "" forces nothing. */
MOTET_MUST_USE motet_result motet_gpu_force(const char *text,
        motet_gpu_constants *constants);

/**
 * Read a MOTET_PLAN text into the rules of @p constants:
 * "KIND:FROM-TO=PROTOCOL[/BLOCKS],…;KIND:…", as in
 * "all_reduce:0-64K=ll,64K-=twoshot/32". The first rule that fits counts.
 * @retval MOTET_ERR_ARGUMENT names the word that is none; @p constants stay as they were.
 */
MOTET_MUST_USE motet_result motet_gpu_plan_force(const char *text,
        motet_gpu_constants *constants);

/** Why a plan is as it is. */
typedef enum motet_gpu_why {
    MOTET_GPU_WHY_ALONE,    /* one rank, or count 0                      */
    MOTET_GPU_WHY_RULE,     /* a rule of MOTET_PLAN                      */
    MOTET_GPU_WHY_FORCED,   /* NCCL_PROTO                                */
    MOTET_GPU_WHY_POLICY,   /* CTA policy ZERO                           */
    MOTET_GPU_WHY_AT_MOST,  /* bytes ≤ threshold                         */
    MOTET_GPU_WHY_ABOVE,    /* bytes > threshold                         */
    MOTET_GPU_WHY_AT_LEAST, /* bytes ≥ threshold                        */
    /* a message, by kernels: copies … */
    MOTET_GPU_WHY_NEVER,  /* … are made only if asked for               */
    MOTET_GPU_WHY_RANKS,  /* … serve two ranks                          */
    MOTET_GPU_WHY_VETOED, /* … failed their proof                       */
    MOTET_GPU_WHY_CALLS   /* … would take more calls than a queue holds */
} motet_gpu_why;

typedef struct motet_gpu_plan {
    motet_gpu_protocol protocol;
    motet_gpu_why why;
    uint64_t bytes, threshold; /* that `why` compares             */
    uint32_t blocks;
    uint32_t send_mask,
            recv_mask; /* as in motet_gpu_args                              */
    bool reduce;
    bool for_all;   /* who sends, sends the same to all others           */
    uint64_t piece; /* bytes                                             */
    uint64_t send_stride, recv_stride;
    /* copies: bytes of a step, how many of a phase; all_reduce has two phases, whose
     * slices (bytes of each rank's share) are cut into steps */
    uint64_t step, slice;
    uint32_t steps, phases;
} motet_gpu_plan;

/**
 * Plan @p op, which is no pairwise kind, for @p rank of @p nranks. Everything but the
 * masks and strides is alike on all ranks.
 * @param limit most blocks, ≥ 1, alike on all ranks
 */
void motet_gpu_plan_make(const motet_op *op, int rank, int nranks,
        const motet_gpu_constants *constants, uint32_t limit, motet_gpu_plan *out);

/** How a message between two ranks moves: alike at both ends. */
typedef struct motet_gpu_pair_plan {
    bool copies;
    motet_gpu_why why;
    uint64_t threshold;
    uint32_t blocks;      /* kernels                             */
    uint64_t step, steps; /* copies: bytes of a step, how many   */
} motet_gpu_pair_plan;

void motet_gpu_pair_plan_make(uint64_t bytes, int nranks,
        const motet_gpu_constants *constants, uint32_t limit, motet_gpu_pair_plan *out);

/**
 * Say in words what was planned for @p op, and why: lines "name: value".
 * @param plan of motet_gpu_plan_make(), NULL for a send or receive
 * @return characters that it takes, as snprintf()
 */
int motet_gpu_explain(const motet_op *op, int nranks,
        const motet_gpu_constants *constants, uint32_t limit,
        const motet_gpu_plan *plan, char *buf, size_t bytes);

#endif
