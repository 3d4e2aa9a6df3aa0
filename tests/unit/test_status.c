/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of motet status on made-up recorders, and how it is printed. */
#include "../../tools/motet/cmd.h"
#include "../../tools/motet/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS_MAX 8
#define BOOT      "11111111-2222-3333-4444-555555555555"

/* Now is 1000 s after boot; 2026-01-02 03:04:05 UTC was 900 s after boot. */
#define NOW_NS       (1000 * MOTET_NS_PER_S)
#define MADE_NS      (900 * MOTET_NS_PER_S)
#define MADE_WALL_NS (1767323045ull * MOTET_NS_PER_S)

/* Seconds ago, as a moment. */
#define AGO(seconds) (NOW_NS - (uint64_t)((seconds) * 1e9))

static motet_trace_snapshot snapshots[RANKS_MAX];
static motet_trace_process processes[RANKS_MAX];
static bool exists[RANKS_MAX];
static status_rank ranks[RANKS_MAX];
static size_t count;
static status_group *groups;
static status_report report;
static char text[65536];

/* A living rank of communicator 0xc0ffee that has done nothing yet. */
static motet_trace_snapshot *add_rank(int rank, int nranks)
{
    motet_trace_snapshot *s = &snapshots[count];

    memset(s, 0, sizeof(*s));
    s->file.rank = rank;
    s->file.nranks = nranks;
    s->file.device = -1;
    s->file.pid = 4000 + rank;
    s->file.pid_start = 77;
    s->file.comm = 0xc0ffee;
    s->file.created_ns = MADE_NS;
    s->file.created_wall_ns = MADE_WALL_NS;
    s->file.heartbeat_ns = AGO(0.1);
    snprintf(s->file.boot_id, sizeof(s->file.boot_id), BOOT);
    snprintf(s->file.host, sizeof(s->file.host), "node1");
    snprintf(s->file.command, sizeof(s->file.command), "python3");
    snprintf(s->path, sizeof(s->path), "/dev/shm/r%d.trace", rank);
    exists[count] = true;
    processes[count] = (motet_trace_process){ .start = 77, .state = 'S' };
    count++;
    return s;
}

/* Appends an all_reduce that ended @p ended_s ago. */
static motet_trace_op *add_op(motet_trace_snapshot *s, uint64_t elements,
        double ended_s)
{
    uint32_t collective = s->ops == 0 ? 0 : s->file.op[s->ops - 1].collective;
    motet_trace_op *op = &s->file.op[s->ops++];

    s->file.begun++;
    op->seq = s->file.begun;
    op->collective = collective + 1;
    op->count = elements;
    op->kind = MOTET_ALL_REDUCE;
    op->type = MOTET_FLOAT32;
    op->redop = MOTET_SUM;
    op->fingerprint = (uint32_t)elements;
    op->peer = op->waits_for = -1;
    op->start_ns = AGO(ended_s) - 1000000;
    op->end_ns = AGO(ended_s);
    op->state = MOTET_TRACE_DONE;
    return op;
}

/* Appends an all_reduce that has waited for @p waits_for since @p since_s ago. */
static motet_trace_op *add_wait(motet_trace_snapshot *s, int waits_for, double since_s)
{
    motet_trace_op *op = add_op(s, 1024, 0);

    op->start_ns = AGO(since_s) - 1000;
    op->wait_ns = AGO(since_s);
    op->end_ns = 0;
    op->state = MOTET_TRACE_WAITING;
    op->waits_for = waits_for;
    return op;
}

/* Makes @p op a send or receive. */
static void make_pairwise(motet_trace_op *op, motet_kind kind, int peer)
{
    op->kind = (uint8_t)kind;
    op->type = MOTET_INT8;
    op->peer = peer;
    op->collective--;
}

static int judge(void)
{
    for (size_t i = 0; i < count; i++) {
        ranks[i].snapshot = &snapshots[i];
        status_classify(&ranks[i], NOW_NS, BOOT, exists[i] ? &processes[i] : NULL);
    }
    free(groups);
    memset(&report, 0, sizeof(report));
    groups = status_judge(ranks, count, &report.group_count);
    report.groups = groups;
    report.places = "'/dev/shm'";
    report.now_ns = NOW_NS;
    return status_exit(&report);
}

