/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HIP runtimes with something wrong, for test_hip_faults.c: every function succeeds and
 * does nothing, but for those of fault_hip_says.c. What a variant lacks is renamed away
 * when it is compiled: -DhipFoo=absent.
 */
#include "fault_hip.h"

#define STUB(need, symbol, returns, parameters, since, feature) \
    FAULT_API __attribute__((weak)) returns symbol parameters   \
    {                                                           \
        return (returns)0;                                      \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
MOTET_HIP_FUNCTIONS(STUB)
