/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU kernels against reduce_reference.h. Every set that this CPU runs must give
 * the reference's bits, so that all sets give each other's. */
#include "kernels/reduce.h"

#include "reduce_reference.h"

#include <fenv.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MOST_SOURCES = 8, MOST_COUNT = 4314, MOST_BYTES = 8 };

/* ---- The matrix ----------------------------------------------------------------- */

/* Where each buffer of a call lies: at a line's start; one element further; or with
 * its end at memory that may not be touched, so that a byte read too much is seen. */
typedef enum placing { ALIGNED, MISALIGNED, AT_END } placing;

typedef struct variant {
    const char *name;
    int in_place; /* source that dst is, counted from the last: 1 last; 0 none */
    placing placing;
    bool dst2, bias;
    int more_ranks; /* nranks beyond nsrc */
} variant;

static const variant variants[] = {
    { "out of place", 0, ALIGNED, false, false, 0 },
    { "out of place, misaligned, dst2", 0, MISALIGNED, true, false, 3 },
    { "out of place, at the end, dst2", 0, AT_END, true, false, 1 },
    { "in place of the last", 1, ALIGNED, false, false, 0 },
    { "in place of the first, misaligned", 8, MISALIGNED, false, false, 200 },
    { "in place of the second last, at the end, dst2", 2, AT_END, true, false, 0 },
    { "bias, at the end", 0, AT_END, false, true, 0 },
    { "bias, in place, misaligned, dst2", 1, MISALIGNED, true, true, 0 },
};

enum { GUARD = 128, CANARY = 0xa5 };

/* One buffer of a call, with canaries on both sides, or before it only. */
typedef struct guarded {
    unsigned char *mem; /* guarded_bytes() and a page that may not be touched */
    unsigned char *data;
    size_t bytes;
    placing placing;
} guarded;

static size_t guarded_bytes(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t need = 2 * GUARD + (MOST_COUNT + 1) * MOST_BYTES;
    return (need + page - 1) / page * page;
}

static void guarded_init(guarded *g)
{
    size_t bytes = guarded_bytes();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    g->mem = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g->mem, MAP_FAILED);
    assert_int_equal(mprotect(g->mem + bytes, page, PROT_NONE), 0);
}

static void guarded_release(guarded *g)
{
    munmap(g->mem, guarded_bytes() + (size_t)sysconf(_SC_PAGESIZE));
}

static void place(guarded *g, size_t bytes, size_t element, placing where,
        const void *contents)
{
    g->bytes = bytes;
    g->placing = where;
    g->data = where == AT_END ? g->mem + guarded_bytes() - bytes : g->mem + GUARD;
    if (where == MISALIGNED)
        g->data += element;
    memset(g->data - GUARD, CANARY, GUARD + bytes + (where == AT_END ? 0 : GUARD));
    if (contents)
        memcpy(g->data, contents, bytes);
}

static bool canaries_live(const guarded *g)
{
    for (int i = 1; i <= GUARD; i++)
        if (g->data[-i] != CANARY)
            return false;
    for (int i = 0; i < GUARD && g->placing != AT_END; i++)
        if (g->data[g->bytes + (size_t)i] != CANARY)
            return false;
    return true;
}

/* Everything that one type's calls share. */
typedef struct world {
    int type;
    void *inputs[MOST_SOURCES]; /* MOST_COUNT elements each */
    void *bias_input;
    void *expected;
    uint64_t scalar[MOST_SOURCES];
    guarded src[MOST_SOURCES], dst, dst2, bias;
    long calls;
} world;

static void *new_elements(void)
{
    void *p = malloc((size_t)MOST_COUNT * MOST_BYTES);
    assert_non_null(p);
    return p;
}

static void world_init(world *w, int type)
{
    uint64_t state = 1000u + (uint64_t)type;
    memset(w, 0, sizeof(*w));
    w->type = type;
    w->bias_input = new_elements();
    w->expected = new_elements();
    for (int k = 0; k < MOST_SOURCES; k++) {
        w->inputs[k] = new_elements();
        guarded_init(&w->src[k]);
        w->scalar[k] = moderate_bits(type, next_random(&state)) & element_mask(type);
        for (size_t i = 0; i < MOST_COUNT; i++)
            put(type, w->inputs[k], i, input_bits(type, &state));
    }
    for (size_t i = 0; i < MOST_COUNT; i++)
        put(type, w->bias_input, i, input_bits(type, &state));
    guarded_init(&w->dst);
    guarded_init(&w->dst2);
    guarded_init(&w->bias);
}

