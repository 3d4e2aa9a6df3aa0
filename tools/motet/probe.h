/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet probe: can these cards work together, and with which library. Every question is a
 * row, every card of it a cell; a cell is a process of its own with a deadline, so that a
 * library or driver that crashes, hangs or lies costs that cell and nothing else.
 *
 * The command's own process loads no library and no driver: it forks, watches, and says
 * what became of each rank.
 */
#ifndef MOTET_TOOLS_PROBE_H
#define MOTET_TOOLS_PROBE_H

#include "backend.h"
#include "doctor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** The largest all_reduce of a model that is measured. */
#define PROBE_STEP_BYTES_MAX (256u << 20)

/** Ranks of a row, libraries side by side, and how much a cell says. */
#define PROBE_RANKS_MAX     BACKEND_DEVICES_MAX
#define PROBE_LIBRARIES_MAX 8
#define PROBE_MESSAGE_BYTES 1024
/** Most that probe_share() hands on. */
#define PROBE_SHARE_BYTES 1024

/* ---- what is asked ---- */

struct json;

struct probe_options {
    const char *libraries[PROBE_LIBRARIES_MAX]; /* --lib, as typed               */
    int nlibraries;                 /* 0: the one that is chosen, and ours        */
    const char *device;             /* --device, NULL: MOTET_DEVICE               */
    int ranks;                      /* -n, 0: one for each card, 2 on CPUs        */
    unsigned timeout_s;             /* of each cell                               */
    uint64_t until_ns;              /* no cell begins behind it, 0: none            */
    const char *only;               /* "all_reduce,send_both", NULL: all rows     */
    struct dr_model model;          /* hidden 0: none was given                   */
    bool json, host_memory, anyway; /* anyway: --serving-anyway                   */
    bool repeat;                    /* also what did not come back                */
    bool gate_kernels;              /* --gate-kernels: probe_gate() and no more   */
    const char *collect;            /* --collect FILE: probe_collect() and no more */
};

/* ---- what is found ---- */

/** Where a rank is, or where it failed. */
enum probe_stage {
    PROBE_LOAD,       /* dlopen, constructors                                  */
    PROBE_SYMBOLS,    /* the functions of the ABI, ncclGetVersion              */
    PROBE_DEVICE,     /* take the device, memory on it, copies                 */
    PROBE_INIT,       /* ncclGetUniqueId, ncclCommInitRank                     */
    PROBE_LAUNCH,     /* the call, ncclGroupEnd                                */
    PROBE_SYNC,       /* waiting for the stream                                */
    PROBE_LAST_ERROR, /* ncclCommGetAsyncError, hipGetLastError                */
    PROBE_VALUES,     /* what is in the buffers and behind them                */
    PROBE_DESTROY,    /* ncclCommDestroy                                       */
    PROBE_HANG,       /* did not come back before the deadline                 */
    PROBE_WAITING,    /* nothing wrong here: another rank did not come         */
    PROBE_NOT_RUN,    /* not begun, the message says why                       */
    PROBE_DONE        /* ok                                                    */
};

/** "load", …, "last error", "not run", "done"; never NULL. */
const char *probe_stage_name(enum probe_stage stage);

/** A cell. */
struct probe_rank {
    int rank, device; /* device −1: none needed           */
    bool ok;
    enum probe_stage stage;            /* DONE if ok                       */
    char message[PROBE_MESSAGE_BYTES]; /* "" if ok                         */
    double ms;                         /* of one call, −1: not measured    */
    bool stuck;                        /* the kernel still holds its process */
};

struct probe_row {
    int library;           /* index into the report's          */
    const char *operation; /* static                           */
    int nranks;
    struct probe_rank *ranks;
};

/** A library as its load stage found it. */
struct probe_library {
    const char *given; /* NULL: the copy inside this command */
    char path[PATH_MAX];
    char sha256[SHA256_TEXT];
    int version;   /* 0: it did not come to that        */
    bool motet;    /* its ranks take host memory        */
    bool missing;  /* there is none of this name        */
    char why[512]; /* why it is one, or is not probed   */
};

