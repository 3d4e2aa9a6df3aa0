/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions, slots and credit: numbers that wrap, slots that rest for long, senders that
 * run ahead of their receivers, and messages between collectives.
 */
#include "suite.h"

#include <stdio.h>

#define SMALL 61     /* elements: the low-latency slots */
#define LARGE 200003 /* elements: chunks                */
#define PIECE 16     /* bytes of a back-to-back message */

#define ROOM ((LARGE + 64) * sizeof(float)) /* of one result */

static bool wrap_buffers(gpu_rank *g, CUdeviceptr *in, CUdeviceptr *out)
{
    *in = gpu_reserve(g, ROOM);
    *out = gpu_reserve(g, 4 * ROOM);
    return *in != 0 && *out != 0;
}

/** Small ones across the wrap, large ones across the wrap, both by turns. */
static void across(gpu_rank *g)
{
    CUdeviceptr in, out;
    bool fine = wrap_buffers(g, &in, &out);

    for (uint64_t i = 0; fine && i < 40; i++) {
        multi_doing(g->rank, "round %llu", (unsigned long long)i);
        fine = suite_round(g, in, out, ROOM, i % 3 == 2 ? LARGE : SMALL + i, i);
    }
}

/** The low-latency slots rest while chunks carry the positions across the wrap. */
static void slots_that_rest(gpu_rank *g)
{
    CUdeviceptr in, out;
    bool fine = wrap_buffers(g, &in, &out);

    for (uint64_t i = 0; fine && i < 24; i++) {
        multi_doing(g->rank, "round %llu", (unsigned long long)i);
        fine = suite_round(g, in, out, ROOM, i < 2 || i >= 12 ? SMALL : LARGE, i);
    }
}

/** Plays of one graph across the wrap. */
static void graph_across(gpu_rank *g)
{
    CUdeviceptr in, out;
    CUgraphExec graph = NULL;
    bool fine = wrap_buffers(g, &in, &out) &&
            gpu_record(g, g->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
            suite_sum(g, g->comm, in, out, SMALL, g->stream[0]) &&
            suite_sum(g, g->comm, in + 4096, out + 4096, 3000, g->stream[0]) &&
            gpu_recorded(g, g->stream[0], &graph);

    for (uint64_t i = 0; fine && i < 40; i++)
        fine = suite_put(g, in, i, g->number, 0, SMALL) &&
                suite_put(g, in + 4096, i + 99, g->number, 0, 3000) &&
                gpu_play(g, graph, g->stream[0]) && gpu_sync(g, g->stream[0]) &&
                gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, out, i, SMALL, "the first sum") &&
                suite_is_sum(g, out + 4096, i + 99, 3000, "the second sum");
    gpu_drop_graph(g, &graph);
}

/* ---- back to back ---- */

/** How many messages a back-to-back test sends. */
static unsigned many(void)
{
    return gpu_is_fake() ? 1000 : 10000;
}

/** Hold this rank's stream, or this thread, now and then. */
static bool dawdle(gpu_rank *g, unsigned i)
{
    uint64_t h = value_mix(i * 2654435761ull + (unsigned)g->number);

    if (h % 97 == 0)
        return gpu_delay(g, g->stream[0], (unsigned)(h >> 32) % 2000);
    if (h % 89 == 0)
        multi_sleep_us((unsigned)(h >> 32) % 2000);
    return true;
}

/** Message i has its own place at both ends: all of them are compared at the end. */
static void back_to_back(gpu_rank *g, bool broadcast, size_t bytes)
{
    unsigned length = bytes > PIECE ? many() / 50 : many();
    size_t floats = bytes / sizeof(float);
    CUdeviceptr in = gpu_reserve(g, length * bytes),
                out = gpu_reserve(g, length * bytes);
    cudaStream_t s = gpu_handle(g->stream[0]);
    bool fine = in != 0 && out != 0 &&
            suite_put(g, in, 17, g->number, 0, length * floats) &&
            gpu_fill(g, out, 0xa5, length * bytes);

    for (unsigned i = 0; fine && i < length; i++) {
        void *from = gpu_at(in + i * bytes), *to = gpu_at(out + i * bytes);

        multi_doing(g->rank, "message %u", i);
        fine = g->number == 0 || dawdle(g, i);
        if (fine && broadcast)
            fine = multi_ok(g->rank,
                    ncclBroadcast(from, to, floats, ncclFloat32, 0, g->comm, s),
                    "ncclBroadcast");
        else if (fine && g->number == 0)
            for (int r = 1; r < g->rank->nranks && fine; r++)
                fine = multi_ok(g->rank,
                        ncclSend(from, floats, ncclFloat32, r, g->comm, s), "ncclSend");
        else if (fine)
            fine = multi_ok(g->rank, ncclRecv(to, floats, ncclFloat32, 0, g->comm, s),
                    "ncclRecv");
    }
    if (fine && gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
            (broadcast || g->number != 0))
        (void)suite_is(g, out, 17, 0, 0, length * floats, "the messages");
}

