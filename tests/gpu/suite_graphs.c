/* SPDX-License-Identifier: Apache-2.0 */
/* Captured operations: played again and again, beside eager ones, and after the end. */
#include "suite.h"

#include <stdio.h>

#define COUNT 5003
#define BYTES (COUNT * sizeof(float))

/** An all_reduce in a graph, on the rank's first stream. */
struct sum {
    CUdeviceptr from, to;
    CUgraphExec graph;
};

static bool sum_record_some(gpu_rank *g, struct sum *s, ncclComm_t comm,
        CUstreamCaptureMode mode, size_t count)
{
    *s = (struct sum){ .from = gpu_reserve(g, BYTES), .to = gpu_reserve(g, BYTES) };
    return s->from != 0 && s->to != 0 && gpu_record(g, g->stream[0], mode) &&
            suite_sum(g, comm, s->from, s->to, count, g->stream[0]) &&
            gpu_recorded(g, g->stream[0], &s->graph);
}

static bool sum_record(gpu_rank *g, struct sum *s, ncclComm_t comm,
        CUstreamCaptureMode mode)
{
    return sum_record_some(g, s, comm, mode, COUNT);
}

/** New inputs, one play on @p stream, and a look. */
static bool sum_play(gpu_rank *g, const struct sum *s, ncclComm_t comm, CUstream stream,
        uint64_t seed)
{
    return suite_put(g, s->from, seed, g->number, 0, COUNT) &&
            gpu_fill(g, s->to, 0xa5, COUNT / 4 * 4 * sizeof(float)) &&
            gpu_play(g, s->graph, stream) && gpu_sync(g, stream) &&
            gpu_well(g->rank, comm) && suite_is_sum(g, s->to, seed, COUNT, "a play");
}

static void played_on_either_stream(gpu_rank *g)
{
    static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_RELAXED,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL };
    bool fine = true;

    for (unsigned m = 0; m < 2 && fine; m++) {
        struct sum s;

        fine = sum_record(g, &s, g->comm, modes[m]);
        for (unsigned i = 0; fine && i < suite_rounds(100); i++) {
            multi_doing(g->rank, "play %u", i);
            fine = sum_play(g, &s, g->comm, g->stream[i & 1], 10 + i);
        }
        gpu_drop_graph(g, &s.graph);
    }
}

/** No host between the plays: the last inputs count. */
static void played_back_to_back(gpu_rank *g)
{
    struct sum s;
    unsigned plays = suite_rounds(5000);

    if (!sum_record(g, &s, g->comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ||
            !suite_put(g, s.from, 77, g->number, 0, COUNT))
        return;
    for (unsigned i = 0; i < plays; i++)
        if (!gpu_play(g, s.graph, g->stream[0]))
            return;
    if (gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm))
        (void)suite_is_sum(g, s.to, 77, COUNT, "the last play");
    gpu_drop_graph(g, &s.graph);
}

/** Graph on one stream, calls on the other, nothing between them but the library. */
static void mixed_with_calls(gpu_rank *g)
{
    struct sum s;
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    bool fine = from != 0 && to != 0 &&
            sum_record(g, &s, g->comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

    for (unsigned i = 0; fine && i < suite_rounds(300); i++) {
        multi_doing(g->rank, "round %u", i);
        fine = suite_put(g, s.from, 2 * i, g->number, 0, COUNT) &&
                suite_put(g, from, 2 * i + 1, g->number, 0, COUNT);
        for (unsigned k = 0; fine && k < 4; k++)
            fine = (i + k) % 3 == 0
                    ? gpu_play(g, s.graph, g->stream[0])
                    : suite_sum(g, g->comm, from, to, COUNT, g->stream[1]);
        fine = fine && gpu_play(g, s.graph, g->stream[i & 1]) &&
                suite_sum(g, g->comm, from, to, COUNT, g->stream[1]) &&
                gpu_sync(g, g->stream[0]) && gpu_sync(g, g->stream[1]) &&
                gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, s.to, 2 * i, COUNT, "the graph") &&
                suite_is_sum(g, to, 2 * i + 1, COUNT, "the call");
    }
    if (fine)
        gpu_drop_graph(g, &s.graph);
}

