/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture of streams. A captured stream has a front: the nodes that its next node comes
 * after. Events carry fronts from stream to stream.
 */
#include "fake.h"

#include <stdlib.h>

struct fake_captures fake_captures = LIST_HEAD_INITIALIZER(fake_captures);

fake_capture *fake_capture_ref(fake_capture *capture)
{
    capture->refs++;
    return capture;
}

void fake_capture_unref(fake_capture *capture)
{
    if (capture != NULL && --capture->refs == 0)
        free(capture);
}

/* Does an unsafe call of this thread break @p capture? */
static bool forbids(const fake_capture *capture)
{
    bool mine = capture->thread == fake_thread_number();

    if (fake_self.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (mine && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return true;
    return fake_self.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult fake_capture_unsafe(void)
{
    CUresult code = CUDA_SUCCESS;
    fake_capture *c;

    for (c = LIST_FIRST(&fake_captures); c != NULL; c = LIST_NEXT(c, link))
        if (forbids(c)) {
            c->invalid = true;
            code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return code;
}

CUresult fake_capture_implicit(const fake_context *context, bool invalidate)
{
    CUresult code = CUDA_SUCCESS;
    fake_stream *s;

    for (s = LIST_FIRST(&context->streams); s != NULL; s = LIST_NEXT(s, link))
        if (s->capture != NULL && fake_stream_blocking(s)) {
            s->capture->invalid |= invalidate;
            code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return code;
}

CUresult fake_capture_in(const fake_context *context)
{
    CUresult code = CUDA_SUCCESS;
    fake_stream *s;

    for (s = LIST_FIRST(&context->streams); s != NULL; s = LIST_NEXT(s, link))
        if (s->capture != NULL) {
            s->capture->invalid = true;
            code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return code;
}

CUresult fake_capture_add(fake_stream *stream, fake_work work)
{
    fake_node *node;

    if (stream->capture->invalid) {
        fake_work_release(&work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (work.kind == FAKE_GRAPH) {
        stream->capture->invalid = true;
        fake_work_release(&work);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    node = fake_graph_add(stream->capture->graph, work, &stream->front);
    fake_nodes_clear(&stream->front);
    fake_nodes_add(&stream->front, node);
    return CUDA_SUCCESS;
}

CUresult fake_capture_record(fake_stream *stream, fake_event *event)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    fake_event_reset(event, NULL);
    event->capture = fake_capture_ref(stream->capture);
    fake_nodes_union(&event->front, &stream->front);
    return CUDA_SUCCESS;
}

CUresult fake_capture_wait(fake_stream *stream, fake_event *event)
{
    fake_capture *mine = stream->capture, *theirs = event->capture;

    if (mine != NULL && mine->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (theirs == NULL) {
        mine->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!theirs->live)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (theirs->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (mine != NULL && mine != theirs) {
        mine->invalid = theirs->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (mine == NULL && stream == stream->context->legacy) {
        theirs->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (mine == NULL)
        stream->capture = fake_capture_ref(theirs);
    fake_nodes_union(&stream->front, &event->front);
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode mine = (CUstreamCaptureMode)fake_self.capture_mode;

    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    fake_self.capture_mode = (int)*mode;
    *mode = mine;
    return CUDA_SUCCESS;
}

static CUresult enter_stream(CUstream handle, fake_stream **out)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    fake_capture *capture;
    fake_stream *stream;
    CUresult code = (unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED
            ? enter_stream(handle, &stream)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    if (stream == stream->context->legacy)
        return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->capture != NULL) {
        stream->capture->invalid = true;
        return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    capture = fake_need(sizeof(*capture));
    capture->refs = 1;
    capture->live = true;
    capture->number = fake_serial();
    capture->thread = fake_thread_number();
    capture->mode = (int)mode;
    capture->origin = stream;
    capture->graph = fake_graph_new();
    LIST_INSERT_HEAD(&fake_captures, capture, link);
    stream->capture = capture;
    return fake_leave(CUDA_SUCCESS);
}

/* Marks (index 1) every node that the front of @p stream comes after, itself included. */
static void mark_ancestors(fake_graph *graph, const fake_nodes *front)
{
    fake_nodes order = fake_graph_order(graph);

    for (size_t i = 0; i < order.count; i++)
        order.at[i]->index = 0;
    for (size_t i = 0; i < front->count; i++)
        front->at[i]->index = 1;
    for (size_t i = order.count; i-- > 0;)
        for (size_t a = 0; order.at[i]->index == 1 && a < order.at[i]->after.count; a++)
            order.at[i]->after.at[a]->index = 1;
    fake_nodes_clear(&order);
}

/* Streams that joined the capture have nothing that its origin does not come after. */
static bool joined(const fake_capture *capture)
{
    fake_context *c;
    fake_stream *s;

    mark_ancestors(capture->graph, &capture->origin->front);
    for (c = fake_context_first(); c != NULL; c = LIST_NEXT(c, link))
        for (s = LIST_FIRST(&c->streams); s != NULL; s = LIST_NEXT(s, link))
            for (size_t i = 0; s->capture == capture && i < s->front.count; i++)
                if (s->front.at[i]->index == 0)
                    return false;
    return true;
}

static void release_streams(const fake_capture *capture)
{
    fake_context *c;
    fake_stream *s;

    for (c = fake_context_first(); c != NULL; c = LIST_NEXT(c, link))
        for (s = LIST_FIRST(&c->streams); s != NULL; s = LIST_NEXT(s, link))
            if (s->capture == capture) {
                fake_nodes_clear(&s->front);
                fake_capture_unref(s->capture);
                s->capture = NULL;
            }
}

static CUresult check_end(const fake_stream *stream)
{
    const fake_capture *capture = stream->capture;

    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            capture->thread != fake_thread_number())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    fake_capture *capture;
    fake_stream *stream;
    CUresult code =
            out != NULL ? enter_stream(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *out = NULL;
    code = check_end(stream);
    if (code != CUDA_SUCCESS) {
        if (stream->capture != NULL)
            stream->capture->invalid = true;
        return fake_leave(code);
    }
    capture = fake_capture_ref(stream->capture);
    if (capture->invalid)
        code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    capture->live = false;
    LIST_REMOVE(capture, link);
    release_streams(capture);
    if (code == CUDA_SUCCESS)
        *out = fake_graph_publish(capture->graph);
    else
        fake_graph_free(capture->graph);
    capture->graph = NULL;
    fake_capture_unref(capture);
    return fake_leave(code);
}

/* The state of a stream; a question never spoils a capture. */
static CUresult enter_status(CUstream handle, fake_stream **out,
        CUstreamCaptureStatus *status)
{
    CUresult code =
            status != NULL ? enter_stream(handle, out) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    if (*out == (*out)->context->legacy)
        code = fake_capture_implicit((*out)->context, false);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    *status = (*out)->capture == NULL  ? CU_STREAM_CAPTURE_STATUS_NONE
            : (*out)->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    fake_stream *stream;
    CUresult code = enter_status(handle, &stream, status);

    return code == CUDA_SUCCESS ? fake_leave(code) : code;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
        uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    fake_stream *stream;
    CUresult code = enter_status(handle, &stream, status);

    if (code != CUDA_SUCCESS)
        return code;
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id != NULL)
            *id = stream->capture->number;
        if (graph != NULL)
            *graph = (CUgraph)(void *)stream->capture->graph;
        /* the driver's array, good until the stream's next call */
        if (dependencies != NULL)
            *dependencies = (const CUgraphNode *)(const void *)stream->front.at;
        if (count != NULL)
            *count = stream->front.count;
    }
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
        uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
        const CUgraphEdgeData **edges, size_t *count)
{
    if (edges != NULL)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *dependencies,
        size_t count, unsigned flags)
{
    fake_nodes nodes = { (fake_node **)(void *)dependencies, count };
    fake_stream *stream;
    CUresult code = flags <= 1 && (dependencies != NULL || count == 0)
            ? enter_stream(handle, &stream)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    if (stream->capture == NULL)
        return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
    if (stream->capture->invalid)
        return fake_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (size_t i = 0; code == CUDA_SUCCESS && i < count; i++)
        code = fake_graph_holds(stream->capture->graph, nodes.at[i])
                ? CUDA_SUCCESS
                : CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS && flags == 1)
        fake_nodes_clear(&stream->front);
    if (code == CUDA_SUCCESS)
        fake_nodes_union(&stream->front, &nodes);
    return fake_leave(code);
}
