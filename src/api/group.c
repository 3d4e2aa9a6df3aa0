/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group calls. The thread gathers operations, one batch for each communicator, and
 * jobs: creations and finalizations, which may have to run at the same time because
 * the ranks that they wait for are in the same group. Jobs run first, each on a
 * thread of its own, then the operations.
 *
 * The first error inside a group is remembered and returned by the call that ends it;
 * nothing of the group runs then.
 */
#include "api/config.h"
#include "api/export.h"
#include "api/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    int depth;
    motet_result result;
    motet_batch *batches;
    motet_job *jobs, **jobs_tail;
    bool has_blocking, has_nonblocking;
} group;

static _Thread_local group current;
/* The trail of `result`: calls that come after the failing one may overwrite the thread's. */
static _Thread_local char current_text[MOTET_ERROR_TRAIL_MAX];

bool motet_group_open(void)
{
    return current.depth != 0;
}

void motet_group_note(motet_result result)
{
    if (current.result != MOTET_OK || result == MOTET_OK)
        return;
    current.result = result;
    snprintf(current_text, sizeof(current_text), "%s", motet_error_trail());
}

/* NCCL refuses groups that mix blocking and non-blocking communicators. */
static motet_result note_blocking(bool blocking)
{
    current.has_blocking = current.has_blocking || blocking;
    current.has_nonblocking = current.has_nonblocking || !blocking;
    if (current.has_blocking && current.has_nonblocking)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "blocking and non-blocking communicators are not allowed in the same "
                "group");
    return MOTET_OK;
}

static motet_result batch_of(motet_comm *comm, motet_batch **out)
{
    motet_batch **at = &current.batches;

    while (*at != NULL && (*at)->comm != comm)
        at = &(*at)->next;
    if (*at == NULL)
        MOTET_TRY(motet_batch_get(comm, at), "group");
    *out = *at;
    return MOTET_OK;
}

motet_result motet_group_add(motet_comm *comm, const motet_op *op, const void *stream)
{
    motet_batch *batch = NULL;
    motet_result result = note_blocking(comm->config.blocking != 0);

    if (result == MOTET_OK)
        result = batch_of(comm, &batch);
    if (result == MOTET_OK)
        result = motet_batch_add(batch, op, stream);
    motet_group_note(result);
    return result;
}

motet_result motet_job_new(motet_job_kind kind, motet_job **out)
{
    motet_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "job of %zu bytes", sizeof(*job));
    job->kind = kind;
    *out = job;
    return MOTET_OK;
}

/* Jobs that make a communicator set its state, and give it up if they fail. */
static bool makes(const motet_job *job)
{
    return (job->kind == MOTET_JOB_INIT || job->kind == MOTET_JOB_DERIVE) &&
            job->comm != NULL;
}

/* An exchange that was asked for and does not take place. */
static void skip_exchange(motet_comm *comm, uint64_t number)
{
    if (motet_exchange_begin(comm, number) != MOTET_OK)
        motet_error_clear();
    motet_exchange_end(comm);
}

static void job_free(motet_job *job)
{
    if (job->derive.parent != NULL)
        skip_exchange(job->derive.parent, job->derive.exchange);
    if (job->has_exchange)
        skip_exchange(job->comm, job->exchange);
    while (job->windows != NULL) {
        motet_window_wish *next = job->windows->next;

        free(job->windows);
        job->windows = next;
    }
    free(job->derive.excluded);
    free(job);
}

void motet_job_drop(motet_job *job)
{
    job_free(job);
}

/* All windows of one communicator, in order, up to the first that fails. */
static motet_result register_windows(motet_job *job)
{
    motet_result result = motet_exchange_begin(job->comm, job->exchange);

    while (job->windows != NULL) {
        motet_window_wish *wish = job->windows;
        motet_registration *made = NULL;

        if (result == MOTET_OK) {
            result = motet_register(job->comm, wish->base, wish->bytes, true, &made);
            if (result == MOTET_OK)
                *wish->handle = (ncclWindow_t)(void *)made;
        }
        job->windows = wish->next;
        free(wish);
    }
    motet_exchange_end(job->comm);
    job->has_exchange = false;
    return result;
}

/* The work itself. The communicator's state is set at the end: somebody may poll it. */
static void job_run(motet_job *job)
{
    switch (job->kind) {
    case MOTET_JOB_INIT: job->result = motet_comm_start(job->comm, &job->spec); break;
    case MOTET_JOB_DERIVE:
        job->result = motet_comm_derive(job->comm, &job->derive);
        break;
    case MOTET_JOB_FINALIZE: job->result = motet_comm_finalize(job->comm); break;
    case MOTET_JOB_WINDOWS: job->result = register_windows(job); break;
    }
    if (job->result != MOTET_OK)
        snprintf(job->text, sizeof(job->text), "%s", motet_error_trail());
    if (makes(job))
        motet_comm_started(job->comm, job->result);
}

static void *job_thread(void *arg)
{
    job_run(arg);
    return NULL;
}

/* In the background the job frees itself. */
static void *job_thread_alone(void *arg)
{
    job_run(arg);
    job_free(arg);
    return NULL;
}

