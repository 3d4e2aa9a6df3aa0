/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every collective kernel does around its data: enter, wait, say how far it is,
 * leave (gpu.h: positions, progress).
 *
 * A step's progress word would be the next operation's entry word if the step is the
 * last: it is left out, so that a kernel does not end with a store to a peer.
 */
#ifndef MOTET_KERNELS_GPU_RUN_H
#define MOTET_KERNELS_GPU_RUN_H

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/move.h"
#include "kernels/gpu/watch.h"

/** A position's tag that no slot waits for: half the circle away. */
#define FAR_TAG(position) ((position) ^ 0x80000000u)

typedef struct run {
    watch w;
    const motet_gpu_args *args;
    uint32_t cleared; /* as in the state: two generations, and the position's wraps */
    uint64_t mark;    /* of this operation */
    uint32_t base;    /* position of step 0, if not the operation's first */
    bool failed;      /* nothing more is to be done, and the state stays as it is */
} run;

/* ---- Where things are ---------------------------------------------------------------- */

/* Where what peer p writes lies on this rank's side. */
DEVICE uint8_t *inbox_of(const run *r, uint32_t p)
{
    return motet_gpu_inbox(r->args->inbox, r->args->hosted, p);
}

/* What peer p has written for this block, and where this rank writes for the peer's. */
DEVICE const uint8_t *line_of(const run *r, uint32_t p)
{
    return line_in(&r->w, p);
}

DEVICE uint8_t *line_at_peer(const run *r, uint32_t p)
{
    return r->args->arena[p] +
            motet_gpu_line_offset(&r->args->layout, r->w.block, r->args->rank);
}

/* The peer that comes i-th after this rank: not all begin with the same one. */
DEVICE uint32_t peer_after(const motet_gpu_args *a, uint32_t i)
{
    uint32_t p = a->rank + i;
    return p < a->nranks ? p : p - a->nranks;
}

DEVICE bool is_in(uint32_t mask, uint32_t p)
{
    return (mask >> p & 1u) != 0;
}

/* A position as a count that does not wrap: the high 32 bits count the wraps. */
DEVICE uint64_t count_of(const run *r, uint32_t position)
{
    uint32_t wraps = (r->cleared >> 16) + (position < r->w.first ? 1 : 0);
    return (uint64_t)wraps << 32 | position;
}

DEVICE uint64_t progress_word(const run *r, uint32_t position)
{
    return position | (uint64_t)r->args->fingerprint << 32;
}

/* All but this rank. */
DEVICE uint32_t others_in(const run *r, uint32_t mask)
{
    return mask & ~(1u << r->args->rank);
}

/* ---- Waiting --------------------------------------------------------------------------- */

/*
 * Until peer p's word, a count, has reached `wanted`; of a progress word only the low half
 * counts, and wraps. False: leave.
 */
DEVICE bool wait_word(const run *r, uint32_t p, bool progress, uint64_t wanted,
        uint32_t position)
{
    const uint8_t *word =
            line_of(r, p) + (progress ? 0 : offsetof(motet_gpu_line, published));
    uint32_t spins = 0;
    bool stay = true;
    for (;;) {
        uint64_t seen = load64_acquire(word);
        int64_t ahead = progress ? (int32_t)((uint32_t)seen - (uint32_t)wanted)
                                 : (int64_t)(seen - wanted);
        if (likely(ahead >= 0))
            break;
        if (spin(&r->w, p, position, &spins)) {
            stay = false;
            break;
        }
    }
    wait_is_over(&r->w, spins);
    return stay;
}

/* Until peer p has read everything below `position`. */
DEVICE bool wait_progress(const run *r, uint32_t p, uint32_t position)
{
    return wait_word(r, p, true, position, position);
}

/* The end of a round of waiting, for all threads. False: leave. */
DEVICE bool meet(run *r)
{
    block_acquire();
    r->failed = end_round(&r->w);
    return !r->failed;
}

