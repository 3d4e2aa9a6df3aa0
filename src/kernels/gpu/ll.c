/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small exchanges: every 4 bytes travel with their tag, so that data needs no flag, and
 * nobody waits for a barrier (LL; gpu.h has the layout).
 *
 * A pack of 8 bytes becomes one 16-byte line of two words, each whole by itself. Thread t
 * sends packs t, t + threads … of a step to its peers' slots, then takes those with the
 * same numbers from its own slots. Threads and blocks are as many on all ranks.
 *
 * Reuse. Slot q mod 2 of a peer may be filled when it has read position q − 2. At entry
 * its progress word says so. After that, if the peer sends to this rank too, its thread t
 * has read pack t of q − 2 before it sent pack t of q − 1, which this rank's thread t has
 * read before it fills q. Of a peer that sends nothing, and where lines are read by all
 * threads (PREMUL_SUM's factor), the progress word is needed at each step: `careful`.
 *
 * The factor of PREMUL_SUM travels as the last 16 bytes of each slot's payload.
 */
#include "kernels/gpu/lines.h"
#include "kernels/gpu/types.h"

/* Sources that are polled together. */
#define GROUP        4
#define FACTOR_BYTES 16u

typedef struct ll_run {
    run run;
    share part;
    uint64_t factor; /* this rank's */
    uint32_t credit; /* peers whose progress word is looked at before each step */
    bool scaled;     /* factors travel */
    bool careful;
} ll_run;

/* One step: where it lies in its piece, in the slots, in time. */
typedef struct ll_step {
    uint64_t at;
    uint32_t bytes, position;
    uint64_t slot; /* offset of source 0's lines in an arena */
} ll_step;

DEVICE ll_step step_of(const ll_run *l, uint32_t s)
{
    const run *r = &l->run;
    ll_step step = {
        .at = l->part.at + (uint64_t)s * l->part.capacity,
        .bytes = step_bytes(&l->part, s),
        .position = r->w.first + s,
    };
    step.slot = motet_gpu_ll_offset(&r->args->layout, r->w.block, step.position, 0);
    return step;
}

DEVICE uint32_t pack_bytes(const ll_step *s, uint32_t pack)
{
    uint32_t left = s->bytes - 8 * pack;
    return left < 8 ? left : 8;
}

/* ---- Sending -------------------------------------------------------------------------- */

DEVICE void send_pack(const ll_run *l, const ll_step *s, uint32_t pack, uint64_t data,
        bool have_data)
{
    const motet_gpu_args *a = l->run.args;
    const uint8_t *from = a->send + s->at + 8ull * pack;
    const uint64_t line = lines_of(&l->run, s->slot, a->rank) + 16ull * pack;
    const uint32_t n = pack_bytes(s, pack);
    NO_UNROLL
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = peer_after(a, i);
        if (!is_in(a->send_mask, p))
            continue;
        if (!have_data)
            data = load_some64(from + p * a->send_stride, n);
        have_data = a->send_stride == 0;
        send_line(a->arena[p] + line, data, s->position);
    }
}

DEVICE void send_step(const ll_run *l, const ll_step *s, uint64_t first,
        bool have_first)
{
    const run *r = &l->run;
    const motet_gpu_args *a = r->args;
    NO_UNROLL
    for (uint32_t pack = r->w.thread; 8 * pack < s->bytes; pack += r->w.threads)
        send_pack(l, s, pack, first, have_first && pack == r->w.thread);
    if (!l->scaled || r->w.thread != 0)
        return;
    const uint64_t line = lines_of(r, s->slot, a->rank) + 2ull * l->part.capacity;
    for (uint32_t p = 0; p < a->nranks; p++)
        if (is_in(a->send_mask, p) && p != a->rank)
            send_line(a->arena[p] + line, l->factor, s->position);
}

/* ---- Taking --------------------------------------------------------------------------- */

/* One pack of each source of a group, by name: registers have no index. */
typedef struct group {
    uint64_t d0, d1, d2, d3;
} group;

