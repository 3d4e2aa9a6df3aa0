/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that smoke and bench check with: a check that accepts everything, or
 * refuses what is right, proves nothing. So results made here by other arithmetic are
 * accepted, and any small change to them is found.
 */
#include "check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 3000

static const int rank_counts[] = { 1, 2, 3, 8, 64 };

static struct check check_of(int type, int redop, int nranks)
{
    return (struct check){ .type = (motet_type)type,
        .redop = (motet_redop)redop,
        .nranks = nranks,
        .seed = 3 };
}

static void test_inputs_come_back_and_other_ranks_inputs_do_not(void **state)
{
    unsigned char *buf = malloc(COUNT * 8);

    (void)state;
    for (int type = 0; type < MOTET_NUM_TYPES; type++) {
        struct check c = check_of(type, MOTET_SUM, 4);

        check_fill(&c, buf, COUNT, 2, 100);
        assert_int_equal(check_moved(&c, buf, COUNT, 2, 100), 0);
        assert_true(check_moved(&c, buf, COUNT, 1, 100) > COUNT / 4);
        assert_true(check_moved(&c, buf, COUNT, 2, 101) > COUNT / 4);
    }
    free(buf);
}

static void test_one_flipped_bit_is_found_in_every_type(void **state)
{
    unsigned char *buf = malloc(COUNT * 8);

    (void)state;
    for (int type = 0; type < MOTET_NUM_TYPES; type++) {
        struct check c = check_of(type, MOTET_SUM, 4);
        size_t bytes = motet_type_table[type].bytes;

        check_fill(&c, buf, COUNT, 2, 0);
        buf[1234 * bytes] ^= 1;
        assert_int_equal(check_moved(&c, buf, COUNT, 2, 0), 1);
    }
    free(buf);
}

/* ------------------------------------------------ a reduction by other arithmetic */

static double decode(int type, const unsigned char *p)
{
    float f;
    double d;
    uint16_t h;
    uint32_t w;

    switch (type) {
    case MOTET_FLOAT32: memcpy(&f, p, 4); return (double)f;
    case MOTET_FLOAT64: memcpy(&d, p, 8); return d;
    case MOTET_BFLOAT16:
        memcpy(&h, p, 2);
        w = (uint32_t)h << 16;
        memcpy(&f, &w, 4);
        return (double)f;
    default: fail_msg("no decoder for type %d", type); return 0;
    }
}

static void encode(int type, double value, unsigned char *p)
{
    float f = (float)value;
    uint32_t w;

    if (type == MOTET_FLOAT64)
        memcpy(p, &value, 8);
    else if (type == MOTET_FLOAT32)
        memcpy(p, &f, 4);
    else {
        memcpy(&w, &f, 4);
        w += 0x7fff + ((w >> 16) & 1); /* to nearest, ties to even */
        w >>= 16;
        memcpy(p, &w, 2);
    }
}

static double combine(int redop, double a, double b)
{
    switch (redop) {
    case MOTET_PROD: return a * b;
    case MOTET_MAX: return fmax(a, b);
    case MOTET_MIN: return fmin(a, b);
    default: return a + b;
    }
}

