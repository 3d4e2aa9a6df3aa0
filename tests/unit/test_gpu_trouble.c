/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU kernels, built for the host: sends and receives, flags, the litmus, and what
 * kernels do in trouble. */
#include "gpu_buffer.h"

/* ---- Sends and receives ----------------------------------------------------------- */

enum { MESSAGES = 5 };
static const size_t message_bytes[MESSAGES] = { 0, 5, 4096, 700, 0 };

static void fill_message(uint8_t *p, size_t bytes, int from, int to, int message)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(i * 7 + (size_t)(from * 31 + to * 17 + message * 3));
}

/* All messages to and from every other rank, sends on the lower blocks. */
static void fill_pairs(rig *g, int rank, motet_gpu_pairs_args *a,
        buffer (*sent)[MESSAGES], buffer (*got)[MESSAGES])
{
    for (int m = 0; m < MESSAGES; m++) {
        for (int d = 1; d < g->nranks; d++) {
            int to = (rank + d) % g->nranks, from = (rank + g->nranks - d) % g->nranks;
            size_t bytes = message_bytes[m];
            uint8_t blocks = bytes > 1000 ? 3 : 1;

            buffer_make(&sent[to][m], bytes, 1);
            buffer_make(&got[from][m], bytes, 3);
            fill_message(sent[to][m].data, bytes, rank, to, m);
            a->transfer[a->count++] = (motet_gpu_transfer){ .buffer = sent[to][m].data,
                .bytes = bytes,
                .peer = (uint16_t)to,
                .blocks = blocks };
            a->transfer[a->count++] = (motet_gpu_transfer){ .buffer = got[from][m].data,
                .bytes = bytes,
                .peer = (uint16_t)from,
                .receive = 1,
                .blocks = blocks,
                .first = RIG_BLOCKS / 2 };
        }
    }
}

static void run_pairs(rig *g)
{
    static buffer sent[RIG_RANKS][RIG_RANKS][MESSAGES],
            got[RIG_RANKS][RIG_RANKS][MESSAGES];
    motet_gpu_pairs_args args[RIG_RANKS];
    rig_grid grid[RIG_RANKS];

    for (int r = 0; r < g->nranks; r++) {
        args[r] = rig_pairs_args(g, r);
        fill_pairs(g, r, &args[r], sent[r], got[r]);
    }
    for (int r = 0; r < g->nranks; r++)
        rig_launch(&grid[r], "motet_pairs", &args[r], RIG_BLOCKS);
    for (int r = 0; r < g->nranks; r++)
        assert_true(rig_join(g, &grid[r]));
    g->operations++;
    rig_assert_in_step(g);
    for (int r = 0; r < g->nranks; r++) {
        for (int p = 0; p < g->nranks; p++) {
            for (int m = 0; m < MESSAGES && p != r; m++) {
                buffer_check(&got[r][p][m]);
                assert_memory_equal(got[r][p][m].data, sent[p][r][m].data,
                        message_bytes[m]);
                free(got[r][p][m].mem);
                free(sent[p][r][m].mem);
            }
        }
    }
}

static void test_pairs_move_messages_of_any_size_and_wrap(void **state)
{
    rig g;

    (void)state;
    rig_init(&g, 3, RIG_BLOCKS, small, 0x7ffffffd);
    for (int r = 0; r < g.nranks; r++) {
        for (uint32_t b = 0; b < RIG_BLOCKS; b++) {
            for (uint32_t p = 0; p < 3; p++) {
                motet_gpu_pair_state *own = (motet_gpu_pair_state *)(void *)
                        motet_gpu_pair_state_at(g.own[r], &g.layout, b, p);
                motet_gpu_pair_line *line = (motet_gpu_pair_line *)(void *)
                        motet_gpu_pair_line_at(g.arena[r][rig_inbox(r, (int)p)],
                                &g.layout, b, p);

                own->sent = own->received = 0xfffffffe;
                line->published = line->taken = 0xfffffffe;
            }
        }
    }
    for (int i = 0; i < 3; i++)
        run_pairs(&g);
    rig_release(&g);
}

