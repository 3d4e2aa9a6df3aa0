/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that move no data of a caller's.
 *
 * motet_set_flag and motet_wait_flag, of one block each, stand between copies that the
 * device's copy engines make. Together they are one operation of args.send_stride steps
 * at the positions of block 0. Step args.bytes of it: set says to all in send_mask that
 * what its stream did before is done; wait waits for all in recv_mask to have said so.
 * Steps go in order, a wait may be behind its set, and the wait of the last step ends the
 * operation. They know their position from memory: a graph may replay them.
 *
 * motet_litmus lets all ranks exchange args.bytes times as many bytes as args.send_stride
 * says, a slot at most, through staging slots, and counts words that came wrong: the
 * order of data and flag, tried out. Two words of each block at recv + 8·block: how many
 * were wrong, and how many rounds it saw.
 */
#include "kernels/gpu/slots.h"

DEVICE uint32_t steps_of(const motet_gpu_args *a)
{
    return (uint32_t)a->send_stride;
}

/* Not by leave(): the operation goes on. */
DEVICE void leave_step(const run *r)
{
    const motet_gpu_args *a = r->args;
    if (r->failed && r->w.thread == 0)
        report(&r->w);
    if (a->ticket != 0 && r->w.thread == 0)
        store32_shared(&a->control->done[r->w.block], a->ticket);
}

DEVICE void set_flag(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    run r = enter(a, block, steps_of(a), ask_state(a, block));
    if (a->bytes == 0)
        greet(&r);
    if (!r.failed) {
        thread_fence();
        say_published(&r, a->send_mask, r.w.first + (uint32_t)a->bytes + 1);
    }
    leave_step(&r);
}

DEVICE void wait_flag(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    run r = enter(a, block, steps_of(a), ask_state(a, block));
    const slot_wait wait = { .from = others_in(&r, a->recv_mask),
        .read = r.w.first + (uint32_t)a->bytes };
    bool stay = await_slots(&r, &wait);
    if (stay && a->bytes + 1 == a->send_stride)
        leave(&r);
    else
        leave_step(&r);
}

/* ---- Litmus --------------------------------------------------------------------------- */

BLOCK_SHARED uint32_t wrong_words[MOTET_GPU_THREADS];

/* Unlike in every round, rank and place. */
DEVICE uint32_t litmus_word(uint32_t rank, uint32_t position, uint32_t at)
{
    uint32_t h = (position * 0x9e3779b1u) ^ (rank << 28) ^ at;
    h = (h ^ (h >> 15)) * 0x85ebca6bu;
    return h ^ (h >> 13);
}

DEVICE void litmus_send(const run *r, uint32_t position)
{
    const motet_gpu_args *a = r->args;
    const uint64_t slot = slot_at(r, position, a->rank);
    NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++) {
        if (!is_in(a->send_mask, p) || p == a->rank)
            continue;
        NO_UNROLL
        for (uint32_t at = 4 * r->w.thread; at < a->send_stride; at += 4 * r->w.threads)
            store32(a->arena[p] + slot + at, litmus_word(a->rank, position, at));
    }
}

DEVICE uint32_t litmus_check(const run *r, uint32_t position)
{
    const motet_gpu_args *a = r->args;
    uint32_t wrong = 0;
    NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++) {
        const uint8_t *slot = r->arena + slot_at(r, position, p);
        if (!is_in(a->recv_mask, p) || p == a->rank)
            continue;
        NO_UNROLL
        for (uint32_t at = 4 * r->w.thread; at < a->send_stride; at += 4 * r->w.threads)
            if (load32(slot + at) != litmus_word(p, position, at))
                wrong++;
    }
    return wrong;
}

DEVICE void litmus(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    run r = enter(a, block, (uint32_t)a->bytes, ask_state(a, block));
    uint32_t wrong = 0, round = 0;
    greet(&r);
    NO_UNROLL
    for (; round < r.w.steps; round++) {
        const uint32_t q = r.w.first + round;
        const slot_wait fill = { .to = others_in(&r, a->send_mask), .fill = q };
        const slot_wait read = { .from = others_in(&r, a->recv_mask), .read = q };
        if (!await_slots(&r, &fill))
            break;
        litmus_send(&r, q);
        tell_slots(&r, fill.to, q + 1, 0, 0);
        if (!await_slots(&r, &read))
            break;
        wrong += litmus_check(&r, q);
        tell_slots(&r, 0, 0, read.from, q + 1);
    }
    wrong_words[r.w.thread % MOTET_GPU_THREADS] = wrong;
    block_sync();
    if (r.w.thread == 0) {
        wrong = 0;
        NO_UNROLL
        for (uint32_t t = 0; t < r.w.threads; t++)
            wrong += wrong_words[t];
        store32(a->recv + 8ull * block, wrong);
        store32(a->recv + 8ull * block + 4, round);
    }
    leave(&r);
}

KERNEL(motet_set_flag, motet_gpu_args, set_flag, false)
KERNEL(motet_wait_flag, motet_gpu_args, wait_flag, false)
KERNEL(motet_litmus, motet_gpu_args, litmus, false)
