/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives whose buffers lie in windows: `windows [--thin N] [PART-OF-A-SENTENCE]`.
 *
 * Every rank registers one window for what it sends and one for what it receives. In
 * each case one rank comes late, and every rank overwrites what it sent as soon as its
 * call returns: were a reader not awaited, it would read what was not sent. Outputs are
 * poisoned before, and what lies around them is checked after.
 */
#include "windows.h"

#include "values.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON       0xa5
#define EDGE         256 /* bytes around an output that must not change */
#define WINDOW_BYTES ((4u << 20) + 65536)

int windows_thinner = 1;

typedef enum kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    NUM_KINDS
} kind;

static const char *const kind_names[NUM_KINDS] = { "all_reduce", "reduce", "broadcast",
    "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter" };

/* Bytes of the larger buffer: around a slot, around the smallest size read in place, odd,
 * and large. */
static const size_t sizes[] = { 4000, 16384, 16388, 32764, 32768, 70001, 262152, 786427,
    1048576, 3145728, 3145741 };
#define NUM_SIZES (sizeof(sizes) / sizeof(*sizes))

static const ncclDataType_t types[] = { ncclInt32, ncclUint8, ncclFloat16,
    ncclFloat64 };
#define NUM_TYPES (sizeof(types) / sizeof(*types))

typedef struct one_case {
    unsigned number;
    kind kind;
    ncclDataType_t type;
    size_t count;
    int root, late;
    bool in_place;
    size_t shift; /* bytes into the window */
    uint64_t seed;
} one_case;

/* The buffers of one rank, each of WINDOW_BYTES. */
typedef struct buffers {
    uint8_t *send, *recv;
    ncclWindow_t send_window, recv_window;
} buffers;

static bool many_sent(kind k)
{
    return k == REDUCE_SCATTER || k == ALL_TO_ALL || k == SCATTER;
}

static bool many_received(kind k)
{
    return k == ALL_GATHER || k == ALL_TO_ALL || k == GATHER;
}

static bool reduces(kind k)
{
    return k == ALL_REDUCE || k == REDUCE || k == REDUCE_SCATTER;
}

static one_case case_of(unsigned number, int nranks)
{
    one_case c = { .number = number,
        .kind = (kind)(number % NUM_KINDS),
        .in_place = number / NUM_KINDS % 2 != 0 };
    unsigned rest = number / NUM_KINDS / 2;
    size_t bytes = sizes[rest % NUM_SIZES];
    size_t slices = many_sent(c.kind) || many_received(c.kind) ? (size_t)nranks : 1;

    c.type = types[(rest + number) % NUM_TYPES];
    c.seed = value_mix(number);
    c.count = bytes / slices / value_types[c.type].bytes;
    c.root = (int)(c.seed % (uint64_t)nranks);
    c.late = (int)((c.seed >> 8) % (uint64_t)nranks);
    c.shift = EDGE + (c.seed >> 16) % 500 * value_types[c.type].bytes;
    if (c.kind == ALL_TO_ALL)
        c.in_place = false; /* NCCL does not support it */
    return c;
}

static ncclResult_t call(const one_case *c, const void *send, void *recv,
        ncclComm_t comm)
{
    switch (c->kind) {
    case ALL_REDUCE:
        return ncclAllReduce(send, recv, c->count, c->type, ncclSum, comm, NULL);
    case REDUCE:
        return ncclReduce(send, recv, c->count, c->type, ncclSum, c->root, comm, NULL);
    case BROADCAST:
        return ncclBroadcast(send, recv, c->count, c->type, c->root, comm, NULL);
    case ALL_GATHER: return ncclAllGather(send, recv, c->count, c->type, comm, NULL);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, c->count, c->type, ncclSum, comm, NULL);
    case ALL_TO_ALL: return ncclAlltoAll(send, recv, c->count, c->type, comm, NULL);
    case GATHER: return ncclGather(send, recv, c->count, c->type, c->root, comm, NULL);
    default: return ncclScatter(send, recv, c->count, c->type, c->root, comm, NULL);
    }
}

/* Does this rank's call read, or write? */
static bool sends(const one_case *c, int rank)
{
    return (c->kind != BROADCAST && c->kind != SCATTER) || rank == c->root;
}

static bool receives(const one_case *c, int rank)
{
    return (c->kind != REDUCE && c->kind != GATHER) || rank == c->root;
}

/* Where the rank sends from and receives to. */
static void place(const one_case *c, int rank, const buffers *b, uint8_t **send,
        uint8_t **recv)
{
    size_t slice = c->count * value_types[c->type].bytes;

    *recv = b->recv + c->shift;
    *send = c->in_place ? *recv : b->send + c->shift;
    if (!c->in_place)
        return;
    if (many_received(c->kind))
        *send += (size_t)rank * slice;
    if (many_sent(c->kind)) { /* the window holds all that is sent */
        *send = b->recv + c->shift;
        *recv = *send + (size_t)rank * slice;
    }
}

