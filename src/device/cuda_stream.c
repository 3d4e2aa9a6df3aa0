/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code, and what is put into streams. A launch is one call of the driver with the
 * arguments by value, after one look whether the context is right; nothing here allocates
 * or takes a lock.
 */
#include "device/cuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of what the driver's compiler says about an image. */
#define LOG_BYTES 2048

/* ---- code ---- */

/* Binaries say how long they are; PTX is text and ends with a NUL. */
static bool is_text(const void *image, size_t bytes)
{
    static const unsigned char elf[4] = { 0x7f, 'E', 'L', 'F' };
    static const unsigned char fat[4] = { 0x50, 0xed, 0x55, 0xba };

    return bytes < sizeof(elf) ||
            (memcmp(image, elf, sizeof(elf)) != 0 &&
                    memcmp(image, fat, sizeof(fat)) != 0);
}

static motet_result load_image(const void *image, CUmodule *module_out)
{
    CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    char log[LOG_BYTES] = "";
    void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
    CUmodule module = NULL;
    motet_result result = CUDA(cuModuleLoadDataEx, &module, image,
            sizeof(options) / sizeof(*options), options, values);

    if (result == MOTET_OK) {
        *module_out = module;
        return MOTET_OK;
    }
    log[sizeof(log) - 1] = '\0';
    log[strcspn(log, "\r\n")] = '\0';
    if (log[0] != '\0')
        return motet_error_wrap(result, "%.300s", log);
    return result;
}

motet_result motet_cuda_load(motet_gpu *gpu, const void *image, size_t bytes,
        void **module_out)
{
    motet_cuda_scope scope;
    CUmodule module = NULL;
    motet_result result;
    char *text = NULL;

    if (bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "load an image of 0 bytes");
    if (is_text(image, bytes) && ((const char *)image)[bytes - 1] != '\0') {
        text = malloc(bytes + 1);
        if (text == NULL)
            return motet_fail_errno(MOTET_ERR_SYSTEM, "load %zu bytes of PTX", bytes);
        memcpy(text, image, bytes);
        text[bytes] = '\0';
    }
    result = motet_cuda_enter_relaxed(gpu, &scope);
    if (result == MOTET_OK) {
        result = load_image(text != NULL ? text : image, &module);
        motet_cuda_leave(&scope);
    }
    free(text);
    if (result != MOTET_OK)
        return motet_error_wrap(result,
                "load an image of %zu bytes on device %d (%s, %s)", bytes, gpu->ordinal,
                gpu->facts.name, gpu->facts.target);
    *module_out = module;
    return MOTET_OK;
}

/* The driver may put loading off until the first launch, which can wait for kernels that
 * run: to ask for an attribute makes older drivers load, too. */
static motet_result make_resident(CUfunction function)
{
    int registers = 0;

    if (motet_cuda.cuFuncLoad != NULL)
        return CUDA(cuFuncLoad, function);
    return CUDA(cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
}

motet_result motet_cuda_function(motet_gpu *gpu, void *module, const char *name,
        void **function_out)
{
    CUfunction function = NULL;
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "kernel %s", name);
    result = CUDA(cuModuleGetFunction, &function, module, name);
    if (result == MOTET_OK)
        result = make_resident(function);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "kernel %s", name);
    *function_out = function;
    return MOTET_OK;
}

motet_result motet_cuda_resident_blocks(motet_gpu *gpu, void *function,
        uint32_t threads, uint32_t *blocks_out)
{
    motet_cuda_scope scope;
    motet_result result;
    int blocks = 0;

    MOTET_TRY(motet_cuda_enter(gpu, &scope), "resident blocks");
    result = CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function,
            (int)threads, 0);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "blocks of %u threads", threads);
    *blocks_out = (uint32_t)(blocks * gpu->facts.processors);
    return MOTET_OK;
}

motet_result motet_cuda_launch(motet_gpu *gpu, const motet_launch *launch, void *stream)
{
    size_t bytes = launch->bytes;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)launch->args,
        CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
    motet_cuda_scope scope;
    motet_result result = motet_cuda_enter(gpu, &scope);

    if (result != MOTET_OK)
        return result;
    result = CUDA(cuLaunchKernel, launch->function, launch->blocks, 1, 1,
            launch->threads, 1, 1, 0, stream, NULL, extra);
    motet_cuda_leave(&scope);
    return result;
}

/* ---- streams ---- */