static void test_a_receive_of_another_size_is_an_error(void **state)
{
    uint8_t data[16] = { 0 };
    motet_gpu_pairs_args args[2];
    rig_grid grid[2];
    rig g;

    (void)state;
    rig_init(&g, 2, 1, small, 9);
    for (int r = 0; r < 2; r++) {
        args[r] = rig_pairs_args(&g, r);
        args[r].count = args[r].blocks = 1;
        args[r].transfer[0] = (motet_gpu_transfer){ .buffer = data + 8 * r,
            .bytes = r == 0 ? 8 : 4,
            .peer = (uint16_t)(1 - r),
            .receive = (uint8_t)r,
            .blocks = 1 };
        rig_launch(&grid[r], "motet_pairs", &args[r], 1);
    }
    for (int r = 0; r < 2; r++)
        assert_true(rig_join(&g, &grid[r]));
    assert_int_equal(g.control[0]->error, MOTET_GPU_OK);
    assert_int_equal(g.control[1]->error, MOTET_GPU_ERROR_SIZE);
    assert_int_equal(g.control[1]->error_peer, 0);
    assert_int_equal(g.control[1]->error_theirs, 8);
    assert_int_equal(g.control[1]->error_mine, 4);
    assert_int_equal(g.control[1]->done[0], args[1].ticket);
    rig_release(&g);
}

/* ---- Trouble ---------------------------------------------------------------------- */

typedef struct two_sides {
    rig g;
    uint32_t data[2][256];
    motet_gpu_args args[2];
} two_sides;

/* An all_reduce of two ranks, all of whose words are their own in step 0. */
static void two_sides_make(two_sides *t, uint32_t start)
{
    memset(t->data, 0, sizeof(t->data));
    rig_init(&t->g, 2, 1, small, start);
    for (int r = 0; r < 2; r++) {
        t->args[r] = rig_args(&t->g, r);
        t->args[r].send_mask = 1u << (1 - r);
        t->args[r].recv_mask = 3;
        t->args[r].type = 3 /* uint32 */;
        t->args[r].send = t->args[r].recv = (uint8_t *)t->data[r];
        t->args[r].bytes = sizeof(t->data[r]);
    }
}

static void await_waiting(const rig *g, int rank, int peer)
{
    const uint32_t *word = &g->control[rank]->waiting[0].peer_plus_1;
    struct timespec nap = { .tv_nsec = 100000 };

    for (int i = 0; i < 100000; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == (uint32_t)peer + 1)
            return;
        nanosleep(&nap, NULL);
    }
    fail_msg("rank %d does not show that it waits", rank);
}

static const char *const reducers[] = { "motet_ll_reduce", "motet_stage_reduce",
    "motet_twoshot_reduce" };

static void test_abort_frees_a_kernel_that_waits(void **state)
{
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        rig_grid grid;
        two_sides t;

        two_sides_make(&t, 100);
        rig_launch(&grid, reducers[k], &t.args[0], 1);
        await_waiting(&t.g, 0, 1);
        __atomic_store_n(&t.g.control[0]->abort, 1, __ATOMIC_RELEASE);
        assert_true(rig_join(&t.g, &grid));
        assert_int_equal(t.g.control[0]->error, MOTET_GPU_ERROR_ABORTED);
        assert_int_equal(t.g.control[0]->waiting[0].peer_plus_1, 0);
        assert_int_equal(t.g.control[0]->done[0], t.args[0].ticket);
        assert_int_equal(rig_state(&t.g, 0, 0)->position, 100);
        rig_release(&t.g);
    }
}

static void test_another_operation_of_a_peer_is_named(void **state)
{
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        rig_grid grid[2];
        two_sides t;
        uint32_t seen = 0;

        two_sides_make(&t, 0xfffffffe);
        t.args[1].fingerprint = 77;
        t.args[1].bytes = 4; /* so that rank 0 would wait for ever */
        for (int r = 0; r < 2; r++)
            rig_launch(&grid[r], reducers[k], &t.args[r], 1);
        for (int r = 0; r < 2; r++)
            assert_true(rig_join(&t.g, &grid[r]));
        for (int r = 0; r < 2; r++) {
            if (t.g.control[r]->error != MOTET_GPU_ERROR_FINGERPRINT)
                continue;
            seen++;
            assert_int_equal(t.g.control[r]->error_peer, 1 - r);
            assert_int_equal(t.g.control[r]->error_mine >> 32, t.args[r].fingerprint);
            assert_int_equal(t.g.control[r]->error_theirs >> 32,
                    t.args[1 - r].fingerprint);
        }
        assert_true(seen > 0);
        rig_release(&t.g);
    }
}

