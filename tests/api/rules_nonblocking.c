/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of non-blocking communicators. */
#include "rules.h"

/** Create, without waiting, this rank's end of a communicator of all ranks. */
static bool start(multi_rank *rank, int slot, ncclComm_t *comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t got;

    config.blocking = 0;
    if (!multi_id(rank, slot, &id))
        return false;
    got = ncclCommInitRankConfig(comm, rank->nranks, id, rank->rank, &config);
    return multi_check(rank, got == ncclSuccess || got == ncclInProgress,
                   "non-blocking init gave %d: %s", (int)got, ncclGetLastError(NULL)) &&
            multi_check(rank, *comm != NULL, "non-blocking init left NULL");
}

static bool start_and_settle(multi_rank *rank, int slot, ncclComm_t *comm)
{
    ncclResult_t state;

    return start(rank, slot, comm) && rules_settle(rank, *comm, &state) &&
            multi_expect(rank, state, ncclSuccess, "state after init");
}

static void calls_are_polled(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    int32_t mine = rank->rank + 1, sum = 0;
    ncclResult_t got, state;

    if (!start_and_settle(rank, 0, &comm))
        return;
    for (int i = 0; i < 20; i++) {
        sum = 0;
        got = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL);
        (void)multi_check(rank, got == ncclSuccess || got == ncclInProgress,
                "all_reduce gave %d", (int)got);
        if (!rules_settle(rank, comm, &state))
            return;
        (void)multi_check(rank, state == ncclSuccess && sum == 6,
                "state %d, sum %d, expected 0 and 6", (int)state, sum);
    }
    got = ncclCommFinalize(comm);
    (void)multi_check(rank, got == ncclSuccess || got == ncclInProgress,
            "finalize gave %d", (int)got);
    if (rules_settle(rank, comm, &state))
        (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

/** Rank 0's communicator cannot be ready before rank 1 has come. */
static void not_ready_is_refused(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    int32_t mine = 1, sum = 0;
    ncclUniqueId id;
    ncclResult_t state;

    /* Rank 1 must not wait for the id later than rank 0 waits for rank 1. */
    if (!multi_id(rank, 0, &id) || (rank->rank == 1 && !multi_barrier(rank)))
        return;
    if (!start(rank, 0, &comm))
        return;
    if (rank->rank == 0) {
        (void)multi_ok(rank, ncclCommGetAsyncError(comm, &state), "async error");
        (void)multi_check(rank, state == ncclInProgress,
                "state is %d before the peer came", (int)state);
        (void)multi_expect(rank,
                ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL),
                ncclInvalidArgument, "all_reduce before the communicator is ready");
        if (!multi_barrier(rank))
            return;
    }
    if (rules_settle(rank, comm, &state))
        (void)multi_expect(rank, state, ncclSuccess, "state after init");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void one_thread_makes_all_ranks_without_a_group(multi_rank *rank)
{
    enum { N = 3 };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[N] = { NULL };
    ncclUniqueId id;
    ncclResult_t state;
    int32_t mine[N], sum[N];

    config.blocking = 0;
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (int i = 0; i < N; i++) {
        ncclResult_t got = ncclCommInitRankConfig(&comm[i], N, id, i, &config);

        if (!multi_check(rank, got == ncclInProgress || got == ncclSuccess,
                    "init of rank %d gave %d", i, (int)got))
            return;
    }
    for (int i = 0; i < N; i++)
        if (!rules_settle(rank, comm[i], &state) ||
                !multi_expect(rank, state, ncclSuccess, "state of rank %d", i))
            return;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < N; i++) {
        ncclResult_t got;

        mine[i] = i;
        got = ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, comm[i], NULL);
        (void)multi_check(rank, got == ncclSuccess || got == ncclInProgress,
                "all_reduce gave %d", (int)got);
    }
    state = ncclGroupEnd();
    (void)multi_check(rank, state == ncclSuccess || state == ncclInProgress,
            "ncclGroupEnd gave %d", (int)state);
    for (int i = 0; i < N; i++) {
        (void)rules_settle(rank, comm[i], &state);
        (void)multi_check(rank, sum[i] == 3, "sum %d is %d, expected 3", i, sum[i]);
        (void)multi_ok(rank, ncclCommDestroy(comm[i]), "ncclCommDestroy");
    }
}

