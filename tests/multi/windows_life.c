/* SPDX-License-Identifier: Apache-2.0 */
/* How windows come and go: many, in groups, in any order, wrongly, and with ranks that
 * end in between. */
#include "windows.h"

#include <motet.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 16384 /* int32: large enough to be read in place */
#define BYTES (COUNT * sizeof(int32_t))
#define LARGE (768u << 10)
/* Mappings that may come without being ours: ThreadSanitizer's own are many. */
#if defined(__SANITIZE_THREAD__)
#define MAPS_OF_OTHERS 45
#else
#define MAPS_OF_OTHERS 3
#endif

static bool add(multi_rank *rank, ncclComm_t comm, void *buf, size_t bytes,
        ncclWindow_t *win)
{
    return multi_ok(rank,
            ncclCommWindowRegister(comm, buf, bytes, win, NCCL_WIN_COLL_SYMMETRIC),
            "ncclCommWindowRegister");
}

static bool drop(multi_rank *rank, ncclComm_t comm, ncclWindow_t win)
{
    return multi_ok(rank, ncclCommWindowDeregister(comm, win),
            "ncclCommWindowDeregister");
}

static int32_t *get(multi_rank *rank, size_t bytes)
{
    void *p = NULL;

    (void)multi_ok(rank, ncclMemAlloc(&p, bytes), "ncclMemAlloc");
    return p;
}

static void fill(int32_t *buf, size_t count, int32_t value)
{
    for (size_t i = 0; i < count; i++)
        buf[i] = value + (int32_t)i;
}

/* All ranks hold fill(…, base + rank); is this their sum? */
static bool is_sum(multi_rank *rank, const int32_t *buf, size_t count, int32_t base)
{
    int n = rank->nranks;

    for (size_t i = 0; i < count; i++) {
        int32_t want = n * (base + (int32_t)i) + n * (n - 1) / 2;

        if (buf[i] != want)
            return multi_check(rank, false, "element %zu is %d, expected %d", i, buf[i],
                    want);
    }
    return true;
}

static bool sum_in_place(multi_rank *rank, int32_t *buf, int32_t base)
{
    fill(buf, COUNT, base + rank->rank);
    return multi_ok(rank,
                   ncclAllReduce(buf, buf, COUNT, ncclInt32, ncclSum, rank->comm, NULL),
                   "all_reduce") &&
            is_sum(rank, buf, COUNT, base);
}

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;

    for (int c; f != NULL && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f != NULL)
        (void)fclose(f);
    return n;
}

static void come_and_go(multi_rank *rank)
{
    int32_t *buf = get(rank, 2 * BYTES);
    int fds = 0, maps = 0;

    for (int i = 0; i < 60; i++) {
        ncclWindow_t win = NULL;

        multi_doing(rank, "round %d", i);
        if (i == 10) {
            fds = multi_count_entries("fd");
            maps = count_lines("/proc/self/maps");
        }
        if (!add(rank, rank->comm, buf, 2 * BYTES, &win) ||
                !sum_in_place(rank, buf + i * 7, i) || !drop(rank, rank->comm, win) ||
                !sum_in_place(rank, buf, i))
            return;
    }
    if (multi_pid(rank, 0) != multi_pid(rank, rank->nranks - 1)) {
        (void)multi_check(rank, multi_count_entries("fd") <= fds,
                "%d descriptors, were %d", multi_count_entries("fd"), fds);
        (void)multi_check(rank, count_lines("/proc/self/maps") <= maps + MAPS_OF_OTHERS,
                "%d mappings, were %d", count_lines("/proc/self/maps"), maps);
    }
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

static void more_than_the_table_holds(multi_rank *rank)
{
    enum { MANY = 70 };
    ncclWindow_t win[MANY];
    int32_t *buf[MANY];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            buf[i] = get(rank, BYTES);
            if (multi_failed(rank) || !add(rank, rank->comm, buf[i], BYTES, &win[i]))
                return;
        }
        for (int i = 0; i < MANY; i++)
            if (!sum_in_place(rank, buf[i], i))
                return;
        for (int i = 0; i < MANY; i++) { /* not in the order in which they came */
            int k = i * 37 % MANY;

            if (!drop(rank, rank->comm, win[k]) || !sum_in_place(rank, buf[k], i) ||
                    !multi_ok(rank, ncclMemFree(buf[k]), "ncclMemFree"))
                return;
        }
    }
}

