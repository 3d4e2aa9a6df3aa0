/* SPDX-License-Identifier: Apache-2.0 */
/* The set for AVX-512 (F, BW, VL, DQ): reduce.c under other compiler options. */
#define MOTET_KERNELS_TABLE motet_kernels_avx512
#define MOTET_KERNELS_NAME  "avx512"
#include "reduce.c"
