/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half, bfloat16 and fp8 to float and back. Widening is exact. Narrowing rounds once,
 * to nearest, ties to even, through denormals and overflow:
 *   half, bfloat16, e5m2  what is beyond the largest number becomes infinity;
 *   e4m3 (OCP, no inf)    what would round beyond 448 becomes NaN, 0x7f with the sign.
 *                         A sum that overflowed must show: NCCL's kernels saturate
 *                         both fp8 types to the largest number instead.
 * A NaN that arrives leaves as the positive quiet NaN of its format: which payload
 * would survive an addition is the compiler's choice of operand order, and differs
 * between instruction sets.
 *
 * The integer forms below use one float operation each, whose result is normal or
 * zero by itself, so that FTZ and DAZ change nothing.
 */
#ifndef MOTET_KERNELS_CONVERT_H
#define MOTET_KERNELS_CONVERT_H

#include "kernels/lanes.h"
#include "kernels/vector.h"

#include <stdbool.h>

#define FLOAT_INF  0x7f800000
#define FLOAT_QNAN 0x7fc00000
#define FLOAT_MAN  23
#define FLOAT_BIAS 127

/* A format of 1 sign bit, exp_bits and man_bits. Without inf, the largest exponent
 * holds numbers and only the all-ones magnitude is NaN. */
typedef struct narrow_format {
    int exp_bits;
    int man_bits;
    bool has_inf;
} narrow_format;

static const narrow_format half_format = { 5, 10, true };
static const narrow_format e4m3_format = { 4, 3, false };
static const narrow_format e5m2_format = { 5, 2, true };

/* What a float's exponent field exceeds the format's by. */
static ALWAYS_INLINE int format_rebias(narrow_format f)
{
    return FLOAT_BIAS - ((1 << (f.exp_bits - 1)) - 1);
}

/* The element's bits in the low end of each lane, to the bits of a float. */
static ALWAYS_INLINE vec widen_bits(narrow_format f, vec bits)
{
    const int magnitude_bits = f.exp_bits + f.man_bits;
    const int rebias = format_rebias(f);
    const int up = FLOAT_MAN - f.man_bits;
    vec sign = (bits >> magnitude_bits) << 31;
    v_i32 mag = (v_i32)(bits & ((1u << magnitude_bits) - 1)) << up;

    /* A denormal is (least normal + denormal) - least normal, both sides normal. */
    const v_i32 least_normal = splat_i32((rebias + 1) << FLOAT_MAN);
    vec denormal = (vec)((v_f32)(mag | least_normal) - (v_f32)least_normal);
    vec normal = (vec)(mag + (rebias << FLOAT_MAN));
    vec out = select_vec((vec)(mag < (1 << FLOAT_MAN)), denormal, normal);

    const int top_exponent = ((1 << f.exp_bits) - 1) << FLOAT_MAN;
    const int top = ((1 << magnitude_bits) - 1) << up;
    vec special = f.has_inf ? (vec)(mag >= top_exponent) : (vec)(mag == top);
    return sign | out | (special & FLOAT_INF);
}

/*
 * The bits of a float, rounded to the element's bits in the low end of each lane.
 * Adding 2^k whose unit in the last place is the element's leaves, in the low bits of
 * the sum, the magnitude counted in such units, rounded to nearest even by the
 * addition itself. The unit follows from the magnitude's exponent, or from the least
 * normal one's: then the count simply has no leading bit, which is how a denormal is
 * encoded. A count that rounds up to the next power of two carries into the exponent.
 */
