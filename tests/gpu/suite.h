/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of GPU ranks that are no case of the value matrix: a row each, in tables by theme. */
#ifndef MOTET_TESTS_GPU_SUITE_H
#define MOTET_TESTS_GPU_SUITE_H

#include "driver.h"
#include "values.h"

#define SUITE_VARIABLES 7

/** Whom a row is for. */
typedef enum suite_only {
    SUITE_ALL,
    SUITE_FAKE,   /* needs what only the stand-in does: faults on demand */
    SUITE_REAL,   /* takes minutes on the stand-in                       */
    SUITE_DEVICES /* needs two devices                                  */
} suite_only;

/** Whose driver or runtime a row needs. */
typedef enum suite_vendor { SUITE_ANY, SUITE_CUDA, SUITE_HIP } suite_vendor;

typedef struct suite_test {
    const char *sentence;
    void (*body)(gpu_rank *g);
    multi_layout layout;
    int nranks;
    bool no_comm;    /* the body makes its communicators itself              */
    bool own_device; /* each process sees one device only                    */
    bool logs;       /* the library says everything: suite_read_log()        */
    suite_vendor vendor;
    suite_only only;
    /* In each rank's process, before its driver is there; may be NULL. */
    void (*before)(multi_rank *rank);
    unsigned deadline_s; /* 0 takes 120 */
    /* FAKE_X is the stand-in's variable X, whatever its name begins with. */
    const char *environment[SUITE_VARIABLES];
    int victim, signal;
    unsigned signal_after_us;
} suite_test;

/** A row: sentence, body, layout without MULTI_, ranks, and what else it needs. */
#define SUITE_ROW(words, function, how, ranks, ...) \
    { .sentence = (words),                          \
        .body = (function),                         \
        .layout = MULTI_##how,                      \
        .nranks = (ranks),                          \
        __VA_ARGS__ }

/* Tables end with a row without a sentence. */
extern const suite_test suite_streams[];
extern const suite_test suite_graphs[];
extern const suite_test suite_members[];
extern const suite_test suite_pairs[];
extern const suite_test suite_paths[];
extern const suite_test suite_windows[];
extern const suite_test suite_failures[];
extern const suite_test suite_refusals[];
extern const suite_test suite_copies[];
extern const suite_test suite_wraps[];
extern const suite_test suite_sizes[];
extern const suite_test suite_hip[];

/** Device memory of a rank; a body takes from it with gpu_reserve(). */
#define SUITE_POOL      (256u << 20)
#define SUITE_POOL_FAKE (32u << 20)

/** How much of a long test runs: all, or a part of it on the stand-in. */
unsigned suite_rounds(unsigned all);

/** What the process of rank 0 has said so far, in a row that @c logs; "" if nothing. */
void suite_read_log(const multi_rank *rank, char *buf, size_t bytes);

/** Elements first … of rank @p of under @p seed, at @p to. float32 unless said otherwise. */
bool suite_put(gpu_rank *g, CUdeviceptr to, uint64_t seed, int of, size_t first,
        size_t count);

/** Compare with the sum over all ranks. */
bool suite_is_sum(gpu_rank *g, CUdeviceptr at, uint64_t seed, size_t count,
        const char *what);

/** Compare with elements first … of rank @p of. */
bool suite_is(gpu_rank *g, CUdeviceptr at, uint64_t seed, int of, size_t first,
        size_t count, const char *what);

/** All @p bytes are @p byte. */
bool suite_is_filled(gpu_rank *g, CUdeviceptr at, unsigned char byte, size_t bytes,
        const char *what);

/** all_reduce of floats. */
bool suite_sum(gpu_rank *g, ncclComm_t comm, CUdeviceptr from, CUdeviceptr to,
        size_t count, CUstream stream);

/**
 * Sum, broadcast, messages to the next rank and all_to_all of @p count elements of the
 * rank's @p in, all looked at. @p out holds four results, @p room bytes apart.
 */
bool suite_round(gpu_rank *g, CUdeviceptr in, CUdeviceptr out, size_t room,
        size_t count, uint64_t seed);

/** Wait until the communicator failed: its state, or ncclSuccess after @p ms. */
ncclResult_t suite_fate(gpu_rank *g, ncclComm_t comm, unsigned ms);

/** The communicator's sentence has @p word. */
bool suite_says(gpu_rank *g, ncclComm_t comm, const char *word);

#endif
