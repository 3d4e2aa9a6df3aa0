/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's part in one case of the value matrix.
 *
 * A part has at most two buffers and a bias. Before the call each is filled (inputs
 * from the hash, outputs with poison) and copied; afterwards the copy is turned into
 * what the buffer must be, and the two are compared byte by byte with their guards: so
 * an element written outside its place, a changed input and an output of a rank that
 * has none are all seen. Only all_to_all in place has no defined result; there the
 * guards alone are looked at.
 */
#ifndef MOTET_TESTS_MATRIX_PART_H
#define MOTET_TESTS_MATRIX_PART_H

#include "matrix.h"

/** A buffer with its guards, and a copy of all of it. */
typedef struct matrix_buffer {
    unsigned char *block, *copy;
    unsigned char *data;  /* in block                    */
    unsigned char *there; /* its twin, where ranks work  */
    size_t block_bytes, bytes;
} matrix_buffer;

/** What the thread that drives a rank knows of the target; `state` is the target's. */
typedef struct matrix_place {
    void *state;
    int i; /* of the ranks that this thread drives */
} matrix_place;

/** One rank's part in one case. */
typedef struct matrix_part {
    const matrix_case *c;
    matrix_place place;
    unsigned round; /* of a case that runs several times: moves its inputs */
    int rank, nranks, root, type;
    value_op op;
    size_t count, esize;
    uint64_t seed;
    bool in_place;
    matrix_buffer a, b, bias; /* a: sent from; b: received into, or both in place */
    const void *send;
    void *recv;
    size_t sendcounts[MULTI_MAX_RANKS], sdispls[MULTI_MAX_RANKS];
    size_t recvcounts[MULTI_MAX_RANKS], rdispls[MULTI_MAX_RANKS];
    ncclRedOp_t redop;
    unsigned char scalar[8];
    unsigned char *scalar_there;
    bool redop_made;
} matrix_part;

/** Make everything that the call needs, filled for round 0; the target's state is in @p place. */
bool matrix_part_prepare(multi_rank *rank, matrix_part *p, const matrix_case *c,
        uint64_t seed, int r, matrix_place place, ncclComm_t comm);

/** Poison, inputs and bias of the part's round, and the copies of all that. */
void matrix_part_fill(matrix_part *p);

/** Send all blocks and the scalar to their twins; fetch the blocks back. */
bool matrix_part_send(const matrix_part *p);
bool matrix_part_fetch(const matrix_part *p);

/** Make the call. */
ncclResult_t matrix_part_issue(const matrix_part *p, ncclComm_t comm,
        cudaStream_t stream);

/** Compare everything; where all ranks must agree, mix this rank's bytes into *hash. */
bool matrix_part_check(multi_rank *rank, matrix_part *p, const char *name,
        uint64_t *hash);

/** Free what prepare made. */
void matrix_part_drop(matrix_part *p);

#endif