/* PREMUL_SUM: this rank's factor, an element's bits. */
DEVICE uint64_t own_factor(const motet_gpu_args *a, uint32_t bytes)
{
    return a->scalar_ptr != NULL ? load_some64(a->scalar_ptr, bytes) : a->scalar;
}

/* ---- Entering and leaving ------------------------------------------------------------- */

/* The state, read by all threads: the first thing that a kernel does. */
DEVICE pair64 ask_state(const motet_gpu_args *a, uint32_t block)
{
    return load_pair_shared(motet_gpu_state_at(a->own, block));
}

/* The barrier is over before the state has come. */
DEVICE run enter(const motet_gpu_args *a, uint32_t block, uint32_t steps, pair64 state)
{
    run r = {
        .w = watch_of(a->control, motet_gpu_state_at(a->own, block), a->inbox,
                a->hosted, motet_gpu_line_offset(&a->layout, block, 0), block),
        .args = a,
        .cleared = (uint32_t)(state.a >> 32),
        .mark = unique_mark(),
        .base = (uint32_t)state.a,
    };
    if (r.w.thread == 0)
        store64_shared(motet_gpu_state_at(a->own, block) +
                        offsetof(motet_gpu_state, mark),
                r.mark);
    r.w.first = (uint32_t)state.a;
    r.w.steps = steps;
    r.w.fingerprint = a->fingerprint;
    begin_rounds(&r.w);
    if (unlikely((uint32_t)(state.b >> 32) != 0)) {
        r.failed = true;
        must_leave(&r.w, MOTET_GPU_OK, 0, 0, 0);
    }
    return r;
}

/* The entry words: that this rank has read everything before this operation, and what it
 * is. One thread for each peer. */
DEVICE void greet(const run *r)
{
    NO_UNROLL
    for (uint32_t p = r->w.thread; p < r->args->nranks && !r->failed; p += r->w.threads)
        if (p != r->args->rank)
            store64_shared(line_at_peer(r, p), progress_word(r, r->w.first));
}

/* Tell who is in `mask` that all below `position` was read. One thread for each. */
DEVICE void say_progress(const run *r, uint32_t mask, uint32_t position)
{
    NO_UNROLL
    for (uint32_t p = r->w.thread; p < r->args->nranks; p += r->w.threads)
        if (is_in(mask, p) && p != r->args->rank)
            store64_shared(line_at_peer(r, p), progress_word(r, position));
}

DEVICE void say_published(const run *r, uint32_t mask, uint32_t position)
{
    NO_UNROLL
    for (uint32_t p = r->w.thread; p < r->args->nranks; p += r->w.threads)
        if (is_in(mask, p) && p != r->args->rank)
            store64_shared(line_at_peer(r, p) + offsetof(motet_gpu_line, published),
                    count_of(r, position));
}

/*
 * No LL slot may keep a tag for 2^32 positions. In each eighth of the circle, at the
 * first two exits, one slot's tags are set to one that nobody waits for. At an exit at
 * position q peers may already fill slot q mod 2, but not the other one: for that, they
 * need the word with which the next operation enters. If it is the wrong one's turn, a
 * position is skipped. All ranks do this alike, as it follows from their common history.
 * Returns the exit position.
 */
DEVICE uint32_t clear_slots(const watch *w, uint8_t *const *slots, uint64_t slot_bytes,
        uint32_t *cleared, uint32_t end)
{
    const uint32_t generation = end >> 29;
    bool stale0 = (*cleared & 0xffu) != generation;
    bool stale1 = (*cleared >> 8 & 0xffu) != generation;
    if (likely(!stale0 && !stale1))
        return end;
    uint32_t slot = (end + 1) % MOTET_LL_SLOTS;
    if (!(slot == 0 ? stale0 : stale1)) {
        end++;
        slot ^= 1;
    }
    const pair64 far = { (uint64_t)FAR_TAG(end) << 32, (uint64_t)FAR_TAG(end) << 32 };
    uint8_t *first = slots[0] + slot * slot_bytes;
    uint8_t *second = slots[1] + slot * slot_bytes;
    NO_UNROLL
    for (uint64_t at = 16ull * w->thread; at < slot_bytes; at += 16ull * w->threads) {
        store_pair_shared(first + at, far);
        if (second != first)
            store_pair_shared(second + at, far);
    }
    *cleared &= ~(0xffu << (8 * slot));
    *cleared |= generation << (8 * slot);
    return end;
}

