/* SPDX-License-Identifier: Apache-2.0 */
/* How communicators of GPU ranks are made and ended, and who is in them. */
#include "suite.h"

#include <motet.h>

#include <stdio.h>
#include <stdlib.h>

#define COUNT 2049
#define BYTES (COUNT * sizeof(float))
#define MANY  4

/** Wait for a non-blocking call. */
static bool settled(gpu_rank *g, ncclComm_t comm, ncclResult_t got, const char *what)
{
    uint64_t start = multi_now_ns();

    while (got == ncclInProgress && multi_now_ns() - start < 30000000000ull) {
        multi_sleep_us(100);
        if (!multi_ok(g->rank, ncclCommGetAsyncError(comm, &got), "async error"))
            return false;
    }
    return multi_ok(g->rank, got, what);
}

static void nonblocking(gpu_rank *g)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    bool fine = from != 0 && to != 0 && multi_id(g->rank, 1, &id);

    config.blocking = 0;
    fine = fine &&
            settled(g, comm,
                    ncclCommInitRankConfig(&comm, g->rank->nranks, id, g->number,
                            &config),
                    "init");
    for (unsigned i = 0; fine && i < suite_rounds(50); i++) {
        ncclResult_t got;

        if (!suite_put(g, from, i, g->number, 0, COUNT))
            return;
        got = ncclAllReduce(gpu_at(from), gpu_at(to), COUNT, ncclFloat32, ncclSum, comm,
                gpu_handle(g->stream[i & 1]));
        fine = settled(g, comm, got, "all_reduce") && gpu_sync(g, g->stream[i & 1]) &&
                suite_is_sum(g, to, i, COUNT, "the sum");
    }
    if (fine && settled(g, comm, ncclCommFinalize(comm), "finalize"))
        (void)multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

/** Halves of a communicator, used while the whole is used too. */
static void split_in_halves(gpu_rank *g)
{
    int color = g->number % 2, members = 0;
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, 2 * BYTES);
    ncclComm_t half = NULL;
    bool fine = from != 0 && to != 0 &&
            multi_ok(g->rank, ncclCommSplit(g->comm, color, g->number, &half, NULL),
                    "ncclCommSplit") &&
            multi_ok(g->rank, ncclCommCount(half, &members), "ncclCommCount");

    fine = fine &&
            multi_check(g->rank, members == (g->rank->nranks + 1 - color) / 2,
                    "the half has %d ranks", members);
    for (unsigned i = 0; fine && i < suite_rounds(50); i++)
        fine = suite_put(g, from, i, g->number, 0, COUNT) &&
                multi_ok(g->rank,
                        ncclBroadcast(gpu_at(from), gpu_at(to), COUNT, ncclFloat32, 0,
                                half, gpu_handle(g->stream[0])),
                        "ncclBroadcast") &&
                suite_sum(g, g->comm, from, to + BYTES, COUNT, g->stream[1]) &&
                gpu_sync(g, g->stream[0]) && gpu_sync(g, g->stream[1]) &&
                gpu_well(g->rank, half) && gpu_well(g->rank, g->comm) &&
                suite_is(g, to, i, color, 0, COUNT, "the half's broadcast") &&
                suite_is_sum(g, to + BYTES, i, COUNT, "the whole's sum");
    if (half != NULL && fine)
        (void)multi_ok(g->rank, ncclCommDestroy(half), "ncclCommDestroy");
}

static void short_lives(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    bool fine = from != 0 && to != 0;

    for (int i = 1; fine && i < (gpu_is_fake() ? 6 : 40); i++) {
        ncclComm_t comm = NULL;

        multi_doing(g->rank, "life %d", i);
        fine = gpu_comm(g, i, &comm) &&
                suite_put(g, from, (uint64_t)i, g->number, 0, COUNT) &&
                suite_sum(g, comm, from, to, COUNT, g->stream[0]) &&
                /* Destroyed with its operation still on the way. */
                multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy") &&
                gpu_sync(g, g->stream[0]) &&
                suite_is_sum(g, to, (uint64_t)i, COUNT, "a short life's sum");
    }
}