motet_result motet_cuda_stream_create(motet_gpu *gpu, bool urgent, void **stream_out)
{
    int least = 0, greatest = 0;
    CUstream stream = NULL;
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "stream");
    result = CUDA(cuCtxGetStreamPriorityRange, &least, &greatest);
    if (result == MOTET_OK)
        result = CUDA(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING,
                urgent ? greatest : 0);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream on device %d", gpu->ordinal);
    *stream_out = stream;
    return MOTET_OK;
}

void motet_cuda_stream_destroy(motet_gpu *gpu, void *stream)
{
    motet_cuda_scope scope;

    if (stream == NULL || motet_cuda_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    (void)motet_cuda.cuStreamDestroy_v2(stream); /* fails only with the context gone */
    motet_cuda_leave(&scope);
}

motet_result motet_cuda_stream_sync(motet_gpu *gpu, void *stream)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "wait for a stream");
    result = CUDA(cuStreamSynchronize, stream);
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_stream_query(motet_gpu *gpu, void *stream)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "look at a stream");
    result = CUDA(cuStreamQuery, stream);
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_health(motet_gpu *gpu)
{
    /* A stream that has nothing to do answers with what is wrong with its context. */
    const motet_result result = motet_cuda_stream_query(gpu, gpu->service);

    if (result == MOTET_OK || result == MOTET_IN_PROGRESS)
        return MOTET_OK;
    return motet_error_wrap(result, "device %d (%s, %s)", gpu->ordinal, gpu->facts.name,
            gpu->facts.bus_id);
}

/* ---- events ---- */

motet_result motet_cuda_event_create(motet_gpu *gpu, void **event_out)
{
    motet_cuda_scope scope;
    CUevent event = NULL;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "event");
    result = CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "event on device %d", gpu->ordinal);
    *event_out = event;
    return MOTET_OK;
}

void motet_cuda_event_destroy(motet_gpu *gpu, void *event)
{
    motet_cuda_scope scope;

    if (event == NULL || motet_cuda_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    (void)motet_cuda.cuEventDestroy_v2(event); /* fails only with the context gone */
    motet_cuda_leave(&scope);
}

motet_result motet_cuda_event_record(motet_gpu *gpu, void *event, void *stream,
        bool external)
{
    motet_cuda_scope scope;
    motet_result result;

    if (external && motet_cuda.cuEventRecordWithFlags == NULL)
        return motet_fail(MOTET_ERR_DEVICE, "record an event in a graph: %s",
                gpu->facts.no_capture);
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "record an event");
    result = external
            ? CUDA(cuEventRecordWithFlags, event, stream, CU_EVENT_RECORD_EXTERNAL)
            : CUDA(cuEventRecord, event, stream);
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_event_wait(motet_gpu *gpu, void *event, void *stream,
        bool external)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter(gpu, &scope), "wait for an event");
    result = CUDA(cuStreamWaitEvent, stream, event,
            external ? CU_EVENT_WAIT_EXTERNAL : 0);
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_event_query(motet_gpu *gpu, void *event)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter_relaxed(gpu, &scope), "look at an event");
    result = CUDA(cuEventQuery, event);
    motet_cuda_leave(&scope);
    return result;
}

/* ---- work without a kernel of ours ---- */

motet_result motet_cuda_copy(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
        void *stream)
{
    motet_cuda_scope scope;
    motet_result result;

    if (bytes == 0)
        return MOTET_OK;
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "copy");
    result = CUDA(cuMemcpyAsync, dst, src, bytes, stream);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "copy %zu bytes on device %d", bytes,
                gpu->ordinal);
    return MOTET_OK;
}

motet_result motet_cuda_fill(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
        void *stream)
{
    motet_cuda_scope scope;
    motet_result result;

    if (words == 0)
        return MOTET_OK;
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "fill");
    result = CUDA(cuMemsetD32Async, dst, value, words, stream);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "fill %zu words on device %d", words,
                gpu->ordinal);
    return MOTET_OK;
}

motet_result motet_cuda_call_host(motet_gpu *gpu, void (*fn)(void *), void *arg,
        void *stream)
{
    motet_cuda_scope scope;
    motet_result result;

    MOTET_TRY(motet_cuda_enter(gpu, &scope), "call the host");
    result = CUDA(cuLaunchHostFunc, stream, fn, arg);
    motet_cuda_leave(&scope);
    return result;
}
