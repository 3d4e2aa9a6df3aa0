/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary device memory, its handles for other processes, and host memory. A handle
 * says which descriptor of which process to open; /proc lets one user's processes do so.
 */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

typedef struct ipc_handle {
    fake_label label;
    int32_t pid, fd;
} ipc_handle;

_Static_assert(sizeof(ipc_handle) <= sizeof(CUipcMemHandle),
        "fits the driver's handle");

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Map @p memory, and a page behind it that faults. Takes over the reference. */
static CUresult map_new(enum fake_range_kind kind, fake_physical *memory, size_t bytes,
        uint64_t *address_out)
{
    void *address = fake_reserve(memory->bytes + PAGE, FAKE_GRANULE);
    fake_range *range;
    CUresult code;

    if (address == NULL) {
        fake_physical_unref(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    code = fake_physical_map(memory, 0, memory->bytes, address, PROT_READ | PROT_WRITE);
    if (code != CUDA_SUCCESS) {
        munmap(address, memory->bytes + PAGE);
        fake_physical_unref(memory);
        return code;
    }
    range = fake_range_add(kind, (uintptr_t)address, bytes);
    range->memory = memory;
    range->context = fake_current();
    *address_out = range->address;
    return CUDA_SUCCESS;
}

/* The range disappears at once; the memory, when everything before has run. */
static void unmap(fake_range *range)
{
    void *address = (void *)(uintptr_t)range->address;
    size_t bytes =
            range->memory != NULL ? range->memory->bytes + PAGE : pages(range->bytes);
    fake_physical *memory = range->memory;
    fake_context *context = range->context;

    if (memory != NULL)
        memory->refs++;
    fake_range_remove(range);
    fake_context_drain(context);
    fake_shadow_unmap(address, bytes);
    munmap(address, bytes);
    fake_physical_unref(memory);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    fake_physical *memory;
    uint64_t address;
    CUresult code = out != NULL && bytes > 0 && bytes <= SIZE_MAX / 2
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_physical_new(fake_current()->device, pages(bytes), &memory);
    if (code == CUDA_SUCCESS)
        code = map_new(FAKE_RANGE_DEVICE, memory, bytes, &address);
    if (code == CUDA_SUCCESS)
        *out = address;
    return fake_leave(code);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    fake_range *range;
    CUresult code = fake_enter(FAKE_CONTEXT | FAKE_UNSAFE);

    if (code != CUDA_SUCCESS || address == 0)
        return code == CUDA_SUCCESS ? fake_leave(code) : code;
    range = fake_range_exact(FAKE_RANGE_DEVICE, address);
    if (range == NULL)
        range = fake_range_exact(FAKE_RANGE_MANAGED, address);
    if (range == NULL)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    unmap(range);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUresult code = free != NULL && total != NULL ? fake_enter(FAKE_CONTEXT)
                                                  : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *free = fake_current()->device->free_bytes;
    *total = fake_set.memory_bytes;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    ipc_handle handle = { .pid = getpid() };
    const fake_range *range;
    CUresult code = out != NULL ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
                                : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_at(address);
    if (range == NULL || range->kind != FAKE_RANGE_DEVICE)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    handle.label = fake_physical_label(range->memory);
    handle.fd = range->memory->fd;
    memset(out, 0, sizeof(*out));
    memcpy(out, &handle, sizeof(handle));
    return fake_leave(CUDA_SUCCESS);
}

/* The exporter may have closed the descriptor, and used its number for something else. */
static CUresult open_handle(const ipc_handle *handle, fake_physical **out)
{
    char path[64];
    CUresult code;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    code = fake_physical_import(fd, out);
    if (code != CUDA_SUCCESS) {
        close(fd);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if ((*out)->number == handle->label.number && (*out)->bytes == handle->label.bytes)
        return CUDA_SUCCESS;
    fake_physical_unref(*out);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle opaque, unsigned flags)
{
    fake_physical *memory;
    fake_range *range;
    ipc_handle handle;
    uint64_t address;
    CUresult code = out != NULL && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    memcpy(&handle, &opaque, sizeof(handle));
    range = fake_range_opened(&handle.label);
    if (range != NULL) {
        range->opened++;
        *out = range->address;
        return fake_leave(CUDA_SUCCESS);
    }
    code = open_handle(&handle, &memory);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (!memory->foreign)
        code = CUDA_ERROR_INVALID_CONTEXT;
    else if (!fake_peers(fake_current()->device->physical, memory->physical))
        code = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (code != CUDA_SUCCESS) {
        fake_physical_unref(memory);
        return fake_leave(code);
    }
    code = map_new(FAKE_RANGE_IPC, memory, memory->bytes, &address);
    if (code == CUDA_SUCCESS) {
        range = fake_range_at(address);
        range->opened = 1;
        range->process = handle.label.process;
        *out = address;
    }
    return fake_leave(code);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    fake_range *range;
    CUresult code = fake_enter(FAKE_CONTEXT | FAKE_UNSAFE);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_exact(FAKE_RANGE_IPC, address);
    if (range == NULL)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (--range->opened == 0)
        unmap(range);
    return fake_leave(CUDA_SUCCESS);
}

/* ---- host memory ---- */

static CUresult host_alloc(enum fake_range_kind kind, size_t bytes, uint64_t *out)
{
    fake_range *range;
    void *address = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (address == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range = fake_range_add(kind, (uintptr_t)address, bytes);
    range->context = fake_current();
    *out = range->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    uint64_t address;
    CUresult code = out != NULL && bytes > 0 && (flags == 1 || flags == 2)
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = host_alloc(FAKE_RANGE_MANAGED, bytes, &address);
    if (code == CUDA_SUCCESS)
        *out = address;
    return fake_leave(code);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    uint64_t address;
    CUresult code = out != NULL && bytes > 0 && flags <= 7
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = host_alloc(FAKE_RANGE_HOST, bytes, &address);
    if (code == CUDA_SUCCESS)
        *out = (void *)(uintptr_t)address;
    return fake_leave(code);
}

CUresult cuMemFreeHost(void *memory)
{
    fake_range *range;
    CUresult code = fake_enter(FAKE_CONTEXT | FAKE_UNSAFE);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_exact(FAKE_RANGE_HOST, (uintptr_t)memory);
    if (range == NULL)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    unmap(range);
    return fake_leave(CUDA_SUCCESS);
}

/* Is every page there? */
static bool mapped(const void *memory, size_t bytes)
{
    uintptr_t first = (uintptr_t)memory / PAGE * PAGE;
    size_t span = pages((uintptr_t)memory + bytes - first);
    unsigned char in_core[1024];
    bool all = true;

    for (size_t at = 0; all && at < span; at += sizeof(in_core) * PAGE) {
        size_t part =
                span - at < sizeof(in_core) * PAGE ? span - at : sizeof(in_core) * PAGE;

        all = mincore((void *)(first + at), part, in_core) == 0;
    }
    return all;
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    fake_range *range;
    CUresult code = memory != NULL && bytes > 0 && flags <= 0x1f
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    if (!mapped(memory, bytes))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (fake_range_overlap(false, (uintptr_t)memory, bytes) != NULL)
        return fake_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    range = fake_range_add(FAKE_RANGE_REGISTERED, (uintptr_t)memory, bytes);
    range->context = fake_current();
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *memory)
{
    fake_range *range;
    CUresult code = fake_enter(FAKE_CONTEXT | FAKE_UNSAFE);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_exact(FAKE_RANGE_REGISTERED, (uintptr_t)memory);
    if (range == NULL)
        return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    fake_context_drain(range->context);
    fake_range_remove(range);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags)
{
    const fake_range *range;
    CUresult code = out != NULL && flags == 0 ? fake_enter(FAKE_CONTEXT)
                                              : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_at((uintptr_t)memory);
    if (range == NULL ||
            (range->kind != FAKE_RANGE_HOST && range->kind != FAKE_RANGE_REGISTERED))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *out = (uintptr_t)memory;
    return fake_leave(CUDA_SUCCESS);
}
