/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die: killed in the middle of anything, or gone without a word. */
#include "failure.h"
#include "values.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_COUNT 40000

/** What the body of a kill needs to know. */
static struct {
    int kind;
    uint64_t seed;
} plan;

/** The sentence names the rank that was NULL, or one of its process. */
static bool names_the_lost(multi_rank *rank, ncclComm_t comm, int victim)
{
    const char *text = ncclGetLastError(comm);
    char name[32];

    for (int r = 0; r < rank->nranks; r++) {
        if (multi_pid(rank, r) != multi_pid(rank, victim))
            continue;
        (void)snprintf(name, sizeof(name), "rank %d", r);
        if (strstr(text, name) != NULL)
            return true;
    }
    return multi_check(rank, false, "the sentence does not name rank %d: \"%s\"",
            victim, text);
}

/** This rank saw the end of the communicator just now: in time, and with its name? */
static void check_loss(multi_rank *rank, ncclComm_t comm, ncclResult_t got, int victim)
{
    uint64_t now = multi_now_ns(), killed = multi_signal_ns(rank);
    uint64_t *took = rank->shared;
    ncclResult_t state = ncclSuccess;

    (void)multi_expect(rank, got, ncclRemoteError, "after rank %d was lost", victim);
    (void)multi_check(rank, killed != 0 && now - killed < FAILURE_DEATH_NS,
            "rank %d was lost %llu ms ago", victim,
            (unsigned long long)((now - killed) / 1000000));
    took[rank->rank] = now - killed;
    (void)names_the_lost(rank, comm, victim);
    (void)multi_ok(rank, ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    (void)multi_check(rank, state == ncclRemoteError, "the state is %d", (int)state);
}

static int victim_of(const multi_rank *rank)
{
    return *(int *)rank->arg;
}

/** Only such a rank can tell which descriptors and threads are its own. */
static bool alone_in_its_process(const multi_rank *rank)
{
    for (int r = 0; r < rank->nranks; r++)
        if (r != rank->rank && multi_pid(rank, r) == multi_pid(rank, rank->rank))
            return false;
    return true;
}

/**
 * A thread that was joined may stay in /proc for a moment. ThreadSanitizer starts one of
 * its own together with a process's first, so threads are not counted there.
 */
static void check_footprint(multi_rank *rank, int fds, int threads)
{
    int fds_now = 0, threads_now = 0;

    for (int i = 0; i < 1000; i++) {
        fds_now = multi_count_entries("fd");
#if !defined(__SANITIZE_THREAD__)
        threads_now = multi_count_entries("task");
#endif
        if (fds_now <= fds && threads_now <= threads)
            return;
        multi_sleep_us(1000);
    }
    multi_fail(rank, "%d descriptors and %d threads, %d and %d before", fds_now,
            threads_now, fds, threads);
}

/** Operations of all sizes without end, until one fails. */
static void work_until_it_fails(multi_rank *rank)
{
    int fds = multi_count_entries("fd"), threads = multi_count_entries("task");
    char *send = calloc(1, FAILURE_BYTES(MAX_COUNT)),
         *recv = calloc(1, FAILURE_BYTES(MAX_COUNT));
    ncclComm_t comm = NULL;
    ncclResult_t got = ncclSuccess;

    if (!multi_check(rank, send != NULL && recv != NULL, "no memory") ||
            !multi_comm(rank, 0, &comm))
        goto out;
    for (unsigned i = 0; got == ncclSuccess; i++) {
        uint64_t h = value_mix(plan.seed + i);
        size_t count = (h >> 8) % (h & 1 ? 64 : MAX_COUNT);

        multi_doing(rank, "%s number %u, count %zu", failure_kind_names[plan.kind], i,
                count);
        got = failure_operation(plan.kind, send, recv, count + 4,
                (int)((h >> 40) % (uint64_t)rank->nranks), rank, comm, NULL);
        if (i == 2)
            multi_ready(rank);
    }
    check_loss(rank, comm, got, victim_of(rank));
    multi_doing(rank, "aborting");
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
    if (alone_in_its_process(rank))
        check_footprint(rank, fds, threads);
out:
    free(send);
    free(recv);
}

static bool random_kills(const failure_test *test)
{
    static const int sizes[] = { 2, 3, 4, 5, 8 };
    bool fine = true;

    for (unsigned i = 0; i < failure_kills; i++) {
        uint64_t h = value_mix(failure_seed * 1000003 + i);
        char name[160];
        failure_test one = *test;

        plan.kind = (int)(i % FAILURE_KINDS);
        plan.seed = h;
        one.nranks = sizes[(h >> 3) % 5];
        one.victim = (int)((h >> 20) % (uint64_t)one.nranks);
        one.layout = one.nranks >= 4 && h % 4 == 0 ? MULTI_MIXED : MULTI_PROCESSES;
        one.signal_after_us = (unsigned)((h >> 30) % 30000);
        one.body = work_until_it_fails;
        one.signal = SIGKILL;
        (void)snprintf(name, sizeof(name), "kill %u: rank %d of %d in %s after %u us",
                i, one.victim, one.nranks, failure_kind_names[plan.kind],
                one.signal_after_us);
        one.sentence = name;
        fine = failure_run(&one) && fine;
    }
    printf("      %u random kills, the slowest seen after %llu ms\n", failure_kills,
            (unsigned long long)(failure_slowest_ns / 1000000));
    return fine;
}

/** Nobody calls anything: the state alone must tell. */
static void idle_until_it_fails(multi_rank *rank)
{
    int victim = victim_of(rank);
    ncclResult_t state = ncclSuccess;

    multi_ready(rank);
    while (state == ncclSuccess) {
        multi_sleep_us(2000);
        if (!multi_ok(rank, ncclCommGetAsyncError(rank->comm, &state), "async error"))
            return;
    }
    check_loss(rank, rank->comm, state, victim);
}

/** An operation on a stream is under way when the rank dies. */
static void stream_until_it_fails(multi_rank *rank)
{
    int victim = victim_of(rank);
    int32_t mine = 1, sum = 0;
    cudaStream_t stream = NULL;

    (void)multi_ok(rank, motet_stream_create(&stream), "motet_stream_create");
    multi_ready(rank);
    if (rank->rank == victim)
        multi_sleep_us(30000000); /* it is killed in its sleep */
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, stream),
            "all_reduce");
    check_loss(rank, rank->comm, motet_stream_synchronize(stream), victim);
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
}

