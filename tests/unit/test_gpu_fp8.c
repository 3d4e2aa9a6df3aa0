/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp8 in the kernels for GPUs, OCP and FNUZ: every code, and every pair of codes under
 * every operator, against doubles, which hold sums and products of two codes exactly.
 * Ranks that have not the same numbers reduce none.
 */
#include "comm/comm.h"
#include "kernels/gpu/types.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct format {
    const char *name;
    int type;
    bool fnuz;
    int man_bits, bias;
    uint32_t largest;       /* code of the largest number             */
    uint32_t beyond;        /* what a sum that is too large becomes   */
    uint32_t beyond_signed; /* the same, of a negative sum            */
    uint32_t nan;
    double limit; /* the largest number, as published       */
} format;

static const format formats[] = {
    { "e4m3", MOTET_FLOAT8E4M3, false, 3, 7, 0x7e, 0x7f, 0xff, 0x7f, 448 },
    { "e5m2", MOTET_FLOAT8E5M2, false, 2, 15, 0x7b, 0x7c, 0xfc, 0x7e, 57344 },
    { "e4m3fnuz", MOTET_FLOAT8E4M3, true, 3, 8, 0x7f, 0x80, 0x80, 0x80, 240 },
    { "e5m2fnuz", MOTET_FLOAT8E5M2, true, 2, 16, 0x7f, 0x80, 0x80, 0x80, 57344 },
};

static double decode(const format *f, uint32_t code)
{
    uint32_t magnitude = code & 0x7f, man = magnitude & ((1u << f->man_bits) - 1);
    int exp = (int)(magnitude >> f->man_bits);
    double value = exp == 0
            ? ldexp(man, 1 - f->bias - f->man_bits)
            : ldexp(man | (1u << f->man_bits), exp - f->bias - f->man_bits);

    if (f->fnuz && code == 0x80)
        return (double)NAN;
    if (magnitude > f->largest)
        value = f->type == MOTET_FLOAT8E5M2 && man == 0 ? (double)INFINITY
                                                        : (double)NAN;
    return code >> 7 ? -value : value;
}

/* The nearest code, of two that are as near the even one, by looking at all of them. */
static uint32_t encode(const format *f, double x)
{
    double most = decode(f, f->largest), last = most - decode(f, f->largest - 1);
    bool negative = signbit(x) != 0;
    uint32_t code = 0;

    if (isnan(x))
        return f->nan;
    x = fabs(x);
    while (code < f->largest && decode(f, code + 1) <= x)
        code++;
    double below = decode(f, code),
           above = code < f->largest ? decode(f, code + 1) : most + last;
    if (x - below > above - x || (x - below == above - x && code % 2 != 0))
        code++;
    if (code > f->largest || isinf(x))
        return negative ? f->beyond_signed : f->beyond;
    return negative && !(f->fnuz && code == 0) ? code | 0x80 : code;
}

static double apply(uint32_t op, double a, double b)
{
    switch (op) {
    case MOTET_SUM: return a + b;
    case MOTET_PROD: return a * b;
    case MOTET_AVG: return (a + b) / 2;
    case MOTET_MAX: return isnan(b) || a > b ? a : b;
    default: return isnan(b) || a < b ? a : b;
    }
}

/* One element of a pack, the others being something else. */
static uint32_t computed(const format *f, uint32_t op, uint32_t a, uint32_t b,
        uint32_t place)
{
    uint64_t other = 0x3839383938393839u, mask = 0xffull << (8 * place);
    wide x = widen(f->type, bits_of_pack((other & ~mask) | (uint64_t)a << (8 * place)),
            1);
    wide y = widen(f->type, bits_of_pack((other & ~mask) | (uint64_t)b << (8 * place)),
            1);

    combine(f->type, op, &x, &y);
    return (uint32_t)(finish_pack(f->type, op, 2, &x, false, 0) >> (8 * place)) & 0xff;
}

static void test_every_code_is_the_number_it_stands_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        const format *f = &formats[i];

        motet_gpu_host_fp8_fnuz = f->fnuz;
        assert_true(decode(f, f->largest) == f->limit);
        for (uint32_t code = 0; code < 256; code++) {
            double want = decode(f, code);
            double got = (double)float_of_bits(widen_byte(f->type, code));

            if (isnan(want) ? !isnan(got)
                            : got != want || !signbit(got) != !signbit(want))
                fail_msg("%s 0x%02x is %g, not %g", f->name, code, got, want);
            if (narrow_to_byte(f->type, bits_of_float((float)want)) != encode(f, want))
                fail_msg("%s: %g becomes 0x%02x, not 0x%02x", f->name, want,
                        narrow_to_byte(f->type, bits_of_float((float)want)),
                        encode(f, want));
        }
    }
}

