/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong on machines with AMD cards, each on demand of the stand-in
 * (tests/fakehip/fakehip.h): which path the ranks then take and what is said of the one
 * that they do not, or which sentence they fail with, always within a deadline.
 */
#include "suite.h"

#include <motet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a row expects; no variables of the library's. */
#define EXPECTED      "EXPECTED_PATH"
#define EXPECTED_WORD "EXPECTED_WORD" /* in the log of rank 0, or in the sentence */

#define AGAIN_MS 4000 /* what is known takes no proof that runs out of time, 5 s each */
#define INIT_MS  40000 /* a communicator is made within, whatever is wrong */
#define ROOM     (30011 * sizeof(float))

/** The log of rank 0's process has @p word. */
static bool log_has(gpu_rank *g, const char *word)
{
    static char text[1 << 20];

    if (word == NULL || g->number != 0)
        return true;
    suite_read_log(g->rank, text, sizeof(text));
    return multi_check(g->rank, strstr(text, word) != NULL,
            "the log has no \"%s\": %.3000s", word, text);
}

/** Communicator number @p slot over all ranks, made within @p limit_ms. The result is the
 * caller's to judge. */
static ncclResult_t make_within(gpu_rank *g, int slot, unsigned limit_ms,
        ncclComm_t *out)
{
    uint64_t start = multi_now_ns();
    ncclUniqueId id;
    ncclResult_t got = ncclInternalError;

    *out = NULL;
    if (multi_id(g->rank, slot, &id) && gpu_enter(g))
        got = ncclCommInitRank(out, g->rank->nranks, id, g->rank->rank);
    (void)multi_check(g->rank, multi_now_ns() - start < limit_ms * 1000000ull,
            "the init took %llu ms",
            (unsigned long long)((multi_now_ns() - start) / 1000000));
    return got;
}

/** The first one. */
static ncclResult_t make(gpu_rank *g, ncclComm_t *out)
{
    return make_within(g, 0, INIT_MS, out);
}

static bool path_is(gpu_rank *g, const char *expected)
{
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;

    return multi_ok(g->rank, motet_comm_query(g->comm, &info), "motet_comm_query") &&
            multi_check(g->rank, strcmp(info.path, expected) == 0,
                    "the path is %s, expected %s", info.path, expected);
}

/** Operations of all kinds and of several sizes. */
static bool all_is_right(gpu_rank *g)
{
    static const size_t counts[] = { 1, 61, 5003, 30011 - 16 };
    CUdeviceptr in = gpu_reserve(g, ROOM), out = gpu_reserve(g, 4 * ROOM);
    bool fine = in != 0 && out != 0;

    for (size_t i = 0; fine && i < sizeof(counts) / sizeof(*counts); i++)
        fine = suite_round(g, in, out, ROOM, counts[i], 20 + i);
    gpu_forget(g);
    return fine;
}

static void end(gpu_rank *g)
{
    (void)multi_ok(g->rank,
            multi_failed(g->rank) ? ncclCommAbort(g->comm) : ncclCommDestroy(g->comm),
            "take the communicator down");
    g->comm = NULL;
}

static void takes_path(gpu_rank *g)
{
    if (!multi_ok(g->rank, make(g, &g->comm), "ncclCommInitRank"))
        return;
    (void)(path_is(g, getenv(EXPECTED)) && all_is_right(g) &&
            log_has(g, getenv(EXPECTED_WORD)));
    end(g);
}

/** The next communicator finds its path, and at once: within @p limit_ms. */
static bool finds_again(gpu_rank *g, unsigned limit_ms)
{
    takes_path(g);
    if (multi_failed(g->rank) ||
            !multi_ok(g->rank, make_within(g, 1, limit_ms, &g->comm),
                    "ncclCommInitRank"))
        return false;
    (void)(path_is(g, getenv(EXPECTED)) && all_is_right(g));
    end(g);
    return !multi_failed(g->rank);
}

/** What a veto taught is not tried again, which is said: a second proof would not. */
static void remembers(gpu_rank *g)
{
    (void)(finds_again(g, INIT_MS) && log_has(g, "it failed before in this boot"));
}

