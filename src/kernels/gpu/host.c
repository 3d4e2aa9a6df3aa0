/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gpu/host.h"

#include "kernels/gpu/gpu.h"

#include <string.h>

#define KERNEL_ROW(name, args_type) \
    void name(const void *args, uint32_t block, uint32_t blocks);
#include "kernels/gpu/kernels.def"
#undef KERNEL_ROW

#define KERNEL_ROW(name, args_type) { #name, name, sizeof(args_type) },
const motet_gpu_host_kernel motet_gpu_host_kernels[] = {
#include "kernels/gpu/kernels.def"
    { NULL, NULL, 0 },
};
#undef KERNEL_ROW

_Thread_local bool motet_gpu_host_fp8_fnuz;

const motet_gpu_host_kernel *motet_gpu_host_find(const char *name)
{
    for (const motet_gpu_host_kernel *k = motet_gpu_host_kernels; k->name != NULL; k++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}
