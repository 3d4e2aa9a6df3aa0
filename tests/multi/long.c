/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shows only after a while: `long [--quick] [PART-OF-A-NAME]`.
 *
 * - communicators made and destroyed 10,000 times: memory, descriptors and threads
 *   stay where they were;
 * - a million small operations: not one more allocation on the heap;
 * - buffers past 4 GiB and counts past 2^32, with every byte checked.
 *
 * --quick runs a few hundredths of it, and leaves the large buffers out.
 */
#include "harness.h"
#include "values.h"

#include <motet.h>

#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool quick;

/* ---- making and destroying ---- */

static long resident_kib(void)
{
    char text[128];
    long pages = 0;

    multi_read_file("/proc/self/statm", text, sizeof(text));
    (void)sscanf(text, "%*d %ld", &pages);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct footprint {
    long kib;
    int fds, threads;
};

static struct footprint footprint_now(void)
{
    return (struct footprint){ resident_kib(), multi_count_entries("fd"),
        multi_count_entries("task") };
}

static bool one_life(multi_rank *rank, const ncclUniqueId *id)
{
    int32_t mine[2] = { 1, 2 }, sum[2] = { 0, 0 };
    ncclComm_t comm[2] = { NULL, NULL };
    int n = id == NULL ? 2 : 1;
    bool fine;

    fine = id == NULL
            ? multi_ok(rank, ncclCommInitAll(comm, 2, NULL), "ncclCommInitAll")
            : multi_ok(rank, ncclCommInitRank(&comm[0], 2, *id, rank->rank),
                      "ncclCommInitRank");
    if (!fine)
        return false;
    if (id != NULL)
        mine[0] = rank->rank + 1;
    fine = multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < n && fine; i++)
        fine = multi_ok(rank,
                ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, comm[i], NULL),
                "all_reduce");
    fine = fine && multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd") &&
            multi_check(rank, sum[0] == 3, "sum is %d, expected 3", sum[0]);
    for (int i = 0; i < n; i++)
        fine = multi_ok(rank, ncclCommDestroy(comm[i]), "ncclCommDestroy") && fine;
    return fine;
}

static void lives(multi_rank *rank)
{
    int rounds = quick ? 200 : 10000, warm = rounds / 10;
    struct footprint before = { 0 }, after;
    ncclUniqueId *ids = rank->shared;
    bool apart = rank->nranks == 2; /* as processes, else one thread has both */

    for (int i = 0; i < rounds; i++) {
        multi_doing(rank, "life %d", i);
        if (i == warm)
            before = footprint_now();
        /* Both are past round i − 1 here, so that its place can be used for i + 1. */
        if (apart) {
            if (rank->rank == 0 &&
                    !multi_ok(rank, ncclGetUniqueId(&ids[i % 2]), "ncclGetUniqueId"))
                return;
            if (!multi_barrier(rank))
                return;
        }
        if (!one_life(rank, apart ? &ids[i % 2] : NULL))
            return;
    }
    after = footprint_now();
    (void)multi_check(rank, after.fds <= before.fds && after.threads <= before.threads,
            "%d descriptors and %d threads, %d and %d before", after.fds, after.threads,
            before.fds, before.threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    (void)multi_check(rank, after.kib - before.kib < 2048,
            "%ld KiB resident, %ld after the first tenth", after.kib, before.kib);
#endif
    printf("      %d lives: %ld KiB resident, %ld after the first tenth; %d "
           "descriptors\n",
            rounds, after.kib, before.kib, after.fds);
}

/* ---- small operations ---- */

static bool small_operations(multi_rank *rank, int rounds, cudaStream_t stream)
{
    int32_t mine[64] = { 0 }, all[128] = { 0 }, got = 0;
    int peer = 1 - rank->rank;
    bool fine = true;

    for (int i = 0; i < rounds && fine; i++) {
        mine[0] = i;
        switch (i % 8) {
        case 0:
            fine = multi_ok(rank,
                    ncclAllGather(mine, all, 64, ncclInt32, rank->comm, NULL),
                    "all_gather");
            break;
        case 1:
            fine = multi_ok(rank, ncclGroupStart(), "ncclGroupStart") &&
                    multi_ok(rank, ncclSend(mine, 1, ncclInt32, peer, rank->comm, NULL),
                            "send") &&
                    multi_ok(rank, ncclRecv(&got, 1, ncclInt32, peer, rank->comm, NULL),
                            "recv") &&
                    multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd") &&
                    multi_check(rank, got == i, "received %d, expected %d", got, i);
            break;
        case 2:
            fine = multi_ok(rank,
                           ncclAllReduce(mine, all, 2, ncclInt32, ncclMax, rank->comm,
                                   stream),
                           "all_reduce on a stream") &&
                    multi_ok(rank, motet_stream_synchronize(stream), "synchronize");
            break;
        default:
            fine = multi_ok(rank,
                           ncclAllReduce(mine, all, 2, ncclInt32, ncclSum, rank->comm,
                                   NULL),
                           "all_reduce") &&
                    multi_check(rank, all[0] == 2 * i, "sum is %d, expected %d", all[0],
                            2 * i);
        }
    }
    return fine;
}

static void a_million_operations(multi_rank *rank)
{
    int rounds = quick ? 20000 : 1000000;
    cudaStream_t stream = NULL;
    size_t before, after;

    if (!multi_ok(rank, motet_stream_create(&stream), "motet_stream_create") ||
            !small_operations(rank, 1000, stream))
        return;
    before = mallinfo2().uordblks;
    if (small_operations(rank, rounds, stream)) {
        after = mallinfo2().uordblks;
        (void)multi_check(rank, after == before, "%zu bytes on the heap, %zu before",
                after, before);
    }
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
}

/* ---- large buffers ---- */

#define LARGE \
    (((size_t)1 << 32) + 4112) /* a multiple of 16: halves are checked by words */

static uint64_t word_of(int rank, size_t i)
{
    return value_mix(i) * (uint64_t)(rank + 3);
}

/** Sum of eight bytes each, without carries between them. */
static uint64_t byte_sum(uint64_t a, uint64_t b)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7full;

    return ((a & low) + (b & low)) ^ ((a ^ b) & ~low);
}