static void a_split_child_is_polled(multi_rank *rank)
{
    ncclComm_t comm = NULL, child = NULL;
    ncclResult_t got, state;

    if (!start_and_settle(rank, 0, &comm))
        return;
    got = ncclCommSplit(comm, 1, -rank->rank, &child, NULL);
    (void)multi_check(rank, got == ncclSuccess || got == ncclInProgress,
            "split gave %d", (int)got);
    if (!rules_settle(rank, comm, &state) ||
            !multi_check(rank, child != NULL, "no child once the parent is ready") ||
            !rules_settle(rank, child, &state))
        return;
    (void)multi_expect(rank, state, ncclSuccess, "state of the child");
    got = ncclCommDestroy(child);
    (void)multi_check(rank, got == ncclSuccess || got == ncclInProgress,
            "destroy gave %d", (int)got);
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void blocking_and_not_do_not_share_a_group(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    int32_t mine = 1, sum = 0;
    ncclResult_t results[4];
    bool refused = false;

    if (!start_and_settle(rank, 1, &comm))
        return;
    results[0] = ncclGroupStart();
    results[1] = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL);
    results[2] = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL);
    results[3] = ncclGroupEnd();
    for (int i = 0; i < 4; i++)
        refused = refused || results[i] == ncclInvalidArgument;
    (void)multi_check(rank, refused && results[3] == ncclInvalidArgument,
            "the calls gave %d %d %d, the end %d", (int)results[0], (int)results[1],
            (int)results[2], (int)results[3]);
    (void)rules_works(rank, rank->comm, "after the group was refused");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void a_communicator_being_made_can_be_aborted(multi_rank *rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t got;
    uint64_t start_ns;

    config.blocking = 0;
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    got = ncclCommInitRankConfig(&comm, 2, id, 0, &config); /* rank 1 never comes */
    (void)multi_check(rank, got == ncclInProgress, "init gave %d", (int)got);
    start_ns = multi_now_ns();
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
    (void)multi_check(rank, multi_now_ns() - start_ns < 3000000000ull,
            "abort took %llu ms",
            (unsigned long long)((multi_now_ns() - start_ns) / 1000000));
}

static void the_variable_forces_it(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t got, state;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    got = ncclCommInitRank(&comm, 2, id,
            0); /* would wait for ever if it were blocking */
    (void)multi_check(rank, got == ncclInProgress, "init gave %d", (int)got);
    (void)multi_ok(rank, ncclCommGetAsyncError(comm, &state), "async error");
    (void)multi_check(rank, state == ncclInProgress, "state is %d", (int)state);
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
}

static void a_failed_init_shows_in_the_state(multi_rank *rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t state;

    config.blocking = 0;
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    (void)ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    if (!rules_settle(rank, comm, &state))
        return;
    (void)multi_expect(rank, state, ncclRemoteError,
            "state after the deadline of init");
    (void)rules_says(rank, comm, "rank 1");
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
}

static const char *const force[] = { "NCCL_COMM_BLOCKING=0", NULL };
static const char *const short_init[] = { "MOTET_INIT_TIMEOUT_S=1", NULL };

const rule rules_nonblocking[] = {
    { "calls on a non-blocking communicator are polled", calls_are_polled,
            MULTI_PROCESSES, 3, false, NULL, 0 },
    { "a communicator that is not ready refuses operations", not_ready_is_refused,
            MULTI_PROCESSES, 2, false, NULL, 0 },
    { "one thread makes non-blocking ranks without a group",
            one_thread_makes_all_ranks_without_a_group, MULTI_THREADS, 1, false, NULL,
            0 },
    { "the child of a non-blocking split is polled", a_split_child_is_polled,
            MULTI_PROCESSES, 3, false, NULL, 0 },
    { "blocking and non-blocking communicators do not share a group",
            blocking_and_not_do_not_share_a_group, MULTI_PROCESSES, 2, true, NULL, 0 },
    { "a communicator that is being made can be aborted",
            a_communicator_being_made_can_be_aborted, MULTI_THREADS, 1, false, NULL,
            0 },
    { "NCCL_COMM_BLOCKING=0 makes communicators non-blocking", the_variable_forces_it,
            MULTI_THREADS, 1, false, force, 0 },
    { "a creation that fails later shows in the state",
            a_failed_init_shows_in_the_state, MULTI_THREADS, 1, false, short_init, 0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
