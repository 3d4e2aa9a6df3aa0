/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of CPU kernels. Compiled as it stands this is the baseline set;
 * reduce_avx2.c and reduce_avx512.c include it with another name, and CMakeLists.txt
 * gives each its compiler options.
 *
 * A register's worth of elements at a time: load it from the first source, widen it
 * to the accumulator's type, combine it with the same place of the second source,
 * the third …, finish, narrow, store. No accumulator ever lies in memory, and dst may
 * be one of the sources, because a place is stored only after every source's element
 * there was read. Four registers go together while there is enough, then single
 * ones, then one that is partly filled: all run the same operations, so that an
 * element's bits do not depend on where in the buffer it lies.
 *
 * Types are constants in all that is inlined, and so are operators where four go
 * together, so that each such pair is a loop of its own.
 */
#include "kernels/sets.h"

#include "base/types.h"
#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/fpenv.h"
#include "kernels/vector.h"

#ifndef MOTET_KERNELS_TABLE
#define MOTET_KERNELS_TABLE motet_kernels_baseline
#define MOTET_KERNELS_NAME  "baseline"
#endif

/* Bytes of memory that fill one register. */
static ALWAYS_INLINE size_t vec_elements_bytes(motet_type type)
{
    switch (type) {
    case MOTET_FLOAT16:
    case MOTET_BFLOAT16: return VEC_BYTES / 2;
    case MOTET_FLOAT8E4M3:
    case MOTET_FLOAT8E5M2: return VEC_BYTES / 4;
    default: return VEC_BYTES;
    }
}

static ALWAYS_INLINE size_t element_bytes(motet_type type)
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

static ALWAYS_INLINE bool is_integer(motet_type type)
{
    return type <= MOTET_UINT64;
}

static ALWAYS_INLINE bool is_signed_integer(motet_type type)
{
    return type == MOTET_INT8 || type == MOTET_INT32 || type == MOTET_INT64;
}

_Static_assert(MOTET_UINT8 == MOTET_INT8 + 1 && MOTET_UINT32 == MOTET_INT32 + 1 &&
                MOTET_UINT64 == MOTET_INT64 + 1,
        "as_unsigned() takes the next type");

/* Sums and products wrap, so that the sign makes no difference. */
static inline motet_type as_unsigned(motet_type type, int redop)
{
    bool wraps = redop == MOTET_SUM || redop == MOTET_PROD || redop == MOTET_PREMUL_SUM;
    return wraps && is_signed_integer(type) ? (motet_type)(type + 1) : type;
}

static ALWAYS_INLINE vec load(motet_type type, const void *p)
{
    switch (type) {
    case MOTET_FLOAT16: return load_half(p);
    case MOTET_BFLOAT16: return load_bfloat16(p);
    case MOTET_FLOAT8E4M3: return load_e4m3(p);
    case MOTET_FLOAT8E5M2: return load_e5m2(p);
    default: return load_vec(p);
    }
}

static ALWAYS_INLINE void store(motet_type type, void *p, vec v)
{
    switch (type) {
    case MOTET_FLOAT16: store_half(p, v); break;
    case MOTET_BFLOAT16: store_bfloat16(p, v); break;
    case MOTET_FLOAT8E4M3: store_e4m3(p, v); break;
    case MOTET_FLOAT8E5M2: store_e5m2(p, v); break;
    default: store_vec(p, v); break;
    }
}

/* One element, given by its bits in the low end, widened in every lane. */
static ALWAYS_INLINE vec splat(motet_type type, uint64_t bits)
{
    switch (type) {
    case MOTET_INT8:
    case MOTET_UINT8: return (vec)((uint8_t)bits - (v_u8){ 0 });
    case MOTET_INT64:
    case MOTET_UINT64:
    case MOTET_FLOAT64: return (vec)(bits - (v_u64){ 0 });
    default: break;
    }
    vec lanes = (uint32_t)bits - (vec){ 0 };
    switch (type) {
    case MOTET_FLOAT16: return widen_bits(half_format, lanes & 0xffffu);
    case MOTET_BFLOAT16: return lanes << 16;
    case MOTET_FLOAT8E4M3: return widen_bits(e4m3_format, lanes & 0xffu);
    case MOTET_FLOAT8E5M2: return widen_bits(e5m2_format, lanes & 0xffu);
    default: return lanes;
    }
}

static ALWAYS_INLINE vec add(motet_type type, vec a, vec b)
{
    switch (type) {
    case MOTET_INT8:
    case MOTET_UINT8: return (vec)((v_u8)a + (v_u8)b);
    case MOTET_INT32:
    case MOTET_UINT32: return a + b;
    case MOTET_INT64:
    case MOTET_UINT64: return (vec)((v_u64)a + (v_u64)b);
    case MOTET_FLOAT64: return (vec)((v_f64)a + (v_f64)b);
    default: return (vec)((v_f32)a + (v_f32)b);
    }
}

