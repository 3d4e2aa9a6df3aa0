/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of every type and what their reductions must be.
 *
 * Element i of rank r in case `seed` is a hash of the three, shaped so that no
 * reduction of 16 ranks overflows a floating type and nothing is zero, infinite or
 * NaN; integers use all their bits, except for averages, whose sum must fit.
 *
 * A floating result is compared with a reference in double (long double for
 * double), under the bounds of the design, section 11: with u = 2^-24, or 2^-53 for
 * double, S the sum of the magnitudes and m the number of roundings on the way,
 *     float, double           m · u · S
 *     half, bfloat16, fp8     half an ulp of the result + m · 2^-24 · S
 * where m is n − 1, one more for a scalar or a bias and two more for an average,
 * and S is |result| for products. Integers, max and min must be equal.
 */
#ifndef MOTET_TESTS_VALUES_H
#define MOTET_TESTS_VALUES_H

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum value_op {
    VALUE_SUM,
    VALUE_PROD,
    VALUE_MAX,
    VALUE_MIN,
    VALUE_AVG,
    VALUE_PREMUL_HOST,   /* scalar copied when the operator is made */
    VALUE_PREMUL_DEVICE, /* scalar read when the operation runs     */
    VALUE_NUM_OPS
} value_op;

typedef struct value_type {
    const char *name;
    unsigned bytes;
    bool is_float, is_signed;
    unsigned exponent_bits, mantissa_bits; /* of floats */
} value_type;

extern const value_type value_types[ncclNumTypes];
extern const char *const value_op_names[VALUE_NUM_OPS];

/** A well-mixed 64-bit function of @p x. */
static inline uint64_t value_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/** Write elements first … first + count − 1 of @p rank; @p dst need not be aligned. */
void value_fill(void *dst, int type, value_op op, uint64_t seed, int rank, size_t first,
        size_t count);

/** Rank @p rank's scalar, in the low bytes. */
void value_scalar(void *dst, int type, uint64_t seed, int rank);

/** What a reduction must give. */
typedef struct value_reduction {
    int type;
    value_op op;
    uint64_t seed;
    int nranks;
    size_t first, count;
    bool bias; /* element i of rank 64 + bias_rank is added */
    int bias_rank;
} value_reduction;

/** Rank number under which the bias of @p rank is filled. */
#define VALUE_BIAS_RANK(rank) (64 + (rank))

/**
 * Compare @p out (any alignment) with the reduction.
 * @param why the first element that is wrong, what it is and what it should be.
 */
bool value_check(const void *out, const value_reduction *want, char *why, size_t bytes);

/** Hash of @p bytes bytes, to compare ranks. */
uint64_t value_hash(const void *data, size_t bytes);

#endif
