/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics: see stats.h. */
#include "stats.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void stats_sort(double *values, size_t n)
{
    if (n > 1)
        qsort(values, n, sizeof(*values), ascending);
}

double stats_percentile(const double *sorted, size_t n, double percent)
{
    double at, rest;
    size_t below;

    if (n == 0)
        return 0;
    at = percent / 100 * (double)(n - 1);
    if (at <= 0)
        return sorted[0];
    if (at >= (double)(n - 1))
        return sorted[n - 1];
    below = (size_t)at;
    rest = at - (double)below;
    return sorted[below] * (1 - rest) + sorted[below + 1] * rest;
}

double stats_median(double *values, size_t n)
{
    stats_sort(values, n);
    return stats_percentile(values, n, 50);
}

double stats_spread(double *values, size_t n)
{
    double median = stats_median(values, n);

    if (n < 2 || median <= 0)
        return 0;
    return (stats_percentile(values, n, 75) - stats_percentile(values, n, 25)) / median;
}
