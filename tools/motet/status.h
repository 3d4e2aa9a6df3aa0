/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet status: from recorder files to a verdict.
 *
 *     status.c         options, and finding and reading the files
 *     status_group.c   groups them by communicator
 *     status_judge.c   finds what is wrong with one communicator
 *     status_words.c   how ranks, calls and times are written
 *     status_text.c    the report for people
 *     status_json.c    the report for programs
 *
 * Judging and printing get everything as arguments, the time too, so that they can be
 * tested without a job.
 */
#ifndef MOTET_TOOLS_STATUS_H
#define MOTET_TOOLS_STATUS_H

#include "trace/recorder.h"

#include <stdio.h>

/** A wait this long is named in the verdict … */
#define STATUS_NOTICE_NS MOTET_NS_PER_S
/** … and one this long is a problem. */
#define STATUS_STUCK_NS (10 * MOTET_NS_PER_S)
/** A heartbeat comes each 250 ms; this long without one is worth a word. */
#define STATUS_SILENT_NS (2 * MOTET_NS_PER_S)
/** Operations of a rank that --all shows. */
#define STATUS_OPS_SHOWN 16
/** Findings of a communicator that are kept; the others are counted. */
#define STATUS_FINDINGS_MAX 32
/** Missing ranks that are listed one by one. */
#define STATUS_MISSING_MAX 256

typedef enum status_process {
    STATUS_ALIVE,
    STATUS_ELSEWHERE, /* its heart beats, but its pid is another namespace's      */
    STATUS_STOPPED,   /* by a signal or a debugger                                */
    STATUS_DEAD,
    STATUS_CLOSED,  /* it has destroyed the communicator; the file is a left-over */
    STATUS_UNKNOWN, /* recorded in another boot or on another host                */
    STATUS_NUM_PROCESSES
} status_process;

/** One file. */
typedef struct status_rank {
    motet_trace_snapshot *snapshot; /* whoever collected it owns it */
    status_process process;
    uint64_t now_ns; /* up to when its durations count: now, or its last sign of life */
} status_rank;

typedef struct status_finding {
    const char *code; /* stable: "RANK_BEHIND" …                     */
    bool problem;     /* makes the exit status 1                     */
    bool undecided;   /* makes it 2, unless there is a problem       */
    char ranks[256];  /* "0-2, 5"; "" if it is about none of them    */
    char text[1536];  /* a sentence; a mismatch has one line a call  */
} status_finding;

typedef struct status_group {
    uint64_t comm;
    int32_t nranks;
    status_rank *ranks; /* by rank, one each; within the collector's array */
    size_t count;
    int32_t missing[STATUS_MISSING_MAX];
    size_t missing_listed;
    int64_t missing_total;
    status_finding findings[STATUS_FINDINGS_MAX];
    size_t finding_count, findings_dropped;
} status_group;

/** A file that could not be read. */
typedef struct status_unread {
    char path[256];
    char reason[384];
} status_unread;

/** Everything that one call of the command saw. */
typedef struct status_report {
    const status_group *groups;
    size_t group_count;
    const status_unread *unread;
    size_t unread_count;
    const char *places; /* where it looked, for the reader */
    bool named;         /* the files were named on the command line */
    uint64_t now_ns;    /* CLOCK_MONOTONIC */
} status_report;

/* ---- judging ---- */

/**
 * Say what became of @p rank's process.
 * @param boot_id  this boot's.
 * @param process  what /proc says of its pid, NULL if there is none.
 */
void status_classify(status_rank *rank, uint64_t now_ns, const char *boot_id,
        const motet_trace_process *process);

/**
 * Sort @p ranks, group them by communicator, and judge each. Of two files of one rank
 * the later one counts. Live communicators come first, then the newest.
 * @return to be freed; its groups point into @p ranks. NULL without memory or files.
 */
status_group *status_judge(status_rank *ranks, size_t count, size_t *groups_out);

/**
 * Fill in the findings of @p group.
 * @param scratch  three flags for each of its ranks.
 */
void status_judge_group(status_group *group, bool *scratch);

/** The exit status that @p report deserves. */
int status_exit(const status_report *report);

/* ---- what judging and printing share ---- */

extern const char *const status_process_names[STATUS_NUM_PROCESSES];
extern const char *const status_state_names[MOTET_TRACE_FAILED + 1];

/**
 * The operation that the rank is in, or was in last; NULL if there is none. Of several
 * at once (sends and receives of a group) the one that has waited longest.
 */
const motet_trace_op *status_current_op(const status_rank *rank);

/** True if @p op (NULL is allowed) has begun and not ended. */
bool status_in_op(const motet_trace_op *op);

/** True if the process runs. */
bool status_runs(const status_rank *rank);

/** @p now_ns − @p then_ns; 0 where that is negative. */
uint64_t status_since(uint64_t now_ns, uint64_t then_ns);

/** Since when @p op, which has not ended, waits or runs. */
uint64_t status_begin_of_wait(const motet_trace_op *op);

/** "0-2, 5" of those of @p count ranks that are chosen; returns how many. Cut, never torn. */
size_t status_list_ranks(const status_rank *ranks, const bool *chosen, size_t count,
        char *buf, size_t bytes);

/** "12.3 s", "4 min 10 s", "3 h 2 min", "2 d 3 h". */
const char *status_duration(uint64_t ns, char *buf, size_t bytes);

/** "2026-01-02 03:04:05 UTC" of a moment on the monotonic clock of @p file's host. */
const char *status_moment(const motet_trace_file *file, uint64_t at_ns, char *buf,
        size_t bytes);

/** "all_reduce 1024 x float, sum", "send 4096 bytes to rank 1". */
const char *status_call(const motet_trace_op *op, char *buf, size_t bytes);

/* ---- printing ---- */

void status_print(FILE *out, const status_report *report, bool all);

/** False if it could not be written. */
bool status_print_json(FILE *out, const status_report *report, bool all);

#endif
