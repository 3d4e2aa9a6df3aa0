/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instantiated graphs. A launch is one item of a stream; its nodes run when what they
 * come after is done, those of independent branches at the same time. Events are
 * touched in two steps: at the launch call, in topological order, a record node gives
 * its event a new point and a wait node takes its event's point, so that eager work
 * before and after the launch is ordered with it; then the nodes reach and await them.
 */
#include "fake.h"

#include <stdlib.h>

typedef struct exec_node {
    fake_work work;
    size_t after,
            count; /* how many it comes after; entries of `next`                  */
    size_t *next;  /* who comes after it                                          */
} exec_node;

struct fake_exec {
    LIST_ENTRY(fake_exec) link;
    unsigned
            refs; /* the handle, and each launch until it is over                      */
    exec_node *nodes;
    size_t count;
    fake_keep *keeps;
    fake_point
            *last; /* launches of one graph run one after the other                  */
};

struct fake_launch {
    fake_exec *exec;
    fake_point *
            *points; /* RECORD: to reach; WAIT: to await; or NULL                   */
    size_t *missing; /* how many nodes each node still waits for                    */
    size_t left;
};

static LIST_HEAD(, fake_exec) execs;

static void unref(fake_exec *exec)
{
    if (--exec->refs > 0)
        return;
    for (size_t i = 0; i < exec->count; i++) {
        fake_work_release(&exec->nodes[i].work);
        free(exec->nodes[i].next);
    }
    free(exec->nodes);
    fake_point_unref(exec->last);
    fake_keeps_free(exec->keeps);
    free(exec);
}

static CUresult exec_of(CUgraphExec handle, fake_exec **out)
{
    const void *wanted = handle;
    fake_exec *e;

    for (e = LIST_FIRST(&execs); e != NULL; e = LIST_NEXT(e, link))
        if (e == wanted) {
            *out = e;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static fake_exec *instantiate(const fake_nodes *order, const fake_keep *keeps)
{
    fake_exec *exec = fake_need(sizeof(*exec));

    exec->refs = 1;
    exec->count = order->count;
    exec->nodes = fake_need((order->count + 1) * sizeof(*exec->nodes));
    exec->keeps = fake_keeps_copy(keeps);
    for (size_t i = 0; i < order->count; i++) {
        const fake_node *node = order->at[i];

        exec->nodes[i].work = fake_work_copy(&node->work);
        exec->nodes[i].after = node->after.count;
        for (size_t a = 0; a < node->after.count; a++) {
            exec_node *before = &exec->nodes[node->after.at[a]->index];

            before->next = fake_grow(before->next,
                    (before->count + 1) * sizeof(*before->next));
            before->next[before->count++] = i;
        }
    }
    LIST_INSERT_HEAD(&execs, exec, link);
    return exec;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
        unsigned long long flags)
{
    fake_graph *graph;
    fake_nodes order;
    CUresult code = out != NULL && flags == 0 ? fake_enter(FAKE_UNSAFE)
                                              : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_graph_of(handle, &graph);
    if (code == CUDA_SUCCESS && graph->captured)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    order = fake_graph_order(graph);
    if (order.count == graph->count)
        *out = (CUgraphExec)(void *)instantiate(&order, graph->keeps);
    else
        code = CUDA_ERROR_INVALID_VALUE; /* a circle */
    fake_nodes_clear(&order);
    return fake_leave(code);
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    fake_exec *exec;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = exec_of(handle, &exec);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    LIST_REMOVE(exec, link);
    unref(exec);
    return fake_leave(CUDA_SUCCESS);
}

/* What the nodes do is only copied from: a launch keeps the graph, and reads it. */
static bool event_gone(const fake_exec *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const fake_work *work = &exec->nodes[i].work;

        if ((work->kind == FAKE_RECORD || work->kind == FAKE_WAIT) &&
                work->event->destroyed)
            return true;
    }
    return false;
}

bool fake_exec_launches(CUgraphExec handle, bool (*is)(const fake_function *))
{
    fake_exec *exec;

    if (exec_of(handle, &exec) != CUDA_SUCCESS)
        return false;
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i].work.kind == FAKE_KERNEL &&
                is(exec->nodes[i].work.kernel.function))
            return true;
    return false;
}

