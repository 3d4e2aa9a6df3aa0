/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's life, its failure, and the out-of-band exchange. */
#include "engine/wait.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* An idle communicator reports a death only when operations that are already on
 * their way have had time to end. */
#define IDLE_GRACE_NS (500 * MOTET_NS_PER_MS)
#define OOB_SLEEP_NS  200000

void motet_engine_init(motet_engine *engine)
{
    motet_arena_head *head = engine->arena[engine->rank].head;

    pthread_mutex_init(&engine->failure_lock, NULL);
    engine->kernels = motet_cpu_kernels_best();
    engine->position = engine->constants.epoch_start;
    engine->done_floor = engine->position + 1;
    engine->seq = 0;
    engine->chain = 0;
    for (int r = 0; r < engine->nranks; r++) {
        engine->pair[r].sent = engine->constants.epoch_start;
        engine->pair[r].received = engine->constants.epoch_start;
        atomic_store_explicit(&engine->pair[r].dead, false, memory_order_relaxed);
        atomic_store_explicit(&engine->arena[engine->rank].pair[r].taken,
                engine->constants.epoch_start, memory_order_relaxed);
    }
    atomic_store_explicit(&engine->stop, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->dead_rank, -1, memory_order_relaxed);
    atomic_store_explicit(&head->done, engine->position + 1, memory_order_release);
}

void motet_engine_close(motet_engine *engine)
{
    pthread_mutex_lock(&engine->failure_lock);
    if (atomic_load_explicit(&engine->stop, memory_order_relaxed) == 0) {
        snprintf(engine->failure, sizeof(engine->failure),
                "the communicator has ended");
        atomic_store(&engine->stop, (uint32_t)MOTET_ERR_ARGUMENT);
    }
    pthread_mutex_unlock(&engine->failure_lock);
}

void motet_engine_release(motet_engine *engine)
{
    pthread_mutex_destroy(&engine->failure_lock);
}

motet_result motet_engine_failure(motet_engine *engine)
{
    motet_result result;

    if (atomic_load_explicit(&engine->stop, memory_order_acquire) == 0)
        return MOTET_OK;
    pthread_mutex_lock(&engine->failure_lock);
    result = (motet_result)atomic_load_explicit(&engine->stop, memory_order_relaxed);
    motet_error_adopt(result, engine->failure);
    pthread_mutex_unlock(&engine->failure_lock);
    return result;
}

