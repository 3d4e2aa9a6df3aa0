/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a peer's word. Spin, then yield, then sleep in growing steps; nobody
 * wakes a waiter. Every turn looks whether the communicator was stopped; every
 * slower turn looks for failures that peers show, for deaths and for mismatched
 * calls, and at the clock. When ranks share cores a waiter yields at once.
 */
#ifndef MOTET_ENGINE_WAIT_H
#define MOTET_ENGINE_WAIT_H

#include "engine/engine.h"

/** What the running operation is, for whoever waits in it. */
typedef struct motet_running {
    motet_engine *engine;
    const motet_op *op;
    motet_trace_op *record;
    uint32_t fingerprint; /* of this collective and all before it         */
    uint64_t seq;         /* of a collective; 0 for sends and receives    */
} motet_running;

/** One wait. Start with motet_wait_begin(). */
typedef struct motet_wait {
    const motet_running *running;
    uint64_t start_ns; /* 0 until the clock was first read */
    uint64_t sleep_ns;
    unsigned turns;
    bool doomed; /* the peer is gone: one more look at the word, then fail */
    bool warned;
    const char *hint; /* what may hold it up beside the peer; NULL: nothing known */
    bool recorded;    /* the recorder shows the wait */
} motet_wait;

static inline void motet_wait_begin(motet_wait *wait, const motet_running *running)
{
    *wait = (motet_wait){ .running = running };
}

/**
 * Let one turn pass while waiting for @p rank.
 * @retval MOTET_OK look at the word again.
 * @retval others   the communicator has failed.
 */
MOTET_MUST_USE motet_result motet_wait_turn(motet_wait *wait, int rank);

/** The wait is over: the recorder shows the operation as running again. */
static inline void motet_wait_end(const motet_wait *wait)
{
    if (wait->recorded)
        motet_recorder_resumes(wait->running->record);
}

/** motet_wait_word() when the word is not there yet. */
MOTET_MUST_USE motet_result motet_wait_slow(const motet_running *running,
        const _Atomic uint64_t *word, uint64_t at_least, int rank);

/** Wait until @p word, which @p rank writes and which only grows, is @p at_least. */
static inline motet_result motet_wait_word(const motet_running *running,
        const _Atomic uint64_t *word, uint64_t at_least, int rank)
{
    if (__builtin_expect(atomic_load_explicit(word, memory_order_acquire) >= at_least,
                1))
        return MOTET_OK;
    return motet_wait_slow(running, word, at_least, rank);
}

/**
 * Look around during a wait that goes on elsewhere, as on a device: has the peer gone, is
 * the deadline over, is it time for a warning? @p wait began with motet_wait_begin() and
 * has `start_ns` set.
 */
MOTET_MUST_USE motet_result motet_wait_look(motet_wait *wait, int rank,
        uint64_t now_ns);

/** @p op as the recorder takes it, with its fingerprint; plan and number are the caller's. */
motet_trace_call motet_call_of(const motet_op *op);

/** Show @p op as call number engine->seq, for a peer that finds another one. */
void motet_show_call(motet_engine *engine, const motet_op *op, uint32_t fingerprint);

/** The latest call that @p rank shows with this fingerprint. False if it shows none. */
bool motet_find_call(const motet_engine *engine, int rank, uint32_t fingerprint,
        motet_op *out);

/** Describe @p op as in "all_reduce(count 4, float, sum)", into @p buf; MOTET_NUM_KINDS
 *  stands for whatever a graph replays. */
void motet_op_describe(const motet_op *op, char *buf, size_t bytes);

/** Fail as a peer has failed, with its sentence, if one has. */
MOTET_MUST_USE motet_result motet_adopt_failure(motet_engine *engine);

/** Fail: @p rank makes, or has made, another call than this rank under the same number. */
MOTET_MUST_USE motet_result motet_mismatch(const motet_running *running, int rank);

/** Fail if any rank shows another call than this rank under the same number. Any thread. */
MOTET_MUST_USE motet_result motet_compare_calls(motet_engine *engine);

#endif
