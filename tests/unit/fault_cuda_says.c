/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the drivers of fault_cuda.c say of themselves:
 *
 *   FAULT_VERSION   what cuDriverGetVersion() says; 13000 unless set
 *   FAULT_INIT      what cuInit() returns; 0 unless set
 *   FAULT_DEVICES   how many devices there are; 1 unless set
 *   FAULT_CONTEXT   what cuDevicePrimaryCtxRetain() returns; 0 unless set
 */
#include "fault_cuda.h"

#include <stdio.h>
#include <stdlib.h>

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return (CUresult)setting("FAULT_INIT", 0);
}

CUresult cuDriverGetVersion(int *version)
{
    *version = setting("FAULT_VERSION", 13000);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = setting("FAULT_DEVICES", 1);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    static _Thread_local char text[32];

    *name = NULL;
    if (error == 12345)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, sizeof(text), "CUDA_ERROR_NUMBER_%d", (int)error);
    *name = text;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    (void)error;
    *text = "as the driver says it";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int bytes, CUdevice device)
{
    snprintf(bus_id, (size_t)bytes, "0000:%02X:00.0", device + 0xa0);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = NULL;
    return (CUresult)setting("FAULT_CONTEXT", 0);
}
