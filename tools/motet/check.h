/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that can be checked: what every rank's input holds, and whether a result is
 * right, against a reference in float64 (float128 is not needed: the inputs are chosen
 * so that the reference's own error is far below the bound).
 *
 * The input is a function of (type, operator, rank, index) alone, so every rank can
 * tell what every other one sent. Inputs are exact in their type. Bounds:
 *
 * - moved data, integers, min and max: exact (integers modulo their width);
 * - half, bfloat16 and fp8: one rounding, plus n·2^-24 of the sum of magnitudes, since
 *   they accumulate in float and round once (a library that accumulates in the type
 *   itself, as others do, is given n roundings: `rounds_each_step`);
 * - float and double: the running error of n − 1 operations.
 */
#ifndef MOTET_TOOLS_CHECK_H
#define MOTET_TOOLS_CHECK_H

#include "base/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Poison of output buffers, and the byte after their end that must stay. */
#define CHECK_POISON 0xa5

struct check {
    motet_type type;
    motet_redop redop; /* of collectives that reduce; MOTET_SUM for the others */
    int nranks;
    bool rounds_each_step;
    uint32_t seed; /* varies the values from one repetition to the next */
};

/**
 * How fp8 is read and written from now on: FNUZ, as AMD's gfx942 does, or OCP, which is
 * the default. Once, before any other call: the same for all ranks.
 */
void check_fp8(bool fnuz);

/** Scalar of rank @p rank for the operator mulsum: 1 on even ranks, 2 on odd. */
double check_scalar(int rank);

/** Write one number, exact in the type, as an element. */
void check_encode(motet_type type, double value, void *element);

/** Fill @p buf with elements first … first + count − 1 of @p rank's input. */
void check_fill(const struct check *c, void *buf, size_t count, int rank,
        uint64_t first);

/** How many of @p count elements differ from that part of @p rank's input. */
size_t check_moved(const struct check *c, const void *buf, size_t count, int rank,
        uint64_t first);

/** How many are not the reduction of all ranks' elements first … first + count − 1. */
size_t check_reduced(const struct check *c, const void *buf, size_t count,
        uint64_t first);

/** A number that two equal buffers have in common (FNV-1a): to compare results of ranks. */
uint64_t check_digest(const void *buf, size_t bytes);

#endif
