/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep of peer.h. Rank 0 reads the clock around blocks of operations: many small
 * ones, or one large one. Blocks go on until the time cap; whether to go on is decided
 * by rank 0 and told by an all_reduce of the library under test, outside the clock.
 * A line of output has the median over the blocks, and their 10th and 90th percentile.
 */
#include "peer.h"

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BLOCKS 400
#define MIN_BLOCKS 5
#define POOL_BYTES ((size_t)128 << 20) /* of each direction */
#define MAX_SETS   64

static const char *const op_names[PEER_OPS] = { "all_reduce", "all_gather", "broadcast",
    "all_to_all" };

static const size_t sizes[] = { 8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 32 << 10,
    128 << 10, 512 << 10, 2 << 20, 16 << 20, 64 << 20 };

static char *send_pool, *recv_pool;

struct sweep {
    const struct peer *peer;
    const char *name;
    double cap_us;
    size_t max_bytes;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/** Operations of one block: enough to make the clock's own cost small. */
static int block_length(size_t bytes)
{
    return bytes <= 4096 ? 50 : bytes <= 65536 ? 10 : bytes <= (512 << 10) ? 4 : 1;
}

/** Set number @p i of both pools; sets are 64 bytes aligned. */
static size_t set_at(size_t bytes, size_t i)
{
    size_t stride = (bytes + 63) / 64 * 64, sets = POOL_BYTES / stride;

    sets = sets < 1 ? 1 : sets > MAX_SETS ? MAX_SETS : sets;
    return i % sets * stride;
}

static void run_block(const struct sweep *s, enum peer_op op, size_t bytes, int length,
        size_t first)
{
    for (int k = 0; k < length; k++) {
        size_t i = first + (size_t)k, at = set_at(bytes, i);

        s->peer->run(op, send_pool + at, recv_pool + at, bytes,
                (int)(i % (size_t)s->peer->nranks));
    }
}

/** Rank 0's number, on every rank. */
static int told_by_rank_0(const struct sweep *s, int mine)
{
    float said[2] = { s->peer->rank == 0 ? (float)mine : 0.0f, 0.0f },
          sum[2] = { 0, 0 };

    s->peer->run(PEER_ALL_REDUCE, said, sum, sizeof(said), 0);
    return (int)(sum[0] + 0.5f);
}

/** Warm up, and shorten the blocks where five of them would not fit the time cap. */
static int warm_up(const struct sweep *s, enum peer_op op, size_t bytes)
{
    int length = block_length(bytes);
    double start, each;

    run_block(s, op, bytes, 2, 0);
    start = now_us();
    run_block(s, op, bytes, 3, 2);
    each = (now_us() - start) / 3;
    if (each * length * MIN_BLOCKS > s->cap_us)
        length = (int)(s->cap_us / (each * MIN_BLOCKS));
    length = told_by_rank_0(s, length < 1 ? 1 : length);
    run_block(s, op, bytes, length, 5);
    return length;
}

/** What each operation must leave, for inputs that tell rank and place. */
static int values_are_right(const struct sweep *s, enum peer_op op, size_t bytes)
{
    int n = s->peer->nranks, me = s->peer->rank;
    size_t part = bytes / (size_t)n;
    unsigned char *out = (unsigned char *)recv_pool, *in = (unsigned char *)send_pool;

    for (size_t i = 0; i < bytes; i++) {
        in[i] = (unsigned char)(me * 41 + (int)(i % 251));
        out[i] = op == PEER_BROADCAST && me == n - 1 ? in[i] : 0xee;
    }
    for (size_t i = 0; op == PEER_ALL_REDUCE && i < bytes / 4; i++)
        ((float *)send_pool)[i] = (float)(me + 1) * (float)(i % 100);
    s->peer->run(op, send_pool, recv_pool, bytes, n - 1);
    for (size_t i = 0; i < bytes; i++) {
        size_t from = part == 0 ? 0 : i / part;
        int want = (n - 1) * 41 + (int)(i % 251);

        if (op == PEER_ALL_REDUCE) {
            if (((float *)recv_pool)[i / 4] !=
                    (float)(n * (n + 1) / 2) * (float)(i / 4 % 100))
                return 0;
            continue;
        }
        if (op == PEER_ALL_GATHER)
            want = (int)from * 41 + (int)(i % part % 251);
        else if (op == PEER_ALL_TO_ALL)
            want = (int)from * 41 + (int)((i % part + (size_t)me * part) % 251);
        if (out[i] != (unsigned char)want)
            return 0;
    }
    return 1;
}

static void measure(const struct sweep *s, enum peer_op op, size_t bytes)
{
    static double us[MAX_BLOCKS];
    int length, blocks = 0;
    double begin;
    size_t i = 0;

    if (!values_are_right(s, op, bytes)) {
        fprintf(stderr, "%s: %s of %zu bytes gave wrong values on rank %d\n", s->name,
                op_names[op], bytes, s->peer->rank);
        exit(1);
    }
    length = warm_up(s, op, bytes);
    begin = now_us();
    do {
        double start = now_us();

        run_block(s, op, bytes, length, i);
        us[blocks++] = (now_us() - start) / length;
        i += (size_t)length;
    } while (told_by_rank_0(s,
            blocks < MAX_BLOCKS &&
                    (blocks < MIN_BLOCKS || now_us() - begin < s->cap_us)));
    if (s->peer->rank != 0)
        return;
    qsort(us, (size_t)blocks, sizeof(*us), by_value);
    printf("%s,%d,%s,%zu,%d,%.3f,%.3f,%.3f\n", s->name, s->peer->nranks, op_names[op],
            bytes, blocks * length, us[blocks / 2], us[blocks / 10],
            us[blocks * 9 / 10]);
    (void)fflush(stdout);
}

static void *from_the_c_library(size_t bytes)
{
    return aligned_alloc(4096, bytes);
}

int peer_main(const struct peer *peer, int argc, char **argv)
{
    static const struct option options[] = { { "cap", required_argument, NULL, 'c' },
        { "max", required_argument, NULL, 'm' }, { NULL, 0, NULL, 0 } };
    struct sweep s = { .peer = peer, .cap_us = 200e3, .max_bytes = SIZE_MAX };
    void *(*allocate)(size_t) =
            peer->allocate != NULL ? peer->allocate : from_the_c_library;
    void (*release)(void *) = peer->release != NULL ? peer->release : free;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'c')
            s.cap_us = strtod(optarg, NULL) * 1e3;
        else if (c == 'm')
            s.max_bytes = strtoull(optarg, NULL, 10);
        else
            return 64;
    }
    s.name = optind < argc ? argv[optind] : "peer";
    send_pool = allocate(POOL_BYTES);
    recv_pool = allocate(POOL_BYTES);
    if (send_pool == NULL || recv_pool == NULL) {
        fprintf(stderr, "%s: no memory for %zu bytes of buffers\n", s.name,
                2 * POOL_BYTES);
        return 1;
    }
    memset(send_pool, 0, POOL_BYTES);
    memset(recv_pool, 0, POOL_BYTES);
    for (int op = 0; op < PEER_OPS; op++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
            if (sizes[i] <= s.max_bytes)
                measure(&s, (enum peer_op)op, sizes[i]);
    release(send_pool);
    release(recv_pool);
    return 0;
}
