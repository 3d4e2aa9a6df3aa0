/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers, streams and graphs on NVIDIA GPUs: see backend.h. Through the driver's API,
 * as a program would use it, and apart from the library's own way to the driver: what is
 * measured here may be another library.
 *
 * Each device's primary context is used, the one that CUDA programs share; it is kept
 * until the process ends.
 */
#include "backend.h"

#include "device/cuda_api.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER      "libcuda.so.1"
#define DEVICES_MAX 64

/* What the library calls and what only an application does: this is one. */
static struct {
#define FIELD(need, symbol, parameters, since, feature) CUresult(*symbol) parameters;
    MOTET_CUDA_FUNCTIONS(FIELD)
    MOTET_CUDA_APPLICATION(FIELD)
#undef FIELD
} cu;

static struct {
    int devices;
    char path[256];
    char why[256]; /* "" if it works */
} driver;

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[DEVICES_MAX];

/* ----------------------------------------------------------------- sentences */

static _Thread_local char sentence[512];

/* NULL for 0, else "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". */
static const char *said(const char *call, CUresult error)
{
    const char *name = NULL, *text = NULL;

    if (error == CUDA_SUCCESS)
        return NULL;
    (void)cu.cuGetErrorName(error, &name);
    (void)cu.cuGetErrorString(error, &text);
    if (name == NULL)
        snprintf(sentence, sizeof(sentence), "%s: error %d of the driver", call,
                (int)error);
    else
        snprintf(sentence, sizeof(sentence), "%s: %s (%s)", call, name,
                text != NULL ? text : "no text");
    return sentence;
}

/* -------------------------------------------------------------------- driver */

static void take(void *handle, const char *name, bool required, int since, void *field)
{
    void *symbol = dlsym(handle, name);

    memcpy(field, &symbol, sizeof(symbol)); /* POSIX: an object pointer converts */
    if (symbol == NULL && required && driver.why[0] == 0)
        snprintf(driver.why, sizeof(driver.why),
                "%.120s has no %s: it is older than CUDA %d.%d", driver.path, name,
                since / 1000, since % 1000 / 10);
}

