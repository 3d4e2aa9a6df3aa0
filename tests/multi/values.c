/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of every type and what their reductions must be; see values.h. */
#include "values.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 512 /* elements checked at a time */

const value_type value_types[ncclNumTypes] = {
    [ncclInt8] = { "int8", 1, false, true, 0, 0 },
    [ncclUint8] = { "uint8", 1, false, false, 0, 0 },
    [ncclInt32] = { "int32", 4, false, true, 0, 0 },
    [ncclUint32] = { "uint32", 4, false, false, 0, 0 },
    [ncclInt64] = { "int64", 8, false, true, 0, 0 },
    [ncclUint64] = { "uint64", 8, false, false, 0, 0 },
    [ncclFloat16] = { "float16", 2, true, true, 5, 10 },
    [ncclFloat32] = { "float32", 4, true, true, 8, 23 },
    [ncclFloat64] = { "float64", 8, true, true, 11, 52 },
    [ncclBfloat16] = { "bfloat16", 2, true, true, 8, 7 },
    [ncclFloat8e4m3] = { "fp8_e4m3", 1, true, true, 4, 3 },
    [ncclFloat8e5m2] = { "fp8_e5m2", 1, true, true, 5, 2 },
};

const char *const value_op_names[VALUE_NUM_OPS] = { "sum", "prod", "max", "min", "avg",
    "premul(host scalar)", "premul(device scalar)" };

/* ---- making elements ---- */

static uint64_t stream_of(uint64_t seed, int rank)
{
    return value_mix(seed ^ ((uint64_t)(unsigned)rank << 56));
}

/** Bits of a float with a magnitude in [2^-3, 4), for products in [2^-1, 2). */
static uint64_t float_bits(const value_type *t, value_op op, uint64_t h)
{
    unsigned bias = (1u << (t->exponent_bits - 1)) - 1;
    uint64_t mantissa = (h >> 8) & ((1ull << t->mantissa_bits) - 1);
    uint64_t sign = h & 1;
    uint64_t exponent = op == VALUE_PROD ? bias - 1 + ((h >> 1) & 1)
                                         : bias - 3 + (((h >> 1) & 127) * 5 >> 7);

    return (sign << (t->exponent_bits + t->mantissa_bits)) |
            (exponent << t->mantissa_bits) | mantissa;
}

/** Bits of an integer: all of them, or a magnitude below 2^(bits − 5) for averages. */
static uint64_t int_bits(const value_type *t, value_op op, uint64_t h)
{
    unsigned bits = t->bytes * 8;
    uint64_t v = h;

    if (op == VALUE_AVG) {
        v = (h >> 1) & ((1ull << (bits - 5)) - 1);
        if (t->is_signed && (h & 1))
            v = 0 - v;
    }
    return v;
}

static inline uint64_t element_bits(const value_type *t, value_op op, uint64_t h)
{
    return t->is_float ? float_bits(t, op, h) : int_bits(t, op, h);
}

void value_fill(void *dst, int type, value_op op, uint64_t seed, int rank, size_t first,
        size_t count)
{
    const value_type *t = &value_types[type];
    uint64_t stream = stream_of(seed, rank);
    unsigned char *p = dst;

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = element_bits(t, op, value_mix(stream + first + i));

        switch (t->bytes) {
        case 1: p[i] = (unsigned char)bits; break;
        case 2: memcpy(p + 2 * i, &(uint16_t){ (uint16_t)bits }, 2); break;
        case 4: memcpy(p + 4 * i, &(uint32_t){ (uint32_t)bits }, 4); break;
        default: memcpy(p + 8 * i, &bits, 8);
        }
    }
}

void value_scalar(void *dst, int type, uint64_t seed, int rank)
{
    value_fill(dst, type, VALUE_PREMUL_HOST, seed ^ 0x5ca1a7, rank, 0, 1);
}

/* ---- reading elements ---- */

/** Value of a float of at most 16 bits. */
static double decode_small(const value_type *t, unsigned bits)
{
    unsigned bias = (1u << (t->exponent_bits - 1)) - 1;
    unsigned top = t->exponent_bits + t->mantissa_bits;
    unsigned exponent = (bits >> t->mantissa_bits) & ((1u << t->exponent_bits) - 1);
    unsigned mantissa = bits & ((1u << t->mantissa_bits) - 1);
    bool last = exponent == (1u << t->exponent_bits) - 1;
    double v;

    if (t->exponent_bits == 4)
        last = last && mantissa == 7; /* e4m3: no infinity, one NaN */
    if (last)
        v = mantissa == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        v = ldexp(mantissa, 1 - (int)bias - (int)t->mantissa_bits);
    else
        v = ldexp(mantissa + (1u << t->mantissa_bits),
                (int)exponent - (int)bias - (int)t->mantissa_bits);
    return (bits >> top) & 1 ? -v : v;
}

