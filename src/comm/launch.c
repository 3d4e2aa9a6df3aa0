/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From calls to running operations: batches, tickets and turns.
 *
 * A batch is what one group call gives to one communicator. Its collectives run in
 * the order given, then its sends and receives all at once: ranks may mix the two
 * differently within a group, and this order is the same on all.
 *
 * `running` is set before the engine's stop word is looked at, and an abort sets the
 * stop word before it looks at `running`, both sequentially consistent: either the
 * operation sees the stop, or the abort waits for the operation.
 */
#include "comm/comm.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_LOOK_NS (20 * MOTET_NS_PER_MS)

/* Wait on the condition for a while: stop words have no condition of their own. */
static void nap_for_turn(motet_comm *comm)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)TURN_LOOK_NS;
    if (until.tv_nsec >= (long)MOTET_NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= (long)MOTET_NS_PER_S;
    }
    pthread_cond_timedwait(&comm->turned, &comm->lock, &until);
}

/* Until the batches before @p ticket have run. They end by themselves: every wait has
 * a deadline and a stop. */
static void await_turn(motet_comm *comm, uint64_t ticket)
{
    if (atomic_load_explicit(&comm->turn, memory_order_acquire) == ticket)
        return;
    atomic_fetch_add(&comm->waiting, 1);
    pthread_mutex_lock(&comm->lock);
    while (atomic_load_explicit(&comm->turn, memory_order_acquire) != ticket)
        nap_for_turn(comm);
    pthread_mutex_unlock(&comm->lock);
    atomic_fetch_sub(&comm->waiting, 1);
}

static void pass_turn(motet_comm *comm, uint64_t ticket)
{
    atomic_store_explicit(&comm->turn, ticket + 1, memory_order_release);
    if (atomic_load(&comm->waiting) != 0) {
        pthread_mutex_lock(&comm->lock);
        pthread_cond_broadcast(&comm->turned);
        pthread_mutex_unlock(&comm->lock);
    }
}

motet_result motet_comm_drain(motet_comm *comm)
{
    uint64_t given = atomic_load(&comm->tickets);

    if (atomic_load_explicit(&comm->turn, memory_order_acquire) == given)
        return MOTET_OK;
    atomic_fetch_add(&comm->waiting, 1);
    pthread_mutex_lock(&comm->lock);
    while (atomic_load_explicit(&comm->turn, memory_order_acquire) < given)
        nap_for_turn(comm);
    pthread_mutex_unlock(&comm->lock);
    atomic_fetch_sub(&comm->waiting, 1);
    return motet_engine_failure(&comm->engine);
}

/* Enter the engine, unless it was stopped. */
static motet_result enter(motet_comm *comm, uint64_t ticket)
{
    motet_result result;

    await_turn(comm, ticket);
    atomic_store(&comm->running, 1);
    result = motet_engine_failure(&comm->engine);
    return result;
}

static void leave(motet_comm *comm, uint64_t ticket)
{
    atomic_store_explicit(&comm->running, 0, memory_order_release);
    pass_turn(comm, ticket);
}

static motet_result run_one(motet_comm *comm, const motet_op *op, uint64_t ticket)
{
    motet_result result = enter(comm, ticket);

    if (result == MOTET_OK && motet_kind_table[op->kind].pairwise) {
        motet_transfer transfer = { .op = *op };

        result = motet_engine_pairs(&comm->engine, &transfer, 1);
    } else if (result == MOTET_OK) {
        result = motet_engine_collective(&comm->engine, op);
    }
    leave(comm, ticket);
    return result;
}

motet_result motet_comm_run(motet_comm *comm, const motet_op *op)
{
    if (motet_kind_table[op->kind].pairwise) {
        motet_transfer transfer = { .op = *op };
        motet_result result = motet_pairs_check(comm->rank, &transfer, 1);

        if (result != MOTET_OK)
            return result;
    }
    return run_one(comm, op, atomic_fetch_add(&comm->tickets, 1));
}

motet_result motet_batch_get(motet_comm *comm, motet_batch **out)
{
    motet_batch *batch;

    pthread_mutex_lock(&comm->lock);
    batch = comm->free_batches;
    if (batch != NULL)
        comm->free_batches = batch->next;
    pthread_mutex_unlock(&comm->lock);
    if (batch == NULL)
        batch = calloc(1, sizeof(*batch));
    if (batch == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "batch of operations");
    batch->next = NULL;
    batch->comm = comm;
    batch->collectives = batch->transfers = batch->streams = 0;
    *out = batch;
    return MOTET_OK;
}

/* Room for one more element; arrays keep their room when the batch is used again. */
static void *make_room(void *array, int used, int *room, size_t element)
{
    int wanted = *room == 0 ? 8 : *room * 2;
    void *grown;

    if (used < *room)
        return array;
    grown = realloc(array, (size_t)wanted * element);
    if (grown != NULL)
        *room = wanted;
    return grown;
}

motet_result motet_batch_add(motet_batch *batch, const motet_op *op, const void *stream)
{
    bool pairwise = motet_kind_table[op->kind].pairwise;
    bool known = false;
    void *room;

    for (int i = 0; i < batch->streams; i++)
        known = known || batch->stream[i] == stream;
    if (!known && batch->streams == MOTET_GROUP_STREAMS)
        return motet_fail(MOTET_ERR_USAGE, "a group names more than %d streams",
                MOTET_GROUP_STREAMS);
    if (!known)
        batch->stream[batch->streams++] = stream;
    room = pairwise ? make_room(batch->transfer, batch->transfers,
                              &batch->transfer_room, sizeof(*batch->transfer))
                    : make_room(batch->collective, batch->collectives,
                              &batch->collective_room, sizeof(*batch->collective));
    if (room == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "operations of a group");
    if (pairwise) {
        batch->transfer = room;
        batch->transfer[batch->transfers++] = (motet_transfer){ .op = *op };
    } else {
        batch->collective = room;
        batch->collective[batch->collectives++] = *op;
    }
    return MOTET_OK;
}