/* Rank 0 has dropped a window that the others still have: there is room on one side only. */
static void room_on_one_side(multi_rank *rank)
{
    enum { FULL = 64 };
    ncclWindow_t win[FULL + 1];
    int32_t *buf = get(rank, BYTES);

    for (int i = 0; i <= FULL; i++) {
        if (i == FULL && rank->rank == 0 && !drop(rank, rank->comm, win[5]))
            return;
        if (!add(rank, rank->comm, buf, BYTES, &win[i]))
            return;
    }
    for (int i = 0; i < FULL; i++)
        if ((i != 5 || rank->rank != 0) && !drop(rank, rank->comm, win[i]))
            return;
    (void)sum_in_place(rank, buf, 3); /* only the last window is left */
    (void)drop(rank, rank->comm, win[FULL]);
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

static void one_thread_registers_for_all(multi_rank *rank)
{
    int32_t *send[MULTI_MAX_RANKS], *recv[MULTI_MAX_RANKS];
    ncclWindow_t win[MULTI_MAX_RANKS][2] = { { NULL } };
    int n = rank->nranks;

    for (int r = 0; r < n; r++) {
        send[r] = get(rank, BYTES);
        recv[r] = get(rank, BYTES);
        fill(send[r], COUNT, 9 + r);
    }
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < n; r++) {
        (void)add(rank, rank->comms[r], send[r], BYTES, &win[r][0]);
        (void)add(rank, rank->comms[r], recv[r], BYTES, &win[r][1]);
        (void)multi_check(rank, win[r][0] == NULL,
                "a window before the group has ended");
    }
    (void)multi_expect(rank, ncclCommDestroy(rank->comms[0]), ncclInvalidUsage,
            "destroy in the group that registers a window");
    for (int r = 0; r < n; r++)
        (void)multi_ok(rank,
                ncclAllReduce(send[r], recv[r], COUNT, ncclInt32, ncclSum,
                        rank->comms[r], NULL),
                "all_reduce");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    for (int r = 0; r < n; r++) {
        void *base = NULL;

        (void)is_sum(rank, recv[r], COUNT, 9);
        (void)multi_ok(rank, ncclWinGetUserPtr(rank->comms[r], win[r][1], &base),
                "ncclWinGetUserPtr");
        (void)multi_check(rank, base == recv[r], "the window starts at %p", base);
        (void)drop(rank, rank->comms[r], win[r][0]);
        (void)drop(rank, rank->comms[r], win[r][1]);
        (void)multi_ok(rank, ncclMemFree(send[r]), "ncclMemFree");
        (void)multi_ok(rank, ncclMemFree(recv[r]), "ncclMemFree");
    }
}

/* Exchanges of one group meet in the order in which they were asked for. */
static void windows_and_splits_of_one_group(multi_rank *rank)
{
    int32_t *buf = get(rank, BYTES), one = 1, sum = 0;
    ncclComm_t child[2] = { NULL, NULL };
    ncclWindow_t win[2] = { NULL, NULL };

    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank, ncclCommSplit(rank->comm, 0, rank->rank, &child[0], NULL),
            "split");
    (void)add(rank, rank->comm, buf, BYTES, &win[0]);
    (void)multi_ok(rank, ncclCommSplit(rank->comm, 1, -rank->rank, &child[1], NULL),
            "split");
    (void)add(rank, rank->comm, buf, BYTES / 2, &win[1]);
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    for (int i = 0; i < 2 && !multi_failed(rank); i++) {
        int place = -1;

        (void)multi_ok(rank, ncclCommUserRank(child[i], &place), "ncclCommUserRank");
        (void)multi_check(rank,
                place == (i == 0 ? rank->rank : rank->nranks - 1 - rank->rank),
                "child %d: rank %d", i, place);
        (void)multi_ok(rank,
                ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, child[i], NULL),
                "all_reduce of a child");
        (void)multi_check(rank, sum == rank->nranks, "sum is %d", sum);
        (void)multi_ok(rank, ncclCommDestroy(child[i]), "ncclCommDestroy");
    }
    (void)sum_in_place(rank, buf, 1);
    (void)drop(rank, rank->comm, win[0]);
    (void)drop(rank, rank->comm, win[1]);
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

