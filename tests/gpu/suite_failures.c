/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that die, stay away, disagree or are called off while kernels wait for them.
 * Every kernel must end in bounded time, and the sentence names the rank at fault.
 */
#include "suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#define COUNT    4099
#define BYTES    (COUNT * sizeof(float))
#define DEATH_MS 5000 /* from a death until every kernel of a survivor has ended */

static uint64_t since_ms(uint64_t start)
{
    return (multi_now_ns() - start) / 1000000;
}

struct pair_of_buffers {
    CUdeviceptr from, to;
};

static bool buffers(gpu_rank *g, struct pair_of_buffers *b)
{
    b->from = gpu_reserve(g, 16 * BYTES);
    b->to = gpu_reserve(g, 16 * BYTES);
    return b->from != 0 && b->to != 0 && suite_put(g, b->from, 1, g->number, 0, COUNT);
}

static void say_name(char *buf, size_t bytes, int rank)
{
    (void)snprintf(buf, bytes, "rank %d", rank);
}

/** The communicator failed with @p want, its stream is free, the sentence has @p word. */
static bool ended(gpu_rank *g, ncclResult_t want, const char *word, unsigned ms)
{
    ncclResult_t got = suite_fate(g, g->comm, ms);

    return multi_check(g->rank, got == want, "its fate is %d (%s), expected %d: %s",
                   (int)got, ncclGetErrorString(got), (int)want,
                   ncclGetLastError(g->comm)) &&
            suite_says(g, g->comm, word) &&
            multi_check(g->rank, gpu_idle_within(g, g->stream[0], ms),
                    "a kernel still waits");
}

static void abort_it(gpu_rank *g)
{
    uint64_t start = multi_now_ns();

    (void)multi_ok(g->rank, ncclCommAbort(g->comm), "ncclCommAbort");
    (void)multi_check(g->rank, since_ms(start) < DEATH_MS, "ncclCommAbort took %llu ms",
            (unsigned long long)since_ms(start));
    g->comm = NULL;
}

/** End here: the rank that is gone would be waited for at the end of the test. */
static void leave(gpu_rank *g)
{
    if (!multi_failed(g->rank))
        multi_vanish(g->rank);
}

/* ---- absent ---- */

static void absent_rank(gpu_rank *g, bool graph)
{
    int absent = g->rank->nranks - 1;
    struct pair_of_buffers b;
    CUgraphExec exec = NULL;
    char name[32];
    bool fine = buffers(g, &b) &&
            suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) &&
            gpu_sync(g, g->stream[0]);

    if (fine && graph)
        fine = gpu_record(g, g->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
                suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) &&
                gpu_recorded(g, g->stream[0], &exec);
    if (fine && g->number != absent)
        fine = graph ? gpu_play(g, exec, g->stream[0])
                     : suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]);
    say_name(name, sizeof(name), absent);
    if (fine && ended(g, ncclRemoteError, name, 20000))
        abort_it(g);
    gpu_drop_graph(g, &exec);
}

static void absent_in_a_call(gpu_rank *g)
{
    absent_rank(g, false);
}

static void absent_in_a_graph(gpu_rank *g)
{
    absent_rank(g, true);
}

/** A receive without its send. */
static void absent_message(gpu_rank *g)
{
    struct pair_of_buffers b;
    char name[32];

    if (!buffers(g, &b))
        return;
    say_name(name, sizeof(name), 1 - g->number);
    if (g->number == 0 &&
            !multi_ok(g->rank,
                    ncclRecv(gpu_at(b.to), COUNT, ncclFloat32, 1, g->comm,
                            gpu_handle(g->stream[0])),
                    "ncclRecv"))
        return;
    /* The one that is missed learns of it from the other. */
    if (ended(g, ncclRemoteError, g->number == 0 ? name : "rank", 20000))
        abort_it(g);
}

/** A rank that is slow beyond the warning but not the deadline fails nobody. */
static void slow_rank(gpu_rank *g)
{
    struct pair_of_buffers b;

    if (!buffers(g, &b) || (g->number == 1 && !gpu_delay(g, g->stream[0], 2500000)) ||
            !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !gpu_sync(g, g->stream[0]) || !gpu_well(g->rank, g->comm))
        return;
    (void)suite_is_sum(g, b.to, 1, COUNT, "the sum");
}

