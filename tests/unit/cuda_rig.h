/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the CUDA device: in children, each with a driver of its own, since a driver
 * does not survive a fork. It is the stand-in of tests/fakecuda if LD_LIBRARY_PATH leads
 * there, else the machine's; without any they are skipped. `app` is what an application
 * beside motet would call.
 */
#ifndef MOTET_TEST_CUDA_RIG_H
#define MOTET_TEST_CUDA_RIG_H

#include "base/error.h"
#include "child.h"
#include "device/cuda_api.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

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
static const motet_gpu_ops *const ops = &motet_gpu_cuda;

/* In children: what is not so is said, and the child fails. */
#define CHECK(truth)                                                              \
    do {                                                                          \
        if (!(truth)) {                                                           \
            fprintf(stderr, "%s:%d: %s; trail: %s\n", __FILE__, __LINE__, #truth, \
                    motet_error_trail());                                         \
            return 1;                                                             \
        }                                                                         \
    } while (0)
#define CHECK_SAID(words) CHECK(strstr(motet_error_trail(), (words)) != NULL)

/* What the child returns for "not on this machine". */
#define RIG_SKIP 77

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

typedef struct rig_case {
    int (*body)(void);
    bool fake; /* needs the stand-in */
    int devices;
} rig_case;

static inline int rig_child(const void *arg)
{
    const rig_case *c = arg;
    int count = 0;

    if (!rig_load() || (c->fake && app.kernel_add == NULL) || app.cuInit(0) != 0 ||
            app.cuDeviceGetCount(&count) != 0 || count < c->devices)
        return RIG_SKIP;
    return c->body();
}

/* Run @p body in a child with nothing but @p variable ("NAME=VALUE" or NULL) set. */
static inline void rig_run(int (*body)(void), bool fake, int devices,
        const char *variable)
{
    const rig_case c = { .body = body, .fake = fake, .devices = devices };
    const char *const environment[] = { variable, NULL };
    child_result child = child_run(rig_child, &c, environment);

    if (child.status == RIG_SKIP)
        skip();
    if (child.status != 0)
        fail_msg("status %d\n%s%s", child.status, child.out, child.err);
}

/* ---- a kernel: word b of `at` becomes `value` + b, b the block ---- */

typedef struct store_args {
    uint64_t at;
    uint32_t value, reserved;
} store_args;

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

static inline void store_on_host(const void *args, uint32_t block, uint32_t blocks)
{
    const store_args *a = args;

    (void)blocks;
    ((uint32_t *)(uintptr_t)a->at)[block] = a->value + block;
}

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

static inline motet_result rig_store(motet_gpu *gpu, void *kernel, uint64_t at,
        uint32_t value, void *stream)
{
    const store_args args = { .at = at, .value = value };
    const motet_launch launch = { .function = kernel,
        .blocks = 2,
        .threads = 32,
        .args = &args,
        .bytes = sizeof(args) };

    return ops->launch(gpu, &launch, stream);
}

/* The word at @p at of the device, read over a stream of our own. */
static inline uint32_t rig_word(motet_gpu *gpu, uint64_t at)
{
    uint32_t word = 0xdead;
    void *stream = NULL;

    if (ops->stream_create(gpu, false, &stream) != MOTET_OK ||
            ops->copy(gpu, (uint64_t)(uintptr_t)&word, at, sizeof(word), stream) !=
                    MOTET_OK ||
            ops->stream_sync(gpu, stream) != MOTET_OK)
        word = 0xbad;
    ops->stream_destroy(gpu, stream);
    return word;
}

#endif
