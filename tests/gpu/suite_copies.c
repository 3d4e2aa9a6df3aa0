/* SPDX-License-Identifier: Apache-2.0 */
/* Copy engines: asked for by a setting, a rule or the policy, in graphs, among kernels. */
#include "suite.h"

#include "motet.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 70001, CALLS = 4, POISON = 0xa5 };

/* The plan of a call has @p word. */
static bool plans(gpu_rank *g, const char *operation, size_t count, const char *word)
{
    char text[1024] = "";

    return multi_ok(g->rank,
                   motet_explain(g->comm, operation, count, ncclFloat32, ncclSum, text,
                           sizeof(text)),
                   "motet_explain") &&
            multi_check(g->rank, strstr(text, word) != NULL,
                    "%s of %zu is planned so:\n%s, need '%s'", operation, count, text,
                    word);
}

/* What one of the calls in a row takes and gives. */
struct call {
    CUdeviceptr in, sum, all;
    size_t count; /* of the sum */
    uint64_t seed;
};

static bool reserve_call(gpu_rank *g, int i, struct call *c)
{
    size_t n = (size_t)g->rank->nranks, bytes = COUNT * sizeof(float);

    *c = (struct call){ .in = gpu_reserve(g, bytes),
        .sum = gpu_reserve(g, bytes),
        .all = gpu_reserve(g, n * bytes),
        .count = COUNT - (size_t)i,
        .seed = 7 + (uint64_t)i };
    return c->in != 0 && c->sum != 0 && c->all != 0 &&
            suite_put(g, c->in, c->seed, g->number, 0, COUNT) &&
            gpu_fill(g, c->sum, POISON, bytes) &&
            gpu_fill(g, c->all, POISON, n * bytes);
}

static bool enqueue_call(gpu_rank *g, int i, const struct call *c)
{
    cudaStream_t s = gpu_handle(g->stream[0]);

    return suite_sum(g, g->comm, c->in, c->sum, c->count, g->stream[0]) &&
            multi_ok(g->rank,
                    ncclAllGather(gpu_at(c->in), gpu_at(c->all), COUNT, ncclFloat32,
                            g->comm, s),
                    "all_gather") &&
            multi_ok(g->rank,
                    ncclBroadcast(gpu_at(c->sum), gpu_at(c->sum), 100, ncclFloat32,
                            i % 2, g->comm, s),
                    "broadcast");
}

static bool is_right(gpu_rank *g, const struct call *c)
{
    bool fine = suite_is_sum(g, c->sum, c->seed, c->count, "sum") &&
            suite_is_filled(g, c->sum + c->count * sizeof(float), POISON,
                    (COUNT - c->count) * sizeof(float), "behind the sum");

    for (int r = 0; fine && r < g->rank->nranks; r++)
        fine = suite_is(g, c->all + (size_t)r * COUNT * sizeof(float), c->seed, r, 0,
                COUNT, "gathered");
    return fine;
}

/* A sum, a gathering and a broadcast, a few times with other values, without a wait in
 * between. */
static void many_calls(gpu_rank *g)
{
    struct call call[CALLS];
    bool fine = true;

    for (int i = 0; fine && i < CALLS; i++)
        fine = reserve_call(g, i, &call[i]);
    for (int i = 0; fine && i < CALLS; i++)
        fine = enqueue_call(g, i, &call[i]);
    fine = fine && gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm);
    for (int i = 0; fine && i < CALLS; i++)
        fine = is_right(g, &call[i]);
}

static void asked_for(gpu_rank *g)
{
    if (plans(g, "all_reduce", 5, "protocol: ce\n") &&
            plans(g, "all_gather", COUNT, "because: NCCL_PROTO\n"))
        many_calls(g);
}

static void by_rule(gpu_rank *g)
{
    if (plans(g, "all_gather", COUNT, "protocol: ce\n") &&
            plans(g, "all_gather", 10, "protocol: ll\n") &&
            plans(g, "all_reduce", COUNT, "blocks: 1\n"))
        many_calls(g);
}

static void by_policy(gpu_rank *g)
{
    if (plans(g, "all_gather", 1, "because: CTA policy ZERO\n") &&
            plans(g, "all_reduce", 1, "protocol: ll\n"))
        many_calls(g);
}

