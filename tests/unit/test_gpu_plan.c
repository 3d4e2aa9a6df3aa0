/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for GPUs are pure: what must be alike on all ranks is, what one sends another
 * takes, and arenas keep within their budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/gpu.h"

#include <string.h>

static const size_t counts[] = { 0, 1, 2, 3, 7, 1023, 1024, 4314, 65537, 1048577,
    (size_t)1 << 33 };
static const int sizes[] = { 1, 2, 3, 4, 5, 8, 16 };
static const motet_gpu_path paths[] = { MOTET_GPU_PATH_DIRECT, MOTET_GPU_PATH_STAGED };

static void plan_all(const motet_op *op, int n, const motet_gpu_constants *c,
        motet_gpu_plan *out)
{
    for (int r = 0; r < n; r++)
        motet_gpu_plan_make(op, r, n, c, 24, &out[r]);
}

/* Rank p takes from rank r exactly if r sends to p, or is p itself. */
static void check_masks(const motet_op *op, const motet_gpu_plan *plan, int n)
{
    for (int r = 0; r < n; r++) {
        for (int p = 0; p < n; p++) {
            bool sends = (plan[r].send_mask >> p & 1) != 0;
            bool takes = (plan[p].recv_mask >> r & 1) != 0;

            assert_true(p != r || !sends);
            if (p != r)
                assert_int_equal(sends, takes);
        }
        assert_true(plan[r].send_mask < 1u << n && plan[r].recv_mask < 1u << n);
        assert_true(op->root < 0 || op->root == r ||
                (plan[r].send_mask & ~(1u << op->root)) == 0);
    }
}

static void check_op(const motet_op *op, int n, const motet_gpu_constants *c)
{
    motet_gpu_plan plan[MOTET_GPU_RANKS];

    plan_all(op, n, c, plan);
    for (int r = 0; r < n; r++) {
        assert_int_equal(plan[r].protocol, plan[0].protocol);
        assert_int_equal(plan[r].blocks, plan[0].blocks);
        assert_int_equal(plan[r].piece, plan[0].piece);
        if (op->count == 0) {
            assert_int_equal(plan[r].protocol, MOTET_GPU_NOTHING);
            continue;
        }
        assert_in_range(plan[r].blocks, 1, 24);
        assert_int_equal(plan[r].piece, motet_op_bytes(op));
        assert_true(plan[r].protocol != MOTET_GPU_TWOSHOT ||
                (op->kind == MOTET_ALL_REDUCE && op->bias == NULL));
    }
    check_masks(op, plan, n);
}

static void test_ranks_agree_and_what_is_sent_is_taken(void **state)
{
    static int bias;

    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
            for (int kind = 0; kind < MOTET_NUM_KINDS; kind++)
                for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
                    motet_gpu_constants c;
                    motet_op op = { .kind = (motet_kind)kind,
                        .type = MOTET_BFLOAT16,
                        .count = counts[i],
                        .root = motet_kind_table[kind].rooted ? sizes[s] / 2 : -1 };

                    if (motet_kind_table[kind].pairwise || kind == MOTET_ALL_TO_ALL_V)
                        continue;
                    motet_gpu_constants_default(sizes[s], paths[p], &c);
                    for (int forced = 0; forced < MOTET_GPU_NUM_PROTOCOLS; forced++) {
                        c.forced = (uint8_t)forced;
                        op.bias = NULL;
                        check_op(&op, sizes[s], &c);
                        if (kind == MOTET_ALL_REDUCE)
                            op.bias = &bias;
                        check_op(&op, sizes[s], &c);
                    }
                }
}

static void test_arenas_keep_their_budget(void **state)
{
    uint64_t before = 0;

    (void)state;
    for (int n = 2; n <= MOTET_GPU_RANKS; n++) {
        motet_gpu_constants c;
        motet_gpu_layout l;
        uint64_t bytes;

        motet_gpu_constants_default(n, MOTET_GPU_PATH_DIRECT, &c);
        motet_gpu_layout_of(&c, n, &l);
        bytes = l.arena_bytes + l.own_bytes;
        assert_true(bytes < (32u << 20) + (uint64_t)(n - 2) * (4u << 20));
        if (n > 3)
            assert_true(bytes - before <= 4u << 20);
        before = bytes;
    }
}

static void test_a_veto_moves_small_messages_to_chunks(void **state)
{
    motet_gpu_constants c;
    motet_gpu_plan plan;
    motet_op op = { .kind = MOTET_ALL_REDUCE,
        .type = MOTET_FLOAT32,
        .count = 4,
        .root = -1 };

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_DIRECT, &c);
    motet_gpu_plan_make(&op, 0, 2, &c, 64, &plan);
    assert_int_equal(plan.protocol, MOTET_GPU_LL);
    c.vetoed = 1u << MOTET_GPU_LL;
    motet_gpu_plan_make(&op, 0, 2, &c, 64, &plan);
    assert_int_equal(plan.protocol, MOTET_GPU_TWOSHOT);
}

static void test_words_force_protocols(void **state)
{
    motet_gpu_constants c = { 0 };

    (void)state;
    assert_int_equal(motet_gpu_force("", &c), MOTET_OK);
    assert_int_equal(c.forced, 0);
    assert_int_equal(motet_gpu_force("LL", &c), MOTET_OK);
    assert_int_equal(c.forced, MOTET_GPU_LL);
    assert_int_equal(motet_gpu_force("Simple", &c), MOTET_OK);
    assert_int_equal(c.forced, MOTET_GPU_STAGED);
    assert_int_equal(motet_gpu_force("nvls", &c), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "'nvls' is no protocol"));
}

static void test_blocks_of_a_message_follow_from_its_bytes(void **state)
{
    motet_gpu_constants c;

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_DIRECT, &c);
    assert_int_equal(motet_gpu_pair_blocks(0, &c, 8), 1);
    assert_int_equal(motet_gpu_pair_blocks(c.pair_block_bytes, &c, 8), 1);
    assert_int_equal(motet_gpu_pair_blocks(c.pair_block_bytes + 1, &c, 8), 2);
    assert_int_equal(motet_gpu_pair_blocks(UINT64_MAX / 2, &c, 8), 8);
    assert_int_equal(motet_gpu_pair_blocks(UINT64_MAX / 2, &c, 1000), c.pair_blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_agree_and_what_is_sent_is_taken),
        cmocka_unit_test(test_arenas_keep_their_budget),
        cmocka_unit_test(test_a_veto_moves_small_messages_to_chunks),
        cmocka_unit_test(test_words_force_protocols),
        cmocka_unit_test(test_blocks_of_a_message_follow_from_its_bytes),
    };

    return cmocka_run_group_tests_name("gpu_plan", tests, NULL, NULL);
}
