/* SPDX-License-Identifier: Apache-2.0 */
/* The set for AVX2 with F16C: reduce.c under other compiler options. */
#define MOTET_KERNELS_TABLE motet_kernels_avx2
#define MOTET_KERNELS_NAME  "avx2"
#include "reduce.c"