static const char *print(bool json, bool all)
{
    FILE *out = fmemopen(text, sizeof(text), "w");

    assert_non_null(out);
    if (json)
        assert_true(status_print_json(out, &report, all));
    else
        status_print(out, &report, all);
    assert_int_equal(fclose(out), 0);
    return text;
}

static const status_finding *find(const char *code)
{
    for (size_t g = 0; g < report.group_count; g++)
        for (size_t i = 0; i < report.groups[g].finding_count; i++)
            if (strcmp(report.groups[g].findings[i].code, code) == 0)
                return &report.groups[g].findings[i];
    return NULL;
}

static const status_finding *need(const char *code)
{
    const status_finding *finding = find(code);

    if (finding == NULL)
        fail_msg("no %s in:\n%s", code, print(false, false));
    return finding;
}

static void expect(const char *printed, const char *piece)
{
    if (strstr(printed, piece) == NULL)
        fail_msg("'%s' is not in:\n%s", piece, printed);
}

static int setup(void **state)
{
    (void)state;
    count = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(groups);
    groups = NULL;
    return 0;
}

/* ---- a healthy job ---- */

static void test_a_running_job_is_fine_though_ranks_are_seen_at_different_moments(
        void **state)
{
    (void)state;
    for (int r = 0; r < 4; r++) {
        motet_trace_snapshot *s = add_rank(r, 4);

        for (int i = 0; i < 10 + r; i++)
            add_op(s, 1024, 0.01);
    }
    add_wait(&snapshots[3], 0, 0.2);
    assert_int_equal(judge(), EXIT_FINE);
    assert_int_equal(report.groups[0].finding_count, 0);
    expect(print(false, false),
            "communicator 0000000000c0ffee: 4 ranks on node1, made 2026-01-02 03:04:05 "
            "UTC\n");
    expect(text, "fine: no rank is dead, late or missing\n");
    expect(text, "    0     4000  python3         cpu    alive, heartbeat 0.1 s ago");
    expect(text, "        10  all_reduce 1024 x float, sum: done 0.0 s ago\n");
    expect(text, "all_reduce 1024 x float, sum: waits for rank 0 for 0.2 s\n");
}

static void test_nothing_running_is_fine(void **state)
{
    (void)state;
    memset(&report, 0, sizeof(report));
    report.places = "'/dev/shm'";
    assert_int_equal(status_exit(&report), EXIT_FINE);
    expect(print(false, false),
            "no communicator is running here (looked in '/dev/shm')\n");
    expect(print(true, false), "\"communicators\": []");
}

static void test_no_operation_yet_is_fine(void **state)
{
    (void)state;
    add_rank(0, 1);
    assert_int_equal(judge(), EXIT_FINE);
    expect(print(false, false), "no operation yet\n");
    expect(text, ": 1 rank on node1");
    expect(print(true, true), "\"operation\": null");
}

/* ---- stragglers ---- */

static void test_the_rank_behind_is_named_and_not_those_that_lead(void **state)
{
    const status_finding *finding;

    (void)state;
    for (int r = 0; r < 4; r++) {
        add_rank(r, 4);
        add_op(&snapshots[r], 1024, 40);
        if (r != 2)
            add_wait(&snapshots[r], 2, 30 - r);
    }
    assert_int_equal(judge(), EXIT_PROBLEM);
    finding = need("RANK_BEHIND");
    assert_string_equal(finding->ranks, "2");
    assert_string_equal(finding->text,
            "rank 2 is behind, with 1 collective begun: ranks 0-1, 3 wait in number 2 "
            "(all_reduce 1024 x float, sum) for 30.0 s (since 2026-01-02 03:05:15 "
            "UTC); "
            "its last operation, all_reduce 1024 x float, sum, ended 40.0 s ago");
    assert_null(find("RANK_AWAITED"));
    assert_int_equal(report.groups[0].finding_count, 1);
}

static void test_the_larger_part_may_be_behind(void **state)
{
    (void)state;
    for (int r = 0; r < 5; r++) {
        add_rank(r, 5);
        add_op(&snapshots[r], 1024, 40);
    }
    add_wait(&snapshots[4], 0, 20);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_BEHIND")->ranks, "0-3");
    expect(need("RANK_BEHIND")->text,
            "ranks 0-3 are behind, with 1 collective begun: "
            "rank 4 waits in number 2");
}

