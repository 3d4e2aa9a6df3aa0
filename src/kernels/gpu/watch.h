/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting that ends: what a block looks at while it spins, how it tells the host that it
 * waits, and how all its threads leave together.
 *
 * Waits go round by round: in each, the threads that poll look for their words, then all
 * meet at a barrier. A thread that must leave writes the number of its round into a word
 * of the block; all read it after the barrier, and a round is over for everybody before
 * one may write the next number. So all leave at the same barrier.
 */
#ifndef MOTET_KERNELS_GPU_WATCH_H
#define MOTET_KERNELS_GPU_WATCH_H

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/target.h"

/** Polls between two looks at what may end a wait, and a factor for all threads but the
 * first, as the host's word is far away. */
#define SPINS_BEFORE_LOOK 1024u
#define LOOKS_OF_FIRST    16u

typedef struct watch {
    motet_gpu_control *control;
    const uint8_t *state;              /* own, of this block */
    uint8_t *lines[MOTET_GPU_INBOXES]; /* of this block: the peers' progress words */
    uint32_t hosted;
    uint32_t block;
    uint32_t place; /* of control->waiting: the block's, unless launches share one */
    uint32_t thread, threads;
    uint32_t first; /* position of the operation, and how many it takes; 0 steps: */
    uint32_t steps; /* nobody's word is compared                                  */
    uint32_t fingerprint;
    uint32_t round; /* from 1 */
} watch;

/* Of a block that has not looked at its state yet. @p lines of its own begin @p at bytes
 * after those of the arenas. */
DEVICE watch watch_of(motet_gpu_control *control, const uint8_t *state,
        uint8_t *const *lines, uint32_t hosted, uint64_t at, uint32_t block)
{
    return (watch){
        .control = control,
        .state = state,
        .lines = { lines[0] + at, lines[1] + at },
        .hosted = hosted,
        .block = block,
        .place = block,
        .thread = thread_index(),
        .threads = thread_count(),
        .round = 1,
    };
}

/* The round in which the block leaves; 0: it stays. */
BLOCK_SHARED uint32_t leaving;

/* Why. */
typedef struct block_trouble {
    uint32_t error, peer;
    uint64_t theirs, mine; /* words of the peer and of this rank */
} block_trouble;
BLOCK_SHARED block_trouble trouble;

/* Once, by all threads, before the first wait. */
DEVICE void begin_rounds(const watch *w)
{
    if (w->thread == 0) {
        store_block_word(&leaving, 0);
        trouble.error = MOTET_GPU_OK;
    }
    block_sync();
}

DEVICE bool must_go(const watch *w)
{
    return unlikely(load_block_word(&leaving) == w->round);
}

/* By all threads after the round's barrier: whether they leave. */
DEVICE bool end_round(watch *w)
{
    bool go = must_go(w);
    w->round++;
    return go;
}

/* The block leaves when this round is over. A later trouble may take an earlier one's
 * place, or half of it: any is right. */
DEVICE void must_leave(const watch *w, uint32_t error, uint32_t peer, uint64_t theirs,
        uint64_t mine)
{
    trouble.error = error;
    trouble.peer = peer;
    trouble.theirs = theirs;
    trouble.mine = mine;
    store_block_word(&leaving, w->round);
}

/* One thread. The error word goes last: who sees it may read the others. */
DEVICE void report_trouble(const watch *w, const block_trouble *t)
{
    motet_gpu_control *c = w->control;
    if (t->error == MOTET_GPU_OK || load32_shared(&c->error) != MOTET_GPU_OK)
        return;
    store32_shared(&c->error_block, w->block);
    store32_shared(&c->error_peer, t->peer);
    store32_shared(&c->error_position, (uint32_t)t->theirs);
    store64_shared(&c->error_mine, t->mine);
    store64_shared(&c->error_theirs, t->theirs);
    thread_fence();
    store32_shared(&c->error, t->error);
}

/* What a round of waiting ended with. One thread. */
DEVICE void report(const watch *w)
{
    const block_trouble t = { trouble.error, trouble.peer, trouble.theirs,
        trouble.mine };
    report_trouble(w, &t);
}

DEVICE const uint8_t *line_in(const watch *w, uint32_t p)
{
    return motet_gpu_inbox(w->lines, w->hosted, p) +
            (uint64_t)p * sizeof(motet_gpu_line);
}

DEVICE uint64_t own_word(const watch *w)
{
    return w->first | (uint64_t)w->fingerprint << 32;
}

/* Another operation at a position of this one? No fingerprint is that of an arena in
 * which nothing ran yet. */
DEVICE bool differs(const watch *w, uint64_t progress)
{
    uint32_t theirs = (uint32_t)(progress >> 32);
    return unlikely((uint32_t)progress - w->first < w->steps &&
            theirs != w->fingerprint && theirs != 0);
}

/* For the host's watch: the peer that a block waits for, + 1, or 0. */
DEVICE void show_wait(const watch *w, uint32_t peer_plus_1, uint32_t position)
{
    store64_shared(&w->control->waiting[w->place],
            peer_plus_1 | (uint64_t)position << 32);
}

/* Shows the host the wait for peer p. True: this thread must leave, and why. */
DEVICE bool look_around(const watch *w, uint32_t p, uint32_t position,
        block_trouble *why_out)
{
    show_wait(w, p + 1, position);
    uint32_t aborted = load32_shared(&w->control->abort);
    uint32_t closed = load32_shared(w->state + offsetof(motet_gpu_state, closed));
    uint64_t theirs = load64_shared(line_in(w, p));
    *why_out = (block_trouble){ MOTET_GPU_OK, p, position, 0 };
    if (aborted != 0)
        why_out->error = MOTET_GPU_ERROR_ABORTED;
    else if (closed == 0 && differs(w, theirs))
        *why_out =
                (block_trouble){ MOTET_GPU_ERROR_FINGERPRINT, p, theirs, own_word(w) };
    return closed != 0 || why_out->error != MOTET_GPU_OK;
}

/* After so many spins: must this thread leave? */
DEVICE bool look_up(const watch *w, uint32_t p, uint32_t position, uint32_t spins)
{
    block_trouble why;
    if (must_go(w))
        return true;
    if (w->thread != 0 && spins % (SPINS_BEFORE_LOOK * LOOKS_OF_FIRST) != 0)
        return false;
    if (look_around(w, p, position, &why))
        must_leave(w, why.error, p, why.theirs, why.mine);
    return must_go(w);
}

/* One more poll in vain. True: this thread must leave. */
DEVICE bool spin(const watch *w, uint32_t p, uint32_t position, uint32_t *spins)
{
    pause(++*spins);
    return unlikely(*spins % SPINS_BEFORE_LOOK == 0) && look_up(w, p, position, *spins);
}

DEVICE void wait_is_over(const watch *w, uint32_t spins)
{
    if (unlikely(spins >= SPINS_BEFORE_LOOK))
        show_wait(w, 0, 0);
}

#endif
