/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of two to four ranks: collectives, windows, and every way in which a wait can
 * end. */
#include "engine_rig.h"

#include "engine/window.h"

static const motet_kind kinds[] = { MOTET_ALL_REDUCE, MOTET_REDUCE, MOTET_BROADCAST,
    MOTET_ALL_GATHER, MOTET_REDUCE_SCATTER, MOTET_ALL_TO_ALL, MOTET_GATHER,
    MOTET_SCATTER };
#define NUM_KINDS (sizeof(kinds) / sizeof(*kinds))

#define MAX_COUNT 40000

static motet_op int_op(motet_kind kind, int root, void *send, void *recv, size_t count)
{
    return (motet_op){ .kind = kind,
        .type = MOTET_INT32,
        .redop = MOTET_SUM,
        .root = motet_kind_table[kind].rooted ? root : -1,
        .send = send,
        .recv = recv,
        .count = count };
}

static motet_op one_int(motet_kind kind, int root, int32_t *buf)
{
    return int_op(kind, root, buf, buf, 1);
}

/* ---- collectives ---- */

static void all_kinds_and_sizes(rig_rank *rank)
{
    static const size_t counts[] = { 1, 6, 25, 1023, 4097, 9000, MAX_COUNT };
    size_t n = (size_t)rank->g->n;
    int32_t *send = malloc(MAX_COUNT * n * sizeof(*send));
    int32_t *recv = malloc(MAX_COUNT * n * sizeof(*recv));
    unsigned salt = 0;

    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
        for (size_t k = 0; k < NUM_KINDS && send != NULL && recv != NULL; k++) {
            motet_op op = int_op(kinds[k], (int)((c + k) % n), send, recv, counts[c]);

            rig_collective(rank, &op, ++salt);
        }
    free(send);
    free(recv);
}

static void test_collectives_are_right_wherever_positions_start(void **state)
{
    static const uint64_t epochs[] = { 0, 2147483640ull, 4294967280ull,
        INT64_MAX - 10ull };

    (void)state;
    for (size_t e = 0; e < sizeof(epochs) / sizeof(*epochs); e++)
        for (int n = 2; n <= RIG_RANKS; n++) {
            rig *g = rig_make(&(
                    rig_options){ .n = n, .epoch = epochs[e], .oversubscribed = true });

            rig_run_well(g, all_kinds_and_sizes, NULL);
            assert_true(g->engine[0].position > epochs[e] + 20);
            rig_free(g);
        }
}

static void test_collectives_are_right_with_every_chunk_and_algorithm(void **state)
{
    static const rig_options options[] = {
        { .n = 3, .board_chunk = 4096, .oversubscribed = true },
        { .n = 3, .board_chunk = 1u << 20 },
        { .n = 4, .algo = "all_reduce:board", .oversubscribed = true },
        { .n = 3, .algo = "all_reduce:twoshot", .oversubscribed = true },
        { .n = 2, .algo = "all_reduce:twoshot", .board_chunk = 4096 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        rig *g = rig_make(&options[i]);

        rig_run_well(g, all_kinds_and_sizes, NULL);
        rig_free(g);
    }
}

/* A rank far ahead of the others: more one-way operations than the board has slots. */
static void many_broadcasts(rig_rank *rank)
{
    int32_t buf[40] = { 0 };

    if (rank->rank == 2)
        rig_sleep_ms(30);
    for (unsigned i = 0; i < 200; i++) {
        motet_op op = int_op(MOTET_BROADCAST, 0, buf, buf, 40);

        rig_collective(rank, &op, i);
    }
}

static void test_a_fast_poster_does_not_overrun_a_slow_reader(void **state)
{
    rig *g = rig_make(&(rig_options){ .n = 3, .epoch = 4294967290ull });

    (void)state;
    rig_run_well(g, many_broadcasts, NULL);
    rig_free(g);
}

/* ---- windows ---- */

#define WINDOW_BYTES (MAX_COUNT * RIG_RANKS * sizeof(int32_t) + 4096)

typedef struct window_use {
    uint8_t *send[RIG_RANKS], *recv[RIG_RANKS];
    unsigned send_in, recv_in; /* bits: ranks whose buffer lies in the window */
    size_t shift;              /* bytes into the window                       */
} window_use;

static void in_windows(rig_rank *rank)
{
    /* 8192 and 8195: the last slices of twoshot are short or empty. */
    static const size_t counts[] = { 4095, 4096, 8192, 8195, MAX_COUNT };
    const window_use *use = rank->arg;
    unsigned bit = 1u << rank->rank, salt = 0;
    size_t n = (size_t)rank->g->n;
    int32_t *plain_send = malloc(MAX_COUNT * n * sizeof(int32_t));
    int32_t *plain_recv = malloc(MAX_COUNT * n * sizeof(int32_t));
    uint8_t *send = use->send_in & bit ? use->send[rank->rank] + use->shift
                                       : (uint8_t *)plain_send;
    uint8_t *recv = use->recv_in & bit ? use->recv[rank->rank] + use->shift
                                       : (uint8_t *)plain_recv;

    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
        for (size_t k = 0; k < NUM_KINDS; k++) {
            motet_op op = int_op(kinds[k], (int)((c + k) % n), send, recv, counts[c]);

            rig_collective(rank, &op, ++salt);
        }
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
        motet_op op = int_op(MOTET_ALL_REDUCE, -1, recv, recv, counts[c]);

        rig_collective(rank, &op, ++salt);
    }
    free(plain_send);
    free(plain_recv);
}