static void world_release(world *w)
{
    for (int k = 0; k < MOST_SOURCES; k++) {
        free(w->inputs[k]);
        guarded_release(&w->src[k]);
    }
    free(w->bias_input);
    free(w->expected);
    guarded_release(&w->dst);
    guarded_release(&w->dst2);
    guarded_release(&w->bias);
}

static void fill_expected(world *w, int redop, int nsrc, const variant *v)
{
    for (size_t i = 0; i < MOST_COUNT; i++) {
        uint64_t src[MOST_SOURCES];
        for (int k = 0; k < nsrc; k++)
            src[k] = get(w->type, w->inputs[k], i);
        uint64_t bias = get(w->type, w->bias_input, i);
        element_case c = { w->type, redop, nsrc, nsrc + v->more_ranks, src, w->scalar,
            v->bias ? &bias : NULL };
        put(w->type, w->expected, i, reference(&c));
    }
}

static void fail_case(const world *w, const motet_cpu_kernels *set,
        const motet_reduce_args *a, const variant *v, const char *what)
{
    for (size_t i = 0; i < a->count; i++) {
        uint64_t got = get(w->type, a->dst, i);
        uint64_t want = get(w->type, w->expected, i);
        if (got == want)
            continue;
        print_error("element %zu is %#llx, not %#llx, from", i, (unsigned long long)got,
                (unsigned long long)want);
        for (int k = 0; k < a->nsrc; k++)
            print_error(" %#llx", (unsigned long long)get(w->type, w->inputs[k], i));
        print_error("\n");
        break;
    }
    fail_msg("%s, %s %s, %d sources, count %zu, %s: %s", set->name,
            motet_type_table[w->type].name, motet_redop_names[a->redop], a->nsrc,
            a->count, v->name, what);
}

static void check_call(world *w, const motet_cpu_kernels *set, int redop, int nsrc,
        size_t count, const variant *v)
{
    size_t size = motet_type_table[w->type].bytes;
    size_t bytes = count * size;
    const void *src[MOST_SOURCES];
    for (int k = 0; k < nsrc; k++) {
        place(&w->src[k], bytes, size, v->placing, w->inputs[k]);
        src[k] = w->src[k].data;
    }
    place(&w->dst, bytes, size, v->placing, NULL);
    place(&w->dst2, bytes, size, v->placing, NULL);
    place(&w->bias, bytes, size, v->placing, w->bias_input);
    int in_place = v->in_place == 0 ? -1 : v->in_place > nsrc ? 0 : nsrc - v->in_place;
    const motet_reduce_args a = {
        .dst = in_place < 0 ? w->dst.data : w->src[in_place].data,
        .dst2 = v->dst2 ? w->dst2.data : NULL,
        .src = src,
        .nsrc = nsrc,
        .count = count,
        .type = w->type,
        .redop = redop,
        .nranks = nsrc + v->more_ranks,
        .scalar = redop == MOTET_PREMUL_SUM ? w->scalar : NULL,
        .bias = v->bias ? w->bias.data : NULL,
    };
    set->reduce(&a);
    w->calls++;

    if (memcmp(a.dst, w->expected, bytes) != 0)
        fail_case(w, set, &a, v, "wrong result");
    if (v->dst2 && memcmp(a.dst2, w->expected, bytes) != 0)
        fail_case(w, set, &a, v, "dst2 differs");
    bool intact = canaries_live(&w->dst) && canaries_live(&w->dst2);
    for (int k = 0; k < nsrc; k++) {
        intact = intact && canaries_live(&w->src[k]);
        if (k != in_place && memcmp(src[k], w->inputs[k], bytes) != 0)
            fail_case(w, set, &a, v, "a source was written");
    }
    if (!intact)
        fail_case(w, set, &a, v, "wrote outside the buffer");
}

