/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of windows: buffers that the other ranks read in place. */
#ifndef MOTET_TESTS_WINDOWS_H
#define MOTET_TESTS_WINDOWS_H

#include "harness.h"

typedef struct windows_test {
    const char *sentence;
    void (*body)(multi_rank *rank);
    multi_layout layout;
    int nranks;
    int thin;       /* collectives: every thin-th case only; 0 takes 1 */
    unsigned plain; /* collectives: bits of ranks without memory of ncclMemAlloc() */
    const char *environment; /* one more variable, or NULL                      */
    int victim, signal;
    unsigned signal_after_us;
} windows_test;

extern const windows_test windows_collectives[];
extern const windows_test windows_lives[];

/** Sanitizers make everything slower: multiplies `thin`. */
extern int windows_thinner;

#endif
