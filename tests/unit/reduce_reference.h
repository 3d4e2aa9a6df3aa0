/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one element of a reduction must be, bit by bit, by scalar arithmetic that shares
 * nothing with the kernels: narrow floats are decoded and encoded through double,
 * integers computed in 64 bits. And inputs to feed both, with many special values.
 */
#ifndef MOTET_TESTS_REDUCE_REFERENCE_H
#define MOTET_TESTS_REDUCE_REFERENCE_H

#include "base/types.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* fnuz: as gfx942 has fp8, with a bias larger by one and −0 for the only NaN. */
typedef struct narrow_layout {
    int exp_bits, man_bits;
    bool has_inf, fnuz;
} narrow_layout;

static bool reference_is_fnuz;

static narrow_layout layout_of(int type)
{
    switch (type) {
    case MOTET_FLOAT16: return (narrow_layout){ 5, 10, true, false };
    case MOTET_BFLOAT16: return (narrow_layout){ 8, 7, true, false };
    case MOTET_FLOAT8E4M3: return (narrow_layout){ 4, 3, false, reference_is_fnuz };
    default: return (narrow_layout){ 5, 2, !reference_is_fnuz, reference_is_fnuz };
    }
}

static int bias_of_layout(narrow_layout l)
{
    return (1 << (l.exp_bits - 1)) - (l.fnuz ? 0 : 1);
}

static double decode(int type, uint32_t bits)
{
    narrow_layout l = layout_of(type);
    int bias = bias_of_layout(l);
    uint32_t man = bits & ((1u << l.man_bits) - 1);
    int exp = (int)(bits >> l.man_bits) & ((1 << l.exp_bits) - 1);
    double sign = bits >> (l.exp_bits + l.man_bits) ? -1 : 1;
    bool top = exp == (1 << l.exp_bits) - 1 && !l.fnuz;
    if (l.fnuz && bits == 0x80)
        return (double)NAN;
    if (top && l.has_inf)
        return man ? (double)NAN : sign * (double)INFINITY;
    if (top && man == (1u << l.man_bits) - 1)
        return (double)NAN;
    if (exp == 0)
        return sign * ldexp(man, 1 - bias - l.man_bits);
    return sign * ldexp(man | (1u << l.man_bits), exp - bias - l.man_bits);
}

static uint32_t encode(int type, double x)
{
    narrow_layout l = layout_of(type);
    int bias = bias_of_layout(l);
    uint32_t exp_mask = ((1u << l.exp_bits) - 1) << l.man_bits;
    uint32_t all_ones = exp_mask | ((1u << l.man_bits) - 1);
    uint32_t sign = (signbit(x) ? 1u : 0u) << (l.exp_bits + l.man_bits);
    if (l.fnuz && (isnan(x) || isinf(x)))
        return 0x80;
    if (isnan(x))
        return l.has_inf ? exp_mask | (1u << (l.man_bits - 1)) : all_ones;
    uint32_t beyond = l.has_inf ? exp_mask : all_ones;
    if (isinf(x))
        return sign | beyond;
    int exp;
    frexp(x, &exp);
    exp = x == 0 || exp - 1 < 1 - bias ? 1 - bias : exp - 1;
    /* In units of the last place, rounded by rint to nearest even. */
    double units = rint(ldexp(fabs(x), l.man_bits - exp));
    uint64_t code = ((uint64_t)(exp + bias - 1) << l.man_bits) + (uint64_t)units;
    if (l.fnuz)
        return code > all_ones ? 0x80 : code == 0 ? 0 : sign | (uint32_t)code;
    return sign | (code > beyond ? beyond : (uint32_t)code);
}

static bool is_narrow(int type)
{
    return motet_type_table[type].is_float && motet_type_table[type].bytes < 4;
}

static bool is_signed_int(int type)
{
    return type == MOTET_INT8 || type == MOTET_INT32 || type == MOTET_INT64;
}