/* ---- death ---- */

/** Operations without end, queued ahead, until the communicator has failed. */
static void work_until_it_fails(gpu_rank *g, int victim)
{
    struct pair_of_buffers b;
    ncclResult_t state = ncclSuccess;
    char name[32];

    if (!buffers(g, &b))
        return;
    for (unsigned i = 0; state == ncclSuccess; i++) {
        multi_doing(g->rank, "operation %u", i);
        state = i % 2 ? ncclAllReduce(gpu_at(b.from), gpu_at(b.to), COUNT, ncclFloat32,
                                ncclSum, g->comm, gpu_handle(g->stream[0]))
                      : ncclAllGather(gpu_at(b.from), gpu_at(b.to), COUNT, ncclFloat32,
                                g->comm, gpu_handle(g->stream[0]));
        if (i == 3)
            multi_ready(g->rank);
        if (state == ncclSuccess && i % 16 == 15)
            (void)gpu_idle_within(g, g->stream[0], 20);
        if (state == ncclSuccess &&
                !multi_ok(g->rank, ncclCommGetAsyncError(g->comm, &state), "state"))
            return;
    }
    (void)multi_check(g->rank, state == ncclRemoteError, "the result is %d: %s",
            (int)state, ncclGetLastError(g->comm));
    say_name(name, sizeof(name), victim);
    (void)suite_says(g, g->comm, name);
    (void)multi_check(g->rank, gpu_idle_within(g, g->stream[0], DEATH_MS),
            "a kernel still waits");
    (void)multi_check(g->rank,
            (multi_now_ns() - multi_signal_ns(g->rank)) / 1000000 < DEATH_MS,
            "the death was %llu ms ago",
            (unsigned long long)((multi_now_ns() - multi_signal_ns(g->rank)) /
                    1000000));
    abort_it(g);
}

static void killed(gpu_rank *g)
{
    work_until_it_fails(g, 1);
}

/** The victim never enters the operation: the others' kernels wait when it dies. */
static void killed_while_waited_for(gpu_rank *g)
{
    struct pair_of_buffers b;

    if (!buffers(g, &b) || !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !gpu_sync(g, g->stream[0]))
        return;
    if (g->number != 1 && !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]))
        return;
    multi_ready(g->rank);
    if (g->number == 1)
        multi_sleep_us(60000000);
    else if (ended(g, ncclRemoteError, "rank 1", 10000))
        abort_it(g);
}

static void gone_without_a_word(gpu_rank *g)
{
    struct pair_of_buffers b;

    if (!buffers(g, &b) || !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !gpu_sync(g, g->stream[0]) || !multi_barrier(g->rank))
        return;
    if (g->number == 0)
        multi_vanish(g->rank);
    if (suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) &&
            ended(g, ncclRemoteError, "rank 0", 10000))
        abort_it(g);
    leave(g);
}

/* ---- abort ---- */

struct aborter {
    ncclComm_t comm;
    ncclResult_t got;
};

static void *abort_later(void *arg)
{
    struct aborter *a = arg;

    multi_sleep_us(300000);
    a->got = ncclCommAbort(a->comm);
    return NULL;
}

/** A thread waits for a kernel that waits for rank 1; another thread calls it off. */
static void abort_from_another_thread(gpu_rank *g)
{
    struct aborter a = { .comm = g->comm };
    struct pair_of_buffers b;
    pthread_t thread;
    uint64_t start = multi_now_ns();

    if (!buffers(g, &b))
        return;
    if (g->number == 1) {
        (void)multi_barrier(g->rank);
        abort_it(g);
        return;
    }
    if (!suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !multi_check(g->rank, pthread_create(&thread, NULL, abort_later, &a) == 0,
                    "pthread_create"))
        return;
    (void)multi_check(g->rank, gpu_idle_within(g, g->stream[0], DEATH_MS),
            "a kernel still waits");
    (void)pthread_join(thread, NULL);
    g->comm = NULL;
    (void)multi_expect(g->rank, a.got, ncclSuccess, "ncclCommAbort");
    (void)multi_check(g->rank, since_ms(start) < DEATH_MS, "it took %llu ms",
            (unsigned long long)since_ms(start));
    (void)multi_barrier(g->rank);
}

