/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reducing and moving on the host's CPU. One source file (reduce.c) is compiled
 * three times on x86-64 (baseline, AVX2+F16C, AVX-512) and once elsewhere; the
 * best set is picked once, by what the CPU reports.
 *
 * Arithmetic (DESIGN 2 rule 8, 11): sources are combined in the order given,
 * int types wrap, float and double accumulate in themselves, half, bfloat16 and
 * fp8 accumulate in float and are rounded once, to nearest even, at the end. A NaN
 * loses against a number in max and min, as in NCCL. fp8 is OCP (e4m3 saturates to
 * NaN above 448 as IEEE conversion would: no inf; e5m2 has inf). AVG multiplies the
 * accumulator by 1/n before the rounding, integers divide and truncate; a bias is
 * added after that. All ISAs give the same bits: a NaN that was computed, not copied,
 * is the type's positive quiet NaN, and the caller's floating-point controls (flushes,
 * rounding, traps) are set aside during the call.
 */
#ifndef MOTET_KERNELS_REDUCE_H
#define MOTET_KERNELS_REDUCE_H

#include <stddef.h>
#include <stdint.h>

/** Most sources of one call. */
#define MOTET_REDUCE_MAX 128

typedef struct motet_reduce_args {
    void *dst;  /**< may be one of the sources (same address), else disjoint     */
    void *dst2; /**< second copy of the result, or NULL                           */
    const void *const
            *src; /**< nsrc buffers, reduced in this order                          */
    int nsrc;     /**< 1 … MOTET_REDUCE_MAX                                         */
    size_t count; /**< elements                                                     */
    int type;     /**< enum motet_type                                              */
    int redop;    /**< enum motet_redop                                             */
    int nranks;   /**< divisor of AVG                                               */
    const uint64_t *
            scalar; /**< PREMUL_SUM: one a source, its element in the low bytes; else NULL */
    const void
            *bias; /**< added, in the accumulator, before the rounding; or NULL      */
} motet_reduce_args;

/** dst = src[0] op src[1] op …; alignment to the element is enough. Allocates nothing. */
typedef void (*motet_reduce_fn)(const motet_reduce_args *args);

/** memcpy with streaming stores (ended by a fence) above a size where they pay if the
 * whole destination, of which this may be a part, is larger than a cache. */
typedef void (*motet_copy_fn)(void *dst, const void *src, size_t bytes);

typedef struct motet_cpu_kernels {
    const char *name; /* "baseline", "avx2", "avx512" */
    motet_reduce_fn reduce;
    motet_copy_fn copy_streaming;
} motet_cpu_kernels;

/** The best set for this CPU; the same pointer for the life of the process. */
const motet_cpu_kernels *motet_cpu_kernels_best(void);

/** All sets that this CPU can run, best first, ended by NULL: for the tests. */
const motet_cpu_kernels *const *motet_cpu_kernels_all(void);

#endif
