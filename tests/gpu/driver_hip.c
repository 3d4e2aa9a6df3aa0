/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD's runtime behind the functions of gpu_driver, those that tests call. Handles are
 * pointers of somebody else's on both sides and go through as they are; so do errors,
 * which are numbered alike where tests look at them. AMD has no contexts: a device's
 * stands for itself, and making it current chooses the device.
 */
#include "driver.h"

#include "device/hip_api.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
#define FIELD(need, symbol, returns, parameters, since, feature) \
    returns(*symbol) parameters;
    MOTET_HIP_FUNCTIONS(FIELD)
    MOTET_HIP_APPLICATION(FIELD)
#undef FIELD
} hip;

_Static_assert((int)hipErrorNotReady == (int)CUDA_ERROR_NOT_READY &&
                (int)hipErrorIllegalAddress == (int)CUDA_ERROR_ILLEGAL_ADDRESS,
        "errors are numbered alike");
_Static_assert(CU_STREAM_NON_BLOCKING == hipStreamNonBlocking &&
                CU_EVENT_DISABLE_TIMING == hipEventDisableTiming &&
                (int)CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ==
                        (int)hipStreamCaptureModeThreadLocal &&
                (int)CU_STREAM_CAPTURE_MODE_RELAXED == (int)hipStreamCaptureModeRelaxed,
        "flags and modes are numbered alike");

/* ---- devices ---- */

static CUresult error_name(CUresult error, const char **name)
{
    *name = hip.hipGetErrorName((hipError_t)error);
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

/** Not NULL for device 0. */
static CUcontext context_of(int ordinal)
{
    return (CUcontext)(uintptr_t)(unsigned)(ordinal + 1);
}

static CUresult context_retain(CUcontext *context, CUdevice device)
{
    *context = context_of(device);
    return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context)
{
    return (CUresult)hip.hipSetDevice((int)(uintptr_t)context - 1);
}

static CUresult context_get(CUcontext *context)
{
    int ordinal = -1;
    CUresult got = (CUresult)hip.hipGetDevice(&ordinal);

    *context = context_of(ordinal);
    return got;
}

/* ---- memory ---- */

static void *at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static CUresult keep(hipError_t got, void *memory, CUdeviceptr *address)
{
    *address = (CUdeviceptr)(uintptr_t)memory;
    return (CUresult)got;
}

static CUresult mem_alloc(CUdeviceptr *address, size_t bytes)
{
    void *memory = NULL;
    hipError_t got = hip.hipMalloc(&memory, bytes);

    return keep(got, memory, address);
}

static CUresult mem_alloc_managed(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    void *memory = NULL;
    hipError_t got = hip.hipMallocManaged(&memory, bytes, flags);

    return keep(got, memory, address);
}

static CUresult mem_free(CUdeviceptr address)
{
    return (CUresult)hip.hipFree(at(address));
}

static CUresult mem_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    return (CUresult)hip.hipHostMalloc(memory, bytes, flags);
}

static CUresult mem_free_host(void *memory)
{
    return (CUresult)hip.hipHostFree(memory);
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return (CUresult)hip.hipMemcpyAsync(to, at(from), bytes, hipMemcpyDefault,
            (hipStream_t)(void *)stream);
}

static CUresult copy_from_host(CUdeviceptr to, const void *from, size_t bytes,
        CUstream stream)
{
    return (CUresult)hip.hipMemcpyAsync(at(to), from, bytes, hipMemcpyDefault,
            (hipStream_t)(void *)stream);
}

static CUresult memset_words(CUdeviceptr to, unsigned value, size_t words,
        CUstream stream)
{
    return (CUresult)hip.hipMemsetD32Async(at(to), (int)value, words,
            (hipStream_t)(void *)stream);
}

/* ---- streams and events ---- */

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    return (CUresult)hip.hipStreamCreateWithFlags((hipStream_t *)(void *)stream, flags);
}

static CUresult stream_destroy(CUstream stream)
{
    return (CUresult)hip.hipStreamDestroy((hipStream_t)(void *)stream);
}

static CUresult stream_query(CUstream stream)
{
    return (CUresult)hip.hipStreamQuery((hipStream_t)(void *)stream);
}

static CUresult stream_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    return (CUresult)hip.hipStreamWaitEvent((hipStream_t)(void *)stream,
            (hipEvent_t)(void *)event, flags);
}

static CUresult launch_host(CUstream stream, CUhostFn fn, void *arg)
{
    return (CUresult)hip.hipLaunchHostFunc((hipStream_t)(void *)stream, fn, arg);
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    return (CUresult)hip.hipEventCreateWithFlags((hipEvent_t *)(void *)event, flags);
}

static CUresult event_destroy(CUevent event)
{
    return (CUresult)hip.hipEventDestroy((hipEvent_t)(void *)event);
}

