/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of motet status on made-up recorders. */
#include "status_fixture.h"

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

static void test_survivors_that_ended_later_are_not_the_cause(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        add_op(add_rank(r, 3), 1024, 60);
        exists[r] = false;
        if (r == 1)
            continue;
        add_op(&snapshots[r], 1024, 59)->state = MOTET_TRACE_FAILED;
        snapshots[r].file.failed = MOTET_ERR_REMOTE;
        snprintf(snapshots[r].file.failure, MOTET_TRACE_TEXT, "rank 1 has died");
    }
    assert_int_equal(judge(), EXIT_PROBLEM);
    assert_string_equal(need("RANK_DEAD")->ranks, "1");
    assert_null(strstr(need("RANK_DEAD")->text, "without destroying"));
    assert_string_equal(need("RANK_ENDED")->text,
            "ranks 0, 2 have ended after that failure");
    assert_false(need("RANK_ENDED")->problem);
    expect(need("RANK_BEHIND")->text,
            "rank 1 is behind, with 1 collective begun: the "
            "others have begun number 2 (all_reduce");
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
        ROW(test_survivors_that_ended_later_are_not_the_cause),
        ROW(test_what_became_of_a_process),
        ROW(test_a_stopped_rank_comes_with_the_remedy),
        ROW(test_all_dead_without_operation_is_told_apart_from_a_crash),
        ROW(test_another_boot_is_unknown_and_undecided),
        ROW(test_a_silent_heart_is_a_note),
        ROW(test_equal_sentences_are_said_once),
        ROW(test_different_calls_stand_side_by_side),
        ROW(test_a_cause_stands_before_its_consequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
