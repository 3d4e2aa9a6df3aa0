/* SPDX-License-Identifier: Apache-2.0 */
/* From bytes to clean lines, patterns in them, and what is kept of findings. */
#include "finding.h"
#include "lines.h"
#include "scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- lines ---- */

static void test_a_line_loses_what_only_a_terminal_wants(void **state)
{
    static const struct {
        const char *raw, *clean;
    } rows[] = {
        { "plain text", "plain text" },
        { "tab\tstays, blanks at the end go \t ", "tab\tstays, blanks at the end go" },
        { "\033[1;31mred\033[0m", "red" },
        { "\033[38;2;1;2;3mtrue colour\033[m\033(B", "true colour" },
        { "\033]0;title\007after a title", "after a title" },
        { "\033]8;;http://x\033\\link\033]8;;\033\\", "link" },
        { "\033Pq#0;device string\033\\seen", "seen" },
        { "windows\r", "windows" },
        { "10%\r50%\r100%\r\r", "100%" },
        { "bell\a and \b\b\177 back", "bell and  back" },
        { "an escape cut: \033", "an escape cut:" },
        { "a sequence cut: \033[31", "a sequence cut:" },
        { "a title cut: \033]0;never ends", "a title cut:" },
        { "\302\23331mcontrol of 8 bits as UTF-8", "31mcontrol of 8 bits as UTF-8" },
        { "\23331mraw control", "?31mraw control" },
        { "latin-1 caf\351", "latin-1 caf?" },
        { "UTF-8 caf\303\251, half \303", "UTF-8 caf\303\251, half ?" },
        { "a\302\240web page's blank", "a web page's blank" },
        { "turned \342\200\256round", "turned round" },
        { "overlong \300\257, surrogate \355\240\200", "overlong ??, surrogate ???" },
        { "", "" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[256];
        bool cut;
        const size_t used =
                dr_clean(rows[i].raw, strlen(rows[i].raw), out, sizeof(out), &cut);

        assert_string_equal(out, rows[i].clean);
        assert_int_equal(used, strlen(out));
        assert_false(cut);
    }
}

static void test_a_line_that_does_not_fit_is_cut(void **state)
{
    char out[9];
    bool cut;

    (void)state;
    dr_clean("0123456789", 10, out, sizeof(out), &cut);
    assert_true(cut);
    assert_string_equal(out, "0123456");
    dr_clean("012345\303\251", 8, out, sizeof(out), &cut);
    assert_string_equal(out, "012345"); /* no half characters */
}

static void test_any_byte_gives_a_line_without_controls(void **state)
{
    char raw[3], out[16];
    bool cut;

    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        raw[0] = (char)(i & 255);
        raw[1] = (char)(i >> 8);
        raw[2] = '[';
        dr_clean(raw, 3, out, sizeof(out), &cut);
        for (const char *at = out; *at != 0; at++)
            assert_true((unsigned char)*at >= 32 || *at == '\t');
        assert_null(strchr(out, 127));
    }
}

static struct doctor *with(const char *name, const char *text)
{
    struct doctor *d = doctor_new();

    doctor_add(d, name, text, strlen(text));
    return d;
}

static void test_lines_know_their_command_and_machine(void **state)
{
    struct doctor *d = with("paste.txt",
            "before\n"
            "root@node7:~# lspci -vv\n"
            "output\n"
            "# it hangs here\n"
            "# dmesg | tail\n"
            "[user@other dir]$ uname -r\n"
            "6.8\n"
            "$ id\n"
            "+ ls -l /dev/kfd\n");

    (void)state;
    assert_int_equal(d->num_lines, 9);
    assert_int_equal(d->lines[0].command, DR_NONE);
    assert_string_equal(dr_command(d, 0), "");
    assert_string_equal(dr_command(d, 2), "lspci -vv");
    assert_string_equal(d->machines[d->lines[2].machine].name, "node7");
    assert_int_equal(d->lines[3].flags & (DR_COMMAND | DR_REMARK), DR_REMARK);
    assert_int_equal(d->lines[4].flags & (DR_COMMAND | DR_REMARK), DR_COMMAND);
    assert_string_equal(d->machines[d->lines[6].machine].name, "other");
    assert_string_equal(dr_command(d, 6), "uname -r");
    assert_string_equal(dr_typed(&d->lines[7]), "id");
    assert_string_equal(dr_typed(&d->lines[8]), "ls -l /dev/kfd");
    assert_int_equal(d->lines[8].number, 9);
    doctor_free(d);
}

