/* SPDX-License-Identifier: Apache-2.0 */
/* Entry to the runtime, its devices, and which of them is a thread's. */
#include "hip.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int mine;
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primaries[FAKE_DEVICES];

int hip_ordinal(void)
{
    return mine;
}

/* The device's context, which is made when it is first needed and never ends. */
static CUresult primary_of(int ordinal, CUcontext *out)
{
    CUresult code = CUDA_SUCCESS;

    pthread_mutex_lock(&primary_lock);
    if (primaries[ordinal] == NULL)
        code = cuDevicePrimaryCtxRetain(&primaries[ordinal], ordinal);
    *out = primaries[ordinal];
    pthread_mutex_unlock(&primary_lock);
    return code;
}

CUresult hip_begin(void)
{
    CUcontext wanted = NULL, is = NULL;
    CUresult code = cuInit(0);

    if (code == CUDA_SUCCESS)
        code = primary_of(mine, &wanted);
    if (code == CUDA_SUCCESS)
        code = cuCtxGetCurrent(&is);
    if (code == CUDA_SUCCESS && is != wanted)
        code = cuCtxSetCurrent(wanted);
    return code;
}

CUresult hip_begin_stream(hipStream_t stream)
{
    fake_stream *found;
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return code;
    code = stream == hipStreamLegacy && hip_set.major < 6
            ? CUDA_ERROR_INVALID_HANDLE
            : fake_stream_of(hip_stream(stream), &found);
    return fake_leave(
            code == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_CONTEXT_IS_DESTROYED : code);
}

hipError_t hipInit(unsigned flags)
{
    return hip_end(cuInit(flags));
}

/* As each major version numbers a release of it: 5.2.21151, 6.3.42134, 7.0.51831. */
hipError_t hipRuntimeGetVersion(int *out)
{
    static const int numbers[] = { 50221151, 60342134, 70051831 };
    int major;
    CUresult code = out != NULL ? cuDriverGetVersion(&major) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        *out = numbers[major - 5];
    return hip_end(code);
}

hipError_t hipGetDeviceCount(int *count)
{
    CUresult code = count != NULL ? cuInit(0) : CUDA_ERROR_INVALID_VALUE;

    if (count != NULL)
        *count = 0;
    if (code == CUDA_SUCCESS)
        code = cuDeviceGetCount(count);
    return hip_end(code);
}

hipError_t hipGetDevice(int *ordinal)
{
    CUresult code = ordinal != NULL ? cuInit(0) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        *ordinal = mine;
    return hip_end(code);
}

hipError_t hipSetDevice(int ordinal)
{
    CUdevice device;
    CUresult code = cuInit(0);

    if (code == CUDA_SUCCESS)
        code = cuDeviceGet(&device, ordinal);
    if (code == CUDA_SUCCESS)
        mine = ordinal;
    return hip_end(code);
}

/* Of the machine's devices, the one that the process calls @p ordinal. */
static CUresult physical_of(int ordinal, unsigned *out)
{
    fake_device *device;
    CUresult code = cuInit(0);

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, &device);
    if (code == CUDA_SUCCESS)
        *out = device->physical;
    return fake_leave(code);
}

hipError_t hipDeviceGetName(char *name, int bytes, hipDevice_t ordinal)
{
    unsigned physical;
    CUresult code = name != NULL && bytes > 0 ? physical_of(ordinal, &physical)
                                              : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        snprintf(name, (size_t)bytes, "Fake Radeon");
    return hip_end(code);
}

hipError_t hipDeviceGetPCIBusId(char *bus_id, int bytes, int ordinal)
{
    unsigned physical;
    CUresult code = bus_id != NULL && bytes > 0 ? physical_of(ordinal, &physical)
                                                : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        snprintf(bus_id, (size_t)bytes, "0000:%02x:00.0", 0x40 + 3 * physical);
    return hip_end(code);
}

hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t ordinal)
{
    unsigned physical;
    CUresult code =
            uuid != NULL ? physical_of(ordinal, &physical) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        fake_the_face.uuid(physical, (unsigned char *)uuid->bytes);
    return hip_end(code);
}

hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t ordinal)
{
    CUresult code = cuInit(0);

    if (code == CUDA_SUCCESS)
        code = cuDeviceTotalMem_v2(bytes, ordinal);
    return hip_end(code);
}

/* Of the whole struct, the name of the card and of its target. */
static hipError_t properties(void *out, int ordinal, size_t bytes, size_t arch)
{
    unsigned physical;
    char *text = out;
    CUresult code =
            out != NULL ? physical_of(ordinal, &physical) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS) {
        memset(out, 0, bytes);
        snprintf(text, HIP_PROP_ARCH_NAME_BYTES, "Fake Radeon");
        snprintf(text + arch, HIP_PROP_ARCH_NAME_BYTES, "%s", hip_target(physical));
    }
    return hip_end(code);
}

hipError_t hipGetDevicePropertiesR0600(void *out, int ordinal)
{
    return properties(out, ordinal, HIP_PROP_R0600_BYTES, HIP_PROP_R0600_ARCH);
}

hipError_t hipGetDeviceProperties(void *out, int ordinal)
{
    return properties(out, ordinal, HIP_PROP_R0000_BYTES, HIP_PROP_R0000_ARCH);
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute,
        int ordinal)
{
    unsigned physical = 0, numbers[3];
    CUresult code =
            value != NULL ? physical_of(ordinal, &physical) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return hip_end(code);
    hip_target_numbers(hip_target(physical), numbers);
    switch (attribute) {
    case hipDeviceAttributeCanMapHostMemory: *value = 1; break;
    case hipDeviceAttributeHostNativeAtomicSupported:
        *value = hip_set.atomics[physical];
        break;
    case hipDeviceAttributeIntegrated: *value = 0; break;
    case hipDeviceAttributeComputeCapabilityMajor: *value = (int)numbers[0]; break;
    case hipDeviceAttributeComputeCapabilityMinor: *value = (int)numbers[1]; break;
    case hipDeviceAttributeMaxThreadsPerBlock: *value = FAKE_BLOCK_LIMIT; break;
    case hipDeviceAttributeMultiprocessorCount:
        *value = (int)fake_set.processors;
        break;
    case hipDeviceAttributeWarpSize: *value = numbers[0] < 10 ? 64 : 32; break;
    case hipDeviceAttributeFineGrainSupport: *value = hip_set.fine_grained; break;
    case hipDeviceAttributeIsLargeBar: *value = fake_set.peer != FAKE_PEER_NONE; break;
    default: code = CUDA_ERROR_INVALID_VALUE;
    }
    return hip_end(code);
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult code = hip_begin();

    if (code != CUDA_SUCCESS)
        return hip_end(code);
    if (least != NULL)
        *least = 1;
    if (greatest != NULL)
        *greatest = -1;
    return hip_end(CUDA_SUCCESS);
}

hipError_t hipDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
    CUresult code = cuInit(0);

    if (code == CUDA_SUCCESS)
        code = cuDeviceCanAccessPeer(can, ordinal, peer);
    return hip_end(code);
}

/* Where the way is missing HIP blames the device, not the way. */
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext context = NULL;
    CUdevice device;
    CUresult code = flags == 0 ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuDeviceGet(&device, peer);
    if (code == CUDA_SUCCESS)
        code = primary_of(peer, &context);
    if (code == CUDA_SUCCESS)
        code = cuCtxEnablePeerAccess(context, 0);
    return hip_end(code == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
                    ? CUDA_ERROR_INVALID_DEVICE
                    : code);
}

hipError_t hipDeviceSynchronize(void)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuCtxSynchronize();
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    return hip_end_own(hip_refused(NULL, true));
}