static void test_those_further_ahead_count_as_waiting_too(void **state)
{
    (void)state;
    add_op(add_rank(0, 3), 1024, 60);
    for (int r = 1; r < 3; r++) {
        add_rank(r, 3);
        add_op(&snapshots[r], 1024, 60);
        add_op(&snapshots[r], 1024, 50);
        add_wait(&snapshots[r], 0, 45);
    }
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_BEHIND")->ranks, "0");
    expect(need("RANK_BEHIND")->text, "ranks 1-2 wait in number 3");
}

static void test_a_rank_that_runs_while_another_is_behind_waits(void **state)
{
    motet_trace_op *op;

    (void)state;
    add_op(add_rank(0, 2), 1024, 60);
    add_op(add_rank(1, 2), 1024, 60);
    op = add_wait(&snapshots[1], -1, 15);
    op->state = MOTET_TRACE_RUNNING;
    op->wait_ns = 0;
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(need("RANK_BEHIND")->text, "rank 1 waits in number 2");
}

static void test_a_short_wait_is_told_and_is_no_problem(void **state)
{
    static const struct {
        double seconds;
        int code;
        bool told;
    } cases[] = { { 0.5, EXIT_FINE, false }, { 3, EXIT_FINE, true },
        { 9.9, EXIT_FINE, true }, { 10, EXIT_PROBLEM, true } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        count = 0;
        add_op(add_rank(0, 2), 1024, 60);
        add_op(add_rank(1, 2), 1024, 60);
        add_wait(&snapshots[1], 0, cases[i].seconds);
        assert_int_equal(judge(), cases[i].code);
        assert_int_equal(find("RANK_BEHIND") != NULL, cases[i].told);
    }
}

static void test_collective_numbers_may_wrap(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        add_rank(r, 2);
        add_op(&snapshots[r], 1024, 60)->collective = UINT32_MAX;
    }
    add_wait(&snapshots[1], 0, 20); /* number 0 */
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_BEHIND")->ranks, "0");
}

static void test_the_sender_that_does_not_send_is_named(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        add_rank(r, 3);
        add_op(&snapshots[r], 1024, 60);
    }
    make_pairwise(add_wait(&snapshots[1], 0, 12), MOTET_RECV, 0);
    make_pairwise(add_wait(&snapshots[2], 1, 11), MOTET_RECV, 1);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_null(find("RANK_BEHIND"));
    assert_string_equal(need("RANK_AWAITED")->ranks, "0");
    expect(need("RANK_AWAITED")->text,
            "rank 0 keeps others waiting: rank 1 waits for it in recv 1024 bytes from "
            "rank 0 for 12.0 s");
    assert_int_equal(report.groups[0].finding_count, 1); /* rank 1 only waits itself */
}

/* A group: rank 0 receives from 1 and 2; 1 waits for 0, 2 has not come at all. */
static void test_of_several_receives_at_once_the_absent_sender_is_named(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++)
        add_op(add_rank(r, 3), 1024, 60);
    make_pairwise(add_wait(&snapshots[0], 1, 30), MOTET_RECV, 1);
    make_pairwise(add_wait(&snapshots[0], 2, 12), MOTET_RECV, 2);
    make_pairwise(add_op(&snapshots[0], 8, 11), MOTET_SEND, 1); /* begun last, done */
    make_pairwise(add_wait(&snapshots[1], 0, 30), MOTET_RECV, 0);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_int_equal(report.groups[0].finding_count, 1);
    assert_string_equal(need("RANK_AWAITED")->ranks, "2");
    expect(print(false, false), "recv 1024 bytes from rank 1: waits for rank 1 for 30");
}

static void test_two_that_wait_for_each_other_are_a_circle(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++)
        make_pairwise(add_wait(add_rank(r, 2), 1 - r, 20 + r), MOTET_RECV, 1 - r);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANKS_WAIT_IN_CIRCLE")->ranks, "0-1");
    expect(need("RANKS_WAIT_IN_CIRCLE")->text,
            "ranks 0-1 wait for one another, rank 1 in recv 1024 bytes from rank 0");
}

static void test_all_in_one_collective_is_nobodys_lateness(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++)
        add_wait(add_rank(r, 3), (r + 1) % 3, 20);
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(need("ALL_PRESENT_SAME_OP")->text,
            "all 3 ranks are in collective number 1 (all_reduce 1024 x float, sum) and "
            "wait for 20.0 s");
    assert_null(find("RANK_BEHIND"));
}

