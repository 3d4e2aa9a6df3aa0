/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator ends: finalize, destroy, abort, revoke; and how it is doing. */
#include "comm/gpu.h"

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static motet_comm_state state_of(const motet_comm *comm)
{
    return (motet_comm_state)atomic_load_explicit(&comm->state, memory_order_acquire);
}

static bool started(const motet_comm *comm)
{
    motet_comm_state state = state_of(comm);

    return state == MOTET_COMM_READY || state == MOTET_COMM_FINALIZED;
}

/* Creation, on whatever thread, has ended when this returns: it has its own deadline. */
static void await_creation(const motet_comm *comm)
{
    struct timespec nap = { .tv_nsec = 100000 };

    while (state_of(comm) == MOTET_COMM_STARTING)
        nanosleep(&nap, NULL);
}

motet_result motet_comm_async(motet_comm *comm)
{
    switch (state_of(comm)) {
    case MOTET_COMM_STARTING: return MOTET_IN_PROGRESS;
    case MOTET_COMM_BROKEN:
        return motet_error_adopt(comm->start_result, comm->start_error);
    default:
        return atomic_load_explicit(&comm->gpu_ready, memory_order_acquire) != 0
                ? motet_gpu_failure(comm->gpu)
                : motet_engine_failure(&comm->engine);
    }
}

motet_result motet_comm_finalize(motet_comm *comm)
{
    await_creation(comm);
    if (state_of(comm) == MOTET_COMM_FINALIZED)
        return motet_fail(MOTET_ERR_ARGUMENT, "the communicator is finalized already");
    if (atomic_load(&comm->revoked))
        return motet_fail(MOTET_ERR_USAGE, "the communicator was revoked");
    if (state_of(comm) != MOTET_COMM_READY)
        return motet_comm_async(comm);
    MOTET_TRY(motet_comm_drain(comm), "finalize");
    atomic_store_explicit(&comm->state, MOTET_COMM_FINALIZED, memory_order_release);
    return MOTET_OK;
}

/* Descriptors that are about to be closed are forgotten first: a child forked meanwhile
 * closes what it finds listed. */
static void close_life_line(motet_comm *comm)
{
    int fd = comm->life_line;

    comm->life_line = -1;
    if (fd >= 0)
        close(fd);
}

/* Descriptors of peers that were not closed when they died. */
static void close_watch_fds(motet_comm *comm)
{
    int *fds = comm->watch_fd;

    comm->watch_fd = NULL;
    for (int i = 0; fds != NULL && i < 2 * comm->nranks; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(fds);
}

/* The last word to the peers: all that this rank sent is there, or it never was ready. */
static void say_goodbye(motet_arena_head *head)
{
    bool ready = atomic_load_explicit(&head->life, memory_order_relaxed) !=
            MOTET_LIFE_JOINING;

    atomic_store_explicit(&head->life, ready ? MOTET_LIFE_LEFT : MOTET_LIFE_GAVE_UP,
            memory_order_release);
}

void motet_comm_release(motet_comm *comm, bool clean)
{
    if (comm->watched)
        motet_watch_remove(&comm->watch);
    comm->watched = false;
    motet_comm_gpu_release(comm);
    if (comm->arena != NULL && comm->arena[comm->rank].head != NULL)
        say_goodbye(comm->arena[comm->rank].head);
    close_life_line(comm);
    close_watch_fds(comm);
    if (comm->recorder.file != NULL)
        motet_recorder_destroy(&comm->recorder, clean);
    for (int r = 0; comm->arena != NULL && r < comm->nranks; r++)
        motet_arena_release(&comm->arena[r]);
    free(comm->engine.pair);
    free(comm->arena);
    free(comm->peer);
    comm->engine.pair = NULL;
    comm->arena = NULL;
    comm->peer = NULL;
}

/* Nothing runs here any more, and what comes too late finds a stopped engine. */
static void await_quiet(motet_comm *comm)
{
    struct timespec nap = { .tv_nsec = 100000 };

    while (atomic_load(&comm->running) ||
            atomic_load(&comm->turn) != atomic_load(&comm->tickets) ||
            atomic_load(&comm->exchanging))
        nanosleep(&nap, NULL);
}

/* Everything goes; the struct goes to the graveyard. */
static void dispose(motet_comm *comm, bool clean)
{
    motet_engine_close(&comm->engine);
    await_quiet(comm);
    if (comm->worker != NULL && motet_host_stream_destroy(comm->worker) != MOTET_OK)
        motet_error_clear(); /* its failures were reported to whoever waited for them */
    comm->worker = NULL;
    motet_comm_release(comm, clean);
    motet_batch_free_all(comm);
    motet_registration_free_all(comm);
    free(comm->redop);
    comm->redop = NULL;
    motet_comm_bury(comm);
}

void motet_comm_discard(motet_comm *comm)
{
    if (!atomic_load(&comm->cancel) && atomic_exchange(&comm->disposed, 1) == 0)
        dispose(comm, true);
}

/* Did something go wrong that somebody may want to look into afterwards? Ending what
 * runs on purpose is nothing wrong. */
static bool broken(motet_comm *comm)
{
    bool stopped = started(comm) && motet_engine_failure(&comm->engine) != MOTET_OK;

    motet_error_clear();
    return stopped && !atomic_load(&comm->revoked);
}

motet_result motet_comm_destroy(motet_comm *comm)
{
    if (atomic_load(&comm->forked)) {
        motet_comm_bury(comm); /* what it maps belongs to the parent */
        return MOTET_OK;
    }
    await_creation(comm);
    if (started(comm) && motet_comm_drain(comm) != MOTET_OK)
        motet_error_clear(); /* it has said so before; destroying it succeeds */
    motet_exchange_await_all(comm);
    if (atomic_exchange(&comm->disposed, 1) == 0)
        dispose(comm, !broken(comm));
    return MOTET_OK;
}

motet_result motet_comm_abort(motet_comm *comm)
{
    bool failed_before;

    if (atomic_load(&comm->forked)) {
        motet_comm_bury(comm);
        return MOTET_OK;
    }
    atomic_store(&comm->cancel, 1);
    await_creation(comm);
    failed_before = broken(comm);
    if (started(comm) && !failed_before)
        motet_engine_fail(&comm->engine, MOTET_ERR_REMOTE, comm->rank,
                "rank %d (pid %d) aborted the communicator", comm->rank, (int)getpid());
    motet_error_clear();
    await_quiet(comm); /* also where another thread frees it */
    if (atomic_exchange(&comm->disposed, 1) == 0)
        dispose(comm, !failed_before);
    return MOTET_OK;
}

motet_result motet_comm_revoke(motet_comm *comm)
{
    if (atomic_load(&comm->revoked))
        return motet_fail(MOTET_ERR_ARGUMENT, "the communicator is revoked already");
    if (state_of(comm) != MOTET_COMM_READY)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "the communicator is being made or is finalized, and cannot be "
                "revoked");
    atomic_store(&comm->revoked, 1);
    motet_engine_fail(&comm->engine, MOTET_ERR_USAGE, comm->rank,
            "rank %d (pid %d) revoked the communicator", comm->rank, (int)getpid());
    motet_error_clear();
    return MOTET_OK;
}
