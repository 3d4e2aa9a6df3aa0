/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream is doing, and captures; gpu_capture.c says how a graph keeps order. */
#include "device/cuda.h"

#include "device/stream.h"

#include <stdint.h>
#include <stdlib.h>

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

/* The newer question is the only one that is answered behind a programmatic launch. */
static motet_result ask(void *stream, motet_gpu_capture *c)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphEdgeData *edges = NULL;
    const CUgraphNode *after = NULL;
    CUgraph graph = NULL;
    motet_result result;

    *c = (motet_gpu_capture){ .id = 0 };
    if (motet_cuda.cuStreamGetCaptureInfo_v3 != NULL)
        result = CUDA(cuStreamGetCaptureInfo_v3, stream, &status, &c->id, &graph,
                &after, &edges, &c->count);
    else if (motet_cuda.cuStreamGetCaptureInfo_v2 != NULL)
        result = CUDA(cuStreamGetCaptureInfo_v2, stream, &status, &c->id, &graph,
                &after, &c->count);
    else
        result = CUDA(cuStreamIsCapturing, stream, &status);
    c->active = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    c->invalidated = status == CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    c->graph = graph;
    c->after = after;
    return result;
}

motet_result motet_cuda_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out)
{
    motet_gpu_capture c;
    motet_cuda_scope scope;
    motet_result result;

    result = motet_cuda_is_default(stream) ? check_default(gpu, stream)
                                           : check_owner(gpu, stream);
    if (result != MOTET_OK)
        return result;
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "stream %p", stream);
    result = ask(stream, &c);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream %p", stream);
    return motet_gpu_capture_state(&gpu->facts, stream, &c, out);
}

/* ---- graphs ---- */

static motet_result edges_before(void *node, void *nodes, size_t *count_io)
{
    return CUDA(cuGraphNodeGetDependencies, node, nodes, count_io);
}

static motet_result add_edge(void *graph, void *from, void *to)
{
    const CUgraphNode ends[] = { from, to };

    return CUDA(cuGraphAddDependencies, graph, &ends[0], &ends[1], 1);
}

static motet_result remove_edge(void *graph, void *from, void *to)
{
    const CUgraphNode ends[] = { from, to };

    return CUDA(cuGraphRemoveDependencies, graph, &ends[0], &ends[1], 1);
}

static const motet_gpu_edges edges = { edges_before, add_edge, remove_edge };

static motet_result record_leaf(const motet_stream_state *state, void *event,
        void *stream, void **node_io)
{
    CUgraphNode leaf = NULL;
    motet_gpu_capture c;
    motet_result result;

    MOTET_TRY(ask(stream, &c), "capture");
    result = motet_gpu_capture_check(&c, stream, state->graph);
    if (result != MOTET_OK)
        return result;
    if (*node_io != NULL)
        return motet_gpu_move_leaf(&edges, &c, *node_io);
    MOTET_TRY(CUDA(cuGraphAddEventRecordNode, &leaf, c.graph, c.after, c.count, event),
            "node");
    *node_io = leaf;
    return MOTET_OK;
}

motet_result motet_cuda_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io)
{
    motet_cuda_scope scope;
    motet_result result = motet_gpu_graphs_check(&gpu->facts, "record in a graph");

    if (result != MOTET_OK)
        return result;
    MOTET_TRY(motet_cuda_enter(gpu, &scope), "record in a graph");
    result = record_leaf(state, event, stream, node_io);
    motet_cuda_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "record in a graph");
    return MOTET_OK;
}

/* The object owns @p h as soon as it exists. */
static motet_result give_inside(void *graph, motet_gpu_held *h)
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

static motet_result give_to_graph(motet_gpu *gpu, void *graph, motet_gpu_held *h)
{
    motet_cuda_scope scope;
    motet_result result = motet_cuda_enter(gpu, &scope);

    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = give_inside(graph, h);
    motet_cuda_leave(&scope);
    return result;
}

motet_result motet_cuda_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg)
{
    return motet_gpu_hold_by_graph(gpu, &gpu->facts, graph, release, arg,
            give_to_graph);
}
