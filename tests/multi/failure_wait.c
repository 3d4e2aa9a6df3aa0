/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are late, absent, stopped, of another opinion, or called off. */
#include "failure.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static uint64_t since_ms(uint64_t start)
{
    return (multi_now_ns() - start) / 1000000;
}

static ncclResult_t sum_once(ncclComm_t comm, cudaStream_t stream)
{
    static _Thread_local int32_t mine = 1, sum;

    return ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, stream);
}

static bool says(multi_rank *rank, ncclComm_t comm, const char *word)
{
    return multi_check(rank, strstr(ncclGetLastError(comm), word) != NULL,
            "the sentence has no \"%s\": \"%s\"", word, ncclGetLastError(comm));
}

static void body_of_the_stopped(multi_rank *rank)
{
    multi_ready(rank);
    for (int i = 0; i < 200; i++) {
        if (!multi_ok(rank, sum_once(rank->comm, NULL), "all_reduce"))
            return;
        multi_sleep_us(1000);
    }
}

/** A stopped rank is late, not dead; the others say once that they wait for it. */
static bool stopped_rank(const failure_test *test)
{
    static char text[65536];
    bool fine = failure_run(test);
    const char *line;

    multi_read_file(failure_stderr, text, sizeof(text));
    line = strstr(text, "rank 1");
    if (line == NULL) {
        printf("FAIL  no line names rank 1 after 1 s: \"%s\"\n", text);
        fine = false;
    }
    return fine;
}

static void deadline_names_who_is_absent(multi_rank *rank)
{
    uint64_t start = multi_now_ns();
    ncclResult_t state;

    if (rank->rank == 2) {
        /* Absent; it learns the end of the communicator from its state. */
        do {
            multi_sleep_us(5000);
            if (!multi_ok(rank, ncclCommGetAsyncError(rank->comm, &state),
                        "async error"))
                return;
        } while (state == ncclSuccess && since_ms(start) < 20000);
        (void)multi_expect(rank, state, ncclRemoteError,
                "the state of the absent rank");
        return;
    }
    (void)multi_expect(rank, sum_once(rank->comm, NULL), ncclRemoteError,
            "an operation without rank 2");
    (void)says(rank, rank->comm, "rank 2");
    (void)multi_check(rank, since_ms(start) >= 980 && since_ms(start) < 5000,
            "the deadline of 1 s came after %llu ms",
            (unsigned long long)since_ms(start));
}

static void missing_rank_at_init_is_named(multi_rank *rank)
{
    uint64_t start = multi_now_ns();
    ncclComm_t comm = (ncclComm_t)(void *)rank;
    ncclUniqueId id;

    if (!multi_id(rank, 0, &id))
        return;
    if (rank->rank == 1) {
        (void)multi_barrier(rank);
        return;
    }
    (void)multi_expect(rank, ncclCommInitRank(&comm, rank->nranks, id, rank->rank),
            ncclRemoteError, "init without rank 1");
    (void)multi_check(rank,
            strstr(ncclGetLastError(NULL), "rank 1") != NULL ||
                    strstr(ncclGetLastError(NULL), "ranks 1") != NULL,
            "the sentence does not name rank 1: \"%s\"", ncclGetLastError(NULL));
    (void)multi_check(rank, comm == NULL, "a communicator was left");
    (void)multi_check(rank, since_ms(start) < 6000,
            "the deadline of 1 s came after %llu ms",
            (unsigned long long)since_ms(start));
    (void)multi_barrier(rank);
}

/* ---- ranks that do not make the same call ---- */

static int32_t from[4096], to[4096];

static ncclResult_t odd_count(bool odd, const multi_rank *rank)
{
    return ncclAllReduce(from, to, odd ? 7 : 8, ncclInt32, ncclSum, rank->comm, NULL);
}

static ncclResult_t odd_type(bool odd, const multi_rank *rank)
{
    return ncclAllReduce(from, to, 8, odd ? ncclFloat32 : ncclInt32, ncclSum,
            rank->comm, NULL);
}

static ncclResult_t odd_op(bool odd, const multi_rank *rank)
{
    return ncclAllReduce(from, to, 8, ncclInt32, odd ? ncclMax : ncclSum, rank->comm,
            NULL);
}

static ncclResult_t odd_root(bool odd, const multi_rank *rank)
{
    return ncclReduce(from, to, 8, ncclInt32, ncclSum, odd ? 1 : 0, rank->comm, NULL);
}

static ncclResult_t odd_broadcast_root(bool odd, const multi_rank *rank)
{
    return ncclBroadcast(from, to, 8, ncclInt32, odd ? 1 : 0, rank->comm, NULL);
}

static ncclResult_t odd_gather_root(bool odd, const multi_rank *rank)
{
    return ncclGather(from, to, 8, ncclInt32, odd ? 1 : 0, rank->comm, NULL);
}

static ncclResult_t odd_scatter_root(bool odd, const multi_rank *rank)
{
    return ncclScatter(from, to, 8, ncclInt32, odd ? 1 : 0, rank->comm, NULL);
}

