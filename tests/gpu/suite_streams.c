/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on several streams, on default streams, and of several communicators at once. */
#include "suite.h"

#include <stdio.h>

#define COUNT 3001
#define BYTES (COUNT * sizeof(float))

/** Operation i of a test has its own input and output, so that one look at the end is enough. */
struct series {
    CUdeviceptr from, to;
    unsigned length;
};

static bool series_make(gpu_rank *g, struct series *s, unsigned length, uint64_t seed)
{
    s->length = length;
    s->from = gpu_reserve(g, length * BYTES);
    s->to = gpu_reserve(g, length * BYTES);
    if (s->from == 0 || s->to == 0 || !gpu_fill(g, s->to, 0xa5, length * BYTES))
        return false;
    for (unsigned i = 0; i < length; i++)
        if (!suite_put(g, s->from + i * BYTES, seed + i, g->number, 0, COUNT))
            return false;
    return true;
}

static bool series_run(gpu_rank *g, const struct series *s, unsigned i, ncclComm_t comm,
        CUstream stream)
{
    multi_doing(g->rank, "operation %u", i);
    return suite_sum(g, comm, s->from + i * BYTES, s->to + i * BYTES, COUNT, stream);
}

static bool series_check(gpu_rank *g, const struct series *s, uint64_t seed)
{
    char what[32];

    for (unsigned i = 0; i < s->length; i++) {
        (void)snprintf(what, sizeof(what), "operation %u", i);
        if (!suite_is_sum(g, s->to + i * BYTES, seed + i, COUNT, what))
            return false;
    }
    return true;
}

static bool sync_both(gpu_rank *g)
{
    return gpu_sync(g, g->stream[0]) && gpu_sync(g, g->stream[1]);
}

static void two_streams(gpu_rank *g)
{
    unsigned length = suite_rounds(500);
    struct series s;
    bool fine = series_make(g, &s, length, 100);

    for (unsigned i = 0; fine && i < length; i++)
        fine = series_run(g, &s, i, g->comm,
                g->stream[value_mix(i + 7) & 1]); /* alike on all ranks or not */
    if (fine && sync_both(g) && gpu_well(g->rank, g->comm))
        (void)series_check(g, &s, 100);
}

/** Each rank takes its streams in an order of its own. */
static void own_order_of_streams(gpu_rank *g)
{
    unsigned length = suite_rounds(500);
    struct series s;
    bool fine = series_make(g, &s, length, 200);

    for (unsigned i = 0; fine && i < length; i++)
        fine = series_run(g, &s, i, g->comm,
                g->stream[value_mix(i * 64 + (unsigned)g->number) & 1]);
    if (fine && sync_both(g) && gpu_well(g->rank, g->comm))
        (void)series_check(g, &s, 200);
}

/** A stream that lags holds back the operations of the other stream that come after. */
static void lagging_stream(gpu_rank *g)
{
    struct series s;
    bool fine = series_make(g, &s, 8, 300);

    for (unsigned i = 0; fine && i < 8; i++) {
        if (i % 2 == 0 && (int)(i / 2) % g->rank->nranks == g->number)
            fine = gpu_delay(g, g->stream[0], 20000);
        fine = fine && series_run(g, &s, i, g->comm, g->stream[i % 2]);
    }
    if (fine && sync_both(g) && gpu_well(g->rank, g->comm))
        (void)series_check(g, &s, 300);
}

static void on_stream(gpu_rank *g, CUstream stream, uint64_t seed)
{
    struct series s;
    bool fine = series_make(g, &s, 16, seed);

    /* Every other one on a stream that does not wait for default streams by itself. */
    for (unsigned i = 0; fine && i < 16; i++)
        fine = series_run(g, &s, i, g->comm, i % 2 ? g->stream[0] : stream);
    if (fine && gpu_sync(g, stream) && sync_both(g) && gpu_well(g->rank, g->comm))
        (void)series_check(g, &s, seed);
}

static void null_stream(gpu_rank *g)
{
    on_stream(g, NULL, 400);
}

static void legacy_stream(gpu_rank *g)
{
    on_stream(g, CU_STREAM_LEGACY, 500);
}

static void per_thread_stream(gpu_rank *g)
{
    on_stream(g, CU_STREAM_PER_THREAD, 600);
}

/** Two communicators of the same ranks, each on its stream, at the same time. */
static void two_communicators(gpu_rank *g)
{
    unsigned length = suite_rounds(300);
    ncclComm_t other = NULL;
    struct series a, b;
    bool fine = gpu_comm(g, 1, &other) && series_make(g, &a, length, 700) &&
            series_make(g, &b, length, 900);

    for (unsigned i = 0; fine && i < length; i++)
        fine = series_run(g, &a, i, g->comm, g->stream[0]) &&
                series_run(g, &b, i, other, g->stream[1]);
    if (fine && sync_both(g) && gpu_well(g->rank, g->comm) && gpu_well(g->rank, other))
        (void)(series_check(g, &a, 700) && series_check(g, &b, 900));
    if (other != NULL && !multi_failed(g->rank))
        (void)multi_ok(g->rank, ncclCommDestroy(other), "ncclCommDestroy");
}

