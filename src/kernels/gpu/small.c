/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest exchanges, where only latency counts: what ll.c does, for one step, whole
 * packs and few ranks, with the type known when it is compiled. What crosses the link is
 * the same, so one rank may run this and another, whose buffers are less well aligned,
 * ll.c. A launch fetches its arguments and its code anew: both are kept small.
 *
 * The state of a block and its peers' progress words are asked for at once. Slot q mod 2
 * may be filled when a peer's word, which it wrote when it entered q − 1, says that it
 * has read q − 2; every thread looks by itself. A barrier stands only before the exit, so
 * that no thread still reads when the next operation may begin.
 *
 * Calls are compared by the words that were there at entry: a peer's is that of this
 * operation or of the one before, whose fingerprint the state keeps. One that comes later
 * is compared by the next operation, and by whoever waits for long.
 */
#include "kernels/gpu/run.h"
#include "kernels/gpu/types.h"

/* Instead of a type: nothing is reduced. */
#define NO_TYPE (-1)
#define PEERS   (MOTET_GPU_SMALL_RANKS - 1)

typedef struct small_run {
    const motet_gpu_small_args *a;
    watch w;
    uint32_t at, bytes; /* this block's part of a piece */
    uint64_t slot;      /* its offset from source 0's, here and at the peers */
    uint64_t word[PEERS];
} small_run;

/* Peer i, in rank order without this rank. */
DEVICE uint32_t peer_at(const motet_gpu_small_args *a, uint32_t i)
{
    return i + (i >= a->rank ? 1 : 0);
}

/* A thread that must leave says why, and that nothing may follow. */
DEVICE void give_up(const small_run *r, const block_trouble *t)
{
    report_trouble(&r->w, t);
    store32_shared(r->a->state + (uint64_t)r->w.block * sizeof(motet_gpu_state) +
                    offsetof(motet_gpu_state, closed),
            1);
}

/* One more poll in vain. True: this thread must leave. */
DEVICE bool poll_again(const small_run *r, uint32_t p, uint32_t *spins)
{
    block_trouble t;
    pause(++*spins);
    if (likely(*spins % SPINS_BEFORE_LOOK != 0) ||
            (r->w.thread != 0 && *spins % (SPINS_BEFORE_LOOK * LOOKS_OF_FIRST) != 0))
        return false;
    if (!look_around(&r->w, p, r->w.first, &t))
        return false;
    give_up(r, &t);
    return true;
}

/* Wait for the peers whose words did not suffice. False: leave. */
DEVICE bool await_words(const small_run *r, uint32_t wanted)
{
    NO_UNROLL
    for (uint32_t p = 0; p < r->a->nranks; p++) {
        uint32_t spins = 0;
        if (!is_in(r->a->send_mask, p) || p == r->a->rank)
            continue;
        while ((int32_t)((uint32_t)load64_acquire(line_in(&r->w, p)) - wanted) < 0)
            if (poll_again(r, p, &spins)) {
                wait_is_over(&r->w, spins);
                return false;
            }
        wait_is_over(&r->w, spins);
    }
    return true;
}

/* The word with which this rank enters, one thread for each peer. */
DEVICE void greet_peers(const small_run *r)
{
    NO_UNROLL
    for (uint32_t i = r->w.thread; i + 1 < r->a->nranks; i += r->w.threads)
        store64_shared(r->a->word[peer_at(r->a, i)] +
                        (uint64_t)r->w.block * r->a->line_stride,
                own_word(&r->w));
}

/* May the peers' slots be filled? By the words that were loaded; else by waiting, and
 * not without a word of one's own, for which a peer may wait in its turn. */
DEVICE bool await_credit(const small_run *r)
{
    const uint32_t wanted = r->w.first - (MOTET_LL_SLOTS - 1);
    bool late = false;
    UNROLL
    for (uint32_t i = 0; i < PEERS; i++)
        late |= i + 1 < r->a->nranks && (int32_t)((uint32_t)r->word[i] - wanted) < 0;
    if (likely(!late))
        return true;
    greet_peers(r);
    return await_words(r, wanted);
}

/* By one thread: do the peers run what this rank runs, and ran before? */
DEVICE void compare_calls(const small_run *r, uint32_t last)
{
    UNROLL
    for (uint32_t i = 0; i < PEERS; i++) {
        const uint64_t word = r->word[i];
        const uint32_t theirs = (uint32_t)(word >> 32);
        const bool before = (uint32_t)word == r->w.first - 1;
        const uint32_t mine = before ? last : r->w.fingerprint;
        if (i + 1 >= r->a->nranks || likely(theirs == mine) || theirs == 0 ||
                mine == 0 || (!before && (uint32_t)word != r->w.first))
            continue;
        const block_trouble t = { MOTET_GPU_ERROR_FINGERPRINT, peer_at(r->a, i), word,
            (uint32_t)word | (uint64_t)mine << 32 };
        give_up(r, &t);
    }
}

DEVICE void send_pack(const small_run *r, uint32_t pack, uint64_t data)
{
    const motet_gpu_small_args *a = r->a;
    const uint64_t tag = (uint64_t)r->w.first << 32;
    NO_UNROLL
    for (uint32_t i = 0; i + 1 < a->nranks; i++) {
        const uint32_t p = peer_at(a, i);
        if (!is_in(a->send_mask, p))
            continue;
        if (a->send_stride != 0)
            data = load64(a->send + (uint64_t)p * a->send_stride + r->at + 8ull * pack);
        store_pair_shared(a->to[p] + r->slot + 16ull * pack,
                (pair64){ (uint32_t)data | tag, data >> 32 | tag });
    }
}

