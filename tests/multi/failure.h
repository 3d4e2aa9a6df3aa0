/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what happens when ranks die, stop, stay away or disagree. */
#ifndef MOTET_TESTS_FAILURE_H
#define MOTET_TESTS_FAILURE_H

#include "harness.h"

#include <motet.h>

/* Sanitizers slow everything down; the promise is for builds that ship. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FAILURE_DEATH_NS 8000000000ull
#else
#define FAILURE_DEATH_NS 2000000000ull
#endif

typedef struct failure_test {
    const char *sentence;
    bool (*run)(const struct failure_test *test);
    void (*body)(multi_rank *rank); /* for tests that are one multi_run() */
    multi_layout layout;
    int nranks;
    bool init;
    const char *environment; /* one more variable, or NULL */
    int victim, signal;
    unsigned signal_after_us, continue_after_us;
} failure_test;

extern const failure_test failure_deaths[];
extern const failure_test failure_waits[];

/** One multi_run() of the row, in the trace folder of these tests. */
bool failure_run(const failure_test *test);

/** Folder of the recorder's files. */
extern char failure_folder[128];
/** Where the children's stderr goes, in a folder of its own. */
extern char failure_stderr[160];
/** How many random kills; the seed of their moments. */
extern unsigned failure_kills;
extern uint64_t failure_seed;

/** Longest time between a death and a survivor's error, of the runs that passed. */
extern uint64_t failure_slowest_ns;

/** Kinds of operation that are run while a rank is killed. */
#define FAILURE_KINDS 10
extern const char *const failure_kind_names[FAILURE_KINDS];
ncclResult_t failure_operation(int kind, void *send, void *recv, size_t count, int root,
        const multi_rank *rank, ncclComm_t comm, cudaStream_t stream);

/** Bytes that a buffer of failure_operation() needs for @p count. */
#define FAILURE_BYTES(count) ((count) * sizeof(int32_t) * MULTI_MAX_RANKS)

#endif
