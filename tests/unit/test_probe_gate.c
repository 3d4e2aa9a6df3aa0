/* SPDX-License-Identifier: Apache-2.0 */
/* What the launches of `motet probe --gate-kernels` come to, and what is read from the
 * runtime's log. */
#include "probe_gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { OK, REFUSED, LOST, FAILED, HANG, NOT_RUN };

static void set_cell(struct gate_cell *cell, int how)
{
    static const enum probe_stage stages[] = { [OK] = PROBE_DONE,
        [REFUSED] = PROBE_SYNC,
        [LOST] = PROBE_VALUES,
        [FAILED] = PROBE_SYNC,
        [HANG] = PROBE_HANG,
        [NOT_RUN] = PROBE_NOT_RUN };

    memset(cell, 0, sizeof(*cell));
    cell->rank.ok = how == OK;
    cell->rank.stage = stages[how];
    cell->seen.atomics = -1;
    cell->seen.read = how != HANG && how != NOT_RUN;
    cell->seen.stored = how == OK;
    cell->seen.code[GATE_SYNC] = how == REFUSED ? 401 : how == FAILED ? 719 : 0;
}

static void a_card_is_judged_by_all_launches(void **state)
{
    static const struct {
        int plain, hostcall, control; /* one of the controls; the others run */
        enum gate_verdict wanted;
    } rows[] = {
        { OK, OK, OK, GATE_RUNS },
        { OK, OK, NOT_RUN, GATE_RUNS },
        { OK, OK, FAILED, GATE_OTHER },
        { OK, OK, HANG, GATE_OTHER },
        { OK, REFUSED, OK, GATE_REFUSES },
        { OK, LOST, OK, GATE_REFUSES },
        { OK, REFUSED, REFUSED, GATE_UNSURE },
        { OK, REFUSED, NOT_RUN, GATE_UNSURE },
        { OK, LOST, HANG, GATE_UNSURE },
        { OK, FAILED, OK, GATE_OTHER },
        { OK, HANG, NOT_RUN, GATE_OTHER },
        { OK, NOT_RUN, NOT_RUN, GATE_UNTRIED },
        { NOT_RUN, NOT_RUN, NOT_RUN, GATE_UNTRIED },
        { REFUSED, REFUSED, REFUSED, GATE_BROKEN },
        { LOST, OK, OK, GATE_BROKEN },
        { HANG, NOT_RUN, NOT_RUN, GATE_BROKEN },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int control = GATE_HOSTCALL + 1; control < GATE_TESTS; control++) {
            struct gate_card card = { .device = 0 };

            set_cell(&card.cells[GATE_PLAIN], rows[i].plain);
            set_cell(&card.cells[GATE_HOSTCALL], rows[i].hostcall);
            for (int t = GATE_HOSTCALL + 1; t < GATE_TESTS; t++)
                set_cell(&card.cells[t], t == control ? rows[i].control : OK);
            assert_string_equal(gate_verdict_name(gate_judge(&card)),
                    gate_verdict_name(rows[i].wanted));
        }
}

static void a_refusal_is_found_in_each_place(void **state)
{
    struct gate_seen seen = { .code = { 0 } };

    (void)state;
    assert_false(gate_refused(&seen));
    for (int i = 0; i < GATE_PLACES; i++) {
        seen.code[i] = 719;
        assert_false(gate_refused(&seen));
        seen.code[i] = 401;
        assert_true(gate_refused(&seen));
        seen.code[i] = GATE_NOT_REACHED;
    }
    assert_false(gate_refused(&seen));
}

static void the_runtimes_word_on_atomics_comes_first(void **state)
{
    const struct probe_card about = { .atomics = "yes" }, unknown = { .name = "" };
    struct gate_card card = { .about = &about };

    (void)state;
    for (int t = 0; t < GATE_TESTS; t++)
        set_cell(&card.cells[t], OK);
    assert_string_equal(gate_atomics(&card), "yes");
    card.cells[GATE_TESTS - 1].seen.atomics = 0;
    assert_string_equal(gate_atomics(&card), "no");
    card.cells[0].seen.atomics = 1;
    assert_string_equal(gate_atomics(&card), "yes");
    card.cells[0].seen.atomics = card.cells[GATE_TESTS - 1].seen.atomics = -1;
    card.about = &unknown;
    assert_string_equal(gate_atomics(&card), "unknown");
}

static void what_it_means_joins_both(void **state)
{
    const struct probe_card about = { .atomics = "" };
    struct gate_card card = { .about = &about, .verdict = GATE_REFUSES };
    char buf[512];

    (void)state;
    card.cells[GATE_HOSTCALL].seen.atomics = 0;
    assert_non_null(
            strstr(gate_means(&card, buf, sizeof(buf)), "cannot send AtomicOps"));
    card.cells[GATE_HOSTCALL].seen.atomics = 1;
    assert_non_null(strstr(gate_means(&card, buf, sizeof(buf)), "another reason"));
    card.cells[GATE_HOSTCALL].seen.atomics = -1;
    assert_null(strstr(gate_means(&card, buf, sizeof(buf)), "the runtime says"));
    card.verdict = GATE_RUNS;
    card.cells[GATE_HOSTCALL].seen.atomics = 0;
    assert_non_null(strstr(gate_means(&card, buf, sizeof(buf)), "although"));
}

static void a_log_line_loses_file_time_and_process(void **state)
{
    static const char text[] = "Pcie atomics not enabled, hostcall not supported";
    static const char *const before[] = {
        ":1:rocvirtual.cpp           :3232: ",
        ":1:rocvirtual.cpp           :4208: 81426331 us: [pid:48211 tid: 0x7b1a0] ",
        ":1:rocvirtual.cpp           :2902: 81426331 us: 22123: [tid:0x7f12] ",
        "host: :1:rocvirtual.cpp:4208: 7 us: ",
        ":1:",
    };
    char line[512], buf[160];

    (void)state;
    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++) {
        snprintf(line, sizeof(line), "%s%s", before[i], text);
        assert_true(gate_reason(line, buf, sizeof(buf)));
        assert_string_equal(buf, text);
    }
    assert_false(gate_reason(":3:rocvirtual.cpp :4151: ShaderName : k", buf, 160));
    assert_false(gate_reason("", buf, sizeof(buf)));
    memset(line, 'x', sizeof(line) - 1);
    memcpy(line, ":1:", 3);
    line[sizeof(line) - 1] = 0;
    assert_true(gate_reason(line, buf, sizeof(buf)));
    assert_int_equal(strlen(buf), sizeof(buf) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_judged_by_all_launches),
        cmocka_unit_test(a_refusal_is_found_in_each_place),
        cmocka_unit_test(the_runtimes_word_on_atomics_comes_first),
        cmocka_unit_test(what_it_means_joins_both),
        cmocka_unit_test(a_log_line_loses_file_time_and_process),
    };

    return cmocka_run_group_tests_name("probe_gate", tests, NULL, NULL);
}
