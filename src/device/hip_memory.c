/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device: allocations that peers may read while kernels run, so uncached or
 * fine-grained; host memory that devices may touch, coherent; and what any address is.
 */
#include "device/hip.h"

#include "base/clock.h"

#include <stdint.h>
#include <string.h>

/* The runtime aligns what is this large to as much, and hands it on as a whole: smaller
 * memory is a piece of a block that others share. */
#define UNIT ((size_t)2 << 20)

/* Longest that new memory may take to be zeroed. */
#define ZERO_S 20

/* The runtime's numbers of buffers, apart from our own. */
#define RUNTIME_ID (1ull << 62)

/* ---- allocations ---- */

/* What memory may be made of, best first. Coarse-grained memory is the last resort: its
 * owner can use it, peers may not see what is written while a kernel runs. */
static const struct {
    int how;
    unsigned flags;
} grains[] = {
    [MOTET_HIP_UNCACHED] = { MOTET_HIP_UNCACHED, hipDeviceMallocUncached },
    [MOTET_HIP_FINE] = { MOTET_HIP_FINE, hipDeviceMallocFinegrained },
    [MOTET_HIP_COARSE] = { MOTET_HIP_COARSE, hipDeviceMallocDefault },
};

/* "Not of this kind", rather than "no more". */
static bool is_refusal(hipError_t error)
{
    return error == hipErrorInvalidValue || error == hipErrorNotSupported;
}

bool motet_hip_has_memory(const motet_gpu *gpu, unsigned flags)
{
    /* The pool for uncached memory, which is else taken from the fine-grained one, which is
     * else coarse (docs/memory-model.md). */
    const bool extended = motet_hip_version() >= 5050 &&
            strncmp(gpu->facts.target, "gfx120", strlen("gfx120")) != 0;

    switch (flags) {
    case hipDeviceMallocUncached: return extended || gpu->fine_grained;
    case hipDeviceMallocFinegrained: return gpu->fine_grained;
    default: return flags == hipDeviceMallocDefault;
    }
}

static motet_result allocate(const motet_gpu *gpu, size_t bytes,
        motet_gpu_allocation *out)
{
    hipError_t error = hipErrorInvalidValue;
    void *address = NULL;

    for (size_t i = 0; i < sizeof(grains) / sizeof(*grains) && is_refusal(error); i++) {
        if (!motet_hip_has_memory(gpu, grains[i].flags))
            continue;
        error = motet_hip.hipExtMallocWithFlags(&address, bytes, grains[i].flags);
        out->how = grains[i].how;
    }
    MOTET_TRY(motet_hip_check(error, "hipExtMallocWithFlags", __FILE__, __LINE__),
            "%zu bytes", bytes);
    out->address = (uint64_t)(uintptr_t)address;
    out->bytes = bytes;
    return MOTET_OK;
}

/* MOTET_IN_PROGRESS: not in time. */
static motet_result zero(motet_gpu *gpu, const motet_gpu_allocation *a)
{
    MOTET_TRY(HIP(hipMemsetD32Async, (void *)(uintptr_t)a->address, 0,
                      a->bytes / sizeof(uint32_t), gpu->service),
            "clear");
    return motet_gpu_await(&motet_gpu_hip, gpu, gpu->service,
            motet_deadline_after_s(ZERO_S));
}

static motet_result make(motet_gpu *gpu, size_t bytes, motet_gpu_allocation *a)
{
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "memory");
    result = allocate(gpu, (bytes + UNIT - 1) / UNIT * UNIT, a);
    if (result == MOTET_OK) {
        result = zero(gpu, a);
        if (result == MOTET_IN_PROGRESS) /* and to free it would wait for ever */
            result = motet_fail(MOTET_ERR_DEVICE,
                    "the device does not get to zeroing it within %d s", ZERO_S);
        else if (result != MOTET_OK)
            (void)motet_hip.hipFree((void *)(uintptr_t)a->address); /* made above */
    }
    motet_hip_leave(&scope);
    return result;
}

static void unmake(const motet_gpu_allocation *a)
{
    motet_hip_scope scope;

    if (motet_hip_enter_relaxed(a->gpu, &scope) != MOTET_OK)
        return; /* the device is gone, and its memory */
    (void)motet_hip.hipFree((void *)(uintptr_t)a->address); /* as above */
    motet_hip_leave(&scope);
}

motet_result motet_hip_alloc(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out)
{
    return motet_gpu_allocate(&motet_hip_memories, gpu, gpu->ordinal, bytes, out);
}

void motet_hip_free(motet_gpu *gpu, motet_gpu_memory *memory)
{
    (void)gpu;
    motet_gpu_give_back(&motet_hip_memories, memory);
}

/* ---- host memory ---- */

/* What is registered is coherent, without asking for it; Mapped makes sure that the
 * devices get at it, Portable alone would not. The runtime takes a second registration as
 * well as the first, and one call undoes the first: what the application has registered is
 * asked for. */
