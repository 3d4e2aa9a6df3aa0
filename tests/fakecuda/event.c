/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. Recorded in a stream, an event is the record's point; recorded in a capture,
 * it is the nodes that a waiting stream's next node must come after.
 */
#include "fake.h"

#include <stdlib.h>

static LIST_HEAD(, fake_event) events;

CUresult fake_event_of(CUevent handle, fake_event **out)
{
    const void *wanted = handle;
    fake_event *e;

    for (e = LIST_FIRST(&events); e != NULL; e = LIST_NEXT(e, link))
        if (e == wanted) {
            CUresult code = fake_context_check(e->context);

            *out = e;
            return code == CUDA_SUCCESS ? e->context->sticky : code;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}

static void forget(fake_event *event)
{
    fake_point_unref(event->point);
    event->point = NULL;
    fake_capture_unref(event->capture);
    event->capture = NULL;
    fake_nodes_clear(&event->front);
}

void fake_event_unref(fake_event *event)
{
    if (--event->refs > 0)
        return;
    forget(event);
    free(event);
}

void fake_event_reset(fake_event *event, fake_point *point)
{
    forget(event);
    event->point = point;
}

static CUresult enter_event(unsigned needs, CUevent handle, fake_event **out)
{
    CUresult code = fake_enter(needs);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_event_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    fake_event *event;
    CUresult code = out != NULL ? fake_enter(FAKE_CONTEXT) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    event = fake_need(sizeof(*event));
    event->refs = 1;
    event->flags = flags;
    event->context = fake_current();
    LIST_INSERT_HEAD(&events, event, link);
    *out = (CUevent)(void *)event;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    fake_event *event;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_event_of(handle, &event);
    if (code == CUDA_ERROR_INVALID_HANDLE)
        return fake_leave(code);
    LIST_REMOVE(event, link);
    event->destroyed = true;
    fake_event_unref(event);
    return fake_leave(CUDA_SUCCESS);
}

static CUresult record(fake_stream *stream, fake_event *event, bool external)
{
    fake_work work = { .kind = FAKE_EMPTY, .context = stream->context };
    fake_point *point = NULL;
    CUresult code;

    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != NULL && external) {
        work.kind = FAKE_RECORD;
        work.event = event;
        event->refs++;
        return fake_submit(stream, work, (fake_points){ 0 }, NULL);
    }
    if (external)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL)
        return fake_capture_record(stream, event);
    code = fake_submit(stream, work, (fake_points){ 0 }, &point);
    if (code == CUDA_SUCCESS)
        fake_event_reset(event, point);
    return code;
}

/* Record the event in the stream, or let the stream wait for it. */
static CUresult in_stream(CUevent handle, CUstream stream_handle, unsigned flags,
        unsigned external, CUresult (*act)(fake_stream *, fake_event *, bool))
{
    fake_event *event;
    fake_stream *stream;
    CUresult code = (flags & ~external) == 0 ? enter_event(0, handle, &event)
                                             : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(stream_handle, &stream);
    if (code == CUDA_SUCCESS)
        code = act(stream, event, (flags & external) != 0);
    return fake_leave(code);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags)
{
    return in_stream(handle, stream_handle, flags, CU_EVENT_RECORD_EXTERNAL, record);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

static CUresult wait(fake_stream *stream, fake_event *event, bool external)
{
    fake_work work = { .kind = FAKE_EMPTY, .context = stream->context };
    fake_points after = { 0 };

    if (stream->capture != NULL && external) {
        work.kind = FAKE_WAIT;
        work.event = event;
        event->refs++;
        return fake_submit(stream, work, after, NULL);
    }
    if (external)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL || event->capture != NULL)
        return fake_capture_wait(stream, event);
    if (event->point == NULL || event->point->done)
        return CUDA_SUCCESS;
    fake_points_add(&after, event->point);
    return fake_submit(stream, work, after, NULL);
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags)
{
    return in_stream(handle, stream_handle, flags, CU_EVENT_WAIT_EXTERNAL, wait);
}

/* Asking or waiting for an event: not if it belongs to a capture. */
static CUresult enter_recorded(CUevent handle, fake_event **out)
{
    CUresult code = enter_event(FAKE_UNSAFE, handle, out);

    if (code != CUDA_SUCCESS || (*out)->capture == NULL)
        return code;
    (*out)->capture->invalid = true;
    return fake_leave(CUDA_ERROR_CAPTURED_EVENT);
}

CUresult cuEventQuery(CUevent handle)
{
    fake_event *event;
    CUresult code = enter_recorded(handle, &event);

    if (code != CUDA_SUCCESS)
        return code;
    return fake_leave(event->point == NULL || event->point->done
                    ? CUDA_SUCCESS
                    : CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent handle)
{
    fake_context *context;
    fake_event *event;
    CUresult code = enter_recorded(handle, &event);

    if (code != CUDA_SUCCESS)
        return code;
    context = event->context;
    fake_point_wait(event->point);
    return fake_leave(context->sticky);
}

/* Between two events that were reached, both with timing. */
CUresult cuEventElapsedTime(float *out, CUevent start_handle, CUevent end_handle)
{
    fake_event *start, *end;
    CUresult code = out != NULL ? enter_event(0, start_handle, &start)
                                : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_event_of(end_handle, &end);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
            start->point == NULL || end->point == NULL)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!start->point->done || !end->point->done)
        return fake_leave(CUDA_ERROR_NOT_READY);
    *out = (float)((double)(int64_t)(end->point->done_ns - start->point->done_ns) /
            1e6);
    return fake_leave(CUDA_SUCCESS);
}