static void check_type(int type)
{
    static const int nsrcs[] = { 1, 2, 3, 4, 5, 8 };
    static const size_t counts[] = { 0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 1023, 1024,
        MOST_COUNT };
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    world w;
    world_init(&w, type);
    for (int redop = 0; redop < MOTET_NUM_REDOPS; redop++)
        for (size_t n = 0; n < sizeof(nsrcs) / sizeof(nsrcs[0]); n++)
            for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
                fill_expected(&w, redop, nsrcs[n], &variants[v]);
                for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                    for (int s = 0; sets[s]; s++)
                        check_call(&w, sets[s], redop, nsrcs[n], counts[c],
                                &variants[v]);
            }
    print_message("%s: %ld calls\n", motet_type_table[type].name, w.calls);
    world_release(&w);
}

static void test_every_type_op_and_shape_gives_the_reference_bits_on_every_set(
        void **state)
{
    (void)state;
    for (int type = 0; type < MOTET_NUM_TYPES; type++)
        check_type(type);
}

/* ---- Narrow floats, exhaustively -------------------------------------------------- */

static const int narrow_types[] = { MOTET_FLOAT16, MOTET_BFLOAT16, MOTET_FLOAT8E4M3,
    MOTET_FLOAT8E5M2 };

static void test_every_narrow_float_widens_and_narrows_to_itself(void **state)
{
    (void)state;
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    uint8_t *in = malloc(65536 * 2), *out = malloc(65536 * 2);
    assert_non_null(in);
    assert_non_null(out);
    for (size_t t = 0; t < 4; t++) {
        int type = narrow_types[t];
        size_t codes = motet_type_table[type].bytes == 1 ? 256 : 65536;
        for (size_t i = 0; i < codes; i++)
            put(type, in, i, i);
        for (int s = 0; sets[s]; s++) {
            const void *src[] = { in };
            /* The mean of one: times 1, which is the two conversions and no more. */
            sets[s]->reduce(&(motet_reduce_args){ .dst = out,
                    .src = src,
                    .nsrc = 1,
                    .count = codes,
                    .type = type,
                    .redop = MOTET_AVG,
                    .nranks = 1 });
            for (size_t i = 0; i < codes; i++) {
                bool nan = isnan(decode(type, (uint32_t)i));
                uint64_t want = nan ? encode(type, (double)NAN) : i;
                if (get(type, out, i) != want)
                    fail_msg("%s: %s %#zx became %#llx", sets[s]->name,
                            motet_type_table[type].name, i,
                            (unsigned long long)get(type, out, i));
            }
        }
    }
    free(in);
    free(out);
}

static void check_fp8_pairs(const motet_cpu_kernels *set, int type, int redop)
{
    enum { PAIRS = 65536 };
    uint8_t *a = malloc(PAIRS), *b = malloc(PAIRS), *out = malloc(PAIRS);
    assert_true(a && b && out);
    for (int i = 0; i < PAIRS; i++) {
        a[i] = (uint8_t)(i >> 8);
        b[i] = (uint8_t)i;
    }
    const void *src[] = { a, b };
    set->reduce(&(motet_reduce_args){ .dst = out,
            .src = src,
            .nsrc = 2,
            .count = PAIRS,
            .type = type,
            .redop = redop,
            .nranks = 2 });
    for (int i = 0; i < PAIRS; i++) {
        uint64_t bits[] = { a[i], b[i] };
        element_case c = { type, redop, 2, 2, bits, NULL, NULL };
        if (out[i] != reference(&c))
            fail_msg("%s: %s %s of %#x and %#x is %#x, not %#x", set->name,
                    motet_type_table[type].name, motet_redop_names[redop], a[i], b[i],
                    out[i], (unsigned)reference(&c));
    }
    free(a);
    free(b);
    free(out);
}

static void test_every_pair_of_fp8_combines_with_one_rounding(void **state)
{
    (void)state;
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    for (int s = 0; sets[s]; s++)
        for (int redop = MOTET_SUM; redop <= MOTET_AVG; redop++) {
            check_fp8_pairs(sets[s], MOTET_FLOAT8E4M3, redop);
            check_fp8_pairs(sets[s], MOTET_FLOAT8E5M2, redop);
        }
}

/* ---- Cases worth a name ------------------------------------------------------------ */

typedef struct named_case {
    const char *name;
    int type, redop, nranks, nsrc;
    uint64_t src[3];
    uint64_t want;
} named_case;

