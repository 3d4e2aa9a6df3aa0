/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes, edges and their life until they are instantiated. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static LIST_HEAD(, fake_graph) graphs;

void fake_nodes_add(fake_nodes *nodes, fake_node *node)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->at[i] == node)
            return;
    nodes->at = fake_grow(nodes->at, (nodes->count + 1) * sizeof(*nodes->at));
    nodes->at[nodes->count++] = node;
}

void fake_nodes_union(fake_nodes *nodes, const fake_nodes *more)
{
    for (size_t i = 0; i < more->count; i++)
        fake_nodes_add(nodes, more->at[i]);
}

void fake_nodes_clear(fake_nodes *nodes)
{
    free(nodes->at);
    *nodes = (fake_nodes){ 0 };
}

bool fake_nodes_remove(fake_nodes *nodes, const fake_node *node)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->at[i] == node) {
            nodes->count--;
            memmove(&nodes->at[i], &nodes->at[i + 1],
                    (nodes->count - i) * sizeof(*nodes->at));
            return true;
        }
    return false;
}

fake_graph *fake_graph_new(void)
{
    fake_graph *graph = fake_need(sizeof(*graph));

    graph->captured = true;
    TAILQ_INIT(&graph->nodes);
    LIST_INSERT_HEAD(&graphs, graph, link);
    return graph;
}

CUgraph fake_graph_publish(fake_graph *graph)
{
    graph->captured = false;
    return (CUgraph)(void *)graph;
}

static void node_free(fake_node *node)
{
    TAILQ_REMOVE(&node->graph->nodes, node, link);
    node->graph->count--;
    fake_work_release(&node->work);
    fake_nodes_clear(&node->after);
    free(node);
}

void fake_graph_free(fake_graph *graph)
{
    while (!TAILQ_EMPTY(&graph->nodes))
        node_free(TAILQ_FIRST(&graph->nodes));
    fake_keeps_free(graph->keeps);
    LIST_REMOVE(graph, link);
    free(graph);
}

fake_node *fake_graph_add(fake_graph *graph, fake_work work, const fake_nodes *after)
{
    fake_node *node = fake_need(sizeof(*node));

    node->graph = graph;
    node->work = work;
    fake_nodes_union(&node->after, after);
    TAILQ_INSERT_TAIL(&graph->nodes, node, link);
    graph->count++;
    return node;
}

bool fake_graph_holds(const fake_graph *graph, const void *handle)
{
    const fake_node *n;

    for (n = TAILQ_FIRST(&graph->nodes); n != NULL; n = TAILQ_NEXT(n, link))
        if (n == handle)
            return true;
    return false;
}