static ALWAYS_INLINE vec multiply(motet_type type, vec a, vec b)
{
    switch (type) {
    case MOTET_INT8:
    case MOTET_UINT8: return (vec)((v_u8)a * (v_u8)b);
    case MOTET_INT32:
    case MOTET_UINT32: return a * b;
    case MOTET_INT64:
    case MOTET_UINT64: return (vec)((v_u64)a * (v_u64)b);
    case MOTET_FLOAT64: return (vec)((v_f64)a * (v_f64)b);
    default: return (vec)((v_f32)a * (v_f32)b);
    }
}

/* Lanes where a > b. False where one is NaN. */
static ALWAYS_INLINE vec greater(motet_type type, vec a, vec b)
{
    switch (type) {
    case MOTET_INT8: return (vec)((v_i8)a > (v_i8)b);
    case MOTET_UINT8: return (vec)((v_u8)a > (v_u8)b);
    case MOTET_INT32: return (vec)((v_i32)a > (v_i32)b);
    case MOTET_UINT32: return (vec)(a > b);
    case MOTET_INT64: return (vec)((v_i64)a > (v_i64)b);
    case MOTET_UINT64: return (vec)((v_u64)a > (v_u64)b);
    case MOTET_FLOAT64: return (vec)((v_f64)a > (v_f64)b);
    default: return (vec)((v_f32)a > (v_f32)b);
    }
}

static ALWAYS_INLINE vec is_nan(motet_type type, vec v)
{
    if (is_integer(type))
        return (vec){ 0 };
    if (type == MOTET_FLOAT64)
        return (vec)((v_f64)v != (v_f64)v);
    return (vec)((v_f32)v != (v_f32)v);
}

/* b unless a beats it or b is NaN: a NaN loses, two give NaN, of two zeros the later. */
static ALWAYS_INLINE vec combine(motet_type type, motet_redop op, vec a, vec b)
{
    switch (op) {
    case MOTET_PROD: return multiply(type, a, b);
    case MOTET_MAX: return select_vec(greater(type, a, b) | is_nan(type, b), a, b);
    case MOTET_MIN: return select_vec(greater(type, b, a) | is_nan(type, b), a, b);
    default: return add(type, a, b);
    }
}

/* Integers only, toward zero. Through a floating division, which has a vector form: a
 * quotient that is not a whole number lies further below the next one than a rounding
 * reaches, as 8 bits are to a float and 32 to a double. */
static ALWAYS_INLINE vec divide_lanes(motet_type type, vec v, int n)
{
    union {
        vec v;
        int8_t i8[VEC_BYTES];
        uint8_t u8[VEC_BYTES];
        int32_t i32[VEC_BYTES / 4];
        uint32_t u32[VEC_BYTES / 4];
        int64_t i64[VEC_BYTES / 8];
        uint64_t u64[VEC_BYTES / 8];
    } lanes = { .v = v };
    const float f = (float)n;
    const double d = n;
    for (size_t i = 0; i < VEC_BYTES / element_bytes(type); i++) {
        switch (type) {
        case MOTET_INT8: lanes.i8[i] = (int8_t)(int)((float)lanes.i8[i] / f); break;
        case MOTET_UINT8: lanes.u8[i] = (uint8_t)(int)((float)lanes.u8[i] / f); break;
        case MOTET_INT32: lanes.i32[i] = (int32_t)(lanes.i32[i] / d); break;
        case MOTET_UINT32: lanes.u32[i] = (uint32_t)(lanes.u32[i] / d); break;
        case MOTET_INT64: lanes.i64[i] = lanes.i64[i] / n; break;
        default: lanes.u64[i] = lanes.u64[i] / (uint64_t)n; break;
        }
    }
    return lanes.v;
}

static ALWAYS_INLINE vec average(motet_type type, vec v, int n)
{
    if (is_integer(type))
        return divide_lanes(type, v, n);
    if (type == MOTET_FLOAT64)
        return (vec)((v_f64)v * splat_f64(1.0 / n));
    return (vec)((v_f32)v * splat_f32(1.0f / (float)n));
}

/* What is combined how: a constant in the loops that go in fours. */
typedef struct reduce_case {
    motet_type type;
    motet_redop op;
    bool bias;
} reduce_case;

/* Source k's share of one register. */
static ALWAYS_INLINE vec term(reduce_case c, const motet_reduce_args *a, int k, vec v)
{
    if (c.op == MOTET_PREMUL_SUM)
        return multiply(c.type, v, splat(c.type, a->scalar[k]));
    return v;
}

