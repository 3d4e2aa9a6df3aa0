/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements, 8 bytes of them (a pack) or two packs at a time: widened to accumulators,
 * combined, finished, narrowed. The arithmetic is that of kernels/reduce.h, so that a CPU
 * rank and a GPU rank give the same bits: integers wrap; float and double accumulate in
 * themselves; half, bfloat16 and fp8 in float, rounded once, to nearest even
 * (kernels/convert.h says how). A NaN loses against a number in max and min; one that was
 * computed leaves as the type's positive quiet NaN.
 *
 * fp8 is what the device's own instructions take it for: FNUZ on gfx940 to gfx942, OCP
 * everywhere else, as on CPU ranks. FNUZ has a bias larger by one, no infinity, no negative
 * zero, and one NaN in its place, 0x80; what rounds beyond the largest number becomes that
 * NaN. RCCL's gfx942 code is FNUZ, too, and saturates.
 *
 * Accumulators are 32-bit words, or pairs of them, whatever the type: so one kernel can
 * serve all types, and most of its code all of them alike. Where speed asks for it, `type`
 * is passed as a constant, and each switch over it leaves one case.
 */
#ifndef MOTET_KERNELS_GPU_TYPES_H
#define MOTET_KERNELS_GPU_TYPES_H

#include "base/types.h"
#include "kernels/gpu/target.h"

/** Accumulators of one pack (the first 8 words at most) or two. */
typedef struct wide {
    uint32_t w[16];
} wide;

/** What accumulators hold. */
typedef enum wide_class {
    WIDE_FLOAT,
    WIDE_DOUBLE,
    WIDE_U32,
    WIDE_S32,
    WIDE_U64,
    WIDE_S64
} wide_class;

DEVICE wide_class class_of(int type)
{
    switch (type) {
    case MOTET_INT8:
    case MOTET_INT32: return WIDE_S32;
    case MOTET_UINT8:
    case MOTET_UINT32: return WIDE_U32;
    case MOTET_INT64: return WIDE_S64;
    case MOTET_UINT64: return WIDE_U64;
    case MOTET_FLOAT64: return WIDE_DOUBLE;
    default: return WIDE_FLOAT;
    }
}

DEVICE uint32_t element_bytes(int type)
{
    switch (type) {
    case MOTET_INT32:
    case MOTET_UINT32:
    case MOTET_FLOAT32: return 4;
    case MOTET_INT64:
    case MOTET_UINT64:
    case MOTET_FLOAT64: return 8;
    case MOTET_FLOAT16:
    case MOTET_BFLOAT16: return 2;
    default: return 1;
    }
}

DEVICE float float_of_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = { .u = bits };
    return v.f;
}

DEVICE uint32_t bits_of_float(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { .f = f };
    return v.u;
}

DEVICE float float_at(const wide *v, uint32_t i)
{
    return float_of_bits(v->w[i]);
}

DEVICE uint64_t word64_at(const wide *v, uint32_t i)
{
    return v->w[2 * i] | (uint64_t)v->w[2 * i + 1] << 32;
}

DEVICE void set_word64(wide *v, uint32_t i, uint64_t bits)
{
    v->w[2 * i] = (uint32_t)bits;
    v->w[2 * i + 1] = (uint32_t)(bits >> 32);
}

DEVICE double double_at(const wide *v, uint32_t i)
{
    union {
        uint64_t u;
        double d;
    } bits = { .u = word64_at(v, i) };
    return bits.d;
}

DEVICE void set_double(wide *v, uint32_t i, double d)
{
    union {
        double d;
        uint64_t u;
    } bits = { .d = d };
    set_word64(v, i, bits.u);
}

/* ---- Small floats ------------------------------------------------------------------- */

#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define FP8_IS_FNUZ true
#elif defined(__NVPTX__) || defined(__AMDGCN__)
#define FP8_IS_FNUZ false
#else
#define FP8_IS_FNUZ motet_gpu_host_fp8_fnuz
/* host.c: what a card has whose kernels this thread runs. */
extern _Thread_local bool motet_gpu_host_fp8_fnuz;
#endif

/* 1 sign bit, exp_bits, man_bits. With infinities, as IEEE has it; without, the all-ones
 * magnitude alone is NaN; FNUZ is described above. */
typedef struct narrow_format {
    int exp_bits, man_bits;
    bool has_inf, fnuz;
} narrow_format;

