/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every size around every power of two, so that every protocol and each border between
 * two of them is met, one element below, at and above. The first, the last and some other
 * elements are compared up to the largest sizes; all of them up to WHOLE.
 */
#include "suite.h"

#include <stdio.h>

#define WHOLE  (64u << 10) /* elements that are all compared              */
#define WINDOW 512         /* elements of a place that is compared beyond */
#define PLACES 12

typedef enum sized_what {
    SUM,
    GATHER,
    SCATTER_SUM,
    BROADCAST,
    EXCHANGE,
    MESSAGE,
    WHATS
} sized_what;

static const char *const names[WHATS] = { "all_reduce", "all_gather", "reduce_scatter",
    "broadcast", "all_to_all", "send/recv" };

/** Largest elements of a rank's larger buffer. */
static size_t largest(void)
{
    return gpu_is_fake() ? 300000 : 12u << 20;
}

struct sized {
    sized_what what;
    size_t count; /* as the call says it */
    CUdeviceptr in, out;
    uint64_t seed;
};

static ncclResult_t call(gpu_rank *g, const struct sized *c)
{
    int n = g->rank->nranks, next = (g->number + 1) % n, prev = (g->number + n - 1) % n;
    cudaStream_t s = gpu_handle(g->stream[0]);
    void *in = gpu_at(c->in), *out = gpu_at(c->out);
    ncclResult_t got = ncclSuccess;

    switch (c->what) {
    case SUM: return ncclAllReduce(in, out, c->count, ncclFloat32, ncclSum, g->comm, s);
    case GATHER: return ncclAllGather(in, out, c->count, ncclFloat32, g->comm, s);
    case SCATTER_SUM:
        return ncclReduceScatter(in, out, c->count, ncclFloat32, ncclSum, g->comm, s);
    case BROADCAST: return ncclBroadcast(in, out, c->count, ncclFloat32, 1, g->comm, s);
    case EXCHANGE: return ncclAlltoAll(in, out, c->count, ncclFloat32, g->comm, s);
    default:
        got = ncclGroupStart();
        if (got == ncclSuccess)
            got = ncclSend(in, c->count, ncclFloat32, next, g->comm, s);
        if (got == ncclSuccess)
            got = ncclRecv(out, c->count, ncclFloat32, prev, g->comm, s);
        return got == ncclSuccess ? ncclGroupEnd() : (ncclGroupEnd(), got);
    }
}

/** Elements first … first + count − 1 of a buffer that holds a reduction. */
static bool sum_is(gpu_rank *g, const struct sized *c, size_t first, size_t count)
{
    static _Thread_local float host[WHOLE];
    value_reduction want = { .type = ncclFloat32,
        .op = VALUE_SUM,
        .seed = c->seed,
        .nranks = g->rank->nranks,
        .first = first + (c->what == SCATTER_SUM ? (size_t)g->number * c->count : 0),
        .count = count };
    char why[256];

    if (!gpu_fetch(g, host, c->out + first * sizeof(float), count * sizeof(float)))
        return false;
    return multi_check(g->rank, value_check(host, &want, why, sizeof(why)),
            "%s of %zu: from element %zu: %s", names[c->what], c->count, first, why);
}

static bool part_is(gpu_rank *g, const struct sized *c, size_t first, size_t count)
{
    int n = g->rank->nranks, prev = (g->number + n - 1) % n;
    size_t own = (size_t)g->number * c->count;
    char name[64];

    (void)snprintf(name, sizeof(name), "%s of %zu", names[c->what], c->count);
    switch (c->what) {
    case SUM:
    case SCATTER_SUM: return sum_is(g, c, first, count);
    case BROADCAST:
        return suite_is(g, c->out + first * sizeof(float), c->seed, 1, first, count,
                name);
    case MESSAGE:
        return suite_is(g, c->out + first * sizeof(float), c->seed, prev, first, count,
                name);
    default: break;
    }
    for (int r = 0; r < n; r++)
        if (!suite_is(g, c->out + ((size_t)r * c->count + first) * sizeof(float),
                    c->seed, r, (c->what == EXCHANGE ? own : 0) + first, count, name))
            return false;
    return true;
}

static bool is_right(gpu_rank *g, const struct sized *c)
{
    if (c->count <= WHOLE)
        return part_is(g, c, 0, c->count);
    for (unsigned i = 0; i < PLACES; i++) {
        size_t last = c->count - WINDOW;
        size_t first = i == 0 ? 0
                : i == 1      ? last
                              : value_mix(c->count * PLACES + i) % last;

        if (!part_is(g, c, first, WINDOW))
            return false;
    }
    return true;
}

static void every_size(gpu_rank *g, sized_what what)
{
    size_t most = largest(), n = (size_t)g->rank->nranks;
    size_t factor = what == GATHER || what == SCATTER_SUM || what == EXCHANGE ? n : 1;
    struct sized c = { .what = what };
    bool fine;

    c.in = gpu_reserve(g, (most + 64) * sizeof(float));
    c.out = gpu_reserve(g, (most + 64) * sizeof(float));
    c.seed = 1234;
    fine = c.in != 0 && c.out != 0 &&
            suite_put(g, c.in, c.seed, g->number, 0, most + 64);
    for (size_t step = 1; fine && step * factor <= most; step *= 2)
        for (int off = -1; fine && off <= 1; off++) {
            c.count = step + (size_t)off;
            if (c.count == 0 || c.count * factor > most)
                continue;
            multi_doing(g->rank, "%s of %zu", names[what], c.count);
            fine = gpu_fill(g, c.out, 0xa5, (most + 64) * sizeof(float)) &&
                    multi_ok(g->rank, call(g, &c), names[what]) &&
                    gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
                    is_right(g, &c) &&
                    suite_is_filled(g,
                            c.out +
                                    c.count * (what == SCATTER_SUM ? 1 : factor) *
                                            sizeof(float),
                            0xa5, 64, "behind the output");
        }
}

static void all_reduce(gpu_rank *g)
{
    every_size(g, SUM);
}

static void all_gather(gpu_rank *g)
{
    every_size(g, GATHER);
}

static void reduce_scatter(gpu_rank *g)
{
    every_size(g, SCATTER_SUM);
}

static void broadcast(gpu_rank *g)
{
    every_size(g, BROADCAST);
}

static void all_to_all(gpu_rank *g)
{
    every_size(g, EXCHANGE);
}

static void send_recv(gpu_rank *g)
{
    every_size(g, MESSAGE);
}

const suite_test suite_sizes[] = {
    SUITE_ROW("all_reduce of every size", all_reduce, THREADS, 2),
    SUITE_ROW("all_reduce of every size", all_reduce, THREADS, 4),
    SUITE_ROW("all_reduce of every size", all_reduce, PROCESSES, 2),
    SUITE_ROW("all_gather of every size", all_gather, THREADS, 3),
    SUITE_ROW("all_gather of every size", all_gather, PROCESSES, 2),
    SUITE_ROW("reduce_scatter of every size", reduce_scatter, THREADS, 3),
    SUITE_ROW("reduce_scatter of every size", reduce_scatter, PROCESSES, 2),
    SUITE_ROW("broadcast of every size", broadcast, THREADS, 3),
    SUITE_ROW("broadcast of every size", broadcast, PROCESSES, 2),
    SUITE_ROW("all_to_all of every size", all_to_all, THREADS, 3),
    SUITE_ROW("all_to_all of every size", all_to_all, PROCESSES, 2),
    SUITE_ROW("send and receive of every size", send_recv, THREADS, 3),
    SUITE_ROW("send and receive of every size", send_recv, PROCESSES, 2),
    { .sentence = NULL },
};
