/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What watches a run says of it: reports of ranks that a watchdog stopped, claims of
 * tools that have judged already (RAS, `motet status`), stacks, loops that count memory,
 * and the exchange of experts.
 */
#ifndef MOTET_DOCTOR_WATCH_H
#define MOTET_DOCTOR_WATCH_H

#include "doctor.h"
#include "scan.h"

/** Lines that a claim keeps. */
#define DR_CLAIM_LINES 6

/** Where a rank stood when its watchdog or its dump spoke; one for each rank of a group. */
struct dr_report {
    uint32_t group;    /* index into groups                                */
    uint32_t rank;     /* in its group                                     */
    bool has_seq;      /* it timed out in operation seq                    */
    bool has_enqueued; /* the last operation that it has asked for is known */
    bool has_op;       /* op, and in and out if has_sizes                  */
    bool has_sizes;
    uint64_t seq, enqueued, in, out;
    struct dr_span op, shape; /* shape: of versions that print no counts     */
    uint32_t line, line_enqueued;
};

/** A process group of PyTorch. */
struct dr_group {
    const char *name;  /* as the log prints it, "" if it does not     */
    bool is_world;     /* the group of all ranks                      */
    bool is_ambiguous; /* two groups that the log does not tell apart */
    uint64_t size;     /* 0: not said                                 */
    uint32_t line_size;
    uint32_t first, count; /* its reports, by rank                    */
};

/** What another tool found and says itself. */
struct dr_claim {
    enum dr_code code;
    const char *subject, *sentence;
    const char *fix; /* NULL: the code's own */
    uint32_t lines[DR_CLAIM_LINES];
    uint32_t num_lines;
};

/** A thread that sits in an abort, joining another. */
struct dr_abort {
    uint32_t line_join, line_free, line_abort;
    uint32_t line_service; /* the thread it waits for, or DR_NONE */
    const char *service;   /* its name, or NULL                   */
    const char *thread;    /* its own name, or NULL               */
};

/** A value that gets worse by about the same in each cycle of a loop. */
struct dr_growth {
    const char *name;
    bool falls;
    double per_cycle;
    uint32_t cycles;      /* in which it did         */
    uint32_t first, last; /* lines */
};

/** A receiver of experts' data that got nothing. */
struct dr_starved {
    uint64_t node, source;
    bool proof; /* a receiver says so: start 0, end 0 */
    uint32_t count, line;
};

struct dr_watch {
    struct dr_report *reports;
    struct dr_group *groups;
    struct dr_claim *claims;
    struct dr_abort *aborts;
    struct dr_growth *growths;
    struct dr_starved *starved;
    uint32_t num_reports, num_groups, num_claims, num_aborts, num_growths, num_starved;
    uint32_t room_reports, room_groups, room_claims, room_aborts, room_growths,
            room_starved;
    uint32_t *elsewhere; /* ranks that are known to have timed out, sorted */
    uint32_t num_elsewhere, room_elsewhere;
};

/** A claim about @p subject, for the reader to fill. */
struct dr_claim *dr_claim(struct doctor *d, enum dr_code code, const char *subject);
void dr_claim_line(struct dr_claim *claim, uint32_t line);

/** The findings that claims of @p code are. */
void dr_emit_claims(struct doctor *d, enum dr_code code);

/** The rank whose line this is, by its prefix: "[rank3]:", "ep rank 3:", "[1,3]<stdout>". */
bool dr_line_rank(const char *text, uint64_t *rank);

/** "rank 3" or "ranks 0-2, 5" of a sorted list. */
const char *dr_rank_list(struct doctor *d, const uint64_t *ranks, size_t count);

/* ---- readers of watch.c's family ---- */

void dr_read_watchdog(struct doctor *d);
void dr_read_ras(struct doctor *d);
void dr_read_status(struct doctor *d);
void dr_read_stacks(struct doctor *d);
void dr_read_loops(struct doctor *d);
void dr_read_graphs(struct doctor *d);
void dr_read_experts(struct doctor *d);

#endif