static void load(void)
{
    void *handle = dlopen(DRIVER, RTLD_NOW);
    struct link_map *map = NULL;
    const char *bad;

    if (handle == NULL) {
        snprintf(driver.why, sizeof(driver.why), "open the driver: %s", dlerror());
        return;
    }
    snprintf(driver.path, sizeof(driver.path), "%s", DRIVER);
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
        snprintf(driver.path, sizeof(driver.path), "%s", map->l_name);
#define REQUIRED true
#define OPTIONAL false
#define TAKE(need, symbol, parameters, since, feature) \
    take(handle, #symbol, need, since, &cu.symbol);
#define TAKE_ALL(need, symbol, parameters, since, feature) \
    take(handle, #symbol, true, since, &cu.symbol);
    MOTET_CUDA_FUNCTIONS(TAKE)
    MOTET_CUDA_APPLICATION(TAKE_ALL)
#undef TAKE
#undef TAKE_ALL
#undef REQUIRED
#undef OPTIONAL
    if (driver.why[0] != 0)
        return;
    bad = said("cuInit", cu.cuInit(0));
    if (bad == NULL)
        bad = said("cuDeviceGetCount", cu.cuDeviceGetCount(&driver.devices));
    if (bad == NULL && driver.devices == 0)
        bad = "the driver sees no device (is CUDA_VISIBLE_DEVICES empty?)";
    if (bad != NULL)
        snprintf(driver.why, sizeof(driver.why), "%s", bad);
}

static const char *ready(void)
{
    pthread_once(&driver_once, load);
    return driver.why[0] != 0 ? driver.why : NULL;
}

static void spell_identity(const CUuuid *uuid, char *out, size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "GPU-");

    for (int i = 0; i < 16 && n + 4 < bytes; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        n += (size_t)snprintf(out + n, bytes - n, "%s%02x", dash ? "-" : "",
                (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static const char *describe_device(int ordinal, struct backend_device *out)
{
    CUuuid uuid = { { 0 } };
    CUdevice device;
    char place[32] = "";
    const char *bad = said("cuDeviceGet", cu.cuDeviceGet(&device, ordinal));

    if (bad == NULL)
        bad = said("cuDeviceGetName",
                cu.cuDeviceGetName(out->name, (int)sizeof(out->name), device));
    if (bad == NULL)
        bad = said("cuDeviceGetUuid", cu.cuDeviceGetUuid(&uuid, device));
    if (bad != NULL)
        return bad;
    spell_identity(&uuid, out->identity, sizeof(out->identity));
    bad = said("cuDeviceGetPCIBusId",
            cu.cuDeviceGetPCIBusId(place, (int)sizeof(place), device));
    if (bad == NULL &&
            sscanf(place, "%x:%x:%x", &out->domain, &out->bus, &out->slot) != 3)
        out->domain = out->bus = out->slot = 0;
    return bad;
}

static const char *cuda_describe(struct backend_facts *facts)
{
    const char *bad;

    memset(facts, 0, sizeof(*facts));
    bad = ready();
    if (bad != NULL)
        return bad;
    facts->devices = driver.devices;
    snprintf(facts->driver_path, sizeof(facts->driver_path), "%s", driver.path);
    bad = said("cuDriverGetVersion", cu.cuDriverGetVersion(&facts->driver_version));
    for (int i = 0; bad == NULL && i < driver.devices && i < BACKEND_DEVICES_MAX; i++)
        bad = describe_device(i, &facts->device[i]);
    return bad;
}

static const char *context_of(int ordinal, CUcontext *out)
{
    const char *bad = NULL;
    CUdevice device;

    pthread_mutex_lock(&context_lock);
    if (contexts[ordinal] == NULL) {
        bad = said("cuDeviceGet", cu.cuDeviceGet(&device, ordinal));
        if (bad == NULL)
            bad = said("cuDevicePrimaryCtxRetain",
                    cu.cuDevicePrimaryCtxRetain(&contexts[ordinal], device));
    }
    *out = contexts[ordinal];
    pthread_mutex_unlock(&context_lock);
    return bad;
}

static const char *cuda_bind(int ordinal)
{
    const char *bad = ready();
    CUcontext context = NULL;

    if (bad != NULL)
        return bad;
    if (ordinal < 0 || ordinal >= driver.devices || ordinal >= DEVICES_MAX) {
        snprintf(sentence, sizeof(sentence), "device %d of %d", ordinal,
                driver.devices);
        return sentence;
    }
    bad = context_of(ordinal, &context);
    return bad != NULL ? bad : said("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
}

/* -------------------------------------------------------------------- memory */

static const char *cuda_alloc(void **out, size_t bytes)
{
    CUdeviceptr address = 0;
    const char *bad = said("cuMemAlloc", cu.cuMemAlloc_v2(&address, bytes));

    *out = (void *)(uintptr_t)address;
    return bad;
}

static void cuda_release(void *memory)
{
    if (memory != NULL)
        (void)cu.cuMemFree_v2((uintptr_t)memory);
}

static const char *cuda_stream_wait(const struct library *lib, void *stream)
{
    (void)lib;
    return said("cuStreamSynchronize", cu.cuStreamSynchronize(stream));
}

/* On the stream and waited for: a copy from ordinary memory may otherwise still be under
 * way when a kernel on another stream starts. */
static const char *cuda_to_host(void *host, const void *memory, size_t bytes,
        void *stream)
{
    const char *bad = bytes == 0
            ? NULL
            : said("cuMemcpyDtoHAsync",
                      cu.cuMemcpyDtoHAsync_v2(host, (uintptr_t)memory, bytes, stream));

    return bad != NULL ? bad : cuda_stream_wait(NULL, stream);
}

static const char *cuda_from_host(void *memory, const void *host, size_t bytes,
        void *stream)
{
    const char *bad = bytes == 0
            ? NULL
            : said("cuMemcpyHtoDAsync",
                      cu.cuMemcpyHtoDAsync_v2((uintptr_t)memory, host, bytes, stream));

    return bad != NULL ? bad : cuda_stream_wait(NULL, stream);
}

/* --------------------------------------------------- streams, marks, graphs */

static const char *cuda_stream_create(const struct library *lib, void **out)
{
    CUstream stream = NULL;
    const char *bad =
            said("cuStreamCreate", cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    (void)lib;
    *out = stream;
    return bad;
}

static void cuda_stream_destroy(const struct library *lib, void *stream)
{
    (void)lib;
    (void)cu.cuStreamDestroy_v2(stream);
}

static const char *cuda_mark_create(void **out)
{
    CUevent event = NULL;
    const char *bad = said("cuEventCreate", cu.cuEventCreate(&event, 0));

    *out = event;
    return bad;
}

static void cuda_mark_destroy(void *mark)
{
    (void)cu.cuEventDestroy_v2(mark);
}

static const char *cuda_mark(void *mark, void *stream)
{
    return said("cuEventRecord", cu.cuEventRecord(mark, stream));
}

static const char *cuda_elapsed(void *from, void *to, double *us_out)
{
    float ms = 0;
    const char *bad = said("cuEventElapsedTime", cu.cuEventElapsedTime(&ms, from, to));

    *us_out = (double)ms * 1e3;
    return bad;
}

/* As nccl-tests captures: calls of other threads do not disturb it. */
static const char *cuda_capture_begin(void *stream)
{
    return said("cuStreamBeginCapture",
            cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static const char *cuda_capture_end(void *stream, void **captured_out)
{
    CUgraph graph = NULL;
    const char *bad = said("cuStreamEndCapture", cu.cuStreamEndCapture(stream, &graph));

    *captured_out = graph;
    return bad;
}

static const char *cuda_graph_create(void *captured, void **graph_out)
{
    CUgraphExec exec = NULL;
    const char *bad = said("cuGraphInstantiate",
            cu.cuGraphInstantiateWithFlags(&exec, captured, 0));

    (void)cu.cuGraphDestroy(captured);
    *graph_out = exec;
    return bad;
}

static const char *cuda_replay(void *graph, void *stream)
{
    return said("cuGraphLaunch", cu.cuGraphLaunch(graph, stream));
}

static void cuda_graph_destroy(void *graph)
{
    (void)cu.cuGraphExecDestroy(graph);
}

const struct backend backend_cuda = {
    .name = "cuda",
    .mirrored = true,
    .bind = cuda_bind,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .to_host = cuda_to_host,
    .from_host = cuda_from_host,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .mark_create = cuda_mark_create,
    .mark_destroy = cuda_mark_destroy,
    .mark = cuda_mark,
    .elapsed = cuda_elapsed,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_create = cuda_graph_create,
    .replay = cuda_replay,
    .graph_destroy = cuda_graph_destroy,
};