/** A protocol that hung is not waited for again. */
static void waits_once(gpu_rank *g)
{
    (void)finds_again(g, AGAIN_MS);
}

/** Memory that is not there is refused with the runtime's word; nothing else suffers. */
static void is_refused_memory(gpu_rank *g)
{
    void *memory = NULL;

    if (!multi_ok(g->rank, make(g, &g->comm), "ncclCommInitRank"))
        return;
    (void)(multi_expect(g->rank, ncclMemAlloc(&memory, (size_t)1 << 30),
                   ncclUnhandledCudaError, "ncclMemAlloc") &&
            multi_check(g->rank,
                    strstr(ncclGetLastError(NULL), "hipErrorOutOfMemory") != NULL,
                    "the sentence is \"%s\"", ncclGetLastError(NULL)) &&
            all_is_right(g));
    end(g);
}

/* ---- cards that stop ---- */

/** Work until it fails, which both ranks must see; rank 1's card is at fault. */
static void stops(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, ROOM), to = gpu_reserve(g, ROOM);
    const char *word = getenv(EXPECTED_WORD);
    ncclResult_t state = make(g, &g->comm);
    uint64_t start = multi_now_ns();

    if (from == 0 || to == 0 || !multi_ok(g->rank, state, "ncclCommInitRank"))
        return;
    while (state == ncclSuccess && multi_now_ns() - start < 20000000000ull) {
        state = ncclAllReduce(gpu_at(from), gpu_at(to), 5003, ncclFloat32, ncclSum,
                g->comm, gpu_handle(g->stream[0]));
        if (state == ncclSuccess)
            (void)ncclCommGetAsyncError(g->comm, &state);
        multi_sleep_us(2000);
    }
    (void)multi_check(g->rank,
            state == ncclUnhandledCudaError || state == ncclRemoteError,
            "the result is %d: %s", (int)state, ncclGetLastError(g->comm));
    if (state == ncclUnhandledCudaError)
        (void)suite_says(g, g->comm, word);
    (void)suite_says(g, g->comm, "rank");
    (void)multi_ok(g->rank, ncclCommAbort(g->comm), "ncclCommAbort");
    g->comm = NULL;
    if (!multi_failed(g->rank))
        multi_vanish(g->rank); /* its stream may never be idle */
}

/** Rank 1's kernels never start: the deadline ends the operation on every rank. */
static void hangs(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, ROOM), to = gpu_reserve(g, ROOM);

    if (from == 0 || to == 0 ||
            !multi_ok(g->rank, make(g, &g->comm), "ncclCommInitRank") ||
            !suite_sum(g, g->comm, from, to, 5003, g->stream[0]))
        return;
    (void)multi_expect(g->rank, suite_fate(g, g->comm, 15000), ncclRemoteError,
            "its fate");
    (void)suite_says(g, g->comm, g->number == 0 ? "rank 1" : "rank");
    (void)multi_check(g->rank, gpu_idle_within(g, g->stream[0], 5000),
            "a kernel still waits");
    (void)multi_ok(g->rank, ncclCommAbort(g->comm), "ncclCommAbort");
    g->comm = NULL;
}

/* ---- who sees what ---- */

/** Rank 0 sees all cards, the others only their own, which they call number 0. */
static void see_unevenly(multi_rank *rank)
{
    char ordinal[16];

    (void)snprintf(ordinal, sizeof(ordinal), "%d", rank->rank % gpu_devices());
    if (rank->rank != 0)
        (void)setenv("ROCR_VISIBLE_DEVICES", ordinal, 1);
}

/** Rank 0's card has no memory left when the library comes. */
static void short_of_memory(multi_rank *rank)
{
    if (rank->rank == 0)
        (void)setenv("FAKEHIP_ALLOCATIONS", "1", 1);
}

/** Its kernels of operations; those of the proof work. */
static void hang_on_rank_1(multi_rank *rank)
{
    if (rank->rank == 1)
        (void)setenv("FAKEHIP_HANG",
                "motet_small_f32,motet_ll_reduce,motet_stage_reduce", 1);
}

#define ROW(words, body, how, ranks, ...)                             \
    SUITE_ROW(words, body, how, ranks, .no_comm = true, .logs = true, \
            .only = SUITE_FAKE, .vendor = SUITE_HIP, .deadline_s = 60, __VA_ARGS__)
