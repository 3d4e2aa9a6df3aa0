/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOTET_TEST_FAULT_HIP_H
#define MOTET_TEST_FAULT_HIP_H

#include "device/hip_api.h"

#define FAULT_API __attribute__((visibility("default")))

#define DECLARE(need, symbol, returns, parameters, since, feature) \
    FAULT_API returns symbol parameters;
MOTET_HIP_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
