/* SPDX-License-Identifier: Apache-2.0 */
/* The value matrix: its dimensions, the choice of cases, and how one case runs. */
#ifndef MOTET_TESTS_MATRIX_H
#define MOTET_TESTS_MATRIX_H

#include "harness.h"
#include "values.h"

typedef enum matrix_kind {
    KIND_ALL_REDUCE,
    KIND_ALL_REDUCE_BIAS,
    KIND_REDUCE,
    KIND_REDUCE_SCATTER,
    KIND_BROADCAST,
    KIND_BCAST,
    KIND_ALL_GATHER,
    KIND_ALL_TO_ALL,
    KIND_ALL_TO_ALL_V,
    KIND_GATHER,
    KIND_SCATTER,
    KIND_RING, /* send to the next, receive from the previous, unequal sizes */
    KIND_SELF, /* send to self */
    MATRIX_KINDS
} matrix_kind;

typedef enum matrix_dim {
    DIM_KIND,
    DIM_TYPE,
    DIM_OP,
    DIM_COUNT,
    DIM_RANKS,
    DIM_PLACE,  /* out of place, in place                                   */
    DIM_LAYOUT, /* multi_layout                                             */
    DIM_SHIFT,  /* buffers aligned to 64 bytes, or one element off          */
    DIM_STREAM, /* NULL, or a host stream; a target has its own two         */
    DIM_GROUP,  /* alone, or with neighbouring cases in one group           */
    MATRIX_DIMS
} matrix_dim;

typedef struct matrix_case {
    uint32_t id; /* place in the full product: names the case, seeds its data */
    uint8_t v[MATRIX_DIMS];
} matrix_case;

extern const unsigned matrix_sizes[MATRIX_DIMS];
extern const char *const matrix_dim_names[MATRIX_DIMS];
extern const size_t matrix_counts[];
extern const int matrix_ranks[];

/** Whether a kind has a reduction operator. */
bool matrix_reduces(unsigned kind);

static inline size_t matrix_count(const matrix_case *c)
{
    return matrix_counts[c->v[DIM_COUNT]];
}

static inline int matrix_nranks(const matrix_case *c)
{
    return matrix_ranks[c->v[DIM_RANKS]];
}

/** "all_reduce float16 premul(host scalar), count 1023, 5 ranks as threads, in place …" */
void matrix_name(const matrix_case *c, char *buf, size_t bytes);

/** A chosen set, sorted by world (ranks, layout). */
typedef struct matrix_set {
    matrix_case *at;
    size_t count;
    size_t pairs, pairs_covered;
    unsigned seen[MATRIX_DIMS][16]; /* cases with this value */
} matrix_set;

/** Choose; see matrix.c for the rule. @p thin divides the sampled part. */
bool matrix_choose(unsigned thin, matrix_set *out);
/** The one case @p id. */
bool matrix_choose_one(uint32_t id, matrix_set *out);

/** The cases of one world. */
typedef struct matrix_world {
    const matrix_case *cases;
    size_t count;
    uint64_t seed;
} matrix_world;

/**
 * Ranks that do not work in memory that the test can touch. Each block of a case then
 * has a twin over there: sent before the operation, fetched back after it. All slots
 * but look() are called by the thread that drives the ranks, and record a failure of
 * its own where they return false.
 */
typedef struct matrix_target {
    const char *streamed; /* what DIM_STREAM's second value is called: ", captured" */
    unsigned rounds;      /* such a case runs this often, each time with new inputs */
    unsigned many; /* ... but some of the short ones that often; 0: none is special */
    const char *const
            *environment; /* of the ranks: "NAME=VALUE", NULL-ended, at most 14     */
    /** In the parent, before any rank. 0, or the program's exit status. */
    int (*look)(void);
    /** Make memory, streams and communicators of ranks first … first + ranks − 1. */
    bool (*open)(multi_rank *rank, int first, int ranks, void **state_out);
    void (*close)(void *state);
    /** A batch of cases begins: memory reserved so far is free again. */
    void (*begin)(void *state, const matrix_case *c);
    /** Memory of rank first + i, aligned to 256 bytes. NULL: there is no more. */
    void *(*reserve)(void *state, int i, size_t bytes);
    bool (*send)(void *state, int i, void *there, const void *here, size_t bytes);
    bool (*fetch)(void *state, int i, void *here, const void *there, size_t bytes);
    cudaStream_t (*stream)(void *state, int i);
    /** Calls between record() and recorded() do not run before play(). */
    bool (*record)(void *state);
    bool (*recorded)(void *state);
    bool (*play)(void *state);
    /** Wait until all of this thread's ranks are done; they are well. */
    bool (*sync)(void *state);
} matrix_target;

/** The target of this program; NULL: the ranks work in the test's own memory. */
extern const matrix_target *const matrix_there;

/** Parent's part after a world: compares the hashes of all ranks. */
int matrix_compare(const multi_spec *spec, void *shared);

/** Body of every rank of a world: runs all its cases. shared: uint64_t[count][nranks]. */
void matrix_body(multi_rank *rank);

/** Whether all ranks of @p c must end with the same bytes. */
bool matrix_same_everywhere(const matrix_case *c);

#endif