/* What lies in slice @p slice of this rank's output. */
static bool right(const one_case *c, const multi_rank *rank, int slice,
        const uint8_t *out, char *why, size_t bytes)
{
    size_t first = 0, slice_bytes = c->count * value_types[c->type].bytes;
    int from = many_received(c->kind) ? slice : c->root;
    uint8_t *want;
    bool same;

    if (c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER)
        first = (size_t)rank->rank * c->count;
    if (reduces(c->kind)) {
        const value_reduction sum = { .type = (int)c->type,
            .op = VALUE_SUM,
            .seed = c->seed,
            .nranks = rank->nranks,
            .first = first,
            .count = c->count };

        return value_check(out, &sum, why, bytes);
    }
    want = malloc(slice_bytes + 1);
    value_fill(want, (int)c->type, VALUE_SUM, c->seed, from, first, c->count);
    same = want != NULL && memcmp(want, out, slice_bytes) == 0;
    free(want);
    if (!same)
        (void)snprintf(why, bytes, "slice %d is not what rank %d sent", slice, from);
    return same;
}

static bool untouched(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != POISON)
            return false;
    return true;
}

static void run_case(multi_rank *rank, const one_case *c, const buffers *b,
        ncclComm_t comm)
{
    size_t slice = c->count * value_types[c->type].bytes;
    size_t sent = slice * (many_sent(c->kind) ? (size_t)rank->nranks : 1);
    size_t got = slice * (many_received(c->kind) ? (size_t)rank->nranks : 1);
    uint8_t *send, *recv;
    char why[256] = "";

    multi_doing(rank, "case %u: %s of %zu %s%s", c->number, kind_names[c->kind],
            c->count, value_types[c->type].name, c->in_place ? " in place" : "");
    place(c, rank->rank, b, &send, &recv);
    memset(b->recv, POISON, WINDOW_BYTES);
    if (sends(c, rank->rank))
        value_fill(send, (int)c->type, VALUE_SUM, c->seed, rank->rank, 0,
                sent / slice * c->count);
    if (rank->rank == c->late)
        multi_sleep_us(c->number % 3 * 1000);
    if (!multi_ok(rank, call(c, send, recv, comm), kind_names[c->kind]))
        return;
    if (!c->in_place && sends(c, rank->rank))
        memset(send, 0x5a, sent);
    if (receives(c, rank->rank)) {
        for (int s = 0; s < (int)(got / slice); s++)
            if (!multi_check(rank,
                        right(c, rank, s, recv + (size_t)s * slice, why, sizeof(why)),
                        "case %u, %s%s of %zu %s: %s", c->number, kind_names[c->kind],
                        c->in_place ? " in place" : "", c->count,
                        value_types[c->type].name, why))
                return;
        /* In place the whole of the larger buffer is the call's. */
        if (!c->in_place || !many_sent(c->kind))
            (void)multi_check(rank,
                    untouched(recv - EDGE, EDGE) && untouched(recv + got, EDGE),
                    "case %u, %s of %zu: wrote around its output", c->number,
                    kind_names[c->kind], c->count);
    } else if (!c->in_place) {
        (void)multi_check(rank, untouched(b->recv, WINDOW_BYTES),
                "case %u, %s: wrote where it receives nothing", c->number,
                kind_names[c->kind]);
    }
}

/* Memory of ncclMemAlloc() or any other; both start pages. */
static uint8_t *allocate(multi_rank *rank, bool plain)
{
    void *p = NULL;

    if (plain)
        (void)multi_check(rank, (p = aligned_alloc(4096, WINDOW_BYTES)) != NULL,
                "no memory");
    else
        (void)multi_ok(rank, ncclMemAlloc(&p, WINDOW_BYTES), "ncclMemAlloc");
    return p;
}

static void release(multi_rank *rank, bool plain, uint8_t *p)
{
    if (plain)
        free(p);
    else
        (void)multi_ok(rank, ncclMemFree(p), "ncclMemFree");
}

