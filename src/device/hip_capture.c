/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream is doing, and captures. A graph that uses a communicator waits for and
 * records the communicator's order event by nodes of its own. They are put into the graph
 * by hand and the stream is told to go on behind them: hipStreamWaitEvent() takes no flag
 * for that before ROCm 6.4, the calls used here are as old as ROCm 4.5. The node that
 * records is a leaf, which each operation moves behind itself (gpu_capture.c says why).
 */
#include "device/hip.h"

#include "device/stream.h"

#include <stdint.h>
#include <stdlib.h>

bool motet_hip_is_default(const void *stream)
{
    return stream == NULL || stream == hipStreamLegacy || stream == hipStreamPerThread;
}

/* ---- whose stream it is ---- */

/* Of @p stream, which is no default one; −1 where the runtime does not tell. */
static motet_result owner_of(void *stream, int *ordinal_out)
{
    hipError_t error = hipSuccess;
    hipDevice_t device = -1;
    unsigned flags;

    if (motet_hip.hipStreamGetDevice != NULL) {
        error = motet_hip.hipStreamGetDevice(stream, &device);
    } else {
        error = motet_hip.hipStreamGetFlags(stream, &flags);
        if (error == hipSuccess && motet_hip.hipGetStreamDeviceId != NULL)
            device = motet_hip.hipGetStreamDeviceId(stream);
    }
    if (error == hipErrorContextIsDestroyed || error == hipErrorInvalidHandle ||
            error == hipErrorInvalidValue)
        return motet_fail(MOTET_ERR_ARGUMENT, "stream %p is none, or was destroyed",
                stream);
    MOTET_TRY(motet_hip_check(error, "hipStreamGetDevice", __FILE__, __LINE__),
            "stream %p", stream);
    *ordinal_out = device;
    return MOTET_OK;
}

/* A default stream is the current device's, so the communicator's once that is entered. */
static motet_result check_owner(const motet_gpu *gpu, void *stream)
{
    int owner = -1;

    if (motet_hip_is_default(stream))
        return MOTET_OK;
    MOTET_TRY(owner_of(stream, &owner), "owner");
    if (owner >= 0 && owner != gpu->ordinal)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p belongs to device %d, the communicator to device %d", stream,
                owner, gpu->ordinal);
    return MOTET_OK;
}

motet_result motet_hip_stream_check(const void *stream)
{
    if (!motet_hip_is_default(stream) && motet_host_stream_valid(stream))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "stream %p is a host stream, which only CPU ranks use", stream);
    return MOTET_OK; /* stream_state() of the device says what else is wrong */
}

/* ---- what it is doing ---- */

static motet_result ask(void *stream, motet_gpu_capture *c)
{
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    hipStream_t handle = motet_hip_stream(stream);
    const hipGraphNode_t *after = NULL;
    unsigned long long id = 0;
    hipGraph_t graph = NULL;
    motet_result result;

    *c = (motet_gpu_capture){ .id = 0 };
    if (motet_hip.hipStreamGetCaptureInfo_v2 != NULL)
        result = HIP(hipStreamGetCaptureInfo_v2, handle, &status, &id, &graph, &after,
                &c->count);
    else
        result = HIP(hipStreamIsCapturing, handle, &status);
    c->active = status == hipStreamCaptureStatusActive;
    c->invalidated = status == hipStreamCaptureStatusInvalidated;
    c->id = id;
    c->graph = graph;
    c->after = after;
    return result;
}

motet_result motet_hip_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out)
{
    motet_gpu_capture c;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "stream %p", stream);
    result = check_owner(gpu, stream);
    if (result == MOTET_OK)
        result = ask(stream, &c);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream %p", stream);
    return motet_gpu_capture_state(&gpu->facts, stream, &c, out);
}

/* ---- graphs ---- */

/* The capture that @p stream is in, which must be that of @p graph unless it is NULL. */
static motet_result ask_active(const motet_gpu *gpu, void *stream, const void *graph,
        motet_gpu_capture *c)
{
    motet_result result = motet_gpu_graphs_check(&gpu->facts, "a node of a graph");

    if (result != MOTET_OK)
        return result;
    MOTET_TRY(ask(stream, c), "capture");
    return motet_gpu_capture_check(c, stream, graph);
}

motet_result motet_hip_event_node(const motet_gpu *gpu, hipEvent_t event, void *stream,
        bool wait)
{
    hipGraphNode_t node = NULL;
    motet_gpu_capture c;

    MOTET_TRY(ask_active(gpu, stream, NULL, &c), "event");
    if (wait)
        MOTET_TRY(HIP(hipGraphAddEventWaitNode, &node, c.graph, c.after, c.count,
                          event),
                "node");
    else
        MOTET_TRY(HIP(hipGraphAddEventRecordNode, &node, c.graph, c.after, c.count,
                          event),
                "node");
    return HIP(hipStreamUpdateCaptureDependencies, motet_hip_stream(stream), &node, 1,
            hipStreamSetCaptureDependencies);
}

static motet_result edges_before(void *node, void *nodes, size_t *count_io)
{
    return HIP(hipGraphNodeGetDependencies, node, nodes, count_io);
}

static motet_result add_edge(void *graph, void *from, void *to)
{
    const hipGraphNode_t ends[] = { from, to };

    return HIP(hipGraphAddDependencies, graph, &ends[0], &ends[1], 1);
}

static motet_result remove_edge(void *graph, void *from, void *to)
{
    const hipGraphNode_t ends[] = { from, to };

    return HIP(hipGraphRemoveDependencies, graph, &ends[0], &ends[1], 1);
}

static const motet_gpu_edges edges = { edges_before, add_edge, remove_edge };

motet_result motet_hip_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io)
{
    const motet_hip_event *e = event;
    hipGraphNode_t leaf = *node_io;
    motet_gpu_capture c;
    motet_hip_scope scope;
    motet_result result;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "record in a graph");
    result = ask_active(gpu, stream, state->graph, &c);
    if (result == MOTET_OK && leaf != NULL)
        result = motet_gpu_move_leaf(&edges, &c, leaf);
    else if (result == MOTET_OK)
        result = HIP(hipGraphAddEventRecordNode, &leaf, c.graph, c.after, c.count,
                e->event);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "record in a graph");
    *node_io = leaf;
    return MOTET_OK;
}

/* The object owns @p h as soon as it exists. */
static motet_result give_inside(void *graph, motet_gpu_held *h)
{
    hipUserObject_t object = NULL;
    motet_result result = HIP(hipUserObjectCreate, &object, h, motet_gpu_held_end, 1,
            hipUserObjectNoDestructorSync);

    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = HIP(hipGraphRetainUserObject, graph, object, 1, hipGraphUserObjectMove);
    if (result == MOTET_OK)
        return MOTET_OK;
    motet_gpu_held_disarm(h);
    (void)motet_hip.hipUserObjectRelease(object, 1); /* created above */
    return result;
}

static motet_result give_to_graph(motet_gpu *gpu, void *graph, motet_gpu_held *h)
{
    motet_hip_scope scope;
    motet_result result = motet_hip_enter(gpu, &scope);

    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = give_inside(graph, h);
    motet_hip_leave(&scope);
    return result;
}

motet_result motet_hip_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg)
{
    return motet_gpu_hold_by_graph(gpu, &gpu->facts, graph, release, arg,
            give_to_graph);
}
