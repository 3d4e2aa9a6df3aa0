/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange of gpu.h over staging slots: chunks of plain stores, then a flag.
 *
 * Step s is sent AHEAD rounds before step s of the peers is taken, so that a flag has
 * that long to arrive. In a round the block waits once, moves both, and tells once; it
 * needs of a peer no more than what the peer did AHEAD rounds before, so nobody waits
 * for somebody who waits for him.
 *
 * Where a receiver's buffer lies in a window (offers.h), copies go straight there; its
 * slots stay unused. If that is so for all that a rank sends to, it copies all at once,
 * and tells once. Its receivers see no difference.
 */
#include "kernels/gpu/slots.h"

#define AHEAD 2u

/* This rank's pieces into its peers' slots, or into the buffers of those in `direct`; it
 * begins with the rank after it. */
DEVICE void send_step(const run *r, const share *part, uint32_t s, uint32_t direct)
{
    const motet_gpu_args *a = r->args;
    const uint64_t at = part->at + (uint64_t)s * part->capacity;
    const uint64_t slot = slot_at(r, r->base + s, a->rank);
    NO_UNROLL
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = peer_after(a, i);
        if (!is_in(a->send_mask, p))
            continue;
        uint8_t *to = a->arena[p] + slot;
        if (is_in(direct, p))
            to = (uint8_t *)(uintptr_t)buffers_of[p].recv + a->rank * a->recv_stride +
                    at;
        copy_bytes(to, a->send + p * a->send_stride + at, step_bytes(part, s));
    }
}

DEVICE void send_factor(const run *r, uint32_t s, uint64_t factor)
{
    const motet_gpu_args *a = r->args;
    const uint64_t slot = slot_at(r, r->base + s, a->rank);
    NO_UNROLL
    for (uint32_t p = 0; p < a->nranks && r->w.thread == 0; p++)
        if (is_in(others_in(r, a->send_mask), p))
            store64(a->arena[p] + slot + a->layout.chunk - SLOT_FACTOR_BYTES, factor);
}

/* From slots to their places, of the sources in `mask`. */
DEVICE void copy_step(const run *r, const share *part, uint32_t s, uint32_t mask)
{
    const motet_gpu_args *a = r->args;
    const uint64_t at = part->at + (uint64_t)s * part->capacity;
    NO_UNROLL
    for (uint32_t source = 0; source < a->nranks; source++) {
        if (!is_in(mask, source))
            continue;
        uint8_t *to = a->recv + source * a->recv_stride + at;
        const uint8_t *from = inbox_of(r, source) + slot_at(r, r->base + s, source);
        if (source == a->rank)
            from = a->send + source * a->send_stride + at;
        if (to != from)
            copy_bytes(to, from, step_bytes(part, s));
    }
}

DEVICE void reduce_step(const run *r, const share *part, uint32_t s, bool scaled,
        uint64_t factor)
{
    const motet_gpu_args *a = r->args;
    const uint64_t at = part->at + (uint64_t)s * part->capacity;
    if (a->recv_mask == 0)
        return;
    const reduction job = {
        .own = a->send + a->rank * a->send_stride + at,
        .slots = slot_at(r, r->base + s, 0),
        .to = a->recv + at,
        .bias = a->bias != NULL ? a->bias + at : NULL,
        .bytes = step_bytes(part, s),
        .factor = factor,
        .scaled = scaled,
    };
    reduce_slots(r, &job);
}

/* The rounds of the opening comment. `direct`: peers that are sent to in their buffers; `mask`:
 * sources that are copied. */
DEVICE void run_rounds(run *r, const share *part, bool reduces, uint32_t direct,
        uint32_t mask, uint64_t factor)
{
    const motet_gpu_args *a = r->args;
    const bool scaled = reduces && a->redop == MOTET_PREMUL_SUM;
    const uint32_t ahead = part->steps < AHEAD ? part->steps : AHEAD;
    NO_UNROLL
    for (uint32_t i = 0; i < part->steps + ahead; i++) {
        const bool sends = i < part->steps, takes = i >= ahead;
        const uint32_t s = i - ahead;
        const uint32_t to = sends ? others_in(r, a->send_mask) : 0;
        const uint32_t from = takes ? others_in(r, a->recv_mask) : 0;
        if (!await_slots(r,
                    &(slot_wait){ to & ~direct, r->base + i, from, r->base + s }))
            break;
        if (sends)
            send_step(r, part, i, direct);
        if (sends && scaled)
            send_factor(r, i, factor);
        if (takes && reduces)
            reduce_step(r, part, s, scaled, factor);
        else if (takes)
            copy_step(r, part, s, mask);
        if (i + 1 < part->steps + ahead)
            tell_slots(r, to, r->base + i + 1, from, r->base + s + 1);
    }
}

/* All that this rank sends and receives lies in windows: no rounds, but their positions. */
DEVICE void copy_at_once(run *r, uint32_t steps)
{
    const motet_gpu_args *a = r->args;
    const share part = share_of(a->bytes, a->blocks, r->w.block, 1u << 30);
    NO_UNROLL
    for (uint32_t s = 0; s < part.steps; s++) {
        send_step(r, &part, s, a->send_mask);
        copy_step(r, &part, s, a->recv_mask & 1u << a->rank);
    }
    tell_slots(r, others_in(r, a->send_mask), r->base + steps, 0, 0);
    (void)await_slots(r,
            &(slot_wait){ .from = others_in(r, a->recv_mask),
                    .read = r->base + steps - 1 });
}

DEVICE void copy(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    const pair64 state = ask_state(a, block);
    const share part = share_of(a->bytes, a->blocks, block, a->layout.chunk);
    const uint32_t offering = a->offers != 0 ? 1 : 0;
    run r = enter(a, block, part.steps + offering, state);
    const uint32_t to = others_in(&r, a->send_mask), from = others_in(&r, a->recv_mask);
    uint32_t direct = 0, copied = a->recv_mask;
    bool stay = true;
    greet(&r);
    if (offering != 0) {
        r.base++;
        stay = exchange_offers(&r, from, to, 0);
        direct = stay ? receivers_in_windows(&r, to) : 0;
        if (receives_in_window(a))
            copied &= ~from;
    }
    if (stay && offering != 0 && direct == to && (copied & from) == 0)
        copy_at_once(&r, part.steps);
    else if (stay)
        run_rounds(&r, &part, false, direct, copied, 0);
    leave(&r);
}

DEVICE void reduce(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    const pair64 state = ask_state(a, block);
    const bool scaled = a->redop == MOTET_PREMUL_SUM;
    const share part = share_of(a->bytes, a->blocks, block,
            a->layout.chunk - (scaled ? SLOT_FACTOR_BYTES : 0));
    run r = enter(a, block, part.steps, state);
    greet(&r);
    run_rounds(&r, &part, true, 0, 0,
            scaled ? own_factor(a, element_bytes((int)a->type)) : 0);
    leave(&r);
}

KERNEL(motet_stage_copy, motet_gpu_args, copy, false)
KERNEL(motet_stage_reduce, motet_gpu_args, reduce, false)
