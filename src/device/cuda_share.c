/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process in another, by descriptor or by handle, and of one device for
 * another.
 */
#include "device/cuda.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- exports ---- */

/* Errors that mean "not this way", rather than that something broke. */
static bool is_refusal(CUresult error)
{
    return error == CUDA_ERROR_INVALID_VALUE || error == CUDA_ERROR_NOT_SUPPORTED ||
            error == CUDA_ERROR_NOT_PERMITTED || error == CUDA_ERROR_INVALID_HANDLE ||
            error == CUDA_ERROR_NOT_FOUND;
}

/* A descriptor of the allocation that holds @p base; *fd_out stays −1 if it has none. */
static motet_result export_fd(uint64_t base, int *fd_out)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult error;
    int fd = -1;

    if (motet_cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)base) !=
            CUDA_SUCCESS)
        return MOTET_OK; /* made by the plain allocator */
    error = motet_cuda.cuMemExportToShareableHandle(&fd, handle,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    (void)motet_cuda.cuMemRelease(handle); /* retained above */
    if (is_refusal(error))
        return MOTET_OK;
    MOTET_TRY(motet_cuda_check(error, "cuMemExportToShareableHandle", __FILE__,
                      __LINE__),
            "export 0x%llx", (unsigned long long)base);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        (void)close(fd); /* as given */
        return motet_fail_errno(MOTET_ERR_SYSTEM, "descriptor of device memory");
    }
    *fd_out = fd;
    return MOTET_OK;
}

static motet_result export_handle(uint64_t base, motet_gpu_export *out)
{
    CUipcMemHandle handle;
    const CUresult error = motet_cuda.cuIpcGetMemHandle(&handle, base);

    _Static_assert(sizeof(handle) == sizeof(out->handle), "it goes over the wire");
    if (is_refusal(error))
        return MOTET_OK;
    MOTET_TRY(motet_cuda_check(error, "cuIpcGetMemHandle", __FILE__, __LINE__),
            "export 0x%llx", (unsigned long long)base);
    memcpy(out->handle, &handle, sizeof(handle));
    out->kind = MOTET_GPU_EXPORT_HANDLE;
    return MOTET_OK;
}

static motet_result export_inside(const motet_gpu *gpu, uint64_t base,
        motet_gpu_export *out, int *fd_out)
{
    if (gpu->facts.share_fd)
        MOTET_TRY(export_fd(base, fd_out), "descriptor");
    if (*fd_out >= 0)
        out->kind = MOTET_GPU_EXPORT_FD;
    else if (gpu->facts.legacy_ipc)
        return export_handle(base, out);
    return MOTET_OK;
}

motet_result motet_cuda_export(motet_gpu *gpu, uint64_t address, motet_gpu_export *out,
        int *fd_out)
{
    motet_gpu_export export;
    motet_pointer pointer;
    motet_cuda_scope scope;
    motet_result result;
    int fd = -1;

    MOTET_TRY(motet_cuda_pointer(address, &pointer), "export");
    MOTET_TRY(motet_gpu_describe_export(&gpu->facts, address, &pointer, &export),
            "export");
    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "export");
    result = export_inside(gpu, pointer.base, &export, &fd);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return result;
    *out = export;
    *fd_out = fd;
    return MOTET_OK;
}

/* ---- imports in this process ---- */

/* 704 says that it is done already. */
static motet_result enable_peer(const motet_gpu *from, const motet_gpu *to)
{
    motet_cuda_scope scope;
    motet_result result = MOTET_OK;
    CUresult error;

    MOTET_TRY(motet_cuda_enter_relaxed(from, &scope), "peer access");
    error = motet_cuda.cuCtxEnablePeerAccess(to->context, 0);
    if (error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        result = motet_cuda_check(error, "cuCtxEnablePeerAccess", __FILE__, __LINE__);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "access from device %d to device %d",
                from->ordinal, to->ordinal);
    return MOTET_OK;
}