DEVICE narrow_format format_of(int type)
{
    switch (type) {
    case MOTET_FLOAT8E4M3: return (narrow_format){ 4, 3, false, FP8_IS_FNUZ };
    case MOTET_FLOAT8E5M2: return (narrow_format){ 5, 2, !FP8_IS_FNUZ, FP8_IS_FNUZ };
    default: return (narrow_format){ 5, 10, true, false };
    }
}

/* What the exponent of a float is larger by. */
DEVICE uint32_t rebias_of(narrow_format f)
{
    return 127 - ((1u << (f.exp_bits - 1)) - (f.fnuz ? 0 : 1));
}

DEVICE uint32_t exponents_of_finite(narrow_format f)
{
    return (1u << f.exp_bits) - (f.has_inf ? 1 : 0);
}

#define FLOAT_INF  0x7f800000u
#define FLOAT_QNAN 0x7fc00000u

/* A denormal is (least normal + denormal) − least normal, both sides normal. */
DEVICE float widen_bits(narrow_format f, uint32_t bits)
{
    const int magnitude_bits = f.exp_bits + f.man_bits;
    const uint32_t rebias = rebias_of(f);
    const int up = 23 - f.man_bits;
    const uint32_t least_normal = (rebias + 1) << 23;
    const uint32_t top = f.has_inf ? ((1u << f.exp_bits) - 1) << 23
                                   : ((1u << magnitude_bits) - 1) << up;
    uint32_t sign = (bits >> magnitude_bits) << 31;
    uint32_t magnitude = (bits & ((1u << magnitude_bits) - 1)) << up;
    float denormal =
            float_of_bits(magnitude | least_normal) - float_of_bits(least_normal);
    uint32_t out = magnitude < (1u << 23) ? bits_of_float(denormal)
                                          : magnitude + (rebias << 23);
    if (f.fnuz ? sign != 0 && magnitude == 0 : magnitude >= top)
        out |= f.fnuz ? FLOAT_QNAN : FLOAT_INF;
    return float_of_bits(sign | out);
}

/* Adding a power of two whose last place is the format's leaves, in the low bits of the
 * sum, the magnitude counted in such places: rounded to nearest even by the addition. */
DEVICE uint32_t narrow_bits(narrow_format f, float v)
{
    const int magnitude_bits = f.exp_bits + f.man_bits;
    const uint32_t rebias = rebias_of(f);
    const int down = 23 - f.man_bits;
    const uint32_t finite = exponents_of_finite(f);
    const uint32_t beyond = (rebias + finite) << 23;
    const uint32_t least_normal = (rebias + 1) << 23;
    uint32_t bits = bits_of_float(v);
    uint32_t magnitude = bits & 0x7fffffffu;
    bool is_nan = magnitude > FLOAT_INF;
    if (magnitude > beyond)
        magnitude = beyond;

    uint32_t exponent = magnitude & FLOAT_INF;
    if (exponent < least_normal)
        exponent = least_normal;
    uint32_t aligner = exponent + ((uint32_t)down << 23);
    uint32_t count =
            bits_of_float(float_of_bits(magnitude) + float_of_bits(aligner)) - aligner;
    uint32_t code = (exponent >> down) + count - ((rebias + 1) << f.man_bits);

    uint32_t sign = (bits >> 31) << magnitude_bits;
    if (f.has_inf)
        return is_nan ? (finite << f.man_bits) | (1u << (f.man_bits - 1)) : code | sign;
    const uint32_t nan_code = (1u << magnitude_bits) - 1;
    if (f.fnuz)
        return is_nan || code > nan_code ? 1u << magnitude_bits
                                         : code | (code != 0 ? sign : 0);
    return (code < nan_code ? code : nan_code) | (is_nan ? 0 : sign);
}

/* Devices convert half in one instruction, which gives the same bits as the form above
 * once a NaN is canonical. */
#if defined(__NVPTX__)
DEVICE float widen_half(uint32_t bits)
{
    float f;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
    return f;
}

DEVICE uint32_t narrow_half(float f)
{
    uint16_t bits;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return f != f ? 0x7e00u : bits;
}
#elif defined(__AMDGCN__)
DEVICE float widen_half(uint32_t bits)
{
    union {
        uint16_t u;
        _Float16 h;
    } v = { .u = (uint16_t)bits };
    return (float)v.h;
}

DEVICE uint32_t narrow_half(float f)
{
    union {
        _Float16 h;
        uint16_t u;
    } v = { .h = (_Float16)f };
    return f != f ? 0x7e00u : v.u;
}
#else
DEVICE float widen_half(uint32_t bits)
{
    return widen_bits(format_of(MOTET_FLOAT16), bits);
}