static ALWAYS_INLINE vec finish(reduce_case c, const motet_reduce_args *a,
        const void *bias, vec v)
{
    if (c.op == MOTET_AVG)
        v = average(c.type, v, a->nranks);
    if (c.bias)
        v = add(c.type, v, load(c.type, bias));
    bool arithmetic = c.bias || (c.op != MOTET_MAX && c.op != MOTET_MIN);
    if (arithmetic && c.type == MOTET_FLOAT32)
        v = canonical_nan_f32(v);
    if (arithmetic && c.type == MOTET_FLOAT64)
        v = canonical_nan_f64(v);
    return v;
}

static ALWAYS_INLINE const char *source(const motet_reduce_args *a, int k, size_t at)
{
    return (const char *)a->src[k] + at;
}

static ALWAYS_INLINE void put(reduce_case c, const motet_reduce_args *a, size_t at,
        vec v)
{
    const char *bias = c.bias ? (const char *)a->bias + at : NULL;
    v = finish(c, a, bias, v);
    store(c.type, (char *)a->dst + at, v);
    if (a->dst2)
        store(c.type, (char *)a->dst2 + at, v);
}

static ALWAYS_INLINE void reduce_vec(reduce_case c, const motet_reduce_args *a,
        size_t at)
{
    vec v = term(c, a, 0, load(c.type, source(a, 0, at)));
    for (int k = 1; k < a->nsrc; k++)
        v = combine(c.type, c.op, v, term(c, a, k, load(c.type, source(a, k, at))));
    put(c, a, at, v);
}

static ALWAYS_INLINE void reduce_four_vecs(reduce_case c, const motet_reduce_args *a,
        size_t at)
{
    const size_t step = vec_elements_bytes(c.type);
    const char *s = source(a, 0, at);
    vec v0 = term(c, a, 0, load(c.type, s));
    vec v1 = term(c, a, 0, load(c.type, s + step));
    vec v2 = term(c, a, 0, load(c.type, s + 2 * step));
    vec v3 = term(c, a, 0, load(c.type, s + 3 * step));
    for (int k = 1; k < a->nsrc; k++) {
        s = source(a, k, at);
        v0 = combine(c.type, c.op, v0, term(c, a, k, load(c.type, s)));
        v1 = combine(c.type, c.op, v1, term(c, a, k, load(c.type, s + step)));
        v2 = combine(c.type, c.op, v2, term(c, a, k, load(c.type, s + 2 * step)));
        v3 = combine(c.type, c.op, v3, term(c, a, k, load(c.type, s + 3 * step)));
    }
    put(c, a, at, v0);
    put(c, a, at + step, v1);
    put(c, a, at + 2 * step, v2);
    put(c, a, at + 3 * step, v3);
}

static ALWAYS_INLINE vec load_partly(motet_type type, const void *p, size_t bytes)
{
    uint8_t pad[VEC_BYTES];
    load_part(pad, p, bytes);
    return load(type, pad);
}

static ALWAYS_INLINE void reduce_part(reduce_case c, const motet_reduce_args *a,
        size_t at, size_t bytes)
{
    vec v = term(c, a, 0, load_partly(c.type, source(a, 0, at), bytes));
    for (int k = 1; k < a->nsrc; k++) {
        vec next = load_partly(c.type, source(a, k, at), bytes);
        v = combine(c.type, c.op, v, term(c, a, k, next));
    }
    uint8_t bias[VEC_BYTES] = { 0 };
    if (c.bias)
        load_part(bias, (const char *)a->bias + at, bytes);
    uint8_t out[VEC_BYTES];
    store(c.type, out, finish(c, a, bias, v));
    store_part((char *)a->dst + at, out, bytes);
    if (a->dst2)
        store_part((char *)a->dst2 + at, out, bytes);
}

/* As much as goes in fours, with a constant operator; the bytes done. */
static ALWAYS_INLINE size_t reduce_fours(motet_type type, motet_redop op,
        const motet_reduce_args *a)
{
    const reduce_case c = { type, op, false };
    const size_t four = 4 * vec_elements_bytes(type);
    const size_t end = a->count * element_bytes(type);
    size_t at = 0;
    for (; end - at >= four; at += four)
        reduce_four_vecs(c, a, at);
    return at;
}

/* The loops worth having: others are seldom asked for, and each costs some KB. */
static ALWAYS_INLINE size_t reduce_bulk(motet_type type, const motet_reduce_args *a)
{
    const bool arithmetic = !is_signed_integer(type); /* else see as_unsigned() */
    const bool scaled = !is_integer(type);
    switch ((motet_redop)a->redop) {
    case MOTET_SUM: return arithmetic ? reduce_fours(type, MOTET_SUM, a) : 0;
    case MOTET_PROD: return arithmetic ? reduce_fours(type, MOTET_PROD, a) : 0;
    case MOTET_MAX: return reduce_fours(type, MOTET_MAX, a);
    case MOTET_MIN: return reduce_fours(type, MOTET_MIN, a);
    case MOTET_AVG: return scaled ? reduce_fours(type, MOTET_AVG, a) : 0;
    case MOTET_PREMUL_SUM: return scaled ? reduce_fours(type, MOTET_PREMUL_SUM, a) : 0;
    case MOTET_NUM_REDOPS: break;
    }
    return 0;
}

