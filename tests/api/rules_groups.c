/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of group calls. */
#include "rules.h"

#include <pthread.h>
#include <string.h>

static void end_without_start_is_refused(multi_rank *rank)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd alone");
    (void)rules_says(rank, NULL, "group");
    (void)multi_expect(rank, ncclGroupSimulateEnd(&info), ncclInvalidUsage,
            "ncclGroupSimulateEnd alone");
    (void)rules_works(rank, rank->comm, "after a group end alone");
}

static void empty_groups_are_fine(multi_rank *rank)
{
    for (int depth = 1; depth <= 3; depth++) {
        for (int i = 0; i < depth; i++)
            (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
        for (int i = 0; i < depth; i++)
            (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    }
    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidUsage, "one end too many");
    (void)rules_works(rank, rank->comm, "after empty groups");
}

/** If an inner end started the work of rank 0 alone, it would wait for rank 1 for ever. */
static void only_the_outermost_end_starts(multi_rank *rank)
{
    int32_t mine[2] = { 1, 2 }, sum[2] = { 0, 0 };

    (void)multi_ok(rank, ncclGroupStart(), "outer start");
    (void)multi_ok(rank, ncclGroupStart(), "inner start");
    (void)multi_ok(rank,
            ncclAllReduce(&mine[0], &sum[0], 1, ncclInt32, ncclSum, rank->comms[0],
                    NULL),
            "rank 0's part");
    (void)multi_ok(rank, ncclGroupEnd(), "inner end");
    (void)multi_check(rank, sum[0] == 0, "the inner end gave a result: %d", sum[0]);
    (void)multi_ok(rank,
            ncclAllReduce(&mine[1], &sum[1], 1, ncclInt32, ncclSum, rank->comms[1],
                    NULL),
            "rank 1's part");
    (void)multi_ok(rank, ncclGroupEnd(), "outer end");
    (void)multi_check(rank, sum[0] == 3 && sum[1] == 3,
            "sums are %d and %d, expected 3", sum[0], sum[1]);
}

static void *end_on_another_thread(void *arg)
{
    *(ncclResult_t *)arg = ncclGroupEnd();
    return NULL;
}

static void depth_belongs_to_the_thread(multi_rank *rank)
{
    pthread_t thread;
    ncclResult_t got = ncclSuccess;

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    if (!multi_check(rank,
                pthread_create(&thread, NULL, end_on_another_thread, &got) == 0,
                "pthread_create"))
        return;
    (void)pthread_join(thread, NULL);
    (void)multi_expect(rank, got, ncclInvalidUsage, "ncclGroupEnd on another thread");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd on its own thread");
}

static void errors_stay_until_the_end(multi_rank *rank)
{
    int32_t mine = 1, sum = 0;

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_expect(rank,
            ncclAllReduce(&mine, &sum, 1, (ncclDataType_t)77, ncclSum, rank->comm,
                    NULL),
            ncclInvalidArgument, "a bad type in a group");
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            "a good call after it");
    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidArgument,
            "the end of a group with a wrong call");
    (void)multi_check(rank, sum == 0, "the group ran all the same: %d", sum);
    (void)multi_ok(rank, ncclGroupStart(), "the next group");
    (void)multi_ok(rank, ncclGroupEnd(), "the next group's end");
    (void)rules_works(rank, rank->comm, "after a group that failed");
}

static void simulation_starts_nothing(multi_rank *rank)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER, bad = NCCL_SIM_INFO_INITIALIZER;
    int32_t mine = 1, sum = 0;

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            "all_reduce in a group");
    (void)multi_ok(rank, ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
    (void)multi_check(rank, sum == 0, "the simulation gave a result: %d", sum);
    (void)multi_check(rank, info.estimatedTime >= 0, "estimated time is %g",
            (double)info.estimatedTime);
    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidUsage,
            "ncclGroupEnd after a simulated end");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, ncclGroupSimulateEnd(NULL), "a simulated end without info");
    bad.magic = 1;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_expect(rank, ncclGroupSimulateEnd(&bad), ncclInvalidArgument,
            "bad magic");
    (void)ncclGroupEnd(); /* whether the refused end closed the group is not promised */
    (void)rules_works(rank, rank->comm, "after simulated ends");
}

static void kinds_of_operations_mix(multi_rank *rank)
{
    int32_t mine[4], sum[4] = { 0 }, all[8] = { 0 }, got = -1;
    int peer = 1 - rank->rank;

    for (int i = 0; i < 4; i++)
        mine[i] = rank->rank * 10 + i;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank,
            ncclAllReduce(mine, sum, 4, ncclInt32, ncclSum, rank->comm, NULL),
            "all_reduce");
    (void)multi_ok(rank, ncclSend(mine, 1, ncclInt32, peer, rank->comm, NULL), "send");
    (void)multi_ok(rank, ncclAllGather(mine, all, 4, ncclInt32, rank->comm, NULL),
            "all_gather");
    (void)multi_ok(rank, ncclRecv(&got, 1, ncclInt32, peer, rank->comm, NULL), "recv");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    (void)multi_check(rank, sum[3] == 16 && all[7] == 13 && got == peer * 10,
            "sum %d, gathered %d, received %d; expected 16, 13, %d", sum[3], all[7],
            got, peer * 10);
}