DEVICE uint32_t narrow_half(float f)
{
    return narrow_bits(format_of(MOTET_FLOAT16), f);
}
#endif

DEVICE uint32_t narrow_bfloat16(float v)
{
    uint32_t bits = bits_of_float(v);
    return v != v ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

/* ---- Packs ---------------------------------------------------------------------------- */

DEVICE uint32_t half_at(const bits128 *v, uint32_t i)
{
    return (v->w[i / 2] >> (16 * (i % 2))) & 0xffffu;
}

DEVICE uint32_t byte_at(const bits128 *v, uint32_t i)
{
    return (v->w[i / 4] >> (8 * (i % 4))) & 0xffu;
}

DEVICE uint32_t widen_half_like(int type, uint32_t bits)
{
    return type == MOTET_BFLOAT16 ? bits << 16 : bits_of_float(widen_half(bits));
}

DEVICE uint32_t widen_byte(int type, uint32_t bits)
{
    switch (type) {
    case MOTET_INT8: return (uint32_t)(int32_t)(int8_t)bits;
    case MOTET_FLOAT8E4M3:
        return bits_of_float(widen_bits(format_of(MOTET_FLOAT8E4M3), bits));
    case MOTET_FLOAT8E5M2:
        return bits_of_float(FP8_IS_FNUZ ? widen_bits(format_of(MOTET_FLOAT8E5M2), bits)
                                         : widen_half(bits << 8));
    default: return bits;
    }
}

/* Words without an element are 0. */
DEVICE wide widen(int type, bits128 v, uint32_t packs)
{
    wide out = { { 0 } };
    switch (type) {
    case MOTET_FLOAT16:
    case MOTET_BFLOAT16:
        UNROLL
        for (uint32_t i = 0; i < 4 * packs; i++)
            out.w[i] = widen_half_like(type, half_at(&v, i));
        break;
    case MOTET_INT8:
    case MOTET_UINT8:
    case MOTET_FLOAT8E4M3:
    case MOTET_FLOAT8E5M2:
        UNROLL
        for (uint32_t i = 0; i < 8 * packs; i++)
            out.w[i] = widen_byte(type, byte_at(&v, i));
        break;
    default:
        UNROLL
        for (uint32_t i = 0; i < 2 * packs; i++)
            out.w[i] = v.w[i];
        break;
    }
    return out;
}

DEVICE uint32_t narrow_to_half(int type, uint32_t bits)
{
    float f = float_of_bits(bits);
    return type == MOTET_BFLOAT16 ? narrow_bfloat16(f) : narrow_half(f);
}

DEVICE uint32_t narrow_to_byte(int type, uint32_t bits)
{
    switch (type) {
    case MOTET_FLOAT8E4M3:
        return narrow_bits(format_of(MOTET_FLOAT8E4M3), float_of_bits(bits));
    case MOTET_FLOAT8E5M2:
        return narrow_bits(format_of(MOTET_FLOAT8E5M2), float_of_bits(bits));
    default: return bits & 0xffu;
    }
}

DEVICE bits128 narrow(int type, const wide *v, uint32_t packs)
{
    bits128 out = { { 0, 0, 0, 0 } };
    switch (type) {
    case MOTET_FLOAT16:
    case MOTET_BFLOAT16:
        UNROLL
        for (uint32_t i = 0; i < 4 * packs; i++)
            out.w[i / 2] |= narrow_to_half(type, v->w[i]) << (16 * (i % 2));
        break;
    case MOTET_INT8:
    case MOTET_UINT8:
    case MOTET_FLOAT8E4M3:
    case MOTET_FLOAT8E5M2:
        UNROLL
        for (uint32_t i = 0; i < 8 * packs; i++)
            out.w[i / 4] |= narrow_to_byte(type, v->w[i]) << (8 * (i % 4));
        break;
    default:
        UNROLL
        for (uint32_t i = 0; i < 2 * packs; i++)
            out.w[i] = v->w[i];
        break;
    }
    return out;
}

/* ---- Operators: on `words` accumulators of 32 bits, or half as many of 64 ------------ */

DEVICE void add(wide_class c, wide *a, const wide *b, uint32_t words)
{
    UNROLL
    for (uint32_t i = 0; i < words; i++) {
        if (c == WIDE_FLOAT)
            a->w[i] = bits_of_float(float_at(a, i) + float_at(b, i));
        else if (c == WIDE_U32 || c == WIDE_S32)
            a->w[i] += b->w[i];
        else if (i % 2 != 0)
            continue;
        else if (c == WIDE_DOUBLE)
            set_double(a, i / 2, double_at(a, i / 2) + double_at(b, i / 2));
        else
            set_word64(a, i / 2, word64_at(a, i / 2) + word64_at(b, i / 2));
    }
}

DEVICE void multiply(wide_class c, wide *a, const wide *b, uint32_t words)
{
    UNROLL
    for (uint32_t i = 0; i < words; i++) {
        if (c == WIDE_FLOAT)
            a->w[i] = bits_of_float(float_at(a, i) * float_at(b, i));
        else if (c == WIDE_U32 || c == WIDE_S32)
            a->w[i] *= b->w[i];
        else if (i % 2 != 0)
            continue;
        else if (c == WIDE_DOUBLE)
            set_double(a, i / 2, double_at(a, i / 2) * double_at(b, i / 2));
        else
            set_word64(a, i / 2, word64_at(a, i / 2) * word64_at(b, i / 2));
    }
}

/* Is x greater than y? Not if one is NaN. 64 bits: of pair i. */
DEVICE bool greater(wide_class c, const wide *x, const wide *y, uint32_t i)
{
    switch (c) {
    case WIDE_FLOAT: return float_at(x, i) > float_at(y, i);
    case WIDE_DOUBLE: return double_at(x, i) > double_at(y, i);
    case WIDE_U32: return x->w[i] > y->w[i];
    case WIDE_S32: return (int32_t)x->w[i] > (int32_t)y->w[i];
    case WIDE_U64: return word64_at(x, i) > word64_at(y, i);
    default: return (int64_t)word64_at(x, i) > (int64_t)word64_at(y, i);
    }
}

DEVICE bool is_nan(wide_class c, const wide *x, uint32_t i)
{
    if (c == WIDE_FLOAT)
        return float_at(x, i) != float_at(x, i);
    return c == WIDE_DOUBLE && double_at(x, i) != double_at(x, i);
}

DEVICE bool is_of_64(wide_class c)
{
    return c == WIDE_DOUBLE || c == WIDE_U64 || c == WIDE_S64;
}

/* The larger, or the smaller. Of equals, as of two zeros, the later source's stays. */
DEVICE void extreme(wide_class c, bool largest, wide *a, const wide *b, uint32_t words)
{
    const uint32_t each = is_of_64(c) ? 2 : 1;
    UNROLL
    for (uint32_t i = 0; i < words; i += each) {
        const uint32_t e = i / each;
        bool stays = largest ? greater(c, a, b, e) : greater(c, b, a, e);
        if (stays || is_nan(c, b, e))
            continue;
        a->w[i] = b->w[i];
        if (each == 2)
            a->w[i + 1] = b->w[i + 1];
    }
}

DEVICE void combine_class(wide_class c, uint32_t op, wide *a, const wide *b,
        uint32_t words)
{
    switch (op) {
    case MOTET_PROD: multiply(c, a, b, words); break;
    case MOTET_MAX: extreme(c, true, a, b, words); break;
    case MOTET_MIN: extreme(c, false, a, b, words); break;
    default: add(c, a, b, words); break;
    }
}

/* ---- One pack of any type ------------------------------------------------------------- */

DEVICE bits128 bits_of_pack(uint64_t data)
{
    return (bits128){ { (uint32_t)data, (uint32_t)(data >> 32), 0, 0 } };
}

/* Sums and products wrap alike, whether there is a sign or not. */
DEVICE void combine(int type, uint32_t op, wide *a, const wide *b)
{
    const bool extremes = op == MOTET_MAX || op == MOTET_MIN;
    wide_class c = class_of(type);
    if (!extremes && c == WIDE_S32)
        c = WIDE_U32;
    if (!extremes && c == WIDE_S64)
        c = WIDE_U64;
    switch (c) {
    case WIDE_FLOAT: combine_class(WIDE_FLOAT, op, a, b, 8); break;
    case WIDE_DOUBLE: combine_class(WIDE_DOUBLE, op, a, b, 2); break;
    case WIDE_S32: extreme(WIDE_S32, op == MOTET_MAX, a, b, 8); break;
    case WIDE_U32: combine_class(WIDE_U32, op, a, b, 8); break;
    case WIDE_S64: extreme(WIDE_S64, op == MOTET_MAX, a, b, 2); break;
    case WIDE_U64: combine_class(WIDE_U64, op, a, b, 2); break;
    }
}

/* The bits of an element, in every place of a pack. */
DEVICE uint64_t repeat(int type, uint64_t bits)
{
    switch (element_bytes(type)) {
    case 1: return (bits & 0xffu) * 0x0101010101010101u;
    case 2: return (bits & 0xffffu) * 0x0001000100010001u;
    case 4: return (bits & 0xffffffffu) * 0x0000000100000001u;
    default: return bits;
    }
}

DEVICE void scale(int type, wide *a, uint64_t factor)
{
    wide by = widen(type, bits_of_pack(repeat(type, factor)), 1);
    combine(type, MOTET_PROD, a, &by);
}

/* Of at most 16, so that 16 bits of a quotient come from less than 20 of a dividend:
 * no target has an instruction that divides 64 bits. */
DEVICE uint64_t divide64(uint64_t v, uint32_t by)
{
    uint32_t high = (uint32_t)(v >> 32);
    uint32_t middle = (high % by) << 16 | ((uint32_t)v >> 16);
    uint32_t low = (middle % by) << 16 | ((uint32_t)v & 0xffffu);
    return (uint64_t)(high / by) << 32 | (uint64_t)(middle / by) << 16 | low / by;
}

/* Exact for a byte over 16 at most: the reciprocal is too large by less than 2^-16. */
DEVICE uint32_t divide8(uint32_t v, uint32_t by)
{
    return v * ((65536 + by - 1) / by) >> 16;
}

/* Integers divide and truncate; a sum of bytes wraps first. */
DEVICE void divide(int type, wide *a, uint32_t by)
{
    const bool is_signed =
            type == MOTET_INT8 || type == MOTET_INT32 || type == MOTET_INT64;
    if (element_bytes(type) == 8) {
        uint64_t v = word64_at(a, 0);
        bool negative = is_signed && (int64_t)v < 0;
        uint64_t q = divide64(negative ? 0 - v : v, by);
        set_word64(a, 0, negative ? 0 - q : q);
        return;
    }
    const bool bytes = element_bytes(type) == 1;
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t v = bytes ? widen_byte(type, a->w[i] & 0xffu) : a->w[i];
        bool negative = is_signed && (int32_t)v < 0;
        v = negative ? 0 - v : v;
        if (bytes)
            v = divide8(v, by);
        else if (i < 2)
            v /= by;
        a->w[i] = negative ? 0 - v : v;
    }
}

