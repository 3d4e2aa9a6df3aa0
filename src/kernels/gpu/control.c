/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that move no data of a caller's.
 *
 * motet_flag stands between copies that the device's copy engines make: several launches
 * of it, of one block, are one operation at the positions of block 0. It tells that what
 * its stream did before is done, and waits until what comes next may be. It knows its
 * position from memory: a graph may replay it. Launches on two streams may run at the
 * same time: one of them fills and is told what was read, the other the other way round.
 *
 * Reuse. Slots of a ring are numbered from the beginning of an operation. Its first ones
 * are filled when all readers have entered it, and so have read what there was before.
 *
 * motet_litmus lets all ranks exchange args.bytes times as many bytes as args.send_stride
 * says, a slot at most, through staging slots, and counts words that came wrong: the
 * order of data and flag, tried out. Two words of each block at recv + 8·block: how many
 * were wrong, and how many rounds it saw.
 */
#include "kernels/gpu/slots.h"

/* Not by leave(): the operation goes on. */
DEVICE void leave_step(const run *r)
{
    if (r->w.thread != 0)
        return;
    if (r->failed) {
        report(&r->w);
        store32_shared(motet_gpu_state_at(r->args->own, r->w.block) +
                        offsetof(motet_gpu_state, closed),
                1);
    }
    if (r->args->ticket != 0)
        store32_shared(&r->args->control->done[r->w.block], r->args->ticket);
}

DEVICE void flag(const motet_gpu_flag_args *f, uint32_t block, bool unused)
{
    (void)unused;
    run r = enter(&f->op, block, f->steps, ask_state(&f->op, block));
    r.w.place = f->place;
    if (f->first != 0)
        greet(&r);
    tell_slots(&r, r.failed ? 0 : f->filled_mask, r.w.first + f->filled,
            r.failed ? 0 : f->read_mask, r.w.first + f->read);
    (void)await_slots(&r,
            &(slot_wait){ .to = f->credit_mask,
                    .fill = r.w.first + f->credit + (MOTET_STAGE_SLOTS - 1),
                    .from = f->data_mask,
                    .read = r.w.first + f->data - 1 });
    if (f->last != 0)
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
        const uint8_t *slot = inbox_of(r, p) + slot_at(r, position, p);
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

KERNEL(motet_flag, motet_gpu_flag_args, flag, false)
KERNEL(motet_litmus, motet_gpu_args, litmus, false)
