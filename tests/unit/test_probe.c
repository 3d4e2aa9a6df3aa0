/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of motet probe: whatever a process does, it is told of, in time, and of the
 * right one; what is kept of its output; and what the rows decide. */
#include "probe_cell.h"
#include "probe_decide.h"

#include "base/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3

/* What rank `who` does in the launch; the others do it well. */
struct deed {
    int who; /* −1: all */
    void (*what)(struct probe_seat *seat);
};

static void do_nothing(struct probe_seat *seat)
{
    (void)seat;
}

static void do_fail(struct probe_seat *seat)
{
    probe_fail(seat, "no such luck");
}

static void do_blame(struct probe_seat *seat)
{
    probe_blame_peer(seat);
    probe_fail(seat, "a peer did not come");
}

static void do_hang(struct probe_seat *seat)
{
    (void)seat;
    for (;;)
        pause();
}

/* Rank 1 hangs, and rank 0's library has a deadline of its own. */
static void do_hang_or_blame(struct probe_seat *seat)
{
    const struct timespec a_while = { .tv_nsec = 300000000 };

    if (seat->rank == 1)
        do_hang(seat);
    nanosleep(&a_while, NULL);
    if (seat->rank == 0)
        do_blame(seat);
}

static void do_hang_deaf(struct probe_seat *seat)
{
    signal(SIGTERM, SIG_IGN);
    do_hang(seat);
}

static void crash(int number)
{
    (void)number;
    abort();
}

/* It dies just when it is to be stopped. */
static void do_die_late(struct probe_seat *seat)
{
    signal(SIGTERM, crash);
    do_hang(seat);
}

static void do_die(struct probe_seat *seat)
{
    (void)seat;
    fprintf(stderr, "last words\n");
    raise(SIGKILL);
}

static void do_exit(struct probe_seat *seat)
{
    (void)seat;
    exit(0);
}

static void do_shout(struct probe_seat *seat)
{
    (void)seat;
    for (int i = 0; i < 100000; i++)
        puts("a line that nobody wants");
    puts("host:1:2 [0] enqueue.cc:7 NCCL WARN the first");
    puts("host:1:2 [0] enqueue.cc:8 NCCL WARN the second");
    probe_fail(seat, "failed");
}

static void body(struct probe_seat *seat, void *arg)
{
    const struct deed *deed = arg;
    int number = 0;

    probe_enter(seat, PROBE_INIT, "say hello");
    if (seat->rank == 0)
        number = 4711;
    if (!probe_share(seat, &number, sizeof(number)))
        return;
    probe_enter(seat, PROBE_LAUNCH, "number %d", number);
    if (deed->who < 0 || deed->who == seat->rank)
        deed->what(seat);
    if (probe_failed(seat))
        return;
    probe_enter(seat, PROBE_SYNC, "wait");
    probe_took(seat, number);
    (void)probe_meet(seat);
}

static void run(struct deed deed, unsigned timeout_s, struct probe_rank ranks[RANKS])
{
    const struct probe_options options = { .timeout_s = timeout_s };

    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct probe_rank){ .rank = r, .device = r };
    probe_cell(&options, body, &deed, ranks, RANKS);
}

static void test_all_is_well(void **state)
{
    struct probe_rank ranks[RANKS];

    (void)state;
    run((struct deed){ -1, do_nothing }, 20, ranks);
    for (int r = 0; r < RANKS; r++) {
        assert_true(ranks[r].ok);
        assert_int_equal(ranks[r].stage, PROBE_DONE);
        assert_string_equal(ranks[r].message, "");
        assert_int_equal((int)ranks[r].ms, 4711);
    }
}

