/* SPDX-License-Identifier: Apache-2.0 */
/* How motet status groups files, and how it prints them. */
#include "status_fixture.h"

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

static void test_the_path_is_shown_once_it_is_known(void **state)
{
    motet_trace_snapshot *s = add_rank(0, 1);

    (void)state;
    judge();
    print(false, false);
    assert_null(strstr(text, "path"));
    snprintf(s->file.path, sizeof(s->file.path), "direct+staged");
    judge();
    expect(print(false, false), ", path direct+staged, made ");
    expect(print(true, false), "\"path\": \"direct+staged\"");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_communicators_are_kept_apart_live_ones_first),
        ROW(test_of_two_files_of_one_rank_the_living_one_counts),
        ROW(test_hosts_that_differ_are_shown_for_each_rank),
        ROW(test_the_path_is_shown_once_it_is_known),
        ROW(test_all_shows_the_last_sixteen_operations),
        ROW(test_calls_are_written_as_people_say_them),
        ROW(test_durations_are_written_in_fitting_units),
        ROW(test_long_lists_of_ranks_are_cut_whole_and_counted),
        ROW(test_files_that_could_not_be_read_are_told),
        ROW(test_too_many_findings_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