/** What a communicator says of its device. */
static void device_of_a_communicator(gpu_rank *g)
{
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;
    int device = -1;

    (void)multi_ok(g->rank, ncclCommCuDevice(g->comm, &device), "ncclCommCuDevice");
    (void)multi_check(g->rank, device == g->ordinal, "the device is %d, expected %d",
            device, g->ordinal);
    (void)multi_ok(g->rank, motet_comm_query(g->comm, &info), "motet_comm_query");
    (void)multi_check(g->rank, info.device == MOTET_DEVICE_GPU, "the kind is %d",
            (int)info.device);
    (void)multi_check(g->rank, info.ordinal == g->ordinal, "its ordinal is %d",
            info.ordinal);
    printf("      rank %d of %d: device %d, path \"%s\"\n", info.rank, info.nranks,
            info.ordinal, info.path);
}

/** The caller's context is his: init, operations and the end leave it as it was. */
static void context_is_restored(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    CUcontext now = NULL, elsewhere = gpu_elsewhere(g);
    ncclComm_t comm = NULL;

    if (from == 0 || to == 0 || !gpu_comm(g, 1, &comm) ||
            !suite_put(g, from, 1, g->number, 0, COUNT))
        return;
    (void)gpu_ok(g, g->cu->cuCtxGetCurrent(&now), "cuCtxGetCurrent");
    (void)multi_check(g->rank, now == g->context, "init changed the context");
    /* The stream says which device is meant. */
    (void)gpu_ok(g, g->cu->cuCtxSetCurrent(elsewhere), "cuCtxSetCurrent");
    (void)suite_sum(g, comm, from, to, COUNT, g->stream[0]);
    (void)gpu_ok(g, g->cu->cuCtxGetCurrent(&now), "cuCtxGetCurrent");
    (void)multi_check(g->rank, now == elsewhere, "an operation changed the context");
    (void)(gpu_enter(g) && gpu_sync(g, g->stream[0]) &&
            suite_is_sum(g, to, 1, COUNT, "the sum"));
    (void)gpu_ok(g, g->cu->cuCtxSetCurrent(elsewhere), "cuCtxSetCurrent");
    (void)multi_ok(g->rank, ncclCommDestroy(comm), "ncclCommDestroy");
    (void)gpu_ok(g, g->cu->cuCtxGetCurrent(&now), "cuCtxGetCurrent");
    (void)multi_check(g->rank, now == elsewhere, "destroy changed the context");
    (void)gpu_enter(g);
}

/* ---- one thread ---- */

/** The ranks that one thread drives. */
struct crowd {
    int n;
    gpu_rank g[MANY];
    ncclComm_t comm[MANY];
    CUdeviceptr from[MANY], to[MANY];
};

static bool crowd_open(gpu_rank *first, struct crowd *c)
{
    bool fine = true;

    c->n = first->rank->nranks;
    for (int i = 0; i < c->n && fine; i++) {
        fine = gpu_open(&c->g[i], first->rank, i, 8u << 20);
        c->from[i] = fine ? gpu_reserve(&c->g[i], BYTES) : 0;
        c->to[i] = fine ? gpu_reserve(&c->g[i], BYTES) : 0;
    }
    return fine;
}

static bool crowd_sum(struct crowd *c, uint64_t seed)
{
    multi_rank *rank = c->g[0].rank;
    bool fine = true;

    for (int i = 0; i < c->n && fine; i++)
        fine = gpu_enter(&c->g[i]) &&
                suite_put(&c->g[i], c->from[i], seed, i, 0, COUNT);
    fine = fine && multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < c->n && fine; i++)
        fine = suite_sum(&c->g[i], c->comm[i], c->from[i], c->to[i], COUNT,
                c->g[i].stream[0]);
    fine = fine && multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    for (int i = 0; i < c->n && fine; i++)
        fine = gpu_enter(&c->g[i]) && gpu_sync(&c->g[i], c->g[i].stream[0]) &&
                gpu_well(rank, c->comm[i]) &&
                suite_is_sum(&c->g[i], c->to[i], seed, COUNT, "the sum");
    return fine;
}