/* A job has ended that somebody waited for: give up what could not be made. */
static motet_result job_settle(motet_job *job)
{
    motet_result result = job->result;

    if (result != MOTET_OK) {
        motet_error_adopt(result, job->text);
        if (makes(job)) {
            if (job->handle != NULL)
                *job->handle = NULL;
            motet_comm_discard(job->comm);
        }
    }
    job_free(job);
    return result;
}

/* Nobody joins the thread: the communicator's state tells when its work is over. */
static int start_detached(motet_job *job)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);

    if (error != 0)
        return error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, job_thread_alone, job);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Run without waiting. Without a communicator to poll there is nothing to wait with, so
 * such a job (a split that gives this rank nothing) runs here. */
static motet_result job_in_background(motet_job *job)
{
    motet_comm *comm = job->comm;
    int error;

    if (!makes(job)) {
        job_run(job);
        return job_settle(job);
    }
    error = start_detached(job);
    if (error != 0) {
        job->result =
                motet_fail(MOTET_ERR_SYSTEM, "start a thread: %s", strerror(error));
        snprintf(job->text, sizeof(job->text), "%s", motet_error_trail());
        motet_comm_started(comm, job->result);
        return job_settle(job);
    }
    return MOTET_IN_PROGRESS;
}

motet_result motet_group_job(motet_job *job, bool blocking)
{
    motet_result result;

    if (motet_group_open()) {
        result = note_blocking(blocking);
        motet_group_note(result);
        if (current.jobs == NULL)
            current.jobs_tail = &current.jobs;
        *current.jobs_tail = job;
        current.jobs_tail = &job->next;
        return result;
    }
    if (!blocking)
        return job_in_background(job);
    job_run(job);
    return job_settle(job);
}

/* The open group's job that registers windows of @p comm; a new one if there is none. */
static motet_result window_job(motet_comm *comm, motet_job **out)
{
    motet_job *job = current.jobs;
    motet_result result;

    while (job != NULL && (job->kind != MOTET_JOB_WINDOWS || job->comm != comm))
        job = job->next;
    if (job == NULL) {
        MOTET_TRY(motet_job_new(MOTET_JOB_WINDOWS, &job), "group");
        job->comm = comm;
        job->windows_tail = &job->windows;
        result = motet_exchange_draw(comm, &job->exchange);
        if (result != MOTET_OK) {
            free(job);
            return result;
        }
        job->has_exchange = true;
        result = motet_group_job(job, comm->config.blocking != 0);
        if (result != MOTET_OK)
            return result;
    }
    *out = job;
    return MOTET_OK;
}

static motet_result register_now(motet_comm *comm, const motet_window_wish *wish)
{
    motet_registration *made;
    uint64_t exchange;
    motet_result result = motet_exchange_draw(comm, &exchange);

    if (result != MOTET_OK)
        return result;
    result = motet_exchange_begin(comm, exchange);
    if (result == MOTET_OK)
        result = motet_register(comm, wish->base, wish->bytes, true, &made);
    motet_exchange_end(comm);
    if (result == MOTET_OK)
        *wish->handle = (ncclWindow_t)(void *)made;
    return result;
}

motet_result motet_group_window(motet_comm *comm, const motet_window_wish *wish)
{
    motet_window_wish *copy;
    motet_job *job = NULL;

    if (!motet_group_open())
        return register_now(comm, wish);
    MOTET_TRY(window_job(comm, &job), "register a window");
    copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "register a window");
    *copy = *wish;
    copy->next = NULL;
    *job->windows_tail = copy;
    job->windows_tail = &copy->next;
    return MOTET_OK;
}

bool motet_group_holds(const motet_comm *comm)
{
    for (const motet_job *job = current.jobs; job != NULL; job = job->next)
        if (job->derive.parent == comm ||
                (job->comm == comm && job->kind != MOTET_JOB_FINALIZE))
            return true;
    return false;
}

static motet_job *take_jobs(void)
{
    motet_job *jobs = current.jobs;

    current.jobs = NULL;
    return jobs;
}

/* All at the same time, to the end of the last. The first failure counts, but one that
 * says why goes before those of the ranks that it left alone. */
static motet_result run_jobs(motet_job *jobs)
{
    motet_result first = MOTET_OK;
    char text[MOTET_ERROR_TRAIL_MAX] = "";
    motet_job *next;

    for (motet_job *job = jobs; job != NULL; job = job->next) {
        int error = job->next == NULL
                ? 0
                : pthread_create(&job->thread, NULL, job_thread, job);

        job->has_thread = job->next != NULL && error == 0;
        if (job->next == NULL)
            job_run(job); /* the last one here */
        else if (error != 0)
            job_run(job); /* may wait in vain for its neighbours, but not for ever */
    }
    for (motet_job *job = jobs; job != NULL; job = next) {
        motet_result result;

        next = job->next;
        if (job->has_thread)
            pthread_join(job->thread, NULL);
        result = job_settle(job);
        if (result != MOTET_OK &&
                (first == MOTET_OK ||
                        (first == MOTET_ERR_REMOTE && result != MOTET_ERR_REMOTE))) {
            first = result;
            snprintf(text, sizeof(text), "%s", motet_error_trail());
        }
    }
    return first == MOTET_OK ? MOTET_OK : motet_error_adopt(first, text);
}