static ALWAYS_INLINE vec narrow_bits(narrow_format f, vec bits)
{
    const int magnitude_bits = f.exp_bits + f.man_bits;
    const int rebias = format_rebias(f);
    const int down = FLOAT_MAN - f.man_bits;
    v_i32 mag = (v_i32)(bits & 0x7fffffffu);
    vec is_nan = (vec)(mag > FLOAT_INF);

    /* From the first power of two beyond the format on, all is one. */
    const int finite_exponents = (1 << f.exp_bits) - (f.has_inf ? 1 : 0);
    mag = min_i32(mag, splat_i32((rebias + finite_exponents) << FLOAT_MAN));

    const v_i32 least_normal = splat_i32((rebias + 1) << FLOAT_MAN);
    v_i32 exponent = max_i32(mag & FLOAT_INF, least_normal);
    v_i32 aligner = exponent + (down << FLOAT_MAN);
    v_i32 count = (v_i32)((v_f32)mag + (v_f32)aligner) - aligner;
    v_i32 code = (exponent >> down) + count - ((rebias + 1) << f.man_bits);

    vec sign = (bits >> 31) << magnitude_bits;
    if (!f.has_inf) {
        const v_i32 nan_code = splat_i32((1 << magnitude_bits) - 1);
        return (vec)min_i32(code, nan_code) | (sign & ~is_nan);
    }
    const int qnan_code = (finite_exponents << f.man_bits) | (1 << (f.man_bits - 1));
    return select_vec(is_nan, (vec)splat_i32(qnan_code), (vec)code | sign);
}

static ALWAYS_INLINE vec canonical_nan_f32(vec v)
{
    vec is_nan = (vec)((v_f32)v != (v_f32)v);
    return select_vec(is_nan, (vec)splat_i32(FLOAT_QNAN), v);
}

static ALWAYS_INLINE vec canonical_nan_f64(vec v)
{
    const v_u64 qnan = 0x7ff8000000000000u | (v_u64){ 0 };
    vec is_nan = (vec)((v_f64)v != (v_f64)v);
    return select_vec(is_nan, (vec)qnan, v);
}

/*
 * Instructions that convert half give the same bits as the integer forms once a NaN
 * is canonical. e5m2 is the upper byte of a half. e4m3, its exponent field put into
 * the wider one of a half, is 2^-8 of itself, denormals included.
 */
#if defined(HAVE_HALVES)

static ALWAYS_INLINE vec load_half(const void *p)
{
    return widen_halves(load_halves(p));
}

static ALWAYS_INLINE void store_half(void *p, vec v)
{
    store_halves(p, narrow_to_halves(canonical_nan_f32(v)));
}

static ALWAYS_INLINE vec load_e5m2(const void *p)
{
    return widen_halves(load_bytes_as_i16(p) << 8);
}

static ALWAYS_INLINE vec load_e4m3(const void *p)
{
    v_halves moved = (load_bytes_as_i16(p) << 7) & (int16_t)0xbf80;
    v_halves is_nan = (moved & 0x3f80) == 0x3f80;
    vec scaled = widen_halves(moved | (is_nan & 0x4000));
    return (vec)((v_f32)scaled * splat_f32(256));
}

#else

static ALWAYS_INLINE vec load_half(const void *p)
{
#if defined(__aarch64__)
    float16x4_t h;
    memcpy(&h, p, sizeof(h));
    return (vec)vcvt_f32_f16(h);
#else
    return widen_bits(half_format, load_u16(p));
#endif
}

static ALWAYS_INLINE void store_half(void *p, vec v)
{
#if defined(__aarch64__)
    float16x4_t h = vcvt_f16_f32((float32x4_t)canonical_nan_f32(v));
    memcpy(p, &h, sizeof(h));
#else
    store_u16(p, narrow_bits(half_format, v));
#endif
}

static ALWAYS_INLINE vec load_e5m2(const void *p)
{
    return widen_bits(e5m2_format, load_u8(p));
}

static ALWAYS_INLINE vec load_e4m3(const void *p)
{
    return widen_bits(e4m3_format, load_u8(p));
}

#endif

static ALWAYS_INLINE void store_e5m2(void *p, vec v)
{
    store_u8(p, narrow_bits(e5m2_format, v));
}

static ALWAYS_INLINE void store_e4m3(void *p, vec v)
{
    store_u8(p, narrow_bits(e4m3_format, v));
}

static ALWAYS_INLINE vec load_bfloat16(const void *p)
{
    return load_u16(p) << 16;
}

static ALWAYS_INLINE void store_bfloat16(void *p, vec v)
{
    v_i32 mag = (v_i32)(v & 0x7fffffffu);
    vec rounded = (v + 0x7fffu + ((v >> 16) & 1u)) >> 16;
    vec qnan = (vec)splat_i32(FLOAT_QNAN >> 16);
    store_u16(p, select_vec((vec)(mag > FLOAT_INF), qnan, rounded));
}

#endif