/** Decoded values of all patterns of the small floats, made once. */
static double half_table[65536], bfloat_table[65536], e4m3_table[256], e5m2_table[256];

static void make_tables(void)
{
    for (unsigned i = 0; i < 65536; i++) {
        half_table[i] = decode_small(&value_types[ncclFloat16], i);
        bfloat_table[i] = decode_small(&value_types[ncclBfloat16], i);
    }
    for (unsigned i = 0; i < 256; i++) {
        e4m3_table[i] = decode_small(&value_types[ncclFloat8e4m3], i);
        e5m2_table[i] = decode_small(&value_types[ncclFloat8e5m2], i);
    }
}

static uint64_t read_bits(const void *data, unsigned bytes, size_t i)
{
    const unsigned char *p = (const unsigned char *)data + i * bytes;
    uint64_t v = 0;

    memcpy(&v, p, bytes);
    return v;
}

static double read_float(int type, const void *data, size_t i)
{
    uint64_t bits = read_bits(data, value_types[type].bytes, i);
    double d;
    float f;

    switch (type) {
    case ncclFloat16: return half_table[bits];
    case ncclBfloat16: return bfloat_table[bits];
    case ncclFloat8e4m3: return e4m3_table[bits];
    case ncclFloat8e5m2: return e5m2_table[bits];
    case ncclFloat32: memcpy(&f, &bits, 4); return (double)f;
    default: memcpy(&d, &bits, 8); return d;
    }
}

static int64_t sign_extend(const value_type *t, uint64_t bits)
{
    unsigned shift = 64 - t->bytes * 8;

    return (int64_t)(bits << shift) >> shift;
}

/* ---- integers ---- */

static uint64_t int_combine(const value_type *t, value_op op, uint64_t acc, uint64_t x)
{
    unsigned shift = 64 - t->bytes * 8;
    bool less = t->is_signed ? sign_extend(t, x) < sign_extend(t, acc)
                             : x << shift < acc << shift;

    switch (op) {
    case VALUE_PROD: return acc * x;
    case VALUE_MAX: return less ? acc : x;
    case VALUE_MIN: return less ? x : acc;
    default: return acc + x;
    }
}

static bool check_ints(const void *out, const value_reduction *w, size_t at,
        size_t count, char *why, size_t bytes)
{
    const value_type *t = &value_types[w->type];
    uint64_t mask = t->bytes == 8 ? ~0ull : (1ull << (t->bytes * 8)) - 1;
    uint64_t acc[BLOCK], x[BLOCK];

    for (int r = 0; r < w->nranks; r++) {
        uint64_t scalar = 0;

        value_fill(x, w->type, w->op, w->seed, r, w->first + at, count);
        value_scalar(&scalar, w->type, w->seed, r);
        for (size_t i = count; i-- > 0;) {
            uint64_t v = read_bits(x, t->bytes, i);

            if (w->op >= VALUE_PREMUL_HOST)
                v *= scalar;
            acc[i] = r == 0 ? v : int_combine(t, w->op, acc[i], v);
        }
    }
    if (w->bias)
        value_fill(x, w->type, w->op, w->seed, VALUE_BIAS_RANK(w->bias_rank),
                w->first + at, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t got = read_bits(out, t->bytes, at + i);
        uint64_t want = acc[i];

        if (w->op == VALUE_AVG)
            want = t->is_signed ? (uint64_t)(sign_extend(t, want) / w->nranks)
                                : (want & mask) / (uint64_t)w->nranks;
        if (w->bias)
            want += read_bits(x, t->bytes, i);
        if (got == (want & mask))
            continue;
        (void)snprintf(why, bytes, "element %zu is 0x%llx, expected 0x%llx", at + i,
                (unsigned long long)got, (unsigned long long)(want & mask));
        return false;
    }
    return true;
}

/* ---- floats ---- */

