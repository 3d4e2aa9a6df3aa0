/* SPDX-License-Identifier: Apache-2.0 */
/* The value matrix of CPU ranks, which work in the test's own memory. */
#include "matrix.h"

const matrix_target *const matrix_there = NULL;
