/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of devices and of the host, what HIP says of an address, and handles for other
 * processes: the core's, with the place of the address in its allocation behind it.
 */
#include "hip.h"

#include <string.h>

#define OFFSET_AT     56 /* in a handle; the core's is shorter                     */
#define HOST_FLAGS    0xe0000007u
#define BOTH_COHERENT 0xc0000000u

static CUdeviceptr address_of(const void *pointer)
{
    return (uintptr_t)pointer;
}

/* ---- devices ---- */

/* One of those that FAKEHIP_ALLOCATIONS grants. */
static bool granted(void)
{
    bool yes;

    pthread_mutex_lock(&fake_lock);
    yes = hip_set.allocations > 0;
    if (yes && hip_set.allocations != UINT64_MAX)
        hip_set.allocations--;
    pthread_mutex_unlock(&fake_lock);
    return yes;
}

static CUresult allocate(void **out, size_t bytes, unsigned flags)
{
    fake_range *range;
    CUdeviceptr address = 0;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS && bytes > 0 && !granted())
        code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == CUDA_SUCCESS && bytes > 0)
        code = cuMemAlloc_v2(&address, bytes);
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&fake_lock);
    range = fake_range_at(address);
    if (range != NULL)
        range->flags = flags;
    pthread_mutex_unlock(&fake_lock);
    *out = (void *)(uintptr_t)address;
    return code;
}

hipError_t hipMalloc(void **out, size_t bytes)
{
    return hip_end(allocate(out, bytes, hipDeviceMallocDefault));
}

hipError_t hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS && flags != hipDeviceMallocDefault &&
            flags != hipDeviceMallocFinegrained &&
            (flags != hipDeviceMallocUncached || hip_set.major < 6))
        code = CUDA_ERROR_INVALID_VALUE;
    return hip_end(code == CUDA_SUCCESS ? allocate(out, bytes, flags) : code);
}

hipError_t hipFree(void *address)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuMemFree_v2(address_of(address));
    return hip_end(code);
}

hipError_t hipMallocManaged(void **out, size_t bytes, unsigned flags)
{
    CUdeviceptr address = 0;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuMemAllocManaged(&address, bytes, flags);
    if (code == CUDA_SUCCESS)
        *out = (void *)(uintptr_t)address;
    return hip_end(code);
}

/* ---- the host ---- */

hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags)
{
    CUresult code = out != NULL && (flags & ~HOST_FLAGS) == 0 &&
                    (flags & BOTH_COHERENT) != BOTH_COHERENT
            ? hip_begin()
            : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS && bytes == 0)
        *out = NULL;
    else if (code == CUDA_SUCCESS)
        code = cuMemHostAlloc(out, bytes, flags & 7);
    return hip_end(code);
}

hipError_t hipHostFree(void *memory)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS && memory != NULL)
        code = cuMemFreeHost(memory);
    return hip_end(code);
}

hipError_t hipHostRegister(void *memory, size_t bytes, unsigned flags)
{
    CUresult code = flags <= 0xf ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuMemHostRegister_v2(memory, bytes, flags & 3);
    /* A second registration goes well; one call undoes both. */
    return hip_end(
            code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ? CUDA_SUCCESS : code);
}

hipError_t hipHostUnregister(void *memory)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuMemHostUnregister(memory);
    return hip_end(code);
}

hipError_t hipHostGetDevicePointer(void **out, void *memory, unsigned flags)
{
    CUdeviceptr address;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuMemHostGetDevicePointer_v2(&address, memory, flags);
    if (code == CUDA_SUCCESS)
        *out = (void *)(uintptr_t)address;
    return hip_end(code);
}

/* ---- addresses ---- */

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes,
        hipDeviceptr_t address)
{
    CUdeviceptr found;
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuMemGetAddressRange_v2(&found, bytes, address_of(address));
    if (code == CUDA_SUCCESS && base != NULL)
        *base = (void *)(uintptr_t)found;
    return hip_end(code);
}

/* The device that allocated it; of another process's memory, the one that opened it. */
static int ordinal_of(const fake_range *range)
{
    return range->context != NULL ? (int)range->context->device->ordinal : 0;
}