static void test_a_rank_without_file_that_is_waited_for_is_named(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++)
        if (r != 1)
            add_wait(add_rank(r, 3), 1, 20);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_MISSING")->ranks, "1");
    expect(need("RANK_MISSING")->text,
            "rank 1 has no recorder file here: ranks 0, 2 wait for it in all_reduce");
    assert_int_equal(report.groups[0].missing_total, 1);
    assert_int_equal(report.groups[0].missing[0], 1);
}

static void test_missing_ranks_alone_are_a_note(void **state)
{
    (void)state;
    add_rank(2, 6);
    add_rank(4, 6);
    assert_int_equal(judge(), EXIT_FINE);
    expect(need("RANK_MISSING")->text,
            "4 of 6 ranks have no recorder file here: 0, 1, "
            "3, 5;");
}

static void test_a_claim_of_two_billion_ranks_is_survived(void **state)
{
    (void)state;
    add_rank(2000000000, INT32_MAX);
    assert_int_equal(judge(), EXIT_FINE);
    assert_true(report.groups[0].missing_total == INT32_MAX - 1);
    assert_int_equal(report.groups[0].missing_listed, STATUS_MISSING_MAX);
    print(false, true);
    print(true, true);
}

/* ---- processes ---- */

static void test_a_dead_rank_is_named_with_its_process(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        add_rank(r, 3);
        add_op(&snapshots[r], 1024, 60);
        add_wait(&snapshots[r], (r + 1) % 3, 1.5);
    }
    exists[1] = false;
    snapshots[1].file.heartbeat_ns = AGO(1.2);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_DEAD")->ranks, "1");
    assert_string_equal(need("RANK_DEAD")->text,
            "rank 1 is dead: process 4001 (python3) is gone, last sign of life "
            "2026-01-02 03:05:43 UTC");
    expect(print(false, false), "dead, last sign 1.2 s ago");
    expect(text, "had waited for rank 2 for 0.3 s\n");
}

static void test_what_became_of_a_process(void **state)
{
    static const struct {
        bool exists;
        char state;
        uint64_t start;
        const char *boot;
        uint32_t closed;
        status_process expected;
    } cases[] = {
        { true, 'S', 77, BOOT, 0, STATUS_ALIVE },
        { true, 'D', 77, BOOT, 0, STATUS_ALIVE },
        { true, 'T', 77, BOOT, 0, STATUS_STOPPED },
        { true, 't', 77, BOOT, 0, STATUS_STOPPED },
        { true, 'Z', 77, BOOT, 0, STATUS_DEAD },
        { true, 'S', 78, BOOT, 0, STATUS_DEAD }, /* the pid is somebody else's now */
        { false, 'S', 77, BOOT, 0, STATUS_DEAD },
        { true, 'S', 77, "another", 0, STATUS_UNKNOWN },
        { false, 'S', 77, "another", 0, STATUS_UNKNOWN },
        { false, 'S', 77, BOOT, 1, STATUS_CLOSED },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        motet_trace_process process = { cases[i].start, cases[i].state };
        status_rank rank;

        count = 0;
        rank.snapshot = add_rank(0, 1);
        rank.snapshot->file.closed = cases[i].closed;
        snprintf(rank.snapshot->file.boot_id, sizeof(rank.snapshot->file.boot_id), "%s",
                cases[i].boot);
        status_classify(&rank, NOW_NS, BOOT, cases[i].exists ? &process : NULL);
        assert_int_equal(rank.process, cases[i].expected);
    }
}

static void test_a_stopped_rank_comes_with_the_remedy(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++)
        add_op(add_rank(r, 2), 1024, 60);
    add_wait(&snapshots[0], 1, 20);
    processes[1].state = 'T';
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(need("RANK_STOPPED")->text, "rank 1 is stopped");
    expect(need("RANK_STOPPED")->text, "`kill -CONT 4001`");
    expect(need("RANK_BEHIND")->text, "; its process, 4001, is stopped;");
}

static void test_all_dead_without_operation_is_told_apart_from_a_crash(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        add_op(add_rank(r, 2), 1024, 60);
        exists[r] = false;
    }
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(need("RANK_DEAD")->text, "ranks 0-1 are dead: their processes are gone");
    expect(need("RANK_DEAD")->text, "may have ended without destroying");
    add_wait(&snapshots[0], 1, 20);
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_null(strstr(need("RANK_DEAD")->text, "without destroying"));
}