static void test_names_of_files_tell_guest_and_host(void **state)
{
    struct doctor *d = with("folder/guest-dmesg.txt", "line\n");

    (void)state;
    doctor_add(d, "host-lspci", "line\n", 5);
    doctor_add(d, "other", "line\n", 5);
    assert_true(d->machines[d->lines[0].machine].is_guest_file);
    assert_true(d->machines[d->lines[1].machine].is_host_file);
    assert_int_equal(d->lines[2].machine, 0);
    doctor_free(d);
}

static void test_odd_sources_are_text_or_named_as_unread(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    doctor_add(d, "wide", "\377\376o\0k\0\n\0", 8);
    assert_int_equal(d->num_lines, 1);
    assert_string_equal(d->lines[0].text, "ok");
    doctor_add(d, "bom", "\357\273\277text\r\nmore", 13);
    assert_string_equal(d->lines[1].text, "text");
    assert_string_equal(d->lines[2].text, "more");
    assert_int_equal(d->num_unread, 0);
    doctor_add(d, "\033[31mbinary", "\177ELF\0\0\0\0\0\0\0", 11);
    assert_int_equal(d->num_unread, 1);
    assert_string_equal(d->unread[0].source, "binary");
    doctor_add(d, "empty", "", 0);
    assert_int_equal(d->num_unread, 2);
    doctor_free(d);
}

static void test_a_long_line_and_a_large_stream_are_bounded(void **state)
{
    struct doctor *d = doctor_new();
    FILE *in = tmpfile();

    (void)state;
    assert_non_null(in);
    for (int i = 0; i < 600000; i++)
        fprintf(in, "line %d of a chatty program that says nothing new at all\n", i);
    fputs("host:1:1 [0] x.cc:1 NCCL WARN something ", in);
    for (int i = 0; i < 100000; i++)
        fputc('x', in);
    fputc('\n', in);
    rewind(in);
    assert_true(doctor_add_stream(d, "large", in));
    fclose(in);
    assert_true(d->num_lines < 250000);
    assert_true(d->lines[d->num_lines - 1].length <= DR_LINE_MAX);
    assert_true(d->lines[d->num_lines - 1].flags & DR_CUT);
    assert_int_equal(d->lines[d->num_lines - 1].number, 600001);
    assert_int_equal(d->num_unread, 1);
    doctor_free(d);
}

static void test_many_short_lines_are_bounded(void **state)
{
    struct doctor *d = doctor_new();
    FILE *in = tmpfile();

    (void)state;
    assert_non_null(in);
    fputs("first\n", in);
    for (int i = 0; i < 2000000; i++)
        fputc('\n', in);
    fputs("Watchdog caught it\n", in);
    for (int i = 0; i < 2000000; i++)
        fputc('\n', in);
    fputs("last", in);
    rewind(in);
    assert_true(doctor_add_stream(d, "short", in));
    fclose(in);
    assert_true(d->num_lines < 150000);
    assert_string_equal(d->lines[0].text, "first");
    assert_string_equal(d->lines[d->num_lines - 1].text, "last");
    assert_int_equal(d->lines[d->num_lines - 1].number, 4000003);
    assert_int_equal(d->num_unread, 1);
    for (uint32_t i = 0, found = 0; i < d->num_lines || found == 0; i++) {
        assert_true(i < d->num_lines);
        found += d->lines[i].number == 2000002;
    }
    doctor_free(d);
}

static void test_all_sources_together_are_bounded(void **state)
{
    struct doctor *d = doctor_new();
    char *lines = malloc(400000);

    (void)state;
    assert_non_null(lines);
    for (int i = 0; i < 200000; i++)
        memcpy(lines + 2 * (size_t)i, "x\n", 2);
    for (int i = 0; i < 6; i++)
        doctor_add(d, "many", lines, 400000);
    free(lines);
    assert_int_equal(d->num_lines, 1u << 20);
    assert_int_equal(d->num_unread, 1);
    doctor_free(d);
}