motet_result motet_engine_fail(motet_engine *engine, motet_result result, int rank,
        const char *fmt, ...)
{
    va_list args;

    pthread_mutex_lock(&engine->failure_lock);
    if (atomic_load_explicit(&engine->stop, memory_order_relaxed) == 0) {
        motet_arena_head *head = engine->arena[engine->rank].head;

        va_start(args, fmt);
        vsnprintf(engine->failure, sizeof(engine->failure), fmt, args);
        va_end(args);
        memcpy(head->failure, engine->failure, sizeof(head->failure));
        head->failed_rank = rank;
        atomic_store_explicit(&head->failed, (uint32_t)result, memory_order_release);
        motet_recorder_fail(engine->recorder, result, engine->failure);
        atomic_store(&engine->stop, (uint32_t)result); /* as comm's launch.c argues */
        if (engine->device_abort != NULL)
            __atomic_store_n(engine->device_abort, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&engine->failure_lock);
    return motet_engine_failure(engine);
}

void motet_engine_detach(motet_engine *engine)
{
    pthread_mutex_lock(&engine->failure_lock);
    engine->device_abort = NULL;
    pthread_mutex_unlock(&engine->failure_lock);
}

void motet_engine_peer_died(motet_engine *engine, int rank)
{
    int nobody = -1;

    atomic_store_explicit(&engine->pair[rank].dead, true, memory_order_release);
    if (atomic_load_explicit(&engine->dead_rank, memory_order_relaxed) != -1)
        return;
    atomic_store_explicit(&engine->dead_ns, motet_now_ns(), memory_order_relaxed);
    atomic_compare_exchange_strong_explicit(&engine->dead_rank, &nobody, rank,
            memory_order_release, memory_order_relaxed);
}

motet_result motet_engine_poll(motet_engine *engine)
{
    int dead = atomic_load_explicit(&engine->dead_rank, memory_order_acquire);
    motet_result result = motet_engine_failure(engine);

    if (result == MOTET_OK)
        result = motet_adopt_failure(engine);
    if (result == MOTET_OK && dead >= 0 &&
            motet_now_ns() >
                    atomic_load_explicit(&engine->dead_ns, memory_order_relaxed) +
                            IDLE_GRACE_NS)
        result = motet_engine_fail(engine, MOTET_ERR_REMOTE, dead,
                "rank %d (pid %d) has died", dead, engine->peer[dead].pid);
    return result == MOTET_OK ? motet_compare_calls(engine) : result;
}

/* A member whose part of the round has not come: why should it come no more? */
static motet_result oob_lost(const motet_engine *engine, int rank, uint64_t deadline_ns,
        const _Atomic uint32_t *cancel)
{
    uint32_t life =
            atomic_load_explicit(&engine->arena[rank].head->life, memory_order_acquire);

    if (cancel != NULL && atomic_load_explicit(cancel, memory_order_acquire) != 0)
        return motet_fail(MOTET_ERR_REMOTE, "the communicator was aborted here");
    if (atomic_load_explicit(&engine->pair[rank].dead, memory_order_acquire))
        return motet_fail(MOTET_ERR_REMOTE, "rank %d (pid %d) has died", rank,
                engine->peer[rank].pid);
    if (life == MOTET_LIFE_GAVE_UP)
        return motet_fail(MOTET_ERR_REMOTE, "rank %d (pid %d) gave up", rank,
                engine->peer[rank].pid);
    if (life == MOTET_LIFE_LEFT)
        return motet_fail(MOTET_ERR_REMOTE, "rank %d has destroyed its communicator",
                rank);
    if (motet_deadline_passed(deadline_ns))
        return motet_fail(MOTET_ERR_REMOTE,
                "rank %d (pid %d) has not made the call that the other ranks wait in",
                rank, engine->peer[rank].pid);
    return MOTET_OK;
}

/*
 * Two buffers for each pair suffice: a rank sends message k + 2 to a peer only after it
 * has read the peer's k + 1, which the peer sent after it had read k.
 */
static void oob_send(motet_engine *engine, int peer, const void *mine, size_t bytes)
{
    motet_pair *pair = &engine->arena[engine->rank].pair[peer];
    uint64_t round = atomic_load_explicit(&pair->oob_round, memory_order_relaxed) + 1;

    memcpy(pair->oob[round & 1], mine, bytes);
    pair->oob_bytes[round & 1] = (uint32_t)bytes;
    atomic_store_explicit(&pair->oob_round, round, memory_order_release);
}

static motet_result oob_receive(motet_engine *engine, int peer, void *out, size_t bytes,
        uint64_t deadline_ns, const _Atomic uint32_t *cancel)
{
    const motet_pair *theirs = &engine->arena[peer].pair[engine->rank];
    uint64_t round =
            atomic_load_explicit(&engine->arena[engine->rank].pair[peer].oob_round,
                    memory_order_relaxed);
    struct timespec nap = { .tv_nsec = OOB_SLEEP_NS };
    bool last_look = false;

    while (atomic_load_explicit(&theirs->oob_round, memory_order_acquire) < round) {
        motet_result result = oob_lost(engine, peer, deadline_ns, cancel);

        if (result != MOTET_OK && last_look)
            return result;
        last_look = result != MOTET_OK;
        if (!last_look)
            nanosleep(&nap, NULL);
    }
    if (theirs->oob_bytes[round & 1] != bytes)
        return motet_fail(MOTET_ERR_USAGE, "rank %d makes another call than rank %d",
                peer, engine->rank);
    memcpy(out, theirs->oob[round & 1], bytes);
    return MOTET_OK;
}

motet_result motet_engine_oob(motet_engine *engine, const bool *member,
        const void *mine, size_t bytes, void *all_out, uint64_t deadline_ns,
        const _Atomic uint32_t *cancel)
{
    uint8_t *all = all_out;
    motet_result result = MOTET_OK;

    if (bytes > MOTET_OOB_MAX)
        return motet_fail(MOTET_ERR_INTERNAL,
                "out-of-band message of %zu bytes, at most %d", bytes, MOTET_OOB_MAX);
    for (int r = 0; r < engine->nranks; r++)
        if (member[r])
            oob_send(engine, r, mine, bytes);
    for (int r = 0; r < engine->nranks && result == MOTET_OK; r++)
        if (member[r])
            result = oob_receive(engine, r, all + (size_t)r * bytes, bytes, deadline_ns,
                    cancel);
    return result;
}