static motet_result enrol(motet_gpu *gpu, void *memory, size_t bytes, bool *ours_out)
{
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    motet_pointer known;
    hipError_t error;

    (void)gpu;
    MOTET_TRY(motet_hip_pointer(at, &known), "look whether it is registered");
    *ours_out = false;
    if (known.kind == MOTET_POINTER_HOST && at >= known.base &&
            bytes <= known.bytes - (at - known.base))
        return MOTET_OK;
    error = motet_hip.hipHostRegister(memory, bytes,
            hipHostRegisterMapped | hipHostRegisterPortable);
    *ours_out = error == hipSuccess;
    return error == hipErrorHostMemoryAlreadyRegistered
            ? MOTET_OK
            : motet_hip_check(error, "hipHostRegister", __FILE__, __LINE__);
}

static void dismiss(motet_gpu *gpu, void *memory)
{
    if (!motet_gpu_given_up(gpu))
        (void)motet_hip.hipHostUnregister(memory); /* fails only with the device gone */
}

motet_gpu_memories motet_hip_memories =
        MOTET_GPU_MEMORIES_INIT(make, unmake, true, enrol, dismiss);

motet_result motet_hip_register_host(motet_gpu *gpu, void *memory, size_t bytes,
        uint64_t *device_address_out)
{
    void *address = NULL;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "register host memory");
    result = motet_gpu_enrol(&motet_hip_memories, gpu, memory, bytes);
    if (result == MOTET_OK) {
        result = HIP(hipHostGetDevicePointer, &address, memory, 0);
        if (result != MOTET_OK)
            motet_gpu_dismiss(&motet_hip_memories, gpu, memory);
    }
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result,
                "register %zu bytes of host memory with device %d", bytes,
                gpu->ordinal);
    *device_address_out = (uint64_t)(uintptr_t)address;
    return MOTET_OK;
}

void motet_hip_unregister_host(motet_gpu *gpu, void *memory)
{
    motet_hip_scope scope;

    if (motet_hip_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    motet_gpu_dismiss(&motet_hip_memories, gpu, memory);
    motet_hip_leave(&scope);
}

/* ---- what an address is ---- */

motet_pointer_kind motet_hip_pointer_kind(int version,
        const hipPointerAttribute_t *attributes)
{
    if (attributes->isManaged != 0)
        return MOTET_POINTER_MANAGED;
    if (version < 6000)
        return attributes->type == HIP_MEMORY_R0000_HOST      ? MOTET_POINTER_HOST
                : attributes->type == HIP_MEMORY_R0000_DEVICE ? MOTET_POINTER_DEVICE
                                                              : MOTET_POINTER_UNKNOWN;
    switch (attributes->type) {
    case HIP_MEMORY_R0600_HOST: return MOTET_POINTER_HOST;
    case HIP_MEMORY_R0600_DEVICE: return MOTET_POINTER_DEVICE;
    case HIP_MEMORY_R0600_MANAGED: return MOTET_POINTER_MANAGED;
    default: return MOTET_POINTER_UNKNOWN;
    }
}

/* The allocation and its number, as far as the runtime tells. */
static void look_around(void *address, motet_pointer *out)
{
    uint64_t id = 0; /* the runtime writes half of it */
    void *base = NULL;
    size_t bytes = 0;

    if (motet_hip.hipMemGetAddressRange(&base, &bytes, address) == hipSuccess) {
        out->base = (uint64_t)(uintptr_t)base;
        out->bytes = bytes;
    }
    if (out->kind == MOTET_POINTER_DEVICE && motet_hip.hipPointerGetAttribute != NULL &&
            motet_hip.hipPointerGetAttribute(&id, HIP_POINTER_ATTRIBUTE_BUFFER_ID,
                    address) == hipSuccess &&
            id != 0)
        out->buffer_id = id | RUNTIME_ID;
}

motet_result motet_hip_pointer(uint64_t address, motet_pointer *out)
{
    hipPointerAttribute_t attributes = { .type = -1 };
    void *at = (void *)(uintptr_t)address;
    motet_gpu_allocation own;
    motet_hip_scope scope;

    *out = (motet_pointer){ .kind = MOTET_POINTER_UNKNOWN, .ordinal = -1 };
    MOTET_TRY(motet_hip_open(), "look at an address");
    if (motet_gpu_allocation_at(&motet_hip_memories, address, &own)) {
        *out = motet_gpu_own_pointer(&own); /* known without the runtime */
        return MOTET_OK;
    }
    motet_hip_enter_any(&scope);
    if (motet_hip.hipPointerGetAttributes(&attributes, at) == hipSuccess)
        out->kind = motet_hip_pointer_kind(motet_hip_version(), &attributes);
    if (out->kind != MOTET_POINTER_UNKNOWN)
        look_around(at, out);
    motet_hip_leave(&scope);
    if (out->kind == MOTET_POINTER_DEVICE || out->kind == MOTET_POINTER_MANAGED)
        out->ordinal = attributes.device;
    return MOTET_OK;
}