static motet_result check_peer(const motet_gpu *gpu, const motet_gpu *owner)
{
    int can = 0;

    MOTET_TRY(CUDA(cuDeviceCanAccessPeer, &can, gpu->device, owner->device),
            "peer access");
    if (can == 0)
        return motet_fail(MOTET_ERR_DEVICE,
                "device %d (%s) has no peer access to device %d (%s)", gpu->ordinal,
                gpu->facts.bus_id, owner->ordinal, owner->facts.bus_id);
    return MOTET_OK;
}

static motet_result grant(const motet_gpu *gpu, uint64_t base, uint64_t bytes)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "peer access");
    result = motet_cuda_grant(gpu, base, bytes);
    motet_cuda_leave(&scope);
    return result;
}

/* Mapped memory is opened for the device that wants it; plain memory of a device as a
 * whole, for both, since the other one will want the same. */
static motet_result import_here(motet_gpu *gpu, const motet_gpu_export *e,
        motet_gpu_memory *out)
{
    const uint64_t base = e->address - e->offset;
    motet_gpu *owner = NULL;

    MOTET_TRY(motet_cuda_gpu_open(e->ordinal, &owner), "owner's device");
    if (owner != gpu) {
        MOTET_TRY(check_peer(gpu, owner), "peer access");
        if (e->kind == MOTET_GPU_EXPORT_FD) {
            MOTET_TRY(grant(gpu, base, e->bytes), "access from device %d",
                    gpu->ordinal);
        } else {
            MOTET_TRY(enable_peer(gpu, owner), "peer access");
            MOTET_TRY(enable_peer(owner, gpu), "peer access");
        }
    }
    motet_gpu_import_in_place(&motet_cuda_memories, e, out);
    return MOTET_OK;
}

/* ---- imports from other processes ---- */

static motet_result open_fd(motet_gpu *gpu, int fd, motet_gpu_import *i)
{
    CUmemGenericAllocationHandle handle = 0;
    motet_result result;

    if (!gpu->facts.share_fd)
        return motet_fail(MOTET_ERR_DEVICE,
                "device %d cannot map memory by descriptor, its peer's can",
                gpu->ordinal);
    MOTET_TRY(CUDA(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "descriptor");
    result = motet_cuda_map(gpu, handle, i->bytes, &i->address);
    (void)motet_cuda.cuMemRelease(
            handle); /* imported above; a mapping keeps the memory */
    return result;
}

static motet_result open_handle(motet_gpu *gpu, const motet_gpu_export *e,
        motet_gpu_import *i)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;

    if (!gpu->facts.legacy_ipc)
        return motet_fail(MOTET_ERR_DEVICE,
                "device %d cannot map memory by handle, its peer's can", gpu->ordinal);
    memcpy(&handle, e->handle, sizeof(handle));
    MOTET_TRY(CUDA(cuIpcOpenMemHandle_v2, &address, handle,
                      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            "handle");
    i->address = address;
    return MOTET_OK;
}

static motet_result open_import(motet_gpu *gpu, const motet_gpu_export *e, int fd,
        motet_gpu_import *i)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "import");
    result = e->kind == MOTET_GPU_EXPORT_FD ? open_fd(gpu, fd, i)
                                            : open_handle(gpu, e, i);
    motet_cuda_leave(&scope);
    return result;
}

static void close_import(motet_gpu *gpu, const motet_gpu_import *i)
{
    motet_cuda_scope scope;

    if (motet_cuda_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    if (i->kind == MOTET_GPU_EXPORT_FD)
        motet_cuda_unmap(i->address, i->bytes);
    else
        (void)motet_cuda.cuIpcCloseMemHandle(i->address); /* opened by us */
    motet_cuda_leave(&scope);
}

static motet_gpu_imports imports = MOTET_GPU_IMPORTS_INIT(open_import, close_import);

motet_result motet_cuda_import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out)
{
    if (exported->process == own_process)
        return import_here(gpu, exported, out);
    return motet_gpu_import_shared(&imports, gpu, gpu->ordinal, exported, fd, out);
}

void motet_cuda_unimport(motet_gpu *gpu, motet_gpu_memory *memory)
{
    motet_gpu_unimport_any(&imports, &motet_cuda_memories, gpu, memory);
}
