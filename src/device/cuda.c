/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA GPUs as a kind of device: the two tables, and what device.h asks of every kind.
 */
#include "device/cuda.h"

static motet_result cuda_count(int *count_out)
{
    MOTET_TRY(motet_cuda_open(), "count devices");
    *count_out = motet_cuda_num_devices();
    return MOTET_OK;
}

static motet_result cuda_describe(int ordinal, motet_device_info *info_out)
{
    return motet_gpu_describe(&motet_gpu_cuda, ordinal, info_out);
}

static motet_result cuda_alloc(size_t bytes, void **ptr_out)
{
    return motet_gpu_alloc_here(&motet_gpu_cuda, bytes, ptr_out);
}

static motet_result cuda_free(void *ptr)
{
    return ptr == NULL
            ? MOTET_OK
            : motet_gpu_free_at(&motet_cuda_memories, (uint64_t)(uintptr_t)ptr);
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
    .share = motet_gpu_share_none,
    .unshare = motet_gpu_unshare_none,
    .stream_check = motet_cuda_stream_check,
    .stream_blocks = motet_gpu_stream_blocks,
};
