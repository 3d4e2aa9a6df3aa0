/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A register's worth of lanes, in the compiler's own vector types, as wide as the
 * file that includes this is compiled for. `vec` stands for any lane type: the type
 * of the lanes is a parameter of the functions that need it, always a constant.
 */
#ifndef MOTET_KERNELS_VECTOR_H
#define MOTET_KERNELS_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512BW__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

/* The kernels take their type and operator as constants; that holds only inlined. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

typedef int8_t v_i8 __attribute__((vector_size(VEC_BYTES)));
typedef uint8_t v_u8 __attribute__((vector_size(VEC_BYTES)));
typedef int32_t v_i32 __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t v_u32 __attribute__((vector_size(VEC_BYTES)));
typedef int64_t v_i64 __attribute__((vector_size(VEC_BYTES)));
typedef uint64_t v_u64 __attribute__((vector_size(VEC_BYTES)));
typedef float v_f32 __attribute__((vector_size(VEC_BYTES)));
typedef double v_f64 __attribute__((vector_size(VEC_BYTES)));
typedef v_u32 vec;

static ALWAYS_INLINE vec load_vec(const void *p)
{
    vec v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static ALWAYS_INLINE void store_vec(void *p, vec v)
{
    memcpy(p, &v, sizeof(v));
}

/* Lanes of `yes` where the mask is all ones, of `no` where it is zero. */
static ALWAYS_INLINE vec select_vec(vec mask, vec yes, vec no)
{
    return (mask & yes) | (~mask & no);
}

static ALWAYS_INLINE v_i32 splat_i32(int32_t x)
{
    return x - (v_i32){ 0 };
}

static ALWAYS_INLINE v_f32 splat_f32(float x)
{
    return x - (v_f32){ 0 };
}

static ALWAYS_INLINE v_f64 splat_f64(double x)
{
    return x - (v_f64){ 0 };
}

/*
 * Part of a register, `bytes` < VEC_BYTES: the load leaves the other bytes of `pad`
 * zero, and neither touches memory of the caller beyond `bytes`.
 */
static ALWAYS_INLINE void load_part(uint8_t pad[VEC_BYTES], const void *p, size_t bytes)
{
#if VEC_BYTES == 64
    _mm512_storeu_si512(pad, _mm512_maskz_loadu_epi8((1ull << bytes) - 1, p));
#else
    memset(pad, 0, VEC_BYTES);
    memcpy(pad, p, bytes);
#endif
}

static ALWAYS_INLINE void store_part(void *p, const uint8_t pad[VEC_BYTES],
        size_t bytes)
{
#if VEC_BYTES == 64
    _mm512_mask_storeu_epi8(p, (1ull << bytes) - 1, _mm512_loadu_si512(pad));
#else
    memcpy(p, pad, bytes);
#endif
}

#endif
