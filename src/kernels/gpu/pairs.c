/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives. Each ordered pair of ranks has, for each of its blocks, two slots in
 * the receiver's arena, a count of slots that were filled there, and a count of those
 * that were taken in the sender's. Both ends know from the bytes alone how many slots a
 * message takes of which block: one at least.
 *
 * Reuse. Slot n is filled when n − 1 have been taken, which the receiver says after all
 * its threads have read, and read when n + 1 have been filled. The counts differ by two
 * at most and are touched by every message, so that they may wrap.
 *
 * With a message's first slot comes its size; a receive of another size is an error.
 */
#include "kernels/gpu/counts.h"
#include "kernels/gpu/move.h"

/* One transfer, as one of its blocks sees it. */
typedef struct transfer {
    uint8_t *buffer;
    uint64_t bytes; /* of the whole message */
    share part;     /* this block's         */
    uint32_t peer;
    uint32_t block; /* of the transfer's    */
    uint32_t count; /* slots of the pair before this message */
} transfer;

/* Of a pair and block: what the peer writes on this rank's side, … */
DEVICE uint8_t *line_here(const motet_gpu_pairs_args *a, const transfer *t)
{
    return motet_gpu_pair_line_at(motet_gpu_inbox(a->inbox, a->hosted, t->peer),
            &a->layout, t->block, t->peer);
}

/* … and what this rank writes on the peer's. */
DEVICE uint8_t *line_there(const motet_gpu_pairs_args *a, const transfer *t)
{
    return motet_gpu_pair_line_at(a->arena[t->peer], &a->layout, t->block, a->rank);
}

DEVICE bool send(watch *w, const motet_gpu_pairs_args *a, const transfer *t)
{
    const uint8_t *taken = line_here(a, t) + offsetof(motet_gpu_pair_line, taken);
    uint8_t *line = line_there(a, t);
    NO_UNROLL
    for (uint32_t s = 0; s < t->part.steps; s++) {
        const uint32_t n = t->count + s;
        if (!await_count(w, t->peer, taken, n - (MOTET_PAIR_STAGES - 1)))
            return false;
        copy_bytes(motet_gpu_pair_stage_at(a->arena[t->peer], &a->layout, t->block, n,
                           a->rank),
                t->buffer + t->part.at + (uint64_t)s * t->part.capacity,
                step_bytes(&t->part, s));
        if (s == 0 && w->thread == 0)
            store64_shared(message_word(line, n), t->bytes);
        tell_count(w, line + offsetof(motet_gpu_pair_line, published), n + 1);
    }
    return true;
}

DEVICE bool receive(watch *w, const motet_gpu_pairs_args *a, const transfer *t)
{
    uint8_t *line = line_here(a, t);
    uint8_t *taken = line_there(a, t) + offsetof(motet_gpu_pair_line, taken);
    NO_UNROLL
    for (uint32_t s = 0; s < t->part.steps; s++) {
        const uint32_t n = t->count + s;
        if (!await_count(w, t->peer, line + offsetof(motet_gpu_pair_line, published),
                    n + 1))
            return false;
        if (s == 0 && !is_as_long(w, t->peer, message_word(line, t->count), t->bytes))
            return false;
        copy_bytes(t->buffer + t->part.at + (uint64_t)s * t->part.capacity,
                motet_gpu_pair_stage_at(motet_gpu_inbox(a->inbox, a->hosted, t->peer),
                        &a->layout, t->block, n, t->peer),
                step_bytes(&t->part, s));
        tell_count(w, taken, n + 1);
    }
    return true;
}

/* False: leave. The counts are this rank's own, and only this block's. */
DEVICE bool run_transfer(watch *w, const motet_gpu_pairs_args *a,
        const motet_gpu_transfer *given)
{
    const uint32_t block = w->block - given->first;
    uint8_t *state = motet_gpu_pair_state_at(a->own, &a->layout, block, given->peer);
    if (given->receive != 0)
        state += offsetof(motet_gpu_pair_state, received);
    const transfer t = {
        .buffer = given->buffer,
        .bytes = given->bytes,
        .part = share_of(given->bytes, given->blocks, block, a->layout.pair_chunk),
        .peer = given->peer,
        .block = block,
        .count = load32_shared(state),
    };
    bool stay = given->receive != 0 ? receive(w, a, &t) : send(w, a, &t);
    if (stay && w->thread == 0)
        store32_shared(state, t.count + t.part.steps);
    block_sync(); /* the next transfer may ask for that count */
    return stay;
}

DEVICE void run_transfers(const motet_gpu_pairs_args *a, uint32_t block, bool unused)
{
    (void)unused;
    watch w = watch_of(a->control, motet_gpu_state_at(a->own, block), a->inbox,
            a->hosted, motet_gpu_line_offset(&a->layout, block, 0), block);
    begin_rounds(&w);
    if (w.thread == 0 &&
            load32_shared(w.state + offsetof(motet_gpu_state, closed)) != 0)
        must_leave(&w, MOTET_GPU_OK, 0, 0, 0);
    block_sync();
    bool stay = !end_round(&w);
    NO_UNROLL
    for (uint32_t i = 0; stay && i < a->count; i++) {
        const motet_gpu_transfer *t = &a->transfer[i];
        if (block - t->first < t->blocks)
            stay = run_transfer(&w, a, t);
    }
    if (!stay && w.thread == 0)
        report(&w);
    if (a->ticket != 0 && w.thread == 0)
        store32_shared(&a->control->done[block], a->ticket);
}

KERNEL(motet_pairs, motet_gpu_pairs_args, run_transfers, false)
