/* SPDX-License-Identifier: Apache-2.0 */
/* What the report says, how it is laid out, and that it prints nothing raw. */
#include "report.h"

#include "doctor_json.h"
#include "rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct doctor *with(const char *name, const char *text)
{
    struct doctor *d = doctor_new();

    doctor_add(d, name, text, strlen(text));
    dr_read_pci(d);
    return d;
}

static char *report(struct doctor *d, bool colour)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    doctor_report(d, out, colour);
    fclose(out);
    return text;
}

static char *as_json(struct doctor *d)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_true(doctor_json(d, out));
    fclose(out);
    return text;
}

/* Each of @p words stands in @p text, in this order. */
static void expect_order(const char *text, const char *const *words, size_t count)
{
    const char *at = text;

    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, words[i]);

        if (found == NULL)
            fail_msg("'%s' is not where it should be in:\n%s", words[i], text);
        at = found + strlen(words[i]);
    }
}

static void expect_widths(const char *text)
{
    while (*text != 0) {
        const size_t length = strcspn(text, "\n");
        size_t columns = 0;

        for (size_t i = 0; i < length; i++)
            columns += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (columns > 100)
            fail_msg("%zu columns: %.*s", columns, (int)length, text);
        text += length + (text[length] != 0);
    }
}

static void test_a_finding_is_told_in_full(void **state)
{
    static const char *const words[] = { "motet doctor, 1 source read: 1 error\n",
        "error  SHM_TOO_SMALL  /dev/shm\n", "    It is full: 64M.\n", "    why:\n",
        "      log.txt:2: No space left on device\n", "    what to do:\n",
        "      1. Make it larger: `--shm-size=8g`.\n",
        "      2. Or share the host's.\n", "    what will not help:\n",
        "      - Waiting.\n", "    what follows from it:\n",
        "      log.txt:3: rank 1: connection reset\n", "      and 1 more\n" };
    struct doctor *d = with("log.txt",
            "first\nNo space left on device\nrank 1: connection reset\n"
            "rank 2: connection reset\n");
    struct dr_finding *f = dr_found(d, DR_SHM_TOO_SMALL, "%s", "/dev/shm");
    char *text;

    (void)state;
    dr_say(d, f, "It is full: %s.", "64M");
    dr_because(d, f, 1);
    dr_consequence(d, f, 2);
    dr_consequence(d, f, 3);
    dr_fix(d, f, "Make it larger: `--shm-size=8g`.");
    dr_fix(d, f, "Or share the host's.");
    dr_will_not_help(d, f, "Waiting.");
    text = report(d, false);
    expect_order(text, words, COUNT(words));
    expect_widths(text);
    free(text);
    doctor_free(d);
}

static void test_the_catalogue_speaks_where_the_rule_does_not(void **state)
{
    struct doctor *d = with("log.txt", "cat: /dev/kfd: Invalid argument\n");
    char *text;
    const char *words[] = { "KFD_EINVAL", dr_codes[DR_KFD_EINVAL].means, "what to do",
        "what will not help", "render" };

    (void)state;
    dr_because(d, dr_found(d, DR_KFD_EINVAL, "%s", "/dev/kfd"), 0);
    text = report(d, false);
    expect_order(text, words, COUNT(words));
    expect_widths(text);
    free(text);
    text = as_json(d);
    expect_order(text,
            (const char *[]){ "\"summary\"", dr_codes[DR_KFD_EINVAL].means,
                    "\"line\": 1", "\"fix\": [\n", "\"will_not_help\": [\n" },
            5);
    free(text);
    doctor_free(d);
}

static void test_good_answers_are_short(void **state)
{
    struct doctor *d = with("log.txt", "line\n");
    char *text;

    (void)state;
    dr_because(d, dr_found(d, DR_ACS_OK, "%s", ""), 0);
    text = report(d, false);
    assert_non_null(strstr(text, "1 good answer\n"));
    assert_non_null(strstr(text, "ok  ACS_OK\n"));
    assert_null(strstr(text, "what to do"));
    free(text);
    doctor_free(d);
}

static void test_nothing_hostile_reaches_the_terminal(void **state)
{
    struct doctor *d = with("\033]0;owned\007name\033[2J.txt",
            "NCCL WARN \033[31m%s%n%n \302\233 2J \033]0;title\007 end\n");
    struct dr_finding *f = dr_found(d, DR_LEAK, "%s", d->lines[0].text);
    char *texts[2];

    (void)state;
    dr_say(d, f, "%s.", d->lines[0].text);
    dr_because(d, f, 0);
    doctor_unread(d, "\033[31mfolder", "%s", "Permission denied");
    texts[0] = report(d, false);
    texts[1] = as_json(d);
    for (size_t i = 0; i < COUNT(texts); i++) {
        for (const char *at = texts[i]; *at != 0; at++)
            assert_true((unsigned char)*at >= 32 || *at == '\n');
        assert_null(strstr(texts[i], "\302\233"));
        assert_non_null(strstr(texts[i], "NCCL WARN %s%n%n  2J  end"));
        free(texts[i]);
    }
    texts[0] = report(d, true);
    assert_non_null(strstr(texts[0], "\033[1;33mwarn\033[0m")); /* our own colours */
    free(texts[0]);
    doctor_free(d);
}