static int type_of(enum fake_range_kind kind)
{
    bool new = hip_set.major >= 6;

    switch (kind) {
    case FAKE_RANGE_HOST:
    case FAKE_RANGE_REGISTERED:
        return new ? HIP_MEMORY_R0600_HOST : HIP_MEMORY_R0000_HOST;
    case FAKE_RANGE_MANAGED:
        return new ? HIP_MEMORY_R0600_MANAGED : HIP_MEMORY_R0000_HOST;
    default: return new ? HIP_MEMORY_R0600_DEVICE : HIP_MEMORY_R0000_DEVICE;
    }
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *address)
{
    const fake_range *range;
    CUresult code =
            out != NULL && address != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    range = fake_range_at(address_of(address));
    if (range == NULL && hip_set.major < 6)
        return hip_end(fake_leave(CUDA_ERROR_INVALID_VALUE));
    *out = (hipPointerAttribute_t){ .type = HIP_MEMORY_R0600_UNREGISTERED,
        .device = -2 };
    if (range != NULL) {
        out->type = type_of(range->kind);
        out->device = ordinal_of(range);
        out->devicePointer = (void *)(uintptr_t)address;
        if (range->memory == NULL)
            out->hostPointer = out->devicePointer;
        out->isManaged = range->kind == FAKE_RANGE_MANAGED;
        out->allocationFlags = range->flags;
    }
    return hip_end(fake_leave(CUDA_SUCCESS));
}

hipError_t hipPointerGetAttribute(void *value, hipPointer_attribute attribute,
        hipDeviceptr_t address)
{
    const fake_range *range;
    uint32_t number;
    CUresult code = value != NULL && attribute == HIP_POINTER_ATTRIBUTE_BUFFER_ID
            ? hip_begin()
            : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    range = fake_range_at(address_of(address));
    if (range == NULL)
        return hip_end(fake_leave(CUDA_ERROR_INVALID_VALUE));
    number = (uint32_t)range->number;
    memcpy(value, &number, sizeof(number));
    return hip_end(fake_leave(CUDA_SUCCESS));
}

/* ---- other processes ---- */

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *pointer)
{
    CUipcMemHandle handle;
    CUdeviceptr base;
    uint64_t offset;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS && hip_set.ipc == HIP_IPC_NOGET)
        return hip_end_own(hipErrorInvalidDevicePointer);
    if (code == CUDA_SUCCESS)
        code = cuIpcGetMemHandle(&handle, address_of(pointer));
    if (code == CUDA_SUCCESS)
        code = cuMemGetAddressRange_v2(&base, NULL, address_of(pointer));
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    memcpy(out, &handle, sizeof(*out));
    offset = address_of(pointer) - base;
    memcpy(out->reserved + OFFSET_AT, &offset, sizeof(offset));
    return hip_end(CUDA_SUCCESS);
}

hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t opaque, unsigned flags)
{
    CUipcMemHandle handle;
    CUdeviceptr base;
    uint64_t offset;
    /* The one flag there is, whose number is not always the same. */
    const unsigned lazy =
            hip_set.major < 6 ? HIP_IPC_LAZY_R0000 : hipIpcMemLazyEnablePeerAccess;
    CUresult code =
            out != NULL && flags == lazy ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return hip_end(code);
    memcpy(&offset, opaque.reserved + OFFSET_AT, sizeof(offset));
    memcpy(&handle, &opaque, sizeof(handle));
    if (hip_set.ipc == HIP_IPC_NOOPEN)
        return hip_end_own(hipErrorInvalidDevicePointer);
    code = cuIpcOpenMemHandle_v2(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (code == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || code == CUDA_ERROR_INVALID_HANDLE)
        return hip_end_own(hipErrorInvalidDevicePointer);
    if (code == CUDA_SUCCESS)
        *out = (void *)(uintptr_t)(base + offset);
    return hip_end(code);
}

hipError_t hipIpcCloseMemHandle(void *pointer)
{
    CUdeviceptr base;
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuMemGetAddressRange_v2(&base, NULL, address_of(pointer));
    if (code == CUDA_SUCCESS)
        code = cuIpcCloseMemHandle(base);
    return hip_end(code == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_INVALID_VALUE : code);
}
