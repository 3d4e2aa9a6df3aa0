/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's floating-point controls (flush to zero, denormals are zero, rounding,
 * unmasked exceptions) set aside during a reduction. A rank whose program set one
 * would otherwise get other bits than its peers, or a signal.
 */
#ifndef MOTET_KERNELS_FPENV_H
#define MOTET_KERNELS_FPENV_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef uint32_t fp_env;

/* Reading is cheap, writing drains the pipeline: write only where it changes something. */
#define MXCSR_CONTROLS 0xffc0u
#define MXCSR_DEFAULT  0x1f80u

static inline fp_env fp_enter(void)
{
    fp_env env = _mm_getcsr();
    if ((env & MXCSR_CONTROLS) != MXCSR_DEFAULT)
        _mm_setcsr(MXCSR_DEFAULT);
    return env;
}

static inline void fp_leave(fp_env env)
{
    if ((env & MXCSR_CONTROLS) != MXCSR_DEFAULT)
        _mm_setcsr(env);
}

#elif defined(__aarch64__)

typedef uint64_t fp_env;

static inline fp_env fp_enter(void)
{
    fp_env env;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(env));
    if (env != 0)
        __asm__ __volatile__("msr fpcr, %0" : : "r"((fp_env)0) : "memory");
    return env;
}

static inline void fp_leave(fp_env env)
{
    if (env != 0)
        __asm__ __volatile__("msr fpcr, %0" : : "r"(env) : "memory");
}

#else

/* Nothing known to set aside: IEEE defaults are taken for granted. */
typedef int fp_env;

static inline fp_env fp_enter(void)
{
    return 0;
}

static inline void fp_leave(fp_env env)
{
    (void)env;
}

#endif

#endif
