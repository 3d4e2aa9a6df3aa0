/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and contexts. A device is opened once: its primary context, the one that CUDA's
 * runtime and so every client uses, is retained until the process ends. Calls make it
 * current and give the caller's back; where it is current already, as it is for whoever
 * called cudaSetDevice(), that costs one look.
 */
#include "device/cuda.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static motet_gpu_slots gpus = MOTET_GPU_SLOTS_INIT;

/* Contexts that were seen to be the primary ones of devices that are not open here. */
static CUcontext _Atomic primaries[MOTET_GPU_DEVICES];

/* ---- the caller's context ---- */

motet_result motet_cuda_enter(const motet_gpu *gpu, motet_cuda_scope *scope)
{
    CUcontext now = NULL;

    *scope = (motet_cuda_scope){ .pushed = false };
    if (motet_cuda.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == gpu->context)
        return MOTET_OK;
    MOTET_TRY(CUDA(cuCtxPushCurrent_v2, gpu->context), "use device %d", gpu->ordinal);
    scope->pushed = true;
    return MOTET_OK;
}

motet_result motet_cuda_enter_relaxed(const motet_gpu *gpu, motet_cuda_scope *scope)
{
    motet_result result = motet_cuda_enter(gpu, scope);

    if (result != MOTET_OK)
        return result;
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    scope->exchanged =
            motet_cuda.cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    return MOTET_OK;
}

void motet_cuda_leave(const motet_cuda_scope *scope)
{
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped;

    /* What fails here fails for a reason that the call in between has reported. */
    if (scope->exchanged)
        (void)motet_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    if (scope->pushed)
        (void)motet_cuda.cuCtxPopCurrent_v2(&popped);
}

motet_gpu *motet_cuda_gpu_any(void)
{
    motet_gpu *gpu = NULL;

    for (int i = 0; i < MOTET_GPU_DEVICES && gpu == NULL; i++)
        gpu = motet_gpu_opened(&gpus, i);
    return gpu;
}

motet_gpu *motet_cuda_gpu_of(CUcontext context)
{
    for (int i = 0; i < MOTET_GPU_DEVICES; i++) {
        motet_gpu *gpu = motet_gpu_opened(&gpus, i);

        if (gpu != NULL && gpu->context == context)
            return gpu;
    }
    return NULL;
}

/* Ask the driver whether @p context is the primary one of its device. It is active then,
 * so to retain it makes nothing. */
static bool ask_primary(CUcontext context, CUdevice *device_out)
{
    CUcontext popped, primary = NULL;
    unsigned flags = 0;
    int active = 0;
    CUresult error;

    if (motet_cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    error = motet_cuda.cuCtxGetDevice(device_out);
    (void)motet_cuda.cuCtxPopCurrent_v2(&popped); /* what was pushed above */
    if (error != CUDA_SUCCESS ||
            motet_cuda.cuDevicePrimaryCtxGetState(*device_out, &flags, &active) !=
                    CUDA_SUCCESS ||
            active == 0 ||
            motet_cuda.cuDevicePrimaryCtxRetain(&primary, *device_out) != CUDA_SUCCESS)
        return false;
    (void)motet_cuda.cuDevicePrimaryCtxRelease_v2(*device_out); /* retained above */
    return primary == context;
}

bool motet_cuda_is_primary(CUcontext context)
{
    CUdevice device = 0;

    if (motet_cuda_gpu_of(context) != NULL)
        return true;
    for (int i = 0; i < MOTET_GPU_DEVICES; i++)
        if (atomic_load(&primaries[i]) == context)
            return true;
    if (!ask_primary(context, &device))
        return false;
    if (device >= 0 && device < MOTET_GPU_DEVICES)
        atomic_store(&primaries[device], context);
    return true;
}

motet_result motet_cuda_gpu_current(int *ordinal_out)
{
    CUcontext now = NULL;
    CUdevice device = 0;

    MOTET_TRY(motet_cuda_open(), "current device");
    MOTET_TRY(CUDA(cuCtxGetCurrent, &now), "current device");
    if (now != NULL)
        MOTET_TRY(CUDA(cuCtxGetDevice, &device), "current device");
    *ordinal_out = device; /* the driver's devices are its ordinals */
    return MOTET_OK;
}

/* ---- facts ---- */

/* An attribute, or @p otherwise where the driver does not know it. */
static int attribute(CUdevice device, CUdevice_attribute which, int otherwise)
{
    int value = otherwise;

    return motet_cuda.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS
            ? value
            : otherwise;
}

/* The UUID of the GPU, or of the instance if it is divided (the driver then gives two),
 * and the place on the bus. */
static motet_result read_identity(CUdevice device, motet_gpu_facts *facts)
{
    const char *prefix = "GPU";
    CUuuid whole, own;
    char uuid[48];

    MOTET_TRY(CUDA(cuDeviceGetUuid, &whole, device), "UUID");
    if (motet_cuda.cuDeviceGetUuid_v2 != NULL &&
            motet_cuda.cuDeviceGetUuid_v2(&own, device) == CUDA_SUCCESS &&
            memcmp(&own, &whole, sizeof(own)) != 0) {
        prefix = "MIG";
        whole = own;
    }
    motet_gpu_print_uuid(prefix, &whole, uuid, sizeof(uuid)); /* as nvidia-smi does */
    MOTET_TRY(CUDA(cuDeviceGetPCIBusId, facts->bus_id, (int)sizeof(facts->bus_id),
                      device),
            "bus id");
    motet_gpu_lower(facts->bus_id);
    snprintf(facts->identity, sizeof(facts->identity), "%s/%s", uuid, facts->bus_id);
    return MOTET_OK;
}

static int numa_node_of(CUdevice device, const char *bus_id)
{
    const int node = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);

    return node >= 0 ? node : motet_gpu_numa_node(bus_id);
}