static void abort_reaches_the_others(gpu_rank *g)
{
    struct pair_of_buffers b;

    if (!buffers(g, &b))
        return;
    if (g->number == 0)
        multi_sleep_us(200000);
    else if (!suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !ended(g, ncclRemoteError, "rank 0", 10000))
        return;
    abort_it(g);
}

/** After an abort the device is as good as new. */
static void life_after_an_abort(gpu_rank *g)
{
    struct pair_of_buffers b;

    if (!buffers(g, &b) ||
            (g->number == 0 &&
                    !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0])))
        return;
    multi_sleep_us(50000);
    abort_it(g);
    if (!gpu_comm(g, 1, &g->comm) ||
            !suite_sum(g, g->comm, b.from, b.to, COUNT, g->stream[0]) ||
            !gpu_sync(g, g->stream[0]) || !gpu_well(g->rank, g->comm))
        return;
    (void)suite_is_sum(g, b.to, 1, COUNT, "the new communicator's sum");
}

/* ---- disagreement ---- */

typedef ncclResult_t odd_call(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream);

static ncclResult_t odd_count(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return ncclAllReduce(from, to, odd ? 700 : 701, ncclInt32, ncclSum, comm, stream);
}

static ncclResult_t odd_type(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return ncclAllReduce(from, to, 80, odd ? ncclFloat32 : ncclInt32, ncclSum, comm,
            stream);
}

static ncclResult_t odd_op(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return ncclAllReduce(from, to, 8, ncclInt32, odd ? ncclMax : ncclSum, comm, stream);
}

static ncclResult_t odd_root(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return ncclBroadcast(from, to, 8, ncclInt32, odd ? 1 : 0, comm, stream);
}

static ncclResult_t odd_kind(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return odd ? ncclAllGather(from, to, 800, ncclInt32, comm, stream)
               : ncclAllReduce(from, to, 800, ncclInt32, ncclSum, comm, stream);
}

/** Far apart: other protocols and grids on the two sides. */
static ncclResult_t odd_size(bool odd, void *from, void *to, ncclComm_t comm,
        cudaStream_t stream)
{
    return ncclAllReduce(from, to, odd ? 4 : 16000, ncclInt32, ncclSum, comm, stream);
}

static void disagree(gpu_rank *g, odd_call *call, const char *one, const char *two)
{
    struct pair_of_buffers b;
    ncclResult_t got;

    if (!buffers(g, &b))
        return;
    got = call(g->number == 1, gpu_at(b.from), gpu_at(b.to), g->comm,
            gpu_handle(g->stream[0]));
    if (!multi_ok(g->rank, got, "the call"))
        return;
    /* Where the call waited for nobody the next operation says it. */
    if (suite_fate(g, g->comm, 2000) == ncclSuccess)
        (void)ncclAllReduce(gpu_at(b.from), gpu_at(b.to), 8, ncclInt32, ncclSum,
                g->comm, gpu_handle(g->stream[0]));
    if (ended(g, ncclInvalidUsage, one, 10000) && suite_says(g, g->comm, two) &&
            suite_says(g, g->comm, "rank 1"))
        abort_it(g);
}

static void other_count(gpu_rank *g)
{
    disagree(g, odd_count, "700", "701");
}

static void other_type(gpu_rank *g)
{
    disagree(g, odd_type, "int32", "float");
}

static void other_op(gpu_rank *g)
{
    disagree(g, odd_op, "sum", "max");
}

static void other_root(gpu_rank *g)
{
    disagree(g, odd_root, "root 0", "root 1");
}

static void other_kind(gpu_rank *g)
{
    disagree(g, odd_kind, "all_gather", "all_reduce");
}

static void other_size(gpu_rank *g)
{
    disagree(g, odd_size, "16000", "4");
}

static void message_sizes(gpu_rank *g)
{
    struct pair_of_buffers b;
    cudaStream_t stream = gpu_handle(g->stream[0]);

    if (!buffers(g, &b))
        return;
    if (multi_ok(g->rank,
                g->number == 0
                        ? ncclSend(gpu_at(b.from), 100, ncclInt32, 1, g->comm, stream)
                        : ncclRecv(gpu_at(b.to), 90, ncclInt32, 0, g->comm, stream),
                "the message") &&
            ended(g, ncclInvalidUsage, "400", 10000) && suite_says(g, g->comm, "360"))
        abort_it(g);
}