/* A rank dies while the others read its memory. */
static void killed_while_others_read(multi_rank *rank)
{
    const windows_test *test = rank->arg;
    size_t count = LARGE, n = (size_t)rank->nranks;
    int32_t *send = get(rank, count * 4), *recv = get(rank, count * 4 * n);
    ncclWindow_t win[2];
    ncclResult_t got = ncclSuccess;
    char name[32];

    if (multi_failed(rank) || !add(rank, rank->comm, send, count * 4, &win[0]) ||
            !add(rank, rank->comm, recv, count * 4 * n, &win[1]))
        return;
    memset(send, rank->rank, count * 4);
    multi_ready(rank);
    for (unsigned i = 0; got == ncclSuccess; i++)
        got = i % 2 != 0 ? ncclAllGather(send, recv, count, ncclInt32, rank->comm, NULL)
                         : ncclAllReduce(send, recv, count, ncclInt32, ncclSum,
                                   rank->comm, NULL);
    (void)multi_expect(rank, got, ncclRemoteError, "after a rank was killed");
    (void)snprintf(name, sizeof(name), "rank %d", test->victim);
    (void)multi_check(rank, strstr(ncclGetLastError(rank->comm), name) != NULL,
            "the sentence does not name %s: \"%s\"", name,
            ncclGetLastError(rank->comm));
    (void)multi_check(rank, multi_now_ns() - multi_signal_ns(rank) < 8000000000ull,
            "it took too long");
    for (int i = 0; i < 2; i++)
        (void)drop(rank, rank->comm, win[i]);
    (void)multi_ok(rank, ncclMemFree(send), "ncclMemFree");
    (void)multi_ok(rank, ncclMemFree(recv), "ncclMemFree");
}

/* New memory must not come to lie where the window still is. */
static void freed_before_deregistered(multi_rank *rank)
{
    int32_t *old = get(rank, BYTES), *fresh[8];
    ncclWindow_t win = NULL;

    if (multi_failed(rank) || !add(rank, rank->comm, old, BYTES, &win) ||
            !sum_in_place(rank, old, 1) ||
            !multi_ok(rank, ncclMemFree(old), "ncclMemFree of a window's memory"))
        return;
    (void)multi_expect(rank, ncclMemFree(old), ncclInvalidArgument,
            "ncclMemFree again");
    for (int i = 0; i < 8; i++) {
        fresh[i] = get(rank, BYTES);
        (void)multi_check(rank, fresh[i] != old,
                "the window's memory is given out again");
        (void)sum_in_place(rank, fresh[i], i);
    }
    (void)drop(rank, rank->comm, win);
    for (int i = 0; i < 8; i++) {
        (void)sum_in_place(rank, fresh[i], i);
        (void)multi_ok(rank, ncclMemFree(fresh[i]), "ncclMemFree");
    }
}

