/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are pure: every rank of any communicator comes to the same one, all elements
 * are covered once, and no step holds more than a slot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/plan.h"

#include <string.h>

static const size_t counts[] = { 1, 2, 3, 7, 15, 16, 17, 96, 97, 1023, 1024, 4314,
    65537, 1048577, (size_t)1 << 33, ((size_t)1 << 33) + 1 };
static const int sizes[] = { 2, 3, 4, 5, 8, 64, 128, 1000 };

static motet_op op_of(motet_kind kind, motet_type type, size_t count)
{
    return (motet_op){ .kind = kind, .type = type, .count = count, .root = -1 };
}

/* Elements of one slice that the plan moves, and the most bytes that a post holds. */
static void check_plan(const motet_op *op, int nranks, const motet_constants *constants)
{
    size_t element = motet_type_table[op->type].bytes;
    size_t total = op->count, capacity;
    motet_plan plan;

    assert_int_equal(motet_plan_make(op, nranks, constants, &plan), MOTET_OK);
    assert_true(plan.steps >= 1 && plan.step_count >= 1);
    if (plan.algorithm == MOTET_ALG_TWOSHOT) {
        assert_int_equal(op->kind, MOTET_ALL_REDUCE);
        assert_int_equal(plan.posts, 2);
        total = (op->count + (size_t)nranks - 1) / (size_t)nranks;
    }
    assert_true(plan.steps * plan.step_count >= total);
    assert_true((plan.steps - 1) * plan.step_count < total);
    capacity = plan.algorithm == MOTET_ALG_INLINE ? constants->inline_bytes
                                                  : constants->board_chunk;
    assert_true(plan.step_count * element * (size_t)plan.slices <= capacity);
}

static void test_every_plan_covers_its_elements_and_fits_its_slots(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        motet_constants constants;

        motet_constants_default(sizes[s], &constants);
        for (int kind = 0; kind < MOTET_NUM_KINDS; kind++)
            for (int type = 0; type < MOTET_NUM_TYPES; type++)
                for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
                    motet_op op = op_of((motet_kind)kind, (motet_type)type, counts[c]);

                    if (!motet_kind_table[kind].pairwise)
                        check_plan(&op, sizes[s], &constants);
                }
    }
}

static void test_nothing_and_one_rank_need_no_algorithm(void **state)
{
    motet_op nothing = op_of(MOTET_ALL_REDUCE, MOTET_FLOAT32, 0);
    motet_op something = op_of(MOTET_ALL_REDUCE, MOTET_FLOAT32, 5);
    motet_constants constants;
    motet_plan plan;

    (void)state;
    motet_constants_default(2, &constants);
    assert_int_equal(motet_plan_make(&nothing, 2, &constants, &plan), MOTET_OK);
    assert_int_equal(plan.algorithm, MOTET_ALG_NONE);
    assert_int_equal(motet_plan_make(&something, 1, &constants, &plan), MOTET_OK);
    assert_int_equal(plan.algorithm, MOTET_ALG_NONE);
}

static void test_sizes_choose_the_algorithm(void **state)
{
    static const struct {
        int nranks;
        motet_kind kind;
        size_t count;
        motet_algorithm algorithm;
    } rows[] = {
        { 2, MOTET_ALL_REDUCE, 2, MOTET_ALG_INLINE },
        { 2, MOTET_ALL_REDUCE, 24, MOTET_ALG_INLINE },
        { 2, MOTET_ALL_REDUCE, 25, MOTET_ALG_BOARD },
        { 2, MOTET_ALL_REDUCE, 1 << 20, MOTET_ALG_BOARD },
        { 3, MOTET_ALL_REDUCE, 8191, MOTET_ALG_BOARD },
        { 3, MOTET_ALL_REDUCE, 8192, MOTET_ALG_TWOSHOT },
        { 4, MOTET_BROADCAST, 1 << 20, MOTET_ALG_BOARD },
        { 2, MOTET_ALL_TO_ALL, 12, MOTET_ALG_INLINE },
        { 2, MOTET_ALL_TO_ALL, 13, MOTET_ALG_BOARD },
    };
    motet_constants constants;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        motet_op op = op_of(rows[i].kind, MOTET_FLOAT32, rows[i].count);
        motet_plan plan;

        motet_constants_default(rows[i].nranks, &constants);
        assert_int_equal(motet_plan_make(&op, rows[i].nranks, &constants, &plan),
                MOTET_OK);
        assert_int_equal(plan.algorithm, rows[i].algorithm);
    }
}

static void test_a_bias_is_never_added_by_another_rank(void **state)
{
    motet_op op = op_of(MOTET_ALL_REDUCE, MOTET_FLOAT32, 1 << 20);
    motet_constants constants;
    motet_plan plan;

    (void)state;
    op.bias = &op;
    motet_constants_default(4, &constants);
    assert_int_equal(motet_plan_make(&op, 4, &constants, &plan), MOTET_OK);
    assert_int_equal(plan.algorithm, MOTET_ALG_BOARD);
}

static void test_forced_algorithms_are_taken_or_refused(void **state)
{
    motet_op large = op_of(MOTET_ALL_REDUCE, MOTET_FLOAT32, 1 << 20);
    motet_op small = op_of(MOTET_ALL_REDUCE, MOTET_FLOAT32, 2);
    motet_constants constants;
    motet_plan plan;

    (void)state;
    motet_constants_default(2, &constants);
    assert_int_equal(motet_plan_force("all_reduce:twoshot;broadcast:board", &constants),
            MOTET_OK);
    assert_int_equal(motet_plan_make(&small, 2, &constants, &plan), MOTET_OK);
    assert_int_equal(plan.algorithm, MOTET_ALG_TWOSHOT);
    assert_int_equal(motet_plan_force("all_reduce:inline", &constants), MOTET_OK);
    assert_int_equal(motet_plan_make(&large, 2, &constants, &plan), MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "MOTET_ALGO forces inline"));
}

static void test_a_malformed_choice_is_named(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "all_reduce", "has no ':'" },
        { "all_rduce:board", "'all_rduce' is no collective" },
        { "all_reduce:ring", "'ring' is no algorithm" },
        { "broadcast:twoshot", "does not serve broadcast" },
        { "send:board", "does not serve send" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        motet_constants constants, before;

        motet_constants_default(2, &constants);
        before = constants;
        assert_int_equal(motet_plan_force(rows[i].text, &constants),
                MOTET_ERR_ARGUMENT);
        assert_non_null(strstr(motet_error_trail(), rows[i].says));
        assert_memory_equal(&before, &constants, sizeof(before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_covers_its_elements_and_fits_its_slots),
        cmocka_unit_test(test_nothing_and_one_rank_need_no_algorithm),
        cmocka_unit_test(test_sizes_choose_the_algorithm),
        cmocka_unit_test(test_a_bias_is_never_added_by_another_rank),
        cmocka_unit_test(test_forced_algorithms_are_taken_or_refused),
        cmocka_unit_test(test_a_malformed_choice_is_named),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