/** A card. */
struct probe_card {
    char name[96], identity[64], target[32];
    char address[16];   /* "0000:03:00.0", "" on CPUs        */
    char root_port[16]; /* above it, "" unknown              */
    char link[40];      /* "16.0 GT/s x16", "" unknown       */
    char atomics[8];    /* "yes", "no", "unknown"            */
};

struct probe_report {
    const struct probe_options *options;
    struct backend_choice place;
    int nlibraries, ncards, nranks;
    struct probe_library libraries[PROBE_LIBRARIES_MAX];
    struct probe_card cards[PROBE_RANKS_MAX];
    struct probe_row *rows;
    size_t nrows, room;
    double step_us[PROBE_LIBRARIES_MAX]; /* one all_reduce of the model's size, slowest
                                            pair or all ranks; 0: not measured        */
    char note[1024];                     /* why there is no library but ours          */
    bool unsettled;                      /* no choice between several could be made */
    int refused;                         /* serving_refuse()'s exit code, −1          */
};

/**
 * Run all rows. @return −1, with everything in @p out, which probe_report_free() empties;
 * or an exit code, after saying why: no such device, wrong usage, someone else computes
 * on a GPU.
 */
int probe_run(const struct probe_options *options, struct probe_report *out);
void probe_report_free(struct probe_report *report);

/** 0 all rows ok, 1 some failed, 2 undecided. */
int probe_exit_status(const struct probe_report *report);

/** A member for a time that may be missing (−1): null then. */
void probe_json_ms(struct json *j, const char *key, double ms);

/** The document of `motet probe --json`. False if it could not be written. */
bool probe_print_json(const struct probe_report *report, FILE *out);
void probe_print_text(const struct probe_report *report, FILE *out);

/* ---- cells ---- */

/** These cells were not begun, and why. */
void probe_not_run(struct probe_rank *ranks, int nranks, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

struct probe_shared;

/** What a process of a cell knows of itself. */
struct probe_seat {
    struct probe_shared *shared;
    int rank, nranks, device;
};

/** Runs in the forked process. Coming back without probe_fail() is success. */
typedef void probe_body(struct probe_seat *seat, void *arg);

/**
 * Run @p body in @p nranks processes at once, with the deadline of the options. Never
 * fails itself: what happened, to the process too, stands in @p ranks, whose `rank` and
 * `device` the caller filled in. What the processes print goes into messages.
 */
void probe_cell(const struct probe_options *options, probe_body *body, void *arg,
        struct probe_rank *ranks, int nranks);

/** From now on this rank is in @p stage, at what @p fmt says ("ncclAllReduce, …"). */
void probe_enter(struct probe_seat *seat, enum probe_stage stage, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/** It failed in the stage that it is in, for the reason @p fmt. The first one stays. */
void probe_fail(struct probe_seat *seat, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/** What it failed of is another rank that did not come, as the library says. */
void probe_blame_peer(struct probe_seat *seat);
/** It has done what was asked: another rank's failure from now on is not its own. */
void probe_finished(struct probe_seat *seat);
/** How long the call took. */
void probe_took(struct probe_seat *seat, double ms);
/** Wait for all ranks of the cell. False once one has failed: come back then. */
bool probe_meet(struct probe_seat *seat);
/** Hand @p bytes of rank 0's @p data to all. False as in probe_meet(). */
bool probe_share(struct probe_seat *seat, void *data, size_t bytes);

/* ---- the two other commands (probe_gate*.c, probe_collect.c) ---- */

/** The two-kernel test and its controls; an exit code. */
int probe_gate(const struct probe_options *options);
/** Everything about this machine into one archive; an exit code. */
int probe_collect(const struct probe_options *options);

#endif