/* ---- patterns ---- */

static void test_patterns_match_what_they_say(void **state)
{
    static const struct {
        const char *text, *pattern, *first; /* first capture, NULL: no match */
    } rows[] = {
        { "flags 13", "flags %d", "13" },
        { "flags   \t 13", "flags %d", "13" },
        { "flags13", "flags %d", NULL },
        { "a flags 13", "^flags %d", NULL },
        { "size 1.5e-3 x", "size %f", "1.5e-3" },
        { "size -2.5", "size %f", "-2.5" },
        { "size .", "size %f", NULL },
        { "at 0x1fF,", "at %x", "0x1fF" },
        { "pci 0000:03:00.0: x", "%b", "0000:03:00.0" },
        { "pci 03:00.0 x", "%b", "03:00.0" },
        { "pci 10000:e1:00.7 x", "%b", "10000:e1:00.7" },
        { "pci 03:00.8", "%b", NULL },
        { "12:03:00.05", "%b", NULL },
        { "user=alice rest", "user=%w", "alice" },
        { "[tag] text", "[%*] text", "tag" },
        { "a 50% b", "%d%% b", "50" },
        { "end 5  ", "end %d%e", "5" },
        { "end 5 x", "end %d%e", NULL },
        { "xflags 1", "%<flags %d", NULL },
        { "(flags 1", "%<flags %d", "1" },
        { "fatal no, fail 2", "fail%> %d", "2" },
        { "head: all the rest", "head: %*", "all the rest" },
        { "", "%d", NULL },
        { "no, fail, fails 2", "fail%*s %d", ", fail" },
        { "flags x flags 7", "flags %d", "7" },
        { "xflags 1 flags 2", "%<flags %d", "2" },
        { "12 a 34 b", "%d b", "34" },
        { "a0x12 end", "%x end", "0x12" },
        { "user=a b=c", "%w=c", "b" },
        { "a  b   c", " %w%e", "c" },
        { "one  via  P2P", " via %w", "P2P" },
        { "in [a] and [b] end", "^%*] end", "in [a] and [b" },
        { "value of 5", "%*of %d", "value " },
        { "7%", "%d%%", "7" },
    };
    struct dr_span out[DR_CAPTURES_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const bool found = dr_scan(rows[i].text, rows[i].pattern, out);

        assert_int_equal(found, rows[i].first != NULL);
        if (found)
            assert_true(dr_span_is(out[0], rows[i].first));
    }
    assert_true(dr_scan("", "%e", NULL));
    assert_false(dr_scan("1 2 3 4 5 6 7 8 9 10 11 12 13",
            "%d %d %d %d %d %d %d %d %d %d %d %d %d", out)); /* too many captures */
}

static void test_words_are_found_whatever_their_case(void **state)
{
    static const struct {
        const char *text, *word;
        bool found;
    } rows[] = {
        { "The GPU Hung", "hung", true },
        { "The GPU Hung", "HUNG", true },
        { "exit 124", "exit 124", true },
        { "exit 12", "exit 124", false },
        { "a[b", "A{B", false }, /* no letters: not the same */
        { "zzZ", "zzzz", false },
        { "aab", "AB", true },
        { "^C", "^c", true },
        { "124", "24", true },
        { "", "x", false },
        { "x", "", true },
    };
    static const char *const words[] = { "timeout", "no progress", "[error]", "q" };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(dr_has_any_case(rows[i].text, rows[i].word), rows[i].found);
        assert_int_equal(dr_has_any_of(rows[i].text, &rows[i].word, 1), rows[i].found);
    }
    assert_true(dr_has_any_of("there was No Progress", words, COUNT(words)));
    assert_true(dr_has_any_of("a Q", words, COUNT(words)));
    assert_false(dr_has_any_of("time out, {error}", words, COUNT(words)));
    assert_false(dr_has_any_of("any", words, 0));
}

static void test_a_hostile_line_ends_without_a_match(void **state)
{
    static const char *const patterns[] = { "%*a%*a%*a%*a%*b", "%w%w%w%w%w!",
        "%d%*%d%*%d%*x", " %* %* %* %*!" };
    static char line[DR_LINE_MAX + 1];
    const clock_t begin = clock();

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        memset(line, "a1 "[kind], DR_LINE_MAX);
        for (size_t i = 0; i < COUNT(patterns); i++)
            assert_false(dr_scan(line, patterns[i], NULL));
    }
    assert_true(clock() - begin < 2 * CLOCKS_PER_SEC);
}

