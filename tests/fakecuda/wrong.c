/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels built for the host want from host.c: a library of one kernel has its own. */
#include "kernels/gpu/host.h"

_Thread_local bool motet_gpu_host_fp8_fnuz;
