/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of host streams and of time limits. */
#include "rules.h"

#include <stdatomic.h>
#include <string.h>

static cudaStream_t new_stream(multi_rank *rank)
{
    cudaStream_t stream = NULL;

    (void)multi_ok(rank, motet_stream_create(&stream), "motet_stream_create");
    return stream;
}

static void drop_stream(multi_rank *rank, cudaStream_t stream)
{
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
}

/** Rank 0 gives its operation before rank 1 has begun, and gets control back. */
static void operations_on_a_stream_return_at_once(multi_rank *rank)
{
    cudaStream_t stream = new_stream(rank);
    int32_t mine = rank->rank + 1, sum = 0;

    if (rank->rank == 1 && !multi_barrier(rank))
        return;
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, stream),
            "all_reduce");
    if (rank->rank == 0) {
        (void)multi_expect(rank, motet_stream_query(stream), ncclInProgress,
                "query while the peer is absent");
        if (!multi_barrier(rank))
            return;
    }
    (void)multi_ok(rank, motet_stream_synchronize(stream), "synchronize");
    (void)multi_ok(rank, motet_stream_query(stream), "query of an idle stream");
    (void)multi_check(rank, sum == 3, "sum is %d, expected 3", sum);
    drop_stream(rank, stream);
}

static void work_on_a_stream_runs_in_order(multi_rank *rank)
{
    enum { N = 50 };
    cudaStream_t stream = new_stream(rank);
    int64_t value = rank->rank + 1;

    for (int i = 0; i < N; i++)
        (void)multi_ok(rank,
                ncclAllReduce(&value, &value, 1, ncclInt64, i % 2 ? ncclMax : ncclSum,
                        rank->comm, stream),
                "all_reduce");
    (void)multi_ok(rank, motet_stream_synchronize(stream), "synchronize");
    /* 3 after the first sum, then doubled by each of the 24 others. */
    (void)multi_check(rank, value == (int64_t)3 << 24, "value is %lld, expected %lld",
            (long long)value, (long long)3 << 24);
    drop_stream(rank, stream);
}

struct note {
    _Atomic int *clock;
    int seen;
    unsigned sleep_us;
};

static void take_note(void *arg)
{
    struct note *note = arg;

    if (note->sleep_us != 0)
        multi_sleep_us(note->sleep_us);
    note->seen = atomic_fetch_add(note->clock, 1);
}

static void a_stream_waits_for_another(multi_rank *rank)
{
    _Atomic int clock = 0;
    struct note slow = { &clock, -1, 50000 }, after = { &clock, -1, 0 };
    cudaStream_t a = new_stream(rank), b = new_stream(rank);

    (void)multi_ok(rank, motet_stream_launch(a, take_note, &slow), "launch");
    (void)multi_ok(rank, motet_stream_wait(b, a), "motet_stream_wait");
    (void)multi_ok(rank, motet_stream_launch(b, take_note, &after), "launch");
    (void)multi_ok(rank, motet_stream_synchronize(b), "synchronize");
    (void)multi_check(rank, slow.seen == 0 && after.seen == 1,
            "the slow one ran as number %d, what waits for it as %d", slow.seen,
            after.seen);
    drop_stream(rank, a);
    drop_stream(rank, b);
}

static void destroying_a_stream_waits_for_its_work(multi_rank *rank)
{
    _Atomic int clock = 0;
    struct note slow = { &clock, -1, 50000 };
    cudaStream_t stream = new_stream(rank);

    (void)multi_ok(rank, motet_stream_launch(stream, take_note, &slow), "launch");
    drop_stream(rank, stream);
    (void)multi_check(rank, slow.seen == 0, "the work had not run");
}