static void wrong_arguments(multi_rank *rank)
{
    int32_t *buf = get(rank, BYTES);
    ncclWindow_t win = NULL, other = (ncclWindow_t)(void *)buf;
    void *handle = NULL, *base = NULL;
    const struct {
        const char *what;
        ncclResult_t got;
    } rows[] = {
        { "no communicator", ncclCommWindowRegister(NULL, buf, BYTES, &win, 0) },
        { "no buffer", ncclCommWindowRegister(rank->comm, NULL, BYTES, &win, 0) },
        { "no bytes", ncclCommWindowRegister(rank->comm, buf, 0, &win, 0) },
        { "no window", ncclCommWindowRegister(rank->comm, buf, BYTES, NULL, 0) },
        { "unknown flags", ncclCommWindowRegister(rank->comm, buf, BYTES, &win, 64) },
        { "not the start of a page",
                ncclCommWindowRegister(rank->comm, buf + 1, BYTES / 2, &win, 0) },
        { "deregister without a communicator", ncclCommWindowDeregister(NULL, other) },
        { "pointer of what is no window", ncclWinGetUserPtr(rank->comm, other, &base) },
        { "pointer of no window", ncclWinGetUserPtr(rank->comm, NULL, &base) },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        (void)multi_expect(rank, rows[i].got, ncclInvalidArgument, "%s", rows[i].what);
    (void)multi_check(rank, win == NULL && base == NULL, "an output was written");
    (void)multi_ok(rank, ncclCommWindowDeregister(rank->comm, NULL),
            "deregister nothing");
    (void)multi_expect(rank, ncclCommWindowDeregister(rank->comm, other),
            ncclInvalidUsage, "deregister what is no window");
    (void)multi_ok(rank, ncclCommRegister(rank->comm, buf, BYTES, &handle), "register");
    (void)multi_expect(rank, ncclCommWindowDeregister(rank->comm, (ncclWindow_t)handle),
            ncclInvalidUsage, "deregister a registration as a window");
    (void)multi_ok(rank, ncclCommDeregister(rank->comm, handle), "deregister");
    if (!add(rank, rank->comm, buf, BYTES, &win))
        return;
    (void)multi_expect(rank, ncclCommDeregister(rank->comm, win), ncclInvalidUsage,
            "deregister a window as a registration");
    (void)drop(rank, rank->comm, win);
    (void)multi_expect(rank, ncclCommWindowDeregister(rank->comm, win),
            ncclInvalidUsage, "deregister twice");
    (void)sum_in_place(rank, buf, 1);
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

/* ---- ranks that never come ---- */

typedef struct aborter {
    ncclComm_t comm;
    ncclResult_t got;
} aborter;

static void *abort_soon(void *arg)
{
    aborter *a = arg;

    multi_sleep_us(100000);
    a->got = ncclCommAbort(a->comm);
    return NULL;
}

static ncclResult_t stuck(int kind, ncclComm_t comm, void *buf)
{
    ncclWindow_t win = NULL;
    ncclComm_t child = NULL;

    return kind == 0 ? ncclCommWindowRegister(comm, buf, BYTES, &win, 0)
                     : ncclCommSplit(comm, 0, 0, &child, NULL);
}

/* Rank 1 does not take part; rank 0 waits for it, and a thread of it aborts. */
static void abort_frees_an_exchange(multi_rank *rank)
{
    for (int kind = 0; kind < 2; kind++) {
        aborter a = { NULL, ncclInternalError };
        void *buf = get(rank, BYTES);
        pthread_t thread;
        uint64_t start;

        if (!multi_comm(rank, 1 + kind, &a.comm))
            return;
        if (rank->rank == 1) {
            (void)multi_barrier(rank);
            (void)multi_ok(rank, ncclCommAbort(a.comm), "ncclCommAbort");
        } else {
            if (!multi_check(rank, pthread_create(&thread, NULL, abort_soon, &a) == 0,
                        "pthread_create"))
                return;
            start = multi_now_ns();
            (void)multi_expect(rank, stuck(kind, a.comm, buf), ncclRemoteError,
                    "exchange %d that is aborted", kind);
            (void)pthread_join(thread, NULL);
            (void)multi_ok(rank, a.got, "ncclCommAbort from another thread");
            (void)multi_check(rank, multi_now_ns() - start < 3000000000ull,
                    "took too long");
            (void)multi_barrier(rank);
        }
        (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
    }
}

static void a_death_ends_a_registration(multi_rank *rank)
{
    const windows_test *test = rank->arg;
    int32_t *buf = get(rank, BYTES);
    ncclWindow_t win = NULL;

    multi_ready(rank);
    if (rank->rank == test->victim)
        multi_sleep_us(30000000); /* it is killed in its sleep */
    (void)multi_expect(rank, ncclCommWindowRegister(rank->comm, buf, BYTES, &win, 0),
            ncclRemoteError, "a window without rank %d", test->victim);
    (void)multi_check(rank, strstr(ncclGetLastError(rank->comm), "rank 1") != NULL,
            "the sentence does not name rank 1: \"%s\"", ncclGetLastError(rank->comm));
    (void)multi_check(rank, win == NULL, "an output was written");
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

static void a_rank_that_left_ends_a_registration(multi_rank *rank)
{
    int32_t *buf = get(rank, BYTES);
    ncclWindow_t win = NULL;
    ncclComm_t comm = NULL;

    if (!multi_comm(rank, 3, &comm))
        return;
    if (rank->rank != 1)
        (void)multi_expect(rank, ncclCommWindowRegister(comm, buf, BYTES, &win, 0),
                ncclRemoteError, "a window without rank 1");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

/* Who gives up inside a group may abort there; the group's exchanges then do not happen. */
static void abort_in_an_open_group(multi_rank *rank)
{
    int32_t *buf = get(rank, BYTES);
    ncclComm_t comm = NULL, child = NULL;
    ncclWindow_t win = NULL;

    if (!multi_comm(rank, 4, &comm))
        return;
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)add(rank, comm, buf, BYTES, &win);
    (void)multi_ok(rank, ncclCommSplit(comm, 0, 0, &child, NULL), "split");
    (void)multi_barrier(rank); /* the other's abort is seen here, too */
    (void)multi_ok(rank, ncclCommAbort(comm), "ncclCommAbort");
    (void)multi_check(rank, ncclGroupEnd() != ncclSuccess, "the group says success");
    (void)multi_check(rank, win == NULL && child == NULL, "an output was written");
    (void)multi_ok(rank, ncclMemFree(buf), "ncclMemFree");
}

/* ---- streams ---- */

/* Windows come and go while operations in another one are queued. */
static void while_a_stream_works(multi_rank *rank)
{
    int32_t *send = get(rank, 4 * LARGE), *recv = get(rank, 4 * LARGE);
    int32_t *extra = get(rank, BYTES);
    ncclWindow_t win = NULL, more = NULL;
    cudaStream_t stream = NULL;

    fill(send, LARGE, 5 + rank->rank);
    if (multi_failed(rank) || !add(rank, rank->comm, send, 4 * LARGE, &win) ||
            !multi_ok(rank, motet_stream_create(&stream), "motet_stream_create"))
        return;
    for (int i = 0; i < 20; i++)
        (void)multi_ok(rank,
                ncclAllReduce(send, recv, LARGE, ncclInt32, ncclSum, rank->comm,
                        stream),
                "all_reduce on a stream");
    for (int i = 0; i < 3; i++)
        if (!add(rank, rank->comm, extra, BYTES, &more) ||
                !drop(rank, rank->comm, more))
            return;
    for (int i = 0; i < 5; i++)
        (void)multi_ok(rank,
                ncclAllReduce(send, recv, LARGE, ncclInt32, ncclSum, rank->comm,
                        stream),
                "all_reduce on a stream");
    (void)drop(rank, rank->comm, win); /* waits for what uses it */
    (void)multi_ok(rank, motet_stream_synchronize(stream), "motet_stream_synchronize");
    (void)is_sum(rank, recv, LARGE, 5);
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
    (void)multi_ok(rank, ncclMemFree(send), "ncclMemFree");
    (void)multi_ok(rank, ncclMemFree(recv), "ncclMemFree");
    (void)multi_ok(rank, ncclMemFree(extra), "ncclMemFree");
}

const windows_test windows_lives[] = {
    { "windows come and go, and leave nothing", come_and_go, MULTI_PROCESSES, 3, 0, 0,
            NULL, 0, 0, 0 },
    { "windows of threads come and go", come_and_go, MULTI_THREADS, 3, 0, 0, NULL, 0, 0,
            0 },
    { "more windows than are mapped at once", more_than_the_table_holds,
            MULTI_PROCESSES, 2, 0, 0, NULL, 0, 0, 0 },
    { "a table that is full on some ranks only", room_on_one_side, MULTI_PROCESSES, 3,
            0, 0, NULL, 0, 0, 0 },
    { "one thread registers windows of all ranks in a group",
            one_thread_registers_for_all, MULTI_ONE_THREAD, 4, 0, 0, NULL, 0, 0, 0 },
    { "windows and splits of one group do not mix", windows_and_splits_of_one_group,
            MULTI_MIXED, 3, 0, 0, NULL, 0, 0, 0 },
    { "a rank is killed while two others read its window", killed_while_others_read,
            MULTI_PROCESSES, 3, 0, 0, NULL, 1, SIGKILL, 40000 },
    { "a rank is killed while the other reads its window", killed_while_others_read,
            MULTI_PROCESSES, 2, 0, 0, NULL, 0, SIGKILL, 13000 },
    { "memory that is freed before its window", freed_before_deregistered,
            MULTI_PROCESSES, 2, 0, 0, NULL, 0, 0, 0 },
    { "wrong arguments of windows", wrong_arguments, MULTI_PROCESSES, 2, 0, 0, NULL, 0,
            0, 0 },
    { "an abort frees whoever waits for the others in an exchange",
            abort_frees_an_exchange, MULTI_PROCESSES, 2, 0, 0, NULL, 0, 0, 0 },
    { "an abort frees a thread that waits in an exchange", abort_frees_an_exchange,
            MULTI_THREADS, 2, 0, 0, NULL, 0, 0, 0 },
    { "a registration ends when a rank dies", a_death_ends_a_registration,
            MULTI_PROCESSES, 3, 0, 0, NULL, 1, SIGKILL, 100000 },
    { "a registration ends when a rank leaves", a_rank_that_left_ends_a_registration,
            MULTI_PROCESSES, 3, 0, 0, NULL, 0, 0, 0 },
    { "an abort inside a group ends what the group has gathered",
            abort_in_an_open_group, MULTI_PROCESSES, 2, 0, 0, NULL, 0, 0, 0 },
    { "windows come and go while a stream works in another", while_a_stream_works,
            MULTI_PROCESSES, 2, 0, 0, NULL, 0, 0, 0 },
    { NULL, NULL, MULTI_THREADS, 0, 0, 0, NULL, 0, 0, 0 },
};
