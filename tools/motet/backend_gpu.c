/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers, streams and graphs on GPUs: see backend.h. Through the vendor's runtime, as a
 * program would use it, and apart from the library's own way to it: what is measured
 * here may be another library.
 *
 * A process works on GPUs of one vendor: the first that it asks for.
 */
#include "backend_gpu.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Flags and modes: alike in both runtimes. */
#define STREAM_NON_BLOCKING  1u
#define CAPTURE_THREAD_LOCAL 1

enum {
#define NUMBER(name, parameters, cuda, hip) CALL_##name,
    GPU_CALLS(NUMBER)
#undef NUMBER
};

static const char *const symbols[][2] = {
#define NAMES(name, parameters, cuda, hip) [CALL_##name] = { cuda, hip },
    GPU_CALLS(NAMES)
#undef NAMES
};

static struct {
#define FIELD(name, parameters, cuda, hip) int(*name) parameters;
    GPU_CALLS(FIELD)
#undef FIELD
} gpu;

static struct {
    const struct gpu_vendor *vendor;
    int devices;
    char path[256];
    char why[1024]; /* "" if it works */
} runtime;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* ----------------------------------------------------------------- sentences */

static _Thread_local char sentence[1024];

const char *gpu_sentence(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    return sentence;
}

const char *gpu_said(const char *call, int error)
{
    const char *version = strstr(call, "_v"), *text = NULL, *name;
    int length = (int)(version != NULL ? (size_t)(version - call) : strlen(call));

    if (error == 0)
        return NULL;
    name = runtime.vendor->error(error, &text);
    if (name == NULL)
        return gpu_sentence("%.*s: error %d of the driver", length, call, error);
    return gpu_sentence("%.*s: %s (%s)", length, call, name,
            text != NULL ? text : "no text");
}

