/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet bench, in parts: bench_options.c reads the command line and bench_settle.c says
 * what it means on the device that was found, bench_sides.c opens the libraries, bench_run.c
 * goes through what is to be measured, bench_time.c measures one figure and bench_check.c
 * looks at its values, bench_table.c prints nccl-tests' table, bench_export.c writes CSV
 * and JSON, bench_plot.c writes SVG, bench.c puts them together.
 */
#ifndef MOTET_TOOLS_BENCH_H
#define MOTET_TOOLS_BENCH_H

#include "collective.h"
#include "ranks.h"
#include "work.h"

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

/** How calls are made when their time is taken. */
enum bench_timing {
    BENCH_EAGER,    /* issued one after another, then waited for     */
    BENCH_GRAPH,    /* captured once, replayed                       */
    BENCH_BLOCKING, /* each is waited for before the next is issued  */
    BENCH_NUM_TIMINGS
};

extern const char *const bench_timing_names[BENCH_NUM_TIMINGS];

struct bench_options {
    const struct collective *list[BENCH_LIST_MAX];
    int nlist;
    int processes, threads, per_thread;
    uint64_t min_bytes, max_bytes, step_bytes;
    uint64_t step_factor; /* 0: step_bytes counts */
    int iters, warm_ups, aggregate, cycles, checks;
    int type, redop, root; /* or BENCH_ALL */
    enum bench_timing timing[BENCH_NUM_TIMINGS];
    int ntimings;
    int blocking; /* -z: 0 on streams, 1 stream NULL, 2 streams, waited for; −1 not said */
    int replays; /* -G: of a graph, in a turn; 0 not said */
    int average; /* -a: 0 rank 0, 1 mean, 2 min, 3 max; −1 not said */
    bool cpu_time, timestamps, out_of_place_only, explain;
    int sets;         /* --buffers */
    int registration; /* -R */
    int cta_policy;   /* -x; −1 not said */
    int unalign;      /* -u: index of the first element */
    int timeout_s;    /* −1 not said */
    int rounds;
    bool use_malloc, host_memory, serving_anyway;
    const char *lib, *vs, *device;
    const char *
            vs_env[BENCH_LIST_MAX]; /* NAME=VALUE, for the second library's processes */
    int nvs_env;
    const char *csv, *json, *svg;     /* file names, "-" for stdout */
    char notes[BENCH_NOTES_MAX][120]; /* options that mean nothing here */
    int nnotes;
};

/** Fill @p o. −1: go on; otherwise the exit code (help, or a mistake). */
int bench_read_options(int argc, char **argv, struct bench_options *o);

/** Give what was not said its value on @p backend, refuse what cannot be there. As above. */
int bench_settle(struct bench_options *o, const struct backend *backend);

/** Take a list as in "eager,graph". As above. */
int bench_take_timings(struct bench_options *o, const char *list);

/** One half of a row; what concerns the other library is 0 without --vs. */
struct bench_half {
    bool measured;
    double time_us, alg_bw, bus_bw;
    double p10_us, p90_us; /* of the turns */
    double issue_us; /* until a call was issued: what it costs the calling thread */
    int64_t wrong;   /* −1: not checked */
    double other_us, ratio, spread;
    int64_t other_wrong;
};

struct bench_row {
    const struct collective *collective;
    enum bench_timing timing;
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
    struct backend_choice place;
    bool teams; /* the second library has processes of its own */
    char lib_path[PATH_MAX], vs_path[PATH_MAX]; /* "": the copy that is built in */
    /* Opened by every process for itself; of two teams' each opens its own, and the first
     * gets the other's description. */
    struct library lib, vs;
    pthread_mutex_t lock; /* of the next two */
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

/** One library on one thread's ranks. */
struct bench_side {
    bool here; /* false: another team's, this thread only hears of it */
    struct work work;
    struct registration registration;
    void **mark;  /* begin and end of each rank's turn; NULL: the clock of the wall */
    void **graph; /* of each rank, or NULL pointers */
    double *turns, *issues; /* µs, by turn */
};

/** Both libraries' side of one thread. */
struct bench_sides {
    struct ranks *self;
    struct bench_side side[2];
    int n; /* 1 without --vs */
    struct buffers buffers;
};

/* bench_sides.c */
int bench_open_sides(struct bench *b, struct bench_sides *s, struct ranks *self);
void bench_close_sides(struct bench *b, struct bench_sides *s);

/* bench_time.c */
/** Measure @p half's times. 0, or an exit code after ranks_fail(), as all of these. */
int bench_time_half(const struct bench_options *o, enum bench_timing timing,
        struct bench_sides *s, struct bench_half *half);
/**
 * Make the calls of one figure on fresh buffers, as they were timed, and wait for them.
 * @p once: not more than one call on each set of buffers.
 */
int bench_run_calls(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side, bool once);
/** Drop the captured calls, if there are any. */
void bench_drop_graphs(struct bench_side *side);

/* bench_check.c */
/** Count wrong values on all ranks, over the rounds of checking. */
int bench_count_wrong(const struct bench_options *o, enum bench_timing timing,
        struct bench_sides *s, int k, int64_t *out);

/* bench_table.c */
void bench_print_head(const struct bench *b, const struct collective *c,
        enum bench_timing timing, int nranks);
void bench_print_row(const struct bench *b, const struct bench_row *row);
/** What the library says of its choice for @p row, on lines that begin with '#'. */
void bench_print_plan(const struct bench *b, const struct bench_row *row,
        const struct work *work);
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
