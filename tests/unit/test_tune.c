/* SPDX-License-Identifier: Apache-2.0 */
/* From what motet bench measured to a MOTET_PLAN that the library reads. */
#include "tune.h"

#include "plan/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                              \
    "collective,type,redop,root,size,count,placement,time_us,algbw_gbps," \
    "busbw_gbps,wrong,vs_time_us,ratio,spread,timing,p10_us,p90_us,issue_us\n"

_Static_assert(TUNE_RULES_MAX == MOTET_GPU_RULES, "the library's limit");

static struct tune_kind kinds[TUNE_KINDS_MAX];

static int fresh(void **state)
{
    (void)state;
    tune_begin(kinds);
    return 0;
}

static bool read_text(const char *text, int protocol)
{
    FILE *csv = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    bool good;

    assert_non_null(csv);
    good = tune_read(csv, protocol, kinds);
    fclose(csv);
    return good;
}

static void test_rows_are_taken(void **state)
{
    (void)state;
    assert_true(read_text(HEAD "all_reduce,float,sum,-1,1024,256,out_of_place,8.0,1,1,,"
                               "4.0,0.5,0.01,graph,1,1,1\n"
                               "all_reduce,float,sum,-1,1024,256,in_place,1.0,1,1,,9.0,"
                               "9,0.01,graph,1,1,1\n"
                               "alltoall,float,none,-1,8192,1024,out_of_place,5,1,1,0,"
                               "10,2,0.2,graph,1,1,1\n"
                               "hypercube,float,none,-1,8192,1024,out_of_place,5,1,1,0,"
                               "1,2,0.2,graph,1,1,1\n",
            TUNE_LL));
    assert_int_equal(kinds[0].ncells, 1);
    assert_int_equal(kinds[0].cells[0].bytes, 1024);
    assert_true(kinds[0].cells[0].by[TUNE_LL].measured);
    assert_false(kinds[0].cells[0].by[TUNE_CE].measured);
    assert_true(kinds[0].cells[0].by[TUNE_LL].own_us == 8.0);
    assert_true(kinds[0].cells[0].by[TUNE_LL].forced_us == 4.0);
    assert_string_equal(kinds[5].plan, "all_to_all");
    assert_int_equal(kinds[5].cells[0].bytes, 4096);
    assert_true(kinds[5].cells[0].by[TUNE_LL].spread == 0.2);
}