/* False: leave. */
DEVICE bool take_line(const small_run *r, uint32_t source, uint32_t pack,
        uint64_t *data_out)
{
    const motet_gpu_small_args *a = r->a;
    const uint8_t *line = motet_gpu_inbox(a->slots, a->hosted, source) + r->slot +
            (uint64_t)source * a->source_stride + 16ull * pack;
    uint32_t spins = 0;
    pair64 v = load_pair_shared(line);
    while ((uint32_t)(v.a >> 32) != r->w.first || (uint32_t)(v.b >> 32) != r->w.first) {
        if (poll_again(r, source, &spins)) {
            wait_is_over(&r->w, spins);
            return false;
        }
        v = load_pair_shared(line);
    }
    wait_is_over(&r->w, spins);
    *data_out = (uint32_t)v.a | v.b << 32;
    return true;
}

/* One pack of every source, in rank order. */
DEVICE bool take_pack(int type, const small_run *r, uint32_t pack, uint64_t own)
{
    const motet_gpu_small_args *a = r->a;
    const uint64_t at = r->at + 8ull * pack;
    wide acc = { { 0 } };
    bool first = true;
    NO_UNROLL
    for (uint32_t source = 0; source < a->nranks; source++) {
        uint64_t data = own;
        if (!is_in(a->recv_mask, source))
            continue;
        if (source != a->rank && !take_line(r, source, pack, &data))
            return false;
        if (type == NO_TYPE) {
            store64(a->recv + (uint64_t)source * a->recv_stride + at, data);
            continue;
        }
        wide next = widen(type, bits_of_pack(data), 1);
        if (first)
            acc = next;
        else
            combine(type, MOTET_SUM, &acc, &next);
        first = false;
    }
    if (!first)
        store64(a->recv + at, finish_pack(type, a->redop, a->nranks, &acc, false, 0));
    return true;
}

/* Send all packs of this thread, then take all. False: leave. */
DEVICE bool move(int type, const small_run *r, uint64_t first, const uint8_t *own)
{
    const uint32_t step = r->w.threads;
    bool stay = await_credit(r);
    NO_UNROLL
    for (uint32_t p = r->w.thread; 8 * p < r->bytes && stay; p += step)
        send_pack(r, p,
                p == r->w.thread || r->a->send_stride != 0 || own == NULL
                        ? first
                        : load64(own + 8ull * p));
    greet_peers(r);
    NO_UNROLL
    for (uint32_t p = r->w.thread; 8 * p < r->bytes && stay; p += step)
        stay = take_pack(type, r, p,
                own == NULL                ? 0
                        : p == r->w.thread ? first
                                           : load64(own + 8ull * p));
    return stay;
}

/* What a thread asks for before it knows anything; the entry's barrier is the exit's. */
DEVICE void exchange(const motet_gpu_small_args *a, uint32_t block, int type)
{
    uint8_t *state = a->state + (uint64_t)block * sizeof(motet_gpu_state);
    small_run r = { .a = a, .at = block * a->each };
    const pair64 was = load_pair_shared(state);
    r.w = watch_of(a->control, state, a->lines, a->hosted,
            (uint64_t)block * a->line_stride, block);
    r.w.steps = 1;
    r.w.fingerprint = a->fingerprint;
    UNROLL
    for (uint32_t i = 0; i < PEERS; i++)
        if (i + 1 < a->nranks)
            r.word[i] = load64_shared(line_in(&r.w, peer_at(a, i)));
    const uint64_t mark = unique_mark();
    if (r.w.thread == 0)
        store64_shared(state + offsetof(motet_gpu_state, mark), mark);
    r.bytes = r.at >= a->bytes          ? 0
            : a->bytes - r.at < a->each ? a->bytes - r.at
                                        : a->each;
    const uint8_t *own =
            a->own_offset == MOTET_GPU_NO_OWN ? NULL : a->send + a->own_offset + r.at;
    uint64_t first = 0;
    if (own != NULL && 8 * r.w.thread < r.bytes)
        first = load64(own + 8ull * r.w.thread);
    r.w.first = (uint32_t)was.a;
    r.slot = (uint64_t)(block * MOTET_LL_SLOTS + r.w.first % MOTET_LL_SLOTS) *
            a->slot_stride;
    const bool open = (uint32_t)(was.b >> 32) == 0;
    if (likely(open)) {
        bool stay = move(type, &r, first, own);
        if (r.w.thread == 0 && stay)
            compare_calls(&r, (uint32_t)was.b);
        const bool alone = r.w.thread != 0 || is_alone(state, r.w.first, mark);
        block_sync();
        const uint64_t slot = (uint64_t)block * MOTET_LL_SLOTS * a->slot_stride;
        uint8_t *const slots[] = { a->slots[0] + slot, a->slots[1] + slot };
        advance(&r.w, state, slots, a->slot_stride, (uint32_t)(was.a >> 32));
        if (unlikely(!alone)) {
            const block_trouble t = { MOTET_GPU_ERROR_OVERLAP, a->rank, r.w.first,
                r.w.first };
            give_up(&r, &t);
        }
    }
    if (a->ticket != 0 && r.w.thread == 0)
        store32_shared(&a->control->done[block], a->ticket);
}

KERNEL(motet_small_copy, motet_gpu_small_args, exchange, NO_TYPE)
KERNEL(motet_small_f32, motet_gpu_small_args, exchange, MOTET_FLOAT32)
KERNEL(motet_small_f16, motet_gpu_small_args, exchange, MOTET_FLOAT16)
KERNEL(motet_small_bf16, motet_gpu_small_args, exchange, MOTET_BFLOAT16)
