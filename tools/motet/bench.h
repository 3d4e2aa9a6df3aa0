/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet bench, in parts: bench_options.c reads the command line, bench_run.c measures,
 * bench_table.c prints nccl-tests' table, bench_export.c writes CSV and JSON,
 * bench_plot.c writes SVG, bench.c puts them together.
 */
#ifndef MOTET_TOOLS_BENCH_H
#define MOTET_TOOLS_BENCH_H

#include "collective.h"
#include "ranks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_LIST_MAX  16
#define BENCH_NOTES_MAX 16
/** "all" of the types, operators or roots. */
#define BENCH_ALL -1
/** Most turns of one figure. */
#define BENCH_ROUNDS_MAX 1000

struct bench_options {
    const struct collective *list[BENCH_LIST_MAX];
    int nlist;
    int processes, threads, per_thread;
    uint64_t min_bytes, max_bytes, step_bytes;
    uint64_t step_factor; /* 0: step_bytes counts */
    int iters, warm_ups, aggregate, cycles, checks;
    int type, redop, root; /* or BENCH_ALL */
    int blocking;          /* -z: 0 on streams, 1 stream NULL, 2 streams, waited for */
    int average;           /* -a: 0 rank 0, 1 mean, 2 min, 3 max */
    bool cpu_time, timestamps, out_of_place_only;
    int registration; /* -R */
    int cta_policy;   /* -x; −1 not said */
    int unalign;      /* -u: index of the first element */
    int timeout_s, rounds;
    bool use_malloc, host_memory;
    const char *lib, *vs, *device;
    const char *csv, *json, *svg;     /* file names, "-" for stdout */
    char notes[BENCH_NOTES_MAX][120]; /* options that mean nothing here */
    int nnotes;
};

/** Fill @p o. −1: go on; otherwise the exit code (help, or a mistake). */
int bench_read_options(int argc, char **argv, struct bench_options *o);

/** One half of a row; what concerns the other library is 0 without --vs. */
struct bench_half {
    bool measured;
    double time_us, alg_bw, bus_bw;
    int64_t wrong; /* −1: not checked */
    double other_us, ratio, spread;
    int64_t other_wrong;
};

struct bench_row {
    const struct collective *collective;
    motet_type type;
    motet_redop redop;
    int root; /* −1 where there is none */
    uint64_t bytes, count;
    struct bench_half half[2]; /* out of place, in place */
};

/** What rank 0 collects while it prints. */
struct bench_results {
    struct bench_row *rows;
    size_t nrows, room;
    double bus_bw_sum; /* of the collective that is being printed */
    size_t bus_bw_count;
    uint64_t wrong;
    double min_bw; /* NCCL_TESTS_MIN_BW; 0 not set */
    bool failed;   /* something was wrong, at any time */
};

struct bench {
    struct bench_options options;
    struct library lib, vs; /* opened by every process for itself */
    pthread_mutex_t lock;   /* of the next two */
    bool opened;
    char failure[PATH_MAX + 256]; /* why they cannot be measured; "" if they can */
    int argc;
    char **argv;
    /* printing: rank 0 only */
    FILE *table, *csv, *json, *svg;
    struct bench_results results;
    int pids[RANKS_MAX];
    bool no_streams; /* -z wants them, but a library has none */
};

/** Measure everything on one thread's ranks; rank 0's prints. @p arg is a struct bench. */
int bench_body(struct ranks *self, void *arg);

/* bench_table.c */
void bench_print_libraries(const struct bench *b);
void bench_print_head(const struct bench *b, const struct collective *c, int nranks);
void bench_print_row(const struct bench *b, const struct bench_row *row);
/** Footer of one collective. Returns whether everything in it is as it should be. */
bool bench_print_foot(const struct bench *b, const struct collective *c);
/** A number in @p width characters or few more, with 2, 1 or 0 decimals as it grows. */
const char *bench_number(double value, int width, char *buf, size_t bytes);
/** "none" for collectives that do not reduce. */
const char *bench_redop_name(const struct bench_row *row);

/* bench_export.c, bench_plot.c: false if the file could not be written */
bool bench_write_csv(const struct bench *b);
bool bench_write_json(const struct bench *b, int nranks);
bool bench_write_svg(const struct bench *b, int nranks);

#endif