static void test_an_operation_that_ran_meanwhile_is_an_error(void **state)
{
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        rig_grid grid[2];
        two_sides t;

        two_sides_make(&t, 50);
        rig_launch(&grid[0], reducers[k], &t.args[0], 1);
        await_waiting(&t.g, 0, 1);
        __atomic_store_n(&rig_state(&t.g, 0, 0)->position, 51, __ATOMIC_RELEASE);
        rig_launch(&grid[1], reducers[k], &t.args[1], 1);
        for (int r = 0; r < 2; r++)
            assert_true(rig_join(&t.g, &grid[r]));
        assert_int_equal(t.g.control[0]->error, MOTET_GPU_ERROR_OVERLAP);
        assert_int_equal(t.g.control[1]->error, MOTET_GPU_OK);
        rig_release(&t.g);
    }
}

static void test_a_closed_communicator_touches_nothing(void **state)
{
    static const char *const others[] = { "motet_ll_copy", "motet_stage_copy",
        "motet_flag" };

    (void)state;
    for (size_t k = 0; k < 6; k++) {
        motet_gpu_flag_args args = { .steps = 1, .first = 1, .last = 1, .filled = 1 };
        rig_grid grid;
        two_sides t;
        uint8_t *before;

        two_sides_make(&t, 5);
        rig_state(&t.g, 0, 0)->closed = 1;
        before = rig_memory(t.g.layout.arena_bytes);
        memcpy(before, t.g.arena[1][rig_inbox(1, 0)], t.g.layout.arena_bytes);
        t.args[0].recv = NULL; /* not even its own buffers */
        args.op = t.args[0];   /* first in it, so that it serves all */
        args.filled_mask = args.read_mask = args.data_mask = 2;
        rig_launch(&grid, k < 3 ? reducers[k] : others[k - 3], &args, 1);
        assert_true(rig_join(&t.g, &grid));
        assert_memory_equal(t.g.arena[1][rig_inbox(1, 0)], before,
                t.g.layout.arena_bytes);
        assert_int_equal(t.g.control[0]->error, MOTET_GPU_OK);
        assert_int_equal(t.g.control[0]->done[0], t.args[0].ticket);
        assert_int_equal(rig_state(&t.g, 0, 0)->position, 5);
        assert_int_equal(rig_state(&t.g, 0, 0)->closed, 1);
        free(before);
        rig_release(&t.g);
    }
}

/* ---- Flags and litmus ------------------------------------------------------------- */

/* All say what they filled and wait for the others', step by step, on two "lanes". */
static void test_flags_order_the_steps_of_an_operation(void **state)
{
    enum { STEPS = 3, LAUNCHES = STEPS + 2 };
    rig g;

    (void)state;
    rig_init(&g, 3, 1, small, 0xfffffffe);
    for (uint32_t i = 0; i < 2 * LAUNCHES; i++) {
        motet_gpu_flag_args args[RIG_RANKS];
        rig_grid grid[RIG_RANKS];
        uint32_t step = i % LAUNCHES;

        for (int r = 0; r < 3; r++) {
            uint32_t others = 7u & ~(1u << r);
            bool runs = step > 0 && step <= STEPS;

            args[r] = (motet_gpu_flag_args){ .op = rig_args(&g, r),
                .steps = STEPS,
                .first = step == 0,
                .last = step == LAUNCHES - 1,
                .filled_mask = runs ? others : 0,
                .filled = step,
                .read_mask = step > 1 ? others : 0,
                .read = step - 1,
                .credit_mask = runs ? others : 0,
                .credit = step > 1 ? step - 1 : 0,
                .data_mask = runs ? others : 0,
                .data = step };
            args[r].op.fingerprint = 0x2000u + i / LAUNCHES;
            rig_launch(&grid[r], "motet_flag", &args[r], 1);
        }
        for (int r = 0; r < 3; r++)
            assert_true(rig_join(&g, &grid[r]));
        g.operations++;
        rig_assert_in_step(&g);
        assert_int_equal(rig_state(&g, 0, 0)->last,
                i < LAUNCHES - 1 ? 0 : 0x2000u + (i + 1) / LAUNCHES - 1);
    }
    rig_release(&g);
}