/* What one rank does, and what is said of it: the others have waited for it. */
static void test_one_rank_is_at_fault_and_the_others_waited(void **state)
{
    static const struct {
        void (*what)(struct probe_seat *seat);
        enum probe_stage stage;
        const char *message;
    } cases[] = {
        { do_fail, PROBE_LAUNCH, "no such luck" },
        { do_die, PROBE_LAUNCH,
                "killed by signal 9 (Killed) in launch: number 4711; "
                "it printed: last words" },
        { do_exit, PROBE_LAUNCH,
                "the process ended by itself with status 0 in launch: number 4711" },
        { do_hang, PROBE_HANG, "s in launch: number 4711" },
        { do_hang_deaf, PROBE_HANG, "s in launch: number 4711" },
        { do_die_late, PROBE_LAUNCH,
                "killed by signal 6 (Aborted) in launch: number 4711" },
        { do_shout, PROBE_LAUNCH,
                "failed; it printed: enqueue.cc:7 NCCL WARN the first" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct probe_rank ranks[RANKS];
        uint64_t start = motet_now_ns();
        bool hangs = cases[i].stage == PROBE_HANG;

        run((struct deed){ 1, cases[i].what },
                hangs || cases[i].what == do_die_late ? 3 : 20, ranks);
        assert_true(motet_now_ns() - start < 60 * MOTET_NS_PER_S);
        assert_false(ranks[1].ok);
        assert_int_equal(ranks[1].stage, cases[i].stage);
        if (hangs) {
            assert_memory_equal(ranks[1].message, "did not come back within ", 25);
            assert_non_null(strstr(ranks[1].message, cases[i].message));
        } else { /* an emulator adds words of its own */
            assert_memory_equal(ranks[1].message, cases[i].message,
                    strlen(cases[i].message));
        }
        for (int r = 0; r < RANKS; r += 2) {
            assert_false(ranks[r].ok);
            assert_int_equal(ranks[r].stage, PROBE_WAITING);
            assert_memory_equal(ranks[r].message, "waited for rank 1 ", 18);
            assert_true(ranks[r].ms < 0);
        }
    }
}

static void test_whoever_blames_a_peer_waited_for_the_one_that_hangs(void **state)
{
    struct probe_rank ranks[RANKS];

    (void)state;
    run((struct deed){ -1, do_hang_or_blame }, 20, ranks);
    assert_int_equal(ranks[1].stage, PROBE_HANG);
    assert_int_equal(ranks[0].stage, PROBE_WAITING);
    assert_string_equal(ranks[0].message, "waited for rank 1: a peer did not come");
    assert_int_equal(ranks[2].stage, PROBE_WAITING);
    run((struct deed){ 1, do_blame }, 20, ranks);
    assert_int_equal(ranks[1].stage, PROBE_LAUNCH); /* there is nobody else */
    assert_string_equal(ranks[1].message, "a peer did not come");
    assert_int_equal(ranks[0].stage, PROBE_WAITING);
}

static void test_all_that_hang_alike_hang(void **state)
{
    struct probe_rank ranks[RANKS];

    (void)state;
    run((struct deed){ -1, do_hang }, 3, ranks);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ranks[r].stage, PROBE_HANG);
}

/* ---------------------------------------------------------------------- words */

static void hear(struct probe_words *words, const char *text)
{
    *words = (struct probe_words){ 0 };
    probe_words_add(words, text, strlen(text));
    probe_words_end(words);
}

static void test_the_first_warning_and_the_last_line_are_kept(void **state)
{
    struct probe_words w;
    char *flood = malloc(100001);

    (void)state;
    hear(&w,
            "x\n[2026-12-01 03:22:00] h:1:2 [0] a.cc:7 NCCL WARN one\nh:1:2 [0] NCCL "
            "WARN two\nend\n\n");
    assert_string_equal(w.warning, "a.cc:7 NCCL WARN one");
    assert_string_equal(w.last, "end");
    hear(&w, "no end of line, \033[31mred\033[0m");
    assert_string_equal(w.warning, "");
    assert_string_equal(w.last, "no end of line,  [31mred [0m");
    hear(&w, "");
    assert_string_equal(w.last, "");
    assert_non_null(flood);
    memset(flood, 'x', 100000);
    flood[100000] = 0;
    hear(&w, flood);
    assert_int_equal(strlen(w.last), sizeof(w.line) - 1);
    free(flood);
}

/* -------------------------------------------------------------------- decides */

#define ROWS 10

/* Rows of two cards, all well but the cell at @p row and @p rank, unless that is −1. */
static void fill(struct probe_report *report, struct probe_row rows[ROWS],
        struct probe_rank cells[ROWS][2], int bad, int rank, enum probe_stage stage)
{
    static const char *const names[ROWS] = { "device", "init", "all_reduce",
        "broadcast", "barrier", "all_gather", "reduce_scatter", "send_0_to_1",
        "send_1_to_0", "send_both" };
    static const struct probe_options options = { .model = { .layers = 10 } };

