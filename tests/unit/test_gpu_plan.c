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
        assert_int_equal(plan[r].step, plan[0].step);
        assert_int_equal(plan[r].steps, plan[0].steps);
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
    assert_int_equal(motet_gpu_force("CE", &c), MOTET_OK);
    assert_int_equal(c.forced, MOTET_GPU_COPIES);
    assert_int_equal(motet_gpu_force("nvls", &c), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "'nvls' is no protocol"));
}

static uint32_t pair_blocks(uint64_t bytes, const motet_gpu_constants *c,
        uint32_t limit)
{
    motet_gpu_pair_plan plan;

    motet_gpu_pair_plan_make(bytes, 2, c, limit, &plan);
    assert_false(plan.copies);
    return plan.blocks;
}

static void test_blocks_of_a_message_follow_from_its_bytes(void **state)
{
    motet_gpu_constants c;

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_DIRECT, &c);
    assert_int_equal(pair_blocks(0, &c, 8), 1);
    assert_int_equal(pair_blocks(c.pair_block_bytes, &c, 8), 1);
    assert_int_equal(pair_blocks(c.pair_block_bytes + 1, &c, 8), 2);
    assert_int_equal(pair_blocks(UINT64_MAX / 2, &c, 8), 8);
    assert_int_equal(pair_blocks(UINT64_MAX / 2, &c, 1000), c.pair_blocks);
}

/* ---- copies ---- */

/* The steps of a plan are as many as its bytes need, and each fits a slot of the ring. */
static void test_steps_of_copies_cover_the_bytes(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
        for (size_t i = 1; i < sizeof(counts) / sizeof(*counts); i++)
            for (int kind = 0; kind < MOTET_NUM_KINDS; kind++) {
                motet_op op = { .kind = (motet_kind)kind,
                    .type = MOTET_BFLOAT16,
                    .count = counts[i],
                    .root = motet_kind_table[kind].rooted ? 0 : -1 };
                motet_gpu_constants c;
                motet_gpu_plan plan;
                uint64_t all;

                if (motet_kind_table[kind].pairwise || kind == MOTET_ALL_TO_ALL_V)
                    continue;
                motet_gpu_constants_default(sizes[s], MOTET_GPU_PATH_STAGED, &c);
                c.forced = MOTET_GPU_COPIES;
                motet_gpu_plan_make(&op, 0, sizes[s], &c, 8, &plan);
                if (sizes[s] == 1) {
                    assert_int_equal(plan.protocol, MOTET_GPU_LL);
                    continue;
                }
                assert_int_equal(plan.protocol, MOTET_GPU_COPIES);
                assert_int_equal(plan.phases, kind == MOTET_ALL_REDUCE ? 2 : 1);
                assert_in_range(plan.step, 256, c.ring_chunk);
                all = plan.slice * (uint64_t)(kind == MOTET_ALL_REDUCE ? sizes[s] : 1);
                assert_true(all >= plan.piece);
                assert_true(plan.steps * plan.step >= plan.slice);
                assert_true((plan.steps - 1) * plan.step < plan.slice);
            }
}

static motet_gpu_protocol planned(const motet_gpu_constants *c, const motet_op *op)
{
    motet_gpu_plan plan;

    motet_gpu_plan_make(op, 0, 2, c, 8, &plan);
    return plan.protocol;
}

static void test_copies_begin_at_their_thresholds(void **state)
{
    motet_op op = { .kind = MOTET_ALL_GATHER, .type = MOTET_UINT8, .root = -1 };
    motet_gpu_constants c;

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_STAGED, &c);
    op.count = c.copies_other_min - 1;
    assert_int_equal(planned(&c, &op), MOTET_GPU_STAGED);
    op.count++;
    assert_int_equal(planned(&c, &op), MOTET_GPU_COPIES);
    c.vetoed = 1u << MOTET_GPU_COPIES;
    assert_int_equal(planned(&c, &op), MOTET_GPU_STAGED);
    c.vetoed = 0;
    op.count = (size_t)1 << 40; /* more steps than a queue holds */
    assert_int_equal(planned(&c, &op), MOTET_GPU_STAGED);
    op.kind = MOTET_ALL_REDUCE;
    op.count = c.copies_reduce_min;
    assert_int_equal(planned(&c, &op), MOTET_GPU_COPIES);
    op.redop = MOTET_PREMUL_SUM;
    assert_int_equal(planned(&c, &op), MOTET_GPU_TWOSHOT);
}

