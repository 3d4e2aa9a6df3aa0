/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks for smoke and bench: processes that the command forks itself, threads in each,
 * and any number of ranks driven by one thread. They share one anonymous page range
 * that has a barrier, a place for every rank's numbers, and the first failure. Two teams
 * of them, each with barriers of its own, can run side by side: two libraries that must
 * not meet in one process.
 *
 * The parent only watches: it never calls the library, so it forks safely, survives a
 * library that crashes or hangs, and can tell which rank it was.
 */
#ifndef MOTET_TOOLS_RANKS_H
#define MOTET_TOOLS_RANKS_H

#include "backend.h"
#include "library.h"

#include <stdbool.h>
#include <stdint.h>

#define RANKS_MAX       256
#define RANKS_TEAMS_MAX 2
/** Most that ranks_broadcast() and ranks_tell() hand on. */
#define RANKS_BROADCAST_BYTES 8192

/** How ranks_run() ended. */
struct ranks_end {
    bool killed;     /* ranks did not end by themselves, and were killed */
    bool left;       /* and the kernel did not let go of one, which is still there */
    char said[1024]; /* the first sentence about what went wrong, "" if nothing did */
};

struct ranks_plan {
    int processes, threads, per_thread; /* their product is the number of ranks */
    int teams;                          /* of so many ranks each; 0 is 1 */
    const struct backend_choice *place; /* rank r gets device r % devices */
    unsigned stall_s;    /* end everything if nothing advances for so long; 0 = never */
    const char *command; /* for messages */
    /* What ranks_look() has the parent ask, −1 or an exit code; NULL: nothing. */
    int (*look)(void *arg);
    void *look_arg;
    bool init_all; /* one process, whose communicators ncclCommInitAll makes at once */
    struct ranks_end *end; /* gets how it ended, unless NULL */
    bool quiet;            /* sentences go to `end` only, not to stderr */
};

struct ranks_shared;

/** One thread and the ranks that it drives: first … first + count − 1. */
struct ranks {
    struct ranks_shared *shared;
    const struct backend *backend;
    int team, process, thread, first, count, nranks; /* all within the team */
};

/**
 * Run @p body on every thread of the plan and wait. Returns the largest exit code; a
 * rank that was killed, or made no progress for stall_s, gives EXIT_PROBLEM and a line
 * on stderr.
 */
int ranks_run(const struct ranks_plan *plan, int (*body)(struct ranks *self, void *arg),
        void *arg);

/**
 * One rank of @p nranks, alone in its process and on the device that the thread has bound:
 * for what work.h has, without ranks_run(). Its barriers wait for nobody. Once in a
 * process.
 */
void ranks_alone(struct ranks *out, const struct backend *backend, int rank,
        int nranks);

/** What ranks_fail() was told; "" if nothing failed. */
const char *ranks_said(const struct ranks *self);

/** Number of ranks of each team of a plan. */
int ranks_of(const struct ranks_plan *plan);

/** Wait for all threads of the team. False once anybody has failed: return then. */
bool ranks_barrier(struct ranks *self);

/**
 * Hand @p bytes (at most RANKS_BROADCAST_BYTES) of @p data of rank 0 of team @p from to
 * all threads of all teams, into theirs; what any thread did before has then happened
 * for all. Nothing with one team. False as in ranks_barrier().
 */
bool ranks_tell(struct ranks *self, int from, void *data, size_t bytes);

/**
 * Have the parent ask plan->look() before what comes next; all threads of all teams call.
 * 0, or what it said, after ranks_fail(). The parent never calls a driver, so it may fork.
 */
int ranks_look(struct ranks *self);

/** Put this thread on the device of its @p i-th rank. 0, or an exit code after ranks_fail(). */
int ranks_bind(struct ranks *self, int i);

/**
 * Every rank's value: @p mine has the caller's own `count`, @p all gets nranks. Two
 * barriers. False as in ranks_barrier().
 */
bool ranks_gather(struct ranks *self, const double *mine, double *all);

/** Same for 64-bit words. */
bool ranks_gather_words(struct ranks *self, const uint64_t *mine, uint64_t *all);

/** Hand @p bytes (at most RANKS_BROADCAST_BYTES) of rank 0's @p data to all of the team,
 * into theirs. */
bool ranks_broadcast(struct ranks *self, void *data, size_t bytes);

/** Record a failure (the first stays) and wake everybody. Returns @p code. */
int ranks_fail(struct ranks *self, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/** Whether this thread drives rank 0 of the first team, which prints. */
static inline bool ranks_prints(const struct ranks *self)
{
    return self->first == 0 && self->team == 0;
}

/**
 * Make the communicators of this thread's ranks, one library: the id travels by
 * ranks_broadcast(). @p config may be NULL, and is not used by ncclCommInitAll, which
 * @p lib has if the plan says init_all. Fails through ranks_fail().
 */
int ranks_connect(struct ranks *self, const struct library *lib, ncclConfig_t *config,
        ncclComm_t *comms);

/** Destroy them; after a failure, abort them. */
void ranks_disconnect(struct ranks *self, const struct library *lib, ncclComm_t *comms);

#endif