#define SAID(name, ...) \
    gpu_said(symbols[CALL_##name][runtime.vendor->column], gpu.name(__VA_ARGS__))

/* ------------------------------------------------------------------- runtime */

const char *gpu_take(void *handle, const char *symbol, void *slot)
{
    void *found = dlsym(handle, symbol);

    memcpy(slot, &found, sizeof(found)); /* POSIX: an object pointer converts */
    if (found != NULL)
        return NULL;
    return gpu_sentence("%.120s has no %s: it is older than %s", runtime.path, symbol,
            runtime.vendor->since);
}

static const char *take_all(void *handle)
{
    const char *bad = NULL;

#define TAKE(name, parameters, cuda, hip) \
    if (bad == NULL)                      \
        bad = gpu_take(handle, symbols[CALL_##name][runtime.vendor->column], &gpu.name);
    GPU_CALLS(TAKE)
#undef TAKE
    return bad != NULL ? bad : runtime.vendor->take(handle);
}

static const char *load(void)
{
    struct link_map *map = NULL;
    void *handle = NULL;
    const char *bad = runtime.vendor->open(&handle);

    if (bad != NULL)
        return bad;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
        snprintf(runtime.path, sizeof(runtime.path), "%s", map->l_name);
    bad = take_all(handle);
    if (bad == NULL)
        bad = SAID(init, 0);
    if (bad == NULL)
        bad = SAID(count, &runtime.devices);
    if (bad == NULL && runtime.devices == 0)
        bad = gpu_sentence("the driver sees no device (is %s_VISIBLE_DEVICES empty?)",
                runtime.vendor->column == GPU_CUDA ? "CUDA" : "HIP");
    return bad;
}

static const char *ready(const struct gpu_vendor *vendor)
{
    pthread_mutex_lock(&load_lock);
    if (runtime.vendor == NULL) {
        const char *bad;

        runtime.vendor = vendor;
        bad = load();
        snprintf(runtime.why, sizeof(runtime.why), "%s", bad != NULL ? bad : "");
    }
    pthread_mutex_unlock(&load_lock);
    if (runtime.vendor != vendor)
        return "this process works on GPUs of another vendor";
    return runtime.why[0] != 0 ? runtime.why : NULL;
}

/* ------------------------------------------------------------------- devices */

static const char *describe_device(int ordinal, struct backend_device *out)
{
    char place[32] = "";
    int device;
    const char *bad = runtime.vendor->device(ordinal, &device);

    if (bad == NULL)
        bad = SAID(device_name, out->name, (int)sizeof(out->name), device);
    if (bad == NULL)
        bad = SAID(device_place, place, (int)sizeof(place), device);
    if (bad != NULL)
        return bad;
    if (sscanf(place, "%x:%x:%x", &out->domain, &out->bus, &out->slot) != 3)
        out->domain = out->bus = out->slot = 0;
    snprintf(out->identity, sizeof(out->identity), "%s", place);
    return runtime.vendor->describe(device, out);
}

static const char *describe(const struct gpu_vendor *vendor,
        struct backend_facts *facts)
{
    const char *bad;

    memset(facts, 0, sizeof(*facts));
    bad = ready(vendor);
    if (bad != NULL)
        return bad;
    facts->devices = runtime.devices;
    snprintf(facts->driver_path, sizeof(facts->driver_path), "%s", runtime.path);
    bad = SAID(version, &facts->driver_version);
    if (bad == NULL)
        vendor->version(facts->driver_version, facts->driver_text,
                sizeof(facts->driver_text));
    for (int i = 0; bad == NULL && i < runtime.devices && i < BACKEND_DEVICES_MAX; i++)
        bad = describe_device(i, &facts->device[i]);
    return bad;
}

static const char *bind(const struct gpu_vendor *vendor, int ordinal)
{
    const char *bad = ready(vendor);

    if (bad != NULL)
        return bad;
    if (ordinal < 0 || ordinal >= runtime.devices || ordinal >= GPU_DEVICES_MAX)
        return gpu_sentence("device %d of %d", ordinal, runtime.devices);
    return vendor->bind(ordinal);
}

static const char *cuda_describe(struct backend_facts *facts)
{
    return describe(&gpu_vendor_cuda, facts);
}

static const char *hip_describe(struct backend_facts *facts)
{
    return describe(&gpu_vendor_hip, facts);
}

static const char *cuda_bind(int ordinal)
{
    return bind(&gpu_vendor_cuda, ordinal);
}

static const char *hip_bind(int ordinal)
{
    return bind(&gpu_vendor_hip, ordinal);
}

static const char *hip_last_error(void)
{
    return gpu_vendor_hip.last_error();
}

/* -------------------------------------------------------------------- memory */

static const char *gpu_alloc(void **out, size_t bytes)
{
    *out = NULL;
    return SAID(alloc, out, bytes);
}

static void gpu_release(void *memory)
{
    if (memory != NULL)
        (void)gpu.release(memory);
}

static const char *gpu_stream_wait(const struct library *lib, void *stream)
{
    (void)lib;
    return SAID(stream_wait, stream);
}

/* On the stream and waited for: a copy from ordinary memory may otherwise still be under
 * way when a kernel on another stream starts. */
static const char *gpu_copy(void *to, const void *from, size_t bytes, void *stream)
{
    const char *bad = bytes == 0 ? NULL : runtime.vendor->copy(to, from, bytes, stream);

    return bad != NULL ? bad : gpu_stream_wait(NULL, stream);
}

/* --------------------------------------------------- streams, marks, graphs */

static const char *gpu_stream_create(const struct library *lib, void **out)
{
    (void)lib;
    *out = NULL;
    return SAID(stream_create, out, STREAM_NON_BLOCKING);
}

static void gpu_stream_destroy(const struct library *lib, void *stream)
{
    (void)lib;
    (void)gpu.stream_destroy(stream);
}

static const char *gpu_mark_create(void **out)
{
    *out = NULL;
    return SAID(event_create, out, 0);
}

static void gpu_mark_destroy(void *mark)
{
    (void)gpu.event_destroy(mark);
}

static const char *gpu_mark(void *mark, void *stream)
{
    return SAID(event_record, mark, stream);
}

static const char *gpu_elapsed(void *from, void *to, double *us_out)
{
    float ms = 0;
    const char *bad = SAID(event_elapsed, &ms, from, to);

    *us_out = (double)ms * 1e3;
    return bad;
}

/* As nccl-tests captures: calls of other threads do not disturb it. */
static const char *gpu_capture_begin(void *stream)
{
    return SAID(capture_begin, stream, CAPTURE_THREAD_LOCAL);
}

static const char *gpu_capture_end(void *stream, void **captured_out)
{
    *captured_out = NULL;
    return SAID(capture_end, stream, captured_out);
}

static const char *gpu_graph_create(void *captured, void **graph_out)
{
    const char *bad;

    *graph_out = NULL;
    bad = SAID(graph_make, graph_out, captured, 0);
    (void)gpu.graph_destroy(captured);
    return bad;
}

static const char *gpu_replay(void *graph, void *stream)
{
    return SAID(graph_launch, graph, stream);
}

static void gpu_graph_destroy(void *graph)
{
    (void)gpu.exec_destroy(graph);
}

/* clang-format off */
#define SHARED_CALLS                        \
    .mirrored = true,                       \
    .alloc = gpu_alloc,                     \
    .release = gpu_release,                 \
    .to_host = gpu_copy,                    \
    .from_host = gpu_copy,                  \
    .stream_create = gpu_stream_create,     \
    .stream_destroy = gpu_stream_destroy,   \
    .stream_wait = gpu_stream_wait,         \
    .mark_create = gpu_mark_create,         \
    .mark_destroy = gpu_mark_destroy,       \
    .mark = gpu_mark,                       \
    .elapsed = gpu_elapsed,                 \
    .capture_begin = gpu_capture_begin,     \
    .capture_end = gpu_capture_end,         \
    .graph_create = gpu_graph_create,       \
    .replay = gpu_replay,                   \
    .graph_destroy = gpu_graph_destroy
/* clang-format on */

const struct backend backend_cuda = { .name = "cuda",
    .vendor = "NVIDIA",
    .allocator = "cuMemAlloc",
    .bind = cuda_bind,
    .describe = cuda_describe,
    SHARED_CALLS };

const struct backend backend_hip = { .name = "hip",
    .vendor = "AMD",
    .allocator = "hipMalloc",
    .bind = hip_bind,
    .describe = hip_describe,
    .last_error = hip_last_error,
    SHARED_CALLS };