/* What one output element is made of. */
typedef struct element_case {
    int type, redop, nsrc, nranks;
    const uint64_t *src;    /* nsrc elements' bits  */
    const uint64_t *scalar; /* nsrc elements' bits  */
    const uint64_t *bias;   /* one element's bits, or NULL */
} element_case;

static uint64_t sign_extended(int type, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)motet_type_table[type].bytes;
    if (is_signed_int(type))
        return (uint64_t)((int64_t)(bits << unused) >> unused);
    return bits << unused >> unused;
}

static bool int_less(int type, uint64_t a, uint64_t b)
{
    return is_signed_int(type) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t reference_int(const element_case *c)
{
    uint64_t acc = 0;
    for (int k = 0; k < c->nsrc; k++) {
        uint64_t x = sign_extended(c->type, c->src[k]);
        if (c->redop == MOTET_PREMUL_SUM)
            x *= sign_extended(c->type, c->scalar[k]);
        if (k == 0)
            acc = x;
        else if (c->redop == MOTET_PROD)
            acc *= x;
        else if (c->redop == MOTET_MAX)
            acc = int_less(c->type, acc, x) ? x : acc;
        else if (c->redop == MOTET_MIN)
            acc = int_less(c->type, x, acc) ? x : acc;
        else
            acc += x;
    }
    acc = sign_extended(c->type, acc);
    if (c->redop == MOTET_AVG && is_signed_int(c->type))
        acc = (uint64_t)((int64_t)acc / c->nranks);
    else if (c->redop == MOTET_AVG)
        acc /= (uint64_t)c->nranks;
    if (c->bias)
        acc += *c->bias;
    return acc;
}

static float float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof(f));
    return f;
}

static double double_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof(d));
    return d;
}

static uint64_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return isnan(f) ? 0x7fc00000 : bits;
}

static uint64_t bits_of_double(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return isnan(d) ? 0x7ff8000000000000 : bits;
}

/* Functions, so that no compiler fuses a product into a sum. */
__attribute__((noinline)) static float mul_f(float a, float b)
{
    return a * b;
}

__attribute__((noinline)) static double mul_d(double a, double b)
{
    return a * b;
}

/* In max and min a NaN loses; of two zeros the later source's stays. */
static bool keeps(int redop, double acc, double x)
{
    return isnan(x) || (redop == MOTET_MAX ? acc > x : acc < x);
}

static uint64_t reference_double(const element_case *c)
{
    uint64_t winner = c->src[0];
    double acc = 0;
    for (int k = 0; k < c->nsrc; k++) {
        double x = double_of(c->src[k]);
        if (c->redop == MOTET_PREMUL_SUM)
            x = mul_d(x, double_of(c->scalar[k]));
        if (k == 0) {
            acc = x;
        } else if (c->redop == MOTET_PROD) {
            acc = mul_d(acc, x);
        } else if (c->redop == MOTET_MAX || c->redop == MOTET_MIN) {
            winner = keeps(c->redop, double_of(winner), x) ? winner : c->src[k];
            acc = double_of(winner);
        } else {
            acc += x;
        }
    }
    if (c->redop == MOTET_AVG)
        acc = mul_d(acc, 1.0 / c->nranks);
    if (c->bias)
        return bits_of_double(acc + double_of(*c->bias));
    if (c->redop == MOTET_MAX || c->redop == MOTET_MIN)
        return winner;
    return bits_of_double(acc);
}

static float widened(int type, uint64_t bits)
{
    return is_narrow(type) ? (float)decode(type, (uint32_t)bits) : float_of(bits);
}

