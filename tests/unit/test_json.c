/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: exact text, since other programs read it. */
#include "json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the calls in @p fill write. */
static char *written(void (*fill)(struct json *j), bool *good)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    struct json j;

    assert_non_null(out);
    json_start(&j, out);
    fill(&j);
    *good = json_finish(&j);
    fclose(out);
    return text;
}

static void expect(void (*fill)(struct json *j), const char *wanted)
{
    bool good;
    char *text = written(fill, &good);

    assert_true(good);
    assert_string_equal(text, wanted);
    free(text);
}

static void fill_nested(struct json *j)
{
    json_object(j, NULL);
    json_int(j, "a", -1);
    json_array(j, "b");
    json_uint(j, NULL, UINT64_MAX);
    json_bool(j, NULL, false);
    json_end(j);
    json_object(j, "empty");
    json_end(j);
    json_null(j, "n");
}

static void test_commas_and_levels_come_by_themselves(void **state)
{
    (void)state;
    expect(fill_nested,
            "{\n  \"a\": -1,\n  \"b\": [\n    18446744073709551615,\n"
            "    false\n  ],\n  \"empty\": {},\n  \"n\": null\n}\n");
}

static void fill_escapes(struct json *j)
{
    json_array(j, NULL);
    json_string(j, NULL, "quote \" backslash \\ tab \t newline \n bell \a");
    json_string(j, NULL, "µs → ok");
    json_string(j, NULL,
            "bad \xff, cut \xe2\x82, overlong \xc0\xaf, half \xed\xa0\x80");
    json_string(j, NULL, NULL);
}

static void test_strings_are_escaped_and_always_utf8(void **state)
{
    (void)state;
    expect(fill_escapes,
            "[\n  \"quote \\\" backslash \\\\ tab \\t newline \\n bell \\u0007\",\n"
            "  \"µs → ok\",\n"
            "  \"bad \\ufffd, cut \\ufffd\\ufffd, overlong \\ufffd\\ufffd, half "
            "\\ufffd\\ufffd\\ufffd\",\n"
            "  null\n]\n");
}

static void fill_numbers(struct json *j)
{
    json_array(j, NULL);
    json_double(j, NULL, 0.1);
    json_double(j, NULL, 4.25);
    json_double(j, NULL, 1.0 / 3);
    json_double(j, NULL, 1e300);
    json_double(j, NULL, NAN);
    json_double(j, NULL, -INFINITY);
}

static void test_numbers_are_short_and_exact_and_never_nan(void **state)
{
    (void)state;
    expect(fill_numbers,
            "[\n  0.1,\n  4.25,\n  0.3333333333333333,\n  1e+300,\n  null,\n"
            "  null\n]\n");
}

static void fill_too_deep(struct json *j)
{
    for (int i = 0; i < JSON_DEPTH_MAX + 3; i++)
        json_array(j, NULL);
}

static void test_nesting_too_deep_is_an_error_not_a_crash(void **state)
{
    bool good;
    char *text = written(fill_too_deep, &good);

    (void)state;
    assert_false(good);
    assert_int_equal(strspn(text, "[\n "), strcspn(text, "]"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commas_and_levels_come_by_themselves),
        cmocka_unit_test(test_strings_are_escaped_and_always_utf8),
        cmocka_unit_test(test_numbers_are_short_and_exact_and_never_nan),
        cmocka_unit_test(test_nesting_too_deep_is_an_error_not_a_crash),
    };

    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
