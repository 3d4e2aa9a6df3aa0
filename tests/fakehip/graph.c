/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs: the core's, whose rules are HIP's. */
#include "hip.h"

static CUgraph core_graph(hipGraph_t graph)
{
    return (CUgraph)(void *)graph;
}

static CUgraphNode core_node(hipGraphNode_t node)
{
    return (CUgraphNode)(void *)node;
}

/* An array of nodes is one of pointers on either side. */
static const CUgraphNode *core_nodes(const hipGraphNode_t *nodes)
{
    return (const CUgraphNode *)(const void *)nodes;
}

/* ---- captures ---- */

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuStreamBeginCapture_v2(hip_stream(stream), (CUstreamCaptureMode)mode);
    return hip_end(code);
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *out)
{
    CUgraph graph = NULL;
    CUresult code = out != NULL ? hip_begin_stream(stream) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuStreamEndCapture(hip_stream(stream), &graph);
    if (out != NULL)
        *out = (hipGraph_t)(void *)graph;
    return hip_end(code);
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *out)
{
    CUstreamCaptureStatus status;
    CUresult code = out != NULL ? hip_begin_stream(stream) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuStreamIsCapturing(hip_stream(stream), &status);
    if (code == CUDA_SUCCESS)
        *out = (hipStreamCaptureStatus)status;
    return hip_end(code);
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *out,
        unsigned long long *id, hipGraph_t *graph, const hipGraphNode_t **dependencies,
        size_t *count)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes = NULL;
    CUgraph captured = NULL;
    uint64_t number = 0;
    CUresult code = out != NULL ? hip_begin_stream(stream) : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuStreamGetCaptureInfo_v2(hip_stream(stream), &status, &number,
                &captured, &nodes, count);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    *out = (hipStreamCaptureStatus)status;
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id != NULL)
            *id = number;
        if (graph != NULL)
            *graph = (hipGraph_t)(void *)captured;
        if (dependencies != NULL)
            *dependencies = (const hipGraphNode_t *)(const void *)nodes;
    }
    return hip_end(CUDA_SUCCESS);
}

hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream,
        hipGraphNode_t *dependencies, size_t count, unsigned flags)
{
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = cuStreamUpdateCaptureDependencies(hip_stream(stream),
                (CUgraphNode *)(void *)dependencies, count, flags);
    return hip_end(code);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
    CUstreamCaptureMode core;
    CUresult code = mode != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return hip_end(code);
    core = (CUstreamCaptureMode)*mode;
    code = cuThreadExchangeStreamCaptureMode(&core);
    if (code == CUDA_SUCCESS)
        *mode = (hipStreamCaptureMode)core;
    return hip_end(code);
}

/* ---- nodes and edges ---- */

static hipError_t add_event(hipGraphNode_t *out, hipGraph_t graph,
        const hipGraphNode_t *dependencies, size_t count, hipEvent_t event,
        enum fake_kind kind)
{
    CUgraphNode node;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = fake_graph_add_event(&node, core_graph(graph), core_nodes(dependencies),
                count, (CUevent)(void *)event, kind);
    if (code == CUDA_SUCCESS)
        *out = (hipGraphNode_t)(void *)node;
    return hip_end(code);
}

hipError_t hipGraphAddEventRecordNode(hipGraphNode_t *out, hipGraph_t graph,
        const hipGraphNode_t *dependencies, size_t count, hipEvent_t event)
{
    return add_event(out, graph, dependencies, count, event, FAKE_RECORD);
}

hipError_t hipGraphAddEventWaitNode(hipGraphNode_t *out, hipGraph_t graph,
        const hipGraphNode_t *dependencies, size_t count, hipEvent_t event)
{
    return add_event(out, graph, dependencies, count, event, FAKE_WAIT);
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphGetNodes(core_graph(graph), (CUgraphNode *)(void *)nodes, count);
    return hip_end(code);
}

hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *nodes,
        size_t *count)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphNodeGetDependencies(core_node(node), (CUgraphNode *)(void *)nodes,
                count);
    return hip_end(code);
}

hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from,
        const hipGraphNode_t *to, size_t count)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphAddDependencies(core_graph(graph), core_nodes(from),
                core_nodes(to), count);
    return hip_end(code);
}

hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t *from,
        const hipGraphNode_t *to, size_t count)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphRemoveDependencies(core_graph(graph), core_nodes(from),
                core_nodes(to), count);
    return hip_end(code);
}

/* ---- graphs ---- */

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t graph,
        unsigned long long flags)
{
    CUgraphExec exec;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuGraphInstantiateWithFlags(&exec, core_graph(graph), flags);
    if (code == CUDA_SUCCESS)
        *out = (hipGraphExec_t)(void *)exec;
    return hip_end(code);
}

/* Nothing of a graph runs that has a kernel which the device refuses. */
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
    CUgraphExec core = (CUgraphExec)(void *)exec;
    bool refused;
    CUresult code = hip_begin_stream(stream);

    if (code == CUDA_SUCCESS)
        code = fake_enter(0);
    if (code != CUDA_SUCCESS)
        return hip_end(code);
    refused = fake_exec_launches(core, hip_refuses);
    fake_leave(CUDA_SUCCESS);
    return refused ? hip_refuse(stream)
                   : hip_end(cuGraphLaunch(core, hip_stream(stream)));
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphExecDestroy((CUgraphExec)(void *)exec);
    return hip_end(code);
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphDestroy(core_graph(graph));
    return hip_end(code);
}

/* ---- what lives as long as a graph ---- */

hipError_t hipUserObjectCreate(hipUserObject_t *out, void *ptr, hipHostFn_t destroy,
        unsigned references, unsigned flags)
{
    CUuserObject object;
    CUresult code = out != NULL ? hip_begin() : CUDA_ERROR_INVALID_VALUE;

    if (code == CUDA_SUCCESS)
        code = cuUserObjectCreate(&object, ptr, destroy, references, flags);
    if (code == CUDA_SUCCESS)
        *out = (hipUserObject_t)(void *)object;
    return hip_end(code);
}

hipError_t hipUserObjectRelease(hipUserObject_t object, unsigned count)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuUserObjectRelease((CUuserObject)(void *)object, count);
    return hip_end(code);
}

hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object,
        unsigned count, unsigned flags)
{
    CUresult code = hip_begin();

    if (code == CUDA_SUCCESS)
        code = cuGraphRetainUserObject(core_graph(graph), (CUuserObject)(void *)object,
                count, flags);
    return hip_end(code);
}
