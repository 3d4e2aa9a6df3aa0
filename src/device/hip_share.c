/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process in another, by handle, and of one device for another. A handle
 * stands for the whole allocation: it is taken of its beginning, and the offset goes along
 * beside it.
 */
#include "device/hip.h"

#include <string.h>

/* ---- exports ---- */

/* Errors that mean "not this way", rather than that something broke: memory that was
 * mapped from pieces, of a pool, of the host. */
static bool is_refusal(hipError_t error)
{
    return error == hipErrorInvalidValue || error == hipErrorNotSupported ||
            error == hipErrorInvalidHandle || error == hipErrorInvalidDevicePointer ||
            error == hipErrorNotFound || error == hipErrorInvalidContext;
}

static motet_result export_handle(uint64_t base, motet_gpu_export *out)
{
    hipIpcMemHandle_t handle;
    const hipError_t error =
            motet_hip.hipIpcGetMemHandle(&handle, (void *)(uintptr_t)base);

    _Static_assert(sizeof(handle) == sizeof(out->handle), "it goes over the wire");
    if (is_refusal(error))
        return MOTET_OK;
    MOTET_TRY(motet_hip_check(error, "hipIpcGetMemHandle", __FILE__, __LINE__),
            "export 0x%llx", (unsigned long long)base);
    memcpy(out->handle, &handle, sizeof(handle));
    out->kind = MOTET_GPU_EXPORT_HANDLE;
    return MOTET_OK;
}

/* What a peer could not read or write while a kernel of @p owner, its device, runs: caches
 * keep it (docs/memory-model.md). Of others' memory the runtime tells how it was asked for;
 * plain hipMalloc() is coarse. */
static bool is_coarse(const motet_gpu *owner, uint64_t address)
{
    hipPointerAttribute_t attributes = { .allocationFlags = 0 };
    motet_gpu_allocation own;
    motet_hip_scope scope;
    hipError_t error;

    if (motet_gpu_allocation_at(&motet_hip_memories, address, &own))
        return own.how == MOTET_HIP_COARSE;
    motet_hip_enter_any(&scope);
    error = motet_hip.hipPointerGetAttributes(&attributes, (void *)(uintptr_t)address);
    motet_hip_leave(&scope);
    return error != hipSuccess ||
            attributes.allocationFlags == hipDeviceMallocDefault ||
            !motet_hip_has_memory(owner, attributes.allocationFlags);
}

motet_result motet_hip_export(motet_gpu *gpu, uint64_t address, motet_gpu_export *out,
        int *fd_out)
{
    motet_gpu_export export;
    motet_pointer pointer;
    motet_hip_scope scope;
    motet_gpu *owner = NULL;
    motet_result result = MOTET_OK;

    MOTET_TRY(motet_hip_pointer(address, &pointer), "export");
    MOTET_TRY(motet_gpu_describe_export(&gpu->facts, address, &pointer, &export),
            "export");
    MOTET_TRY(motet_hip_gpu_open(pointer.ordinal, &owner), "owner's device");
    if (gpu->facts.legacy_ipc && !is_coarse(owner, address)) {
        MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "export");
        result = export_handle(pointer.base, &export);
        motet_hip_leave(&scope);
    }
    if (result != MOTET_OK)
        return result;
    *out = export;
    *fd_out = -1;
    return MOTET_OK;
}

/* ---- imports in this process ---- */

/* 704 says that it is done already. */
static motet_result enable_peer(const motet_gpu *from, const motet_gpu *to)
{
    motet_hip_scope scope;
    motet_result result = MOTET_OK;
    hipError_t error;
    int can = 0;

    MOTET_TRY(motet_hip_enter_relaxed(from, &scope), "peer access");
    result = HIP(hipDeviceCanAccessPeer, &can, from->ordinal, to->ordinal);
    if (result == MOTET_OK && can == 0)
        result = motet_fail(MOTET_ERR_DEVICE,
                "device %d (%s) has no peer access to device %d (%s)", from->ordinal,
                from->facts.bus_id, to->ordinal, to->facts.bus_id);
    if (result == MOTET_OK) {
        error = motet_hip.hipDeviceEnablePeerAccess(to->ordinal, 0);
        if (error != hipErrorPeerAccessAlreadyEnabled)
            result = motet_hip_check(error, "hipDeviceEnablePeerAccess", __FILE__,
                    __LINE__);
    }
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "access from device %d to device %d",
                from->ordinal, to->ordinal);
    return MOTET_OK;
}

/* The devices are opened for each other as a whole, in both directions, since the other
 * one will want the same. */
static motet_result import_here(motet_gpu *gpu, const motet_gpu_export *e,
        motet_gpu_memory *out)
{
    motet_gpu *owner = NULL;

    MOTET_TRY(motet_hip_gpu_open(e->ordinal, &owner), "owner's device");
    if (owner != gpu) {
        if (is_coarse(owner, e->address))
            return motet_fail(MOTET_ERR_DEVICE,
                    "device %d (%s) has no memory that device %d may read while a "
                    "kernel writes it: neither uncached nor fine-grained",
                    owner->ordinal, owner->facts.bus_id, gpu->ordinal);
        MOTET_TRY(enable_peer(gpu, owner), "peer access");
        MOTET_TRY(enable_peer(owner, gpu), "peer access");
    }
    motet_gpu_import_in_place(&motet_hip_memories, e, out);
    return MOTET_OK;
}

/* ---- imports from other processes ---- */

static motet_result open_import(motet_gpu *gpu, const motet_gpu_export *e, int fd,
        motet_gpu_import *i)
{
    hipIpcMemHandle_t handle;
    motet_hip_scope scope;
    motet_result result;
    void *address = NULL;

    (void)fd;
    if (e->kind != MOTET_GPU_EXPORT_HANDLE || !gpu->facts.legacy_ipc)
        return motet_fail(MOTET_ERR_DEVICE,
                "device %d cannot map memory %s, its peer's can", gpu->ordinal,
                e->kind == MOTET_GPU_EXPORT_HANDLE ? "by handle" : "by descriptor");
    memcpy(&handle, e->handle, sizeof(handle));
    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "import");
    result = HIP(hipIpcOpenMemHandle, &address, handle,
            motet_hip_version() < 6000 ? HIP_IPC_LAZY_R0000
                                       : hipIpcMemLazyEnablePeerAccess);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "handle");
    i->address = (uint64_t)(uintptr_t)address;
    return MOTET_OK;
}

static void close_import(motet_gpu *gpu, const motet_gpu_import *i)
{
    motet_hip_scope scope;

    if (motet_hip_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    (void)motet_hip.hipIpcCloseMemHandle(
            (void *)(uintptr_t)i->address); /* opened by us */
    motet_hip_leave(&scope);
}

static motet_gpu_imports imports = MOTET_GPU_IMPORTS_INIT(open_import, close_import);

motet_result motet_hip_import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out)
{
    if (exported->process == own_process)
        return import_here(gpu, exported, out);
    return motet_gpu_import_shared(&imports, gpu, gpu->ordinal, exported, fd, out);
}

void motet_hip_unimport(motet_gpu *gpu, motet_gpu_memory *memory)
{
    motet_gpu_unimport_any(&imports, &motet_hip_memories, gpu, memory);
}
