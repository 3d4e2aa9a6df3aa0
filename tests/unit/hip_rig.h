/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the HIP device, on the stand-in of tests/fakehip. `app` is what an application beside motet would call; it maps the runtime, which is
 * therefore the one that the device uses.
 */
#ifndef MOTET_TEST_HIP_RIG_H
#define MOTET_TEST_HIP_RIG_H

#include "device/device.h"
#include "device/hip_api.h"

static const motet_gpu_ops *const ops = &motet_gpu_hip;

#include "amd_image.h"
#include "contract_rig.h"

/* Other runtimes than the usual one; FAKEHIP_DIR is the folder of the stand-ins. */
#define RIG_BARE         "RIG_RUNTIME=" FAKEHIP_DIR "/bare/libamdhip64.so.6"
#define RIG_DTK          "RIG_RUNTIME=" FAKEHIP_DIR "/dtk/libgalaxyhip.so.5"
#define RIG_PLAIN        "RIG_RUNTIME=" FAKEHIP_DIR "/plain/libamdhip64.so"
#define RIG_ROCM5        "RIG_RUNTIME=" FAKEHIP_DIR "/rocm5/libamdhip64.so.5"
#define RIG_ROCM7        "RIG_RUNTIME=" FAKEHIP_DIR "/rocm7/libamdhip64.so.7"
#define RIG_SECOND_ROCM7 "RIG_SECOND=" FAKEHIP_DIR "/rocm7/libamdhip64.so.7"

typedef struct rig_app {
#define FIELD(need, symbol, returns, parameters, since, feature) \
    returns(*symbol) parameters;
    MOTET_HIP_FUNCTIONS(FIELD)
    MOTET_HIP_APPLICATION(FIELD)
#undef FIELD
    /* of the stand-in only */
    hipError_t (*kernel_add)(const char *name,
            void (*kernel)(const void *args, uint32_t block, uint32_t blocks),
            size_t bytes);
} rig_app;

static rig_app app;

/* The file of the runtime: libamdhip64.so.6, or what the variable names. */
static inline bool rig_load(void)
{
    const char *file = getenv("RIG_RUNTIME");
    void *library = dlopen(file != NULL ? file : FAKEHIP_DIR "/libamdhip64.so.6",
            RTLD_NOW | RTLD_LOCAL);
    void *found;

    if (library == NULL)
        return false;
#define LOAD(need, symbol, returns, parameters, since, feature) \
    found = dlsym(library, #symbol);                            \
    memcpy(&app.symbol, &found, sizeof(found));
    MOTET_HIP_FUNCTIONS(LOAD)
    MOTET_HIP_APPLICATION(LOAD)
#undef LOAD
    found = dlsym(library, "fakehip_kernel_add");
    memcpy(&app.kernel_add, &found, sizeof(found));
    return true;
}

static inline bool rig_start(bool fake, int devices)
{
    int count = 0;

    return rig_load() && (!fake || app.kernel_add != NULL) &&
            app.hipInit(0) == hipSuccess &&
            app.hipGetDeviceCount(&count) == hipSuccess && count >= devices;
}

/* An image for gfx1100 with the kernel that stores. */
static inline rig_image rig_store_image(void)
{
    const rig_kernel kernel = { "motet_test_store", sizeof(store_args), false };

    return rig_object(RIG_GFX1100, &kernel, 1);
}

static inline void *rig_store_kernel(motet_gpu *gpu)
{
    static bool added;
    const rig_image image = rig_store_image();
    void *module, *function;

    if (!added)
        added = app.kernel_add("motet_test_store", store_on_host, sizeof(store_args)) ==
                hipSuccess;
    if (ops->load(gpu, image.bytes, image.used, &module) != MOTET_OK ||
            ops->function(gpu, module, "motet_test_store", &function) != MOTET_OK)
        return NULL;
    return function;
}

/* ---- the application ---- */

static inline bool rig_use(int ordinal)
{
    return app.hipSetDevice(ordinal) == hipSuccess;
}

/* Such as peers may read while a kernel runs. */
static inline uint64_t rig_app_alloc(size_t bytes)
{
    void *address = NULL;

    return app.hipExtMallocWithFlags(&address, bytes, hipDeviceMallocFinegrained) ==
                    hipSuccess
            ? (uint64_t)(uintptr_t)address
            : 0;
}

static inline uint64_t rig_app_managed(size_t bytes)
{
    void *address = NULL;

    return app.hipMallocManaged(&address, bytes, 1) == hipSuccess
            ? (uint64_t)(uintptr_t)address
            : 0;
}

static inline bool rig_app_register(void *memory, size_t bytes)
{
    return app.hipHostRegister(memory, bytes,
                   hipHostRegisterMapped | hipHostRegisterPortable) == hipSuccess;
}

static inline bool rig_app_unregister(void *memory)
{
    return app.hipHostUnregister(memory) == hipSuccess;
}

static inline void *rig_app_stream(void)
{
    hipStream_t stream = NULL;

    return app.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess
            ? stream
            : NULL;
}

static inline bool rig_app_sync(void *stream)
{
    return app.hipStreamSynchronize(stream) == hipSuccess;
}

static inline bool rig_capture_begin(void *stream, int mode)
{
    return app.hipStreamBeginCapture(stream, (hipStreamCaptureMode)mode) == hipSuccess;
}

static inline bool rig_capture_end(void *stream, void **graph_out)
{
    hipGraph_t graph = NULL;
    const bool ended = app.hipStreamEndCapture(stream, &graph) == hipSuccess;

    *graph_out = graph;
    return ended;
}

static inline int rig_capture_mode(void)
{
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;

    return app.hipThreadExchangeStreamCaptureMode(&mode) == hipSuccess ? (int)mode : -1;
}

static inline bool rig_graph_nodes(void *graph, size_t *count_out)
{
    return app.hipGraphGetNodes(graph, NULL, count_out) == hipSuccess;
}

static inline bool rig_node_edges(void *node, size_t *count_out)
{
    hipGraphNode_t before[8];

    *count_out = 8;
    return app.hipGraphNodeGetDependencies(node, before, count_out) == hipSuccess;
}

static inline bool rig_graph_make(void *graph, void **exec_out)
{
    hipGraphExec_t exec = NULL;
    const bool made = app.hipGraphInstantiateWithFlags(&exec, graph, 0) == hipSuccess;

    *exec_out = exec;
    return made;
}

static inline bool rig_graph_run(void *exec, void *stream)
{
    return app.hipGraphLaunch(exec, stream) == hipSuccess;
}

static inline bool rig_graph_drop(void *graph, void *exec)
{
    return (exec == NULL || app.hipGraphExecDestroy(exec) == hipSuccess) &&
            (graph == NULL || app.hipGraphDestroy(graph) == hipSuccess);
}

#endif