static const named_case named_cases[] = {
    { "half: 65504 + 15 stays", MOTET_FLOAT16, MOTET_SUM, 2, 2, { 0x7bff, 0x4b80 },
            0x7bff },
    { "half: 65504 + 16 is inf", MOTET_FLOAT16, MOTET_SUM, 2, 2, { 0x7bff, 0x4c00 },
            0x7c00 },
    { "half: one rounding, not two", MOTET_FLOAT16, MOTET_SUM, 3, 3,
            { 0x6800, 0x3c00, 0x3c00 }, 0x6801 },
    { "half: denormals add", MOTET_FLOAT16, MOTET_SUM, 2, 2, { 0x0001, 0x0001 },
            0x0002 },
    { "half: inf - inf is the quiet NaN", MOTET_FLOAT16, MOTET_SUM, 2, 2,
            { 0x7c00, 0xfc00 }, 0x7e00 },
    { "bf16: ties to even, down", MOTET_BFLOAT16, MOTET_SUM, 2, 2, { 0x3f80, 0x3b80 },
            0x3f80 },
    { "bf16: ties to even, up", MOTET_BFLOAT16, MOTET_SUM, 2, 2, { 0x3f81, 0x3b80 },
            0x3f82 },
    { "bf16: denormals add", MOTET_BFLOAT16, MOTET_SUM, 2, 2, { 0x0001, 0x8003 },
            0x8002 },
    { "bf16: overflow is inf", MOTET_BFLOAT16, MOTET_SUM, 2, 2, { 0x7f7f, 0x7f7f },
            0x7f80 },
    { "e4m3: 448 + 16 ties to 448", MOTET_FLOAT8E4M3, MOTET_SUM, 2, 2, { 0x7e, 0x58 },
            0x7e },
    { "e4m3: 448 + 18 is NaN, not 448", MOTET_FLOAT8E4M3, MOTET_SUM, 2, 2,
            { 0x7e, 0x59 }, 0x7f },
    { "e4m3: -448 - 448 is -NaN", MOTET_FLOAT8E4M3, MOTET_SUM, 2, 2, { 0xfe, 0xfe },
            0xff },
    { "e4m3: the mean of 448 and 448 is 448", MOTET_FLOAT8E4M3, MOTET_AVG, 2, 2,
            { 0x7e, 0x7e }, 0x7e },
    { "e5m2: overflow is inf", MOTET_FLOAT8E5M2, MOTET_SUM, 2, 2, { 0xfb, 0xfb },
            0xfc },
    { "float: NaN loses to the right", MOTET_FLOAT32, MOTET_MAX, 2, 2,
            { 0x7fc00001, 0xc0000000 }, 0xc0000000 },
    { "float: NaN loses to the left", MOTET_FLOAT32, MOTET_MIN, 2, 2,
            { 0xc0000000, 0xffc00001 }, 0xc0000000 },
    { "float: two NaN give NaN", MOTET_FLOAT32, MOTET_MAX, 2, 2,
            { 0x7fc00001, 0x7fc00002 }, 0x7fc00001 },
    { "double: NaN loses between numbers", MOTET_FLOAT64, MOTET_MAX, 3, 3,
            { 0x3ff0000000000000, 0x7ff8000000000000, 0x3fe0000000000000 },
            0x3ff0000000000000 },
    { "half: NaN loses", MOTET_FLOAT16, MOTET_MIN, 2, 2, { 0x7e00, 0x3c00 }, 0x3c00 },
    { "e4m3: NaN loses", MOTET_FLOAT8E4M3, MOTET_MAX, 2, 2, { 0xff, 0xb8 }, 0xb8 },
    { "float: order is the sources'", MOTET_FLOAT32, MOTET_SUM, 3, 3,
            { 0x4b800000, 0x3f800000, 0x3f800000 }, 0x4b800000 },
    { "int8: wraps", MOTET_INT8, MOTET_SUM, 2, 2, { 127, 1 }, 0x80 },
    { "int8: -7 / 2 is -3", MOTET_INT8, MOTET_AVG, 2, 2, { 0xfb, 0xfe }, 0xfd },
    { "int8: 100 / 200 is 0", MOTET_INT8, MOTET_AVG, 200, 2, { 50, 50 }, 0 },
    { "uint8: 254 / 2", MOTET_UINT8, MOTET_AVG, 2, 2, { 127, 127 }, 127 },
    { "int32: -1 is less", MOTET_INT32, MOTET_MIN, 2, 2, { 0xffffffff, 1 },
            0xffffffff },
    { "uint32: 2^32 - 1 is more", MOTET_UINT32, MOTET_MAX, 2, 2, { 0xffffffff, 1 },
            0xffffffff },
    { "uint32: (2^32 - 1) / 3", MOTET_UINT32, MOTET_AVG, 3, 2, { 0xfffffffe, 1 },
            0x55555555 },
    { "int32: (2^31 - 1) / 7", MOTET_INT32, MOTET_AVG, 7, 2, { 0x7ffffffe, 1 },
            0x12492492 },
    { "int64: -2^63 / 3", MOTET_INT64, MOTET_AVG, 3, 2, { 0x8000000000000000, 0 },
            0xd555555555555556 },
    { "uint64: product wraps", MOTET_UINT64, MOTET_PROD, 2, 2,
            { 0x100000001, 0x100000001 }, 0x200000001 },
};