/** One capture of two streams: fork by an event, operations on both, join. */
static bool record_fork(gpu_rank *g, const CUdeviceptr *at, CUevent *event,
        CUgraphExec *out)
{
    CUstream a = g->stream[0], b = g->stream[1];

    return gpu_record(g, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
            suite_sum(g, g->comm, at[0], at[1], COUNT, a) &&
            gpu_ok(g, g->cu->cuEventRecord(event[0], a), "cuEventRecord") &&
            gpu_ok(g, g->cu->cuStreamWaitEvent(b, event[0], 0), "cuStreamWaitEvent") &&
            suite_sum(g, g->comm, at[1], at[2], COUNT, b) &&
            suite_sum(g, g->comm, at[0], at[3], COUNT, a) &&
            gpu_ok(g, g->cu->cuEventRecord(event[1], b), "cuEventRecord") &&
            gpu_ok(g, g->cu->cuStreamWaitEvent(a, event[1], 0), "cuStreamWaitEvent") &&
            gpu_recorded(g, a, out);
}

static void fork_and_join(gpu_rank *g)
{
    CUdeviceptr at[4];
    CUevent event[2] = { NULL, NULL };
    CUgraphExec graph = NULL;
    bool fine = true;

    for (int i = 0; i < 4; i++)
        fine = (at[i] = gpu_reserve(g, BYTES)) != 0 && fine;
    for (int i = 0; i < 2 && fine; i++)
        fine = gpu_ok(g, g->cu->cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING),
                "cuEventCreate");
    fine = fine && record_fork(g, at, event, &graph);
    for (unsigned i = 0; fine && i < suite_rounds(100); i++)
        fine = suite_put(g, at[0], 40 + i, g->number, 0, COUNT) &&
                gpu_play(g, graph, g->stream[i & 1]) && gpu_sync(g, g->stream[i & 1]) &&
                gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, at[1], 40 + i, COUNT, "before the fork") &&
                suite_is_sum(g, at[3], 40 + i, COUNT, "after the fork");
    gpu_drop_graph(g, &graph);
    for (int i = 0; i < 2; i++)
        if (event[i] != NULL)
            (void)gpu_ok(g, g->cu->cuEventDestroy_v2(event[i]), "cuEventDestroy");
}

