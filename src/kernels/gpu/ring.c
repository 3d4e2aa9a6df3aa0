/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beside copies through ring slots: the flags of a send and a receive, and what is not
 * left to a copy engine.
 *
 * A rank fills ring slots of its own arena, its readers empty them. For a message the pair
 * has a line and a state of its own, behind those of its blocks: kernels and copies move
 * messages of one pair at the same time.
 *
 * Reuse. A message's slots are numbered from its beginning. Its first ones are filled when
 * the receiver has said that it is there, and so has read what there was before; slot n
 * when n − MOTET_RING_SLOTS was read.
 */
#include "kernels/gpu/counts.h"
#include "kernels/gpu/slots.h"

/* What one rank tells and awaits: words of the pair's line here and there. */
typedef struct pair_words {
    uint8_t *state;
    uint8_t *told, *told_size;
    uint8_t *awaited, *awaited_size;
    uint32_t count;
} pair_words;

DEVICE pair_words words_of(const motet_gpu_pair_flag_args *f)
{
    const motet_gpu_args *a = &f->op;
    const uint32_t block = a->layout.pair_blocks;
    uint8_t *here =
            motet_gpu_pair_line_at(motet_gpu_inbox(a->inbox, a->hosted, f->peer),
                    &a->layout, block, f->peer);
    uint8_t *there =
            motet_gpu_pair_line_at(a->arena[f->peer], &a->layout, block, a->rank);
    const uint64_t published = offsetof(motet_gpu_pair_line, published),
                   taken = offsetof(motet_gpu_pair_line, taken);
    pair_words w = { .state = motet_gpu_pair_state_at(a->own, &a->layout, block,
                             f->peer) };
    if (f->receive != 0)
        w.state += offsetof(motet_gpu_pair_state, received);
    w.count = load32_shared(w.state);
    w.told = there + (f->receive != 0 ? taken : published);
    w.told_size = message_word(there, w.count);
    w.awaited = here + (f->receive != 0 ? published : taken);
    w.awaited_size = message_word(here, w.count);
    return w;
}

/* False: leave. */
DEVICE bool pass(watch *w, const motet_gpu_pair_flag_args *f, const pair_words *p)
{
    if (f->told != 0) {
        if (f->sizes != 0 && f->receive == 0 && w->thread == 0)
            store64_shared(p->told_size, f->op.bytes);
        tell_count(w, p->told, p->count + f->told);
    }
    if (f->awaited != 0 && !await_count(w, f->peer, p->awaited, p->count + f->awaited))
        return false;
    return f->sizes == 0 || f->receive == 0 || f->awaited == 0 ||
            is_as_long(w, f->peer, p->awaited_size, f->op.bytes);
}

DEVICE void pair_flag(const motet_gpu_pair_flag_args *f, uint32_t block, bool unused)
{
    (void)unused;
    const motet_gpu_args *a = &f->op;
    watch w = watch_of(a->control, motet_gpu_state_at(a->own, block), a->inbox,
            a->hosted, motet_gpu_line_offset(&a->layout, block, 0), block);
    const pair_words words = words_of(f);
    w.place = f->place;
    begin_rounds(&w);
    if (w.thread == 0 &&
            load32_shared(w.state + offsetof(motet_gpu_state, closed)) != 0)
        must_leave(&w, MOTET_GPU_OK, 0, 0, 0);
    block_sync();
    const bool stay = !end_round(&w) && pass(&w, f, &words);
    if (w.thread != 0)
        return;
    if (stay && f->ends != 0)
        store32_shared(words.state, words.count + f->ends);
    if (!stay) {
        report(&w);
        store32_shared(motet_gpu_state_at(a->own, block) +
                        offsetof(motet_gpu_state, closed),
                1);
    }
    if (a->ticket != 0)
        store32_shared(&a->control->done[block], a->ticket);
}

/* ---- In place of a copy ----------------------------------------------------------------- */

BLOCK_SHARED uint32_t closed_here;

/* Alike for all threads of the block. */
DEVICE bool is_closed(const motet_gpu_args *a)
{
    if (thread_index() == 0)
        store_block_word(&closed_here,
                load32_shared(motet_gpu_state_at(a->own, 0) +
                        offsetof(motet_gpu_state, closed)));
    block_sync();
    return load_block_word(&closed_here) != 0;
}

DEVICE void make_copies(const motet_gpu_ring_args *g, uint32_t first, uint32_t count,
        uint32_t block)
{
    NO_UNROLL
    for (uint32_t i = first; i < first + count; i++) {
        const motet_gpu_ring_copy *c = &g->copy[i];
        const share part = share_of(c->bytes, g->op.blocks, block, 1u << 30);
        NO_UNROLL
        for (uint32_t s = 0; s < part.steps; s++) {
            const uint64_t at = part.at + (uint64_t)s * part.capacity;
            copy_bytes(c->to + at, c->from + at, step_bytes(&part, s));
        }
    }
}

/* All that lies in a slot is one step. */
DEVICE void reduce_ring(const motet_gpu_ring_args *g, uint32_t block)
{
    const motet_gpu_args *a = &g->op;
    const share part = share_of(a->bytes, a->blocks, block, 1u << 30);
    const run r = {
        .w = watch_of(a->control, motet_gpu_state_at(a->own, 0), a->inbox, a->hosted,
                motet_gpu_line_offset(&a->layout, 0, 0), block),
        .args = a,
    };
    NO_UNROLL
    for (uint32_t p = r.w.thread; p < a->nranks; p += r.w.threads)
        buffers_of[p].send = (uint64_t)(uintptr_t)(a->arena[p] +
                motet_gpu_ring_offset(&a->layout, g->slot, a->rank));
    block_sync();
    const reduction job = {
        .own = a->send + part.at,
        .to = a->recv + part.at,
        .bytes = step_bytes(&part, 0),
        .direct = true,
        .at = part.at,
    };
    reduce_slots(&r, &job);
}

DEVICE void ring_step(const motet_gpu_ring_args *g, uint32_t block, bool unused)
{
    (void)unused;
    const uint32_t half = g->op.blocks;
    const bool reads = block >= half;
    if (is_closed(&g->op))
        return;
    if (!reads)
        make_copies(g, 0, g->fills, block);
    else
        make_copies(g, g->fills, g->reads, block - half);
    if (reads && g->op.recv_mask != 0)
        reduce_ring(g, block - half);
}

KERNEL(motet_pair_flag, motet_gpu_pair_flag_args, pair_flag, false)
KERNEL(motet_ring_step, motet_gpu_ring_args, ring_step, false)
