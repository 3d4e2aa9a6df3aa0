/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce in two halves over staging slots: each rank gets its slice of everybody's
 * message, reduces it, and sends the result to all.
 *
 * Step s takes positions p0 + 2s, for the slices, and p0 + 2s + 1, for the results. Round
 * s takes what the peers sent in round s − 1, and sends the next:
 *
 *   results of step s − 1 to recv;  slices of step s + 1 to their owners;
 *   this rank's slice of step s, reduced, to recv and to all.
 *
 * So in each round everything up to position p0 + 2s is read, and up to p0 + 2s + 2
 * filled: both in order, and no more than S − 1 ahead.
 *
 * If all ranks' buffers lie in windows (offers.h, one position before p0), a rank reads
 * the others' slices where they are and writes the results where they belong. One more
 * position says that it is done with that: nobody leaves before all are, so that results
 * are there and what was sent may change. Each element is read and written by one rank
 * only, in place, too.
 */
#include "kernels/gpu/slots.h"

/* Of the message; all ranks see the same. */
typedef struct slices {
    uint64_t bytes; /* of the message                                  */
    uint64_t each;  /* of a slice; the last ones may be shorter        */
    share part;     /* this block's of a whole slice                   */
    uint64_t factor;
    bool scaled, direct;
} slices;

/* Where step s of slice j begins in the message; its bytes. */
typedef struct piece {
    uint64_t at;
    uint32_t bytes;
} piece;

DEVICE piece piece_of(const slices *m, uint32_t slice, uint32_t s)
{
    const uint64_t in_slice = m->part.at + (uint64_t)s * m->part.capacity;
    piece p = { .at = slice * m->each + in_slice, .bytes = step_bytes(&m->part, s) };
    if (p.at >= m->bytes)
        p.bytes = 0;
    else if (p.bytes > m->bytes - p.at)
        p.bytes = (uint32_t)(m->bytes - p.at);
    return p;
}

DEVICE void scatter(const run *r, const slices *m, uint32_t s)
{
    const motet_gpu_args *a = r->args;
    const uint64_t slot = slot_at(r, r->base + 2 * s, a->rank);
    NO_UNROLL
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = peer_after(a, i);
        const piece from = piece_of(m, p, s);
        copy_bytes(a->arena[p] + slot, a->send + from.at, from.bytes);
        if (m->scaled && r->w.thread == 0)
            store64(a->arena[p] + slot + a->layout.chunk - SLOT_FACTOR_BYTES,
                    m->factor);
    }
}

DEVICE void reduce_own(const run *r, const slices *m, uint32_t s)
{
    const motet_gpu_args *a = r->args;
    const piece mine = piece_of(m, a->rank, s);
    const reduction job = {
        .own = a->send + mine.at,
        .slots = slot_at(r, r->base + 2 * s, 0),
        .to = a->recv + mine.at,
        .bias = a->bias != NULL ? a->bias + mine.at : NULL,
        .bytes = mine.bytes,
        .push_mask = a->send_mask,
        .push = slot_at(r, r->base + 2 * s + 1, a->rank),
        .factor = m->factor,
        .scaled = m->scaled,
        .direct = m->direct,
        .at = mine.at,
    };
    reduce_slots(r, &job);
}

DEVICE void gather(const run *r, const slices *m, uint32_t s)
{
    const motet_gpu_args *a = r->args;
    NO_UNROLL
    for (uint32_t source = 0; source < a->nranks; source++) {
        const piece to = piece_of(m, source, s);
        if (source != a->rank)
            copy_bytes(a->recv + to.at,
                    inbox_of(r, source) + slot_at(r, r->base + 2 * s + 1, source),
                    to.bytes);
    }
}

/* One round, and whether there may be another. */
DEVICE bool run_round(run *r, const slices *m, uint32_t s)
{
    const uint32_t steps = m->part.steps, peers = r->args->send_mask;
    const uint32_t at = r->base + 2 * s, filled = s + 1 < steps ? at + 2 : at + 1;
    if (!m->direct &&
            !await_slots(r,
                    &(slot_wait){ .to = s < steps ? peers : 0,
                            .fill = filled,
                            .from = peers,
                            .read = s < steps ? at : at - 1 }))
        return false;
    if (s < steps)
        reduce_own(r, m, s);
    if (m->direct)
        return s + 1 < steps;
    if (s + 1 < steps)
        scatter(r, m, s + 1);
    if (s > 0)
        gather(r, m, s - 1);
    if (s < steps)
        tell_slots(r, peers, filled + 1, peers, at + 1);
    return s < steps;
}

/* What comes before the first round. False: leave. */
DEVICE bool scatter_first(run *r, const slices *m)
{
    const uint32_t peers = r->args->send_mask;
    if (!await_slots(r, &(slot_wait){ .to = peers, .fill = r->base }))
        return false;
    scatter(r, m, 0);
    tell_slots(r, peers, r->base + 1, 0, 0);
    return true;
}

/* Positions of the operation, and the parts of blocks, follow from where buffers lie. */
DEVICE bool look_for_windows(run *r, slices *m)
{
    const motet_gpu_args *a = r->args;
    if (a->offers != 0) {
        if (!exchange_offers(r, a->send_mask, a->send_mask, m->factor))
            return false;
        m->direct = all_in_windows(r);
        r->base++;
    }
    const uint32_t slot = a->layout.chunk - (m->scaled ? SLOT_FACTOR_BYTES : 0);
    m->part = share_of(m->each, a->blocks, r->w.block, m->direct ? 1u << 30 : slot);
    r->w.steps = r->base - r->w.first + (m->direct ? 1 : 2 * m->part.steps);
    return true;
}

DEVICE void twoshot(const motet_gpu_args *a, uint32_t block, bool unused)
{
    (void)unused;
    const pair64 state = ask_state(a, block);
    slices m = { .bytes = a->bytes, .scaled = a->redop == MOTET_PREMUL_SUM };
    m.each = round_up((a->bytes + a->nranks - 1) / a->nranks, 16);
    if (m.scaled)
        m.factor = own_factor(a, element_bytes((int)a->type));
    run r = enter(a, block, 1, state);
    greet(&r);
    bool stay = look_for_windows(&r, &m);
    if (stay && !m.direct)
        stay = scatter_first(&r, &m);
    NO_UNROLL
    for (uint32_t s = 0; stay; s++)
        stay = run_round(&r, &m, s);
    if (m.direct) {
        tell_slots(&r, a->send_mask, r.base + 1, 0, 0);
        (void)await_slots(&r, &(slot_wait){ .from = a->send_mask, .read = r.base });
    }
    leave(&r);
}

KERNEL(motet_twoshot_reduce, motet_gpu_args, twoshot, false)
