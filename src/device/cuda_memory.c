/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device: allocations that can be handed on (physical memory of its own,
 * mapped here; a descriptor stands for it elsewhere), or plain ones where that is not to
 * be had; host memory that devices may touch; and what any address is.
 */
#include "device/cuda.h"

#include <stdint.h>

/* Alignment of what can be handed on, whatever the driver's granularity. */
#define ALIGNMENT ((size_t)2 << 20)

/* The driver numbers buffers, and blocks of memory apart from them: told apart by a bit
 * that neither reaches, nor our own numbers do. */
#define BLOCK_ID (1ull << 62)

/* motet_gpu_allocation.how */
enum { PLAIN, MAPPED };

/* ---- mapping physical memory ---- */

static CUmemAllocationProp shareable_on(const motet_gpu *gpu)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->ordinal },
    };

    prop.allocFlags.gpuDirectRDMACapable = gpu->rdma;
    return prop;
}

motet_result motet_cuda_grant(const motet_gpu *gpu, uint64_t address, uint64_t bytes)
{
    const CUmemAccessDesc access = {
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->ordinal },
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    return CUDA(cuMemSetAccess, address, bytes, &access, 1);
}

motet_result motet_cuda_map(const motet_gpu *gpu, CUmemGenericAllocationHandle handle,
        uint64_t bytes, uint64_t *address_out)
{
    const size_t alignment =
            gpu->granularity > ALIGNMENT ? gpu->granularity : ALIGNMENT;
    CUdeviceptr address = 0;
    motet_result result;

    MOTET_TRY(CUDA(cuMemAddressReserve, &address, bytes, alignment, 0, 0),
            "addresses for %llu bytes", (unsigned long long)bytes);
    result = CUDA(cuMemMap, address, bytes, 0, handle, 0);
    if (result != MOTET_OK)
        goto err_free;
    result = motet_cuda_grant(gpu, address, bytes);
    if (result != MOTET_OK)
        goto err_unmap;
    *address_out = address;
    return MOTET_OK;

err_unmap:
    (void)motet_cuda.cuMemUnmap(address, bytes);
err_free:
    (void)motet_cuda.cuMemAddressFree(address, bytes);
    return result;
}

void motet_cuda_unmap(uint64_t address, uint64_t bytes)
{
    /* Fails only when the process or the context is at its end, and the memory with it. */
    (void)motet_cuda.cuMemUnmap(address, bytes);
    (void)motet_cuda.cuMemAddressFree(address, bytes);
}

/* ---- allocations ---- */

/* The handle is given up at once: the mapping keeps the memory. */
static motet_result make_mapped(motet_gpu *gpu, size_t bytes, motet_gpu_allocation *out,
        CUresult *error_out)
{
    const CUmemAllocationProp prop = shareable_on(gpu);
    const size_t unit = gpu->granularity > ALIGNMENT ? gpu->granularity : ALIGNMENT;
    const size_t whole = (bytes + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle handle = 0;
    motet_result result;

    *error_out = motet_cuda.cuMemCreate(&handle, whole, &prop, 0);
    MOTET_TRY(motet_cuda_check(*error_out, "cuMemCreate", __FILE__, __LINE__),
            "%zu bytes", whole);
    result = motet_cuda_map(gpu, handle, whole, &out->address);
    (void)motet_cuda.cuMemRelease(handle); /* made above */
    out->bytes = whole;
    out->how = MAPPED;
    return result;
}

static motet_result make_plain(size_t bytes, motet_gpu_allocation *out)
{
    CUdeviceptr address = 0;

    MOTET_TRY(CUDA(cuMemAlloc_v2, &address, bytes), "%zu bytes", bytes);
    out->address = address;
    out->bytes = bytes;
    return MOTET_OK;
}

/* In containers that keep the driver from passing descriptors, a handle may still do. */
static bool is_refusal(CUresult error)
{
    return error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_NOT_PERMITTED ||
            error == CUDA_ERROR_INVALID_VALUE;
}

static motet_result zero(motet_gpu *gpu, const motet_gpu_allocation *a)
{
    MOTET_TRY(CUDA(cuMemsetD32Async, a->address, 0, a->bytes / sizeof(uint32_t),
                      gpu->service),
            "clear");
    return CUDA(cuStreamSynchronize, gpu->service);
}

static void unmake(const motet_gpu_allocation *a)
{
    motet_cuda_scope scope;

    if (motet_cuda_enter_relaxed(a->gpu, &scope) != MOTET_OK)
        return; /* the context is gone, and its memory */
    if (a->how == MAPPED)
        motet_cuda_unmap(a->address, a->bytes);
    else
        (void)motet_cuda.cuMemFree_v2(a->address); /* as above */
    motet_cuda_leave(&scope);
}

static motet_result make(motet_gpu *gpu, size_t bytes, motet_gpu_allocation *a)
{
    CUresult error = CUDA_ERROR_NOT_SUPPORTED;
    motet_cuda_scope scope;
    motet_result result = MOTET_ERR_DEVICE;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "memory");
    if (gpu->facts.share_fd)
        result = make_mapped(gpu, bytes, a, &error);
    if (result != MOTET_OK && is_refusal(error))
        result = make_plain((bytes + 3) & ~(size_t)3, a);
    if (result == MOTET_OK) {
        result = zero(gpu, a);
        if (result != MOTET_OK)
            unmake(a);
    }
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_alloc(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out)
{
    return motet_gpu_allocate(&motet_cuda_memories, gpu, gpu->ordinal, bytes, out);
}

void motet_cuda_free(motet_gpu *gpu, motet_gpu_memory *memory)
{
    (void)gpu;
    motet_gpu_give_back(&motet_cuda_memories, memory);
}

/* ---- host memory ---- */

static motet_result enrol(motet_gpu *gpu, void *memory, size_t bytes, bool *ours_out)
{
    const CUresult error = motet_cuda.cuMemHostRegister_v2(memory, bytes,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

    (void)gpu;
    *ours_out = error == CUDA_SUCCESS;
    return error == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
            ? MOTET_OK
            : motet_cuda_check(error, "cuMemHostRegister_v2", __FILE__, __LINE__);
}

static void dismiss(motet_gpu *gpu, void *memory)
{
    (void)gpu;
    (void)motet_cuda.cuMemHostUnregister(memory); /* fails only with the context gone */
}

motet_gpu_memories motet_cuda_memories =
        MOTET_GPU_MEMORIES_INIT(make, unmake, false, enrol, dismiss);

motet_result motet_cuda_register_host(motet_gpu *gpu, void *memory, size_t bytes,
        uint64_t *device_address_out)
{
    CUdeviceptr address = 0;
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "register host memory");
    result = motet_gpu_enrol(&motet_cuda_memories, gpu, memory, bytes);
    if (result == MOTET_OK) {
        result = CUDA(cuMemHostGetDevicePointer_v2, &address, memory, 0);
        if (result != MOTET_OK)
            motet_gpu_dismiss(&motet_cuda_memories, gpu, memory);
    }
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result,
                "register %zu bytes of host memory with device %d", bytes,
                gpu->ordinal);
    *device_address_out = address;
    return MOTET_OK;
}

