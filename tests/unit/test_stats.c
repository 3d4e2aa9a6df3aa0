/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles, medians and spreads of measured times. */
#include "stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void near(double got, double wanted)
{
    if (fabs(got - wanted) > 1e-12)
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_percentiles_interpolate_between_neighbours(void **state)
{
    static const struct {
        double percent, wanted;
    } cases[] = {
        { 0, 10 },
        { 10, 14 },
        { 25, 20 },
        { 50, 30 },
        { 90, 46 },
        { 100, 50 },
        { -5, 10 },
        { 250, 50 },
    };
    const double sorted[] = { 10, 20, 30, 40, 50 };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        near(stats_percentile(sorted, 5, cases[i].percent), cases[i].wanted);
}

static void test_few_values_are_no_special_case(void **state)
{
    const double one[] = { 7 }, two[] = { 1, 3 };

    (void)state;
    near(stats_percentile(one, 0, 50), 0);
    near(stats_percentile(one, 1, 10), 7);
    near(stats_percentile(two, 2, 50), 2);
}

static void test_a_median_needs_no_order(void **state)
{
    double odd[] = { 5, 1, 4, 2, 3 }, even[] = { 9, 1, 5, 3 };

    (void)state;
    near(stats_median(odd, 5), 3);
    near(stats_median(even, 4), 4);
}

static void test_a_spread_ignores_one_outlier(void **state)
{
    double calm[] = { 10, 10, 10, 10, 10, 10, 10, 10, 1000 };
    double wide[] = { 8, 12, 10, 9, 11 }, single[] = { 4 }, zero[] = { 0, 0, 0 };

    (void)state;
    near(stats_spread(calm, 9), 0);
    near(stats_spread(wide, 5), 0.2);
    near(stats_spread(single, 1), 0);
    near(stats_spread(zero, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_interpolate_between_neighbours),
        cmocka_unit_test(test_few_values_are_no_special_case),
        cmocka_unit_test(test_a_median_needs_no_order),
        cmocka_unit_test(test_a_spread_ignores_one_outlier),
    };

    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