static void wrong_streams_are_refused(multi_rank *rank)
{
    int word = 0;
    cudaStream_t good = new_stream(rank), gone = new_stream(rank);
    cudaStream_t bad[3] = { NULL, (cudaStream_t)(void *)&word, gone };

    drop_stream(rank, gone);
    (void)multi_expect(rank, motet_stream_create(NULL), ncclInvalidArgument,
            "create without place");
    for (int i = 0; i < 3; i++) {
        (void)multi_expect(rank, motet_stream_destroy(bad[i]), ncclInvalidArgument,
                "destroy no stream (%d)", i);
        (void)multi_expect(rank, motet_stream_wait(good, bad[i]), ncclInvalidArgument,
                "wait for no stream (%d)", i);
        if (bad[i] == NULL)
            continue; /* whether NULL, the blocking stream, can be asked is not said */
        (void)multi_expect(rank, motet_stream_synchronize(bad[i]), ncclInvalidArgument,
                "synchronize no stream (%d)", i);
        (void)multi_expect(rank, motet_stream_query(bad[i]), ncclInvalidArgument,
                "query no stream (%d)", i);
    }
    drop_stream(rank, good);
}

/** One operation after another on different streams: the communicator keeps their order. */
static void two_streams_keep_the_communicators_order(multi_rank *rank)
{
    cudaStream_t s[2] = { new_stream(rank), new_stream(rank) };
    int32_t mine[20], sum[20];

    for (int i = 0; i < 20; i++) {
        mine[i] = (rank->rank + 1) * i;
        sum[i] = -1;
        (void)multi_ok(rank,
                ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, rank->comm,
                        s[i % 2]),
                "all_reduce");
    }
    for (int i = 0; i < 2; i++) {
        (void)multi_ok(rank, motet_stream_synchronize(s[i]), "synchronize");
        drop_stream(rank, s[i]);
    }
    for (int i = 0; i < 20; i++)
        (void)multi_check(rank, sum[i] == 3 * i, "sum %d is %d, expected %d", i, sum[i],
                3 * i);
}

static void failure_on_a_stream_is_reported_once(multi_rank *rank)
{
    cudaStream_t stream = new_stream(rank);
    int32_t mine = 1, sum = 0;

    if (rank->rank == 0) {
        (void)multi_ok(rank, motet_comm_set_timeout(rank->comm, 1), "set timeout");
        (void)multi_ok(rank,
                ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, stream),
                "all_reduce");
        (void)multi_expect(rank, motet_stream_synchronize(stream), ncclRemoteError,
                "synchronize after a deadline");
        (void)multi_ok(rank, motet_stream_synchronize(stream), "synchronize again");
    }
    (void)multi_barrier(rank);
    drop_stream(rank, stream);
}

/** Rank 1 stays away; rank 0's call must end near @p ms and name it. */
static void absent_until(multi_rank *rank, ncclResult_t got, uint64_t start,
        unsigned ms)
{
    uint64_t took_ms = (multi_now_ns() - start) / 1000000;
    ncclResult_t state = ncclSuccess;

    (void)multi_expect(rank, got, ncclRemoteError, "an operation whose peer is absent");
    (void)rules_says(rank, rank->comm, "rank 1");
    (void)multi_check(rank, took_ms + 20 >= ms && took_ms < ms + 3000,
            "it took %llu ms, expected %u", (unsigned long long)took_ms, ms);
    (void)multi_ok(rank, ncclCommGetAsyncError(rank->comm, &state), "async error");
    (void)multi_check(rank, state == ncclRemoteError, "the state is %d", (int)state);
}

static void a_call_has_its_own_time_limit(multi_rank *rank)
{
    ncclConfigExt_t ext = { .next = NULL };
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    int32_t mine = 1, sum = 0;
    uint64_t start;

    ext.key.vendorId = MOTET_EXT_VENDOR;
    ext.key.optionId = MOTET_EXT_TIMEOUT_MS;
    ext.val.i = 300;
    config.ext = &ext;
    if (rank->rank == 0) {
        start = multi_now_ns();
        absent_until(rank,
                ncclAllReduceConfig(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm,
                        NULL, &config),
                start, 300);
    }
    (void)multi_barrier(rank);
}

static void a_communicator_has_its_own_time_limit(multi_rank *rank)
{
    int32_t mine = 1, sum = 0;
    uint64_t start;

    if (rank->rank == 0) {
        (void)multi_ok(rank, motet_comm_set_timeout(rank->comm, 1), "set timeout");
        start = multi_now_ns();
        absent_until(rank,
                ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
                start, 1000);
    }
    (void)multi_barrier(rank);
}