/** Operations of several kinds and a message in one group, round after round. */
static void mixed_groups(gpu_rank *g)
{
    int n = g->rank->nranks, me = g->number;
    int next = (me + 1) % n, prev = (me + n - 1) % n;
    CUdeviceptr in = gpu_reserve(g, BYTES),
                out = gpu_reserve(g, (size_t)(n + 2) * BYTES);
    cudaStream_t stream = gpu_handle(g->stream[0]);
    bool fine = in != 0 && out != 0;

    for (unsigned round = 0; fine && round < suite_rounds(200); round++) {
        uint64_t seed = 1000 + round;

        multi_doing(g->rank, "round %u", round);
        fine = suite_put(g, in, seed, me, 0, COUNT) &&
                multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart") &&
                suite_sum(g, g->comm, in, out, COUNT, g->stream[0]) &&
                multi_ok(g->rank,
                        ncclSend(gpu_at(in), COUNT, ncclFloat32, next, g->comm, stream),
                        "ncclSend") &&
                multi_ok(g->rank,
                        ncclAllGather(gpu_at(in), gpu_at(out + 2 * BYTES), COUNT,
                                ncclFloat32, g->comm, stream),
                        "ncclAllGather") &&
                multi_ok(g->rank,
                        ncclRecv(gpu_at(out + BYTES), COUNT, ncclFloat32, prev, g->comm,
                                stream),
                        "ncclRecv") &&
                multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd") &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, out, seed, COUNT, "the sum") &&
                suite_is(g, out + BYTES, seed, prev, 0, COUNT, "the message");
        for (int r = 0; fine && r < n; r++)
            fine = suite_is(g, out + (size_t)(2 + r) * BYTES, seed, r, 0, COUNT,
                    "the gathered pieces");
    }
}

/** Rank 0's messages are alike, as in an all_to_all; those of the others are not. */
static void group_uniform_on_one_rank(gpu_rank *g)
{
    const size_t most = 9000, piece = most * sizeof(float);
    int n = g->rank->nranks, me = g->number;
    CUdeviceptr in = gpu_reserve(g, (size_t)n * piece),
                out = gpu_reserve(g, (size_t)n * piece);
    cudaStream_t stream = gpu_handle(g->stream[0]);
    bool fine = in != 0 && out != 0;

    for (unsigned round = 0; fine && round < suite_rounds(200); round++) {
        uint64_t seed = 5000 + round;
        size_t alike = value_mix(seed) % most + 1;

#define PAIR(from, to)        \
    ((from) == 0 || (to) == 0 \
                    ? alike   \
                    : value_mix(seed ^ (unsigned)((from) * 64 + (to))) % (most + 1))
        multi_doing(g->rank, "round %u", round);
        fine = suite_put(g, in, seed, me, 0, (size_t)n * most) &&
                gpu_fill(g, out, 0xa5, (size_t)n * piece) &&
                multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart");
        for (int r = 0; fine && r < n; r++)
            fine = multi_ok(g->rank,
                           ncclSend(gpu_at(in + (size_t)r * piece), PAIR(me, r),
                                   ncclFloat32, r, g->comm, stream),
                           "ncclSend") &&
                    multi_ok(g->rank,
                            ncclRecv(gpu_at(out + (size_t)r * piece), PAIR(r, me),
                                    ncclFloat32, r, g->comm, stream),
                            "ncclRecv");
        fine = fine && multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd") &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm);
        for (int r = 0; fine && r < n; r++)
            fine = suite_is(g, out + (size_t)r * piece, seed, r, (size_t)me * most,
                           PAIR(r, me), "a message") &&
                    suite_is_filled(g,
                            out + (size_t)r * piece + PAIR(r, me) * sizeof(float), 0xa5,
                            piece - PAIR(r, me) * sizeof(float), "behind a message");
#undef PAIR
    }
}

const suite_test suite_streams[] = {
    SUITE_ROW("operations of one communicator on two streams keep their order",
            two_streams, THREADS, 3),
    SUITE_ROW("operations of one communicator on two streams keep their order",
            two_streams, PROCESSES, 2),
    SUITE_ROW("each rank may spread its operations over streams differently",
            own_order_of_streams, THREADS, 4),
    SUITE_ROW("a stream that lags holds back what was called later on another",
            lagging_stream, THREADS, 2),
    SUITE_ROW("stream NULL is the legacy stream", null_stream, PROCESSES, 2),
    SUITE_ROW("the legacy stream by its handle", legacy_stream, PROCESSES, 2),
    SUITE_ROW("per-thread default streams", per_thread_stream, THREADS, 2),
    SUITE_ROW("per-thread default streams", per_thread_stream, PROCESSES, 2),
    SUITE_ROW("two communicators work at once on two streams", two_communicators,
            THREADS, 2),
    SUITE_ROW("two communicators work at once on two streams", two_communicators,
            PROCESSES, 2),
    SUITE_ROW("collectives and messages in one group", mixed_groups, THREADS, 4),
    SUITE_ROW("collectives and messages in one group", mixed_groups, PROCESSES, 2),
    SUITE_ROW("a group that is uniform on one rank and uneven on the others",
            group_uniform_on_one_rank, THREADS, 4),
    SUITE_ROW("a group that is uniform on one rank and uneven on the others",
            group_uniform_on_one_rank, PROCESSES, 3),
    { .sentence = NULL },
};