static ncclResult_t odd_broadcast_count(bool odd, const multi_rank *rank)
{
    return ncclBroadcast(from, to, odd ? 31 : 32, ncclInt32, 0, rank->comm, NULL);
}

static ncclResult_t odd_kind(bool odd, const multi_rank *rank)
{
    return odd ? ncclAllGather(from, to, 8, ncclInt32, rank->comm, NULL)
               : ncclAllReduce(from, to, 8, ncclInt32, ncclSum, rank->comm, NULL);
}

static ncclResult_t odd_large_count(bool odd, const multi_rank *rank)
{
    return ncclAllGather(from, to, odd ? 1000 : 900, ncclInt32, rank->comm, NULL);
}

/** What one rank of three does differently, and what every sentence must have. */
static const struct disagreement {
    const char *what;
    ncclResult_t (*call)(bool odd, const multi_rank *rank);
    const char *word[2];
} disagreements[] = {
    { "count", odd_count, { "7", "8" } },
    { "type", odd_type, { "int32", "float" } },
    { "operator", odd_op, { "sum", "max" } },
    { "root of reduce", odd_root, { "root 0", "root 1" } },
    { "root of broadcast", odd_broadcast_root, { "root 0", "root 1" } },
    { "root of gather", odd_gather_root, { "root 0", "root 1" } },
    { "root of scatter", odd_scatter_root, { "root 0", "root 1" } },
    { "count of broadcast", odd_broadcast_count, { "31", "32" } },
    { "operation", odd_kind, { "all_gather", "all_reduce" } },
    { "count of all_gather", odd_large_count, { "1000", "900" } },
};

static const struct disagreement *current;

/**
 * The call fails on every rank with both calls side by side; or, where it waits for
 * nobody, the state does within a second; or the next operation does.
 */
static void disagree(multi_rank *rank)
{
    ncclResult_t got = current->call(rank->rank == 1, rank);
    uint64_t start = multi_now_ns();

    while (got == ncclSuccess && since_ms(start) < 1000) {
        multi_sleep_us(1000);
        if (!multi_ok(rank, ncclCommGetAsyncError(rank->comm, &got), "async error"))
            return;
    }
    if (got == ncclSuccess)
        got = sum_once(rank->comm, NULL);
    (void)multi_expect(rank, got, ncclInvalidUsage, "different %s", current->what);
    (void)says(rank, rank->comm, current->word[0]);
    (void)says(rank, rank->comm, current->word[1]);
    (void)says(rank, rank->comm, "rank 1");
}

static bool disagreeing_ranks(const failure_test *test)
{
    bool fine = true;

    for (size_t i = 0; i < sizeof(disagreements) / sizeof(*disagreements); i++) {
        failure_test one = *test;
        char name[96];

        current = &disagreements[i];
        (void)snprintf(name, sizeof(name), "one rank of three has another %s",
                current->what);
        one.sentence = name;
        fine = failure_run(&one) && fine;
    }
    return fine;
}

static void message_sizes_must_match(multi_rank *rank)
{
    ncclResult_t got = rank->rank == 0
            ? ncclSend(from, 100, ncclInt32, 1, rank->comm, NULL)
            : ncclRecv(to, 90, ncclInt32, 0, rank->comm, NULL);
    uint64_t start = multi_now_ns();

    while (got == ncclSuccess && since_ms(start) < 10000) {
        multi_sleep_us(1000);
        if (!multi_ok(rank, ncclCommGetAsyncError(rank->comm, &got), "async error"))
            return;
    }
    (void)multi_expect(rank, got, ncclInvalidUsage, "400 bytes sent, 360 received");
    (void)says(rank, rank->comm, "400");
    (void)says(rank, rank->comm, "360");
}

/* ---- abort from another thread ---- */

struct aborter {
    ncclComm_t comm;
    unsigned after_us;
    ncclResult_t got;
};

static void *abort_later(void *arg)
{
    struct aborter *a = arg;

    multi_sleep_us(a->after_us);
    a->got = ncclCommAbort(a->comm);
    return NULL;
}

static ncclResult_t stuck_in_a_call(multi_rank *rank, ncclComm_t comm)
{
    (void)rank;
    return sum_once(comm, NULL);
}

static ncclResult_t stuck_in_group_end(multi_rank *rank, ncclComm_t comm)
{
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, sum_once(comm, NULL), "in the group");
    (void)multi_ok(rank, ncclRecv(to, 4096, ncclInt32, 1, comm, NULL), "in the group");
    return ncclGroupEnd();
}

static ncclResult_t stuck_in_finalize(multi_rank *rank, ncclComm_t comm)
{
    cudaStream_t stream = NULL;
    ncclResult_t got;

    (void)multi_ok(rank, motet_stream_create(&stream), "motet_stream_create");
    (void)multi_ok(rank, sum_once(comm, stream), "on the stream");
    got = ncclCommFinalize(comm);
    (void)motet_stream_destroy(stream);
    return got;
}

static ncclResult_t (*stuck)(multi_rank *rank, ncclComm_t comm);