void motet_cuda_unregister_host(motet_gpu *gpu, void *memory)
{
    motet_cuda_scope scope;

    if (motet_cuda_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    motet_gpu_dismiss(&motet_cuda_memories, gpu, memory);
    motet_cuda_leave(&scope);
}

/* ---- what an address is ---- */

/* Memory that its owner mapped: the driver's buffer number stands for the addresses, whose
 * memory may be exchanged, so the memory's own number is wanted; old drivers have none. */
static uint64_t block_id(uint64_t address)
{
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
    unsigned long long id = 0;
    void *value = &id;

    if (motet_cuda.cuPointerGetAttributes(1, &which, &value, address) != CUDA_SUCCESS ||
            id == 0)
        return 0;
    return id | BLOCK_ID;
}

typedef struct looked_up {
    unsigned type, managed, capable;
    unsigned long long id;
    CUdeviceptr base;
    size_t bytes;
    int ordinal;
} looked_up;

/* False if the driver knows nothing of @p address. */
static bool look_up(uint64_t address, looked_up *l)
{
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE };
    void *values[] = { &l->type, &l->ordinal, &l->managed, &l->id, &l->capable,
        &l->base, &l->bytes };

    *l = (looked_up){ .ordinal = -1 };
    if (motet_cuda.cuPointerGetAttributes(sizeof(which) / sizeof(*which), which, values,
                address) != CUDA_SUCCESS)
        return false;
    if (l->type != CU_MEMORYTYPE_DEVICE || l->managed != 0)
        return l->type != 0;
    if (l->capable == 0)
        l->id = block_id(address);
    /* Of mapped memory the range is all reserved addresses: its mapping is wanted. */
    (void)motet_cuda.cuMemGetAddressRange_v2(&l->base, &l->bytes, address);
    return true;
}

motet_result motet_cuda_pointer(uint64_t address, motet_pointer *out)
{
    motet_cuda_scope scope = { .pushed = false };
    CUcontext now = NULL;
    motet_gpu_allocation own;
    const motet_gpu *any;
    looked_up l;
    bool known;

    *out = (motet_pointer){ .kind = MOTET_POINTER_UNKNOWN, .ordinal = -1 };
    MOTET_TRY(motet_cuda_open(), "look at an address");
    if (motet_gpu_allocation_at(&motet_cuda_memories, address, &own)) {
        *out = motet_gpu_own_pointer(&own); /* known without the driver */
        return MOTET_OK;
    }
    any = motet_cuda_gpu_any();
    if (any != NULL && motet_cuda.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == NULL)
        MOTET_TRY(motet_cuda_enter(any, &scope), "look at an address");
    known = look_up(address, &l);
    motet_cuda_leave(&scope);
    if (!known)
        return MOTET_OK;
    out->kind = l.managed != 0               ? MOTET_POINTER_MANAGED
            : l.type == CU_MEMORYTYPE_DEVICE ? MOTET_POINTER_DEVICE
                                             : MOTET_POINTER_HOST;
    out->ordinal = out->kind == MOTET_POINTER_HOST ? -1 : l.ordinal;
    out->base = l.base;
    out->bytes = l.bytes;
    out->buffer_id = l.id;
    return MOTET_OK;
}