/* A message each way in one group. */
static bool swap(gpu_rank *g, CUdeviceptr in, CUdeviceptr out, size_t count)
{
    int other = 1 - g->number;
    cudaStream_t s = gpu_handle(g->stream[0]);

    return multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart") &&
            multi_ok(g->rank,
                    ncclSend(gpu_at(in), count, ncclFloat32, other, g->comm, s),
                    "send") &&
            multi_ok(g->rank,
                    ncclRecv(gpu_at(out), count, ncclFloat32, other, g->comm, s),
                    "recv");
}

/* Groups by copies and groups by kernels in turns. */
static void messages(gpu_rank *g)
{
    CUdeviceptr in = gpu_reserve(g, COUNT * sizeof(float));
    CUdeviceptr out = gpu_reserve(g, COUNT * sizeof(float));
    bool fine = in != 0 && out != 0 && suite_put(g, in, 9, g->number, 0, COUNT) &&
            plans(g, "send", COUNT, "protocol: ce\n") &&
            plans(g, "send", 100, "protocol: pairs\n");

    for (int i = 0; fine && i < 6; i++) {
        size_t count = i % 2 == 0 ? COUNT : 100;

        fine = gpu_fill(g, out, 0xa5, COUNT * sizeof(float)) &&
                swap(g, in, out, count) &&
                multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd") &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
                suite_is(g, out, 9, 1 - g->number, 0, count, "message");
    }
}

/* That fails the call, and nothing else. */
static void captured_messages(gpu_rank *g)
{
    CUdeviceptr in = gpu_reserve(g, COUNT * sizeof(float));
    CUdeviceptr out = gpu_reserve(g, COUNT * sizeof(float));
    CUgraphExec graph = NULL;

    if (in != 0 && out != 0 && suite_put(g, in, 9, g->number, 0, COUNT) &&
            gpu_fill(g, out, 0xa5, COUNT * sizeof(float)) &&
            gpu_record(g, g->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
            suite_sum(g, g->comm, in, out, 10, g->stream[0]) &&
            swap(g, in, out, COUNT) &&
            multi_expect(g->rank, ncclGroupEnd(), ncclInvalidUsage,
                    "messages by copies in a capture") &&
            multi_check(g->rank,
                    strstr(ncclGetLastError(g->comm),
                            "sends and receives by copy engines cannot be captured") !=
                            NULL,
                    "the sentence is \"%s\"", ncclGetLastError(g->comm)) &&
            gpu_recorded(g, g->stream[0], &graph) && gpu_well(g->rank, g->comm) &&
            gpu_play(g, graph, g->stream[0]) && gpu_sync(g, g->stream[0]) &&
            suite_is_sum(g, out, 9, 10, "what was captured before") &&
            swap(g, in, out, COUNT) &&
            multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd") &&
            gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm))
        (void)suite_is(g, out, 9, 1 - g->number, 0, COUNT, "message");
    gpu_drop_graph(g, &graph);
}

const suite_test suite_copies[] = {
    SUITE_ROW("copies that NCCL_PROTO asks for", asked_for, THREADS, 3,
            .environment = { "NCCL_PROTO=ce" }),
    SUITE_ROW("copies that NCCL_PROTO asks for", asked_for, PROCESSES, 2,
            .environment = { "NCCL_PROTO=ce", "MOTET_PATH=staged" }),
    SUITE_ROW("copies by rules, among kernels", by_rule, THREADS, 4,
            .environment = { "MOTET_PLAN=all_gather:256-=ce;all_reduce:1K-=staged/1",
                    "MOTET_PATH=staged" }),
    SUITE_ROW("copies by the policy, sums by kernels", by_policy, THREADS, 2,
            .environment = { "NCCL_CTA_POLICY=ZERO" }),
    SUITE_ROW("messages by copies and by kernels in turns", messages, THREADS, 2,
            .environment = { "MOTET_PLAN=send:64K-=ce" }),
    SUITE_ROW("messages by copies and by kernels in turns", messages, PROCESSES, 2,
            .environment = { "MOTET_PLAN=send:64K-=ce", "MOTET_PATH=staged" }),
    SUITE_ROW("messages by copies are not captured", captured_messages, THREADS, 2,
            .environment = { "MOTET_PLAN=send:64K-=ce" }),
    { .sentence = NULL },
};
