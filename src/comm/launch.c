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
#include "comm/gpu.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_LOOK_NS (20 * MOTET_NS_PER_MS)

/* Wait on the condition for a while: stop words have no condition of their own. */
static void nap_for_turn(motet_comm *comm)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
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

    if (comm->gpu != NULL)
        return motet_comm_gpu_drain(comm); /* giving an operation never waits */
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
    await_turn(comm, ticket);
    atomic_store(&comm->running, 1);
    return atomic_load(&comm->engine.stop) == 0 ? MOTET_OK
                                                : motet_engine_failure(&comm->engine);
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

/* One of those that may still look at the batch is done with it. */
static void batch_release(motet_batch *batch)
{
    if (atomic_fetch_sub(&batch->holds, 1) == 1)
        motet_batch_drop(batch);
}

static motet_result run_on_host(motet_comm *comm, motet_batch *batch)
{
    motet_result result = MOTET_OK;

    for (int i = 0; i < batch->collectives && result == MOTET_OK; i++)
        result = motet_engine_collective(&comm->engine, &batch->collective[i]);
    if (result == MOTET_OK && batch->transfers != 0)
        result = motet_engine_pairs(&comm->engine, batch->transfer, batch->transfers);
    return result;
}

/* A motet_stream_fn: run a batch to its end, or give it to a device; then give it back. */
static motet_result run_batch(void *arg)
{
    motet_batch *batch = arg;
    motet_comm *comm = batch->comm;
    uint64_t ticket = batch->ticket;
    motet_result result = enter(comm, ticket);

    if (result == MOTET_OK)
        result = comm->gpu != NULL         ? motet_comm_gpu_enqueue(comm, batch)
                : comm->gpu_device != NULL ? motet_comm_bounce(comm, batch)
                                           : run_on_host(comm, batch);
    batch_release(batch);
    leave(comm, ticket);
    return result;
}

