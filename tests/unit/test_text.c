/* SPDX-License-Identifier: Apache-2.0 */
/* What people type: numbers, sizes, and names that are nearly right. */
#include "text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_numbers_are_whole_and_in_range_or_refused(void **state)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        { "7", true, 7 },
        { "-3", true, -3 },
        { "0x10", true, 16 },
        { "100", true, 100 },
        { "101", false, 0 },
        { "-11", false, 0 },
        { "", false, 0 },
        { "7x", false, 0 },
        { " 7", false, 0 },
        { "x", false, 0 },
        { "99999999999999999999", false, 0 },
        { NULL, false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t value = 12345;

        assert_int_equal(text_to_int(cases[i].text, -10, 100, &value), cases[i].good);
        assert_int_equal(value, cases[i].good ? cases[i].value : 12345);
    }
}

static void test_sizes_have_units_by_1024(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t value;
    } cases[] = {
        { "8", true, 8 },
        { "4K", true, 4096 },
        { "1m", true, 1 << 20 },
        { "1.5G", true, 3ull << 29 },
        { "2MiB", true, 2 << 20 },
        { "64kb", true, 65536 },
        { "4294967296", true, 1ull << 32 },
        { "", false, 0 },
        { "K", false, 0 },
        { "-1", false, 0 },
        { "4X", false, 0 },
        { "4KK", false, 0 },
        { "1e40", false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t value = 0;

        if (text_to_bytes(cases[i].text, &value) != cases[i].good)
            fail_msg("'%s' should be %s", cases[i].text,
                    cases[i].good ? "taken" : "refused");
        assert_int_equal(value, cases[i].value);
    }
}

static void test_sizes_read_as_people_write_them(void **state)
{
    char buf[32];

    (void)state;
    assert_string_equal(text_from_bytes(7, buf, sizeof(buf)), "7 B");
    assert_string_equal(text_from_bytes(4096, buf, sizeof(buf)), "4 KB");
    assert_string_equal(text_from_bytes(512 * 1024, buf, sizeof(buf)), "512 KB");
    assert_string_equal(text_from_bytes(3ull << 29, buf, sizeof(buf)), "1.5 GB");
}

static const char *const names[] = { "run", "smoke", "bench", "status", "params" };

static const char *name_at(size_t i, void *arg)
{
    (void)arg;
    return names[i];
}

static void test_the_nearest_name_is_offered_and_a_far_one_is_not(void **state)
{
    static const struct {
        const char *typed, *wanted;
    } cases[] = {
        { "smok", "smoke" },
        { "stauts", "status" },
        { "param", "params" },
        { "bnech", "bench" },
        { "rn", "run" },
        { "zzzzzz", NULL },
        { "probe", NULL },
    };
    char endless[200];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *got = text_nearest(cases[i].typed, name_at, NULL, 5);

        if (cases[i].wanted == NULL)
            assert_null(got);
        else
            assert_string_equal(got == NULL ? "(none)" : got, cases[i].wanted);
    }
    memset(endless, 'r', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = 0;
    assert_null(text_nearest(endless, name_at, NULL, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_whole_and_in_range_or_refused),
        cmocka_unit_test(test_sizes_have_units_by_1024),
        cmocka_unit_test(test_sizes_read_as_people_write_them),
        cmocka_unit_test(test_the_nearest_name_is_offered_and_a_far_one_is_not),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