static void test_windows_are_read_in_place_whoever_has_them(void **state)
{
    static const struct {
        int n;
        unsigned send_in, recv_in;
        size_t shift;
        const char *algo;
    } uses[] = {
        { 3, 7, 7, 0, NULL },
        { 3, 7, 7, 4096, NULL },
        { 3, 5, 2, 12, NULL },
        { 2, 3, 0, 4, NULL },
        { 4, 15, 15, 8, "all_reduce:board" },
        { 4, 6, 9, 0, "all_reduce:twoshot" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
        window_use use = { .send_in = uses[i].send_in,
            .recv_in = uses[i].recv_in,
            .shift = uses[i].shift };
        rig *g = rig_make(&(rig_options){ .n = uses[i].n,
                .algo = uses[i].algo,
                .oversubscribed = true });

        rig_window(g, 7, 3, WINDOW_BYTES, use.send);
        rig_window(g, 9, 0, WINDOW_BYTES, use.recv);
        rig_run_well(g, in_windows, &use);
        rig_window_free(g, 3);
        rig_window_free(g, 0);
        rig_free(g);
    }
}

/* The buffer is the whole window: not a byte beyond it may be asked for. */
static void exactly_the_window(rig_rank *rank)
{
    const window_use *use = rank->arg;
    motet_op op = int_op(MOTET_ALL_REDUCE, -1, use->send[rank->rank],
            use->recv[rank->rank], 8192);

    rig_collective(rank, &op, 1);
    op.send = op.recv;
    rig_collective(rank, &op, 2);
}

static void test_empty_last_slices_of_a_window_are_no_error(void **state)
{
    window_use use = { .shift = 0 };
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    rig_window(g, 1, 0, 8192 * sizeof(int32_t), use.send);
    rig_window(g, 2, 1, 8192 * sizeof(int32_t), use.recv);
    rig_run_well(g, exactly_the_window, &use);
    rig_window_free(g, 0);
    rig_window_free(g, 1);
    rig_free(g);
}

/* Rank 0 sends from a window that rank 1 does not have any more. */
static void test_a_window_that_a_reader_has_dropped_is_named(void **state)
{
    window_use use = { .shift = 0 };
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    rig_window(g, 6, 0, 8192 * sizeof(int32_t), use.send);
    rig_window(g, 8, 1, 8192 * sizeof(int32_t), use.recv);
    atomic_store(&g->engine[1].window[0].number, 0);
    rig_run(g, exactly_the_window, &use, ranks);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].result, MOTET_ERR_USAGE);
        assert_non_null(strstr(ranks[r].text, "window number 6"));
    }
    rig_window_free(g, 0);
    rig_window_free(g, 1);
    rig_free(g);
}

