/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet probe --gate-kernels: does a card run a kernel that declares a hostcall? Two
 * kernels that differ in nothing else are launched without any library, and controls, so
 * that a refusal can be pinned to the hostcall. Each launch is a process of its own.
 *
 *     probe_gate.c         the cards, and the order
 *     probe_gate_run.c     one launch, in its process
 *     probe_gate_judge.c   what the launches come to
 *     probe_gate_report.c  text and JSON
 *     gate/gate.c          the kernels
 */
#ifndef MOTET_TOOLS_PROBE_GATE_H
#define MOTET_TOOLS_PROBE_GATE_H

#include "json.h"
#include "probe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** What the kernels' code objects are called: probe-gate-gfx1100.co. */
#define GATE_IMAGE "probe-gate-%.*s.co"

/** A launch, and what is special about it. */
struct gate_test {
    const char *name, *kernel, *what;
    unsigned lds_bytes; /* dynamic */
    bool second;        /* the kernel stores a second word, too                      */
    bool wide;          /* it takes GATE_ARGS_BYTES of arguments                     */
    bool to_host;       /* it stores to host memory                                  */
    bool event;         /* its end is an event that is waited for                    */
    bool other_stream;  /* that another stream waits for, whose kernel reads on      */
};

enum { GATE_PLAIN, GATE_HOSTCALL, GATE_TESTS = 8 };

/** Plain, hostcall, and the controls. */
extern const struct gate_test gate_tests[GATE_TESTS];

/** Where the runtime may tell of a refusal. */
enum { GATE_LAUNCH, GATE_SYNC, GATE_LAST, GATE_PLACES };

/** Of `code`: the process did not come to that. */
#define GATE_NOT_REACHED (-1)

/** What the process of a launch saw; in memory that it shares with its parent. */
struct gate_seen {
    int code[GATE_PLACES];       /* of the runtime, 0: no error                       */
    char error[GATE_PLACES][48]; /* "hipErrorIllegalState"                            */
    bool read, stored;           /* the marker was read back; it is what it should be */
    char said[160]; /* the runtime's own line about it, "" if it printed none */
    int atomics;    /* the runtime says of the card: 1, 0, -1 unknown */
};

struct gate_cell {
    struct gate_seen seen;
    struct probe_rank rank; /* ok, stage, message */
};

enum gate_verdict {
    GATE_RUNS,    /* it runs all of them                         */
    GATE_REFUSES, /* the hostcall, and nothing else              */
    GATE_UNSURE,  /* the hostcall, but a control does not run either */
    GATE_BROKEN,  /* not even the plain one runs                 */
    GATE_OTHER,   /* something failed, and it was not a refusal  */
    GATE_UNTRIED
};

struct gate_card {
    int device;
    const struct probe_card *about;
    char image[PATH_MAX]; /* the code object, "" if there is none */
    struct gate_cell cells[GATE_TESTS];
    enum gate_verdict verdict;
};

struct gate_report {
    struct probe_report probe; /* which cards there are, and the runtime */
    int ncards;
    struct gate_card cards[PROBE_RANKS_MAX];
};

/** What the process of a launch needs. */
struct gate_launch {
    const struct gate_test *test;
    int device;
    const void *image;
    struct gate_seen *seen;
};

/** Whether a launch was refused as one is that declares a hostcall: 401 somewhere. */
bool gate_refused(const struct gate_seen *seen);

/**
 * What a line of the runtime's log at the level of errors says, without file, time and
 * process: ":1:rocvirtual.cpp :4208: 81 us: [pid:7 tid:0x7f] Pcie atomics …". False: the
 * line is none.
 */
bool gate_reason(const char *line, char *buf, size_t bytes);

/** The body of a cell (probe.h); @p arg is a gate_launch. */
void gate_run(struct probe_seat *seat, void *arg);

/**
 * All launches on all cards. @return -1, with everything in @p out; or an exit code after
 * saying why: no AMD GPU, or someone else computes on one, in which case @p out holds what
 * was found before.
 */
int gate_look(const struct probe_options *options, struct gate_report *out);

/** 0 all cards run all, 1 one does not, 2 undecided. */
int gate_exit_status(const struct gate_report *report);

/** What the launches on a card come to. */
enum gate_verdict gate_judge(const struct gate_card *card);

/** "yes", "no" or "unknown": what the runtime says, which is what it goes by; else what
 *  PCI shows. */
const char *gate_atomics(const struct gate_card *card);

/** "runs", "refuses hostcall", …; never NULL. */
const char *gate_verdict_name(enum gate_verdict verdict);
/** What it means for @p card, a sentence or two. */
const char *gate_means(const struct gate_card *card, char *buf, size_t bytes);

void gate_print_text(const struct gate_report *report, FILE *out);
/** False if it could not be written. */
bool gate_print_json(const struct gate_report *report, FILE *out);

#endif