CUresult fake_graph_of(CUgraph handle, fake_graph **out)
{
    const void *wanted = handle;
    fake_graph *g;

    for (g = LIST_FIRST(&graphs); g != NULL; g = LIST_NEXT(g, link))
        if (g == wanted) {
            *out = g;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_of(CUgraphNode handle, fake_node **out)
{
    fake_graph *g;

    for (g = LIST_FIRST(&graphs); g != NULL; g = LIST_NEXT(g, link))
        if (fake_graph_holds(g, handle)) {
            *out = (fake_node *)(void *)handle;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Nodes are mostly made after what they depend on: one pass, unless edges were added. */
fake_nodes fake_graph_order(fake_graph *graph)
{
    fake_nodes order = { fake_need((graph->count + 1) * sizeof(*order.at)), 0 };
    size_t before;
    fake_node *n;

    for (n = TAILQ_FIRST(&graph->nodes); n != NULL; n = TAILQ_NEXT(n, link))
        n->index = SIZE_MAX;
    do {
        before = order.count;
        for (n = TAILQ_FIRST(&graph->nodes); n != NULL; n = TAILQ_NEXT(n, link)) {
            bool ready = n->index == SIZE_MAX;

            for (size_t i = 0; ready && i < n->after.count; i++)
                ready = n->after.at[i]->index != SIZE_MAX;
            if (ready) {
                n->index = order.count;
                order.at[order.count++] = n;
            }
        }
    } while (order.count != before && order.count < graph->count);
    return order;
}

static CUresult enter_graph(CUgraph handle, fake_graph **out)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_graph_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

static CUresult enter_node(CUgraphNode handle, fake_node **out)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = node_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

/* Instantiated graphs do not need it any more. */
CUresult cuGraphDestroy(CUgraph handle)
{
    fake_graph *graph;
    CUresult code = enter_graph(handle, &graph);

    if (code != CUDA_SUCCESS)
        return code;
    if (graph->captured)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fake_graph_free(graph);
    return fake_leave(CUDA_SUCCESS);
}

/* Into @p out, which has room for *count and is filled up with NULL, if there is an array;
 * how many there are, or were written, comes back in *count. */
static CUresult hand_out(const fake_nodes *nodes, CUgraphNode *out, size_t *count)
{
    for (size_t i = 0; out != NULL && i < *count; i++)
        out[i] = i < nodes->count ? (CUgraphNode)(void *)nodes->at[i] : NULL;
    if (out == NULL || *count > nodes->count)
        *count = nodes->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *out, size_t *count)
{
    fake_nodes nodes = { 0 };
    fake_graph *graph;
    fake_node *n;
    CUresult code =
            count != NULL ? enter_graph(handle, &graph) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    nodes.at = fake_need((graph->count + 1) * sizeof(*nodes.at));
    for (n = TAILQ_FIRST(&graph->nodes); n != NULL; n = TAILQ_NEXT(n, link))
        nodes.at[nodes.count++] = n;
    code = hand_out(&nodes, out, count);
    fake_nodes_clear(&nodes);
    return fake_leave(code);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *out, size_t *count)
{
    fake_node *node;
    CUresult code =
            count != NULL ? enter_node(handle, &node) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    return fake_leave(hand_out(&node->after, out, count));
}

static bool depends(const fake_node *node, const fake_node *on)
{
    for (size_t i = 0; i < node->after.count; i++)
        if (node->after.at[i] == on)
            return true;
    return false;
}

/* Are both ends in @p graph, and is the edge there or not, as @p present wants? */
static bool edge_fits(const fake_graph *graph, CUgraphNode from, CUgraphNode to,
        bool present)
{
    return from != to && fake_graph_holds(graph, from) && fake_graph_holds(graph, to) &&
            depends((fake_node *)(void *)to, (fake_node *)(void *)from) == present;
}

/* All edges, or none. */
static CUresult change_edges(CUgraph handle, const CUgraphNode *from,
        const CUgraphNode *to, size_t count, bool add)
{
    fake_graph *graph;
    CUresult code = enter_graph(handle, &graph);

    if (code != CUDA_SUCCESS)
        return code;
    for (size_t i = 0; i < count; i++)
        if (!edge_fits(graph, from[i], to[i], !add))
            return fake_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        fake_node *on = (fake_node *)(void *)from[i];
        fake_node *node = (fake_node *)(void *)to[i];

        if (add)
            fake_nodes_add(&node->after, on);
        else
            fake_nodes_remove(&node->after, on);
    }
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
        const CUgraphNode *to, size_t count)
{
    return change_edges(graph, from, to, count, true);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
        const CUgraphNode *to, size_t count)
{
    return change_edges(graph, from, to, count, false);
}

CUresult fake_graph_add_event(CUgraphNode *out, CUgraph handle,
        const CUgraphNode *dependencies, size_t count, CUevent event,
        enum fake_kind kind)
{
    const fake_nodes after = { (fake_node **)(void *)(uintptr_t)dependencies, count };
    fake_work work = { .kind = kind };
    fake_graph *graph;
    CUresult code = out != NULL && (dependencies != NULL || count == 0)
            ? enter_graph(handle, &graph)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_event_of(event, &work.event);
    for (size_t i = 0; code == CUDA_SUCCESS && i < count; i++)
        code = fake_graph_holds(graph, dependencies[i]) ? CUDA_SUCCESS
                                                        : CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    work.context = work.event->context;
    work.event->refs++;
    *out = (CUgraphNode)(void *)fake_graph_add(graph, work, &after);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph,
        const CUgraphNode *dependencies, size_t count, CUevent event)
{
    return fake_graph_add_event(out, graph, dependencies, count, event, FAKE_RECORD);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event_handle)
{
    fake_event *event;
    fake_node *node;
    CUresult code = enter_node(handle, &node);

    if (code != CUDA_SUCCESS)
        return code;
    code = node->work.kind == FAKE_RECORD ? fake_event_of(event_handle, &event)
                                          : CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    event->refs++;
    fake_event_unref(node->work.event);
    node->work.event = event;
    return fake_leave(CUDA_SUCCESS);
}

/* Its edges go with it; what came after it no longer comes after what it came after. Not
 * during a capture. */
CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    fake_node *node, *n;
    CUresult code = enter_node(handle, &node);

    if (code != CUDA_SUCCESS)
        return code;
    if (node->graph->captured)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    for (n = TAILQ_FIRST(&node->graph->nodes); n != NULL; n = TAILQ_NEXT(n, link))
        fake_nodes_remove(&n->after, node);
    node_free(node);
    return fake_leave(CUDA_SUCCESS);
}
