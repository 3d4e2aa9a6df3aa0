/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input and edges: what is refused with which code, and what must not be. */
#include "suite.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 1021
#define BYTES (COUNT * sizeof(float))

struct two {
    CUdeviceptr from, to;
};

static bool make(gpu_rank *g, struct two *b)
{
    b->from = gpu_reserve(g, 4 * BYTES);
    b->to = gpu_reserve(g, 4 * BYTES);
    return b->from != 0 && b->to != 0 &&
            suite_put(g, b->from, 1, g->number, 0, 4 * COUNT) &&
            gpu_fill(g, b->to, 0x5a, 4 * BYTES);
}

/** The communicator is as good as before what was refused. */
static bool still_well(gpu_rank *g, const struct two *b)
{
    return suite_put(g, b->from, 9, g->number, 0, COUNT) &&
            suite_sum(g, g->comm, b->from, b->to, COUNT, g->stream[0]) &&
            gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
            suite_is_sum(g, b->to, 9, COUNT, "an operation after a refusal");
}

static bool refused(gpu_rank *g, const void *from, void *to, CUstream stream,
        const char *what)
{
    return multi_expect(g->rank,
            ncclAllReduce(from, to, COUNT, ncclFloat32, ncclSum, g->comm,
                    gpu_handle(stream)),
            ncclInvalidArgument, "%s", what);
}

/** In check mode, ordinary memory is refused, on whichever side. */
static void host_pointers(gpu_rank *g)
{
    void *host = calloc(1, BYTES);
    struct two b;

    if (multi_check(g->rank, host != NULL, "no memory") && make(g, &b) &&
            refused(g, host, gpu_at(b.to), g->stream[0], "host memory sent from") &&
            refused(g, gpu_at(b.from), host, g->stream[0], "host memory received into"))
        (void)still_well(g, &b);
    free(host);
}

static void freed_pointers(gpu_rank *g)
{
    CUdeviceptr gone = 0;
    struct two b;

    if (!make(g, &b) ||
            !gpu_ok(g, g->cu->cuMemAlloc_v2(&gone, 4u << 20), "cuMemAlloc") ||
            !gpu_ok(g, g->cu->cuMemFree_v2(gone), "cuMemFree") ||
            !refused(g, gpu_at(b.from), gpu_at(gone), g->stream[0], "freed memory"))
        return;
    (void)still_well(g, &b);
}

static void memory_of_another_device(gpu_rank *g)
{
    gpu_rank other;
    struct two b;

    if (!make(g, &b) || !gpu_open(&other, g->rank, g->number + 1, 4u << 20) ||
            !gpu_enter(g))
        return;
    if (refused(g, gpu_at(other.pool), gpu_at(b.to), g->stream[0],
                "memory of another device"))
        (void)still_well(g, &b);
    if (multi_barrier(g->rank))
        gpu_close(&other);
    (void)gpu_enter(g);
}

static void null_pointers(gpu_rank *g)
{
    struct two b;

    if (make(g, &b) && refused(g, NULL, gpu_at(b.to), g->stream[0], "NULL sent from") &&
            refused(g, gpu_at(b.from), NULL, g->stream[0], "NULL received into"))
        (void)still_well(g, &b);
}

/** Pinned and managed memory is reached by the device: right values, or a refusal. */
static void other_memory(gpu_rank *g)
{
    CUdeviceptr managed = 0;
    void *pinned = NULL;
    ncclResult_t got;
    struct two b;

    if (!make(g, &b) || !gpu_ok(g, g->cu->cuMemHostAlloc(&pinned, BYTES, 0), "pinned"))
        return;
    value_fill(pinned, ncclFloat32, VALUE_SUM, 3, g->number, 0, COUNT);
    got = ncclAllReduce(pinned, gpu_at(b.to), COUNT, ncclFloat32, ncclSum, g->comm,
            gpu_handle(g->stream[0]));
    if (multi_ok(g->rank, got, "from pinned memory") && gpu_sync(g, g->stream[0]) &&
            gpu_well(g->rank, g->comm))
        (void)suite_is_sum(g, b.to, 3, COUNT, "from pinned memory");
    if (!multi_failed(g->rank) &&
            gpu_ok(g, g->cu->cuMemAllocManaged(&managed, BYTES, 1), "managed") &&
            suite_put(g, managed, 4, g->number, 0, COUNT) &&
            suite_sum(g, g->comm, managed, b.to, COUNT, g->stream[0]) &&
            gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm))
        (void)suite_is_sum(g, b.to, 4, COUNT, "from managed memory");
    if (multi_failed(g->rank) || !multi_barrier(g->rank))
        return;
    (void)gpu_ok(g, g->cu->cuMemFreeHost(pinned), "cuMemFreeHost");
    (void)gpu_ok(g, g->cu->cuMemFree_v2(managed), "cuMemFree");
}

