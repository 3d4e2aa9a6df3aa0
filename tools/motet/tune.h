/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet tune: tune.c measures each protocol beside the library's own choice, by motet bench,
 * and tune_choose.c makes the words of a MOTET_PLAN from what came out.
 */
#ifndef MOTET_TOOLS_TUNE_H
#define MOTET_TOOLS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TUNE_SIZES_MAX 40
#define TUNE_KINDS_MAX 8
#define TUNE_RANKS_MAX 16
/** Rules that a library takes in MOTET_PLAN. */
#define TUNE_RULES_MAX 16
/** A protocol has to save so much, or the spread of the library's own times if that is more. */
#define TUNE_LEAST_GAIN 0.03
/** No protocol: the library's own choice stays. */
#define TUNE_OWN (-1)

/** TUNE_PLAN stands where a plan, not one protocol, was measured. */
enum { TUNE_LL, TUNE_STAGED, TUNE_TWOSHOT, TUNE_CE, TUNE_PROTOCOLS, TUNE_PLAN = 0 };

/** As MOTET_PLAN and NCCL_PROTO have them. */
extern const char *const tune_protocols[TUNE_PROTOCOLS];

/** One size: microseconds of the library's choice and of a protocol, taken in turns. */
struct tune_cell {
    uint64_t bytes; /* as MOTET_PLAN counts them */
    struct tune_pair {
        bool measured;
        double own_us, forced_us, spread;
    } by[TUNE_PROTOCOLS];
    int choice;  /* of tune_protocols, or TUNE_OWN */
    double gain; /* own over forced; 1 for TUNE_OWN */
};

struct tune_kind {
    const char *bench, *plan; /* its names there                  */
    unsigned protocols;       /* bit per one that serves it       */
    bool eager_only;          /* none of these serves in a graph  */
    size_t ncells;
    struct tune_cell cells[TUNE_SIZES_MAX]; /* by size */
};

/** All kinds, without figures yet; ended by one without a name. */
void tune_begin(struct tune_kind out[TUNE_KINDS_MAX]);

/**
 * Take the rows of a CSV of motet bench in which the second library ran @p protocol.
 * False: a line that is none, or too many sizes.
 */
bool tune_read(FILE *csv, int protocol, struct tune_kind *kinds);

/** Fill in choice and gain of every cell. */
void tune_choose(struct tune_kind *kinds);

/**
 * The plan: "" where the library's own choices stay. Of more rules than the library takes,
 * those that gain least are left out, and their cells get TUNE_OWN.
 */
void tune_plan(struct tune_kind *kinds, char *buf, size_t bytes);

#endif