static void test_another_boot_is_unknown_and_undecided(void **state)
{
    (void)state;
    add_op(add_rank(0, 1), 1024, 5);
    snprintf(snapshots[0].file.boot_id, sizeof(snapshots[0].file.boot_id), "other");
    assert_int_equal(judge(), EXIT_UNDECIDED);
    expect(need("PROCESS_UNKNOWN")->text, "is unknown");
    expect(print(false, false), "done 2026-01-02 03:05:40 UTC");
    expect(text, "  unknown PROCESS_UNKNOWN: rank 0 was recorded in another boot");
    assert_null(strstr(text, " s ago"));
    expect(print(true, false), "\"heartbeat_age_s\": null");
    /* What is surely wrong stays so. */
    snapshots[0].file.failed = MOTET_ERR_REMOTE;
    assert_int_equal(judge(), EXIT_PROBLEM);
}

static void test_a_silent_heart_is_a_note(void **state)
{
    (void)state;
    add_rank(0, 1)->file.heartbeat_ns = AGO(5);
    assert_int_equal(judge(), EXIT_FINE);
    expect(need("HEARTBEAT_SILENT")->text, "rank 0 has no heartbeat");
}

/* ---- failures and mismatches ---- */

static void test_equal_sentences_are_said_once(void **state)
{
    (void)state;
    for (int r = 0; r < 4; r++) {
        add_op(add_rank(r, 4), 1024, 60);
        snapshots[r].file.failed = r == 3 ? 0 : MOTET_ERR_REMOTE;
        snprintf(snapshots[r].file.failure, sizeof(snapshots[r].file.failure), "%s",
                r == 1 ? "rank 3 closed its line" : "rank 3 died");
    }
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(print(false, false),
            "ranks 0, 2 failed with ncclRemoteError: rank 3 died\n");
    expect(text, "rank 1 failed with ncclRemoteError: rank 3 closed its line\n");
    assert_int_equal(report.groups[0].finding_count, 2);
    expect(print(true, false), "\"failed\": \"ncclRemoteError\"");
}

static void test_different_calls_stand_side_by_side(void **state)
{
    (void)state;
    for (int r = 0; r < 4; r++) {
        motet_trace_snapshot *s = add_rank(r, 4);

        add_op(s, 1024, 60);
        if (r == 0) /* a send between two collectives shifts no number */
            make_pairwise(add_op(s, 77, 55), MOTET_SEND, 1);
        add_op(s, r == 2 ? 2048 : 1024, 50);
        add_op(s, r == 2 ? 9 : 8, 40); /* a consequence */
    }
    snapshots[2].file.op[1].type = MOTET_BFLOAT16;
    assert_int_equal(judge(), EXIT_PROBLEM);
    expect(print(false, false),
            "  problem COLLECTIVE_MISMATCH: the ranks made different calls as "
            "collective number 2:\n"
            "            ranks 0-1, 3: all_reduce 1024 x float, sum (fingerprint "
            "00000400)\n"
            "            rank 2: all_reduce 2048 x bfloat16, sum (fingerprint "
            "00000800)\n");
    assert_int_equal(report.groups[0].finding_count, 1);
    assert_string_equal(need("COLLECTIVE_MISMATCH")->ranks, "0-3");
}

static void test_a_cause_stands_before_its_consequences(void **state)
{
    static const char *const order[] = { "COLLECTIVE_MISMATCH", "RANK_DEAD",
        "RANK_BEHIND", "RANK_FAILED" };

    (void)state;
    for (int r = 0; r < 3; r++) {
        add_op(add_rank(r, 3), r == 0 ? 1 : 2, 60);
        if (r != 1)
            add_wait(&snapshots[r], 1, 20);
    }
    exists[1] = false;
    snapshots[0].file.failed = MOTET_ERR_USAGE;
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_int_equal(report.groups[0].finding_count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(report.groups[0].findings[i].code, order[i]);
}

/* ---- groups and printing ---- */

static void test_communicators_are_kept_apart_live_ones_first(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        motet_trace_snapshot *s = add_rank(i / 3, 2);

        s->file.comm = (uint64_t)(i % 3) + 1;
        s->file.created_wall_ns += (unsigned)(i % 3) * MOTET_NS_PER_S;
        exists[i] = i % 3 == 1;
    }
    judge();
    assert_int_equal(report.group_count, 3);
    assert_int_equal(report.groups[0].comm, 2); /* runs */
    assert_int_equal(report.groups[1].comm, 3); /* newest of the dead */
    assert_int_equal(report.groups[2].comm, 1);
    for (int g = 0; g < 3; g++)
        assert_int_equal(report.groups[g].count, 2);
}