static void test_named_cases(void **state)
{
    (void)state;
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    for (size_t n = 0; n < sizeof(named_cases) / sizeof(named_cases[0]); n++)
        for (int s = 0; sets[s]; s++) {
            const named_case *c = &named_cases[n];
            uint64_t in[3] = { 0 }, out = 0;
            const void *src[3];
            for (int k = 0; k < c->nsrc; k++) {
                put(c->type, &in[k], 0, c->src[k]);
                src[k] = &in[k];
            }
            sets[s]->reduce(&(motet_reduce_args){ .dst = &out,
                    .src = src,
                    .nsrc = c->nsrc,
                    .count = 1,
                    .type = c->type,
                    .redop = c->redop,
                    .nranks = c->nranks });
            if (get(c->type, &out, 0) != c->want)
                fail_msg("%s: %s: got %#llx, not %#llx", sets[s]->name, c->name,
                        (unsigned long long)get(c->type, &out, 0),
                        (unsigned long long)c->want);
        }
}

static void test_the_most_sources_are_all_added_in_order(void **state)
{
    (void)state;
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    float in[MOTET_REDUCE_MAX][33], out[33], want[33];
    const void *src[MOTET_REDUCE_MAX];
    uint64_t random = 7;
    for (int i = 0; i < 33; i++)
        want[i] = -0.0f;
    for (int k = 0; k < MOTET_REDUCE_MAX; k++) {
        src[k] = in[k];
        for (int i = 0; i < 33; i++) {
            in[k][i] = float_of(moderate_bits(MOTET_FLOAT32, next_random(&random)));
            want[i] += in[k][i];
        }
    }
    for (int s = 0; sets[s]; s++) {
        sets[s]->reduce(&(motet_reduce_args){ .dst = out,
                .src = src,
                .nsrc = MOTET_REDUCE_MAX,
                .count = 33,
                .type = MOTET_FLOAT32,
                .redop = MOTET_SUM,
                .nranks = MOTET_REDUCE_MAX });
        assert_memory_equal(out, want, sizeof(want));
    }
}

/* ---- The caller's floating-point controls ------------------------------------------ */

typedef struct fp_setting {
    const char *name;
    bool flush; /* denormal results to zero, and denormal operands taken as zero */
    int rounding;
} fp_setting;

static const fp_setting fp_settings[] = {
    { "flush to zero, denormals are zero", true, FE_TONEAREST },
    { "round up", false, FE_UPWARD },
    { "round toward zero, both flushes", true, FE_TOWARDZERO },
};

#if defined(__x86_64__)

static void set_flush(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}

static bool flushes(void)
{
    return (_mm_getcsr() & 0x8040) == 0x8040;
}

#elif defined(__aarch64__)

enum { FPCR_FZ = 1 << 24 };

static bool flushes(void)
{
    uint64_t fpcr;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(fpcr));
    return (fpcr & FPCR_FZ) != 0;
}

static void set_flush(void)
{
    uint64_t fpcr;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(fpcr | FPCR_FZ) : "memory");
}

#else

static void set_flush(void)
{
}

static bool flushes(void)
{
    return true;
}

#endif

static void enter_setting(const fp_setting *f)
{
    fesetround(f->rounding);
    if (f->flush)
        set_flush();
}

static bool setting_lives(const fp_setting *f)
{
    return fegetround() == f->rounding && (!f->flush || flushes());
}