DEVICE uint64_t pick(const group *v, uint32_t g)
{
    uint64_t low = g % 2 == 0 ? v->d0 : v->d1;
    uint64_t high = g % 2 == 0 ? v->d2 : v->d3;
    return g < 2 ? low : high;
}

/* False, here and below: leave.
 *
 * Packs of the same number from sources base … base + GROUP − 1 of the mask: all are
 * asked for before the first is looked at. */
DEVICE bool take_group(const run *r, const ll_step *s, uint32_t pack, uint32_t base,
        group *out)
{
    const motet_gpu_args *a = r->args;
    const uint32_t mask = a->recv_mask & ~(1u << a->rank);
    uint32_t spins = 0;
    for (;;) {
        pair64 line[GROUP] = { { 0, 0 } };
        uint32_t missing = GROUP;
        UNROLL
        for (uint32_t g = 0; g < GROUP; g++)
            if (is_in(mask, base + g))
                line[g] = load_pair_shared(inbox_of(r, base + g) +
                        lines_of(r, s->slot, base + g) + 16ull * pack);
        UNROLL
        for (uint32_t g = 0; g < GROUP; g++) {
            if (!is_in(mask, base + g))
                continue;
            if (!line_has(line[g], s->position))
                missing = g;
        }
        if (likely(missing == GROUP)) {
            *out = (group){ line_data(line[0]), line_data(line[1]), line_data(line[2]),
                line_data(line[3]) };
            wait_is_over(&r->w, spins);
            return true;
        }
        if (spin(&r->w, base + missing, s->position, &spins)) {
            wait_is_over(&r->w, spins);
            return false;
        }
    }
}

DEVICE bool take_factor(const ll_run *l, const ll_step *s, uint32_t source,
        uint64_t *factor_out)
{
    *factor_out = l->factor;
    if (source == l->run.args->rank)
        return true;
    return take_line(&l->run,
            lines_of(&l->run, s->slot, source) + 2ull * l->part.capacity, source,
            s->position, factor_out);
}

/* One pack of every source, in rank order. */
DEVICE bool take_pack(bool reduces, const ll_run *l, const ll_step *s, uint32_t pack)
{
    const run *r = &l->run;
    const motet_gpu_args *a = r->args;
    const int type = (int)a->type;
    const uint32_t bytes = pack_bytes(s, pack);
    const uint64_t at = s->at + 8ull * pack;
    const bool own = is_in(a->recv_mask, a->rank);
    const uint64_t mine =
            own ? load_some64(a->send + a->rank * a->send_stride + at, bytes) : 0;
    group data = { 0, 0, 0, 0 };
    wide acc = { { 0 } };
    bool first = true;
    NO_UNROLL
    for (uint32_t source = 0; source < a->nranks; source++) {
        if (source % GROUP == 0 && !take_group(r, s, pack, source, &data))
            return false;
        if (!is_in(a->recv_mask, source))
            continue;
        uint64_t bits = source == a->rank ? mine : pick(&data, source % GROUP);
        if (!reduces) {
            store_some64(a->recv + source * a->recv_stride + at, bits, bytes);
            continue;
        }
        wide next = widen(type, bits_of_pack(bits), 1);
        if (unlikely(l->scaled)) {
            uint64_t factor = 0;
            if (!take_factor(l, s, source, &factor))
                return false;
            scale(type, &next, factor);
        }
        if (first)
            acc = next;
        else
            combine(type, a->redop, &acc, &next);
        first = false;
    }
    if (first)
        return true;
    const bool biased = a->bias != NULL;
    uint64_t bias = biased ? load_some64(a->bias + at, bytes) : 0;
    uint64_t out = finish_pack(type, a->redop, a->nranks, &acc, biased, bias);
    store_some64(a->recv + at, out, bytes);
    return true;
}

