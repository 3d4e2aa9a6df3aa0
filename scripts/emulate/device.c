/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include "base/segment.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static motet_result fit(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out)
{
    for (int i = 0; i < EMULATE_ALLOCATIONS; i++) {
        emulate_allocation *a = &gpu->allocation[i];

        if (a->map != NULL)
            continue;
        a->bytes = (bytes + 4095) & ~(size_t)4095;
        MOTET_TRY(motet_segment_create("emulate", a->bytes, &a->map, &a->fd),
                "memory of the device");
        *out = (motet_gpu_memory){ (uint64_t)(uintptr_t)a->map, a->bytes, a };
        return MOTET_OK;
    }
    return motet_fail(MOTET_ERR_DEVICE, "more than %d allocations",
            EMULATE_ALLOCATIONS);
}

static void give(motet_gpu *gpu, motet_gpu_memory *memory)
{
    emulate_allocation *a = memory->owned;

    (void)gpu;
    if (a != NULL) {
        motet_segment_unmap(a->map, a->bytes);
        close(a->fd);
        *a = (emulate_allocation){ 0 };
    }
    *memory = (motet_gpu_memory){ 0 };
}

static motet_result export_memory(motet_gpu *gpu, uint64_t address,
        motet_gpu_export *out, int *fd_out)
{
    for (int i = 0; i < EMULATE_ALLOCATIONS; i++) {
        emulate_allocation *a = &gpu->allocation[i];
        uint64_t base = (uint64_t)(uintptr_t)a->map;

        if (a->map == NULL || address - base >= a->bytes)
            continue;
        *out = (motet_gpu_export){ .kind = MOTET_GPU_EXPORT_FD,
            .address = address,
            .bytes = a->bytes,
            .offset = address - base };
        *fd_out = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
        return *fd_out >= 0 ? MOTET_OK
                            : motet_fail_errno(MOTET_ERR_SYSTEM, "descriptor");
    }
    return motet_fail(MOTET_ERR_DEVICE, "%#llx was not allocated here",
            (unsigned long long)address);
}

static motet_result import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out)
{
    void *map = NULL;

    (void)gpu, (void)own_process;
    MOTET_TRY(motet_segment_map(fd, exported->bytes, true, &map), "memory of a peer");
    *out = (motet_gpu_memory){ (uint64_t)(uintptr_t)map + exported->offset,
        exported->bytes - exported->offset, NULL };
    return MOTET_OK;
}

/* Lives as long as the process. */
static void unimport(motet_gpu *gpu, motet_gpu_memory *memory)
{
    (void)gpu;
    *memory = (motet_gpu_memory){ 0 };
}

static motet_result register_host(motet_gpu *gpu, void *memory, size_t bytes,
        uint64_t *device_address_out)
{
    (void)gpu, (void)bytes;
    *device_address_out = (uint64_t)(uintptr_t)memory;
    return MOTET_OK;
}

static void unregister_host(motet_gpu *gpu, void *memory)
{
    (void)gpu, (void)memory;
}

/* A function is its name, which the engine keeps in a table. */
static motet_result function(motet_gpu *gpu, void *module, const char *name,
        void **function_out)
{
    (void)gpu, (void)module;
    *function_out = (void *)(uintptr_t)name;
    return MOTET_OK;
}

static motet_result launch(motet_gpu *gpu, const motet_launch *l, void *stream)
{
    (void)stream;
    if (gpu->launch(l->function, l->blocks, l->threads, l->args, l->bytes) == 0)
        return MOTET_OK;
    return motet_fail(MOTET_ERR_DEVICE, "%s did not run to its end",
            (const char *)l->function);
}

static motet_result create_nothing(motet_gpu *gpu, void **out)
{
    *out = gpu;
    return MOTET_OK;
}

static motet_result create_stream(motet_gpu *gpu, bool urgent, void **out)
{
    (void)urgent;
    return create_nothing(gpu, out);
}

static void destroy_nothing(motet_gpu *gpu, void *what)
{
    (void)gpu, (void)what;
}

static motet_result is_done(motet_gpu *gpu, void *what)
{
    (void)gpu, (void)what;
    return MOTET_OK;
}

static motet_result stream_state(motet_gpu *gpu, void *stream, motet_stream_state *out)
{
    (void)stream;
    *out = (motet_stream_state){ 0 };
    if (gpu->captured)
        *out = (motet_stream_state){ .capturing = true, .capture = 1, .graph = gpu };
    return MOTET_OK;
}

/* The "graph" lasts as long as the process. */
static motet_result graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg)
{
    (void)gpu, (void)graph, (void)release, (void)arg;
    return MOTET_OK;
}

static motet_result event_use(motet_gpu *gpu, void *event, void *stream, bool external)
{
    (void)gpu, (void)event, (void)stream, (void)external;
    return MOTET_OK;
}

static motet_result copy(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
        void *stream)
{
    (void)gpu, (void)stream;
    memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
    return MOTET_OK;
}

static motet_result fill(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
        void *stream)
{
    (void)gpu, (void)stream;
    for (size_t i = 0; i < words; i++)
        memcpy((void *)(uintptr_t)(dst + 4 * i), &value, sizeof(value));
    return MOTET_OK;
}

static motet_result health(motet_gpu *gpu)
{
    (void)gpu;
    return MOTET_OK;
}

const motet_gpu_ops emulate_ops = {
    .vendor = "amd",
    .alloc = fit,
    .free = give,
    .export_memory = export_memory,
    .import = import,
    .unimport = unimport,
    .register_host = register_host,
    .unregister_host = unregister_host,
    .function = function,
    .launch = launch,
    .stream_create = create_stream,
    .stream_destroy = destroy_nothing,
    .stream_sync = is_done,
    .stream_query = is_done,
    .stream_state = stream_state,
    .event_create = create_nothing,
    .event_destroy = destroy_nothing,
    .event_record = event_use,
    .event_wait = event_use,
    .event_query = is_done,
    .copy = copy,
    .fill = fill,
    .graph_hold = graph_hold,
    .health = health,
};