static void test_a_window_is_found_only_where_all_bytes_lie_in_it(void **state)
{
    static uint8_t memory[1000];
    motet_window_part part[2] = { { .base = memory + 100, .bytes = 500 },
        { .base = NULL, .bytes = 500 } };
    motet_window windows[MOTET_WINDOWS] = { 0 };
    uint64_t offset = 0;

    (void)state;
    windows[63].part = part;
    atomic_store(&windows[63].number, 5);
    assert_int_equal(motet_window_find(windows, 0, memory + 100, 500, &offset), 5);
    assert_int_equal(offset, 0);
    assert_int_equal(motet_window_find(windows, 0, memory + 599, 1, &offset), 5);
    assert_int_equal(offset, 499);
    assert_int_equal(motet_window_find(windows, 0, memory + 99, 10, &offset), 0);
    assert_int_equal(motet_window_find(windows, 0, memory + 100, 501, &offset), 0);
    assert_int_equal(motet_window_find(windows, 0, memory + 599, 2, &offset), 0);
    assert_int_equal(motet_window_find(windows, 0, memory + 101, SIZE_MAX, &offset), 0);
    assert_int_equal(motet_window_find(windows, 1, memory + 100, 1, &offset), 0);
    assert_ptr_equal(motet_window_at(windows, 5, 0, 499, 1), memory + 599);
    assert_null(motet_window_at(windows, 5, 0, 499, 2));
    assert_null(motet_window_at(windows, 5, 0, UINT64_MAX, 2));
    assert_null(motet_window_at(windows, 5, 0, 0, 501));
    assert_null(motet_window_at(windows, 5, 1, 0, 1));
    assert_null(motet_window_at(windows, 4, 0, 0, 1));
}

/* ---- ranks that disagree ---- */

static void count_of_its_own(rig_rank *rank)
{
    int32_t buf[8] = { 0 };
    motet_op op = int_op(MOTET_ALL_REDUCE, -1, buf, buf, rank->rank == 1 ? 7 : 8);

    rig_keep(rank, motet_engine_collective(rank->engine, &op));
}

static void test_both_calls_stand_side_by_side(void **state)
{
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    rig_run(g, count_of_its_own, NULL, ranks);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].result, MOTET_ERR_USAGE);
        assert_non_null(strstr(ranks[r].text, "all_reduce(count 7, int32, sum)"));
        assert_non_null(strstr(ranks[r].text, "all_reduce(count 8, int32, sum)"));
        assert_non_null(strstr(ranks[r].text, "number 1"));
    }
    rig_free(g);
}

/* Both are the root of a broadcast: nobody reads anything, and both succeed. */
static void two_roots(rig_rank *rank)
{
    int32_t buf[8] = { 0 };
    int later = *(int *)rank->arg;
    motet_op op = one_int(MOTET_BROADCAST, rank->rank, buf);

    if (!rig_keep(rank, motet_engine_collective(rank->engine, &op)))
        return;
    op = one_int(MOTET_ALL_REDUCE, -1, buf);
    op.count = 0;
    for (int i = 0; i < later; i++) /* nothing moves in these */
        if (!rig_keep(rank, motet_engine_collective(rank->engine, &op)))
            return;
    op.count = 1;
    rig_keep(rank, motet_engine_collective(rank->engine, &op));
}

static void test_a_disagreement_that_nobody_saw_is_found_later(void **state)
{
    static const int later[] = { 0, 5, 40 };

    (void)state;
    for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++) {
        rig_rank ranks[RIG_RANKS];
        rig *g = rig_make(&(rig_options){ .n = 2 });
        int n = later[i];

        rig_run(g, two_roots, &n, ranks);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(ranks[r].result, MOTET_ERR_USAGE);
            if (n < MOTET_CALLS) {
                assert_non_null(strstr(ranks[r].text, "root 0"));
                assert_non_null(strstr(ranks[r].text, "root 1"));
            } else {
                assert_non_null(strstr(ranks[r].text, "have disagreed"));
            }
        }
        rig_free(g);
    }
}

static void only_roots(rig_rank *rank)
{
    int32_t buf = 0;
    motet_op op = one_int(MOTET_BROADCAST, rank->rank, &buf);

    rig_keep(rank, motet_engine_collective(rank->engine, &op));
}

static void test_a_poll_finds_a_disagreement_without_another_operation(void **state)
{
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    rig_run_well(g, only_roots, NULL);
    assert_int_equal(motet_engine_poll(&g->engine[0]), MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "root 1"));
    assert_int_equal(motet_engine_poll(&g->engine[1]), MOTET_ERR_USAGE);
    rig_free(g);
}

/* ---- waits that end ---- */

