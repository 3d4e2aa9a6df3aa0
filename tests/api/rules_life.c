/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of how a communicator begins and ends. */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

static void wrong_ranks_are_refused_at_init(multi_rank *rank)
{
    static const struct {
        int nranks, rank;
    } bad[] = { { 0, 0 }, { -1, 0 }, { 2, -1 }, { 2, 2 }, { 1, 7 } };
    ncclComm_t comm;
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        comm = (ncclComm_t)(void *)rank;
        (void)multi_expect(rank,
                ncclCommInitRank(&comm, bad[i].nranks, id, bad[i].rank),
                ncclInvalidArgument, "rank %d of %d", bad[i].rank, bad[i].nranks);
        (void)multi_check(rank, comm == NULL, "rank %d of %d left a communicator",
                bad[i].rank, bad[i].nranks);
    }
    (void)multi_expect(rank, ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument,
            "no place for the communicator");
    (void)multi_ok(rank, ncclCommInitRank(&comm, 1, id, 0),
            "a good call with the same id");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void foreign_ids_are_refused_at_init(multi_rank *rank)
{
    ncclUniqueId zeros, noise, ours;
    ncclComm_t comm = NULL;
    uint64_t start = multi_now_ns();

    memset(&zeros, 0, sizeof(zeros));
    memset(&noise, 0x77, sizeof(noise));
    (void)multi_ok(rank, ncclGetUniqueId(&ours), "ncclGetUniqueId");
    (void)multi_expect(rank, ncclCommInitRank(&comm, 2, zeros, 0), ncclInvalidArgument,
            "an id of zeros");
    (void)multi_expect(rank, ncclCommInitRank(&comm, 2, noise, 0), ncclInvalidArgument,
            "an id of noise");
    (void)rules_says(rank, NULL, "id");
    ours.internal[0] = (char)(ours.internal[0] ^ 1);
    (void)multi_expect(rank, ncclCommInitRank(&comm, 2, ours, 0), ncclInvalidArgument,
            "an id with one bit changed");
    (void)multi_check(rank, comm == NULL, "a refused id left a communicator");
    (void)multi_check(rank, multi_now_ns() - start < 5000000000ull,
            "foreign ids were refused after more than 5 s");
}

static void wrong_configurations_are_refused(multi_rank *rank)
{
    static const struct {
        const char *what;
        size_t offset;
        int value;
    } bad[] = {
        { "magic", offsetof(ncclConfig_t, magic), 7 },
        { "blocking", offsetof(ncclConfig_t, blocking), 2 },
        { "cgaClusterSize", offsetof(ncclConfig_t, cgaClusterSize), -1 },
        { "minCTAs", offsetof(ncclConfig_t, minCTAs), 0 },
        { "maxCTAs", offsetof(ncclConfig_t, maxCTAs), -4 },
        { "splitShare", offsetof(ncclConfig_t, splitShare), 2 },
        { "collnetEnable", offsetof(ncclConfig_t, collnetEnable), 9 },
        { "CTAPolicy", offsetof(ncclConfig_t, CTAPolicy), 64 },
        { "shrinkShare", offsetof(ncclConfig_t, shrinkShare), -1 },
        { "nvlsCTAs", offsetof(ncclConfig_t, nvlsCTAs), 0 },
    };
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = (ncclComm_t)(void *)rank;

        memcpy((char *)&config + bad[i].offset, &bad[i].value, sizeof(int));
        (void)multi_expect(rank, ncclCommInitRankConfig(&comm, 1, id, 0, &config),
                ncclInvalidArgument, "%s is %d", bad[i].what, bad[i].value);
        (void)multi_check(rank, comm == NULL, "bad %s left a communicator",
                bad[i].what);
        if (i > 0)
            (void)rules_says(rank, NULL, bad[i].what);
    }
}

