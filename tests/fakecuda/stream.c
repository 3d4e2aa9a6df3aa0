/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, and what is enqueued in them besides kernels and events. */
#include "fake.h"

#include <string.h>

static CUstream handle_of(fake_stream *stream)
{
    return (CUstream)(void *)stream;
}

static fake_stream *find(const void *handle)
{
    fake_context *c;
    fake_stream *s;

    for (c = fake_context_first(); c != NULL; c = LIST_NEXT(c, link))
        for (s = LIST_FIRST(&c->streams); s != NULL; s = LIST_NEXT(s, link))
            if (s == handle && !s->destroyed)
                return s;
    return NULL;
}

/* The calling thread's default stream in @p context; lives as long as that. */
static fake_stream *per_thread(fake_context *context)
{
    uint64_t thread = fake_thread_number();
    fake_stream *s;

    for (s = LIST_FIRST(&context->streams); s != NULL; s = LIST_NEXT(s, link))
        if (s->thread == thread)
            return s;
    s = fake_stream_new(context, 0, 0);
    s->thread = thread;
    return s;
}

CUresult fake_stream_of(CUstream handle, fake_stream **out)
{
    fake_context *context = fake_current();
    CUresult code = CUDA_SUCCESS;

    if (handle == NULL || handle == CU_STREAM_LEGACY ||
            handle == CU_STREAM_PER_THREAD) {
        code = fake_context_check(context);
        if (code == CUDA_SUCCESS)
            *out = handle == CU_STREAM_PER_THREAD ? per_thread(context)
                                                  : context->legacy;
    } else {
        fake_stream *found = find(handle);

        if (found == NULL || found->thread != 0 || found == found->context->legacy)
            return CUDA_ERROR_INVALID_HANDLE;
        *out = found;
    }
    return code == CUDA_SUCCESS ? (*out)->context->sticky : code;
}

static void add_tail(fake_stream *stream, fake_points *points)
{
    fake_points_add(points, stream->last);
    if (stream == stream->context->legacy) {
        fake_stream *s;

        for (s = LIST_FIRST(&stream->context->streams); s != NULL;
                s = LIST_NEXT(s, link))
            if (fake_stream_blocking(s))
                fake_points_add(points, s->last);
    }
}

/* Enter for a call about one stream; no context needs to be current for one's own. */
static CUresult enter_stream(unsigned needs, CUstream handle, fake_stream **out)
{
    CUresult code = fake_enter(needs);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    CUresult code = out != NULL && (flags & ~CU_STREAM_NON_BLOCKING) == 0
            ? fake_enter(FAKE_CONTEXT)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *out = handle_of(fake_stream_new(fake_current(), flags, priority));
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

/* Work that is enqueued still runs. */
CUresult cuStreamDestroy_v2(CUstream handle)
{
    fake_stream *stream;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    stream = find(handle);
    if (stream == NULL || stream->thread != 0 || stream == stream->context->legacy)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture != NULL) {
        stream->capture->invalid = true;
        return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    fake_stream_drop(stream);
    return fake_leave(CUDA_SUCCESS);
}

/* Asking or waiting for a stream: not while it is captured. */
static CUresult enter_finished(CUstream handle, fake_stream **out)
{
    CUresult code = enter_stream(FAKE_UNSAFE, handle, out);

    if (code != CUDA_SUCCESS)
        return code;
    if ((*out)->capture != NULL) {
        (*out)->capture->invalid = true;
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (*out == (*out)->context->legacy) {
        code = fake_capture_implicit((*out)->context, true);
    }
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    fake_stream *stream;
    fake_context *context;
    fake_points points = { 0 };
    CUresult code = enter_finished(handle, &stream);

    if (code != CUDA_SUCCESS)
        return code;
    context = stream->context;
    add_tail(stream, &points);
    for (size_t i = 0; i < points.count; i++)
        fake_point_wait(points.at[i]);
    fake_points_clear(&points);
    return fake_leave(context->sticky);
}

CUresult cuStreamQuery(CUstream handle)
{
    fake_stream *stream;
    fake_points points = { 0 };
    CUresult code = enter_finished(handle, &stream);

    if (code != CUDA_SUCCESS)
        return code;
    add_tail(stream, &points);
    code = points.count > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    fake_points_clear(&points);
    return fake_leave(code);
}

/* Pageable memory of the host is read before the call returns, and written before it
 * returns, unless a capture only notes the copy. */
FAKE_BY_DEVICE static CUresult submit_copy(fake_stream *stream, fake_work *work)
{
    bool wait = fake_range_at(work->copy.to) == NULL;
    fake_point *point = NULL;
    CUresult code;

    if (stream->capture == NULL && fake_range_at(work->copy.from) == NULL) {
        work->copy.staged = fake_grow(NULL, work->copy.bytes);
        memcpy(work->copy.staged, (void *)(uintptr_t)work->copy.from, work->copy.bytes);
        work->copy.from = (uintptr_t)work->copy.staged;
    }
    code = fake_submit(stream, *work, (fake_points){ 0 }, &point);
    if (wait)
        fake_point_wait(point);
    fake_point_unref(point);
    return code;
}

static CUresult copy(uint64_t to, uint64_t from, size_t bytes, CUstream handle)
{
    fake_work work = { .kind = FAKE_COPY, .copy = { to, from, bytes, NULL } };
    fake_stream *stream;
    CUresult code = enter_stream(FAKE_CONTEXT, handle, &stream);

    if (code != CUDA_SUCCESS)
        return code;
    work.context = stream->context;
    code = fake_range_check(stream->context, to, bytes);
    if (code == CUDA_SUCCESS)
        code = fake_range_check(stream->context, from, bytes);
    if (code == CUDA_SUCCESS && bytes > 0)
        code = submit_copy(stream, &work);
    return fake_leave(code);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy((uintptr_t)to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
        CUstream stream)
{
    return copy(to, (uintptr_t)from, bytes, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, CUstream handle)
{
    fake_work work = { .kind = FAKE_FILL, .fill = { to, value, words } };
    fake_stream *stream;
    CUresult code = to % 4 == 0 ? enter_stream(FAKE_CONTEXT, handle, &stream)
                                : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    work.context = stream->context;
    code = fake_range_check(stream->context, to, words * 4);
    if (code == CUDA_SUCCESS && words > 0)
        code = fake_submit(stream, work, (fake_points){ 0 }, NULL);
    return fake_leave(code);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *arg)
{
    fake_work work = { .kind = FAKE_HOST, .host = { function, arg } };
    fake_stream *stream;
    CUresult code = function != NULL ? enter_stream(0, handle, &stream)
                                     : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    work.context = stream->context;
    return fake_leave(fake_submit(stream, work, (fake_points){ 0 }, NULL));
}