/** A count of 0 touches nothing, and keeps ranks in step. */
static void nothing_to_do(gpu_rank *g)
{
    cudaStream_t s = gpu_handle(g->stream[0]);
    struct two b;
    void *from, *to;

    if (!make(g, &b))
        return;
    from = gpu_at(b.from);
    to = gpu_at(b.to);
    (void)multi_ok(g->rank,
            ncclAllReduce(from, to, 0, ncclFloat32, ncclSum, g->comm, s), "all_reduce");
    (void)multi_ok(g->rank, ncclBroadcast(from, to, 0, ncclInt8, 1, g->comm, s),
            "broadcast");
    (void)multi_ok(g->rank, ncclAllGather(from, to, 0, ncclFloat64, g->comm, s),
            "all_gather");
    (void)multi_ok(g->rank, ncclAlltoAll(from, to, 0, ncclFloat64, g->comm, s),
            "all_to_all");
    (void)multi_ok(g->rank,
            ncclReduceScatter(from, to, 0, ncclFloat16, ncclMax, g->comm, s),
            "reduce_scatter");
    (void)multi_ok(g->rank,
            g->number == 0           ? ncclSend(from, 0, ncclInt8, 1, g->comm, s)
                    : g->number == 1 ? ncclRecv(to, 0, ncclInt8, 0, g->comm, s)
                                     : ncclSuccess,
            "a message of nothing");
    if (gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
            suite_is_filled(g, b.to, 0x5a, 4 * BYTES, "after operations of nothing"))
        (void)still_well(g, &b);
}

static ncclResult_t message_to(gpu_rank *g, const struct two *b, int peer)
{
    cudaStream_t s = gpu_handle(g->stream[0]);
    ncclResult_t got = ncclGroupStart();

    if (got == ncclSuccess)
        got = ncclSend(gpu_at(b->from), COUNT, ncclFloat32, peer, g->comm, s);
    if (got == ncclSuccess)
        got = ncclRecv(gpu_at(b->to), COUNT, ncclFloat32, peer, g->comm, s);
    return got == ncclSuccess ? ncclGroupEnd() : (ncclGroupEnd(), got);
}

static void messages_to_self(gpu_rank *g)
{
    struct two b, same;

    if (!make(g, &b) ||
            !multi_ok(g->rank, message_to(g, &b, g->number), "a message to oneself") ||
            !gpu_sync(g, g->stream[0]) || !gpu_well(g->rank, g->comm) ||
            !suite_is(g, b.to, 1, g->number, 0, COUNT, "a message to oneself"))
        return;
    same = (struct two){ b.from, b.from };
    if (!multi_ok(g->rank, message_to(g, &same, g->number), "from and to one place") ||
            !gpu_sync(g, g->stream[0]) ||
            !suite_is(g, b.from, 1, g->number, 0, COUNT, "from and to one place"))
        return;
    /* Outside a group nobody could ever receive it. */
    (void)multi_check(g->rank,
            ncclSend(gpu_at(b.from), COUNT, ncclFloat32, g->number, g->comm,
                    gpu_handle(g->stream[0])) != ncclSuccess,
            "a lone send to oneself was accepted");
    (void)still_well(g, &b);
}

/** In place all_to_all has no result, or is refused: but all ranks alike, and no hang. */
static void all_to_all_in_place(gpu_rank *g)
{
    struct two b;
    ncclResult_t got;

    if (!make(g, &b))
        return;
    got = ncclAlltoAll(gpu_at(b.from), gpu_at(b.from), COUNT, ncclFloat32, g->comm,
            gpu_handle(g->stream[0]));
    (void)multi_check(g->rank,
            got == ncclSuccess || got == ncclInvalidArgument || got == ncclInvalidUsage,
            "the result is %d", (int)got);
    if (gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm))
        (void)still_well(g, &b);
}