DEVICE bool take_step(bool reduces, const ll_run *l, const ll_step *s)
{
    const run *r = &l->run;
    NO_UNROLL
    for (uint32_t pack = r->w.thread; 8 * pack < s->bytes; pack += r->w.threads)
        if (!take_pack(reduces, l, s, pack))
            return false;
    return true;
}

/* ---- The whole ------------------------------------------------------------------------- */

/* Lines that all read, or that nobody acknowledges by sending: the step is over when all
 * threads have read, and the peers are told. */
DEVICE bool end_careful_step(ll_run *l, uint32_t next)
{
    block_release();
    l->run.failed = end_round(&l->run.w);
    if (l->run.failed)
        return false;
    flag_fence();
    say_progress(&l->run, l->run.args->recv_mask, next);
    return true;
}

/* The first peers' progress words, loaded before anything is known. */
typedef struct early {
    uint64_t word[GROUP];
} early;

DEVICE early load_early(const motet_gpu_args *a, uint32_t block)
{
    early e = { { 0 } };
    UNROLL
    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t p = peer_after(a, i + 1);
        if (i + 1 < a->nranks)
            e.word[i] = load64_shared(motet_gpu_inbox(a->inbox, a->hosted, p) +
                    motet_gpu_line_offset(&a->layout, block, p));
    }
    return e;
}

/* Have all that this rank sends to read the position of two steps before? */
DEVICE bool await_credit(const ll_run *l, const early *e, uint32_t step)
{
    const run *r = &l->run;
    const motet_gpu_args *a = r->args;
    const uint32_t position = r->w.first + step - (MOTET_LL_SLOTS - 1);
    const uint32_t mask = step == 0 ? a->send_mask & ~(1u << a->rank) : l->credit;
    bool late = a->nranks > GROUP + 1 || step != 0;
    UNROLL
    for (uint32_t i = 0; i < GROUP; i++)
        late |= i + 1 < a->nranks && (int32_t)((uint32_t)e->word[i] - position) < 0;
    NO_UNROLL
    for (uint32_t p = 0; p < a->nranks && late; p++)
        if (is_in(mask, p) && !wait_progress(r, p, position))
            return false;
    return true;
}

DEVICE void exchange(const motet_gpu_args *a, uint32_t block, bool reduces)
{
    const pair64 state = ask_state(a, block);
    const early words = load_early(a, block);
    ll_run l = { .scaled = reduces && a->redop == MOTET_PREMUL_SUM };
    l.part = share_of(a->bytes, a->blocks, block,
            a->layout.ll_bytes - (l.scaled ? FACTOR_BYTES : 0));
    const uint32_t first_bytes = step_bytes(&l.part, 0), thread = thread_index();
    const bool have_first =
            a->send_mask != 0 && a->send_stride == 0 && 8 * thread < first_bytes;
    uint64_t first = 0;
    if (have_first) {
        uint32_t left = first_bytes - 8 * thread;
        first = load_some64(a->send + l.part.at + 8ull * thread, left < 8 ? left : 8);
    }
    l.run = enter(a, block, l.part.steps, state);
    greet(&l.run);
    l.credit = others_in(&l.run, a->send_mask) & (l.scaled ? ~0u : ~a->recv_mask);
    l.careful = l.scaled || (others_in(&l.run, a->recv_mask) & ~a->send_mask) != 0;
    if (l.scaled)
        l.factor = own_factor(a, element_bytes((int)a->type));
    bool stay = !l.run.failed;
    for (uint32_t i = 0; i < l.part.steps && !l.run.failed; i++) {
        const ll_step s = step_of(&l, i);
        stay = stay && await_credit(&l, &words, i);
        if (stay)
            send_step(&l, &s, first, have_first && i == 0);
        stay = stay && take_step(reduces, &l, &s);
        if (l.careful && i + 1 < l.part.steps)
            stay = end_careful_step(&l, s.position + 1);
        else if (!stay)
            break;
    }
    leave(&l.run);
}

KERNEL(motet_ll_copy, motet_gpu_args, exchange, false)
KERNEL(motet_ll_reduce, motet_gpu_args, exchange, true)
