/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives that smoke and bench run: one row each. A row says how many elements
 * its buffers hold, how to issue it, what the result must be, and how its bandwidth is
 * counted (nccl-tests' definitions, api.md 5.4).
 */
#ifndef MOTET_TOOLS_COLLECTIVE_H
#define MOTET_TOOLS_COLLECTIVE_H

#include "check.h"
#include "library.h"

#include <stdbool.h>

/** Sizes of one call, elements. In place: sendbuff = recvbuff + send_inplace, or the
 * result goes to sendbuff + recv_inplace (the two offsets are for rank 1; rank r's are
 * r times as far). */
struct layout {
    size_t send, recv; /* what the two buffers hold                            */
    size_t param;      /* the count that the API call gets                     */
    size_t send_inplace, recv_inplace;
    size_t moved; /* elements that the bandwidth counts                        */
};

/** One rank's side of one call. */
struct call {
    const struct library *lib;
    ncclComm_t comm;
    MOTET_STREAM_T stream;
    const void *send;
    void *recv;
    size_t param;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root, rank, nranks;
};

struct collective {
    const char *name; /* "all_reduce"; the test is called all_reduce_perf */
    bool reduces, rooted;
    bool checks_in_place; /* the API promises a result when run in place */
    bool power_of_two;    /* only for 2, 4, 8 … ranks                    */
    struct layout (*layout)(size_t elements, size_t element_bytes, int nranks);
    int (*steps)(int nranks); /* NULL: one. A later step needs the one before */
    ncclResult_t (*issue)(const struct call *call, int step);
    /** Number of wrong elements in @p recv of @p rank. */
    size_t (*wrong)(const struct check *c, const struct layout *layout, int rank,
            int root, const void *recv);
    /** busbw / algbw. */
    double (*bus_factor)(int nranks);
    /** Whether all ranks end with the same bits in recv. */
    bool same_everywhere;
};

extern const struct collective collectives[];
extern const size_t ncollectives;

/** "all_reduce", "allreduce", "AllReduce", "all_reduce_perf" …; NULL if there is none. */
const struct collective *collective_find(const char *name);

/** The nearest name, for a message; NULL if none is near. */
const char *collective_nearest(const char *name);

/** How many steps it has. */
int collective_steps(const struct collective *collective, int nranks);

#endif
