/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the API, one function a rule: what each call answers, in which order
 * its errors come, and that a communicator is unharmed by what it refused. Each rule
 * runs in its own process or processes, with a deadline.
 */
#ifndef MOTET_TESTS_RULES_H
#define MOTET_TESTS_RULES_H

#include "harness.h"

#include <motet.h>

typedef struct rule {
    const char *sentence;
    void (*body)(multi_rank *rank);
    multi_layout layout;
    int nranks;
    bool init; /* rank->comm, or rank->comms, are made before and destroyed after */
    const char *const *environment;
    unsigned deadline_s;
} rule;

/** Tables, each ended by a row without body. */
extern const rule rules_arguments[];
extern const rule rules_groups[];
extern const rule rules_operators[];
extern const rule rules_life[];
extern const rule rules_members[];
extern const rule rules_memory[];
extern const rule rules_streams[];
extern const rule rules_nonblocking[];
extern const rule rules_process[];

/** The calls that move data, so that a rule can be held against all of them. */
typedef enum rules_call {
    CALL_ALL_REDUCE,
    CALL_ALL_REDUCE_BIAS,
    CALL_ALL_REDUCE_CONFIG,
    CALL_REDUCE,
    CALL_REDUCE_CONFIG,
    CALL_REDUCE_SCATTER,
    CALL_REDUCE_SCATTER_CONFIG,
    CALL_BROADCAST,
    CALL_BROADCAST_CONFIG,
    CALL_BCAST,
    CALL_ALL_GATHER,
    CALL_ALL_GATHER_CONFIG,
    CALL_ALL_TO_ALL,
    CALL_ALL_TO_ALL_OLD,
    CALL_ALL_TO_ALL_CONFIG,
    CALL_ALL_TO_ALL_V,
    CALL_ALL_TO_ALL_V_OLD,
    CALL_GATHER,
    CALL_GATHER_CONFIG,
    CALL_SCATTER,
    CALL_SCATTER_CONFIG,
    CALL_SEND,
    CALL_RECV,
    RULES_CALLS
} rules_call;

typedef struct rules_args {
    const void *send;
    void *recv;
    size_t count;
    int type, op, root;
    ncclComm_t comm;
    cudaStream_t stream;
} rules_args;

typedef struct rules_call_info {
    const char *name;
    bool reduces, rooted; /* rooted: root or peer */
} rules_call_info;

extern const rules_call_info rules_calls[RULES_CALLS];

/** Make call @p which with @p a. */
ncclResult_t rules_make_call(rules_call which, const rules_args *a);

/** An all_reduce over the ranks of @p comm gives the right sum: this rank's part. */
bool rules_works(multi_rank *rank, ncclComm_t comm, const char *when);

/** The same over communicators that this one thread drives. */
bool rules_all_work(multi_rank *rank, const ncclComm_t *comms, int n, const char *when);

/** Poll until the communicator is no longer in progress. */
bool rules_settle(multi_rank *rank, ncclComm_t comm, ncclResult_t *state);

/** Whether the last error of @p comm has @p word; a failure if not. */
bool rules_says(multi_rank *rank, ncclComm_t comm, const char *word);

#endif
