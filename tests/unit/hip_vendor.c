/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's own headers, which C compilers read without a word only if all is included that
 * they forget. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <hip/hip_runtime_api.h>
#pragma GCC diagnostic pop

#include "hip_vendor.h"

#define CONSTANT(name) { #name, (long long)(intptr_t)(name) },
#define LAYOUT(what)   { #what, (long long)(what) },

const hip_fact hip_vendor_facts[] = { HIP_CONSTANTS(CONSTANT) HIP_LAYOUTS(LAYOUT) };

const int hip_vendor_version = HIP_VERSION_MAJOR * 1000 + HIP_VERSION_MINOR * 10;
const long long hip_vendor_properties = (long long)sizeof(hipDeviceProp_t);
const long long hip_vendor_architecture =
        (long long)offsetof(hipDeviceProp_t, gcnArchName);
const long long hip_vendor_lazy = hipIpcMemLazyEnablePeerAccess;
const long long hip_vendor_host = hipMemoryTypeHost;
const long long hip_vendor_device = hipMemoryTypeDevice;
#ifdef hipDeviceMallocUncached
const long long hip_vendor_uncached = hipDeviceMallocUncached;
#else
const long long hip_vendor_uncached = -1;
#endif