/* Rank 0 sends rank 1 messages of so many steps, one after the other. */
static void test_flags_of_messages_wait_for_each_other(void **state)
{
    static const uint32_t steps[] = { 1, 2, 9 };
    rig g;

    (void)state;
    rig_init(&g, 2, 1, small, 5);
    for (size_t m = 0; m < sizeof(steps) / sizeof(*steps); m++) {
        for (uint32_t k = 0; k <= steps[m]; k++) {
            motet_gpu_pair_flag_args args[2];
            rig_grid grid[2];

            for (int r = 0; r < 2; r++)
                args[r] = (motet_gpu_pair_flag_args){ .op = rig_args(&g, r),
                    .peer = (uint32_t)(1 - r),
                    .receive = (uint32_t)r };
            args[0].told = k == 0 ? 0 : k + 1;
            args[0].awaited = k == steps[m] ? k : k + 1;
            args[0].sizes = k == 1;
            args[1].told = k + 1;
            args[1].awaited = k == 0 ? 0 : k + 1;
            args[1].sizes = k == 1;
            for (int r = 0; r < 2; r++) {
                args[r].op.bytes = 1000 + m;
                args[r].ends = k == steps[m] ? k + 1 : 0;
                rig_launch(&grid[r], "motet_pair_flag", &args[r], 1);
            }
            assert_true(rig_join(&g, &grid[0]));
            assert_true(rig_join(&g, &grid[1]));
            assert_int_equal(g.control[1]->error, MOTET_GPU_OK);
        }
    }
    rig_release(&g);
}

static void test_a_message_of_another_size_is_an_error(void **state)
{
    motet_gpu_pair_flag_args args[2];
    rig_grid grid[2];
    rig g;

    (void)state;
    rig_init(&g, 2, 1, small, 5);
    for (int r = 0; r < 2; r++) {
        args[r] = (motet_gpu_pair_flag_args){ .op = rig_args(&g, r),
            .peer = (uint32_t)(1 - r),
            .receive = (uint32_t)r,
            .sizes = 1 };
        args[r].op.bytes = 100 + (uint64_t)r;
    }
    args[0].told = args[1].awaited = 2;
    rig_launch(&grid[0], "motet_pair_flag", &args[0], 1);
    rig_launch(&grid[1], "motet_pair_flag", &args[1], 1);
    assert_true(rig_join(&g, &grid[0]));
    assert_true(rig_join(&g, &grid[1]));
    assert_int_equal(g.control[1]->error, MOTET_GPU_ERROR_SIZE);
    assert_int_equal(g.control[1]->error_theirs, 100);
    assert_int_equal(g.control[1]->error_mine, 101);
    assert_int_equal(rig_state(&g, 1, 0)->closed, 1);
    rig_release(&g);
}

static void test_litmus_sees_all_words_in_order(void **state)
{
    motet_gpu_args args[2];
    uint32_t seen[2][4];
    rig g;

    (void)state;
    rig_init(&g, 2, 2, small, 0xffffff00);
    for (int r = 0; r < 2; r++) {
        args[r] = rig_args(&g, r);
        args[r].send_mask = args[r].recv_mask = 1u << (1 - r);
        args[r].bytes = 2000;
        args[r].send_stride = 256;
        args[r].recv = (uint8_t *)seen[r];
    }
    rig_run(&g, "motet_litmus", args);
    rig_assert_in_step(&g);
    for (int r = 0; r < 2; r++)
        for (int b = 0; b < 2; b++) {
            assert_int_equal(seen[r][2 * b], 0);
            assert_int_equal(seen[r][2 * b + 1], 2000);
        }
    rig_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_move_messages_of_any_size_and_wrap),
        cmocka_unit_test(test_a_receive_of_another_size_is_an_error),
        cmocka_unit_test(test_abort_frees_a_kernel_that_waits),
        cmocka_unit_test(test_another_operation_of_a_peer_is_named),
        cmocka_unit_test(test_an_operation_that_ran_meanwhile_is_an_error),
        cmocka_unit_test(test_a_closed_communicator_touches_nothing),
        cmocka_unit_test(test_flags_order_the_steps_of_an_operation),
        cmocka_unit_test(test_flags_of_messages_wait_for_each_other),
        cmocka_unit_test(test_a_message_of_another_size_is_an_error),
        cmocka_unit_test(test_litmus_sees_all_words_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
