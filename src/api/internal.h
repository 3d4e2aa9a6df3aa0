/* SPDX-License-Identifier: Apache-2.0 */
/* What the entry points share: checking a handle, and the thread's group. */
#ifndef MOTET_API_INTERNAL_H
#define MOTET_API_INTERNAL_H

#include "api/report.h"
#include "comm/comm.h"

/** The communicator behind a handle; it may be anything until motet_api_comm() has seen it. */
static inline motet_comm *motet_api_handle(ncclComm_t comm)
{
    return (motet_comm *)(void *)comm;
}

/**
 * Check a communicator handle for @p call ("AllReduce"): NULL, destroyed, corrupt, from
 * another copy, or made before a fork.
 */
MOTET_MUST_USE motet_result motet_api_comm(const char *call, ncclComm_t comm);

/** motet_api_comm(), and it is in a state to work: made, not failed, not finalized. */
MOTET_MUST_USE motet_result motet_api_comm_ready(const char *call, ncclComm_t comm);

/** motet_api_report(), and the sentence is kept by @p comm too, if it is live. */
ncclResult_t motet_api_report_comm(ncclComm_t comm, motet_result result);

/* ---- structures that begin with their size (queries.c) ---- */

/** Check what @p call is to fill: not NULL, and initialized. */
MOTET_MUST_USE motet_result motet_api_check_size(const char *call, const void *info);

/** Copy as much of an answer as the caller's structure has room for; `size` stays his. */
void motet_api_answer(void *to, const void *from, size_t own_size);

/* ---- the thread's group (group.c) ---- */

typedef enum motet_job_kind {
    MOTET_JOB_INIT,
    MOTET_JOB_DERIVE,
    MOTET_JOB_FINALIZE,
    MOTET_JOB_WINDOWS
} motet_job_kind;

/** A window that is to be registered. */
typedef struct motet_window_wish {
    struct motet_window_wish *next;
    void *base;
    size_t bytes;
    ncclWindow_t *handle; /* where the caller sees it */
} motet_window_wish;

/** A call that may have to run at the same time as others of its group. */
typedef struct motet_job {
    struct motet_job *next;
    motet_job_kind kind;
    motet_comm *comm;     /* made or used; NULL for DERIVE without a child       */
    ncclComm_t *handle;   /* where the caller sees it, or NULL                   */
    motet_comm_spec spec; /* INIT   */
    motet_derive derive;  /* DERIVE */
    bool has_exchange;    /* WINDOWS, all of one communicator: it is to be passed */
    uint64_t exchange;    /* its number                                          */
    motet_window_wish *windows, **windows_tail;
    pthread_t thread;
    bool has_thread;
    motet_result result;
    char text[MOTET_ERROR_TRAIL_MAX];
} motet_job;

/** True while the thread is inside ncclGroupStart() … ncclGroupEnd(). */
bool motet_group_open(void);

/** One more level of group. */
void motet_group_start(void);

/** One level less; the last one runs what was gathered. */
MOTET_MUST_USE motet_result motet_group_end(void);

/** Remember that a call inside the group failed: ncclGroupEnd() will return it too. */
void motet_group_note(motet_result result);

/** Add an operation to the open group. */
MOTET_MUST_USE motet_result motet_group_add(motet_comm *comm, const motet_op *op,
        const void *stream);

/**
 * Run @p job: at the end of the open group, else now. Takes it over. @p blocking false
 * runs it in the background and returns MOTET_IN_PROGRESS.
 */
MOTET_MUST_USE motet_result motet_group_job(motet_job *job, bool blocking);

/**
 * Register a window: at the end of the open group, else now. One thread may register for
 * several ranks in a group, and each of them waits for the others.
 */
MOTET_MUST_USE motet_result motet_group_window(motet_comm *comm,
        const motet_window_wish *wish);

/**
 * True if the thread's open group holds a job that makes or uses @p comm: waiting for it
 * here would be waiting for oneself.
 */
bool motet_group_holds(const motet_comm *comm);

/** A job for a new communicator, or for an old one. */
MOTET_MUST_USE motet_result motet_job_new(motet_job_kind kind, motet_job **out);

/** Give up a job that was not handed to motet_group_job(). */
void motet_job_drop(motet_job *job);

#endif
