/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What captures and graphs have in common. A graph that uses a communicator waits for and
 * records the communicator's order event. Only its last operation has to record it, but
 * which one is the last shows only at the end, which nobody tells us: so there is one
 * node that records, a leaf, and each operation moves it behind itself. During a capture
 * nodes cannot be removed; edges may come and go.
 */
#include "device/gpu_shared.h"

#include <stdlib.h>
#include <string.h>

/* Most edges of the recording node that are taken away when it moves; what is left over
 * only waits for what came earlier anyway. */
#define EDGES_MAX 64

motet_result motet_gpu_capture_state(const motet_gpu_facts *facts, void *stream,
        const motet_gpu_capture *c, motet_stream_state *out)
{
    if (c->active && facts->no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "stream %p is captured: %s", stream,
                facts->no_capture);
    *out = (motet_stream_state){
        .capturing = c->active,
        .invalidated = c->invalidated,
        .capture = c->active || c->invalidated ? c->id : 0,
        .graph = c->active ? c->graph : NULL,
    };
    return MOTET_OK;
}

motet_result motet_gpu_capture_check(const motet_gpu_capture *c, const void *stream,
        const void *graph)
{
    if (!c->active || (graph != NULL && c->graph != graph))
        return motet_fail(MOTET_ERR_USAGE,
                "stream %p is not in the capture that the operation began in", stream);
    return MOTET_OK;
}

motet_result motet_gpu_graphs_check(const motet_gpu_facts *facts, const char *what)
{
    if (facts->no_capture[0] != '\0')
        return motet_fail(MOTET_ERR_DEVICE, "%s: %s", what, facts->no_capture);
    return MOTET_OK;
}

/* ---- the leaf ---- */

static void *node_at(const void *nodes, size_t i)
{
    void *node;

    memcpy(&node, (const char *)nodes + i * sizeof(node), sizeof(node));
    return node;
}

static bool holds(const void *nodes, size_t count, const void *node)
{
    for (size_t i = 0; i < count; i++)
        if (node_at(nodes, i) == node)
            return true;
    return false;
}

motet_result motet_gpu_move_leaf(const motet_gpu_edges *edges,
        const motet_gpu_capture *c, void *leaf)
{
    void *before[EDGES_MAX];
    size_t count = EDGES_MAX;

    MOTET_TRY(edges->before(leaf, before, &count), "edges");
    count = count < EDGES_MAX ? count : EDGES_MAX;
    for (size_t i = 0; i < c->count; i++)
        if (!holds(before, count, node_at(c->after, i)))
            MOTET_TRY(edges->add(c->graph, node_at(c->after, i), leaf), "edge");
    for (size_t i = 0; i < count; i++)
        if (!holds(c->after, c->count, node_at(before, i)))
            MOTET_TRY(edges->remove(c->graph, node_at(before, i), leaf), "edge");
    return MOTET_OK;
}

/* ---- what a graph holds ---- */

struct motet_gpu_held {
    void (*release)(void *);
    void *arg;
};

void motet_gpu_held_end(void *held)
{
    motet_gpu_held *h = held;

    if (h->release != NULL)
        h->release(h->arg);
    free(h);
}

void motet_gpu_held_disarm(motet_gpu_held *held)
{
    held->release = NULL;
}

motet_result motet_gpu_hold_by_graph(motet_gpu *gpu, const motet_gpu_facts *facts,
        void *graph, void (*release)(void *), void *arg,
        motet_result (*give)(motet_gpu *gpu, void *graph, motet_gpu_held *held))
{
    motet_gpu_held *held;
    motet_result result = motet_gpu_graphs_check(facts, "hold memory by a graph");

    if (result != MOTET_OK)
        return result;
    held = malloc(sizeof(*held));
    if (held == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "hold memory by a graph");
    *held = (motet_gpu_held){ .release = release, .arg = arg };
    result = give(gpu, graph, held);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "hold memory by a graph");
    return MOTET_OK;
}
