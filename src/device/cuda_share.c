/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process in another. An export names the allocation by its owner's token
 * and number, so that two imports of it share one mapping. A freed allocation's mapping
 * elsewhere stays valid until it is given up there; its successor at the same address has
 * another number.
 */
#include "device/cuda.h"

#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef enum import_state { IMPORT_BUSY, IMPORT_READY, IMPORT_FAILED } import_state;

typedef struct import {
    struct import *next;
    /* what it is */
    motet_gpu *gpu;
    uint32_t kind;
    uint64_t process, buffer_id, base;
    /* where it is here */
    uint64_t address, bytes;
    unsigned holds;
    import_state state;
} import;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static import *imports;

static pthread_once_t token_once = PTHREAD_ONCE_INIT;
static uint64_t token;

/* Random: process ids repeat, in containers they are all alike. */
static void make_token(void)
{
    if (getrandom(&token, sizeof(token), GRND_NONBLOCK) != (ssize_t)sizeof(token) ||
            token == 0)
        token = motet_wall_ns() ^ (uint64_t)getpid() << 40 ^ 1;
}

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
    motet_gpu_export export = { .kind = MOTET_GPU_EXPORT_NONE, .address = address };
    motet_pointer pointer;
    motet_cuda_scope scope;
    motet_result result;
    int fd = -1;

    pthread_once(&token_once, make_token);
    MOTET_TRY(motet_cuda_pointer(address, &pointer), "export");
    if (pointer.kind != MOTET_POINTER_DEVICE || pointer.bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "export 0x%llx: it is not memory of a device",
                (unsigned long long)address);
    export.process = token;
    export.ordinal = pointer.ordinal;
    export.bytes = pointer.bytes;
    export.offset = address - pointer.base;
    export.buffer_id = pointer.buffer_id;
    snprintf(export.identity, sizeof(export.identity), "%s", gpu->facts.identity);
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
    motet_cuda_hold(e->address);
    *out = (motet_gpu_memory){ .address = e->address, .bytes = e->bytes - e->offset };
    return MOTET_OK;
}

/* ---- imports from other processes ---- */

/* With the lock held; waits for one that is being made. NULL: there is none. */
static import *find(const motet_gpu *gpu, const motet_gpu_export *e)
{
    const uint64_t base = e->address - e->offset;
    import *i = imports;

    while (i != NULL &&
            (e->buffer_id == 0 || i->gpu != gpu || i->kind != e->kind ||
                    i->process != e->process || i->buffer_id != e->buffer_id ||
                    i->base != base))
        i = i->next;
    if (i != NULL)
        i->holds++;
    while (i != NULL && i->state == IMPORT_BUSY)
        pthread_cond_wait(&changed, &lock);
    return i;
}

/* With the lock held: one holder less; the import if that was the last one, taken out. */
static import *drop(import *i)
{
    import **at = &imports;

    if (--i->holds != 0)
        return NULL;
    while (*at != i)
        at = &(*at)->next;
    *at = i->next;
    return i;
}

static motet_result open_fd(motet_gpu *gpu, int fd, import *i)
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

static motet_result open_handle(motet_gpu *gpu, const motet_gpu_export *e, import *i)
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
        import *i)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "import");
    result = e->kind == MOTET_GPU_EXPORT_FD ? open_fd(gpu, fd, i)
                                            : open_handle(gpu, e, i);
    motet_cuda_leave(&scope);
    return result;
}

/* Not under the lock: the driver may wait for a kernel that waits for another thread. */
static motet_result finish(motet_gpu *gpu, const motet_gpu_export *e, int fd, import *i)
{
    motet_result result = open_import(gpu, e, fd, i);
    import *last = NULL;

    pthread_mutex_lock(&lock);
    i->state = result == MOTET_OK ? IMPORT_READY : IMPORT_FAILED;
    pthread_cond_broadcast(&changed);
    if (result != MOTET_OK)
        last = drop(i);
    pthread_mutex_unlock(&lock);
    free(last);
    return result;
}

static motet_result check_export(const motet_gpu_export *e, int fd)
{
    if (e->kind != MOTET_GPU_EXPORT_FD && e->kind != MOTET_GPU_EXPORT_HANDLE)
        return motet_fail(MOTET_ERR_DEVICE,
                "memory of %.95s cannot be shared with another process", e->identity);
    if (e->kind == MOTET_GPU_EXPORT_FD && fd < 0)
        return motet_fail(MOTET_ERR_INTERNAL,
                "memory of %.95s came without its descriptor", e->identity);
    if (e->bytes == 0 || e->offset >= e->bytes || e->address < e->offset)
        return motet_fail(MOTET_ERR_REMOTE,
                "memory of %.95s: offset %llu of %llu bytes makes no sense",
                e->identity, (unsigned long long)e->offset,
                (unsigned long long)e->bytes);
    return MOTET_OK;
}

motet_result motet_cuda_import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out)
{
    motet_result result = MOTET_OK;
    import *fresh, *i, *last = NULL;

    if (exported->process == own_process)
        return import_here(gpu, exported, out);
    MOTET_TRY(check_export(exported, fd), "import");
    fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "import");
    *fresh = (import){ .gpu = gpu,
        .kind = exported->kind,
        .process = exported->process,
        .buffer_id = exported->buffer_id,
        .base = exported->address - exported->offset,
        .bytes = exported->bytes,
        .holds = 1,
        .state = IMPORT_BUSY };
    pthread_mutex_lock(&lock);
    i = find(gpu, exported);
    if (i == NULL) {
        fresh->next = imports;
        imports = fresh;
    } else if (i->state == IMPORT_FAILED) {
        last = drop(i);
        result = motet_fail(MOTET_ERR_DEVICE,
                "another thread failed to map it at the same time");
    }
    pthread_mutex_unlock(&lock);
    free(last);
    if (i == NULL)
        result = finish(gpu, exported, fd, i = fresh);
    else
        free(fresh);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "memory of %.95s on device %d",
                exported->identity, gpu->ordinal);
    *out = (motet_gpu_memory){ .address = i->address + exported->offset,
        .bytes = exported->bytes - exported->offset,
        .owned = i };
    return MOTET_OK;
}

void motet_cuda_unimport(motet_gpu *gpu, motet_gpu_memory *memory)
{
    import *last = NULL;
    motet_cuda_scope scope;

    if (memory->owned != NULL) {
        pthread_mutex_lock(&lock);
        last = drop(memory->owned);
        pthread_mutex_unlock(&lock);
    } else if (memory->address != 0) {
        motet_cuda_release(memory->address);
    }
    *memory = (motet_gpu_memory){ .address = 0 };
    if (last == NULL)
        return;
    if (motet_cuda_enter_relaxed(gpu, &scope) == MOTET_OK) {
        if (last->kind == MOTET_GPU_EXPORT_FD)
            motet_cuda_unmap(last->address, last->bytes);
        else
            (void)motet_cuda.cuIpcCloseMemHandle(last->address); /* opened by us */
        motet_cuda_leave(&scope);
    }
    free(last);
}
