/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code, and what is put into streams. A launch is one call of the runtime with the
 * arguments by value, between looks at the current device and at the last error; nothing
 * here allocates or takes a lock.
 *
 * The runtime keeps a pointer to the stream in which an event was recorded last and looks
 * at it when it is asked about the event: it fails a capture that has begun there since,
 * and up to ROCm 6.3 it follows the pointer of a stream that was destroyed. So each event
 * remembers the stream, and it is looked at first.
 */
#include "device/hip.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

hipStream_t motet_hip_stream(const void *stream)
{
    /* Runtimes before 6.3 do not know the second name of the legacy stream. */
    return stream == hipStreamLegacy ? NULL : (hipStream_t)(uintptr_t)stream;
}

/* ---- code ---- */

/* The runtime is not told how long an image is: what does not say it itself, it must not
 * see. Code objects are ELF files; several lie in a bundle, which may be packed. */
static bool is_image(const void *image, size_t bytes)
{
    static const char *const magics[] = { "\177ELF", "__CLANG_OFFLOAD_BUNDLE__",
        "CCOB" };

    for (size_t i = 0; i < sizeof(magics) / sizeof(*magics); i++)
        if (bytes >= 64 && memcmp(image, magics[i], strlen(magics[i])) == 0)
            return true;
    return false;
}

/* The whole image is made resident: nothing is loaded when a kernel is launched. */
motet_result motet_hip_load(motet_gpu *gpu, const void *image, size_t bytes,
        void **module_out)
{
    hipModule_t module = NULL;
    motet_hip_scope scope;
    motet_result result;

    if (!is_image(image, bytes))
        return motet_fail(MOTET_ERR_DEVICE,
                "%zu bytes for device %d are no code object: need an ELF file or a "
                "bundle of them",
                bytes, gpu->ordinal);
    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "load an image");
    result = HIP_SETTLED(&scope, hipModuleLoadData, &module, image);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result,
                "load an image of %zu bytes on device %d (%s, %s)", bytes, gpu->ordinal,
                gpu->facts.name, gpu->facts.target);
    *module_out = module;
    return MOTET_OK;
}

motet_result motet_hip_function(motet_gpu *gpu, void *module, const char *name,
        void **function_out)
{
    hipFunction_t function = NULL;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "kernel %s", name);
    result = HIP(hipModuleGetFunction, &function, module, name);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "kernel %s", name);
    *function_out = function;
    return MOTET_OK;
}

motet_result motet_hip_resident_blocks(motet_gpu *gpu, void *function, uint32_t threads,
        uint32_t *blocks_out)
{
    motet_hip_scope scope;
    motet_result result;
    int blocks = 0;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "resident blocks");
    result = HIP(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function,
            (int)threads, 0);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "blocks of %u threads", threads);
    *blocks_out = (uint32_t)(blocks * gpu->facts.processors);
    return MOTET_OK;
}

motet_result motet_hip_launch(motet_gpu *gpu, const motet_launch *launch, void *stream)
{
    size_t bytes = launch->bytes;
    void *extra[] = { HIP_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)launch->args,
        HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END };
    motet_hip_scope scope;
    motet_result result = motet_hip_enter_work(gpu, &scope);

    if (result != MOTET_OK)
        return result;
    result = HIP_SETTLED(&scope, hipModuleLaunchKernel, launch->function,
            launch->blocks, 1, 1, launch->threads, 1, 1, 0, motet_hip_stream(stream),
            NULL, extra);
    motet_hip_leave(&scope);
    return result;
}

/* ---- streams ---- */

motet_result motet_hip_stream_create(motet_gpu *gpu, bool urgent, void **stream_out)
{
    int least = 0, greatest = 0;
    hipStream_t stream = NULL;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "stream");
    result = HIP(hipDeviceGetStreamPriorityRange, &least, &greatest);
    if (result == MOTET_OK)
        result = HIP(hipStreamCreateWithPriority, &stream, hipStreamNonBlocking,
                urgent ? greatest : 0);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream on device %d", gpu->ordinal);
    *stream_out = stream;
    return MOTET_OK;
}

void motet_hip_stream_destroy(motet_gpu *gpu, void *stream)
{
    motet_hip_scope scope;

    if (stream == NULL || motet_hip_enter_relaxed(gpu, &scope) != MOTET_OK)
        return;
    (void)motet_hip.hipStreamDestroy(stream); /* fails only with the device gone */
    motet_hip_leave(&scope);
}

motet_result motet_hip_stream_sync(motet_gpu *gpu, void *stream)
{
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "wait for a stream");
    result = HIP_SETTLED(&scope, hipStreamSynchronize, motet_hip_stream(stream));
    motet_hip_leave(&scope);
    return result;
}

motet_result motet_hip_stream_query(motet_gpu *gpu, void *stream)
{
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "look at a stream");
    result = HIP_SETTLED(&scope, hipStreamQuery, motet_hip_stream(stream));
    motet_hip_leave(&scope);
    return result;
}

motet_result motet_hip_health(motet_gpu *gpu)
{
    /* A stream that has nothing to do answers with what is wrong with its device. */
    const motet_result result = motet_hip_stream_query(gpu, gpu->service);

    if (result == MOTET_OK || result == MOTET_IN_PROGRESS)
        return MOTET_OK;
    return motet_error_wrap(result, "device %d (%s, %s)", gpu->ordinal, gpu->facts.name,
            gpu->facts.bus_id);
}

/* ---- events ---- */