static CUresult event_record(CUevent event, CUstream stream)
{
    return (CUresult)hip.hipEventRecord((hipEvent_t)(void *)event,
            (hipStream_t)(void *)stream);
}

/* ---- graphs ---- */

static CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
    return (CUresult)hip.hipStreamBeginCapture((hipStream_t)(void *)stream,
            (hipStreamCaptureMode)mode);
}

static CUresult capture_end(CUstream stream, CUgraph *graph)
{
    return (CUresult)hip.hipStreamEndCapture((hipStream_t)(void *)stream,
            (hipGraph_t *)(void *)graph);
}

static CUresult graph_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    return (CUresult)hip.hipGraphInstantiateWithFlags((hipGraphExec_t *)(void *)exec,
            (hipGraph_t)(void *)graph, flags);
}

static CUresult graph_launch(CUgraphExec exec, CUstream stream)
{
    return (CUresult)hip.hipGraphLaunch((hipGraphExec_t)(void *)exec,
            (hipStream_t)(void *)stream);
}

static CUresult exec_destroy(CUgraphExec exec)
{
    return (CUresult)hip.hipGraphExecDestroy((hipGraphExec_t)(void *)exec);
}

static CUresult graph_destroy(CUgraph graph)
{
    return (CUresult)hip.hipGraphDestroy((hipGraph_t)(void *)graph);
}

static const gpu_driver functions = {
    .context_of = context_of,
    .cuGetErrorName = error_name,
    .cuDeviceGet = device_get,
    .cuDevicePrimaryCtxRetain = context_retain,
    .cuCtxSetCurrent = context_set,
    .cuCtxGetCurrent = context_get,
    .cuMemAlloc_v2 = mem_alloc,
    .cuMemAllocManaged = mem_alloc_managed,
    .cuMemFree_v2 = mem_free,
    .cuMemHostAlloc = mem_host_alloc,
    .cuMemFreeHost = mem_free_host,
    .cuMemcpyDtoHAsync_v2 = copy_to_host,
    .cuMemcpyHtoDAsync_v2 = copy_from_host,
    .cuMemsetD32Async = memset_words,
    .cuStreamCreate = stream_create,
    .cuStreamDestroy_v2 = stream_destroy,
    .cuStreamQuery = stream_query,
    .cuStreamWaitEvent = stream_wait_event,
    .cuLaunchHostFunc = launch_host,
    .cuEventCreate = event_create,
    .cuEventDestroy_v2 = event_destroy,
    .cuEventRecord = event_record,
    .cuStreamBeginCapture_v2 = capture_begin,
    .cuStreamEndCapture = capture_end,
    .cuGraphInstantiateWithFlags = graph_make,
    .cuGraphLaunch = graph_launch,
    .cuGraphExecDestroy = exec_destroy,
    .cuGraphDestroy = graph_destroy,
};

/** What tests call and this runtime does not have, or NULL. */
static const char *lacking(void)
{
#define NEED(symbol)        \
    if (hip.symbol == NULL) \
        return #symbol;
    NEED(hipInit)
    NEED(hipGetDeviceCount)
    NEED(hipGetErrorName)
    NEED(hipLaunchHostFunc)
#undef NEED
#define NEED(need, symbol, returns, parameters, since, feature) \
    if (hip.symbol == NULL)                                     \
        return #symbol;
    MOTET_HIP_APPLICATION(NEED)
#undef NEED
    return NULL;
}

bool gpu_driver_open_hip(gpu_driver *out, char *why, size_t bytes)
{
    static const char *const names[] = { "libamdhip64.so.6", "libamdhip64.so.7",
        "libamdhip64.so.5" };
    void *library = NULL;
    const char *lacks = NULL;
    hipError_t got;

    for (size_t i = 0; library == NULL && i < sizeof(names) / sizeof(*names); i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(why, bytes, "no runtime: %.200s", dlerror());
        return false;
    }
    *out = functions;
    out->library = library;
#define TAKE(need, symbol, returns, parameters, since, feature) \
    *(void **)(&hip.symbol) = dlsym(library, #symbol);
    MOTET_HIP_FUNCTIONS(TAKE)
    MOTET_HIP_APPLICATION(TAKE)
#undef TAKE
    lacks = lacking();
    if (lacks != NULL) {
        (void)snprintf(why, bytes, "the runtime lacks %s", lacks);
        return false;
    }
    got = hip.hipInit(0);
    if (got == hipSuccess)
        got = hip.hipGetDeviceCount(&out->devices);
    if (got != hipSuccess)
        (void)snprintf(why, bytes, "the runtime does not start: %s (%d)",
                hip.hipGetErrorName(got), (int)got);
    return got == hipSuccess;
}