static motet_gpu_why why_not(uint64_t bytes, int nranks, const motet_gpu_constants *c)
{
    motet_gpu_pair_plan pair;

    motet_gpu_pair_plan_make(bytes, nranks, c, 8, &pair);
    assert_false(pair.copies);
    return pair.why;
}

static void test_copies_move_messages_only_if_asked_to(void **state)
{
    const uint64_t large = 1u << 30;
    motet_gpu_constants c;
    motet_gpu_pair_plan pair;

    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (int n = 2; n <= MOTET_GPU_RANKS; n++) {
            motet_gpu_constants_default(n, paths[p], &c);
            c.zero = 1;
            assert_int_equal(why_not(large, n, &c), MOTET_GPU_WHY_NEVER);
        }
    motet_gpu_constants_default(2, MOTET_GPU_PATH_STAGED, &c);
    assert_int_equal(why_not(0, 2, &c), MOTET_GPU_WHY_ALONE);
    c.forced = MOTET_GPU_STAGED;
    assert_int_equal(why_not(large, 2, &c), MOTET_GPU_WHY_FORCED);
    c.forced = MOTET_GPU_COPIES;
    motet_gpu_pair_plan_make(large, 2, &c, 8, &pair);
    assert_true(pair.copies && pair.steps * pair.step >= large);
    assert_int_equal(pair.why, MOTET_GPU_WHY_FORCED);
    assert_int_equal(why_not(large, 3, &c), MOTET_GPU_WHY_RANKS);
    c.vetoed = 1u << MOTET_GPU_COPIES;
    assert_int_equal(why_not(large, 2, &c), MOTET_GPU_WHY_VETOED);
    c.forced = c.vetoed = 0;
    c.copies_pair_min = 1u << 20;
    assert_int_equal(why_not((1u << 20) - 1, 2, &c), MOTET_GPU_WHY_AT_MOST);
    motet_gpu_pair_plan_make(1u << 20, 2, &c, 8, &pair);
    assert_true(pair.copies);
    assert_int_equal(pair.why, MOTET_GPU_WHY_AT_LEAST);
    assert_int_equal(why_not(UINT64_C(1) << 40, 2, &c), MOTET_GPU_WHY_CALLS);
}

static void test_policy_zero_copies_what_does_not_reduce(void **state)
{
    motet_op op = { .kind = MOTET_BROADCAST,
        .type = MOTET_UINT8,
        .count = 8,
        .root = 0 };
    motet_gpu_constants c;

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_DIRECT, &c);
    assert_int_equal(planned(&c, &op), MOTET_GPU_LL);
    c.zero = 1;
    assert_int_equal(planned(&c, &op), MOTET_GPU_COPIES);
    op.kind = MOTET_ALL_REDUCE;
    op.root = -1;
    assert_int_equal(planned(&c, &op), MOTET_GPU_LL);
}

/* ---- rules ---- */

static void test_a_rule_is_read_and_followed(void **state)
{
    motet_op op = { .kind = MOTET_ALL_REDUCE, .type = MOTET_UINT8, .root = -1 };
    motet_gpu_constants c;
    motet_gpu_plan plan;
    motet_gpu_pair_plan pair;

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_DIRECT, &c);
    assert_int_equal(motet_gpu_plan_force("all_reduce:0-64K=ll,64K-1g=Staged/3;"
                                          "broadcast:1M-=ce;send:0-=ce",
                             &c),
            MOTET_OK);
    assert_int_equal(c.rules, 4);
    op.count = 65535;
    assert_int_equal(planned(&c, &op), MOTET_GPU_LL);
    op.count = 65536;
    motet_gpu_plan_make(&op, 0, 2, &c, 8, &plan);
    assert_int_equal(plan.protocol, MOTET_GPU_STAGED);
    assert_int_equal(plan.why, MOTET_GPU_WHY_RULE);
    assert_int_equal(plan.blocks, 3);
    op.count = 1u << 30; /* no rule any more */
    assert_int_equal(planned(&c, &op), MOTET_GPU_TWOSHOT);
    motet_gpu_pair_plan_make(100, 2, &c, 8, &pair);
    assert_true(pair.copies);
}