/** Structures of all versions, followed by what is not theirs. */
static void configurations_of_every_version_are_taken(multi_rank *rank)
{
    static const struct {
        size_t size;
        unsigned version;
    } of[] = { { 24, 21400 }, { 40, 21700 }, { 48, 21800 }, { 48, 22600 },
        { 72, 22700 }, { 80, 22800 }, { 88, 22900 }, { 96, 23003 }, { 96, 23007 },
        { 120, 23100 }, { 400, 29900 } };
    /* Offsets at which a size_t or a pointer would be garbage are left NULL. */
    static const size_t ints[] = { 20, 24, 28, 40, 44, 56, 60, 64, 68 };

    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        _Alignas(16) unsigned char bytes[512];
        unsigned magic = NCCL_API_MAGIC, blocking = 1;
        int undef = NCCL_CONFIG_UNDEF_INT;
        ncclComm_t comm = NULL;
        ncclUniqueId id;

        memset(bytes, 0xee, sizeof(bytes));
        memset(bytes + 32, 0, 8);
        memset(bytes + 48, 0, 8);
        memcpy(bytes, &of[i].size, sizeof(size_t));
        memcpy(bytes + 8, &magic, 4);
        memcpy(bytes + 12, &of[i].version, 4);
        memcpy(bytes + 16, &blocking, 4);
        /* A field that the version knows is left undefined; the others stay garbage. */
        for (size_t k = 0; k < sizeof(ints) / sizeof(*ints); k++)
            if (ints[k] < of[i].size && !(ints[k] == 44 && of[i].version < 22600))
                memcpy(bytes + ints[k], &undef, 4);
        for (size_t at = 72; at + 4 <= of[i].size && at < 120; at += 4)
            if (at != 92 || of[i].version != 23003)
                memcpy(bytes + at, &undef, 4);
        (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
        if (!multi_expect(rank,
                    ncclCommInitRankConfig(&comm, 1, id, 0,
                            (ncclConfig_t *)(void *)bytes),
                    ncclSuccess, "a configuration of %zu bytes, version %u", of[i].size,
                    of[i].version))
            continue;
        (void)rules_works(rank, comm, "with an old or new configuration");
        (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
    }
}

static void init_all_checks_its_devices(multi_rank *rank)
{
    static const int twice[] = { 3, 3 }, negative[] = { 0, -1 }, good[] = { 5, 2 };
    ncclComm_t comms[2] = { NULL, NULL };
    int device = -1, who = -1, n = 0;

    (void)multi_expect(rank, ncclCommInitAll(NULL, 2, NULL), ncclInvalidArgument,
            "no place for the communicators");
    (void)multi_expect(rank, ncclCommInitAll(comms, -1, NULL), ncclInvalidArgument,
            "-1 devices");
    (void)multi_expect(rank, ncclCommInitAll(comms, 2, twice), ncclInvalidUsage,
            "a device twice");
    (void)multi_expect(rank, ncclCommInitAll(comms, 2, negative), ncclInvalidArgument,
            "a negative device");
    if (!multi_ok(rank, ncclCommInitAll(comms, 2, good), "ncclCommInitAll"))
        return;
    (void)multi_ok(rank, ncclCommCuDevice(comms[0], &device), "ncclCommCuDevice");
    (void)multi_check(rank, device == 5, "device of rank 0 is %d, expected 5", device);
    (void)multi_ok(rank, ncclCommUserRank(comms[1], &who), "ncclCommUserRank");
    (void)multi_ok(rank, ncclCommCount(comms[1], &n), "ncclCommCount");
    (void)multi_check(rank, who == 1 && n == 2, "rank %d of %d, expected 1 of 2", who,
            n);
    (void)rules_all_work(rank, comms, 2, "of ncclCommInitAll");
    (void)multi_ok(rank, ncclCommDestroy(comms[0]), "ncclCommDestroy");
    (void)multi_ok(rank, ncclCommDestroy(comms[1]), "ncclCommDestroy");
}

static void null_handles_at_the_end_are_fine(multi_rank *rank)
{
    int n = 0;
    ncclResult_t state;

    (void)multi_ok(rank, ncclCommFinalize(NULL), "ncclCommFinalize(NULL)");
    (void)multi_ok(rank, ncclCommDestroy(NULL), "ncclCommDestroy(NULL)");
    (void)multi_ok(rank, ncclCommAbort(NULL), "ncclCommAbort(NULL)");
    (void)multi_ok(rank, ncclCommRevoke(NULL, 0), "ncclCommRevoke(NULL)");
    (void)multi_expect(rank, ncclCommCount(NULL, &n), ncclInvalidArgument,
            "count of NULL");
    (void)multi_expect(rank, ncclCommUserRank(NULL, &n), ncclInvalidArgument,
            "rank of NULL");
    (void)multi_expect(rank, ncclCommCuDevice(NULL, &n), ncclInvalidArgument,
            "device of NULL");
    (void)multi_expect(rank, ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument,
            "async error of NULL");
    (void)multi_expect(rank, ncclCommCount(rank->comm, NULL), ncclInvalidArgument,
            "count without place");
    (void)multi_expect(rank, ncclCommUserRank(rank->comm, NULL), ncclInvalidArgument,
            "rank without place");
    (void)multi_expect(rank, ncclCommCuDevice(rank->comm, NULL), ncclInvalidArgument,
            "device without place");
    (void)multi_expect(rank, ncclCommGetAsyncError(rank->comm, NULL),
            ncclInvalidArgument, "async error without place");
}

static void finalize_comes_once_then_only_destroy(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    int32_t mine = 1, sum = 0;

    if (!multi_comm(rank, 0, &comm))
        return;
    (void)rules_works(rank, comm, "before finalize");
    (void)multi_ok(rank, ncclCommFinalize(comm), "ncclCommFinalize");
    (void)multi_expect(rank, ncclCommFinalize(comm), ncclInvalidArgument,
            "a second ncclCommFinalize");
    (void)multi_check(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL) !=
                    ncclSuccess,
            "an operation after ncclCommFinalize was taken");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void destroy_waits_for_nobody_after_finalize(multi_rank *rank)
{
    ncclComm_t comm = NULL;

    if (!multi_comm(rank, 0, &comm))
        return;
    (void)rules_works(rank, comm, "before finalize");
    (void)multi_ok(rank, ncclCommFinalize(comm), "ncclCommFinalize");
    if (rank->rank == 0)
        (void)multi_ok(rank, ncclCommDestroy(comm), "rank 0 destroys first");
    if (!multi_barrier(rank))
        return;
    if (rank->rank == 1)
        (void)multi_ok(rank, ncclCommDestroy(comm), "rank 1 destroys later");
}

static void revoke_ends_operations_but_not_the_communicator(multi_rank *rank)
{
    ncclComm_t child = NULL;
    int32_t mine = 1, sum = 0;

    (void)multi_expect(rank, ncclCommRevoke(rank->comm, 5), ncclInvalidArgument,
            "unknown flags");
    (void)rules_works(rank, rank->comm, "before revoke");
    if (!multi_barrier(rank))
        return;
    (void)multi_ok(rank, ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT),
            "ncclCommRevoke");
    (void)multi_expect(rank, ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT),
            ncclInvalidArgument, "a second ncclCommRevoke");
    (void)multi_expect(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            ncclInvalidUsage, "all_reduce after revoke");
    (void)multi_check(rank, ncclCommFinalize(rank->comm) != ncclSuccess,
            "a revoked communicator was finalized");
    if (!multi_ok(rank, ncclCommSplit(rank->comm, 0, rank->rank, &child, NULL),
                "split of a revoked communicator"))
        return;
    (void)rules_works(rank, child, "of a revoked communicator's child");
    (void)multi_ok(rank, ncclCommDestroy(child), "ncclCommDestroy");
}