static void broadcasts(gpu_rank *g)
{
    back_to_back(g, true, PIECE);
}

static void sends(gpu_rank *g)
{
    back_to_back(g, false, PIECE);
}

static void large_broadcasts(gpu_rank *g)
{
    back_to_back(g, true, 40004);
}

static void large_sends(gpu_rank *g)
{
    back_to_back(g, false, 40004);
}

/** Ranks 0 and 1 speak between collectives of all four: pairs have counts of their own. */
static void message_between_sums(gpu_rank *g)
{
    const size_t bytes = 1001 * sizeof(float);
    CUdeviceptr in = gpu_reserve(g, bytes), sum = gpu_reserve(g, bytes),
                message = gpu_reserve(g, bytes);
    cudaStream_t s = gpu_handle(g->stream[0]);
    bool fine = in != 0 && sum != 0 && message != 0;

    for (uint64_t i = 0; fine && i < suite_rounds(500); i++) {
        size_t count = value_mix(i) % 1001 + 1;

        fine = suite_put(g, in, i, g->number, 0, 1001) &&
                suite_sum(g, g->comm, in, sum, count, g->stream[0]);
        if (fine && g->number == 0)
            fine = multi_ok(g->rank,
                    ncclSend(gpu_at(in), count, ncclFloat32, 1, g->comm, s),
                    "ncclSend");
        if (fine && g->number == 1)
            fine = multi_ok(g->rank,
                    ncclRecv(gpu_at(message), count, ncclFloat32, 0, g->comm, s),
                    "ncclRecv");
        fine = fine && dawdle(g, (unsigned)i) &&
                suite_sum(g, g->comm, in, sum, count, g->stream[0]) &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, sum, i, count, "the sum") &&
                (g->number != 1 || suite_is(g, message, i, 0, 0, count, "the message"));
    }
}

/* Clear of the wrap by a few positions: no operation of a round takes more than a few. */
#define BEFORE_31      .environment = { "MOTET_EPOCH_START=2147483645" }
#define BEFORE_32      .environment = { "MOTET_EPOCH_START=4294967293" }
#define WELL_BEFORE_31 .environment = { "MOTET_EPOCH_START=2147483600" }
#define WELL_BEFORE_32 .environment = { "MOTET_EPOCH_START=4294967240" }

const suite_test suite_wraps[] = {
    SUITE_ROW("positions from 2^31 - 3", across, THREADS, 3, BEFORE_31),
    SUITE_ROW("positions from 2^32 - 3", across, THREADS, 3, BEFORE_32),
    SUITE_ROW("positions from 2^31 - 3", across, PROCESSES, 2, BEFORE_31),
    SUITE_ROW("positions from 2^32 - 3", across, PROCESSES, 2, BEFORE_32),
    SUITE_ROW("low-latency slots that rest while positions pass 2^31", slots_that_rest,
            THREADS, 2, WELL_BEFORE_31),
    SUITE_ROW("low-latency slots that rest while positions pass 2^32", slots_that_rest,
            THREADS, 2, WELL_BEFORE_32),
    SUITE_ROW("plays of a graph from 2^31 - 3", graph_across, THREADS, 2, BEFORE_31),
    SUITE_ROW("plays of a graph from 2^32 - 3", graph_across, THREADS, 2, BEFORE_32),
    SUITE_ROW("plays of a graph from 2^32 - 3", graph_across, PROCESSES, 2, BEFORE_32),
    SUITE_ROW("broadcasts back to back, receivers delayed at random", broadcasts,
            THREADS, 3, .deadline_s = 300),
    SUITE_ROW("broadcasts back to back, receivers delayed at random", broadcasts,
            PROCESSES, 2, .deadline_s = 300),
    SUITE_ROW("sends back to back, receivers delayed at random", sends, THREADS, 3,
            .deadline_s = 300),
    SUITE_ROW("sends back to back, receivers delayed at random", sends, PROCESSES, 2,
            .deadline_s = 300),
    SUITE_ROW("large broadcasts back to back, receivers delayed at random",
            large_broadcasts, THREADS, 2),
    SUITE_ROW("large sends back to back, receivers delayed at random", large_sends,
            THREADS, 2),
    SUITE_ROW("a message from 0 to 1 between sums of four", message_between_sums,
            THREADS, 4),
    SUITE_ROW("a message from 0 to 1 between sums of four", message_between_sums,
            PROCESSES, 4),
    { .sentence = NULL },
};
