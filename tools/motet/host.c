/* SPDX-License-Identifier: Apache-2.0 */
/* The machine and this build: see host.h. */
#include "host.h"

#include "device/device.h"
#include "kernels/reduce.h"

#include <stdio.h>

const char *host_cpu_name(char *buf, size_t bytes)
{
    motet_device_info info;

    if (motet_device_cpu.describe(0, &info) == MOTET_OK)
        snprintf(buf, bytes, "%s", info.name);
    else
        snprintf(buf, bytes, "CPU");
    return buf;
}

const char *host_device_kind(size_t i)
{
    for (size_t k = 0; motet_devices[k] != NULL; k++)
        if (k == i)
            return motet_devices[k]->name;
    return NULL;
}

const char *host_kernel_set(size_t i)
{
    const motet_cpu_kernels *const *all = motet_cpu_kernels_all();

    for (size_t k = 0; all[k] != NULL; k++)
        if (k == i)
            return all[k]->name;
    return NULL;
}
