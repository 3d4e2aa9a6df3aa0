/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for HIP's header where there is none. */
#ifndef FAKE_HIP_RUNTIME_H
#define FAKE_HIP_RUNTIME_H
#include <hip/hip_runtime_api.h>
#endif