/* The middle of two codes, and the floats next to it. */
static void test_numbers_between_codes_go_to_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        const format *f = &formats[i];

        motet_gpu_host_fp8_fnuz = f->fnuz;
        for (uint32_t code = 0; code <= f->largest; code++) {
            double low = decode(f, code),
                   high = code < f->largest ? decode(f, code + 1)
                                            : 2 * low - decode(f, code - 1);
            float middle = (float)((low + high) / 2);
            const float tried[] = { middle, nextafterf(middle, 0),
                nextafterf(middle, 1e6f), -middle, nextafterf(-middle, 0),
                nextafterf(-middle, -1e6f) };

            for (size_t t = 0; t < sizeof(tried) / sizeof(*tried); t++) {
                uint32_t got = narrow_to_byte(f->type, bits_of_float(tried[t]));

                if (got != encode(f, (double)tried[t]))
                    fail_msg("%s: %.9g becomes 0x%02x, not 0x%02x", f->name,
                            (double)tried[t], got, encode(f, (double)tried[t]));
            }
        }
    }
}

static void test_every_pair_combines_with_one_rounding(void **state)
{
    static const uint32_t ops[] = { MOTET_SUM, MOTET_PROD, MOTET_AVG, MOTET_MAX,
        MOTET_MIN };

    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        const format *f = &formats[i];

        motet_gpu_host_fp8_fnuz = f->fnuz;
        for (uint32_t pair = 0; pair < 65536 * 5; pair++) {
            uint32_t a = pair & 0xff, b = pair >> 8 & 0xff, op = ops[pair >> 16];
            uint32_t want = encode(f, apply(op, decode(f, a), decode(f, b)));
            uint32_t got = computed(f, op, a, b, pair % 8);

            if (got != want)
                fail_msg("%s: %s of 0x%02x and 0x%02x is 0x%02x, not 0x%02x", f->name,
                        motet_redop_names[op], a, b, got, want);
        }
    }
}

/* Two cards that differ; two of one kind; the same without kernels; no card. */
static void test_ranks_of_two_formats_reduce_no_fp8(void **state)
{
    motet_gpu_engine *engine = (motet_gpu_engine *)&state;
    const struct {
        motet_comm comm;
        const char *says; /* NULL: it may */
    } cases[] = {
        { { .gpu = engine, .fp8_odd = 3 },
                "OCP on this rank's device and FNUZ on rank 2's" },
        { { .gpu = engine, .fp8_fnuz = true, .fp8_odd = 1 },
                "FNUZ on this rank's device and OCP on rank 0's" },
        { { .fp8_odd = 2 }, "OCP on this rank's device and FNUZ on rank 1's" },
        { { .gpu = engine, .fp8_fnuz = true }, NULL },
        { { .gpu = engine }, NULL },
        { { .fp8_fnuz = true }, "the copy path" },
        { { .gpu = NULL }, NULL },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (int type = 0; type < MOTET_NUM_TYPES; type++) {
            bool fp8 = type == MOTET_FLOAT8E4M3 || type == MOTET_FLOAT8E5M2;
            motet_op op = { .kind = MOTET_ALL_REDUCE, .type = (motet_type)type };

            if (fp8 && cases[i].says != NULL) {
                assert_int_equal(motet_comm_check_fp8(&cases[i].comm, &op),
                        MOTET_ERR_USAGE);
                assert_non_null(strstr(motet_error_trail(), cases[i].says));
                assert_non_null(strstr(motet_error_trail(), "AllReduce : "));
            } else {
                assert_int_equal(motet_comm_check_fp8(&cases[i].comm, &op), MOTET_OK);
            }
            op.kind = MOTET_ALL_GATHER; /* moves bytes */
            assert_int_equal(motet_comm_check_fp8(&cases[i].comm, &op), MOTET_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_is_the_number_it_stands_for),
        cmocka_unit_test(test_numbers_between_codes_go_to_the_nearest),
        cmocka_unit_test(test_every_pair_combines_with_one_rounding),
        cmocka_unit_test(test_ranks_of_two_formats_reduce_no_fp8),
    };

    return cmocka_run_group_tests_name("fp8 on GPUs", tests, NULL, NULL);
}