static double half_ulp(const value_type *t, double x)
{
    int exponent,
            least = 2 - (1 << (t->exponent_bits - 1)); /* of the smallest normal */

    (void)frexp(x, &exponent);
    exponent -= 1;
    if (exponent < least)
        exponent = least;
    return ldexp(1.0, exponent - (int)t->mantissa_bits - 1);
}

/** The reference of one element: its value, and the magnitude that errors scale with. */
struct reference {
    long double value, magnitude;
};

static void float_combine(struct reference *acc, value_op op, long double x)
{
    long double size = x < 0 ? -x : x;

    switch (op) {
    case VALUE_PROD: acc->value *= x; break;
    case VALUE_MAX: acc->value = x > acc->value ? x : acc->value; break;
    case VALUE_MIN: acc->value = x < acc->value ? x : acc->value; break;
    default: acc->value += x;
    }
    acc->magnitude += size;
}

/** How far from the reference a result may be. */
static double bound_of(const value_reduction *w, const struct reference *ref)
{
    const value_type *t = &value_types[w->type];
    int roundings = w->nranks - 1 + (w->op >= VALUE_PREMUL_HOST) +
            2 * (w->op == VALUE_AVG) + w->bias;
    double u = w->type == ncclFloat64 ? 0x1p-53 : 0x1p-24;
    bool exact = (w->op == VALUE_MAX || w->op == VALUE_MIN) && !w->bias;
    double running = roundings * u * (double)ref->magnitude * (1 + 16 * u);

    if (exact)
        return 0;
    if (t->bytes >= 4)
        return running;
    return half_ulp(t, (double)ref->value) + running;
}

static void float_reference(const value_reduction *w, size_t at, size_t count,
        struct reference *acc)
{
    uint64_t x[BLOCK];

    for (int r = 0; r < w->nranks; r++) {
        uint64_t bits = 0;
        double scalar;

        value_fill(x, w->type, w->op, w->seed, r, w->first + at, count);
        value_scalar(&bits, w->type, w->seed, r);
        scalar = w->op >= VALUE_PREMUL_HOST ? read_float(w->type, &bits, 0) : 1;
        for (size_t i = 0; i < count; i++) {
            long double v = (long double)read_float(w->type, x, i) * scalar;

            if (r == 0)
                acc[i] = (struct reference){ v, v < 0 ? -v : v };
            else
                float_combine(&acc[i], w->op, v);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (w->op == VALUE_AVG) {
            acc[i].value /= w->nranks;
            acc[i].magnitude /= w->nranks;
        } else if (w->op == VALUE_PROD) {
            acc[i].magnitude = acc[i].value < 0 ? -acc[i].value : acc[i].value;
        }
    }
    if (!w->bias)
        return;
    value_fill(x, w->type, w->op, w->seed, VALUE_BIAS_RANK(w->bias_rank), w->first + at,
            count);
    for (size_t i = 0; i < count; i++)
        float_combine(&acc[i], VALUE_SUM, read_float(w->type, x, i));
}

static bool check_floats(const void *out, const value_reduction *w, size_t at,
        size_t count, char *why, size_t bytes)
{
    struct reference ref[BLOCK];

    float_reference(w, at, count, ref);
    for (size_t i = 0; i < count; i++) {
        double got = read_float(w->type, out, at + i);
        double error = (double)((long double)got - ref[i].value);
        double bound = error == 0 ? 0 : bound_of(w, &ref[i]);

        if (fabs(error) <= bound)
            continue;
        (void)snprintf(why, bytes,
                "element %zu is %.17g, expected %.17g with an error of at most %.3g",
                at + i, got, (double)ref[i].value, bound);
        return false;
    }
    return true;
}

bool value_check(const void *out, const value_reduction *want, char *why, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool is_float = value_types[want->type].is_float;

    pthread_once(&once, make_tables);
    for (size_t at = 0; at < want->count; at += BLOCK) {
        size_t count = want->count - at < BLOCK ? want->count - at : BLOCK;

        if (!(is_float ? check_floats : check_ints)(out, want, at, count, why, bytes))
            return false;
    }
    return true;
}

uint64_t value_hash(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 0x243f6a8885a308d3ull ^ bytes, v;

    for (; bytes >= 8; p += 8, bytes -= 8) {
        memcpy(&v, p, 8);
        h = (h ^ v) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    v = 0;
    memcpy(&v, p, bytes);
    return value_mix(h ^ v);
}