/* The ranks of the mask call an all_reduce, after a time. */
typedef struct callers {
    unsigned mask;
    unsigned after_ms[RIG_RANKS];
    uint32_t timeout_ms;
} callers;

static void some_call(rig_rank *rank)
{
    const callers *who = rank->arg;
    int32_t buf = 1;
    motet_op op = one_int(MOTET_ALL_REDUCE, -1, &buf);

    if ((who->mask & 1u << rank->rank) == 0)
        return;
    op.timeout_ms = who->timeout_ms;
    if (who->after_ms[rank->rank] != 0)
        rig_sleep_ms(who->after_ms[rank->rank]);
    rig_keep(rank, motet_engine_collective(rank->engine, &op));
}

static void expect_end(const rig_rank *rank, motet_result result, const char *words,
        uint64_t at_least_ms, uint64_t at_most_ms)
{
    if (rank->result != result || strstr(rank->text, words) == NULL)
        fail_msg("rank %d: result %d, expected %d; \"%s\" has no \"%s\"", rank->rank,
                (int)rank->result, (int)result, rank->text, words);
    if (rank->took_ms < at_least_ms || rank->took_ms > at_most_ms)
        fail_msg("rank %d: took %llu ms", rank->rank,
                (unsigned long long)rank->took_ms);
}

static void test_a_deadline_names_who_has_not_come(void **state)
{
    static const callers two = { .mask = 3 },
                         one_call = { .mask = 3, .timeout_ms = 50 };
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 3, .timeout_ms = 100 });

    (void)state;
    rig_run(g, some_call, (void *)(uintptr_t)&two, ranks);
    for (int r = 0; r < 2; r++)
        expect_end(&ranks[r], MOTET_ERR_REMOTE,
                "rank 2 (pid 10002), which has not come", 90, 20000);
    rig_free(g);

    g = rig_make(&(rig_options){ .n = 3, .timeout_ms = 3600000 });
    rig_run(g, some_call, (void *)(uintptr_t)&one_call, ranks);
    for (int r = 0; r < 2; r++)
        expect_end(&ranks[r], MOTET_ERR_REMOTE, "rank 2 (pid 10002)", 45, 20000);
    rig_free(g);
}

static void test_a_death_ends_the_waits_for_the_dead_and_for_others(void **state)
{
    static const callers two = { .mask = 3 };
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    motet_engine_peer_died(&g->engine[0], 2);
    motet_engine_peer_died(&g->engine[1], 2);
    rig_run(g, some_call, (void *)(uintptr_t)&two, ranks);
    for (int r = 0; r < 2; r++)
        expect_end(&ranks[r], MOTET_ERR_REMOTE, "rank 2 (pid 10002) has died", 0, 5000);
    rig_free(g);
}

/* Rank 3 is dead, but nobody needs it: rank 0 gets its broadcast from rank 1. */
static void broadcast_of_one(rig_rank *rank)
{
    int32_t buf = 5;
    motet_op op = one_int(MOTET_BROADCAST, 1, &buf);

    if (rank->rank == 1)
        rig_sleep_ms(100);
    if (rank->rank <= 1)
        rig_keep(rank, motet_engine_collective(rank->engine, &op));
}

static void test_what_is_on_its_way_when_a_rank_dies_still_arrives(void **state)
{
    rig *g = rig_make(&(rig_options){ .n = 4 });

    (void)state;
    motet_engine_peer_died(&g->engine[0], 3);
    rig_run_well(g, broadcast_of_one, NULL);
    rig_free(g);
}

static void test_a_wait_for_others_outlives_a_death_by_its_grace_only(void **state)
{
    static const callers one = { .mask = 1 };
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    motet_engine_peer_died(&g->engine[0], 2); /* it waits for rank 1 first */
    rig_run(g, some_call, (void *)(uintptr_t)&one, ranks);
    expect_end(&ranks[0], MOTET_ERR_REMOTE, "rank 2 (pid 10002) has died", 400, 5000);
    rig_free(g);
}

static void test_what_a_rank_sent_before_it_left_is_there(void **state)
{
    int32_t buf = 41;
    motet_op op = one_int(MOTET_BROADCAST, 1, &buf);
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    assert_int_equal(motet_engine_collective(&g->engine[1], &op), MOTET_OK);
    atomic_store(&g->arena[1][1].head->life, MOTET_LIFE_LEFT);
    buf = 0;
    assert_int_equal(motet_engine_collective(&g->engine[0], &op), MOTET_OK);
    assert_int_equal(buf, 41);
    assert_int_equal(motet_engine_collective(&g->engine[0], &op), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "rank 1 (pid 10001) has destroyed"));
    rig_free(g);
}

