/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drivers with something wrong, for test_cuda_faults.c: every function succeeds and does
 * nothing, but for those of fault_cuda_says.c. What a variant lacks is renamed away when
 * it is compiled: -DcuFoo=absent.
 */
#include "fault_cuda.h"

#define STUB(need, symbol, parameters, since, feature)         \
    FAULT_API __attribute__((weak)) CUresult symbol parameters \
    {                                                          \
        return CUDA_SUCCESS;                                   \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
MOTET_CUDA_FUNCTIONS(STUB)