    *report = (struct probe_report){ .options = &options,
        .nlibraries = 1,
        .nranks = 2,
        .ncards = 2,
        .rows = rows,
        .nrows = ROWS,
        .step_us = { 50 } };
    for (int i = 0; i < ROWS; i++) {
        rows[i] = (struct probe_row){ 0, names[i], 2, cells[i] };
        for (int r = 0; r < 2; r++)
            cells[i][r] = (struct probe_rank){ .rank = i == 0 ? 0 : r,
                .device = r,
                .ok = i != bad || r != rank,
                .stage = i != bad || r != rank ? PROBE_DONE : stage };
    }
}

static void test_what_the_rows_decide(void **state)
{
    static const struct {
        int row, rank;
        enum probe_stage stage;
        const char *words; /* of each use, the first letter */
        const char *because;
    } cases[] = {
        { -1, -1, PROBE_DONE, "yyyy", NULL },
        { 2, 1, PROBE_LAUNCH, "nyyy",
                "all_reduce of ranks 0, 1 fails on rank 1: launch" },
        { 8, 0, PROBE_HANG, "ynyy", NULL },
        { 1, 1, PROBE_INIT, "nnyy", "init of ranks 0, 1 fails on rank 1: init" },
        { 0, 1, PROBE_DEVICE, "nnnn", "device of ranks 0, 1 fails on rank 1: device" },
        { 5, 0, PROBE_NOT_RUN, "uyyy", "all_gather of ranks 0, 1 was not run: " },
        { 6, 0, PROBE_VALUES, "yyyy", NULL },
    };
    struct probe_rank cells[ROWS][2];
    struct probe_row rows[ROWS];
    struct probe_report *report = calloc(1, sizeof(*report));
    struct probe_answer answer;

    (void)state;
    assert_non_null(report);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fill(report, rows, cells, cases[i].row, cases[i].rank, cases[i].stage);
        for (size_t use = 0; use < nprobe_uses; use++) {
            probe_decide(report, &probe_uses[use], 0, &answer);
            assert_int_equal(probe_word_name(answer.word)[0], cases[i].words[use]);
            if (use == 0 && cases[i].because != NULL)
                assert_string_equal(answer.because, cases[i].because);
            assert_true(use == 0 ? answer.step_ms == 1.0 : answer.step_ms < 0);
        }
    }
    report->nranks = 1;
    probe_decide(report, &probe_uses[0], 0, &answer);
    assert_int_equal(answer.word, PROBE_UNKNOWN);
    free(report);
}

static void test_pairs_that_can_are_named_where_all_together_cannot(void **state)
{
    static const char *const names[] = { "init", "all_reduce", "broadcast", "barrier",
        "all_gather" };
    static const int groups[4][3] = { { 0, 1 }, { 0, 2 }, { 1, 2 }, { 0, 1, 2 } };
    static const struct probe_options options = { .timeout_s = 1 };
    static struct probe_rank cells[20][3];
    static struct probe_row rows[20];
    struct probe_report *report = calloc(1, sizeof(*report));
    struct probe_answer answer;

    (void)state;
    assert_non_null(report);
    *report = (struct probe_report){ .options = &options,
        .nlibraries = 1,
        .nranks = 3,
        .ncards = 3,
        .rows = rows,
        .nrows = 20 };
    for (int i = 0; i < 20; i++) {
        int group = i / 5, n = group == 3 ? 3 : 2;

        rows[i] = (struct probe_row){ 0, names[i % 5], n, cells[i] };
        for (int r = 0; r < n; r++) {
            bool ok = i % 5 != 1 || groups[group][r] != 2; /* card 2 cannot reduce */

            cells[i][r] = (struct probe_rank){ .rank = r,
                .device = groups[group][r],
                .ok = ok,
                .stage = ok ? PROBE_DONE : PROBE_SYNC };
        }
    }
    probe_decide(report, &probe_uses[0], 0, &answer);
    assert_int_equal(answer.word, PROBE_NO);
    assert_string_equal(answer.because,
            "all_reduce of ranks 0, 1, 2 fails on rank 2: sync; these pairs can: 0 and "
            "1");
    free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_one_rank_is_at_fault_and_the_others_waited),
        cmocka_unit_test(test_whoever_blames_a_peer_waited_for_the_one_that_hangs),
        cmocka_unit_test(test_all_that_hang_alike_hang),
        cmocka_unit_test(test_the_first_warning_and_the_last_line_are_kept),
        cmocka_unit_test(test_what_the_rows_decide),
        cmocka_unit_test(test_pairs_that_can_are_named_where_all_together_cannot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
