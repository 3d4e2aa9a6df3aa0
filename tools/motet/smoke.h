/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet smoke: do ranks on this machine exchange data, correctly and about how fast.
 *
 * In each way that is tried: all_reduce of four sizes, timed call by call (the slowest
 * rank's time of each of 20 calls; median, p10 and p90 of those); all_reduce and
 * all_gather of three types at a small and a large count; then every collective with every
 * type and operator, in place and not, at three odd counts. Every value is checked against
 * a float64 reference, and the ranks' results against each other. Communicators can be
 * made again any number of times, each time by fresh processes.
 */
#ifndef MOTET_TOOLS_SMOKE_H
#define MOTET_TOOLS_SMOKE_H

#include "ranks.h"
#include "work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SMOKE_ITERATIONS 20
#define SMOKE_SIZES      4
#define SMOKE_VALUES     12 /* cases: two collectives, three types, two counts */
#define SMOKE_COLD_MAX   10000

/** How ranks and communicators come to be. */
enum smoke_way {
    SMOKE_PROCESSES,
    SMOKE_THREADS,
    SMOKE_INIT_ALL,
    SMOKE_INIT_ALL_THREADS
};
#define SMOKE_WAYS 4

struct smoke_way_facts {
    const char *ranks; /* "processes"        */
    const char *call;  /* "ncclCommInitRank" */
    bool init_all, one_process, one_thread;
};

extern const struct smoke_way_facts smoke_ways[SMOKE_WAYS];

struct smoke_options {
    int ranks, cold;
    bool threads, init_all, processes, json, host_memory, serving_anyway;
    const char *lib, *device;
    unsigned timeout_s;
};

struct smoke_timing {
    size_t bytes; /* 0: not come to */
    double median_us, p10_us, p90_us;
    uint64_t wrong;
};

/** One case of all_reduce or all_gather: `count` elements of each rank. */
struct smoke_value {
    const struct collective *collective;
    motet_type type;
    size_t count;
    bool done, refused; /* refused: this library lacks the type */
    uint64_t wrong;     /* out of place and in place */
};

struct smoke_verdict {
    unsigned cases, refused; /* refused: types and operators that this library lacks */
    uint64_t wrong;
    bool done;
};

/** Communicators made by fresh processes, again and again. */
struct smoke_cold {
    int tried, good, first_bad;    /* first_bad counts from 1; 0: none */
    double init_ms[2], call_ms[2]; /* median and maximum */
    const char *stopped;           /* why the rest was not tried, NULL if it was */
    char said[1024];               /* of the first that was bad */
};

/** What one way of running the ranks gave. */
struct smoke_part {
    enum smoke_way way;
    bool connected, finished; /* finished: rank 0 came to its end */
    double init_ms;
    struct smoke_timing timing[SMOKE_SIZES];
    struct smoke_value value[SMOKE_VALUES];
    struct smoke_verdict verdict[16]; /* by index in `collectives` */
    struct smoke_cold cold;
    char untried[512]; /* why this way was not tried, "" if it was */
    char said[1024];   /* what went wrong, "" if nothing did */
    int code;
};

/** Lives in memory that the ranks share with the parent. */
struct smoke {
    struct smoke_options options;
    struct backend_choice place;
    char lib_path[PATH_MAX]; /* what --lib means */
    bool launches;           /* on GPUs, or may */
    bool named;              /* the next four are filled, by rank 0 */
    char path[PATH_MAX], sha256[SHA256_TEXT];
    int version;
    bool linked;
    int num_parts;
    struct smoke_part part[2];
};

/** What a rank's body gets. */
struct smoke_run {
    struct smoke *smoke;
    struct smoke_part *part;
};

/** One rank's work in a way, for ranks_run(). */
int smoke_body(struct ranks *self, void *run);

/** Open the library that is tried, and refuse it if it cannot be. 0, or an exit code after
 * ranks_fail(). */
int smoke_open(struct ranks *self, const struct smoke *s, bool hashed,
        struct library *lib);

/** The plan of a way's ranks. */
struct ranks_plan smoke_plan(const struct smoke *s, const struct smoke_part *p,
        struct ranks_end *end);

/**
 * What stands before and after all that launches work on a GPU, if these ranks do: see
 * serving.h. smoke_enter() returns −1 to go on, otherwise an exit code.
 */
int smoke_enter(const struct smoke *s, const struct smoke_part *p);
void smoke_leave(const struct smoke *s, const struct smoke_part *p);

/** Make communicators --cold times. An exit code. */
int smoke_cold_run(struct smoke *s, struct smoke_part *p);

/** All values of a part that are wrong. */
uint64_t smoke_wrong(const struct smoke_part *p);

/* Text, as it comes to be; none of it with --json. */
void smoke_print_head(const struct smoke *s, const struct smoke_part *p);
void smoke_print_connected(const struct smoke *s, const struct smoke_part *p);
void smoke_print_timing(const struct smoke *s, const struct smoke_timing *t);
void smoke_print_values(const struct smoke *s, const struct smoke_part *p);
void smoke_print_verdict(const struct smoke *s, const struct collective *c,
        const struct smoke_verdict *v);
void smoke_print_untried(const struct smoke *s, const struct smoke_part *p);
void smoke_print_cold(const struct smoke *s, const struct smoke_part *p);

/** PASS or FAIL, or the whole report with --json. False if it cannot be written. */
bool smoke_print_end(const struct smoke *s, int code);

#endif