static void test_of_two_files_of_one_rank_the_living_one_counts(void **state)
{
    (void)state;
    add_rank(0, 2)->file.created_wall_ns += MOTET_NS_PER_S;
    add_rank(1, 2)->file.pid = 9;
    add_rank(1, 2)->file.created_wall_ns += MOTET_NS_PER_S;
    add_rank(0, 2)->file.pid = 8;
    exists[0] = exists[2] = false; /* newer, but dead */
    assert_int_equal(judge(), EXIT_FINE);
    assert_int_equal(report.groups[0].count, 2);
    assert_int_equal(report.groups[0].ranks[0].snapshot->file.pid, 8);
    assert_int_equal(report.groups[0].ranks[1].snapshot->file.pid, 9);
}

static void test_hosts_that_differ_are_shown_for_each_rank(void **state)
{
    (void)state;
    add_rank(0, 2);
    snprintf(add_rank(1, 2)->file.host, MOTET_TRACE_NAME, "node2");
    judge();
    expect(print(false, false), "  node1: no operation yet\n");
    expect(text, "  node2: no operation yet\n");
}

static void test_all_shows_the_last_sixteen_operations(void **state)
{
    motet_trace_snapshot *s = add_rank(0, 1);

    (void)state;
    for (int i = 0; i < 40; i++)
        add_op(s, 100 + (uint64_t)i, 50 - i);
    assert_int_equal(judge(), EXIT_FINE);
    print(false, true);
    expect(text, "all_reduce 124 x float");
    assert_null(strstr(text, "all_reduce 123 x float"));
    print(true, true);
    expect(text, "\"count\": 124");
    assert_null(strstr(text, "\"count\": 123"));
    expect(print(true, false), "\"count\": 139");
    assert_null(strstr(text, "\"count\": 138"));
}

static void test_calls_are_written_as_people_say_them(void **state)
{
    static const struct {
        motet_kind kind;
        int32_t peer;
        const char *expected;
    } cases[] = {
        { MOTET_ALL_REDUCE, -1, "all_reduce 5 x half, avg" },
        { MOTET_REDUCE, 2, "reduce 5 x half, avg to rank 2" },
        { MOTET_BROADCAST, 0, "broadcast 5 x half from rank 0" },
        { MOTET_ALL_GATHER, -1, "all_gather 5 x half" },
        { MOTET_SCATTER, 1, "scatter 5 x half from rank 1" },
        { MOTET_GATHER, 1, "gather 5 x half to rank 1" },
        { MOTET_SEND, 3, "send 5 bytes to rank 3" },
        { MOTET_RECV, 3, "recv 5 bytes from rank 3" },
        { MOTET_ALL_TO_ALL_V, -1, "all_to_allv 5 bytes" },
    };
    char buf[128];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        motet_trace_op op = { .count = 5,
            .kind = (uint8_t)cases[i].kind,
            .type = MOTET_FLOAT16,
            .redop = MOTET_AVG,
            .peer = cases[i].peer };

        assert_string_equal(status_call(&op, buf, sizeof(buf)), cases[i].expected);
    }
}

static void test_durations_are_written_in_fitting_units(void **state)
{
    static const struct {
        uint64_t ms;
        const char *expected;
    } cases[] = { { 0, "0.0 s" }, { 12345, "12.3 s" }, { 119999, "119.9 s" },
        { 250000, "4 min 10 s" }, { 10920000, "3 h 2 min" }, { 183600000, "2 d 3 h" } };
    char buf[32];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(status_duration(cases[i].ms * MOTET_NS_PER_MS, buf,
                                    sizeof(buf)),
                cases[i].expected);
}

static void test_long_lists_of_ranks_are_cut_whole_and_counted(void **state)
{
    bool chosen[RANKS_MAX];
    char buf[9];

    (void)state;
    for (int r = 0; r < RANKS_MAX; r++) {
        add_rank(r * 10, 100);
        chosen[r] = true;
    }
    judge();
    assert_int_equal(status_list_ranks(ranks, chosen, count, buf, sizeof(buf)),
            RANKS_MAX);
    assert_string_equal(buf, "0, 10");
}