/* Queue the batch, whose ticket passes whatever happens. */
static motet_result submit(motet_batch *batch, motet_host_stream *stream)
{
    motet_comm *comm = batch->comm;
    uint64_t ticket = atomic_fetch_add(&comm->tickets, 1);
    motet_result result;

    batch->ticket = ticket;
    result = motet_host_stream_submit(stream, run_batch, batch);
    if (result == MOTET_OK)
        return MOTET_OK;
    /* Its peers may be waiting for it already. */
    result = motet_engine_fail(&comm->engine, result, comm->rank,
            "rank %d cannot run its part of a group: %s", comm->rank,
            motet_error_trail());
    await_turn(comm, ticket);
    batch_release(batch);
    pass_turn(comm, ticket);
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

/* Where one batch of a group runs. */
typedef struct seat {
    motet_batch *batch;
    motet_comm *comm;
    motet_host_stream *stream; /* NULL: on this thread                               */
    bool worker;               /* `stream` is the communicator's own                 */
    bool awaited;              /* a stream of the batch wants the result at once     */
} seat;

/* The i-th stream of the batch; NULL for one that blocks, or that is a device's. */
static motet_host_stream *stream_at(const motet_batch *batch, int i)
{
    return batch->comm->gpu_device != NULL ||
                    batch->comm->device->stream_blocks(batch->stream[i])
            ? NULL
            : (motet_host_stream *)(uintptr_t)batch->stream[i];
}

static bool taken(const seat *seats, int count, const motet_host_stream *stream)
{
    for (int i = 0; i < count; i++)
        if (seats[i].stream == stream)
            return true;
    return false;
}

/* Find a place for the batch of seats[count]: a stream that it names and that no other
 * batch of the group runs on, or this thread, or the communicator's worker. */
static motet_result find_seat(seat *seats, int count)
{
    seat *s = &seats[count];
    bool names_stream = false;
    motet_result result;

    for (int i = 0; i < s->batch->streams; i++) {
        motet_host_stream *stream = stream_at(s->batch, i);

        s->awaited = s->awaited || stream == NULL;
        names_stream = names_stream || stream != NULL;
        if (stream != NULL && s->stream == NULL && !taken(seats, count, stream))
            s->stream = stream;
    }
    if (s->stream != NULL || (!names_stream && !taken(seats, count, NULL)))
        return MOTET_OK;
    s->worker = true;
    result = worker_of(s->comm, &s->stream);
    return result == MOTET_OK ? MOTET_OK
                              : motet_error_wrap(result, "run a group's ranks at once");
}

/* Every other stream that the batch names waits for it, or (@p before) it for them. */
static motet_result order(const seat *s, bool before)
{
    motet_result result = MOTET_OK;

    for (int i = 0; i < s->batch->streams && s->stream != NULL; i++) {
        motet_host_stream *other = stream_at(s->batch, i);

        if (other == NULL || other == s->stream || result != MOTET_OK)
            continue;
        result = before ? motet_host_stream_wait(s->stream, other)
                        : motet_host_stream_wait(other, s->stream);
    }
    return result;
}

/* Seat all batches, and let them wait for what their streams were given before. */
static motet_result seat_all(motet_batch *batches, seat *seats, int *count_out)
{
    motet_result result = MOTET_OK;

    *count_out = 0;
    for (motet_batch *b = batches; b != NULL && result == MOTET_OK; b = b->next) {
        seats[*count_out] = (seat){ .batch = b, .comm = b->comm };
        result = find_seat(seats, *count_out);
        if (result == MOTET_OK)
            result = order(&seats[*count_out], true);
        ++*count_out;
    }
    return result;
}

static void keep_first(motet_result *first, motet_result result)
{
    if (*first == MOTET_OK)
        *first = result;
}

static motet_result await_seat(const seat *s)
{
    motet_result result =
            s->worker ? motet_host_stream_sync(s->stream) : motet_comm_drain(s->comm);

    /* The worker goes with its communicator, if that is aborted meanwhile. */
    if (result == MOTET_ERR_ARGUMENT && s->worker && atomic_load(&s->comm->disposed))
        result = motet_engine_failure(&s->comm->engine);
    return result;
}

static void drop_all(motet_batch *batches)
{
    motet_batch *next;

    for (motet_batch *b = batches; b != NULL; b = next) {
        next = b->next;
        motet_batch_drop(b);
    }
}

/* Batches for devices are given to them, on this thread, one after the other: that waits
 * for nobody. What remains in the list runs on hosts. */
static motet_result enqueue_on_devices(motet_batch **batches)
{
    motet_batch **link = batches;
    motet_result first = MOTET_OK;

    while (*link != NULL) {
        motet_batch *batch = *link;

        if (batch->comm->gpu == NULL) {
            link = &batch->next;
            continue;
        }
        *link = batch->next;
        atomic_store(&batch->holds, 1);
        batch->ticket = atomic_fetch_add(&batch->comm->tickets, 1);
        keep_first(&first, run_batch(batch));
    }
    if (first != MOTET_OK)
        drop_all(*batches);
    return first;
}

/*
 * The batches of a group run at the same time, since they may be the ranks of one
 * communicator: no two on one thread. Nothing starts before every batch has its place,
 * and streams wait for batches only once all have started.
 */
motet_result motet_launch_group(motet_batch *batches)
{
    seat seats[MOTET_MAX_RANKS];
    const seat *here = NULL;
    motet_result first;
    int count;

    first = check(batches);
    if (first == MOTET_OK)
        first = enqueue_on_devices(&batches);
    else
        drop_all(batches);
    if (first != MOTET_OK || batches == NULL)
        return first;
    first = seat_all(batches, seats, &count);
    if (first != MOTET_OK) {
        drop_all(batches);
        return first;
    }
    for (int i = 0; i < count; i++) {
        atomic_store(&seats[i].batch->holds, seats[i].stream == NULL ? 1 : 2);
        if (seats[i].stream == NULL)
            here = &seats[i];
        else
            keep_first(&first, submit(seats[i].batch, seats[i].stream));
    }
    for (int i = 0; i < count; i++) {
        if (seats[i].stream == NULL)
            continue;
        keep_first(&first, order(&seats[i], false));
        batch_release(seats[i].batch);
    }
    if (here != NULL) {
        here->batch->ticket = atomic_fetch_add(&here->comm->tickets, 1);
        keep_first(&first, run_batch(here->batch));
    }
    for (int i = 0; i < count; i++)
        if (seats[i].stream != NULL && seats[i].awaited)
            keep_first(&first, await_seat(&seats[i]));
    return first;
}
