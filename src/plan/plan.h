/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to run: pure functions of what every rank knows alike (DESIGN 2 rule 5), so
 * all ranks come to the same plan without talking. A plan cuts a collective into
 * steps; the engine does the same thing in each step.
 *
 * Algorithms (one table, algorithms.c):
 *   inline   payload rides in the slot's header: one step, one line a rank
 *   board    each poster fills its slot, each reader takes what is its own; a
 *            reduction is one-shot: every reader reads all inputs in rank order
 *   twoshot  all_reduce only: rank j reduces slice j of each step for everybody and
 *            posts the sum, which the others copy
 */
#ifndef MOTET_PLAN_PLAN_H
#define MOTET_PLAN_PLAN_H

#include "base/error.h"
#include "plan/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum motet_algorithm {
    MOTET_ALG_NONE, /* nothing moves: count 0, or one rank */
    MOTET_ALG_INLINE,
    MOTET_ALG_BOARD,
    MOTET_ALG_TWOSHOT,
    MOTET_ALG_PAIRS, /* send and receive, all_to_allv: see engine/pairs.c */
    MOTET_NUM_ALGORITHMS
} motet_algorithm;

extern const char *const motet_algorithm_names[MOTET_NUM_ALGORITHMS];

/** The table of constants that rank 0 hands out at init: alike on all ranks. */
typedef struct motet_constants {
    uint32_t board_chunk;            /* bytes of a board slot               */
    uint32_t pair_chunk;             /* bytes of a pair slot                */
    uint32_t inline_bytes;           /* largest payload of a slot's header  */
    uint32_t twoshot_min_bytes;      /* all_reduce: from here on            */
    uint64_t epoch_start;            /* position before the first           */
    uint8_t forced[MOTET_NUM_KINDS]; /* motet_algorithm, MOTET_ALG_NONE = choose */
} motet_constants;

/** Constants of this build for @p nranks ranks. */
void motet_constants_default(int nranks, motet_constants *out);

/**
 * Read a MOTET_ALGO text ("all_reduce:twoshot;broadcast:board") into @p constants.
 * @retval MOTET_ERR_ARGUMENT names the word that is no kind, no algorithm, or does
 *         not go with its kind.
 */
MOTET_MUST_USE motet_result motet_plan_force(const char *text,
        motet_constants *constants);

typedef struct motet_plan {
    motet_algorithm algorithm;
    size_t step_count; /* elements (of one slice) moved in each step but the last */
    size_t steps;
    int slices; /* slices of a post: 1, or nranks where each reader has its own */
    int posts;  /* positions that a step takes: 1, or 2 for twoshot             */
} motet_plan;

/**
 * Plan @p op, which is no pairwise kind, for @p nranks ranks.
 * @retval MOTET_ERR_USAGE a forced algorithm cannot serve it; the sentence says why.
 */
MOTET_MUST_USE motet_result motet_plan_make(const motet_op *op, int nranks,
        const motet_constants *constants, motet_plan *out);

#endif