void motet_batch_drop(motet_batch *batch)
{
    motet_comm *comm = batch->comm;

    pthread_mutex_lock(&comm->lock);
    batch->next = comm->free_batches;
    comm->free_batches = batch;
    pthread_mutex_unlock(&comm->lock);
}

void motet_batch_free_all(motet_comm *comm)
{
    while (comm->free_batches != NULL) {
        motet_batch *batch = comm->free_batches;

        comm->free_batches = batch->next;
        free(batch->collective);
        free(batch->transfer);
        free(batch);
    }
}

/* A motet_stream_fn: run a batch to its end, and give it back. */
static motet_result run_batch(void *arg)
{
    motet_batch *batch = arg;
    motet_comm *comm = batch->comm;
    uint64_t ticket = batch->ticket;
    motet_result result = enter(comm, ticket);

    for (int i = 0; i < batch->collectives && result == MOTET_OK; i++)
        result = motet_engine_collective(&comm->engine, &batch->collective[i]);
    if (result == MOTET_OK && batch->transfers != 0)
        result = motet_engine_pairs(&comm->engine, batch->transfer, batch->transfers);
    motet_batch_drop(batch);
    leave(comm, ticket);
    return result;
}

/* The stream that the batch runs on, or NULL if a stream of it wants the result at once. */
static motet_host_stream *stream_of(const motet_batch *batch)
{
    for (int i = 0; i < batch->streams; i++)
        if (batch->comm->device->stream_blocks(batch->stream[i]))
            return NULL;
    return (motet_host_stream *)(uintptr_t)batch->stream[0];
}

/* Draw a ticket and queue the batch. Whatever happens, the batch is not the caller's
 * any more, and its ticket passes. */
static motet_result submit(motet_batch *batch, motet_host_stream *stream)
{
    motet_comm *comm = batch->comm;
    uint64_t ticket = atomic_fetch_add(&comm->tickets, 1);
    motet_result result;

    batch->ticket = ticket;
    result = motet_host_stream_submit(stream, run_batch, batch);
    if (result != MOTET_OK) {
        await_turn(comm, ticket);
        pass_turn(comm, ticket);
        motet_batch_drop(batch);
    }
    return result;
}

/* Queue the batch on its stream; every other stream that it names waits for it, and it
 * for them. */
static motet_result launch_on_stream(motet_batch *batch, motet_host_stream *stream)
{
    motet_host_stream *other[MOTET_GROUP_STREAMS];
    int streams = batch->streams;
    motet_result result = MOTET_OK;

    for (int i = 1; i < streams && result == MOTET_OK; i++) {
        other[i] = (motet_host_stream *)(uintptr_t)batch->stream[i];
        result = motet_host_stream_wait(stream, other[i]);
    }
    if (result != MOTET_OK) {
        motet_batch_drop(batch);
        return result;
    }
    result = submit(batch, stream);
    for (int i = 1; i < streams && result == MOTET_OK; i++)
        result = motet_host_stream_wait(other[i], stream);
    return result;
}

/* The communicator's own thread, for a group call that spans communicators. */
static motet_result worker_of(motet_comm *comm, motet_host_stream **out)
{
    motet_result result = MOTET_OK;

    pthread_mutex_lock(&comm->lock);
    if (comm->worker == NULL)
        result = motet_host_stream_create(&comm->worker);
    *out = comm->worker;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* What a group must fulfil before anything of it runs. */
static motet_result check(const motet_batch *batches)
{
    int count = 0;

    for (const motet_batch *b = batches; b != NULL; b = b->next) {
        if (++count > MOTET_MAX_RANKS)
            return motet_fail(MOTET_ERR_USAGE,
                    "a group spans more than %d communicators", MOTET_MAX_RANKS);
        MOTET_TRY(motet_pairs_check(b->comm->rank, b->transfer, b->transfers), "group");
    }
    return MOTET_OK;
}

/*
 * Batches on streams return at once. Of those without, all but one go to their
 * communicators' workers, and the last runs here: the ranks of one process have to run
 * at the same time.
 */
motet_result motet_launch(motet_batch *batches)
{
    motet_comm *waited[MOTET_MAX_RANKS];
    motet_batch *next, *here = NULL;
    int waits = 0;
    motet_result result, first = check(batches);

    for (motet_batch *b = batches; b != NULL; b = next) {
        motet_host_stream *stream = stream_of(b), *worker = NULL;

        next = b->next;
        if (first != MOTET_OK) {
            motet_batch_drop(b);
        } else if (stream != NULL) {
            first = launch_on_stream(b, stream);
        } else if (here == NULL) {
            here = b;
        } else if ((first = worker_of(b->comm, &worker)) == MOTET_OK) {
            waited[waits++] = b->comm;
            first = submit(b, worker);
        } else {
            motet_batch_drop(b);
        }
    }
    if (here != NULL) {
        here->ticket = atomic_fetch_add(&here->comm->tickets, 1);
        result = run_batch(here);
        first = first == MOTET_OK ? result : first;
    }
    for (int i = 0; i < waits; i++) {
        result = motet_host_stream_sync(waited[i]->worker);
        first = first == MOTET_OK ? result : first;
    }
    return first;
}
