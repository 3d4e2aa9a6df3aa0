/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value matrix on GPU ranks. What tests/multi calls "on a stream" is here captured
 * into a graph, which is played three times, some of them a hundred times, with new
 * inputs. Which stream a case takes follows from its number: one of two of the rank's
 * own, so that the library must order operations across streams; or a default one, where
 * no other rank of the process shares it.
 */
#include "driver.h"
#include "matrix.h"

#include <stdlib.h>

/* The largest case has two buffers of 8 pieces of 2^20 elements of 8 bytes. */
#define PIECE_BYTES (8u << 20)
#define SLACK_BYTES (4u << 20)

struct ranks {
    multi_rank *rank;
    int count;
    bool alone;  /* no other rank in this process */
    bool graphs; /* the batch is captured: default streams cannot be */
    uint64_t hash;
    CUgraphExec graph[MULTI_MAX_RANKS];
    gpu_rank g[MULTI_MAX_RANKS];
};

static bool alone_in_process(const multi_rank *rank)
{
    for (int r = 0; r < rank->nranks; r++)
        if (r != rank->rank && multi_pid(rank, r) == multi_pid(rank, rank->rank))
            return false;
    return true;
}

/** Pools are made before any communicator, and no rank goes on before all have theirs. */
static bool open_ranks(multi_rank *rank, int first, int count, void **out)
{
    struct ranks *s = calloc(1, sizeof(*s));
    size_t pool = 2 * (size_t)rank->nranks * PIECE_BYTES + SLACK_BYTES;
    bool fine = true;

    if (!multi_check(rank, s != NULL, "no memory"))
        return false;
    *out = s;
    s->rank = rank;
    s->count = count;
    s->alone = count == 1 && alone_in_process(rank);
    for (int i = 0; i < count && fine; i++)
        fine = gpu_open(&s->g[i], rank, first + i, pool);
    if (count > 1)
        return fine && gpu_comms(s->g, count, 0, rank->comms);
    if (!multi_barrier(rank) || !fine || !gpu_comm(&s->g[0], 0, &rank->comm))
        return false;
    rank->comms[0] = rank->comm;
    return true;
}

static void drop_graphs(struct ranks *s)
{
    for (int i = 0; i < s->count; i++)
        gpu_drop_graph(&s->g[i], &s->graph[i]);
}

static void close_ranks(void *state)
{
    struct ranks *s = state;
    bool failed = multi_failed(s->rank);

    if (!failed)
        drop_graphs(s);
    for (int i = 0; i < s->count; i++)
        if (s->rank->comms[i] != NULL)
            (void)multi_ok(s->rank,
                    failed ? ncclCommAbort(s->rank->comms[i])
                           : ncclCommDestroy(s->rank->comms[i]),
                    "take the communicator down");
    /* Freeing waits for the device: not before every rank of the process is done. */
    if (!failed && s->count == 1 && !multi_barrier(s->rank))
        failed = true;
    for (int i = 0; i < s->count && !failed; i++)
        gpu_close(&s->g[i]);
    free(s);
}

static void begin(void *state, const matrix_case *c)
{
    struct ranks *s = state;

    drop_graphs(s);
    for (int i = 0; i < s->count; i++)
        gpu_forget(&s->g[i]);
    s->hash = value_mix(c->id ^ 0x67707573ull);
    s->graphs = c->v[DIM_STREAM] != 0;
}

static void *reserve(void *state, int i, size_t bytes)
{
    struct ranks *s = state;

    return gpu_at(gpu_reserve(&s->g[i], bytes));
}

static bool send(void *state, int i, void *there, const void *here, size_t bytes)
{
    struct ranks *s = state;

    return gpu_enter(&s->g[i]) &&
            gpu_send(&s->g[i], (CUdeviceptr)(uintptr_t)there, here, bytes);
}

static bool fetch(void *state, int i, void *here, const void *there, size_t bytes)
{
    struct ranks *s = state;

    return gpu_enter(&s->g[i]) &&
            gpu_fetch(&s->g[i], here, (CUdeviceptr)(uintptr_t)there, bytes);
}

/** A default stream belongs to the whole context, or to the thread: not with several ranks. */
static CUstream choose(const struct ranks *s, int i)
{
    bool any = !s->graphs && s->count == 1;

    if (any && s->hash % 8 == 0)
        return CU_STREAM_PER_THREAD;
    if (any && s->alone && s->hash % 8 == 1)
        return (s->hash >> 8) & 1 ? CU_STREAM_LEGACY : NULL;
    return s->g[i].stream[(s->hash >> 4) & 1];
}

static cudaStream_t stream(void *state, int i)
{
    const struct ranks *s = state;

    return gpu_handle(choose(s, i));
}

static bool record(void *state)
{
    struct ranks *s = state;
    bool fine = true;

    for (int i = 0; i < s->count && fine; i++)
        fine = gpu_enter(&s->g[i]) &&
                gpu_record(&s->g[i], choose(s, i),
                        s->hash & 256 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                      : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return fine;
}

static bool recorded(void *state)
{
    struct ranks *s = state;
    CUgraph graph[MULTI_MAX_RANKS];
    bool fine = true;

    for (int i = 0; i < s->count && fine; i++)
        fine = gpu_enter(&s->g[i]) && gpu_end_record(&s->g[i], choose(s, i), &graph[i]);
    for (int i = 0; i < s->count && fine; i++)
        fine = gpu_enter(&s->g[i]) && gpu_make_graph(&s->g[i], graph[i], &s->graph[i]);
    return fine;
}

/** On either stream, whichever was recorded. */
static bool play(void *state)
{
    struct ranks *s = state;
    bool fine = true;

    s->hash = value_mix(s->hash);
    for (int i = 0; i < s->count && fine; i++)
        fine = gpu_enter(&s->g[i]) && gpu_play(&s->g[i], s->graph[i], choose(s, i));
    return fine;
}

static bool sync(void *state)
{
    struct ranks *s = state;
    bool fine = true;

    for (int i = 0; i < s->count && fine; i++) {
        fine = gpu_enter(&s->g[i]);
        for (int k = 0; k < GPU_STREAMS && fine; k++)
            fine = gpu_sync(&s->g[i], s->g[i].stream[k]);
    }
    if (fine && s->count == 1)
        fine = gpu_sync(&s->g[0], choose(s, 0));
    for (int i = 0; i < s->count && fine; i++)
        fine = gpu_well(s->rank, s->rank->comms[i]);
    return fine;
}

static const matrix_target target = { .streamed = ", captured",
    .rounds = 3,
    .many = 100,
    .environment = gpu_environment,
    .look = gpu_look,
    .open = open_ranks,
    .close = close_ranks,
    .begin = begin,
    .reserve = reserve,
    .send = send,
    .fetch = fetch,
    .stream = stream,
    .record = record,
    .recorded = recorded,
    .play = play,
    .sync = sync };

const matrix_target *const matrix_there = &target;