static motet_result read_facts(motet_gpu *gpu)
{
    const CUdevice device = gpu->device;
    motet_gpu_facts *facts = &gpu->facts;
    char missing[sizeof(facts->no_capture)];
    size_t bytes = 0;

    MOTET_TRY(CUDA(cuDeviceGetName, facts->name, (int)sizeof(facts->name), device),
            "name");
    MOTET_TRY(CUDA(cuDeviceTotalMem_v2, &bytes, device), "memory");
    MOTET_TRY(read_identity(device, facts), "identity");
    facts->memory_bytes = bytes;
    facts->major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    facts->minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    snprintf(facts->target, sizeof(facts->target), "sm_%d%d", facts->major,
            facts->minor);
    facts->processors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1);
    facts->integrated = attribute(device, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0) != 0;
    facts->host_atomics =
            attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, -1);
    facts->link_atomics = -1;
    facts->numa_node = numa_node_of(device, facts->bus_id);
    facts->driver_version = facts->runtime_version = motet_cuda_version();
    facts->share_fd =
            attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                    0) != 0 &&
            attribute(device,
                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                    0) != 0 &&
            !motet_cuda_lacks(MOTET_CUDA_FD, missing, sizeof(missing));
    gpu->rdma = attribute(device,
                        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                        0) != 0;
    /* Systems on a chip share the host's memory and have no handles of that kind. */
    facts->legacy_ipc = !facts->integrated &&
            !motet_cuda_lacks(MOTET_CUDA_IPC, missing, sizeof(missing));
    facts->launch_blocks = motet_gpu_number("CUDA_LAUNCH_BLOCKING") != 0;
    (void)motet_cuda_lacks(MOTET_CUDA_CAPTURE, facts->no_capture,
            sizeof(facts->no_capture)); /* leaves "" if nothing is missing */
    return MOTET_OK;
}

/* ---- opening ---- */

/* What allocations that can be handed on are made of. */
static motet_result read_granularity(motet_gpu *gpu)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->ordinal },
    };

    if (!gpu->facts.share_fd)
        return MOTET_OK;
    return CUDA(cuMemGetAllocationGranularity, &gpu->granularity, &prop,
            CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static motet_result make_service(motet_gpu *gpu)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "stream");
    result = read_granularity(gpu);
    if (result == MOTET_OK)
        result = CUDA(cuStreamCreateWithPriority, &gpu->service, CU_STREAM_NON_BLOCKING,
                0);
    motet_cuda_leave(&scope);
    return result;
}

static motet_result make(int ordinal, motet_gpu *gpu)
{
    motet_result result;

    gpu->ordinal = ordinal;
    MOTET_TRY(CUDA(cuDeviceGet, &gpu->device, ordinal), "device %d", ordinal);
    MOTET_TRY(read_facts(gpu), "device %d", ordinal);
    MOTET_TRY(CUDA(cuDevicePrimaryCtxRetain, &gpu->context, gpu->device),
            "context of device %d (%s)", ordinal, gpu->facts.name);
    result = make_service(gpu);
    if (result != MOTET_OK)
        (void)motet_cuda.cuDevicePrimaryCtxRelease_v2(gpu->device); /* retained above */
    return result;
}

static motet_result open_new(int ordinal, motet_gpu **out)
{
    motet_gpu *gpu = calloc(1, sizeof(*gpu));
    motet_result result;

    if (gpu == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "device %d", ordinal);
    result = make(ordinal, gpu);
    if (result != MOTET_OK) {
        free(gpu);
        return result;
    }
    motet_info(MOTET_SUB_INIT, "device %d: %s %s, %s, NUMA node %d, memory by %s",
            ordinal, gpu->facts.name, gpu->facts.target, gpu->facts.identity,
            gpu->facts.numa_node,
            gpu->facts.share_fd             ? "descriptor"
                    : gpu->facts.legacy_ipc ? "handle"
                                            : "this process only");
    *out = gpu;
    return MOTET_OK;
}

motet_result motet_cuda_gpu_open(int ordinal, motet_gpu **out)
{
    MOTET_TRY(motet_cuda_open(), "device %d", ordinal);
    return motet_gpu_open_once(&gpus, ordinal, motet_cuda_num_devices(), open_new, out);
}