/* What is left, with any operator and perhaps a bias: one loop a type. */
static ALWAYS_INLINE void reduce_rest(motet_type type, const motet_reduce_args *a,
        size_t at)
{
    const reduce_case c = { type, (motet_redop)a->redop, a->bias != NULL };
    const size_t step = vec_elements_bytes(type);
    const size_t end = a->count * element_bytes(type);
    for (; end - at >= step; at += step)
        reduce_vec(c, a, at);
    if (at < end)
        reduce_part(c, a, at, end - at);
}

static ALWAYS_INLINE void reduce_type(motet_type type, const motet_reduce_args *args)
{
    /* A copy that nothing points to: stores to dst cannot alias it. */
    const motet_reduce_args a = *args;
    size_t at = a.bias ? 0 : reduce_bulk(type, &a);
    reduce_rest(type, &a, at);
}

/* Not inlined into the dispatch below, so that no arithmetic of theirs can be moved
 * across fp_enter and fp_leave. */
#define OUTLINE __attribute__((noinline))

static OUTLINE void reduce_int8(const motet_reduce_args *a)
{
    reduce_type(MOTET_INT8, a);
}

static OUTLINE void reduce_uint8(const motet_reduce_args *a)
{
    reduce_type(MOTET_UINT8, a);
}

static OUTLINE void reduce_int32(const motet_reduce_args *a)
{
    reduce_type(MOTET_INT32, a);
}

static OUTLINE void reduce_uint32(const motet_reduce_args *a)
{
    reduce_type(MOTET_UINT32, a);
}

static OUTLINE void reduce_int64(const motet_reduce_args *a)
{
    reduce_type(MOTET_INT64, a);
}

static OUTLINE void reduce_uint64(const motet_reduce_args *a)
{
    reduce_type(MOTET_UINT64, a);
}

static OUTLINE void reduce_float16(const motet_reduce_args *a)
{
    reduce_type(MOTET_FLOAT16, a);
}

static OUTLINE void reduce_float32(const motet_reduce_args *a)
{
    reduce_type(MOTET_FLOAT32, a);
}

static OUTLINE void reduce_float64(const motet_reduce_args *a)
{
    reduce_type(MOTET_FLOAT64, a);
}

static OUTLINE void reduce_bfloat16(const motet_reduce_args *a)
{
    reduce_type(MOTET_BFLOAT16, a);
}

static OUTLINE void reduce_float8e4m3(const motet_reduce_args *a)
{
    reduce_type(MOTET_FLOAT8E4M3, a);
}

static OUTLINE void reduce_float8e5m2(const motet_reduce_args *a)
{
    reduce_type(MOTET_FLOAT8E5M2, a);
}

static const motet_reduce_fn reduce_by_type[MOTET_NUM_TYPES] = {
    [MOTET_INT8] = reduce_int8,
    [MOTET_UINT8] = reduce_uint8,
    [MOTET_INT32] = reduce_int32,
    [MOTET_UINT32] = reduce_uint32,
    [MOTET_INT64] = reduce_int64,
    [MOTET_UINT64] = reduce_uint64,
    [MOTET_FLOAT16] = reduce_float16,
    [MOTET_FLOAT32] = reduce_float32,
    [MOTET_FLOAT64] = reduce_float64,
    [MOTET_BFLOAT16] = reduce_bfloat16,
    [MOTET_FLOAT8E4M3] = reduce_float8e4m3,
    [MOTET_FLOAT8E5M2] = reduce_float8e5m2,
};

/* One source, nothing to compute: the bytes themselves, a NaN's payload included. */
static void copy_single(const motet_reduce_args *a)
{
    size_t bytes = a->count * element_bytes((motet_type)a->type);
    if (bytes == 0)
        return;
    if (a->dst != a->src[0])
        memcpy(a->dst, a->src[0], bytes);
    if (a->dst2)
        memcpy(a->dst2, a->src[0], bytes);
}

static void reduce(const motet_reduce_args *a)
{
    bool computes =
            a->redop == MOTET_AVG || a->redop == MOTET_PREMUL_SUM || a->bias != NULL;
    if (a->nsrc == 1 && !computes) {
        copy_single(a);
        return;
    }
    fp_env env = fp_enter();
    reduce_by_type[as_unsigned((motet_type)a->type, a->redop)](a);
    fp_leave(env);
}

const motet_cpu_kernels MOTET_KERNELS_TABLE = {
    .name = MOTET_KERNELS_NAME,
    .reduce = reduce,
    .copy_streaming = copy_streaming,
};