/* In rank order, accumulating in @p accumulate's type, into @p out. */
static void reduce(const struct check *c, unsigned char *out)
{
    size_t bytes = motet_type_table[c->type].bytes;
    unsigned char *in = malloc(COUNT * bytes);
    double *sum = calloc(COUNT, sizeof(*sum));

    for (int r = 0; r < c->nranks; r++) {
        check_fill(c, in, COUNT, r, 7);
        for (size_t i = 0; i < COUNT; i++) {
            double x = decode((int)c->type, in + i * bytes);

            if (c->redop == MOTET_PREMUL_SUM)
                x *= check_scalar(r);
            sum[i] = r == 0 ? x : combine((int)c->redop, sum[i], x);
            if (c->type != MOTET_FLOAT64)
                sum[i] = (double)(float)sum[i];
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        encode((int)c->type, c->redop == MOTET_AVG ? sum[i] / c->nranks : sum[i],
                out + i * bytes);
    free(in);
    free(sum);
}

static void test_a_right_reduction_is_accepted_and_a_step_beside_it_is_not(void **state)
{
    static const int types[] = { MOTET_FLOAT32, MOTET_FLOAT64, MOTET_BFLOAT16 };
    unsigned char *out = malloc(COUNT * 8);

    (void)state;
    for (size_t t = 0; t < 3; t++)
        for (int redop = 0; redop < MOTET_NUM_REDOPS; redop++)
            for (size_t n = 0; n < sizeof(rank_counts) / sizeof(*rank_counts); n++) {
                struct check c = check_of(types[t], redop, rank_counts[n]);
                size_t at = 1500 * motet_type_table[types[t]].bytes;
                size_t wrong;

                reduce(&c, out);
                wrong = check_reduced(&c, out, COUNT, 7);
                if (wrong != 0)
                    fail_msg("%zu of %s %s over %d ranks refused", wrong,
                            motet_type_table[types[t]].name, motet_redop_names[redop],
                            c.nranks);
                /* the exponent's lowest bit doubles or halves it */
                out[at + motet_type_table[types[t]].bytes - 1] ^= 1;
                assert_int_equal(check_reduced(&c, out, COUNT, 7), 1);
            }
    free(out);
}

/* The same with integers: modulo the width, in 64 bits. */
static void test_integer_reductions_are_exact_in_every_width(void **state)
{
    static const int types[] = { MOTET_INT8, MOTET_UINT8, MOTET_INT32, MOTET_UINT32,
        MOTET_INT64, MOTET_UINT64 };
    unsigned char *out = malloc(COUNT * 8), *in = malloc(COUNT * 8);

    (void)state;
    for (size_t t = 0; t < 6; t++) {
        struct check c = check_of(types[t], MOTET_SUM, 3);
        size_t bytes = motet_type_table[types[t]].bytes;

        memset(out, 0, COUNT * 8);
        for (int r = 0; r < 3; r++) {
            check_fill(&c, in, COUNT, r, 7);
            for (size_t i = 0; i < COUNT; i++) {
                uint64_t a = 0, b = 0;

                memcpy(&a, out + i * bytes, bytes);
                memcpy(&b, in + i * bytes, bytes);
                a += b;
                memcpy(out + i * bytes, &a, bytes);
            }
        }
        assert_int_equal(check_reduced(&c, out, COUNT, 7), 0);
        out[99 * bytes] = (unsigned char)(out[99 * bytes] + 1);
        assert_int_equal(check_reduced(&c, out, COUNT, 7), 1);
    }
    free(out);
    free(in);
}

static void test_a_nan_is_never_right(void **state)
{
    struct check c = check_of(MOTET_FLOAT32, MOTET_SUM, 2);
    float out[16];

    (void)state;
    for (size_t i = 0; i < 16; i++)
        out[i] = NAN;
    assert_int_equal(check_reduced(&c, out, 16, 0), 16);
}

static void test_fp8_and_half_follow_their_published_codes(void **state)
{
    static const struct {
        int type;
        double value;
        unsigned code;
    } cases[] = {
        { MOTET_FLOAT16, 1, 0x3c00 },
        { MOTET_FLOAT16, -2, 0xc000 },
        { MOTET_FLOAT16, 65504, 0x7bff },
        { MOTET_FLOAT16, 5.9604644775390625e-8, 1 },
        { MOTET_BFLOAT16, 1, 0x3f80 },
        { MOTET_BFLOAT16, -0.5, 0xbf00 },
        { MOTET_FLOAT8E4M3, 1, 0x38 },
        { MOTET_FLOAT8E4M3, 448, 0x7e },
        { MOTET_FLOAT8E4M3, 0.001953125, 0x01 },
        { MOTET_FLOAT8E5M2, 1, 0x3c },
        { MOTET_FLOAT8E5M2, -57344, 0xfb },
        { MOTET_FLOAT8E5M2, 1.52587890625e-5, 0x01 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint16_t code = 0;

        check_encode((motet_type)cases[i].type, cases[i].value, &code);
        assert_int_equal(code, cases[i].code);
    }
}

static void test_digests_tell_buffers_apart(void **state)
{
    unsigned char a[100] = { 0 }, b[100] = { 0 };

    (void)state;
    assert_true(check_digest(a, 100) == check_digest(b, 100));
    for (size_t i = 0; i < sizeof(b); i++) {
        b[i] = 1;
        assert_true(check_digest(a, 100) != check_digest(b, 100));
        b[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_come_back_and_other_ranks_inputs_do_not),
        cmocka_unit_test(test_one_flipped_bit_is_found_in_every_type),
        cmocka_unit_test(
                test_a_right_reduction_is_accepted_and_a_step_beside_it_is_not),
        cmocka_unit_test(test_integer_reductions_are_exact_in_every_width),
        cmocka_unit_test(test_a_nan_is_never_right),
        cmocka_unit_test(test_fp8_and_half_follow_their_published_codes),
        cmocka_unit_test(test_digests_tell_buffers_apart),
    };

    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