#define WITH(...) .environment = { __VA_ARGS__ }

const suite_test suite_hip[] = {
    /* peer access */
    ROW("no peer access: ranks meet in host memory", takes_path, PROCESSES, 2,
            WITH("FAKE_PEER=none", EXPECTED "=staged",
                    EXPECTED_WORD "=not on the direct path")),
    ROW("no peer access: ranks meet in host memory", takes_path, THREADS, 3,
            WITH("FAKE_PEER=none", "FAKE_DEVICES=3", EXPECTED "=staged")),
    ROW("bytes to a peer that are dropped", remembers, PROCESSES, 2,
            WITH("FAKE_IMPORT=drop", EXPECTED "=staged",
                    EXPECTED_WORD "=does not arrive")),
    ROW("bytes of a peer that read as 0", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=zero", EXPECTED "=staged",
                    EXPECTED_WORD "=shows other bytes")),
    ROW("bytes of a peer that read as all ones", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=ones", EXPECTED "=staged",
                    EXPECTED_WORD "=shows other bytes")),
    ROW("a mapping of a peer that is a private copy", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=private", EXPECTED "=staged",
                    EXPECTED_WORD "=does not arrive")),
    ROW("bytes that arrive in one direction only", takes_path, PROCESSES, 3,
            WITH("FAKE_IMPORT=oneway", "FAKE_DEVICES=3", EXPECTED "=staged",
                    EXPECTED_WORD "=does not arrive")),
    ROW("bytes that arrive 200 ms late", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=slow", EXPECTED "=staged",
                    EXPECTED_WORD "=not on the direct path")),
    ROW("reads of a peer that are stale", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=stale", EXPECTED "=staged",
                    EXPECTED_WORD "=not on the direct path")),
    ROW("a flag that arrives before its data", takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=flagfirst", EXPECTED "=staged",
                    EXPECTED_WORD "=not on the direct path")),
    ROW("a flag that arrives before its data, where only a protocol sees it",
            takes_path, PROCESSES, 2,
            WITH("FAKE_IMPORT=flagfirst", "FAKE_IMPORT_FROM=131072", EXPECTED "=staged",
                    EXPECTED_WORD "=not on the direct path")),
    ROW("a protocol that hangs is given up", waits_once, PROCESSES, 2,
            WITH("FAKE_HANG=motet_ll_copy", EXPECTED "=staged",
                    EXPECTED_WORD "=give up protocols")),
    ROW("an operation that hangs on one card ends by its deadline", hangs, PROCESSES, 2,
            .before = hang_on_rank_1, WITH("MOTET_OP_TIMEOUT_S=2")),
    ROW("no handles are given", takes_path, PROCESSES, 2,
            WITH("FAKE_IPC=noget", EXPECTED "=staged",
                    EXPECTED_WORD "=cannot be shared with another process")),
    ROW("no handle can be opened", takes_path, PROCESSES, 2,
            WITH("FAKE_IPC=noopen", EXPECTED "=staged",
                    EXPECTED_WORD "=hipIpcOpenMemHandle")),
    ROW("memory that is coarse, whatever the runtime calls it", takes_path, PROCESSES,
            2,
            WITH("FAKE_TARGET=gfx1201", "FAKE_FINEGRAIN=0", EXPECTED "=staged",
                    EXPECTED_WORD "=cannot be shared with another process")),
    ROW("memory that is coarse, whatever the runtime calls it", takes_path, THREADS, 2,
            WITH("FAKE_TARGET=gfx1201", "FAKE_FINEGRAIN=0", EXPECTED "=staged",
                    EXPECTED_WORD "=neither uncached nor fine-grained")),
    /* launches */
    ROW("no AtomicOps, refusals at launch: our kernels need none", takes_path,
            PROCESSES, 2,
            WITH("FAKE_ATOMICS=0", "FAKE_REFUSE=launch", EXPECTED "=direct")),
    ROW("no AtomicOps, refusals at sync: our kernels need none", takes_path, PROCESSES,
            2, WITH("FAKE_ATOMICS=0", "FAKE_REFUSE=sync", EXPECTED "=direct")),
    ROW("no AtomicOps, refusals in the last error: our kernels need none", takes_path,
            THREADS, 2, WITH("FAKE_ATOMICS=0", "FAKE_REFUSE=last", EXPECTED "=direct")),
    ROW("all launches refused at launch: copies", takes_path, PROCESSES, 2,
            WITH("FAKE_LAUNCH=refuse", "FAKE_REFUSE=launch", EXPECTED "=copy",
                    EXPECTED_WORD "=hipErrorIllegalState")),
    ROW("all launches refused at sync: copies", takes_path, PROCESSES, 3,
            WITH("FAKE_LAUNCH=refuse", "FAKE_REFUSE=sync", EXPECTED "=copy",
                    EXPECTED_WORD "=hipErrorIllegalState")),
    ROW("all launches refused in the last error only: copies", takes_path, THREADS, 2,
            WITH("FAKE_LAUNCH=refuse", "FAKE_REFUSE=last", EXPECTED "=copy",
                    EXPECTED_WORD "=hipErrorIllegalState")),
    ROW("kernels that start late", takes_path, PROCESSES, 2,
            WITH("FAKE_SLOW_US=3000", EXPECTED "=direct")),
    /* cards */
    ROW("two different cards in one communicator", takes_path, PROCESSES, 2,
            WITH("FAKE_TARGET=gfx1100,gfx1201", EXPECTED "=direct")),
    ROW("waves of 32 and of 64 in one communicator", takes_path, PROCESSES, 2,
            WITH("FAKE_TARGET=gfx1100,gfx942", EXPECTED "=direct")),
    ROW("a card without code takes copies", takes_path, PROCESSES, 2,
            WITH("FAKE_TARGET=gfx928", EXPECTED "=copy",
                    EXPECTED_WORD "=no device code for gfx928")),
    ROW("one card without code takes all to copies", takes_path, PROCESSES, 3,
            WITH("FAKE_TARGET=gfx1100,gfx928", "FAKE_DEVICES=3", EXPECTED "=copy")),
    ROW("a target that the user overrides", takes_path, PROCESSES, 2,
            WITH("FAKE_TARGET=gfx1104", "HSA_OVERRIDE_GFX_VERSION=11.0.0",
                    EXPECTED "=direct")),
    ROW("cards without numbers of their own", takes_path, PROCESSES, 2,
            WITH("FAKE_UUIDS=0", EXPECTED "=direct")),
    ROW("kinds of memory as ROCm 5 numbers them", takes_path, PROCESSES, 2,
            WITH("FAKE_VERSION=5", "NCCL_CHECK_POINTERS=1", EXPECTED "=direct")),
    ROW("kinds of memory as ROCm 7 numbers them", takes_path, PROCESSES, 2,
            WITH("FAKE_VERSION=7", "NCCL_CHECK_POINTERS=1", EXPECTED "=direct")),
    ROW("ranks that see different cards", takes_path, PROCESSES, 3,
            .before = see_unevenly, WITH("FAKE_DEVICES=3", EXPECTED "=direct")),
    /* what fails */
    ROW("cards without memory for an arena take copies", takes_path, PROCESSES, 2,
            WITH("FAKE_ALLOCATIONS=1", EXPECTED "=copy",
                    EXPECTED_WORD "=hipErrorOutOfMemory")),
    ROW("one card without memory for an arena takes all to copies", takes_path,
            PROCESSES, 2, .before = short_of_memory,
            WITH(EXPECTED "=copy", EXPECTED_WORD "=hipErrorOutOfMemory")),
    ROW("memory that is not there is refused", is_refused_memory, PROCESSES, 2,
            WITH("FAKE_MEMORY=536870912")),
    ROW("a card that fails is named with the runtime's words", stops, PROCESSES, 2,
            WITH("FAKE_STOP=60", "FAKE_STOP_HOW=error", "FAKE_STOP_CARD=1",
                    EXPECTED_WORD "=hipErrorLaunchFailure")),
    ROW("a card that stops is noticed", stops, PROCESSES, 2,
            WITH("FAKE_STOP=60", "FAKE_STOP_CARD=1", "MOTET_OP_TIMEOUT_S=2",
                    EXPECTED_WORD "=rank")),
    { .sentence = NULL },
};
