/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zero-copy: ranks tell each other where their buffers lie in the communicator's windows,
 * and with that, that they have come: until then nobody touches them. It takes the first
 * position of an operation, in which each offer is three LL lines: send, recv, and the
 * factor of PREMUL_SUM.
 *
 * Reuse, as in ll.c: slot q mod 2 of a peer is filled when it has read q − 2, which its
 * progress word says.
 */
#ifndef MOTET_KERNELS_GPU_OFFERS_H
#define MOTET_KERNELS_GPU_OFFERS_H

#include "kernels/gpu/lines.h"

/** A peer's buffers, as this rank has them mapped; 0: in no window. */
typedef struct peer_buffers {
    uint64_t send, recv, factor;
} peer_buffers;

BLOCK_SHARED peer_buffers buffers_of[MOTET_GPU_RANKS];

#define OFFER_LINES 3u
#define OFFER_SHIFT 48

/* A window and an offset in it as one word; 0 for what is no window or lies askew. */
DEVICE uint64_t offer_word(uint32_t window, uint64_t offset)
{
    return window == 0 || offset % 16 != 0 ? 0
                                           : (uint64_t)window << OFFER_SHIFT | offset;
}

DEVICE uint64_t address_of(const motet_gpu_args *a, uint32_t p, uint64_t offer)
{
    if (offer == 0)
        return 0;
    return load64(motet_gpu_window_at(a->own, &a->layout,
                   (uint32_t)(offer >> OFFER_SHIFT), p)) +
            (offer & ((1ull << OFFER_SHIFT) - 1));
}

DEVICE void send_offer(const run *r, uint32_t p, uint64_t slot, uint64_t factor)
{
    const motet_gpu_args *a = r->args;
    uint8_t *line = a->arena[p] + lines_of(r, slot, a->rank);
    send_line(line, offer_word(a->send_window, a->send_offset), r->w.first);
    send_line(line + 16, offer_word(a->recv_window, a->recv_offset), r->w.first);
    send_line(line + 32, factor, r->w.first);
}

DEVICE bool take_offer(const run *r, uint32_t p, uint64_t slot)
{
    uint64_t word[OFFER_LINES] = { 0 };
    UNROLL
    for (uint32_t i = 0; i < OFFER_LINES; i++)
        if (!take_line(r, lines_of(r, slot, p) + 16 * i, p, r->w.first, &word[i]))
            return false;
    buffers_of[p].send = address_of(r->args, p, word[0]);
    buffers_of[p].recv = address_of(r->args, p, word[1]);
    buffers_of[p].factor = word[2];
    return true;
}

/* Tell `to`, hear from `from`; one thread for each. Then buffers_of holds what `from`
 * said, for all threads. False: leave. */
DEVICE bool exchange_offers(run *r, uint32_t to, uint32_t from, uint64_t factor)
{
    const motet_gpu_args *a = r->args;
    const uint64_t slot = motet_gpu_ll_offset(&a->layout, r->w.block, r->w.first, 0);
    bool stay = !r->failed;
    NO_UNROLL
    for (uint32_t p = r->w.thread; stay && p < a->nranks; p += r->w.threads) {
        if (!is_in(to, p))
            continue;
        stay = wait_progress(r, p, r->w.first - (MOTET_LL_SLOTS - 1));
        if (stay)
            send_offer(r, p, slot, factor);
    }
    NO_UNROLL
    for (uint32_t p = r->w.thread; stay && p < a->nranks; p += r->w.threads)
        if (is_in(from, p))
            stay = take_offer(r, p, slot);
    return meet(r);
}

/* After exchange_offers(): who of `mask` receives in a window. */
DEVICE uint32_t receivers_in_windows(const run *r, uint32_t mask)
{
    uint32_t in = 0;
    NO_UNROLL
    for (uint32_t p = 0; p < r->args->nranks; p++)
        if (is_in(mask, p) && buffers_of[p].recv != 0)
            in |= 1u << p;
    return in;
}

DEVICE bool receives_in_window(const motet_gpu_args *a)
{
    return offer_word(a->recv_window, a->recv_offset) != 0;
}

/* Do all ranks, of which all have told all, send from and receive in windows? */
DEVICE bool all_in_windows(const run *r)
{
    const motet_gpu_args *a = r->args;
    bool all = receives_in_window(a) && offer_word(a->send_window, a->send_offset) != 0;
    NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++)
        if (p != a->rank)
            all = all && buffers_of[p].send != 0 && buffers_of[p].recv != 0;
    return all;
}

#endif
