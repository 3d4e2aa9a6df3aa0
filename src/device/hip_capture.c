/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream is doing, and captures. A graph that uses a communicator waits for and
 * records the communicator's order event by nodes of its own. They are put into the graph
 * by hand and the stream is told to go on behind them: hipStreamWaitEvent() takes no flag
 * for that before ROCm 6.4, the calls used here are as old as ROCm 4.5. The node that
 * records is a leaf, which each operation moves behind itself, as with CUDA
 * (cuda_capture.c says why).
 */
#include "device/hip.h"

#include "device/stream.h"

#include <stdint.h>
#include <stdlib.h>

/* Most edges of the recording node that are taken away when it moves; what is left over
 * only waits for what came earlier anyway. */
#define EDGES_MAX 64

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

typedef struct capture {
    hipStreamCaptureStatus status;
    unsigned long long id;
    hipGraph_t graph;
    const hipGraphNode_t *after; /* what the stream's next operation waits for */
    size_t count;
} capture;

static motet_result ask(void *stream, capture *c)
{
    hipStream_t handle = motet_hip_stream(stream);

    *c = (capture){ .status = hipStreamCaptureStatusNone };
    if (motet_hip.hipStreamGetCaptureInfo_v2 != NULL)
        return HIP(hipStreamGetCaptureInfo_v2, handle, &c->status, &c->id, &c->graph,
                &c->after, &c->count);
    return HIP(hipStreamIsCapturing, handle, &c->status);
}

motet_result motet_hip_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out)
{
    motet_hip_scope scope;
    motet_result result;
    capture c;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "stream %p", stream);
    result = check_owner(gpu, stream);
    if (result == MOTET_OK)
        result = ask(stream, &c);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "stream %p", stream);
    if (c.status == hipStreamCaptureStatusActive && gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "stream %p is captured: %s", stream,
                gpu->facts.no_capture);
    *out = (motet_stream_state){
        .capturing = c.status == hipStreamCaptureStatusActive,
        .invalidated = c.status == hipStreamCaptureStatusInvalidated,
        .capture = c.status != hipStreamCaptureStatusNone ? c.id : 0,
        .graph = c.status == hipStreamCaptureStatusActive ? c.graph : NULL,
    };
    return MOTET_OK;
}

/* ---- graphs ---- */

/* The capture that @p stream is in, which must be that of @p graph unless it is NULL. */
static motet_result ask_active(const motet_gpu *gpu, void *stream, const void *graph,
        capture *c)
{
    if (gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "a node of a graph: %s",
                gpu->facts.no_capture);
    MOTET_TRY(ask(stream, c), "capture");
    if (c->status != hipStreamCaptureStatusActive ||
            (graph != NULL && c->graph != graph))
        return motet_fail(MOTET_ERR_USAGE,
                "stream %p is not in the capture that the operation began in", stream);
    return MOTET_OK;
}

motet_result motet_hip_event_node(const motet_gpu *gpu, hipEvent_t event, void *stream,
        bool wait)
{
    hipGraphNode_t node = NULL;
    capture c;

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

static bool holds(const hipGraphNode_t *nodes, size_t count, hipGraphNode_t node)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node)
            return true;
    return false;
}

static motet_result move_leaf(hipGraph_t graph, hipGraphNode_t leaf, const capture *c)
{
    hipGraphNode_t before[EDGES_MAX];
    size_t count = EDGES_MAX;

    MOTET_TRY(HIP(hipGraphNodeGetDependencies, leaf, before, &count), "edges");
    count = count < EDGES_MAX ? count : EDGES_MAX;
    for (size_t i = 0; i < c->count; i++)
        if (!holds(before, count, c->after[i]))
            MOTET_TRY(HIP(hipGraphAddDependencies, graph, &c->after[i], &leaf, 1),
                    "edge");
    for (size_t i = 0; i < count; i++)
        if (!holds(c->after, c->count, before[i]))
            MOTET_TRY(HIP(hipGraphRemoveDependencies, graph, &before[i], &leaf, 1),
                    "edge");
    return MOTET_OK;
}

motet_result motet_hip_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io)
{
    const motet_hip_event *e = event;
    hipGraphNode_t leaf = *node_io;
    motet_hip_scope scope;
    motet_result result;
    capture c;

    MOTET_TRY(motet_hip_enter(gpu, &scope), "record in a graph");
    result = ask_active(gpu, stream, state->graph, &c);
    if (result == MOTET_OK && leaf != NULL)
        result = move_leaf(c.graph, leaf, &c);
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
static motet_result give_to_graph(void *graph, motet_gpu_held *h)
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

motet_result motet_hip_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg)
{
    motet_hip_scope scope;
    motet_result result;
    motet_gpu_held *h;

    if (gpu->facts.no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "hold memory by a graph: %s",
                gpu->facts.no_capture);
    h = motet_gpu_held_new(release, arg);
    if (h == NULL)
        return MOTET_ERR_SYSTEM;
    result = motet_hip_enter(gpu, &scope);
    if (result != MOTET_OK) {
        free(h);
        return result;
    }
    result = give_to_graph(graph, h);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "hold memory by a graph");
    return MOTET_OK;
}
