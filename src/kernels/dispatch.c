/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which set of kernels this CPU runs. The sets are nested (a CPU that runs one runs
 * all behind it in the table), so the choice is the index of the first that runs.
 * Threads that ask at the same time compute the same index: no lock is needed, and
 * relaxed order is enough because the tables themselves are constant.
 */
#include "kernels/sets.h"

#include <stdatomic.h>

#if defined(__x86_64__)

static const motet_cpu_kernels *const sets[] = {
    &motet_kernels_avx512,
    &motet_kernels_avx2,
    &motet_kernels_baseline,
    NULL,
};

static int detect(void)
{
    /* A process may call before any constructor has run. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c") ||
            !__builtin_cpu_supports("fma"))
        return 2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
            !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return 1;
    return 0;
}

#else

static const motet_cpu_kernels *const sets[] = {
    &motet_kernels_baseline,
    NULL,
};

static int detect(void)
{
    return 0;
}

#endif

const motet_cpu_kernels *const *motet_cpu_kernels_all(void)
{
    static atomic_int first_plus_one; /* 0: not yet known */
    int known = atomic_load_explicit(&first_plus_one, memory_order_relaxed);
    if (known == 0) {
        known = detect() + 1;
        atomic_store_explicit(&first_plus_one, known, memory_order_relaxed);
    }
    return sets + (known - 1);
}

const motet_cpu_kernels *motet_cpu_kernels_best(void)
{
    return *motet_cpu_kernels_all();
}
