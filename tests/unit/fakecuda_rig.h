/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the stand-in driver share. */
#ifndef MOTET_TEST_FAKECUDA_RIG_H
#define MOTET_TEST_FAKECUDA_RIG_H

#include "fake_rig.h"
#include "../fakecuda/fakecuda.h"

#define OK(call) IS(CUDA_SUCCESS, call)

static const char rig_ptx[] =
        "// made by hand\n"
        ".version 6.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry rig_meet(\n"
        "\t.param .align 8 .b8 rig_meet_param_0[24]\n)\n.maxntid 512, 1, 1\n{ ret; }\n"
        ".visible .entry rig_crowd(.param .align 8 .b8 rig_crowd_param_0[16]) { ret; "
        "}\n"
        ".visible .entry rig_append( /* two words */\n"
        "\t.param .align 8 .b8 rig_append_param_0[16]\n)\n{ ret; }\n"
        ".visible .entry rig_gate(.param .u64 .ptr .global .align 4 rig_gate_param_0)\n"
        "{ ret; }\n"
        ".visible .entry nowhere(.param .u64 a, .param .u32 b) { ret; }\n";

typedef struct rig {
    CUdevice device[2];
    CUcontext context[2];
    CUmodule module[2];
    CUfunction meet[2], crowd, append, gate; /* crowd, append, gate: of device 0 */
    CUstream stream[3];                      /* of device 0, non-blocking */
} rig;

static inline int rig_kernels(void)
{
    OK(fakecuda_kernel_add("rig_meet", rig_meet, sizeof(meet_args)));
    OK(fakecuda_kernel_add("rig_crowd", rig_crowd, sizeof(crowd_args)));
    OK(fakecuda_kernel_add("rig_append", rig_append, sizeof(append_args)));
    OK(fakecuda_kernel_add("rig_gate", rig_gate, sizeof(uint32_t *)));
    return 0;
}

/* Leaves device 0's primary context current. */
static inline int rig_open(rig *r)
{
    OK(cuInit(0));
    CHECK(rig_kernels() == 0);
    for (int d = 1; d >= 0; d--) {
        OK(cuDeviceGet(&r->device[d], d));
        OK(cuDevicePrimaryCtxRetain(&r->context[d], r->device[d]));
        OK(cuCtxSetCurrent(r->context[d]));
        OK(cuModuleLoadDataEx(&r->module[d], rig_ptx, 0, NULL, NULL));
        OK(cuModuleGetFunction(&r->meet[d], r->module[d], "rig_meet"));
    }
    OK(cuModuleGetFunction(&r->crowd, r->module[0], "rig_crowd"));
    OK(cuModuleGetFunction(&r->append, r->module[0], "rig_append"));
    OK(cuModuleGetFunction(&r->gate, r->module[0], "rig_gate"));
    for (int s = 0; s < 3; s++)
        OK(cuStreamCreate(&r->stream[s], CU_STREAM_NON_BLOCKING));
    return 0;
}

static inline CUresult rig_launch(CUfunction function, uint32_t blocks, CUstream stream,
        const void *args, size_t bytes)
{
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)args,
        CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };

    return cuLaunchKernel(function, blocks, 1, 1, 512, 1, 1, 0, stream, NULL, extra);
}

static inline CUresult rig_note(const rig *r, uint32_t *list, uint32_t value,
        CUstream stream)
{
    const append_args args = { list, value };

    return rig_launch(r->append, 1, stream, &args, sizeof(args));
}

static inline CUresult rig_wait_for(const rig *r, const uint32_t *word, CUstream stream)
{
    return rig_launch(r->gate, 1, stream, &word, sizeof(word));
}

/* Device memory that the host reads directly: the stand-in lets it. */
static inline uint32_t *rig_words(size_t count)
{
    CUdeviceptr address;

    if (cuMemAlloc_v2(&address, count * sizeof(uint32_t)) != CUDA_SUCCESS)
        return NULL;
    memset((void *)(uintptr_t)address, 0, count * sizeof(uint32_t));
    return (uint32_t *)(uintptr_t)address;
}

#endif