/** A stream that belongs to a context other than the device's primary one. */
static void foreign_stream(gpu_rank *g)
{
    CUcontext foreign = NULL;
    CUstream stream = NULL;
    struct two b;
    bool fine = make(g, &b);

    if (fine && g->cu->cuCtxCreate_v2 == NULL) {
        (void)still_well(g, &b);
        return;
    }
    fine = fine &&
            gpu_ok(g, g->cu->cuCtxCreate_v2(&foreign, 0, g->ordinal), "context") &&
            gpu_ok(g, g->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                    "stream") &&
            gpu_enter(g);
    if (fine && refused(g, gpu_at(b.from), gpu_at(b.to), stream, "a foreign stream"))
        (void)still_well(g, &b);
    if (foreign != NULL && !multi_failed(g->rank))
        (void)gpu_ok(g, g->cu->cuCtxDestroy_v2(foreign), "cuCtxDestroy");
    (void)gpu_enter(g);
}

static void stream_of_another_device(gpu_rank *g)
{
    gpu_rank other;
    struct two b;

    if (!make(g, &b) || !gpu_open(&other, g->rank, g->number + 1, 0) || !gpu_enter(g))
        return;
    if (refused(g, gpu_at(b.from), gpu_at(b.to), other.stream[0],
                "a stream of another device"))
        (void)still_well(g, &b);
    gpu_close(&other);
    (void)gpu_enter(g);
}

#define CHECKED .environment = { "NCCL_CHECK_POINTERS=1" }

/** Launches that block, and one thread for two ranks: refused before anything hangs. */
static void blocking_launches(gpu_rank *g)
{
    ncclComm_t comm[2] = { NULL, NULL };
    ncclUniqueId id;
    bool fine = multi_ok(g->rank, ncclGetUniqueId(&id), "ncclGetUniqueId") &&
            multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart");

    for (int r = 0; fine && r < 2; r++)
        fine = multi_ok(g->rank, ncclCommInitRank(&comm[r], 2, id, r),
                "ncclCommInitRank");
    (void)(fine &&
            multi_expect(g->rank, ncclGroupEnd(), ncclInvalidUsage,
                    "one thread for two ranks") &&
            multi_check(g->rank,
                    strstr(ncclGetLastError(NULL), "CUDA_LAUNCH_BLOCKING=1") != NULL,
                    "the sentence is: %s", ncclGetLastError(NULL)));
}

/** Memory that ends before the count does. */
static void short_buffers(gpu_rank *g)
{
    const size_t bytes = 2u << 20; /* what the driver gives at least */
    void *memory = NULL;
    struct two b;

    if (!make(g, &b) ||
            !multi_ok(g->rank, ncclMemAlloc(&memory, bytes), "ncclMemAlloc"))
        return;
    (void)(refused(g, gpu_at(b.from), (char *)memory + bytes - 8, g->stream[0],
                   "an output of 8 bytes") &&
            still_well(g, &b));
    (void)multi_ok(g->rank, ncclMemFree(memory), "ncclMemFree");
}

const suite_test suite_refusals[] = {
    SUITE_ROW("host memory is refused in check mode", host_pointers, THREADS, 2,
            CHECKED),
    SUITE_ROW("freed memory is refused in check mode", freed_pointers, PROCESSES, 2,
            CHECKED),
    SUITE_ROW("memory of another device is refused in check mode",
            memory_of_another_device, PROCESSES, 2, CHECKED, .only = SUITE_DEVICES),
    SUITE_ROW("blocking launches with two ranks of a thread are refused",
            blocking_launches, PROCESSES, 1, .vendor = SUITE_CUDA,
            .environment = { "CUDA_LAUNCH_BLOCKING=1" }),
    SUITE_ROW("buffers that are too short are refused in check mode", short_buffers,
            THREADS, 2, CHECKED),
    SUITE_ROW("NULL is refused always", null_pointers, THREADS, 2),
    SUITE_ROW("pinned and managed memory work", other_memory, THREADS, 2),
    SUITE_ROW("a count of 0 touches nothing", nothing_to_do, THREADS, 3),
    SUITE_ROW("a count of 0 touches nothing", nothing_to_do, PROCESSES, 2),
    SUITE_ROW("messages to oneself", messages_to_self, THREADS, 2),
    SUITE_ROW("all_to_all in place hangs nobody", all_to_all_in_place, THREADS, 3),
    SUITE_ROW("a stream of a foreign context is refused", foreign_stream, PROCESSES, 2,
            .vendor = SUITE_CUDA),
    SUITE_ROW("a stream of another device is refused", stream_of_another_device,
            PROCESSES, 2, .only = SUITE_DEVICES),
    { .sentence = NULL },
};