/* Those that can be polled run in the background, the others to their end. */
static motet_result start_jobs(motet_job *jobs)
{
    motet_job *next, *here = NULL, **here_tail = &here;
    motet_result first = MOTET_OK, result;

    for (motet_job *job = jobs; job != NULL; job = next) {
        next = job->next;
        job->next = NULL;
        if (!makes(job)) {
            *here_tail = job;
            here_tail = &job->next;
            continue;
        }
        result = job_in_background(job);
        if (first == MOTET_OK || first == MOTET_IN_PROGRESS)
            first = result == MOTET_OK ? first : result;
    }
    result = run_jobs(here);
    return first != MOTET_OK && (first != MOTET_IN_PROGRESS || result == MOTET_OK)
            ? first
            : result;
}

/* Give up what the group has gathered, because a call in it failed. */
static void abandon(motet_result result)
{
    motet_batch *next_batch;
    motet_job *next_job;

    for (motet_batch *b = current.batches; b != NULL; b = next_batch) {
        next_batch = b->next;
        motet_batch_drop(b);
    }
    current.batches = NULL;
    for (motet_job *job = take_jobs(); job != NULL; job = next_job) {
        next_job = job->next;
        if (job->kind == MOTET_JOB_INIT)
            motet_id_cancel(&job->spec.id);
        job->result = result;
        snprintf(job->text, sizeof(job->text), "%s", current_text);
        if (makes(job))
            motet_comm_started(job->comm, result);
        if (job_settle(job) != MOTET_OK)
            motet_error_clear();
    }
}

/* All that the group has gathered. */
static motet_result run_all(void)
{
    motet_batch *batches = current.batches;
    motet_job *jobs = take_jobs();
    bool blocking = !current.has_nonblocking;
    motet_result result = MOTET_OK;

    current.batches = NULL;
    if (jobs != NULL)
        result = blocking ? run_jobs(jobs) : start_jobs(jobs);
    if (batches != NULL && (result == MOTET_OK || result == MOTET_IN_PROGRESS)) {
        motet_result launched = motet_launch_group(batches);

        result = launched == MOTET_OK ? result : launched;
        return result;
    }
    while (batches != NULL) {
        motet_batch *next = batches->next;

        motet_batch_drop(batches);
        batches = next;
    }
    return result;
}

void motet_group_start(void)
{
    current.depth++;
}

motet_result motet_group_end(void)
{
    motet_result result = MOTET_OK;

    if (current.depth == 0)
        return motet_fail(MOTET_ERR_USAGE, "ncclGroupEnd: not in a group call.");
    if (--current.depth > 0)
        return current.result == MOTET_OK
                ? MOTET_OK
                : motet_error_adopt(current.result, current_text);
    if (current.result != MOTET_OK) {
        result = current.result;
        abandon(result);
        motet_error_adopt(result, current_text);
    } else {
        result = run_all();
    }
    current.result = MOTET_OK;
    current.has_blocking = current.has_nonblocking = false;
    return result;
}

MOTET_API ncclResult_t pncclGroupStart(void)
{
    motet_group_start();
    return ncclSuccess;
}
MOTET_ALIAS(ncclGroupStart, pncclGroupStart);

MOTET_API ncclResult_t pncclGroupEnd(void)
{
    ncclComm_t comm =
            current.batches != NULL ? (ncclComm_t)(void *)current.batches->comm : NULL;

    return motet_api_report_comm(comm, motet_group_end());
}
MOTET_ALIAS(ncclGroupEnd, pncclGroupEnd);

/* A rough time: what is known without measuring is latency and memory bandwidth. */
static float estimate_us(const motet_batch *batches)
{
    float us = 0;

    for (const motet_batch *b = batches; b != NULL; b = b->next) {
        size_t bytes = 0;

        for (int i = 0; i < b->collectives; i++)
            bytes += motet_op_bytes(&b->collective[i]);
        for (int i = 0; i < b->transfers; i++)
            bytes += motet_op_bytes(&b->transfer[i].op);
        us += 0.5f * (float)(b->collectives + b->transfers) + (float)bytes / 5e3f;
    }
    return us;
}

MOTET_API ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    motet_result result = motet_sim_info_check(simInfo);

    if (current.depth == 0)
        result = motet_fail(MOTET_ERR_USAGE,
                "ncclGroupSimulateEnd: not in a group call.");
    if (result == MOTET_OK)
        motet_sim_info_set_time(simInfo, estimate_us(current.batches));
    else
        motet_group_note(result);
    if (current.depth != 0 && --current.depth == 0) {
        if (result == MOTET_OK && current.result != MOTET_OK)
            result = motet_error_adopt(current.result, current_text);
        abandon(MOTET_ERR_USAGE);
        current.result = MOTET_OK;
        current.has_blocking = current.has_nonblocking = false;
    }
    return motet_api_report(result);
}
MOTET_ALIAS(ncclGroupSimulateEnd, pncclGroupSimulateEnd);
