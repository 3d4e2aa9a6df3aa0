/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream is doing, and captures. A graph that uses a communicator waits for and
 * records the communicator's order event. Only its last operation has to record it, but
 * which one is the last shows only at the end, which nobody tells us: so there is one
 * node that records, and each operation moves it behind itself. During a capture the
 * driver forbids to remove nodes; edges may come and go.
 */
#include "device/cuda.h"

#include "device/stream.h"

#include <stdint.h>
#include <stdlib.h>

/* Most edges of the recording node that are taken away when it moves; what is left over
 * only waits for what came earlier anyway. */
#define EDGES_MAX 64

bool motet_cuda_is_default(const void *stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY ||
            stream == CU_STREAM_PER_THREAD;
}

/* ---- whose stream it is ---- */

/* The sentence about @p stream, which belongs to @p context and not to @p gpu (NULL: to no
 * open device). */
static motet_result refuse(const motet_gpu *gpu, void *stream, CUcontext context)
{
    const motet_gpu *other = motet_cuda_gpu_of(context);
    CUgreenCtx green = NULL;

    if (gpu != NULL && other != NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p belongs to device %d, the communicator to device %d", stream,
                other->ordinal, gpu->ordinal);
    if (motet_cuda.cuStreamGetGreenCtx != NULL &&
            motet_cuda.cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS &&
            green != NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p belongs to a green context, need one of a device's primary "
                "context",
                stream);
    if (motet_cuda_is_primary(context))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p belongs to another device than the communicator's", stream);
    return motet_fail(MOTET_ERR_ARGUMENT,
            "stream %p belongs to a context that somebody created (cuCtxCreate), need "
            "one "
            "of a device's primary context, which cudaSetDevice() uses",
            stream);
}

/* The default streams are those of the current context. With the primary one of any device
 * current, those of @p gpu are meant, as NCCL takes it; they cannot be had from a context
 * that somebody created. */
static motet_result check_default(const motet_gpu *gpu, void *stream)
{
    CUcontext now = NULL;

    if (motet_cuda.cuCtxGetCurrent(&now) != CUDA_SUCCESS || now == NULL ||
            now == gpu->context || motet_cuda_is_primary(now))
        return MOTET_OK;
    return refuse(NULL, stream, now);
}

/* A capture is no reason to refuse the question; if the driver thinks so, the capture's own
 * rules will find the stream out. */
static bool is_capture_error(CUresult error)
{
    return error >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
            error <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static motet_result check_owner(const motet_gpu *gpu, void *stream)
{
    CUcontext context = NULL;
    const CUresult error = motet_cuda.cuStreamGetCtx(stream, &context);

    if (error == CUDA_SUCCESS && context == gpu->context)
        return MOTET_OK;
    if (error == CUDA_SUCCESS)
        return refuse(gpu, stream, context);
    if (is_capture_error(error))
        return MOTET_OK;
    if (error == CUDA_ERROR_INVALID_HANDLE || error == CUDA_ERROR_INVALID_VALUE)
        return motet_fail(MOTET_ERR_ARGUMENT, "stream %p is none, or was destroyed",
                stream);
    return motet_cuda_check(error, "cuStreamGetCtx", __FILE__, __LINE__);
}

motet_result motet_cuda_stream_check(const void *stream)
{
    CUcontext context = NULL;

    if (motet_cuda_is_default(stream))
        return MOTET_OK;
    if (motet_host_stream_valid(stream))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p is a host stream, which only CPU ranks use", stream);
    MOTET_TRY(motet_cuda_open(), "stream");
    if (motet_cuda.cuStreamGetCtx((CUstream)(uintptr_t)stream, &context) !=
            CUDA_SUCCESS)
        return MOTET_OK; /* stream_state() of the device says what is wrong */
    if (motet_cuda_is_primary(context))
        return MOTET_OK;
    return refuse(NULL, (void *)(uintptr_t)stream, context);
}

/* ---- what it is doing ---- */

typedef struct capture {
    CUstreamCaptureStatus status;
    uint64_t id;
    CUgraph graph;
    const CUgraphNode *after; /* what the stream's next operation waits for */
    size_t count;
} capture;

/* The newer question is the only one that is answered behind a programmatic launch. */
static motet_result ask(void *stream, capture *c)
{
    const CUgraphEdgeData *edges = NULL;

    *c = (capture){ .status = CU_STREAM_CAPTURE_STATUS_NONE };
    if (motet_cuda.cuStreamGetCaptureInfo_v3 != NULL)
        return CUDA(cuStreamGetCaptureInfo_v3, stream, &c->status, &c->id, &c->graph,
                &c->after, &edges, &c->count);
    if (motet_cuda.cuStreamGetCaptureInfo_v2 != NULL)
        return CUDA(cuStreamGetCaptureInfo_v2, stream, &c->status, &c->id, &c->graph,
                &c->after, &c->count);
    return CUDA(cuStreamIsCapturing, stream, &c->status);
}

motet_result motet_cuda_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out)
{
    motet_cuda_scope scope;
    motet_result result;
    capture c;

    result = motet_cuda_is_default(stream) ? check_default(gpu, stream)
                                           : check_owner(gpu, stream);
    if (result != MOTET_OK)
        return result;
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "stream %p", stream);
    result = ask(stream, &c);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream %p", stream);
    if (c.status == CU_STREAM_CAPTURE_STATUS_ACTIVE && gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "stream %p is captured: %s", stream,
                gpu->facts.no_capture);
    *out = (motet_stream_state){
        .capturing = c.status == CU_STREAM_CAPTURE_STATUS_ACTIVE,
        .invalidated = c.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        .capture = c.status != CU_STREAM_CAPTURE_STATUS_NONE ? c.id : 0,
        .graph = c.status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? c.graph : NULL,
    };
    return MOTET_OK;
}

