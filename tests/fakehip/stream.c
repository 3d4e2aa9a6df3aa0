/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events, and what is enqueued besides kernels. */
#include "hip.h"

#define EVENT_FLAGS 0xe0000007u

static CUevent core_event(hipEvent_t event)
{
    return (CUevent)(void *)event;
}

/* ---- streams ---- */

/* Priorities beyond the range are HIP's to bring into it, not errors. */
hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority)
{
    CUstream stream;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuStreamCreateWithPriority(&stream, flags, priority);
    if (code == CUDA_SUCCESS)
        *out = (hipStream_t)(void *)stream;
    return hip_end(code);
}

hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags)
{
    return hipStreamCreateWithPriority(out, flags, 0);
}

hipError_t hipStreamCreate(hipStream_t *out)
{
    return hipStreamCreateWithPriority(out, 0, 0);
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuStreamDestroy_v2(hip_stream(stream));
    return hip_end(code);
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuStreamSynchronize(hip_stream(stream));
    return code == CUDA_SUCCESS ? hip_end_own(hip_refused(stream, false))
                                : hip_end(code);
}

hipError_t hipStreamQuery(hipStream_t stream)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuStreamQuery(hip_stream(stream));
    return code == CUDA_SUCCESS ? hip_end_own(hip_refused(stream, false))
                                : hip_end(code);
}

/* HIP does not answer for the default stream of the device. */
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned *flags)
{
    fake_stream *found;
    CUresult code = stream != NULL && flags != NULL ? hip_begin_stream(stream)
                                                    : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    code = fake_stream_of(hip_stream(stream), &found);
    if (code == CUDA_SUCCESS)
        *flags = found->flags;
    return hip_end(fake_leave(code));
}

static CUresult device_of(hipStream_t stream, int *out)
{
    fake_stream *found;
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(hip_stream(stream), &found);
    if (code == CUDA_SUCCESS)
        *out = (int)found->context->device->ordinal;
    return fake_leave(code);
}

hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device)
{
    return hip_end(
            device != NULL ? device_of(stream, device) : CUDA_ERROR_INVALID_VALUE);
}

/* Says −1 of what is no stream, and is no call that has an error. */
int hipGetStreamDeviceId(hipStream_t stream)
{
    int device;

    return device_of(stream, &device) == CUDA_SUCCESS ? device : -1;
}

/* ---- work ---- */

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind,
        hipStream_t stream)
{
    CUresult code = (unsigned)kind <= hipMemcpyDefault ? hip_begin_stream(stream)
                                                       : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, hip_stream(stream));
    return hip_end(code);
}

hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind)
{
    hipError_t error = hipMemcpyAsync(to, from, bytes, kind, NULL);

    return error == hipSuccess ? hipStreamSynchronize(NULL) : error;
}

hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t words,
        hipStream_t stream)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuMemsetD32Async((uintptr_t)to, (unsigned)value, words,
                hip_stream(stream));
    return hip_end(code);
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *arg)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuLaunchHostFunc(hip_stream(stream), function, arg);
    return hip_end(code);
}

/* ---- events ---- */

hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags)
{
    CUevent event;
    CUresult code = out != NULL && (flags & ~EVENT_FLAGS) == 0
            ? hip_begin()
            : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuEventCreate(&event, flags & 7);
    if (code == CUDA_SUCCESS)
        *out = (hipEvent_t)(void *)event;
    return hip_end(code);
}

hipError_t hipEventDestroy(hipEvent_t event)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuEventDestroy_v2(core_event(event));
    return hip_end(code);
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuEventRecord(core_event(event), hip_stream(stream));
    return hip_end(code);
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags)
{
    CUresult code = flags == 0 ? hip_begin_stream(stream) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuStreamWaitEvent(hip_stream(stream), core_event(event), 0);
    return hip_end(code);
}

hipError_t hipEventQuery(hipEvent_t event)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuEventQuery(core_event(event));
    return hip_end(code);
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuEventSynchronize(core_event(event));
    return hip_end(code);
}

hipError_t hipEventElapsedTime(float *ms, hipEvent_t from, hipEvent_t to)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuEventElapsedTime(ms, core_event(from), core_event(to));
    return hip_end(code);
}