static void collectives(multi_rank *rank)
{
    const windows_test *test = rank->arg;
    bool plain = (test->plain & 1u << rank->rank) != 0;
    unsigned step = (unsigned)((test->thin == 0 ? 1 : test->thin) * windows_thinner);
    buffers b = { allocate(rank, plain), allocate(rank, plain), NULL, NULL };

    if (multi_failed(rank) ||
            !multi_ok(rank,
                    ncclCommWindowRegister(rank->comm, b.send, WINDOW_BYTES,
                            &b.send_window, NCCL_WIN_COLL_SYMMETRIC),
                    "register what is sent") ||
            !multi_ok(rank,
                    ncclCommWindowRegister(rank->comm, b.recv, WINDOW_BYTES,
                            &b.recv_window, NCCL_WIN_COLL_SYMMETRIC),
                    "register what is received"))
        return;
    for (unsigned i = 0; i < NUM_KINDS * 2 * NUM_SIZES && !multi_failed(rank);
            i += step) {
        one_case c = case_of(i, rank->nranks);

        run_case(rank, &c, &b, rank->comm);
    }
    (void)multi_ok(rank, ncclCommWindowDeregister(rank->comm, b.send_window),
            "deregister");
    (void)multi_ok(rank, ncclCommWindowDeregister(rank->comm, b.recv_window),
            "deregister");
    release(rank, plain, b.send);
    release(rank, plain, b.recv);
}

const windows_test windows_collectives[] = {
    { "two processes", collectives, MULTI_PROCESSES, 2, 1, 0, NULL, 0, 0, 0 },
    { "three processes", collectives, MULTI_PROCESSES, 3, 1, 0, NULL, 0, 0, 0 },
    { "four threads", collectives, MULTI_THREADS, 4, 3, 0, NULL, 0, 0, 0 },
    { "five ranks in two processes", collectives, MULTI_MIXED, 5, 3, 0, NULL, 0, 0, 0 },
    { "five processes", collectives, MULTI_PROCESSES, 5, 7, 0, NULL, 0, 0, 0 },
    { "one rank of three without memory to hand on", collectives, MULTI_PROCESSES, 3, 3,
            2, NULL, 0, 0, 0 },
    { "one rank of three with memory to hand on", collectives, MULTI_PROCESSES, 3, 3, 5,
            NULL, 0, 0, 0 },
    { "no rank with memory to hand on", collectives, MULTI_THREADS, 2, 7, 3, NULL, 0, 0,
            0 },
    { "chunks of 4 KiB", collectives, MULTI_PROCESSES, 3, 5, 0,
            "MOTET_CHUNK_BYTES=4096", 0, 0, 0 },
    { "chunks of 1 MiB", collectives, MULTI_PROCESSES, 3, 5, 0, "MOTET_CHUNK_BYTES=1m",
            0, 0, 0 },
    { "all_reduce over the board", collectives, MULTI_PROCESSES, 3, 0, 0,
            "MOTET_ALGO=all_reduce:board", 0, 0, 0 },
    { "all_reduce in two shots", collectives, MULTI_PROCESSES, 4, 5, 0,
            "MOTET_ALGO=all_reduce:twoshot", 0, 0, 0 },
    { "ranks that believe to have a core each", collectives, MULTI_PROCESSES, 2, 5, 0,
            "MOTET_OVERSUBSCRIBED=no", 0, 0, 0 },
    { "ranks that know that they share cores", collectives, MULTI_PROCESSES, 2, 5, 0,
            "MOTET_OVERSUBSCRIBED=yes", 0, 0, 0 },
    { "positions beyond 2^32", collectives, MULTI_PROCESSES, 2, 5, 0,
            "MOTET_EPOCH_START=4294967200", 0, 0, 0 },
    { NULL, NULL, MULTI_THREADS, 0, 0, 0, NULL, 0, 0, 0 },
};

static bool run(const windows_test *test)
{
    const char *environment[] = { test->environment, NULL };
    multi_spec spec = { .name = test->sentence,
        .layout = test->layout,
        .nranks = test->nranks,
        .init = true,
        .deadline_s = 120,
        .shared_bytes = 4096,
        .environment = environment,
        .body = test->body,
        .arg = (void *)(uintptr_t)test,
        .victim = test->victim,
        .signal = test->signal,
        .signal_after_us = test->signal_after_us };

    return multi_run(&spec) == 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "thin", required_argument, NULL, 't' },
        { NULL, 0, NULL, 0 },
    };
    const windows_test *const tables[] = { windows_collectives, windows_lives };
    int c, ran = 0, failed = 0;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 't' || (windows_thinner = (int)strtol(optarg, NULL, 10)) < 1) {
            fprintf(stderr, "usage: windows [--thin N] [PART-OF-A-SENTENCE]\n");
            return 64;
        }
    }
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
        for (const windows_test *test = tables[t]; test->sentence != NULL; test++) {
            bool fine;

            if (optind < argc && strstr(test->sentence, argv[optind]) == NULL)
                continue;
            fine = run(test);
            printf("%s  %s\n", fine ? "ok  " : "FAIL", test->sentence);
            (void)fflush(stdout);
            ran++;
            failed += !fine;
        }
    printf("windows: %d ran, %d failed\n", ran, failed);
    return ran == 0 || failed != 0;
}
