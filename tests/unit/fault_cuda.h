/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOTET_TEST_FAULT_CUDA_H
#define MOTET_TEST_FAULT_CUDA_H

#include "device/cuda_api.h"

#define FAULT_API __attribute__((visibility("default")))

#define DECLARE(need, symbol, parameters, since, feature) \
    FAULT_API CUresult symbol parameters;
MOTET_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
