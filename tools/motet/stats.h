/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of measured times. */
#ifndef MOTET_TOOLS_STATS_H
#define MOTET_TOOLS_STATS_H

#include <stddef.h>

/** Sort ascending, in place. */
void stats_sort(double *values, size_t n);

/**
 * The @p percent-th percentile of @p n sorted values, interpolated between neighbours
 * (0 gives the smallest, 100 the largest). 0 if n is 0.
 */
double stats_percentile(const double *sorted, size_t n, double percent);

/** Median; sorts @p values in place. */
double stats_median(double *values, size_t n);

/**
 * How far repeated measurements of the same thing lie apart: the distance between the
 * quartiles over the median. Sorts @p values in place; 0 if n < 2.
 */
double stats_spread(double *values, size_t n);

#endif
