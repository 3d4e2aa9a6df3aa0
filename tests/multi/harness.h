/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the ranks of a test and says what became of each.
 *
 * multi_run() forks, so that the caller stays single-threaded and untouched, and
 * hosts n ranks in P processes: n processes of one rank, one process of n threads,
 * anything between, or one thread that drives all of them. Ranks report through
 * memory shared with the parent, so what a rank was doing is known even after it
 * was killed. A run has a deadline; a rank that crashes or hangs is named, with what
 * it was doing, and every child is killed by its pid.
 *
 * The library is not touched before the fork: a child starts with nothing of it.
 */
#ifndef MOTET_TESTS_HARNESS_H
#define MOTET_TESTS_HARNESS_H

#include <nccl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MULTI_MAX_RANKS 16
#define MULTI_IDS       64

/** What `mode` of the matrix means in processes and threads. */
typedef enum multi_layout {
    MULTI_PROCESSES,  /* one rank a process                                 */
    MULTI_THREADS,    /* all ranks are threads of one process               */
    MULTI_MIXED,      /* two processes share the ranks                      */
    MULTI_ONE_THREAD, /* one thread drives all ranks; body runs once, rank 0 */
    MULTI_NUM_LAYOUTS
} multi_layout;

extern const char *const multi_layout_names[MULTI_NUM_LAYOUTS];

typedef struct multi_run_state multi_run_state;

/** One rank, as its body sees it. */
typedef struct multi_rank {
    int rank, nranks;
    ncclComm_t comm;   /* of this rank if the spec asked for one, else NULL         */
    ncclComm_t *comms; /* MULTI_ONE_THREAD: all of them, else &comm                 */
    void *arg;         /* the spec's                                                */
    void *shared;      /* the spec's shared_bytes, zeroed, seen by all ranks        */
    multi_run_state *run;
} multi_rank;

typedef struct multi_spec {
    const char *name; /* a sentence                                                 */
    multi_layout layout;
    int nranks;
    bool init;           /* make a communicator before the body, destroy it after it */
    unsigned deadline_s; /* of the whole run; 0 takes 60                             */
    size_t shared_bytes;
    const char *const
            *environment;    /* "NAME=VALUE", or "NAME" to unset, NULL-ended; or NULL */
    const char *stderr_path; /* children append their stderr here; or NULL    */
    void (*body)(multi_rank *rank);
    void *arg;
    /* Called in the parent once all ranks have ended well; returns how many failures it
     * found and printed. May be NULL. */
    int (*after)(const struct multi_spec *spec, void *shared);
    /* A rank to lose: after all ranks called multi_ready() the parent waits and sends
     * the signal to the victim's process. 0 = none. Its death is then no failure. */
    int victim, signal;
    unsigned signal_after_us;
    /* With SIGSTOP: SIGCONT this much later. */
    unsigned continue_after_us;
} multi_spec;

/** Run; prints a line for every rank that failed. Returns how many did. */
int multi_run(const multi_spec *spec);

/** Record a failure of this rank; the texts of the first ones are kept. */
void multi_fail(multi_rank *rank, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

/** True if this rank has failed already. */
bool multi_failed(const multi_rank *rank);

/** Record a failure, with ncclGetLastError's text, unless @p got is @p want. */
bool multi_expect(multi_rank *rank, ncclResult_t got, ncclResult_t want,
        const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/** multi_expect(…, ncclSuccess, …) */
bool multi_ok(multi_rank *rank, ncclResult_t got, const char *what);

/** Record a failure unless @p holds. */
bool multi_check(multi_rank *rank, bool holds, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/** Remember what this rank is doing, for the line that is printed if it never ends. */
void multi_doing(multi_rank *rank, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

/** Wait for all ranks of the run (not a victim that is dead). Fails after the deadline. */
bool multi_barrier(multi_rank *rank);

/** This rank may be lost from now on; see multi_spec.victim. */
void multi_ready(multi_rank *rank);

/** End this rank's process at once, without a word to the library; no failure. */
void multi_vanish(multi_rank *rank) __attribute__((noreturn));

/** When the signal was sent, ns on the monotonic clock; 0 before. */
uint64_t multi_signal_ns(const multi_rank *rank);

/** Rank 0 makes id number @p slot (0 … MULTI_IDS − 1), once; the others wait for it. */
bool multi_id(multi_rank *rank, int slot, ncclUniqueId *out);

/** multi_id() and ncclCommInitRank() over all ranks. */
bool multi_comm(multi_rank *rank, int slot, ncclComm_t *out);

/** Process of a rank. */
pid_t multi_pid(const multi_rank *rank, int of_rank);

/** Monotonic clock, ns. */
uint64_t multi_now_ns(void);

void multi_sleep_us(unsigned us);

/** Entries of a folder of /proc/self: "fd" or "task". */
int multi_count_entries(const char *folder);

/** Read a whole file into a NUL-ended buffer, cut at @p bytes − 1; "" if it is not there. */
void multi_read_file(const char *path, char *buf, size_t bytes);

/** A new folder below $TMPDIR or /tmp. */
bool multi_temp_folder(char *buf, size_t bytes);

/** Remove a flat folder with its files. */
void multi_remove_folder(const char *path);

#endif
