/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtimes of fault_hip.c say of themselves:
 *
 *   FAULT_HIP_VERSION   what hipRuntimeGetVersion() says; 60342134 unless set
 *   FAULT_HIP_INIT      what hipInit() returns; 0 unless set
 *   FAULT_HIP_COUNT     what hipGetDeviceCount() returns; 0 unless set
 *   FAULT_HIP_DEVICES   how many devices there are; 1 unless set
 */
#include "fault_hip.h"

#include <stdio.h>
#include <stdlib.h>

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

hipError_t hipInit(unsigned flags)
{
    (void)flags;
    return (hipError_t)setting("FAULT_HIP_INIT", 0);
}

hipError_t hipRuntimeGetVersion(int *version)
{
    *version = setting("FAULT_HIP_VERSION", 60342134);
    return hipSuccess;
}

hipError_t hipGetDeviceCount(int *count)
{
    *count = setting("FAULT_HIP_DEVICES", 1);
    return (hipError_t)setting("FAULT_HIP_COUNT", 0);
}

const char *hipGetErrorName(hipError_t error)
{
    static _Thread_local char text[32];

    snprintf(text, sizeof(text), "hipErrorNumber%d", (int)error);
    return text;
}

hipError_t hipDeviceGetPCIBusId(char *bus_id, int bytes, int ordinal)
{
    snprintf(bus_id, (size_t)bytes, "0000:%02X:00.0", (unsigned)ordinal + 0xa0);
    return hipSuccess;
}
