/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and launches. */
#include "hip.h"

#include <stdio.h>
#include <string.h>

#define LDS_BYTES 65536 /* of a block, on every card */

hipError_t fakehip_kernel_add(const char *name, fakehip_kernel kernel, size_t bytes)
{
    return hip_end(fakecuda_kernel_add(name, kernel, bytes));
}

hipError_t hipModuleLoadData(hipModule_t *out, const void *image)
{
    CUmodule module;
    CUresult code =
            out != NULL && image != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuModuleLoadData(&module, image);
    if (code == CUDA_SUCCESS)
        *out = (hipModule_t)(void *)module;
    return hip_end(code);
}

/* The real runtime ends the process if the module is another device's. */
hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module,
        const char *name)
{
    fake_function *f;
    CUfunction function;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuModuleGetFunction(&function, (CUmodule)(void *)module, name);
    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    code = fake_function_of(function, &f);
    if (code == CUDA_SUCCESS && f->context != fake_current()) {
        fprintf(stderr, "fakehip: kernel %s was loaded for another device\n", name);
        code = CUDA_ERROR_INVALID_DEVICE;
    }
    if (code == CUDA_SUCCESS)
        *out = (hipFunction_t)(void *)function;
    return hip_end(fake_leave(code));
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
        hipFunction_t function, int threads, size_t shared_bytes)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks,
                (CUfunction)(void *)function, threads, shared_bytes);
    return hip_end(code);
}

/* All arguments in one piece, from either way of passing them. A buffer may be longer
 * than they are, by what aligns the whole. @retval false they do not fit */
static bool arguments(const fake_function *function, void **parameters, void **extra,
        unsigned char *out)
{
    const void *buffer = NULL;
    size_t bytes = 0;

    for (unsigned i = 0; parameters != NULL && i < function->parts; i++)
        memcpy(out + function->part[i].offset, parameters[i], function->part[i].bytes);
    if (parameters != NULL)
        return extra == NULL;
    for (; extra != NULL && *extra != HIP_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return false;
    }
    if (bytes < function->bytes || bytes > (function->bytes + 15) / 16 * 16 ||
            (buffer == NULL && bytes > 0))
        return false;
    if (function->bytes > 0)
        memcpy(out, buffer, function->bytes);
    return true;
}

/* What must be known of the function: its arguments as the core wants them, and whether
 * the device refuses it. */
static CUresult prepare(hipFunction_t handle, void **parameters, void **extra,
        unsigned char *args, size_t *bytes, bool *refused)
{
    fake_function *function;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_function_of((CUfunction)(void *)handle, &function);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (!arguments(function, parameters, extra, args))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *bytes = function->bytes;
    *refused = hip_refuses(function);
    return fake_leave(CUDA_SUCCESS);
}

/* Dynamic LDS, of which the host builds of kernels have a whole block's anyway. */
static CUresult launch(hipFunction_t function, const unsigned grid[3],
        const unsigned block[3], unsigned shared_bytes, hipStream_t stream,
        unsigned char *args, size_t bytes)
{
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE,
        &bytes, CU_LAUNCH_PARAM_END };

    if (shared_bytes > LDS_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel((CUfunction)(void *)function, grid[0], grid[1], grid[2],
            block[0], block[1], block[2], 0, hip_stream(stream), NULL, extra);
}

static bool captured(hipStream_t stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cuStreamIsCapturing(hip_stream(stream), &status) == CUDA_SUCCESS &&
            status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A refusal comes when the kernel is dispatched: a captured one, when its graph is. */
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x,
        unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
        unsigned block_z, unsigned shared_bytes, hipStream_t stream, void **parameters,
        void **extra)
{
    const unsigned grid[3] = { grid_x, grid_y, grid_z };
    const unsigned block[3] = { block_x, block_y, block_z };
    unsigned char args[FAKE_ARGS_LIMIT];
    bool refused = false;
    size_t bytes = 0;
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = prepare(function, parameters, extra, args, &bytes, &refused);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    if (refused && !captured(stream))
        return hip_refuse(stream);
    return hip_end(launch(function, grid, block, shared_bytes, stream, args, bytes));
}
