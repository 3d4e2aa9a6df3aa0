/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the CUDA device, on the stand-in of tests/fakecuda if LD_LIBRARY_PATH leads
 * there, else on the machine's driver; without any they are skipped. `app` is what an
 * application beside motet would call.
 */
#ifndef MOTET_TEST_CUDA_RIG_H
#define MOTET_TEST_CUDA_RIG_H

#include "device/cuda_api.h"
#include "device/device.h"

static const motet_gpu_ops *const ops = &motet_gpu_cuda;

#include "contract_rig.h"

typedef struct rig_app {
#define FIELD(need, symbol, parameters, since, feature) CUresult(*symbol) parameters;
    MOTET_CUDA_FUNCTIONS(FIELD)
    MOTET_CUDA_APPLICATION(FIELD)
#undef FIELD
    /* of the stand-in only */
    CUresult (*kernel_add)(const char *name,
            void (*kernel)(const void *args, uint32_t block, uint32_t blocks),
            size_t bytes);
    CUresult (*green_context)(CUcontext *context, CUdevice device);
} rig_app;

static rig_app app;

static inline bool rig_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;

    if (library == NULL)
        return false;
#define LOAD(need, symbol, parameters, since, feature) \
    found = dlsym(library, #symbol);                   \
    memcpy(&app.symbol, &found, sizeof(found));
    MOTET_CUDA_FUNCTIONS(LOAD)
    MOTET_CUDA_APPLICATION(LOAD)
#undef LOAD
    found = dlsym(library, "fakecuda_kernel_add");
    memcpy(&app.kernel_add, &found, sizeof(found));
    found = dlsym(library, "fakecuda_green_context");
    memcpy(&app.green_context, &found, sizeof(found));
    return true;
}

static const char store_ptx[] =
        ".version 6.3\n.target sm_70\n.address_size 64\n"
        ".visible .entry motet_test_store(\n"
        "    .param .align 8 .b8 motet_test_store_param_0[16]\n)\n{\n"
        "    .reg .b32 %r<3>;\n    .reg .b64 %rd<3>;\n"
        "    ld.param.u64 %rd1, [motet_test_store_param_0];\n"
        "    ld.param.u32 %r1, [motet_test_store_param_0+8];\n"
        "    mov.u32 %r2, %ctaid.x;\n    add.u32 %r1, %r1, %r2;\n"
        "    mul.wide.u32 %rd2, %r2, 4;\n    add.u64 %rd1, %rd1, %rd2;\n"
        "    st.u32 [%rd1], %r1;\n    ret;\n}\n";

/* The kernel on @p gpu, or NULL. */
static inline void *rig_store_kernel(motet_gpu *gpu)
{
    static bool added;
    void *module, *function;

    if (app.kernel_add != NULL && !added)
        added = app.kernel_add("motet_test_store", store_on_host, sizeof(store_args)) ==
                CUDA_SUCCESS;
    if (ops->load(gpu, store_ptx, sizeof(store_ptx), &module) != MOTET_OK ||
            ops->function(gpu, module, "motet_test_store", &function) != MOTET_OK)
        return NULL;
    return function;
}

/* ---- the application ---- */

static inline bool rig_start(bool fake, int devices)
{
    int count = 0;

    return rig_load() && (!fake || app.kernel_add != NULL) && app.cuInit(0) == 0 &&
            app.cuDeviceGetCount(&count) == 0 && count >= devices;
}

static inline bool rig_use(int ordinal)
{
    CUcontext context;

    return app.cuDevicePrimaryCtxRetain(&context, ordinal) == CUDA_SUCCESS &&
            app.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static inline uint64_t rig_app_alloc(size_t bytes)
{
    CUdeviceptr address = 0;

    return app.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

static inline uint64_t rig_app_managed(size_t bytes)
{
    CUdeviceptr address = 0;

    return app.cuMemAllocManaged(&address, bytes, 1) == CUDA_SUCCESS ? address : 0;
}

static inline bool rig_app_register(void *memory, size_t bytes)
{
    return app.cuMemHostRegister_v2(memory, bytes,
                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS;
}

static inline bool rig_app_unregister(void *memory)
{
    return app.cuMemHostUnregister(memory) == CUDA_SUCCESS;
}

static inline void *rig_app_stream(void)
{
    CUstream stream = NULL;

    return app.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? stream
                                                                               : NULL;
}

static inline bool rig_app_sync(void *stream)
{
    return app.cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

static inline bool rig_capture_begin(void *stream, int mode)
{
    return app.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode) ==
            CUDA_SUCCESS;
}

static inline bool rig_capture_end(void *stream, void **graph_out)
{
    CUgraph graph = NULL;
    const bool ended = app.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS;

    *graph_out = graph;
    return ended;
}

static inline int rig_capture_mode(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    return app.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? (int)mode
                                                                        : -1;
}

static inline bool rig_graph_nodes(void *graph, size_t *count_out)
{
    return app.cuGraphGetNodes(graph, NULL, count_out) == CUDA_SUCCESS;
}

static inline bool rig_node_edges(void *node, size_t *count_out)
{
    CUgraphNode before[8];

    *count_out = 8;
    return app.cuGraphNodeGetDependencies(node, before, count_out) == CUDA_SUCCESS;
}

static inline bool rig_graph_make(void *graph, void **exec_out)
{
    CUgraphExec exec = NULL;
    const bool made = app.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS;

    *exec_out = exec;
    return made;
}

static inline bool rig_graph_run(void *exec, void *stream)
{
    return app.cuGraphLaunch(exec, stream) == CUDA_SUCCESS;
}

static inline bool rig_graph_drop(void *graph, void *exec)
{
    return (exec == NULL || app.cuGraphExecDestroy(exec) == CUDA_SUCCESS) &&
            (graph == NULL || app.cuGraphDestroy(graph) == CUDA_SUCCESS);
}

#endif