static void crowd_close(struct crowd *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->comm[i] != NULL)
            (void)multi_ok(c->g[0].rank, ncclCommDestroy(c->comm[i]), "destroy");
    for (int i = 0; i < c->n; i++)
        gpu_close(&c->g[i]);
}

/** A communicator for all ranks by one call: a rank for each device, each device once. */
static void made_by_init_all(gpu_rank *g)
{
    struct crowd *c = calloc(1, sizeof(*c));
    int devices[MANY], twice[] = { 0, 0 };

    if (g->rank->nranks > g->cu->devices)
        g->rank->nranks = g->cu->devices;
    if (!multi_check(g->rank, c != NULL, "no memory") || !crowd_open(g, c))
        return;
    for (int i = 0; i < c->n; i++)
        devices[i] = c->g[i].ordinal;
    (void)multi_expect(g->rank, ncclCommInitAll(c->comm, 2, twice), ncclInvalidUsage,
            "one device twice");
    for (int i = 0; i < c->n; i++)
        c->comm[i] = NULL;
    if (multi_ok(g->rank, ncclCommInitAll(c->comm, c->n, devices), "ncclCommInitAll"))
        for (uint64_t i = 0; i < 10 && crowd_sum(c, i); i++)
            ;
    if (!multi_failed(g->rank))
        crowd_close(c);
    free(c);
}

static void made_in_a_group(gpu_rank *g)
{
    struct crowd *c = calloc(1, sizeof(*c));

    if (!multi_check(g->rank, c != NULL, "no memory") || !crowd_open(g, c))
        return;
    if (gpu_comms(c->g, c->n, 0, c->comm))
        for (uint64_t i = 0; i < 10 && crowd_sum(c, i); i++)
            ;
    if (!multi_failed(g->rank))
        crowd_close(c);
    free(c);
}

/** As under Slurm or Ray: each process sees one device, all call theirs number 0. */
static void one_visible_device_each(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);

    (void)multi_check(g->rank, g->cu->devices == 1, "%d devices are visible",
            g->cu->devices);
    for (unsigned i = 0; i < 20 && from != 0 && to != 0; i++)
        if (!suite_put(g, from, i, g->number, 0, COUNT) ||
                !suite_sum(g, g->comm, from, to, COUNT, g->stream[0]) ||
                !gpu_sync(g, g->stream[0]) || !gpu_well(g->rank, g->comm) ||
                !suite_is_sum(g, to, i, COUNT, "the sum"))
            return;
}

const suite_test suite_members[] = {
    SUITE_ROW("a non-blocking communicator", nonblocking, THREADS, 2),
    SUITE_ROW("a non-blocking communicator", nonblocking, PROCESSES, 2),
    SUITE_ROW("halves of a communicator beside the whole", split_in_halves, THREADS, 4),
    SUITE_ROW("halves of a communicator beside the whole", split_in_halves, PROCESSES,
            3),
    SUITE_ROW("communicators with short lives", short_lives, THREADS, 2),
    SUITE_ROW("communicators with short lives", short_lives, PROCESSES, 2),
    SUITE_ROW("a communicator of one rank", short_lives, PROCESSES, 1),
    SUITE_ROW("a communicator knows its device", device_of_a_communicator, THREADS, 2),
    SUITE_ROW("a communicator knows its device", device_of_a_communicator, PROCESSES,
            2),
    SUITE_ROW("the caller's context is restored", context_is_restored, THREADS, 2),
    SUITE_ROW("one thread makes all ranks by ncclCommInitAll", made_by_init_all,
            ONE_THREAD, 4, .no_comm = true),
    SUITE_ROW("one thread makes all ranks in a group", made_in_a_group, ONE_THREAD, 4,
            .no_comm = true),
    SUITE_ROW("each process sees one device only", one_visible_device_each, PROCESSES,
            2, .only = SUITE_DEVICES, .own_device = true),
    { .sentence = NULL },
};