/** All messages of a pair in one group, more than a channel can hold, both ways. */
static void many_messages_keep_their_order(multi_rank *rank)
{
    enum { N = 200 };
    int32_t sent[N], got[N];
    int peer = 1 - rank->rank;
    bool fine;

    fine = multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < N && fine; i++) {
        sent[i] = rank->rank * 1000 + i;
        got[i] = -1;
        fine = multi_ok(rank, ncclSend(&sent[i], 1, ncclInt32, peer, rank->comm, NULL),
                       "send") &&
                multi_ok(rank, ncclRecv(&got[i], 1, ncclInt32, peer, rank->comm, NULL),
                        "recv");
    }
    fine = multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd") && fine;
    for (int i = 0; i < N && fine; i++)
        fine = multi_check(rank, got[i] == peer * 1000 + i,
                "message %d is %d, expected %d", i, got[i], peer * 1000 + i);
}

/** Large sends first on both sides: without a group they would deadlock. */
static void large_exchange_in_a_group_does_not_deadlock(multi_rank *rank)
{
    enum { N = 1 << 20 };
    static int32_t sent[2][N], got[2][N];
    int me = rank->rank, peer = 1 - me;

    for (int i = 0; i < N; i++)
        sent[me][i] = me * N + i;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, ncclSend(sent[me], N, ncclInt32, peer, rank->comm, NULL),
            "send");
    (void)multi_ok(rank, ncclRecv(got[me], N, ncclInt32, peer, rank->comm, NULL),
            "recv");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    (void)multi_check(rank, got[me][N - 1] == peer * N + N - 1, "last element is %d",
            got[me][N - 1]);
}

static void send_to_self_needs_its_receive(multi_rank *rank)
{
    int32_t mine = 4, got = 0;

    (void)multi_expect(rank,
            ncclSend(&mine, 1, ncclInt32, rank->rank, rank->comm, NULL),
            ncclInvalidUsage, "send to self without receive");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)ncclSend(&mine, 1, ncclInt32, rank->rank, rank->comm, NULL);
    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidUsage,
            "a group with a send to self and no receive");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, ncclRecv(&got, 1, ncclInt32, rank->rank, rank->comm, NULL),
            "recv");
    (void)multi_ok(rank, ncclSend(&mine, 1, ncclInt32, rank->rank, rank->comm, NULL),
            "send");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    (void)multi_check(rank, got == 4, "received %d", got);
    (void)rules_works(rank, rank->comm, "after messages to self");
}

static void count_zero_waits_for_nobody(multi_rank *rank)
{
    int32_t buffer = 9;

    /* Rank 0 makes all its empty collectives before rank 1 begins. */
    if (rank->rank == 1 && !multi_barrier(rank))
        return;
    (void)multi_ok(rank,
            ncclAllReduce(&buffer, &buffer, 0, ncclInt32, ncclSum, rank->comm, NULL),
            "empty all_reduce");
    (void)multi_ok(rank, ncclBroadcast(NULL, NULL, 0, ncclInt32, 1, rank->comm, NULL),
            "empty broadcast");
    (void)multi_ok(rank, ncclAlltoAll(NULL, NULL, 0, ncclInt32, rank->comm, NULL),
            "empty all_to_all");
    if (rank->rank == 0 && !multi_barrier(rank))
        return;
    (void)multi_check(rank, buffer == 9, "buffer became %d", buffer);
    (void)rules_works(rank, rank->comm, "after empty collectives");
}

static void empty_messages_are_matched(multi_rank *rank)
{
    int32_t got = 3;
    int peer = 1 - rank->rank;

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, ncclSend(NULL, 0, ncclInt32, peer, rank->comm, NULL), "send");
    (void)multi_ok(rank, ncclRecv(NULL, 0, ncclFloat64, peer, rank->comm, NULL),
            "recv");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    if (rank->rank == 0)
        (void)multi_ok(rank, ncclSend(&got, 1, ncclInt32, 1, rank->comm, NULL), "send");
    else
        (void)multi_ok(rank, ncclRecv(&got, 1, ncclInt32, 0, rank->comm, NULL), "recv");
    (void)multi_check(rank, got == 3, "received %d", got);
}