static void test_what_xml_smuggles_in_is_cleaned(void **state)
{
    static const char text[] =
            "<domain type='kvm'>\n<name>a&#13;b&#x9b;31m&#10;c</name>\n<devices>\n"
            "<hostdev mode='subsystem' type='pci'><source>\n"
            "<address domain='0x0' bus='0x0b' slot='0' function='0'/></source>\n"
            "<address type='pci' bus='0x0' slot='0x5' function='0'\n"
            " multifunction='on'/>\n</hostdev></devices></domain>\n";
    struct doctor *d = doctor_new();
    char *told;

    (void)state;
    doctor_add(d, "vm.xml", text, sizeof(text) - 1);
    doctor_unread(d, "x\033[2J",
            "why \033]0;title\a \302\233"
            "31m");
    doctor_judge(d);
    told = report(d, false);
    for (const char *at = told; *at != 0; at++) {
        assert_true(*at == '\n' || (unsigned char)*at >= ' ');
        assert_false(at[0] == '\302' && (unsigned char)at[1] < 0xa0);
    }
    if (dr_finding_of(d, DR_ATOMICS_VM_MULTIFUNCTION) == NULL)
        assert_non_null(strstr(told, "libxml2")); /* not here: then it is said */
    else
        assert_non_null(strstr(told, "vm.xml:7:")); /* the line of the address */
    free(told);
    doctor_free(d);
}

static void test_long_words_and_long_lines_are_wrapped(void **state)
{
    static char line[6000];
    struct doctor *d;
    struct dr_finding *f;
    char *text;

    (void)state;
    for (size_t i = 0; i + 8 < sizeof(line); i += 2)
        memcpy(line + i, "\303\251", 2); /* é, without a blank */
    d = with("log.txt", line);
    f = dr_found(d, DR_LEAK, "%s", "rss");
    dr_say(d, f, "%.500s.", line);
    dr_because(d, f, 0);
    dr_fix(d, f, "Copy this: `%0150d`, or `%080d` and what comes after it.", 7, 7);
    text = report(d, false);
    expect_widths(text);
    assert_non_null(strstr(text, " ...\n"));
    /* a command that fits into a line is not torn */
    assert_non_null(strstr(text, "0000007` and what comes"));
    free(text);
    doctor_free(d);
}

static void test_ways_out_and_unread_follow(void **state)
{
    static const char *const words[] = { "nothing was recognised\n",
        "Ways out, the best first\n", "    1. Another slot.\n",
        "cost: A screwdriver.\n", "verify: `lspci -vv`.\n", "Not read\n",
        "    photo.jpg: no text\n" };
    struct doctor *d = with("log.txt", "line\n");
    char *text;

    (void)state;
    dr_way_out(d, "Another slot.", "A screwdriver.", "`lspci -vv`.");
    doctor_unread(d, "photo.jpg", "no text");
    text = report(d, false);
    expect_order(text, words, COUNT(words));
    free(text);
    doctor_free(d);
}

static void test_every_code_is_explained_and_listed(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out;

    (void)state;
    for (int code = 0; code < DR_NUM_CODES; code++) {
        out = open_memstream(&text, &bytes);
        assert_non_null(out);
        doctor_explain((enum dr_code)code, out);
        fclose(out);
        expect_widths(text);
        expect_order(text,
                (const char *[]){ dr_codes[code].name, "When", "What to do",
                        "Where the rule is from" },
                4);
        free(text);
    }
    out = open_memstream(&text, &bytes);
    assert_non_null(out);
    doctor_list(out);
    fclose(out);
    for (int code = 0; code < DR_NUM_CODES; code++)
        assert_non_null(strstr(text, dr_codes[code].name));
    free(text);
}

/* A step that tests on the hardware comes after the one that stops and masks the unit. */
static void test_tests_on_the_hardware_come_after_stop_and_mask(void **state)
{
    static const char *const tests[] = { "motet smoke", "motet bench", "test peer",
        "two kernels", "test it" };

    (void)state;
    for (int code = 0; code < DR_NUM_CODES; code++) {
        bool stopped = false;

        for (const char *const *fix = dr_codes[code].fix; *fix != NULL; fix++) {
            stopped = stopped || strstr(*fix, "systemctl mask") != NULL ||
                    strstr(*fix, "Do not test") != NULL;
            for (size_t i = 0; i < COUNT(tests); i++)
                if (strstr(*fix, tests[i]) != NULL && !stopped)
                    fail_msg("%s: '%s' before stop and mask", dr_codes[code].name,
                            *fix);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_finding_is_told_in_full),
        cmocka_unit_test(test_the_catalogue_speaks_where_the_rule_does_not),
        cmocka_unit_test(test_good_answers_are_short),
        cmocka_unit_test(test_nothing_hostile_reaches_the_terminal),
        cmocka_unit_test(test_what_xml_smuggles_in_is_cleaned),
        cmocka_unit_test(test_long_words_and_long_lines_are_wrapped),
        cmocka_unit_test(test_ways_out_and_unread_follow),
        cmocka_unit_test(test_every_code_is_explained_and_listed),
        cmocka_unit_test(test_tests_on_the_hardware_come_after_stop_and_mask),
    };

    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