/* ---- the driver ---- */

/** The device fails under the rank: the driver's own words, on this rank. */
static void sticky_error(gpu_rank *g)
{
    struct pair_of_buffers b;
    ncclResult_t state = ncclSuccess;

    if (!buffers(g, &b))
        return;
    for (unsigned i = 0; i < 2000 && state == ncclSuccess; i++) {
        state = ncclAllReduce(gpu_at(b.from), gpu_at(b.to), COUNT, ncclFloat32, ncclSum,
                g->comm, gpu_handle(g->stream[0]));
        if (state == ncclSuccess)
            (void)ncclCommGetAsyncError(g->comm, &state);
        multi_sleep_us(1000);
    }
    (void)multi_check(g->rank,
            state == ncclUnhandledCudaError || state == ncclRemoteError,
            "the result is %d: %s", (int)state, ncclGetLastError(g->comm));
    if (state == ncclUnhandledCudaError)
        (void)suite_says(g, g->comm, "CUDA_ERROR_ILLEGAL_ADDRESS");
    abort_it(g);
    leave(g);
}

#define SOON .environment = { "MOTET_OP_TIMEOUT_S=2", "MOTET_WARN_AFTER_S=1" }

const suite_test suite_failures[] = {
    SUITE_ROW("a deadline names who is absent", absent_in_a_call, THREADS, 3, SOON),
    SUITE_ROW("a deadline names who is absent", absent_in_a_call, PROCESSES, 2, SOON),
    SUITE_ROW("a deadline in a graph names who is absent", absent_in_a_graph, THREADS,
            2, SOON),
    SUITE_ROW("a receive without its send", absent_message, THREADS, 2, SOON),
    SUITE_ROW("a slow rank fails nobody", slow_rank, THREADS, 2,
            .environment = { "MOTET_WARN_AFTER_S=1" }),
    SUITE_ROW("a rank killed between operations is named in time", killed, PROCESSES, 3,
            .victim = 1, .signal = SIGKILL, .signal_after_us = 100000),
    SUITE_ROW("a rank killed while kernels wait for it is named in time",
            killed_while_waited_for, PROCESSES, 3, .victim = 1, .signal = SIGKILL,
            .signal_after_us = 200000),
    SUITE_ROW("a rank that exits without a word is named", gone_without_a_word,
            PROCESSES, 2),
    SUITE_ROW("abort from another thread frees a kernel", abort_from_another_thread,
            THREADS, 2),
    SUITE_ROW("abort from another thread frees a kernel", abort_from_another_thread,
            PROCESSES, 2),
    SUITE_ROW("abort of a rank reaches the others", abort_reaches_the_others, THREADS,
            3),
    SUITE_ROW("abort of a rank reaches the others", abort_reaches_the_others, PROCESSES,
            2),
    SUITE_ROW("a new communicator works after an abort", life_after_an_abort, THREADS,
            2),
    SUITE_ROW("a new communicator works after an abort", life_after_an_abort, PROCESSES,
            2),
    SUITE_ROW("one rank of three has another count", other_count, THREADS, 3),
    SUITE_ROW("one rank of three has another type", other_type, THREADS, 3),
    SUITE_ROW("one rank of three has another operator", other_op, THREADS, 3),
    SUITE_ROW("one rank of three has another root", other_root, THREADS, 3),
    SUITE_ROW("one rank of three has another operation", other_kind, THREADS, 3),
    SUITE_ROW("one rank of three has another size", other_size, THREADS, 3),
    SUITE_ROW("one rank of two has another operation", other_kind, PROCESSES, 2),
    SUITE_ROW("messages of different sizes fail both ends", message_sizes, THREADS, 2),
    SUITE_ROW("a device that fails is named with the driver's words", sticky_error,
            PROCESSES, 2, .only = SUITE_FAKE, .vendor = SUITE_CUDA,
            .environment = { "FAKE_STICKY=40" }),
    { .sentence = NULL },
};