/* float, and all that accumulates in float. */
static uint64_t reference_float(const element_case *c)
{
    int best = 0;
    float acc = 0;
    for (int k = 0; k < c->nsrc; k++) {
        float x = widened(c->type, c->src[k]);
        if (c->redop == MOTET_PREMUL_SUM)
            x = mul_f(x, widened(c->type, c->scalar[k]));
        if (k == 0) {
            acc = x;
        } else if (c->redop == MOTET_PROD) {
            acc = mul_f(acc, x);
        } else if (c->redop == MOTET_MAX || c->redop == MOTET_MIN) {
            best = keeps(c->redop, (double)acc, (double)x) ? best : k;
            acc = widened(c->type, c->src[best]);
        } else {
            acc += x;
        }
    }
    if (c->redop == MOTET_AVG)
        acc = mul_f(acc, 1.0f / (float)c->nranks);
    if (c->bias)
        acc += widened(c->type, *c->bias);
    if (is_narrow(c->type))
        return encode(c->type, (double)acc);
    if (!c->bias && (c->redop == MOTET_MAX || c->redop == MOTET_MIN))
        return c->src[best];
    return bits_of_float(acc);
}

static uint64_t reference(const element_case *c)
{
    bool copies = c->nsrc == 1 && !c->bias && c->redop != MOTET_AVG &&
            c->redop != MOTET_PREMUL_SUM;
    if (copies)
        return c->src[0];
    if (!motet_type_table[c->type].is_float)
        return reference_int(c);
    return c->type == MOTET_FLOAT64 ? reference_double(c) : reference_float(c);
}

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Zeros, infinities, NaN, least and largest denormals and normals of any width come
 * from a few runs of equal bits. */
static uint64_t special_bits(uint64_t r)
{
    static const uint64_t patterns[] = { 0, 1, 2, 0x7f, 0x80, 0x7e, 0xff, 0x7c, 0x7b,
        0xfc, 0x7bff, 0x7c00, 0x7c01, 0xfc00, 0x8000, 0x8001, 0x03ff, 0x0400, 0x7f80,
        0x7f7f, 0xff80, 0x7fc1, 0x7f800000, 0xff800000, 0x7f7fffff, 0x80000000,
        0x007fffff, 0x00800000, 0x7f800001, 0xffc00002, 0x7ff0000000000000,
        0xfff0000000000000, 0x7fefffffffffffff, 0x8000000000000000, 0x000fffffffffffff,
        0x0010000000000000, 0x7ff0000000000001, 0xfff8000000000003, 0x7fffffffffffffff,
        0xffffffffffffffff };
    return patterns[r % (sizeof(patterns) / sizeof(patterns[0]))];
}

/* A number of moderate size, so that sums round rather than overflow. */
static uint64_t moderate_bits(int type, uint64_t r)
{
    double x = ((double)(int64_t)r / 9223372036854775808.0) * 8;
    if (type == MOTET_FLOAT64)
        return bits_of_double(x);
    if (type == MOTET_FLOAT32)
        return bits_of_float((float)x);
    return is_narrow(type) ? encode(type, x) : r;
}

static uint64_t element_mask(int type)
{
    return UINT64_MAX >> (64 - 8 * motet_type_table[type].bytes);
}

static uint64_t input_bits(int type, uint64_t *state)
{
    uint64_t kind = next_random(state) % 8;
    uint64_t r = next_random(state);
    uint64_t bits = kind == 0 ? special_bits(r) : kind < 3 ? r : moderate_bits(type, r);
    return bits & element_mask(type);
}

static uint64_t get(int type, const void *p, size_t i)
{
    size_t size = motet_type_table[type].bytes;
    const char *at = (const char *)p + i * size;
    uint8_t b;
    uint16_t h;
    uint32_t w;
    uint64_t d;
    switch (size) {
    case 1: memcpy(&b, at, size); return b;
    case 2: memcpy(&h, at, size); return h;
    case 4: memcpy(&w, at, size); return w;
    default: memcpy(&d, at, size); return d;
    }
}

static void put(int type, void *p, size_t i, uint64_t bits)
{
    size_t size = motet_type_table[type].bytes;
    char *at = (char *)p + i * size;
    uint8_t b = (uint8_t)bits;
    uint16_t h = (uint16_t)bits;
    uint32_t w = (uint32_t)bits;
    switch (size) {
    case 1: memcpy(at, &b, size); break;
    case 2: memcpy(at, &h, size); break;
    case 4: memcpy(at, &w, size); break;
    default: memcpy(at, &bits, size); break;
    }
}

#endif