static fake_launch *prepare(fake_exec *exec)
{
    fake_launch *launch = fake_need(sizeof(*launch));

    launch->exec = exec;
    exec->refs++;
    launch->left = exec->count;
    launch->missing = fake_need((exec->count + 1) * sizeof(*launch->missing));
    launch->points = fake_need((exec->count + 1) * sizeof(*launch->points));
    for (size_t i = 0; i < exec->count; i++)
        launch->missing[i] = exec->nodes[i].after;
    return launch;
}

static void touch_events(fake_launch *launch)
{
    for (size_t i = 0; i < launch->exec->count; i++) {
        const fake_work *work = &launch->exec->nodes[i].work;

        if (work->kind == FAKE_RECORD) {
            launch->points[i] = fake_point_new();
            fake_event_reset(work->event, fake_point_ref(launch->points[i]));
        } else if (work->kind == FAKE_WAIT) {
            launch->points[i] = fake_point_ref(work->event->point);
        }
    }
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    fake_work work = { .kind = FAKE_GRAPH };
    fake_points after = { 0 };
    fake_point *point = NULL;
    fake_launch *launch;
    fake_stream *stream;
    fake_exec *exec;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = exec_of(handle, &exec);
    if (code == CUDA_SUCCESS && event_gone(exec))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS)
        code = fake_stream_of(stream_handle, &stream);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    launch = prepare(exec);
    work.context = stream->context;
    work.launch = launch;
    fake_points_add(&after, exec->last);
    code = fake_submit(stream, work, after, &point);
    if (code == CUDA_SUCCESS) {
        touch_events(launch); /* it cannot have begun: the lock is held */
        fake_point_unref(exec->last);
        exec->last = point;
    }
    return fake_leave(code);
}

typedef struct branch {
    fake_launch *launch;
    size_t node;
} branch;

static void run_branch(fake_launch *launch, size_t node);

static void branch_main(void *arg)
{
    branch *b = arg;

    pthread_mutex_lock(&fake_lock);
    run_branch(b->launch, b->node);
    pthread_mutex_unlock(&fake_lock);
    free(b);
}

static void start_branch(fake_launch *launch, size_t node)
{
    branch *b = fake_need(sizeof(*b));

    *b = (branch){ launch, node };
    if (fake_start(branch_main, b))
        return;
    free(b);
    launch->exec->nodes[node].work.context->sticky = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    run_branch(launch, node);
}

static void run_node(fake_launch *launch, size_t node)
{
    const fake_work *work = &launch->exec->nodes[node].work;

    switch (work->kind) {
    case FAKE_EMPTY: break;
    case FAKE_RECORD: fake_point_reach(launch->points[node]); break;
    case FAKE_WAIT: fake_point_wait(launch->points[node]); break;
    default:
        pthread_mutex_unlock(&fake_lock);
        fake_work_run(work);
        pthread_mutex_lock(&fake_lock);
    }
}

/* The node and what becomes ready by it: one of them here, the others on threads. */
static void run_branch(fake_launch *launch, size_t node)
{
    for (;;) {
        const exec_node *n = &launch->exec->nodes[node];
        size_t here = SIZE_MAX;

        run_node(launch, node);
        for (size_t i = 0; i < n->count; i++) {
            if (--launch->missing[n->next[i]] > 0)
                continue;
            if (here != SIZE_MAX)
                start_branch(launch, here);
            here = n->next[i];
        }
        if (--launch->left == 0)
            pthread_cond_broadcast(&fake_changed);
        if (here == SIZE_MAX)
            return;
        node = here;
    }
}

void fake_launch_run(fake_launch *launch)
{
    size_t here = SIZE_MAX;

    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; i < launch->exec->count; i++) {
        if (launch->exec->nodes[i].after > 0)
            continue;
        if (here != SIZE_MAX)
            start_branch(launch, here);
        here = i;
    }
    if (here != SIZE_MAX)
        run_branch(launch, here);
    while (launch->left > 0)
        pthread_cond_wait(&fake_changed, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
}

void fake_launch_free(fake_launch *launch)
{
    for (size_t i = 0; i < launch->exec->count; i++)
        fake_point_unref(launch->points[i]);
    free(launch->points);
    free(launch->missing);
    unref(launch->exec);
    free(launch);
}
