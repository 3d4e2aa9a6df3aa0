/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA GPUs as a kind of device: the two tables, and what device.h asks of every kind.
 */
#include "device/cuda.h"

#include <stdio.h>

static motet_result cuda_count(int *count_out)
{
    MOTET_TRY(motet_cuda_open(), "count devices");
    *count_out = motet_cuda_num_devices();
    return MOTET_OK;
}

static motet_result cuda_describe(int ordinal, motet_device_info *info_out)
{
    const motet_gpu_facts *facts;
    motet_gpu *gpu;

    MOTET_TRY(motet_cuda_gpu_open(ordinal, &gpu), "describe");
    facts = &gpu->facts;
    snprintf(info_out->name, sizeof(info_out->name), "%.63s", facts->name);
    snprintf(info_out->identity, sizeof(info_out->identity), "%.63s", facts->identity);
    info_out->memory_bytes = facts->memory_bytes;
    return MOTET_OK;
}

static motet_result cuda_alloc(size_t bytes, void **ptr_out)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;
    int ordinal;

    MOTET_TRY(motet_cuda_gpu_current(&ordinal), "allocate %zu bytes", bytes);
    MOTET_TRY(motet_cuda_gpu_open(ordinal, &gpu), "allocate %zu bytes", bytes);
    MOTET_TRY(motet_cuda_alloc(gpu, bytes, &memory), "current device");
    *ptr_out = (void *)(uintptr_t)memory.address;
    return MOTET_OK;
}

static motet_result cuda_free(void *ptr)
{
    return ptr == NULL ? MOTET_OK : motet_cuda_free_at((uint64_t)(uintptr_t)ptr);
}

/* No host maps a device's memory by a descriptor: ranks share it by export_memory(). */
static motet_result cuda_share(const void *ptr, size_t bytes, int *fd_out,
        size_t *offset_out, size_t *bytes_out)
{
    (void)ptr;
    (void)bytes;
    (void)offset_out;
    (void)bytes_out;
    *fd_out = -1;
    return MOTET_OK;
}

static void cuda_unshare(const void *ptr)
{
    (void)ptr;
}

static bool cuda_stream_blocks(const void *stream)
{
    (void)stream;
    return false;
}

static const motet_gpu_facts *cuda_facts(const motet_gpu *gpu)
{
    return &gpu->facts;
}

const motet_gpu_ops motet_gpu_cuda = {
    .vendor = "nvidia",
    .open = motet_cuda_gpu_open,
    .facts = cuda_facts,
    .current = motet_cuda_gpu_current,
    .alloc = motet_cuda_alloc,
    .free = motet_cuda_free,
    .export_memory = motet_cuda_export,
    .import = motet_cuda_import,
    .unimport = motet_cuda_unimport,
    .register_host = motet_cuda_register_host,
    .unregister_host = motet_cuda_unregister_host,
    .pointer = motet_cuda_pointer,
    .load = motet_cuda_load,
    .function = motet_cuda_function,
    .resident_blocks = motet_cuda_resident_blocks,
    .launch = motet_cuda_launch,
    .stream_create = motet_cuda_stream_create,
    .stream_destroy = motet_cuda_stream_destroy,
    .stream_sync = motet_cuda_stream_sync,
    .stream_query = motet_cuda_stream_query,
    .stream_state = motet_cuda_stream_state,
    .event_create = motet_cuda_event_create,
    .event_destroy = motet_cuda_event_destroy,
    .event_record = motet_cuda_event_record,
    .event_wait = motet_cuda_event_wait,
    .event_query = motet_cuda_event_query,
    .copy = motet_cuda_copy,
    .fill = motet_cuda_fill,
    .call_host = motet_cuda_call_host,
    .graph_record = motet_cuda_graph_record,
    .graph_hold = motet_cuda_graph_hold,
    .health = motet_cuda_health,
};

const motet_device_ops motet_device_cuda = {
    .name = "cuda",
    .kind = MOTET_DEVICE_KIND_CUDA,
    .gpu = &motet_gpu_cuda,
    .count = cuda_count,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .share = cuda_share,
    .unshare = cuda_unshare,
    .stream_check = motet_cuda_stream_check,
    .stream_blocks = cuda_stream_blocks,
};