static void check_fp_setting(const fp_setting *f, int type, int redop)
{
    static const variant plain = { "floating-point controls", 0, false, false, false,
        0 };
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    world w;
    world_init(&w, type);
    fill_expected(&w, redop, 3, &plain);
    fenv_t before;
    for (int s = 0; sets[s]; s++) {
        const void *src[] = { w.inputs[0], w.inputs[1], w.inputs[2] };
        const motet_reduce_args a = { .dst = w.dst.mem,
            .src = src,
            .nsrc = 3,
            .count = MOST_COUNT,
            .type = type,
            .redop = redop,
            .nranks = 3,
            .scalar = w.scalar };
        fegetenv(&before);
        enter_setting(f);
        sets[s]->reduce(&a);
        bool lives = setting_lives(f);
        fesetenv(&before);
        assert_true(lives);
        if (memcmp(a.dst, w.expected, MOST_COUNT * motet_type_table[type].bytes) != 0)
            fail_case(&w, sets[s], &a, &plain, f->name);
    }
    world_release(&w);
}

static void test_the_callers_floating_point_controls_change_no_bit_and_return(
        void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof(fp_settings) / sizeof(fp_settings[0]); f++)
        for (int type = 0; type < MOTET_NUM_TYPES; type++) {
            check_fp_setting(&fp_settings[f], type, MOTET_SUM);
            check_fp_setting(&fp_settings[f], type, MOTET_MAX);
            check_fp_setting(&fp_settings[f], type, MOTET_AVG);
            check_fp_setting(&fp_settings[f], type, MOTET_PREMUL_SUM);
        }
}

/* ---- Choosing a set ------------------------------------------------------------------ */

static bool cpuinfo_has(const char *flag)
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "re");
    assert_non_null(f);
    while (!found && getline(&line, &room, f) > 0) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        char *rest = NULL;
        for (char *word = strtok_r(line, " \t\n", &rest); word && !found;
                word = strtok_r(NULL, " \t\n", &rest))
            found = strcmp(word, flag) == 0;
        break;
    }
    free(line);
    fclose(f);
    return found;
}

static bool cpuinfo_has_all(const char *const *flags)
{
    while (*flags && cpuinfo_has(*flags))
        flags++;
    return *flags == NULL;
}

static void test_the_set_is_the_widest_that_the_kernel_reports(void **state)
{
    (void)state;
    static const char *const avx2[] = { "avx2", "f16c", "fma", NULL };
    static const char *const avx512[] = { "avx512f", "avx512bw", "avx512vl", "avx512dq",
        NULL };
    const char *want = "baseline";
#ifndef __x86_64__
    skip(); /* and under an emulator /proc/cpuinfo is about another machine */
#endif
    if (cpuinfo_has_all(avx2))
        want = cpuinfo_has_all(avx512) ? "avx512" : "avx2";
    assert_string_equal(motet_cpu_kernels_best()->name, want);
}

static void *ask_best(void *out)
{
    *(const motet_cpu_kernels **)out = motet_cpu_kernels_best();
    return NULL;
}

static void test_all_threads_get_the_first_of_the_list_which_ends_with_baseline(
        void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    const motet_cpu_kernels *best[THREADS];
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, ask_best, &best[t]), 0);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    for (int t = 0; t < THREADS; t++)
        assert_ptr_equal(best[t], sets[0]);
    int last = 0;
    while (sets[last + 1])
        last++;
    assert_string_equal(sets[last]->name, "baseline");
    print_message("best set: %s, of %d\n", sets[0]->name, last + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first, so that the choice itself is made by racing threads */
        cmocka_unit_test(
                test_all_threads_get_the_first_of_the_list_which_ends_with_baseline),
        cmocka_unit_test(test_the_set_is_the_widest_that_the_kernel_reports),
        cmocka_unit_test(test_named_cases),
        cmocka_unit_test(test_every_narrow_float_widens_and_narrows_to_itself),
        cmocka_unit_test(test_every_pair_of_fp8_combines_with_one_rounding),
        cmocka_unit_test(test_the_most_sources_are_all_added_in_order),
        cmocka_unit_test(
                test_the_callers_floating_point_controls_change_no_bit_and_return),
        cmocka_unit_test(
                test_every_type_op_and_shape_gives_the_reference_bits_on_every_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