/** Two graphs and two communicators, all in flight. */
static void two_graphs_two_communicators(gpu_rank *g)
{
    ncclComm_t other = NULL;
    struct sum a, b;
    bool fine = gpu_comm(g, 1, &other) &&
            sum_record(g, &a, g->comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
            sum_record(g, &b, other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

    for (unsigned i = 0; fine && i < suite_rounds(200); i++)
        fine = suite_put(g, a.from, 3 * i, g->number, 0, COUNT) &&
                suite_put(g, b.from, 3 * i + 1, g->number, 0, COUNT) &&
                gpu_play(g, a.graph, g->stream[0]) &&
                gpu_play(g, b.graph, g->stream[1]) && gpu_sync(g, g->stream[0]) &&
                gpu_sync(g, g->stream[1]) && gpu_well(g->rank, g->comm) &&
                gpu_well(g->rank, other) &&
                suite_is_sum(g, a.to, 3 * i, COUNT, "the first") &&
                suite_is_sum(g, b.to, 3 * i + 1, COUNT, "the second");
    if (!fine)
        return;
    gpu_drop_graph(g, &a.graph);
    gpu_drop_graph(g, &b.graph);
    (void)multi_ok(g->rank, ncclCommDestroy(other), "ncclCommDestroy");
}

/** A play after the communicator is gone ends and writes nothing. */
static void played_after_destroy(gpu_rank *g)
{
    struct sum s;
    ncclComm_t comm = g->comm;

    if (!sum_record(g, &s, comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ||
            !sum_play(g, &s, comm, g->stream[0], 5))
        return;
    g->comm = NULL;
    if (!multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy") ||
            !multi_barrier(g->rank))
        return;
    for (int i = 0; i < 3; i++)
        if (!gpu_fill(g, s.to, 0x3c, BYTES) || !gpu_play(g, s.graph, g->stream[0]) ||
                !gpu_sync(g, g->stream[0]) ||
                !suite_is_filled(g, s.to, 0x3c, BYTES, "a play after destroy"))
            return;
    gpu_drop_graph(g, &s.graph);
}

/** One rank still plays while the others have destroyed theirs: it must end, too. */
static void played_alone_after_destroy(gpu_rank *g)
{
    struct sum s;
    ncclComm_t comm = g->comm;

    if (!sum_record(g, &s, comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ||
            !sum_play(g, &s, comm, g->stream[0], 6))
        return;
    g->comm = NULL;
    if (!multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy") ||
            !multi_barrier(g->rank))
        return;
    if (g->number == 0 &&
            (!gpu_fill(g, s.to, 0x3c, BYTES) || !gpu_play(g, s.graph, g->stream[0]) ||
                    !gpu_sync(g, g->stream[0]) ||
                    !suite_is_filled(g, s.to, 0x3c, BYTES, "a play after destroy")))
        return;
    gpu_drop_graph(g, &s.graph);
}

/** A communicator made in between gets none of the graph's slots. */
static void graph_keeps_its_arena(gpu_rank *g)
{
    struct sum s;
    ncclComm_t comm = g->comm, other = NULL;
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    bool fine = from != 0 && to != 0 &&
            sum_record(g, &s, comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

    if (!fine)
        return;
    g->comm = NULL;
    fine = multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy") &&
            gpu_comm(g, 1, &other);
    for (unsigned i = 0; fine && i < 20; i++)
        fine = suite_put(g, from, i, g->number, 0, COUNT) &&
                gpu_play(g, s.graph, g->stream[0]) &&
                suite_sum(g, other, from, to, COUNT, g->stream[1]) &&
                gpu_sync(g, g->stream[0]) && gpu_sync(g, g->stream[1]) &&
                gpu_well(g->rank, other) &&
                suite_is_sum(g, to, i, COUNT, "the new communicator");
    gpu_drop_graph(g, &s.graph);
    g->comm = other;
}

/** Messages and all_to_all in a graph, with calls of both between the plays. */
static void messages_in_a_graph(gpu_rank *g)
{
    int n = g->rank->nranks, next = (g->number + 1) % n, prev = (g->number + n - 1) % n;
    CUdeviceptr in = gpu_reserve(g, BYTES), out = gpu_reserve(g, BYTES);
    cudaStream_t stream = gpu_handle(g->stream[0]);
    CUgraphExec graph = NULL;
    bool fine = in != 0 && out != 0;

    for (unsigned i = 0; fine && i < suite_rounds(200); i++) {
        bool record = i == 0, play = i % 3 != 1;

        multi_doing(g->rank, "round %u", i);
        fine = suite_put(g, in, i, g->number, 0, COUNT) &&
                gpu_fill(g, out, 0xa5, COUNT / 4 * 4 * sizeof(float)) &&
                (!record ||
                        gpu_record(g, g->stream[0],
                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        if (fine && (record || !play))
            fine = multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart") &&
                    multi_ok(g->rank,
                            ncclSend(gpu_at(in), COUNT, ncclFloat32, next, g->comm,
                                    stream),
                            "ncclSend") &&
                    multi_ok(g->rank,
                            ncclRecv(gpu_at(out), COUNT, ncclFloat32, prev, g->comm,
                                    stream),
                            "ncclRecv") &&
                    multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd");
        fine = fine && (!record || gpu_recorded(g, g->stream[0], &graph)) &&
                (!play || gpu_play(g, graph, g->stream[0])) &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
                suite_is(g, out, i, prev, 0, COUNT, "the message");
    }
    gpu_drop_graph(g, &graph);
}

/**
 * Without the library's order between graphs and calls (the user's promise that he keeps
 * it) two operations may meet, and ranks may run them in different order, which shows
 * since they differ in size. Then the values are right, or the communicator fails.
 */
static void overlap_is_an_error(gpu_rank *g)
{
    struct sum a, b;
    ncclResult_t state = ncclSuccess;

    if (!sum_record(g, &a, g->comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ||
            !sum_record_some(g, &b, g->comm, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                    COUNT - 8) ||
            !suite_put(g, a.from, 1, g->number, 0, COUNT) ||
            !suite_put(g, b.from, 2, g->number, 0, COUNT))
        return;
    for (unsigned i = 0; i < suite_rounds(200); i++)
        if (!gpu_play(g, a.graph, g->stream[0]) || !gpu_play(g, b.graph, g->stream[1]))
            return;
    if (!gpu_sync(g, g->stream[0]) || !gpu_sync(g, g->stream[1]) ||
            !multi_ok(g->rank, ncclCommGetAsyncError(g->comm, &state), "async error"))
        return;
    if (state == ncclSuccess)
        (void)(suite_is_sum(g, a.to, 1, COUNT, "the first, without an error") &&
                suite_is_sum(g, b.to, 2, COUNT - 8, "the second, without an error"));
    (void)multi_ok(g->rank, ncclCommAbort(g->comm), "ncclCommAbort");
    g->comm = NULL;
}

const suite_test suite_graphs[] = {
    SUITE_ROW("a graph is played on either stream with new inputs",
            played_on_either_stream, THREADS, 2),
    SUITE_ROW("a graph is played on either stream with new inputs",
            played_on_either_stream, PROCESSES, 2),
    SUITE_ROW("a graph is played back to back", played_back_to_back, THREADS, 3),
    SUITE_ROW("a graph is played back to back", played_back_to_back, PROCESSES, 2),
    SUITE_ROW("graphs and calls of one communicator, mixed on two streams",
            mixed_with_calls, THREADS, 2),
    SUITE_ROW("graphs and calls of one communicator, mixed on two streams",
            mixed_with_calls, PROCESSES, 2),
    SUITE_ROW("a capture of two streams that fork and join", fork_and_join, THREADS, 2),
    SUITE_ROW("two graphs of two communicators at once", two_graphs_two_communicators,
            THREADS, 2),
    SUITE_ROW("messages in a graph, and called between its plays", messages_in_a_graph,
            THREADS, 3),
    SUITE_ROW("messages in a graph, and called between its plays", messages_in_a_graph,
            PROCESSES, 2),
    SUITE_ROW("a play after destroy ends and writes nothing", played_after_destroy,
            THREADS, 2),
    SUITE_ROW("a play after destroy ends and writes nothing", played_after_destroy,
            PROCESSES, 2),
    SUITE_ROW("a play of one rank alone after destroy ends and writes nothing",
            played_alone_after_destroy, PROCESSES, 2),
    SUITE_ROW("a graph of a destroyed communicator harms no new one",
            graph_keeps_its_arena, THREADS, 2),
    SUITE_ROW("operations that run at once give right values or an error",
            overlap_is_an_error, THREADS, 2,
            .environment = { "NCCL_GRAPH_MIXING_SUPPORT=0", "MOTET_OP_TIMEOUT_S=5" }),
    { .sentence = NULL },
};
