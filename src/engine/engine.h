/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running operations on CPU ranks: the host executor. One thread at a time runs
 * operations of an engine (comm sees to that); stop, death and failure may come
 * from any thread.
 *
 * The operation path makes no allocation, takes no lock and, unless it has to wait
 * long, makes no system call.
 */
#ifndef MOTET_ENGINE_ENGINE_H
#define MOTET_ENGINE_ENGINE_H

#include "engine/window.h"
#include "kernels/reduce.h"
#include "plan/plan.h"
#include "trace/recorder.h"
#include "transport/arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/** What sentences say about a rank. */
typedef struct motet_peer {
    int pid; /* 0 if it is not visible here */
    char host[64];
} motet_peer;

/** A send or receive on its way. The caller sets `op`, the engine the rest. */
typedef struct motet_transfer {
    motet_op op; /* MOTET_SEND or MOTET_RECV; root is the peer */
    size_t moved;
    motet_trace_op *record;
    uint64_t record_seq;
    struct motet_transfer *next; /* same peer and direction */
} motet_transfer;

/** Progress of the two rings between this rank and one peer. */
typedef struct motet_pair_state {
    uint64_t sent;     /* slots of this rank's ring to the peer that were filled */
    uint64_t received; /* slots of the peer's ring to this rank that were taken  */
    motet_transfer *head[2],
            **tail[2]; /* sends and receives in order, while they run */
    _Atomic bool dead; /* the peer's process is gone                  */
} motet_pair_state;

typedef struct motet_engine {
    int rank, nranks;
    motet_arena *arena;     /* nranks entries; arena[rank] is this rank's own        */
    const motet_peer *peer; /* nranks entries                                    */
    motet_pair_state *pair; /* nranks entries                                    */
    motet_recorder *recorder;
    motet_constants constants;
    const motet_cpu_kernels *kernels;
    bool oversubscribed; /* more ranks than cores: yield at once                 */
    uint64_t warn_after_ns;
    _Atomic uint64_t timeout_ns; /* 0 = none                                     */

    uint64_t position;   /* last board position that was used                    */
    uint64_t done_floor; /* every rank has read the positions below, at least    */
    uint64_t seq;        /* collectives begun                                    */
    uint32_t chain;      /* fingerprint of all of them                           */

    motet_window window[MOTET_WINDOWS];

    _Atomic uint32_t stop;     /* not 0: the result that ends every wait         */
    _Atomic int32_t dead_rank; /* −1, or the first rank seen dead                */
    _Atomic uint64_t dead_ns;  /* when                                           */
    pthread_mutex_t failure_lock;
    char failure[MOTET_FAILURE_MAX]; /* the sentence behind `stop`               */
    uint32_t *device_abort; /* a word that kernels look at, or NULL; under the lock */
} motet_engine;

/**
 * Prepare an engine whose fields up to timeout_ns are filled and whose own arena is
 * mapped; publishes the starting position there.
 */
void motet_engine_init(motet_engine *engine);

/** Stop it, without telling the peers: calls that come too late fail. */
void motet_engine_close(motet_engine *engine);

/** Release what init made; arenas and the recorder are the owner's. */
void motet_engine_release(motet_engine *engine);

/** Run one collective of more than nothing, or of nothing. @retval see motet_engine_fail(). */
MOTET_MUST_USE motet_result motet_engine_collective(motet_engine *engine,
        const motet_op *op);

/**
 * Check what a group of sends and receives must fulfil by itself: every send to this
 * rank has its receive, of the same bytes, in the group.
 * @retval MOTET_ERR_USAGE it does not.
 */
MOTET_MUST_USE motet_result motet_pairs_check(int rank, const motet_transfer *transfers,
        int count);

/**
 * Run sends and receives at once, as one group call means them: they progress
 * together, and per peer and direction in the order given. They have passed
 * motet_pairs_check().
 */
MOTET_MUST_USE motet_result motet_engine_pairs(motet_engine *engine,
        motet_transfer *transfers, int count);

/**
 * Fail the communicator: the first sentence stays, is shown to the peers in this
 * rank's arena, and ends every wait here and there. Returns what the first failure
 * returned, with its sentence as the calling thread's trail.
 * @param rank the rank at fault, −1 if there is none.
 */
motet_result motet_engine_fail(motet_engine *engine, motet_result result, int rank,
        const char *fmt, ...) MOTET_PRINTF(4, 5);

/** The device's word is about to go: forget it. */
void motet_engine_detach(motet_engine *engine);

/** The result that ended the engine (0 = none), with its sentence as the thread's trail. */
motet_result motet_engine_failure(motet_engine *engine);

/** A peer's process is gone. Any thread; the first death fails the engine. */
void motet_engine_peer_died(motet_engine *engine, int rank);

/**
 * Look for what happened without an operation: a death that has outlived its grace, a
 * failure that a peer shows. Any thread. Returns as motet_engine_failure().
 */
motet_result motet_engine_poll(motet_engine *engine);

/**
 * Exchange up to MOTET_OOB_MAX bytes among the ranks in @p member (nranks flags, this
 * rank's set), out of band: also on a failed communicator, also without dead ranks.
 * All members call it equally often, with the same members.
 * @param all_out nranks × @p bytes, by rank; only members' parts are written.
 */
MOTET_MUST_USE motet_result motet_engine_oob(motet_engine *engine, const bool *member,
        const void *mine, size_t bytes, void *all_out, uint64_t deadline_ns,
        const _Atomic uint32_t *cancel);

#endif