static void abort_frees_a_stuck_thread(multi_rank *rank)
{
    struct aborter a = { .after_us = 200000 };
    pthread_t thread;
    uint64_t start;
    ncclResult_t got;

    if (!multi_comm(rank, 0, &a.comm))
        return;
    if (rank->rank == 1) {
        (void)multi_barrier(rank);
        (void)multi_ok(rank, ncclCommAbort(a.comm), "ncclCommAbort");
        return;
    }
    if (!multi_check(rank, pthread_create(&thread, NULL, abort_later, &a) == 0,
                "pthread_create"))
        return;
    start = multi_now_ns();
    got = stuck(rank, a.comm);
    (void)multi_check(rank, got != ncclSuccess, "the stuck call says success");
    (void)pthread_join(thread, NULL);
    (void)multi_expect(rank, a.got, ncclSuccess, "ncclCommAbort from another thread");
    (void)multi_check(rank, since_ms(start) < 3000, "it took %llu ms",
            (unsigned long long)since_ms(start));
    (void)multi_barrier(rank);
}

static bool aborts(const failure_test *test)
{
    static const struct {
        const char *name;
        ncclResult_t (*stuck)(multi_rank *rank, ncclComm_t comm);
    } rows[] = {
        { "abort frees a thread that is stuck in a collective", stuck_in_a_call },
        { "abort frees a thread that is stuck in ncclGroupEnd", stuck_in_group_end },
        { "abort frees a thread that is stuck in ncclCommFinalize", stuck_in_finalize },
    };
    bool fine = true;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int layout = MULTI_PROCESSES; layout <= MULTI_THREADS; layout++) {
            failure_test one = *test;

            one.sentence = rows[i].name;
            one.layout = (multi_layout)layout;
            stuck = rows[i].stuck;
            fine = failure_run(&one) && fine;
        }
    return fine;
}

/** Rank 0 aborts; the others, inside an operation, hear of it. */
static void abort_of_a_rank_reaches_the_others(multi_rank *rank)
{
    ncclComm_t comm = NULL;

    if (!multi_comm(rank, 0, &comm))
        return;
    if (rank->rank == 0) {
        multi_sleep_us(100000);
    } else {
        uint64_t start = multi_now_ns();

        (void)multi_expect(rank, sum_once(comm, NULL), ncclRemoteError,
                "an operation of a communicator that rank 0 aborts");
        (void)says(rank, comm, "rank 0");
        (void)multi_check(rank, since_ms(start) < 4000, "it took %llu ms",
                (unsigned long long)since_ms(start));
    }
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
}

/** A hundred rounds of abort against calls of the other thread: no crash, no hang. */
static void aborts_race_with_calls(multi_rank *rank)
{
    for (int i = 0; i < 40; i++) {
        struct aborter a = { .after_us = (unsigned)(i * 37 % 500) };
        pthread_t thread;

        multi_doing(rank, "round %d", i);
        if (!multi_ok(rank, ncclCommInitAll(&a.comm, 1, NULL), "ncclCommInitAll") ||
                !multi_check(rank, pthread_create(&thread, NULL, abort_later, &a) == 0,
                        "pthread_create"))
            return;
        while (sum_once(a.comm, NULL) == ncclSuccess)
            ;
        (void)pthread_join(thread, NULL);
        if (!multi_expect(rank, a.got, ncclSuccess, "ncclCommAbort"))
            return;
    }
}

const failure_test failure_waits[] = {
    { "a stopped rank fails nobody, and is named in a warning", stopped_rank,
            body_of_the_stopped, MULTI_PROCESSES, 3, true, "MOTET_WARN_AFTER_S=1", 1,
            SIGSTOP, 50000, 2500000 },
    { "a deadline names who is absent, on all ranks", NULL,
            deadline_names_who_is_absent, MULTI_PROCESSES, 3, true,
            "MOTET_OP_TIMEOUT_S=1", 0, 0, 0, 0 },
    { "a rank that is missing at init is named", NULL, missing_rank_at_init_is_named,
            MULTI_PROCESSES, 3, false, "MOTET_INIT_TIMEOUT_S=1", 0, 0, 0, 0 },
    { "ranks that make different calls all fail, with both calls", disagreeing_ranks,
            disagree, MULTI_PROCESSES, 3, true, NULL, 0, 0, 0, 0 },
    { "messages of different sizes fail both ends", NULL, message_sizes_must_match,
            MULTI_PROCESSES, 2, true, NULL, 0, 0, 0, 0 },
    { "abort from another thread frees whatever is stuck", aborts,
            abort_frees_a_stuck_thread, MULTI_PROCESSES, 2, false, NULL, 0, 0, 0, 0 },
    { "abort of a rank reaches the others", NULL, abort_of_a_rank_reaches_the_others,
            MULTI_PROCESSES, 3, false, NULL, 0, 0, 0, 0 },
    { "aborts race with calls and nothing breaks", NULL, aborts_race_with_calls,
            MULTI_THREADS, 1, false, NULL, 0, 0, 0, 0 },
    { NULL, NULL, NULL, MULTI_THREADS, 0, false, NULL, 0, 0, 0, 0 },
};
