/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the CPU kernels are, one thread, against memcpy of the same machine in the
 * same run. Bandwidth counts every byte read and written: (nsrc + 1) × bytes for a
 * reduction, 2 × bytes for a copy. `bench_kernels [BYTES…]`, bytes of one buffer.
 */
#include "kernels/reduce.h"

#include "base/types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SOURCES = 8, MAX_SETS = 4, REPEATS = 5 };

typedef struct buffers {
    size_t bytes;
    char *dst;
    char *src[MAX_SOURCES];
} buffers;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef void (*work_fn)(const void *arg);

/* Seconds of one call: the best of a few batches, each long enough for the clock. */
static double seconds_of(work_fn work, const void *arg)
{
    const double least_s = 0.5e-3;
    long calls = 1;
    double best = 1e9;
    for (int r = 0; r < REPEATS;) {
        double start = now_s();
        for (long i = 0; i < calls; i++)
            work(arg);
        double took = now_s() - start;
        if (took < least_s && calls < (1L << 24)) {
            calls *= 2;
            continue;
        }
        if (took / (double)calls < best)
            best = took / (double)calls;
        r++;
    }
    return best;
}

typedef struct reduce_work {
    const motet_cpu_kernels *set;
    motet_reduce_args args;
} reduce_work;

static void run_reduce(const void *arg)
{
    const reduce_work *w = arg;
    w->set->reduce(&w->args);
}

typedef struct copy_work {
    motet_copy_fn copy; /* NULL: memcpy */
    const buffers *b;
} copy_work;

static void run_copy(const void *arg)
{
    const copy_work *w = arg;
    if (w->copy)
        w->copy(w->b->dst, w->b->src[0], w->b->bytes);
    else
        memcpy(w->b->dst, w->b->src[0], w->b->bytes);
}

static void bench_copies(const buffers *b)
{
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    copy_work w = { NULL, b };
    double gb = 2e-9 * (double)b->bytes;
    printf("  %-10s %-6s %4s  %8.1f GB/s\n", "memcpy", "", "",
            gb / seconds_of(run_copy, &w));
    for (int i = 0; sets[i]; i++) {
        w.copy = sets[i]->copy_streaming;
        printf("  %-10s %-6s %4s  %8.1f GB/s  %s\n", "streaming", "", "",
                gb / seconds_of(run_copy, &w), sets[i]->name);
    }
}

static void bench_row(const buffers *b, int type, int redop, int nsrc)
{
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    uint64_t scalars[MAX_SOURCES];
    memset(scalars, 0x3f, sizeof(scalars));
    const void *src[MAX_SOURCES];
    for (int k = 0; k < nsrc; k++)
        src[k] = b->src[k];
    reduce_work w = { .args = { .dst = b->dst,
                              .src = src,
                              .nsrc = nsrc,
                              .count = b->bytes / motet_type_table[type].bytes,
                              .type = type,
                              .redop = redop,
                              .nranks = nsrc,
                              .scalar = scalars } };
    printf("  %-10s %-6s %4d", motet_type_table[type].name, motet_redop_names[redop],
            nsrc);
    for (int i = 0; sets[i]; i++) {
        w.set = sets[i];
        double gb = 1e-9 * (double)(nsrc + 1) * (double)b->bytes;
        printf("  %8.1f", gb / seconds_of(run_reduce, &w));
    }
    printf("\n");
}

static void bench_size(size_t bytes)
{
    static const int nsrcs[] = { 2, 4, 8 };
    buffers b = { .bytes = bytes };
    char *all = aligned_alloc(4096, (MAX_SOURCES + 1) * bytes);
    if (!all) {
        fprintf(stderr, "no memory for %d buffers of %zu bytes\n", MAX_SOURCES + 1,
                bytes);
        exit(1);
    }
    memset(all, 0x3f, (MAX_SOURCES + 1) * bytes);
    b.dst = all; /* 0x3f…: a number of moderate size in every floating type */
    for (int k = 0; k < MAX_SOURCES; k++)
        b.src[k] = all + (size_t)(k + 1) * bytes;

    printf("\n%zu bytes a buffer\n", bytes);
    bench_copies(&b);
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    printf("  %-10s %-6s %4s", "type", "op", "nsrc");
    for (int i = 0; sets[i]; i++)
        printf("  %8s", sets[i]->name);
    printf("   (GB/s)\n");
    for (int type = 0; type < MOTET_NUM_TYPES; type++)
        for (int redop = 0; redop < MOTET_NUM_REDOPS; redop++)
            for (size_t i = 0; i < sizeof(nsrcs) / sizeof(nsrcs[0]); i++)
                bench_row(&b, type, redop, nsrcs[i]);
    free(all);
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        bench_size((size_t)16 << 10);
        bench_size((size_t)16 << 20);
    }
    for (int i = 1; i < argc; i++) {
        char *end;
        errno = 0;
        unsigned long long bytes = strtoull(argv[i], &end, 10);
        if (errno || *end || bytes < 4096 || bytes % 4096 || bytes > (1ull << 32)) {
            fprintf(stderr,
                    "size \"%s\" is not a multiple of 4096 bytes up to 4294967296\n",
                    argv[i]);
            return 64;
        }
        bench_size(bytes);
    }
    return 0;
}