static void test_bad_rules_are_named_and_change_nothing(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "allreduce:0-=ll", "'allreduce' is no kind" },
        { "recv:0-=ce", "'recv' is no kind" },
        { "all_reduce", "nothing for all_reduce" },
        { "all_reduce:=ll", "'' is no range" },
        { "all_reduce:64K=ll", "'64K' is no range" },
        { "all_reduce:2-1=ll", "'2-1' is no range" },
        { "all_reduce:1-99999999999999999999=ll", "is no range" },
        { "all_reduce:0-1T=ll", "is no range" },
        { "all_reduce:0-=nvls", "'nvls' is no protocol" },
        { "all_reduce:0-", "'' is no protocol" },
        { "broadcast:0-=twoshot", "twoshot does not serve broadcast" },
        { "send:0-=ll", "ll does not serve send" },
        { "all_reduce:0-=ll/0", "'0' is no number of blocks" },
        { "all_reduce:0-=ll/65", "'65' is no number of blocks" },
        { "all_reduce:0-=ll;broadcast:x", "'x' is no range" },
        { "all_reduce:0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,"
          "0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll,0-=ll",
                "more than 16 rules" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        motet_gpu_constants c = { .rules = 0 };

        if (motet_gpu_plan_force(cases[i].text, &c) != MOTET_ERR_ARGUMENT ||
                strstr(motet_error_trail(), cases[i].says) == NULL || c.rules != 0)
            fail_msg("'%s': %s, need \"%s\"", cases[i].text, motet_error_trail(),
                    cases[i].says);
        motet_error_clear();
    }
}

static void test_a_plan_is_explained(void **state)
{
    motet_op op = { .kind = MOTET_ALL_GATHER,
        .type = MOTET_FLOAT32,
        .count = 4u << 20,
        .root = -1 };
    motet_gpu_constants c;
    motet_gpu_plan plan;
    char text[512];

    (void)state;
    motet_gpu_constants_default(2, MOTET_GPU_PATH_STAGED, &c);
    c.copies_other_min = 16u << 20;
    motet_gpu_plan_make(&op, 0, 2, &c, 8, &plan);
    assert_in_range(motet_gpu_explain(&op, 2, &c, 8, &plan, text, sizeof(text)), 1,
            sizeof(text) - 1);
    assert_string_equal(text,
            "protocol: ce\nsteps: 8 of 2097152 bytes\n"
            "because: 16777216 bytes to other ranks are not below 16777216\n");
    op.kind = MOTET_SEND;
    op.root = 1;
    op.count = 16;
    (void)motet_gpu_explain(&op, 2, &c, 8, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "protocol: pairs\nblocks: 1\nchunk: 16384 bytes\n"));
    assert_true(motet_gpu_explain(&op, 2, &c, 8, NULL, text, 4) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_agree_and_what_is_sent_is_taken),
        cmocka_unit_test(test_arenas_keep_their_budget),
        cmocka_unit_test(test_a_veto_moves_small_messages_to_chunks),
        cmocka_unit_test(test_words_force_protocols),
        cmocka_unit_test(test_blocks_of_a_message_follow_from_its_bytes),
        cmocka_unit_test(test_steps_of_copies_cover_the_bytes),
        cmocka_unit_test(test_copies_begin_at_their_thresholds),
        cmocka_unit_test(test_copies_move_messages_only_if_asked_to),
        cmocka_unit_test(test_policy_zero_copies_what_does_not_reduce),
        cmocka_unit_test(test_a_rule_is_read_and_followed),
        cmocka_unit_test(test_bad_rules_are_named_and_change_nothing),
        cmocka_unit_test(test_a_plan_is_explained),
    };

    return cmocka_run_group_tests_name("gpu_plan", tests, NULL, NULL);
}