static void a_late_peer_within_the_limit_is_fine(multi_rank *rank)
{
    int32_t mine = 1, sum = 0;

    if (rank->rank == 1)
        multi_sleep_us(400000);
    (void)multi_ok(rank, motet_comm_set_timeout(rank->comm, 5), "set timeout");
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            "all_reduce");
    (void)multi_check(rank, sum == 2, "sum is %d", sum);
}

static void communicators_and_devices_describe_themselves(multi_rank *rank)
{
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;
    motet_device_info_t device = MOTET_DEVICE_INFO_INITIALIZER;
    motet_comm_info_t none = { .size = 0 };
    char plan[256] = "";

    (void)rules_works(rank, rank->comm, "first");
    (void)multi_ok(rank, motet_comm_query(rank->comm, &info), "motet_comm_query");
    (void)multi_check(rank,
            info.rank == rank->rank && info.nranks == 2 && info.nodes == 1 &&
                    info.device == MOTET_DEVICE_CPU && info.operations >= 1,
            "rank %d of %d on %d nodes, device %d, %llu operations", info.rank,
            info.nranks, info.nodes, (int)info.device,
            (unsigned long long)info.operations);
    (void)multi_check(rank, strcmp(info.path, "shared") == 0, "path is \"%s\"",
            info.path);
    (void)multi_check(rank, strcmp(info.version, motet_version()) == 0,
            "version is \"%s\"", info.version);
    (void)multi_ok(rank,
            motet_explain(rank->comm, "all_reduce", 4, ncclFloat32, ncclSum, plan,
                    sizeof(plan)),
            "motet_explain");
    (void)multi_check(rank, strstr(plan, "path: shared\nalgorithm: ") == plan,
            "the plan is '%s'", plan);
    (void)multi_expect(rank,
            motet_explain(rank->comm, "juggle", 4, ncclFloat32, ncclSum, plan,
                    sizeof(plan)),
            ncclInvalidArgument, "motet_explain of no operation");
    (void)multi_expect(rank,
            motet_explain(rank->comm, "send", 4, ncclFloat32, ncclSum, plan, 0),
            ncclInvalidArgument, "motet_explain without room");
    (void)multi_expect(rank, motet_comm_query(rank->comm, NULL), ncclInvalidArgument,
            "no place");
    (void)multi_expect(rank, motet_comm_query(rank->comm, &none), ncclInvalidArgument,
            "no size");
    (void)multi_ok(rank, motet_device_query(MOTET_DEVICE_CPU, 0, &device), "device");
    (void)multi_check(rank, device.name[0] != '\0' && device.memory_bytes > 0,
            "the device is \"%s\", %llu bytes", device.name,
            (unsigned long long)device.memory_bytes);
    (void)multi_expect(rank, motet_device_query(MOTET_DEVICE_GPU, 0, &device),
            ncclUnhandledCudaError, "a GPU on a machine without one");
}

#define PAIR  MULTI_PROCESSES, 2, true, NULL, 0
#define ALONE MULTI_THREADS, 1, false, NULL, 0

const rule rules_streams[] = {
    { "operations on a stream return at once", operations_on_a_stream_return_at_once,
            PAIR },
    { "work on a stream runs in order", work_on_a_stream_runs_in_order, PAIR },
    { "a stream waits for another", a_stream_waits_for_another, ALONE },
    { "destroying a stream waits for its work", destroying_a_stream_waits_for_its_work,
            ALONE },
    { "what is no stream is refused", wrong_streams_are_refused, ALONE },
    { "operations on two streams keep the communicator's order",
            two_streams_keep_the_communicators_order, PAIR },
    { "a failure on a stream is reported once", failure_on_a_stream_is_reported_once,
            PAIR },
    { "a call has its own time limit", a_call_has_its_own_time_limit, PAIR },
    { "a communicator has its own time limit", a_communicator_has_its_own_time_limit,
            PAIR },
    { "a late peer within the limit is fine", a_late_peer_within_the_limit_is_fine,
            PAIR },
    { "communicators and devices describe themselves",
            communicators_and_devices_describe_themselves, PAIR },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