/* The state that the next operation finds. @p slots: the block's, from slot 0 on, in
 * both arenas. */
DEVICE void advance(const watch *w, uint8_t *state, uint8_t *const *slots,
        uint64_t slot_bytes, uint32_t cleared)
{
    uint32_t end = clear_slots(w, slots, slot_bytes, &cleared, w->first + w->steps);
    if (end < w->first)
        cleared += 1u << 16;
    if (w->thread != 0)
        return;
    /* `closed`, in the same line, is the host's. */
    store64_shared(state, end | (uint64_t)cleared << 32);
    store32_shared(state + offsetof(motet_gpu_state, last), w->fingerprint);
}

/* By one thread, at the end: has no other operation of the communicator begun or ended
 * since this one began, with its mark? */
DEVICE bool is_alone(const uint8_t *state, uint32_t position, uint64_t mark)
{
    uint32_t now = load32_shared(state);
    uint64_t whose = load64_shared(state + offsetof(motet_gpu_state, mark));
    return now == position && whose == mark;
}

/* What the peers say they do, one thread for each: the first one's word was loaded before. */
DEVICE void compare_words(const run *r, uint64_t word)
{
    const motet_gpu_args *a = r->args;
    NO_UNROLL
    for (uint32_t p = r->w.thread; p < a->nranks; p += r->w.threads) {
        if (p != r->w.thread)
            word = load64_shared(line_of(r, p));
        if (p == a->rank || !differs(&r->w, word))
            continue;
        must_leave(&r->w, MOTET_GPU_ERROR_FINGERPRINT, p, word, own_word(&r->w));
        report(&r->w);
    }
}

/*
 * All threads, when their part is done: tell the next operation where it begins. What
 * the peers and this block's state say meanwhile is loaded before the barrier and looked
 * at when all stores are on their way, so that nothing waits for it.
 */
DEVICE void leave(run *r)
{
    const motet_gpu_args *a = r->args;
    uint8_t *state = motet_gpu_state_at(a->own, r->w.block);
    bool alone = true;
    uint64_t word = 0;
    if (r->w.thread == 0)
        alone = is_alone(state, r->w.first, r->mark);
    if (r->w.thread < a->nranks)
        word = load64_shared(line_of(r, r->w.thread));
    block_sync();
    r->failed = r->failed || must_go(&r->w);
    if (likely(!r->failed)) {
        const uint64_t slot = motet_gpu_ll_offset(&a->layout, r->w.block, 0, 0);
        uint8_t *const slots[] = { a->inbox[0] + slot, a->inbox[1] + slot };
        advance(&r->w, state, slots, (uint64_t)a->nranks * 2 * a->layout.ll_bytes,
                r->cleared);
        if (unlikely(!alone)) {
            must_leave(&r->w, MOTET_GPU_ERROR_OVERLAP, a->rank, r->w.first, r->w.first);
            report(&r->w);
        }
        compare_words(r, word);
    } else if (r->w.thread == 0) {
        report(&r->w);
        /* What was enqueued behind this must not greet from the same position. */
        store32_shared(state + offsetof(motet_gpu_state, closed), 1);
    }
    if (a->ticket != 0 && r->w.thread == 0)
        store32_shared(&a->control->done[r->w.block], a->ticket);
}

#endif