static void scalable_init_takes_several_ids(multi_rank *rank)
{
    ncclUniqueId ids[2];
    ncclComm_t comm = NULL;

    if (!multi_id(rank, 0, &ids[0]) || !multi_id(rank, 1, &ids[1]))
        return;
    (void)multi_expect(rank,
            ncclCommInitRankScalable(&comm, 4, rank->rank, 0, ids, NULL),
            ncclInvalidArgument, "no ids");
    (void)multi_expect(rank,
            ncclCommInitRankScalable(&comm, 4, rank->rank, 5, ids, NULL),
            ncclInvalidArgument, "more ids than ranks");
    (void)multi_expect(rank,
            ncclCommInitRankScalable(&comm, 4, rank->rank, 1, NULL, NULL),
            ncclInvalidArgument, "NULL ids");
    if (!multi_ok(rank, ncclCommInitRankScalable(&comm, 4, rank->rank, 2, ids, NULL),
                "ncclCommInitRankScalable"))
        return;
    (void)rules_works(rank, comm, "after a scalable init");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void a_rank_twice_is_refused_on_all(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    if (!multi_id(rank, 0, &id))
        return;
    (void)multi_expect(rank, ncclCommInitRank(&comm, 2, id, 0), ncclInvalidUsage,
            "both ranks are rank 0");
    (void)rules_says(rank, NULL, "rank 0");
    (void)multi_check(rank, comm == NULL, "a communicator was left");
}

static void different_sizes_are_refused_on_all(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    if (!multi_id(rank, 0, &id))
        return;
    (void)multi_expect(rank, ncclCommInitRank(&comm, 2 + rank->rank, id, rank->rank),
            ncclInvalidUsage, "one rank says 2 ranks, the other 3");
    (void)multi_check(rank, comm == NULL, "a communicator was left");
}

static void names_are_copied_at_init(multi_rank *rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char *name = malloc(300);
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    memset(name, 'n', 299);
    name[299] = '\0';
    config.commName = name;
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (multi_ok(rank, ncclCommInitRankConfig(&comm, 1, id, 0, &config), "init")) {
        free(name);
        (void)rules_works(rank, comm, "after its name was freed");
        (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
    }
}

static void sixteen_communicators_live_side_by_side(multi_rank *rank)
{
    enum { N = 16 };
    ncclComm_t comm[N] = { NULL };

    for (int i = 0; i < N; i++)
        if (!multi_comm(rank, i, &comm[i]))
            return;
    for (int i = N; i-- > 0;)
        (void)rules_works(rank, comm[i], "of sixteen");
    for (int i = 0; i < N; i++)
        (void)multi_ok(rank, ncclCommDestroy(comm[(i * 7) % N]), "ncclCommDestroy");
}

/** The best of five, since others may be using the machine. */
static void two_processes_meet_quickly(multi_rank *rank)
{
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 5; i++) {
        ncclComm_t comm = NULL;
        ncclUniqueId id;
        uint64_t start, took;

        if (!multi_id(rank, i, &id) || !multi_barrier(rank))
            return;
        start = multi_now_ns();
        if (!multi_ok(rank, ncclCommInitRank(&comm, 2, id, rank->rank), "init"))
            return;
        took = multi_now_ns() - start;
        best_ns = took < best_ns ? took : best_ns;
        (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    (void)multi_check(rank, best_ns < 150000000, "the best of five took %llu us",
            (unsigned long long)(best_ns / 1000));
#endif
}

#define ALONE MULTI_THREADS, 1, false, NULL, 0

const rule rules_life[] = {
    { "wrong ranks and sizes are refused at init", wrong_ranks_are_refused_at_init,
            ALONE },
    { "ids that are not ours are refused at init", foreign_ids_are_refused_at_init,
            ALONE },
    { "wrong configurations are refused, naming the field",
            wrong_configurations_are_refused, ALONE },
    { "configurations of every version are taken",
            configurations_of_every_version_are_taken, ALONE },
    { "ncclCommInitAll checks its devices and keeps their numbers",
            init_all_checks_its_devices, ALONE },
    { "NULL is fine where a communicator ends, and nowhere else",
            null_handles_at_the_end_are_fine, MULTI_THREADS, 1, true, NULL, 0 },
    { "finalize comes once, then only destroy", finalize_comes_once_then_only_destroy,
            MULTI_PROCESSES, 2, false, NULL, 0 },
    { "destroy waits for nobody after finalize",
            destroy_waits_for_nobody_after_finalize, MULTI_PROCESSES, 2, false, NULL,
            0 },
    { "revoke ends the operations but not the communicator",
            revoke_ends_operations_but_not_the_communicator, MULTI_PROCESSES, 2, true,
            NULL, 0 },
    { "a scalable init takes several ids", scalable_init_takes_several_ids,
            MULTI_PROCESSES, 4, false, NULL, 0 },
    { "a rank that comes twice is refused on all ranks", a_rank_twice_is_refused_on_all,
            MULTI_PROCESSES, 2, false, NULL, 0 },
    { "ranks that disagree about their number are refused",
            different_sizes_are_refused_on_all, MULTI_PROCESSES, 2, false, NULL, 0 },
    { "names in a configuration are copied", names_are_copied_at_init, ALONE },
    { "two processes meet in less than 150 ms", two_processes_meet_quickly,
            MULTI_PROCESSES, 2, false, NULL, 0 },
    { "sixteen communicators live side by side",
            sixteen_communicators_live_side_by_side, MULTI_PROCESSES, 2, false, NULL,
            0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