static void test_files_that_could_not_be_read_are_told(void **state)
{
    static const status_unread unread = { "/dev/shm/x.trace",
        "it belongs to user 1000: Permission denied" };

    (void)state;
    memset(&report, 0, sizeof(report));
    report.unread = &unread;
    report.unread_count = 1;
    report.places = "'/dev/shm'";
    assert_int_equal(status_exit(&report), EXIT_UNDECIDED);
    expect(print(false, false), "not read: /dev/shm/x.trace: it belongs to user 1000");
    assert_null(strstr(text, "no communicator"));
    add_rank(0, 1);
    judge();
    report.unread = &unread;
    report.unread_count = 1;
    assert_int_equal(status_exit(&report), EXIT_FINE); /* the others' business */
    report.named = true;
    assert_int_equal(status_exit(&report), EXIT_UNDECIDED);
    expect(print(true, false), "\"reason\": \"it belongs to user 1000");
    expect(text, "\"exit_status\": 2");
}

static void test_too_many_findings_are_counted(void **state)
{
    enum { RANKS = STATUS_FINDINGS_MAX + 5 };
    static motet_trace_snapshot many[RANKS];
    static status_rank files[RANKS];

    (void)state;
    add_rank(0, RANKS);
    for (int r = 0; r < RANKS; r++) {
        many[r] = snapshots[0];
        many[r].file.rank = r;
        many[r].file.failed = MOTET_ERR_SYSTEM;
        snprintf(many[r].file.failure, sizeof(many[r].file.failure), "sentence %d", r);
        files[r].snapshot = &many[r];
        status_classify(&files[r], NOW_NS, BOOT, &processes[0]);
    }
    memset(&report, 0, sizeof(report));
    free(groups);
    report.groups = groups = status_judge(files, RANKS, &report.group_count);
    report.places = "";
    assert_int_equal(report.groups[0].findings_dropped, 5);
    expect(print(false, false), "and 5 more findings\n");
    assert_int_equal(status_exit(&report), EXIT_PROBLEM);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_a_running_job_is_fine_though_ranks_are_seen_at_different_moments),
        ROW(test_nothing_running_is_fine),
        ROW(test_no_operation_yet_is_fine),
        ROW(test_the_rank_behind_is_named_and_not_those_that_lead),
        ROW(test_the_larger_part_may_be_behind),
        ROW(test_those_further_ahead_count_as_waiting_too),
        ROW(test_a_rank_that_runs_while_another_is_behind_waits),
        ROW(test_a_short_wait_is_told_and_is_no_problem),
        ROW(test_collective_numbers_may_wrap),
        ROW(test_the_sender_that_does_not_send_is_named),
        ROW(test_of_several_receives_at_once_the_absent_sender_is_named),
        ROW(test_two_that_wait_for_each_other_are_a_circle),
        ROW(test_all_in_one_collective_is_nobodys_lateness),
        ROW(test_a_rank_without_file_that_is_waited_for_is_named),
        ROW(test_missing_ranks_alone_are_a_note),
        ROW(test_a_claim_of_two_billion_ranks_is_survived),
        ROW(test_a_dead_rank_is_named_with_its_process),
        ROW(test_what_became_of_a_process),
        ROW(test_a_stopped_rank_comes_with_the_remedy),
        ROW(test_all_dead_without_operation_is_told_apart_from_a_crash),
        ROW(test_another_boot_is_unknown_and_undecided),
        ROW(test_a_silent_heart_is_a_note),
        ROW(test_equal_sentences_are_said_once),
        ROW(test_different_calls_stand_side_by_side),
        ROW(test_a_cause_stands_before_its_consequences),
        ROW(test_communicators_are_kept_apart_live_ones_first),
        ROW(test_of_two_files_of_one_rank_the_living_one_counts),
        ROW(test_hosts_that_differ_are_shown_for_each_rank),
        ROW(test_all_shows_the_last_sixteen_operations),
        ROW(test_calls_are_written_as_people_say_them),
        ROW(test_durations_are_written_in_fitting_units),
        ROW(test_long_lists_of_ranks_are_cut_whole_and_counted),
        ROW(test_files_that_could_not_be_read_are_told),
        ROW(test_too_many_findings_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