static void fill_words(uint64_t *at, size_t first, size_t words, int rank)
{
    for (size_t i = 0; i < words; i++)
        at[i] = word_of(rank, first + i);
}

static void check_words(multi_rank *rank, const uint64_t *at, size_t words,
        uint64_t (*want)(size_t i), const char *what)
{
    for (size_t i = 0; i < words; i++)
        if (!multi_check(rank, at[i] == want(i),
                    "%s: word %zu is 0x%llx, expected 0x%llx", what, i,
                    (unsigned long long)at[i], (unsigned long long)want(i)))
            return;
}

static uint64_t want_sum(size_t i)
{
    return byte_sum(word_of(0, i), word_of(1, i));
}

static uint64_t want_first(size_t i)
{
    return word_of(0, i);
}

static uint64_t want_halves(size_t i)
{
    size_t half = LARGE / 16;

    return i < half ? word_of(0, i) : word_of(1, i - half);
}

static void large_buffers(multi_rank *rank)
{
    size_t words = LARGE / 8, half = words / 2;
    uint64_t *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (!multi_check(rank, p != MAP_FAILED, "no address space"))
        return;
    multi_doing(rank, "all_reduce of %zu bytes", LARGE);
    fill_words(p, 0, words, rank->rank);
    if (multi_ok(rank, ncclAllReduce(p, p, LARGE, ncclInt8, ncclSum, rank->comm, NULL),
                "all_reduce"))
        check_words(rank, p, words, want_sum, "all_reduce");
    multi_doing(rank, "broadcast of %zu bytes", LARGE);
    fill_words(p, 0, words, rank->rank);
    if (multi_ok(rank, ncclBcast(p, LARGE, ncclUint8, 0, rank->comm, NULL),
                "broadcast"))
        check_words(rank, p, words, want_first, "broadcast");
    multi_doing(rank, "send and receive of %zu bytes", LARGE);
    fill_words(p, 0, words, rank->rank);
    if (multi_ok(rank,
                rank->rank == 0 ? ncclSend(p, LARGE, ncclInt8, 1, rank->comm, NULL)
                                : ncclRecv(p, LARGE, ncclInt8, 0, rank->comm, NULL),
                "send and receive"))
        check_words(rank, p, words, want_first, "send and receive");
    multi_doing(rank, "all_gather of %zu bytes", LARGE);
    memset(p, 0, LARGE);
    fill_words(p + half * (size_t)rank->rank, 0, half, rank->rank);
    if (multi_ok(rank,
                ncclAllGather(p + half * (size_t)rank->rank, p, LARGE / 2, ncclInt8,
                        rank->comm, NULL),
                "all_gather"))
        check_words(rank, p, words, want_halves, "all_gather");
    (void)munmap(p, LARGE);
}

static bool enough_memory(void)
{
    char text[4096];
    const char *line;
    long long kib = 0;

    multi_read_file("/proc/meminfo", text, sizeof(text));
    line = strstr(text, "MemAvailable:");
    if (line != NULL)
        (void)sscanf(line, "MemAvailable: %lld", &kib);
    return kib > 10ll * 1024 * 1024;
}

static const struct {
    const char *name;
    multi_layout layout;
    int nranks;
    bool init, large;
    unsigned deadline_s;
    void (*body)(multi_rank *rank);
} tests[] = {
    { "two processes meet and part 10,000 times", MULTI_PROCESSES, 2, false, false,
            1500, lives },
    { "one thread makes and destroys two ranks 10,000 times", MULTI_ONE_THREAD, 1,
            false, false, 1500, lives },
    { "a million small operations leave the heap alone", MULTI_PROCESSES, 2, true,
            false, 600, a_million_operations },
    { "buffers past 4 GiB and counts past 2^32", MULTI_PROCESSES, 2, true, true, 1500,
            large_buffers },
};

int main(int argc, char **argv)
{
    static const struct option options[] = { { "quick", no_argument, NULL, 'q' },
        { NULL, 0, NULL, 0 } };
    int ran = 0, failed = 0, c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'q') {
            fprintf(stderr, "usage: long [--quick] [PART-OF-A-NAME]\n");
            return 64;
        }
        quick = true;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
        multi_spec spec = { .name = tests[i].name,
            .layout = tests[i].layout,
            .nranks = tests[i].nranks,
            .init = tests[i].init,
            .deadline_s = tests[i].deadline_s,
            .body = tests[i].body,
            .shared_bytes = 4096 };
        int bad;

        if (optind < argc && strstr(tests[i].name, argv[optind]) == NULL)
            continue;
        if (tests[i].large && (quick || !enough_memory())) {
            printf("skip  %s: %s\n", tests[i].name,
                    quick ? "--quick" : "less than 10 GiB of memory are available");
            continue;
        }
        bad = multi_run(&spec);
        printf("%s  %s\n", bad ? "FAIL" : "ok  ", tests[i].name);
        (void)fflush(stdout);
        ran++;
        failed += bad != 0;
    }
    printf("long: %d ran, %d failed\n", ran, failed);
    return ran == 0 || failed != 0;
}