static void test_spans_become_numbers_and_addresses(void **state)
{
    char bdf[DR_BDF_MAX];
    uint64_t value = 7;

    (void)state;
#define SPAN(text) ((struct dr_span){ (text), strlen(text) })
    assert_true(dr_span_u64(SPAN("18446744073709551615"), &value));
    assert_true(value == UINT64_MAX);
    assert_false(dr_span_u64(SPAN("18446744073709551616"), &value));
    assert_false(dr_span_u64(SPAN(""), &value));
    assert_false(dr_span_u64(SPAN("1f"), &value));
    assert_true(dr_span_hex(SPAN("0x1F"), &value));
    assert_int_equal(value, 31);
    assert_false(dr_span_hex(SPAN("0x"), &value));
    assert_true(dr_span_bdf(SPAN("0A:1f.7"), bdf));
    assert_string_equal(bdf, "0000:0a:1f.7");
    assert_true(dr_span_bdf(SPAN("10000:E1:00.0"), bdf));
    assert_string_equal(bdf, "10000:e1:00.0");
    assert_false(dr_span_bdf(SPAN("a:00.0"), bdf));
    assert_false(dr_span_bdf(SPAN("03:00.0 and more"), bdf));
    assert_true(dr_span_double(SPAN("2.5")) > 2.4);
#undef SPAN
}

/* ---- findings ---- */

static void test_a_finding_is_made_once_for_a_subject(void **state)
{
    struct doctor *d = with("file", "one\ntwo\n");
    struct dr_finding *f = dr_found(d, DR_SMALL_BAR, "%s", "0000:03:00.0");

    (void)state;
    dr_because(d, f, 0);
    dr_because(d, f, 0);
    dr_because(d, f, DR_NONE);
    assert_int_equal(f->because.count, 1);
    dr_fix(d, f, "step %d", 1);
    dr_fix(d, f, "step %d", 1);
    assert_int_equal(f->fix.count, 1);
    assert_ptr_equal(dr_found(d, DR_SMALL_BAR, "%s", "0000:03:00.0"), f);
    (void)dr_found(d, DR_SMALL_BAR, "%s", "0000:04:00.0");
    assert_int_equal(d->num_findings, 2);
    assert_true(dr_has_finding(d, DR_SMALL_BAR, NULL));
    assert_true(dr_has_finding(d, DR_SMALL_BAR, "0000:04:00.0"));
    assert_false(dr_has_finding(d, DR_SMALL_BAR, "0000:05:00.0"));
    assert_null(dr_finding_of(d, DR_LEAK));
    doctor_free(d);
}

static void test_of_too_many_findings_it_is_said_that_there_are_more(void **state)
{
    struct doctor *d = with("file", "one\ntwo\n");

    (void)state;
    for (unsigned i = 0; i < 2 * DR_FINDINGS_MAX; i++) {
        struct dr_finding *f = dr_found(d, DR_SMALL_BAR, "%03u", i);

        dr_say(d, f, "Number %u.", i);
        dr_because(d, f, 0);
    }
    (void)dr_found(d, DR_LEAK, "%s", "");
    assert_int_equal(d->num_findings, DR_FINDINGS_MAX + 1);
    assert_true(dr_has_finding(d, DR_SMALL_BAR, "127"));
    dr_put_in_order(d);
    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];

        assert_int_equal(f->code == DR_SMALL_BAR && strcmp(f->subject, "063") == 0,
                dr_has(f->summary, "More like this one"));
    }
    doctor_free(d);
}

static void test_a_finding_quotes_so_many_lines(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_finding *f = dr_found(d, DR_LEAK, "%s", "");

    (void)state;
    for (uint32_t i = 0; i < 2 * DR_QUOTED_MAX; i++) {
        doctor_add(d, "line", "line", 4);
        dr_because(d, f, i);
    }
    assert_int_equal(f->because.count, DR_QUOTED_MAX);
    assert_true(d->sources[2 * DR_QUOTED_MAX - 1].known);
    doctor_free(d);
}

