/* SPDX-License-Identifier: Apache-2.0 */
/* The sets that reduce.c is compiled into; dispatch.c chooses among them. */
#ifndef MOTET_KERNELS_SETS_H
#define MOTET_KERNELS_SETS_H

#include "kernels/reduce.h"

/* Below, the fence that ends streaming stores (some 0.25 µs) costs more than they save
 * even on a destination that no cache holds (measured: even at 2 to 4 KiB, twice as fast
 * as memcpy at 16 KiB). */
#define MOTET_STREAM_LEAST_BYTES 4096

extern const motet_cpu_kernels motet_kernels_baseline;
#if defined(__x86_64__)
extern const motet_cpu_kernels motet_kernels_avx2;
extern const motet_cpu_kernels motet_kernels_avx512;
#endif

#endif