static void several_communicators_share_a_group(multi_rank *rank)
{
    ncclComm_t other = NULL;
    int32_t mine = rank->rank + 1, sum[2] = { 0, 0 };

    if (!multi_comm(rank, 1, &other))
        return;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    /* The two ranks name the communicators in opposite order. */
    for (int i = 0; i < 2; i++) {
        int which = i ^ rank->rank;

        (void)multi_ok(rank,
                ncclAllReduce(&mine, &sum[which], 1, ncclInt32, ncclSum,
                        which ? other : rank->comm, NULL),
                "all_reduce");
    }
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    (void)multi_check(rank, sum[0] == 3 && sum[1] == 3,
            "sums are %d and %d, expected 3", sum[0], sum[1]);
    (void)multi_ok(rank, ncclCommDestroy(other), "ncclCommDestroy");
}

static void several_streams_share_a_group(multi_rank *rank)
{
    enum { N = 3 };
    cudaStream_t stream[N] = { NULL };
    int32_t mine[N], sum[N] = { 0 };

    for (int i = 1; i < N; i++)
        (void)multi_ok(rank, motet_stream_create(&stream[i]), "motet_stream_create");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < N; i++) {
        mine[i] = rank->rank + i;
        (void)multi_ok(rank,
                ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, rank->comm,
                        stream[i]),
                "all_reduce");
    }
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    for (int i = 1; i < N; i++)
        (void)multi_ok(rank, motet_stream_synchronize(stream[i]), "synchronize");
    for (int i = 0; i < N; i++)
        (void)multi_check(rank, sum[i] == 1 + 2 * i, "sum %d is %d, expected %d", i,
                sum[i], 1 + 2 * i);
    for (int i = 1; i < N; i++)
        (void)multi_ok(rank, motet_stream_destroy(stream[i]), "motet_stream_destroy");
}

static void ranks_of_one_thread_are_made_in_a_group(multi_rank *rank)
{
    enum { N = 4 };
    ncclComm_t comms[N] = { NULL };
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < N; i++)
        (void)multi_ok(rank, ncclCommInitRank(&comms[i], N, id, i), "ncclCommInitRank");
    if (!multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd"))
        return;
    (void)rules_all_work(rank, comms, N, "of ranks made in a group");
    for (int i = 0; i < N; i++)
        (void)multi_ok(rank, ncclCommDestroy(comms[i]), "ncclCommDestroy");
}

static void failed_init_in_a_group_leaves_null(multi_rank *rank)
{
    ncclComm_t comms[2] = { (ncclComm_t)(void *)rank, (ncclComm_t)(void *)rank };
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    /* Both claim rank 0, which only the rendezvous can see. */
    (void)multi_ok(rank, ncclCommInitRank(&comms[0], 2, id, 0), "ncclCommInitRank");
    (void)multi_ok(rank, ncclCommInitRank(&comms[1], 2, id, 0), "ncclCommInitRank");
    (void)multi_expect(rank, ncclGroupEnd(), ncclInvalidUsage, "the end of the group");
    (void)multi_check(rank, comms[0] == NULL && comms[1] == NULL,
            "the communicators are not NULL");
}

#define PAIR MULTI_THREADS, 2, true, NULL, 0

const rule rules_groups[] = {
    { "a group end without start is refused", end_without_start_is_refused,
            MULTI_THREADS, 1, true, NULL, 0 },
    { "empty groups are fine, one end too many is not", empty_groups_are_fine,
            MULTI_THREADS, 1, true, NULL, 0 },
    { "only the outermost group end starts anything", only_the_outermost_end_starts,
            MULTI_ONE_THREAD, 2, true, NULL, 0 },
    { "the depth of groups belongs to the thread", depth_belongs_to_the_thread,
            MULTI_THREADS, 1, false, NULL, 0 },
    { "an error in a group is returned by its end, and nothing runs",
            errors_stay_until_the_end, PAIR },
    { "a simulated group end starts nothing", simulation_starts_nothing, PAIR },
    { "collectives and messages mix in one group", kinds_of_operations_mix, PAIR },
    { "200 messages of a pair in one group keep their order",
            many_messages_keep_their_order, PAIR },
    { "large messages both ways in one group do not deadlock",
            large_exchange_in_a_group_does_not_deadlock, PAIR },
    { "a message to self needs its receive in the same group",
            send_to_self_needs_its_receive, PAIR },
    { "collectives of count 0 wait for nobody", count_zero_waits_for_nobody, PAIR },
    { "messages of count 0 are matched like others", empty_messages_are_matched, PAIR },
    { "two communicators in one group, in any order",
            several_communicators_share_a_group, PAIR },
    { "several streams in one group", several_streams_share_a_group, PAIR },
    { "one thread makes four ranks in a group", ranks_of_one_thread_are_made_in_a_group,
            MULTI_THREADS, 1, false, NULL, 0 },
    { "a creation that fails in a group leaves NULL",
            failed_init_in_a_group_leaves_null, MULTI_THREADS, 1, false, NULL, 0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
