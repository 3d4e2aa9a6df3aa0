/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of communicators made from others: split, shrink, grow. */
#include "rules.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/** This rank is number @p who of @p n in @p comm, which works; then it is destroyed. */
static void is_member(multi_rank *rank, ncclComm_t comm, int who, int n,
        const char *what)
{
    int got = -1, size = -1;

    if (!multi_check(rank, comm != NULL, "%s: no communicator", what))
        return;
    (void)multi_ok(rank, ncclCommUserRank(comm, &got), "ncclCommUserRank");
    (void)multi_ok(rank, ncclCommCount(comm, &size), "ncclCommCount");
    (void)multi_check(rank, got == who && size == n,
            "%s: rank %d of %d, expected %d of %d", what, got, size, who, n);
    (void)rules_works(rank, comm, what);
}

static void split_orders_by_key_then_old_rank(multi_rank *rank)
{
    /* Colours 0 and 1 by parity; keys turn the order of the even ones round. */
    int color = rank->rank % 2, key = color == 0 ? -rank->rank : 7;
    int who = color == 0 ? (4 - rank->rank) / 2 : rank->rank / 2;
    ncclComm_t child = NULL;

    if (!multi_ok(rank, ncclCommSplit(rank->comm, color, key, &child, NULL), "split"))
        return;
    is_member(rank, child, who, color == 0 ? 3 : 2, "a half");
    (void)rules_works(rank, rank->comm, "of the parent beside its child");
    (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
}

static void split_without_colour_gives_null(multi_rank *rank)
{
    ncclComm_t child = (ncclComm_t)(void *)rank;
    int color = rank->rank == 1 ? NCCL_SPLIT_NOCOLOR : 4;

    if (!multi_ok(rank, ncclCommSplit(rank->comm, color, 0, &child, NULL), "split"))
        return;
    if (rank->rank == 1) {
        (void)multi_check(rank, child == NULL,
                "a rank without colour got a communicator");
        return;
    }
    is_member(rank, child, rank->rank == 0 ? 0 : 1, 2, "the others");
    (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
}

static void split_of_a_split_outlives_its_parents(multi_rank *rank)
{
    ncclComm_t comm = NULL, half = NULL, pair = NULL;

    if (!multi_comm(rank, 0, &comm) ||
            !multi_ok(rank, ncclCommSplit(comm, rank->rank / 2, 0, &half, NULL),
                    "split") ||
            !multi_ok(rank, ncclCommSplit(half, 3, -rank->rank, &pair, NULL),
                    "split of a split"))
        return;
    (void)multi_ok(rank, ncclCommDestroy(comm), "the grandparent goes first");
    is_member(rank, half, rank->rank % 2, 2, "the child");
    (void)multi_ok(rank, ncclCommDestroy(half), "the parent goes next");
    is_member(rank, pair, 1 - rank->rank % 2, 2, "the grandchild");
    (void)multi_ok(rank, ncclCommDestroy(pair), "ncclCommDestroy");
}

static void split_checks_its_arguments(multi_rank *rank)
{
    ncclComm_t child = NULL;

    (void)multi_expect(rank, ncclCommSplit(NULL, 0, 0, &child, NULL),
            ncclInvalidArgument, "split of NULL");
    (void)multi_expect(rank, ncclCommSplit(rank->comm, 0, 0, NULL, NULL),
            ncclInvalidArgument, "split without place");
    (void)multi_ok(rank, ncclCommSplit(rank->comm, 0, 0, &child, NULL), "split");
    is_member(rank, child, 0, 1, "a child of one");
    (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
}

static void split_by_one_thread_needs_a_group(multi_rank *rank)
{
    enum { N = 4 };
    ncclComm_t child[N] = { NULL };
    int order[N] = { 0, 0, 1, 1 };

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < N; i++)
        (void)multi_ok(rank, ncclCommSplit(rank->comms[i], i % 2, i, &child[i], NULL),
                "ncclCommSplit");
    if (!multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd"))
        return;
    for (int i = 0; i < N; i++) {
        int who = -1;

        (void)multi_ok(rank, ncclCommUserRank(child[i], &who), "ncclCommUserRank");
        (void)multi_check(rank, who == order[i], "old rank %d is %d, expected %d", i,
                who, order[i]);
    }
    (void)rules_all_work(rank, (ncclComm_t[]){ child[0], child[2] }, 2,
            "of the even half");
    for (int i = 0; i < N; i++)
        (void)multi_ok(rank, ncclCommDestroy(child[i]), "ncclCommDestroy");
}

static void shrink_leaves_the_excluded_out(multi_rank *rank)
{
    int excluded[] = { 3, 1 };
    ncclComm_t child = NULL;

    if (rank->rank == 1 || rank->rank == 3) {
        int me[] = { rank->rank };

        (void)multi_expect(rank,
                ncclCommShrink(rank->comm, me, 1, &child, NULL, NCCL_SHRINK_DEFAULT),
                ncclInvalidArgument, "an excluded rank shrinks");
        (void)multi_barrier(rank);
        return;
    }
    if (multi_ok(rank,
                ncclCommShrink(rank->comm, excluded, 2, &child, NULL,
                        NCCL_SHRINK_DEFAULT),
                "ncclCommShrink")) {
        static const int who[] = { 0, -1, 1, -1, 2 };

        is_member(rank, child, who[rank->rank], 3, "the survivors");
        (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
    }
    (void)multi_barrier(rank);
}

static void shrink_checks_its_arguments(multi_rank *rank)
{
    int list[] = { 1 };
    ncclComm_t child = NULL;

    (void)multi_expect(rank, ncclCommShrink(NULL, list, 1, &child, NULL, 0),
            ncclInvalidArgument, "shrink of NULL");
    (void)multi_expect(rank, ncclCommShrink(rank->comm, NULL, 1, &child, NULL, 0),
            ncclInvalidArgument, "no list");
    (void)multi_expect(rank, ncclCommShrink(rank->comm, list, 0, &child, NULL, 0),
            ncclInvalidArgument, "an empty list");
    (void)multi_expect(rank, ncclCommShrink(rank->comm, list, -2, &child, NULL, 0),
            ncclInvalidArgument, "a negative count");
    (void)multi_expect(rank, ncclCommShrink(rank->comm, list, 1, NULL, NULL, 0),
            ncclInvalidArgument, "no place");
}

/** Ranks 0 and 1 are stuck in an all_reduce on streams that rank 2 never joins. */
static void shrink_with_abort_ends_what_is_stuck(multi_rank *rank)
{
    int excluded[] = { 2 };
    int32_t mine = 1, sum = 0;
    ncclComm_t child = NULL;
    cudaStream_t stream = NULL;

    if (rank->rank == 2) {
        (void)multi_barrier(rank);
        return;
    }
    (void)multi_ok(rank, motet_stream_create(&stream), "motet_stream_create");
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, stream),
            "all_reduce without rank 2");
    multi_sleep_us(50000);
    if (multi_ok(rank,
                ncclCommShrink(rank->comm, excluded, 1, &child, NULL,
                        NCCL_SHRINK_ABORT),
                "shrink with abort")) {
        is_member(rank, child, rank->rank, 2, "the survivors");
        (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
    }
    (void)multi_check(rank, motet_stream_synchronize(stream) != ncclSuccess,
            "the operation that was ended says success");
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
    (void)multi_barrier(rank);
}

/** Ranks 0 and 1 have a communicator, rank 2 is new. */
static void grow_adds_new_ranks(multi_rank *rank)
{
    ncclComm_t old = NULL, grown = NULL;
    ncclUniqueId *shared = rank->shared, first;

    if (rank->rank == 0)
        (void)multi_ok(rank, ncclGetUniqueId(&shared[0]), "ncclGetUniqueId");
    if (!multi_barrier(rank))
        return;
    first = shared[0];
    if (rank->rank < 2 &&
            !multi_ok(rank, ncclCommInitRank(&old, 2, first, rank->rank),
                    "init of two"))
        return;
    if (rank->rank == 0)
        (void)multi_ok(rank, ncclCommGetUniqueId(old, &shared[1]),
                "ncclCommGetUniqueId");
    if (!multi_barrier(rank))
        return;
    if (rank->rank < 2) {
        (void)multi_expect(rank, ncclCommGrow(old, 2, NULL, -1, &grown, NULL),
                ncclInvalidArgument, "grow to the same size");
        (void)multi_expect(rank, ncclCommGrow(old, 3, NULL, 0, &grown, NULL),
                ncclInvalidArgument, "an old rank that names its rank");
        (void)multi_ok(rank,
                ncclCommGrow(old, 3, rank->rank == 0 ? &shared[1] : NULL, -1, &grown,
                        NULL),
                "an old rank grows");
    } else {
        (void)multi_expect(rank, ncclCommGrow(NULL, 3, &shared[1], 3, &grown, NULL),
                ncclInvalidArgument, "a new rank out of range");
        (void)multi_expect(rank, ncclCommGrow(NULL, 3, NULL, 2, &grown, NULL),
                ncclInvalidArgument, "a new rank without id");
        (void)multi_ok(rank, ncclCommGrow(NULL, 3, &shared[1], 2, &grown, NULL),
                "a new rank grows");
    }
    is_member(rank, grown, rank->rank, 3, "the grown one");
    (void)multi_ok(rank, ncclCommDestroy(grown), "ncclCommDestroy");
    (void)multi_ok(rank, ncclCommDestroy(old), "ncclCommDestroy");
}

/** A loopback port that nobody listens on, into NCCL_COMM_ID. */
static bool choose_address(multi_rank *rank)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t bytes = sizeof(at);
    char text[32];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool fine;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fine = fd >= 0 && bind(fd, (struct sockaddr *)&at, bytes) == 0 &&
            getsockname(fd, (struct sockaddr *)&at, &bytes) == 0;
    if (fd >= 0)
        (void)close(fd);
    (void)snprintf(text, sizeof(text), "127.0.0.1:%d", ntohs(at.sin_port));
    return multi_check(rank, fine && setenv("NCCL_COMM_ID", text, 1) == 0,
            "no loopback port");
}

static void grow_does_not_go_with_a_fixed_address(multi_rank *rank)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;

    if (!choose_address(rank))
        return;
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (!multi_ok(rank, ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank"))
        return;
    (void)rules_works(rank, comm, "at a fixed address");
    (void)multi_expect(rank, ncclCommGetUniqueId(comm, &id), ncclInvalidUsage,
            "ncclCommGetUniqueId with NCCL_COMM_ID set");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void children_of_many_colours_at_once(multi_rank *rank)
{
    ncclComm_t child[20] = { NULL };

    for (int i = 0; i < 20; i++) {
        int mask = i % 7 + 1;

        if (!multi_ok(rank,
                    ncclCommSplit(rank->comm, rank->rank & mask,
                            i & 1 ? -rank->rank : 0, &child[i], NULL),
                    "split"))
            return;
    }
    for (int i = 0; i < 20; i++)
        (void)rules_works(rank, child[i], "of one of twenty children");
    for (int i = 0; i < 20; i++)
        (void)multi_ok(rank, ncclCommDestroy(child[i]), "ncclCommDestroy");
}

const rule rules_members[] = {
    { "split orders by key, then by old rank", split_orders_by_key_then_old_rank,
            MULTI_PROCESSES, 5, true, NULL, 0 },
    { "split without colour gives NULL, and takes part",
            split_without_colour_gives_null, MULTI_THREADS, 3, true, NULL, 0 },
    { "a split of a split outlives its parents", split_of_a_split_outlives_its_parents,
            MULTI_PROCESSES, 4, false, NULL, 0 },
    { "split checks its arguments", split_checks_its_arguments, MULTI_THREADS, 1, true,
            NULL, 0 },
    { "one thread splits four ranks in a group", split_by_one_thread_needs_a_group,
            MULTI_ONE_THREAD, 4, true, NULL, 0 },
    { "shrink leaves the excluded out and refuses them", shrink_leaves_the_excluded_out,
            MULTI_PROCESSES, 5, true, NULL, 0 },
    { "shrink checks its arguments", shrink_checks_its_arguments, MULTI_THREADS, 2,
            true, NULL, 0 },
    { "shrink with abort ends what is stuck", shrink_with_abort_ends_what_is_stuck,
            MULTI_PROCESSES, 3, true, NULL, 0 },
    { "grow adds new ranks", grow_adds_new_ranks, MULTI_PROCESSES, 3, false, NULL, 0 },
    { "grow does not go with NCCL_COMM_ID", grow_does_not_go_with_a_fixed_address,
            MULTI_THREADS, 1, false, NULL, 0 },
    { "twenty children of different colours at once", children_of_many_colours_at_once,
            MULTI_THREADS, 4, true, NULL, 0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
