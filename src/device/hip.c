/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD GPUs as a kind of device: the two tables, and what device.h asks of every kind.
 */
#include "device/hip.h"

static motet_result hip_count(int *count_out)
{
    MOTET_TRY(motet_hip_open(), "count devices");
    *count_out = motet_hip_num_devices();
    return MOTET_OK;
}

static motet_result hip_describe(int ordinal, motet_device_info *info_out)
{
    return motet_gpu_describe(&motet_gpu_hip, ordinal, info_out);
}

static motet_result hip_alloc(size_t bytes, void **ptr_out)
{
    return motet_gpu_alloc_here(&motet_gpu_hip, bytes, ptr_out);
}

static motet_result hip_free(void *ptr)
{
    return ptr == NULL
            ? MOTET_OK
            : motet_gpu_free_at(&motet_hip_memories, (uint64_t)(uintptr_t)ptr);
}

static const motet_gpu_facts *hip_facts(const motet_gpu *gpu)
{
    return &gpu->facts;
}

const motet_gpu_ops motet_gpu_hip = {
    .vendor = "amd",
    .open = motet_hip_gpu_open,
    .facts = hip_facts,
    .current = motet_hip_gpu_current,
    .alloc = motet_hip_alloc,
    .free = motet_hip_free,
    .export_memory = motet_hip_export,
    .import = motet_hip_import,
    .unimport = motet_hip_unimport,
    .register_host = motet_hip_register_host,
    .unregister_host = motet_hip_unregister_host,
    .pointer = motet_hip_pointer,
    .load = motet_hip_load,
    .function = motet_hip_function,
    .resident_blocks = motet_hip_resident_blocks,
    .launch = motet_hip_launch,
    .stream_create = motet_hip_stream_create,
    .stream_destroy = motet_hip_stream_destroy,
    .stream_sync = motet_hip_stream_sync,
    .stream_query = motet_hip_stream_query,
    .stream_state = motet_hip_stream_state,
    .event_create = motet_hip_event_create,
    .event_destroy = motet_hip_event_destroy,
    .event_record = motet_hip_event_record,
    .event_wait = motet_hip_event_wait,
    .event_query = motet_hip_event_query,
    .copy = motet_hip_copy,
    .fill = motet_hip_fill,
    .call_host = motet_hip_call_host,
    .graph_record = motet_hip_graph_record,
    .graph_hold = motet_hip_graph_hold,
    .health = motet_hip_health,
};

const motet_device_ops motet_device_hip = {
    .name = "hip",
    .kind = MOTET_DEVICE_KIND_HIP,
    .gpu = &motet_gpu_hip,
    .count = hip_count,
    .describe = hip_describe,
    .alloc = hip_alloc,
    .free = hip_free,
    .share = motet_gpu_share_none,
    .unshare = motet_gpu_unshare_none,
    .stream_check = motet_hip_stream_check,
    .stream_blocks = motet_gpu_stream_blocks,
};