DEVICE void average(int type, wide *a, uint32_t nranks)
{
    switch (class_of(type)) {
    case WIDE_FLOAT: {
        const float by = 1.0f / (float)nranks;
        UNROLL
        for (uint32_t i = 0; i < 8; i++)
            a->w[i] = bits_of_float(float_at(a, i) * by);
        break;
    }
    case WIDE_DOUBLE: set_double(a, 0, double_at(a, 0) * (1.0 / (double)nranks)); break;
    default: divide(type, a, nranks); break;
    }
}

/* Small floats get theirs when they are narrowed. */
DEVICE void canonical_nan(int type, wide *a, uint32_t words)
{
    UNROLL
    for (uint32_t i = 0; i < words; i++) {
        if (type == MOTET_FLOAT32 && is_nan(WIDE_FLOAT, a, i))
            a->w[i] = 0x7fc00000u;
        if (type == MOTET_FLOAT64 && i % 2 == 0 && is_nan(WIDE_DOUBLE, a, i / 2))
            set_word64(a, i / 2, 0x7ff8000000000000u);
    }
}

/* From the accumulators of all sources to the bits of the result. The bias, one more pack
 * to add if `biased`, comes by value: the address of a local would have to be one, and AMD's
 * kernels have no memory for locals. */
DEVICE uint64_t finish_pack(int type, uint32_t op, uint32_t nranks, wide *a,
        bool biased, uint64_t bias)
{
    if (op == MOTET_AVG)
        average(type, a, nranks);
    if (biased) {
        wide more = widen(type, bits_of_pack(bias), 1);
        combine(type, MOTET_SUM, a, &more);
    }
    if (biased || (op != MOTET_MAX && op != MOTET_MIN))
        canonical_nan(type, a, 2);
    bits128 out = narrow(type, a, 1);
    return out.w[0] | (uint64_t)out.w[1] << 32;
}

#endif
