/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same measurement for every library: a program fills in struct peer and calls
 * peer_main(), which sweeps operations and sizes, checks values, times, and prints CSV.
 *
 * `bytes` is the size of the larger buffer of a rank: all_reduce and broadcast move as
 * much, all_gather receives as much, all_to_all sends and receives as much. Ranks are
 * processes; each has one set of buffers after another, so that no cache level below
 * the pool's size holds what comes next.
 */
#ifndef MOTET_BENCH_PEER_H
#define MOTET_BENCH_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum peer_op {
    PEER_ALL_REDUCE,
    PEER_ALL_GATHER,
    PEER_BROADCAST,
    PEER_ALL_TO_ALL,
    PEER_OPS
};

struct peer {
    int rank, nranks;
    /**
     * Run one operation and return when its result is there. all_reduce sums floats,
     * the others move bytes; @p root is for broadcast, which works in @p recv alone.
     * Ends the program on failure.
     */
    void (*run)(enum peer_op op, const void *send, void *recv, size_t bytes, int root);
    /** Memory for the buffers, and the end of it; NULL takes the C library's. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
};

/** Options: [--cap MS] [--max BYTES] NAME, where NAME goes into the first column. */
int peer_main(const struct peer *peer, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