/** Rank 1 ends its process without a word to anybody. */
static void exit_of_a_rank_is_named(multi_rank *rank)
{
    int32_t mine = 1, sum = 0;
    ncclResult_t got;

    if (!multi_barrier(rank))
        return;
    if (rank->rank == 1)
        multi_vanish(rank);
    got = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL);
    (void)multi_expect(rank, got, ncclRemoteError, "after rank 1 ended");
    (void)names_the_lost(rank, rank->comm, 1);
}

/** Rank 2 dies; the communicator of ranks 0 and 1 does not care. */
static void other_communicators_are_unharmed(multi_rank *rank)
{
    ncclComm_t all = NULL, pair = NULL;
    int32_t mine = rank->rank + 1, sum = 0;

    if (!multi_comm(rank, 0, &all) ||
            !multi_ok(rank, ncclCommSplit(all, rank->rank / 2, 0, &pair, NULL),
                    "split"))
        return;
    multi_ready(rank);
    if (rank->rank == 2)
        multi_sleep_us(30000000);
    check_loss(rank, all, ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, all, NULL),
            2);
    for (int i = 0; i < 100; i++) {
        sum = 0;
        if (!multi_ok(rank,
                    ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, pair, NULL),
                    "all_reduce of the other communicator") ||
                !multi_check(rank, sum == 3, "sum is %d, expected 3", sum))
            break;
    }
    (void)multi_check(rank, ncclGetLastError(pair)[0] == '\0',
            "the other communicator says \"%s\"", ncclGetLastError(pair));
    (void)multi_ok(rank, ncclCommAbort(all), "ncclCommAbort");
    (void)multi_ok(rank, ncclCommDestroy(pair), "ncclCommDestroy");
}

/** The survivors go on in a smaller communicator. */
static void survivors_shrink_and_go_on(multi_rank *rank)
{
    int victim = victim_of(rank), excluded[1] = { 1 };
    int32_t mine = rank->rank, sum = 0;
    ncclComm_t child = NULL;

    multi_ready(rank);
    if (rank->rank == victim)
        multi_sleep_us(30000000);
    check_loss(rank, rank->comm,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            victim);
    if (!multi_ok(rank,
                ncclCommShrink(rank->comm, excluded, 1, &child, NULL,
                        NCCL_SHRINK_ABORT),
                "ncclCommShrink"))
        return;
    (void)multi_ok(rank, ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, child, NULL),
            "all_reduce of the survivors");
    (void)multi_check(rank, sum == 2 + 3, "sum is %d, expected 5", sum);
    (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
}

/** A rank dies while the others still wait for one more at init. */
static void death_during_init_is_named(multi_rank *rank)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclResult_t got;

    if (!multi_id(rank, 0, &id))
        return;
    multi_ready(rank);
    if (rank->rank == 3) { /* never joins; the victim is rank 1, which has */
        while (multi_signal_ns(rank) == 0)
            multi_sleep_us(1000);
        return;
    }
    got = ncclCommInitRank(&comm, rank->nranks, id, rank->rank);
    (void)multi_expect(rank, got, ncclRemoteError, "init that lost rank 1");
    (void)multi_check(rank, strstr(ncclGetLastError(NULL), "rank 1") != NULL,
            "the sentence does not name rank 1: \"%s\"", ncclGetLastError(NULL));
}

const failure_test failure_deaths[] = {
    { "a rank killed at any moment is named by all others in time", random_kills, NULL,
            MULTI_PROCESSES, 0, false, NULL, 0, 0, 0, 0 },
    { "idle ranks see the death of another in their state", NULL, idle_until_it_fails,
            MULTI_PROCESSES, 3, true, NULL, 1, SIGKILL, 20000, 0 },
    { "an operation on a stream ends when a rank dies", NULL, stream_until_it_fails,
            MULTI_PROCESSES, 3, true, NULL, 2, SIGKILL, 100000, 0 },
    { "a communicator that lost nobody is unharmed", NULL,
            other_communicators_are_unharmed, MULTI_PROCESSES, 3, false, NULL, 2,
            SIGKILL, 50000, 0 },
    { "the survivors shrink and go on", NULL, survivors_shrink_and_go_on,
            MULTI_PROCESSES, 4, true, NULL, 1, SIGKILL, 50000, 0 },
    { "a rank that exits without a word is named", NULL, exit_of_a_rank_is_named,
            MULTI_PROCESSES, 3, true, NULL, 0, 0, 0, 0 },
    { "a rank that dies while others are still missing is named at init", NULL,
            death_during_init_is_named, MULTI_PROCESSES, 4, false, NULL, 1, SIGKILL,
            300000, 0 },
    { NULL, NULL, NULL, MULTI_THREADS, 0, false, NULL, 0, 0, 0, 0 },
};