motet_result motet_hip_event_create(motet_gpu *gpu, void **event_out)
{
    motet_hip_event *event = calloc(1, sizeof(*event));
    motet_hip_scope scope;
    motet_result result;

    if (event == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "event on device %d", gpu->ordinal);
    result = motet_hip_enter_relaxed(gpu, &scope);
    if (result == MOTET_OK) {
        result = HIP(hipEventCreateWithFlags, &event->event, hipEventDisableTiming);
        motet_hip_leave(&scope);
    }
    if (result != MOTET_OK) {
        free(event);
        return motet_error_wrap(result, "event on device %d", gpu->ordinal);
    }
    *event_out = event;
    return MOTET_OK;
}

void motet_hip_event_destroy(motet_gpu *gpu, void *event)
{
    motet_hip_event *e = event;
    motet_hip_scope scope;

    if (e == NULL)
        return;
    if (motet_hip_enter_relaxed(gpu, &scope) == MOTET_OK) {
        (void)motet_hip.hipEventDestroy(e->event); /* fails only with the device gone */
        motet_hip_leave(&scope);
    }
    free(e);
}

static bool is_of_other_thread(const motet_hip_event *e)
{
    return e->stream == hipStreamPerThread && e->thread != gettid();
}

/* The stream that @p e was recorded in last is still there. What a stream was given has
 * ended before it is destroyed; a thread's own is destroyed where the thread ends. */
static bool stream_lives(const motet_hip_event *e)
{
    unsigned flags;

    if (is_of_other_thread(e) && tgkill(getpid(), e->thread, 0) != 0)
        return false;
    return motet_hip_is_default(e->stream) ||
            motet_hip.hipStreamGetFlags(e->stream, &flags) == hipSuccess;
}

static bool is_captured(const motet_hip_event *e)
{
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;

    return !motet_hip_is_default(e->stream) &&
            motet_hip.hipStreamIsCapturing(e->stream, &status) == hipSuccess &&
            status != hipStreamCaptureStatusNone;
}

motet_result motet_hip_event_record(motet_gpu *gpu, void *event, void *stream,
        bool external)
{
    motet_hip_event *e = event;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "record an event");
    if (external) {
        result = motet_hip_event_node(gpu, e->event, stream, false);
    } else {
        result = HIP(hipEventRecord, e->event, motet_hip_stream(stream));
        if (result == MOTET_OK) {
            e->stream = stream;
            e->thread = stream == hipStreamPerThread ? gettid() : 0;
        }
    }
    motet_hip_leave(&scope);
    return result;
}

motet_result motet_hip_event_wait(motet_gpu *gpu, void *event, void *stream,
        bool external)
{
    const motet_hip_event *e = event;
    motet_hip_scope scope;
    motet_result result = MOTET_OK;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "wait for an event");
    if (external)
        result = motet_hip_event_node(gpu, e->event, stream, true);
    else if (stream_lives(e))
        result = HIP(hipStreamWaitEvent, motet_hip_stream(stream), e->event, 0);
    motet_hip_leave(&scope);
    return result;
}

motet_result motet_hip_event_query(motet_gpu *gpu, void *event)
{
    const motet_hip_event *e = event;
    motet_hip_scope scope;
    motet_result result = MOTET_OK;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "look at an event");
    if (is_captured(e))
        result = motet_fail(MOTET_ERR_DEVICE,
                "the stream that the event was recorded in is being captured: to look "
                "at the event would fail the capture");
    else if (!stream_lives(e))
        result = MOTET_OK;
    else if (is_of_other_thread(e)) /* which may end while the runtime looks */
        result = motet_fail(MOTET_ERR_DEVICE,
                "the event was recorded in the default stream of thread %d, and only "
                "that thread can look at it",
                (int)e->thread);
    else
        result = HIP(hipEventQuery, e->event);
    motet_hip_leave(&scope);
    return result;
}

/* ---- work without a kernel of ours ---- */

motet_result motet_hip_copy(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
        void *stream)
{
    motet_hip_scope scope;
    motet_result result;

    if (bytes == 0)
        return MOTET_OK;
    MOTET_TRY(motet_hip_enter_work(gpu, &scope), "copy");
    result = HIP_SETTLED(&scope, hipMemcpyAsync, (void *)(uintptr_t)dst,
            (const void *)(uintptr_t)src, bytes, hipMemcpyDefault,
            motet_hip_stream(stream));
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "copy %zu bytes on device %d", bytes,
                gpu->ordinal);
    return MOTET_OK;
}

motet_result motet_hip_fill(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
        void *stream)
{
    motet_hip_scope scope;
    motet_result result;

    if (words == 0)
        return MOTET_OK;
    MOTET_TRY(motet_hip_enter_work(gpu, &scope), "fill");
    result = HIP_SETTLED(&scope, hipMemsetD32Async, (void *)(uintptr_t)dst, (int)value,
            words, motet_hip_stream(stream));
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "fill %zu words on device %d", words,
                gpu->ordinal);
    return MOTET_OK;
}

motet_result motet_hip_call_host(motet_gpu *gpu, void (*fn)(void *), void *arg,
        void *stream)
{
    char missing[384];
    motet_hip_scope scope;
    motet_result result;

    if (motet_hip_lacks(MOTET_HIP_HOSTCALL, missing, sizeof(missing)))
        return motet_fail(MOTET_ERR_DEVICE, "call the host: %s", missing);
    MOTET_TRY(motet_hip_enter(gpu, &scope), "call the host");
    result = HIP(hipLaunchHostFunc, motet_hip_stream(stream), fn, arg);
    motet_hip_leave(&scope);
    return result;
}