static void test_what_is_no_table_is_refused(void **state)
{
    static const char *const bad[] = {
        HEAD "all_reduce\n",
        HEAD "all_reduce,float,sum,-1,1024,256,out_of_place,8.0,1,1,,,,,graph,1,1,1\n",
        HEAD "all_reduce,float,sum,-1,1024,256,out_of_place,x,1,1,,4,1,0,graph,1,1,1\n",
        HEAD "all_reduce,float,sum,-1,1024,256,out_of_place,0,1,1,,4,1,0,graph,1,1,1\n",
        HEAD
        "a_name_that_is_longer_than_any_collective_has,float,sum,-1,1,1,out_of_place,1,"
        "1,1,,1,1,0,graph,1,1,1\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(read_text(bad[i], TUNE_LL));
}

static void test_more_sizes_than_there_is_room_for_are_refused(void **state)
{
    char text[16384] = HEAD;
    size_t used = strlen(text);

    (void)state;
    for (int i = 1; i <= TUNE_SIZES_MAX + 1; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                "reduce,float,sum,0,%d,%d,out_of_place,8,1,1,,4,1,0,graph,1,1,1\n",
                4 * i, i);
    assert_false(read_text(text, TUNE_LL));
}

static void put(size_t kind, uint64_t bytes, int protocol, double own, double forced,
        double spread)
{
    struct tune_cell *cell = &kinds[kind].cells[kinds[kind].ncells++];

    *cell = (struct tune_cell){ .bytes = bytes };
    cell->by[protocol] = (struct tune_pair){ true, own, forced, spread };
}

static void assert_plan(const char *expected)
{
    motet_gpu_constants constants = { 0 };
    char plan[2048];

    tune_choose(kinds);
    tune_plan(kinds, plan, sizeof(plan));
    assert_string_equal(plan, expected);
    assert_int_equal(motet_gpu_plan_force(plan, &constants), MOTET_OK);
}

static void test_only_what_gains_more_than_the_spread_is_chosen(void **state)
{
    (void)state;
    put(0, 1024, TUNE_LL, 10, 9.8, 0);    /* two percent            */
    put(0, 4096, TUNE_LL, 10, 8, 0.3);    /* within the spread      */
    put(0, 16384, TUNE_LL, 10, 8, 0.1);   /* taken                  */
    put(0, 65536, TUNE_LL, 10, 12, 0.01); /* slower                 */
    assert_plan("all_reduce:16K-64K=ll");
    assert_true(kinds[0].cells[2].gain == 1.25);
    assert_int_equal(kinds[0].cells[3].choice, TUNE_OWN);
}

static void test_the_fastest_of_several_is_chosen(void **state)
{
    (void)state;
    put(0, 1024, TUNE_LL, 10, 8, 0);
    kinds[0].cells[0].by[TUNE_STAGED] = (struct tune_pair){ true, 10, 5, 0 };
    kinds[0].cells[0].by[TUNE_TWOSHOT] = (struct tune_pair){ true, 10, 7, 0 };
    assert_plan("all_reduce:0-=staged");
}

static void test_neighbours_are_one_rule_and_ends_are_open(void **state)
{
    (void)state;
    put(0, 1000, TUNE_LL, 10, 5, 0);
    put(0, 4096, TUNE_LL, 10, 5, 0);
    put(0, 3 << 20, TUNE_TWOSHOT, 10, 5, 0);
    put(0, 12 << 20, TUNE_TWOSHOT, 10, 5, 0);
    put(6, 1 << 20, TUNE_CE, 10, 5, 0);
    assert_plan("all_reduce:0-3M=ll,3M-=twoshot;send:0-=ce");
}

static void test_nothing_gained_is_no_plan(void **state)
{
    (void)state;
    put(1, 1024, TUNE_LL, 10, 10, 0);
    assert_plan("");
}

/* Sixteen rules is what a library takes; the least of these is left out. */
static void test_of_too_many_rules_the_poorest_go(void **state)
{
    char plan[2048];
    motet_gpu_constants constants = { 0 };
    int left_out = 0;

    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (int i = 0; i < 12; i++)
            put(k, UINT64_C(1024) << i, i % 2 == 0 ? TUNE_LL : TUNE_STAGED, 10,
                    k == 2 ? 9 : 5, 0);
    tune_choose(kinds);
    tune_plan(kinds, plan, sizeof(plan));
    assert_int_equal(motet_gpu_plan_force(plan, &constants), MOTET_OK);
    assert_int_equal(constants.rules, MOTET_GPU_RULES);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 12; i++)
            left_out += kinds[k].cells[i].choice == TUNE_OWN;
    assert_int_equal(left_out, 36 - MOTET_GPU_RULES);
    assert_null(strstr(plan, "reduce_scatter"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rows_are_taken, fresh),
        cmocka_unit_test_setup(test_what_is_no_table_is_refused, fresh),
        cmocka_unit_test_setup(test_more_sizes_than_there_is_room_for_are_refused,
                fresh),
        cmocka_unit_test_setup(test_only_what_gains_more_than_the_spread_is_chosen,
                fresh),
        cmocka_unit_test_setup(test_the_fastest_of_several_is_chosen, fresh),
        cmocka_unit_test_setup(test_neighbours_are_one_rule_and_ends_are_open, fresh),
        cmocka_unit_test_setup(test_nothing_gained_is_no_plan, fresh),
        cmocka_unit_test_setup(test_of_too_many_rules_the_poorest_go, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