/* ---- failure ---- */

static void test_the_first_failure_stays_and_reaches_the_peers(void **state)
{
    int32_t buf = 0;
    motet_op op = one_int(MOTET_ALL_REDUCE, -1, &buf);
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    assert_int_equal(motet_engine_poll(&g->engine[1]), MOTET_OK);
    assert_int_equal(motet_engine_fail(&g->engine[0], MOTET_ERR_SYSTEM, 0, "cause %d",
                             1),
            MOTET_ERR_SYSTEM);
    assert_int_equal(motet_engine_fail(&g->engine[0], MOTET_ERR_REMOTE, 2, "cause 2"),
            MOTET_ERR_SYSTEM);
    assert_string_equal(motet_error_trail(), "cause 1");
    assert_int_equal(motet_engine_poll(&g->engine[1]), MOTET_ERR_SYSTEM);
    assert_string_equal(motet_error_trail(), "cause 1");
    assert_int_equal(motet_engine_collective(&g->engine[2], &op), MOTET_ERR_SYSTEM);
    assert_int_equal(motet_engine_collective(&g->engine[0], &op), MOTET_ERR_SYSTEM);
    rig_free(g);
}

static void *fail_soon(void *arg)
{
    rig_sleep_ms(50);
    (void)motet_engine_fail(arg, MOTET_ERR_REMOTE, 0, "given up by hand");
    return NULL;
}

static void test_a_failure_from_another_thread_ends_a_wait(void **state)
{
    static const callers one = { .mask = 1 };
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 2 });
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, fail_soon, &g->engine[0]), 0);
    rig_run(g, some_call, (void *)(uintptr_t)&one, ranks);
    pthread_join(thread, NULL);
    expect_end(&ranks[0], MOTET_ERR_REMOTE, "given up by hand", 0, 5000);
    rig_free(g);
}

static void test_a_closed_engine_refuses_and_tells_nobody(void **state)
{
    int32_t buf = 0;
    motet_op op = one_int(MOTET_ALL_REDUCE, -1, &buf);
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    motet_engine_close(&g->engine[0]);
    g->engine[0].arena = NULL; /* it is not looked at any more */
    assert_int_equal(motet_engine_collective(&g->engine[0], &op), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_engine_fail(&g->engine[0], MOTET_ERR_REMOTE, 1, "late"),
            MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_engine_poll(&g->engine[1]), MOTET_OK);
    rig_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_are_right_wherever_positions_start),
        cmocka_unit_test(test_collectives_are_right_with_every_chunk_and_algorithm),
        cmocka_unit_test(test_a_fast_poster_does_not_overrun_a_slow_reader),
        cmocka_unit_test(test_windows_are_read_in_place_whoever_has_them),
        cmocka_unit_test(test_empty_last_slices_of_a_window_are_no_error),
        cmocka_unit_test(test_a_window_that_a_reader_has_dropped_is_named),
        cmocka_unit_test(test_a_window_is_found_only_where_all_bytes_lie_in_it),
        cmocka_unit_test(test_both_calls_stand_side_by_side),
        cmocka_unit_test(test_a_disagreement_that_nobody_saw_is_found_later),
        cmocka_unit_test(test_a_poll_finds_a_disagreement_without_another_operation),
        cmocka_unit_test(test_a_deadline_names_who_has_not_come),
        cmocka_unit_test(test_a_death_ends_the_waits_for_the_dead_and_for_others),
        cmocka_unit_test(test_what_is_on_its_way_when_a_rank_dies_still_arrives),
        cmocka_unit_test(test_a_wait_for_others_outlives_a_death_by_its_grace_only),
        cmocka_unit_test(test_what_a_rank_sent_before_it_left_is_there),
        cmocka_unit_test(test_the_first_failure_stays_and_reaches_the_peers),
        cmocka_unit_test(test_a_failure_from_another_thread_ends_a_wait),
        cmocka_unit_test(test_a_closed_engine_refuses_and_tells_nobody),
    };

    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