static void test_a_cause_takes_its_effects_lines(void **state)
{
    struct doctor *d = with("file", "one\ntwo\nthree\n");

    (void)state;
    dr_because(d, dr_found(d, DR_FIREWALL_OR_ROUTE, "%s", "192.0.2.7"), 0);
    dr_because(d, dr_found(d, DR_FIREWALL_OR_ROUTE, "%s", "192.0.2.9"), 1);
    dr_because(d, dr_found(d, DR_HOST_WEDGED, "%s", "192.0.2.7"), 2);
    dr_overrule(d);
    dr_put_in_order(d);
    assert_int_equal(d->num_findings, 2);
    assert_int_equal(d->findings[0].code, DR_HOST_WEDGED);
    assert_int_equal(d->findings[0].consequences.count, 1);
    assert_int_equal(d->findings[0].consequences.lines[0], 0);
    assert_string_equal(d->findings[1].subject, "192.0.2.9");
    doctor_free(d);
}

static void test_findings_stand_in_the_catalogues_order(void **state)
{
    static const enum dr_code made[] = { DR_PERF_OK, DR_UNDETERMINED, DR_WARN_BENIGN,
        DR_LEAK, DR_RCCL_NEEDS_HOSTCALL, DR_LIB_NOT_FOUND, DR_ATOMICS_OFF,
        DR_NO_FINDING };
    static const enum dr_code wanted[] = { DR_NO_FINDING, DR_ATOMICS_OFF,
        DR_LIB_NOT_FOUND, DR_RCCL_NEEDS_HOSTCALL, DR_LEAK, DR_UNDETERMINED,
        DR_WARN_BENIGN, DR_PERF_OK };
    struct doctor *d = doctor_new();

    (void)state;
    for (size_t i = 0; i < COUNT(made); i++)
        (void)dr_found(d, made[i], "%s", "");
    dr_put_in_order(d);
    assert_int_equal(d->num_findings, COUNT(wanted));
    for (size_t i = 0; i < COUNT(wanted); i++)
        assert_int_equal(d->findings[i].code, wanted[i]);
    doctor_free(d);
}

static void test_every_code_can_be_explained(void **state)
{
    (void)state;
    for (int i = 0; i < DR_NUM_CODES; i++) {
        const struct dr_code_info *info = &dr_codes[i];
        const char *all[] = { info->means, info->when };

        assert_int_equal(dr_code_find(info->name), i);
        for (size_t k = 0; k < COUNT(all); k++)
            assert_int_equal(all[k][strlen(all[k]) - 1], '.');
        assert_non_null(info->fix[0]);
        assert_non_null(info->sources[0]);
    }
    assert_int_equal(dr_code_find("NO_SUCH_CODE"), DR_NUM_CODES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_loses_what_only_a_terminal_wants),
        cmocka_unit_test(test_a_line_that_does_not_fit_is_cut),
        cmocka_unit_test(test_any_byte_gives_a_line_without_controls),
        cmocka_unit_test(test_lines_know_their_command_and_machine),
        cmocka_unit_test(test_names_of_files_tell_guest_and_host),
        cmocka_unit_test(test_odd_sources_are_text_or_named_as_unread),
        cmocka_unit_test(test_a_long_line_and_a_large_stream_are_bounded),
        cmocka_unit_test(test_many_short_lines_are_bounded),
        cmocka_unit_test(test_all_sources_together_are_bounded),
        cmocka_unit_test(test_patterns_match_what_they_say),
        cmocka_unit_test(test_words_are_found_whatever_their_case),
        cmocka_unit_test(test_a_hostile_line_ends_without_a_match),
        cmocka_unit_test(test_spans_become_numbers_and_addresses),
        cmocka_unit_test(test_a_finding_is_made_once_for_a_subject),
        cmocka_unit_test(test_of_too_many_findings_it_is_said_that_there_are_more),
        cmocka_unit_test(test_a_finding_quotes_so_many_lines),
        cmocka_unit_test(test_a_cause_takes_its_effects_lines),
        cmocka_unit_test(test_findings_stand_in_the_catalogues_order),
        cmocka_unit_test(test_every_code_can_be_explained),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