/* ---- graphs ---- */

static bool holds(const CUgraphNode *nodes, size_t count, CUgraphNode node)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node)
            return true;
    return false;
}

static motet_result move_leaf(CUgraph graph, CUgraphNode leaf, const capture *c)
{
    CUgraphNode before[EDGES_MAX];
    size_t count = EDGES_MAX;

    MOTET_TRY(CUDA(cuGraphNodeGetDependencies, leaf, before, &count), "edges");
    for (size_t i = 0; i < c->count; i++)
        if (!holds(before, count, c->after[i]))
            MOTET_TRY(CUDA(cuGraphAddDependencies, graph, &c->after[i], &leaf, 1),
                    "edge");
    for (size_t i = 0; i < count; i++)
        if (!holds(c->after, c->count, before[i]))
            MOTET_TRY(CUDA(cuGraphRemoveDependencies, graph, &before[i], &leaf, 1),
                    "edge");
    return MOTET_OK;
}

static motet_result record_leaf(const motet_stream_state *state, void *event,
        void *stream, void **node_io)
{
    CUgraphNode leaf = *node_io;
    capture c;

    MOTET_TRY(ask(stream, &c), "capture");
    if (c.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || c.graph != state->graph)
        return motet_fail(MOTET_ERR_USAGE,
                "stream %p is not in the capture that the operation began in", stream);
    if (leaf != NULL)
        return move_leaf(c.graph, leaf, &c);
    MOTET_TRY(CUDA(cuGraphAddEventRecordNode, &leaf, c.graph, c.after, c.count, event),
            "node");
    *node_io = leaf;
    return MOTET_OK;
}

motet_result motet_cuda_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io)
{
    motet_cuda_scope scope;
    motet_result result;

    if (gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "record in a graph: %s",
                gpu->facts.no_capture);
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "record in a graph");
    result = record_leaf(state, event, stream, node_io);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "record in a graph");
    return MOTET_OK;
}

/* The object owns @p h as soon as it exists. */
static motet_result give_to_graph(void *graph, motet_gpu_held *h)
{
    CUuserObject object = NULL;
    motet_result result = CUDA(cuUserObjectCreate, &object, h, motet_gpu_held_end, 1,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = CUDA(cuGraphRetainUserObject, graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result == MOTET_OK)
        return MOTET_OK;
    motet_gpu_held_disarm(h);
    (void)motet_cuda.cuUserObjectRelease(object, 1); /* created above */
    return result;
}

motet_result motet_cuda_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg)
{
    motet_cuda_scope scope;
    motet_result result;
    motet_gpu_held *h;

    if (gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "hold memory by a graph: %s",
                gpu->facts.no_capture);
    h = motet_gpu_held_new(release, arg);
    if (h == NULL)
        return MOTET_ERR_SYSTEM;
    result = motet_cuda_enter(gpu, &scope);
    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = give_to_graph(graph, h);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "hold memory by a graph");
    return MOTET_OK;
}
