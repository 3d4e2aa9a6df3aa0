/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels over staging slots share: waiting for slots, telling of them, and
 * reducing what lies in them.
 *
 * Reuse. Slot q mod S of a peer is filled when the peer's progress word has reached
 * q − S + 1: all its threads have read position q − S, as it says so after a barrier.
 * A slot is read when its writer's `published` has passed q. That word counts through
 * wraps of the position, as it may stay untouched while others are at work.
 */
#ifndef MOTET_KERNELS_GPU_SLOTS_H
#define MOTET_KERNELS_GPU_SLOTS_H

#include "kernels/gpu/offers.h"
#include "kernels/gpu/types.h"

/** PREMUL_SUM's factor lies at the end of each slot. */
#define SLOT_FACTOR_BYTES 16u

/* Offset of what rank `writer` puts into slot `position` of an arena. */
DEVICE uint64_t slot_at(const run *r, uint32_t position, uint32_t writer)
{
    return motet_gpu_stage_offset(&r->args->layout, r->w.block, position, writer);
}

/* What a round of waiting is for. Masks without this rank; 0: for nothing. */
typedef struct slot_wait {
    uint32_t to; /* whose slots up to position `fill` are to be filled         */
    uint32_t fill;
    uint32_t from; /* whose data, up to position `read`, is to be read           */
    uint32_t read;
} slot_wait;

/* One thread waits for each peer; then all have a barrier. False: leave. */
DEVICE bool await_slots(run *r, const slot_wait *w)
{
    NO_UNROLL
    for (uint32_t p = r->w.thread; p < r->args->nranks; p += r->w.threads) {
        if (r->failed)
            break;
        if (is_in(w->from, p) &&
                !wait_word(r, p, false, count_of(r, w->read + 1), w->read))
            break;
        if (is_in(w->to, p) && !wait_progress(r, p, w->fill - (MOTET_STAGE_SLOTS - 1)))
            break;
    }
    return meet(r);
}

/* After all threads have stored and read: slots of `to` below `filled` are full, and those
 * of `from` below `read` are free. */
DEVICE void tell_slots(const run *r, uint32_t to, uint32_t filled, uint32_t from,
        uint32_t read)
{
    block_release();
    if (r->w.thread >= r->args->nranks || (to | from) == 0)
        return;
    flag_fence();
    say_published(r, to, filled);
    say_progress(r, from, read);
}

/* ---- Reducing -------------------------------------------------------------------------- */

/* One step's worth, from all sources of recv_mask in rank order. */
typedef struct reduction {
    const uint8_t *own; /* this rank's share                                      */
    uint64_t slots;     /* offset of source 0's slot in this rank's arenas        */
    uint8_t *to;
    const uint8_t *bias; /* or NULL                                                */
    uint32_t bytes;
    uint32_t push_mask; /* peers that get the result, too, …                      */
    uint64_t push;      /* … at this offset of their arenas                       */
    uint64_t factor;
    bool scaled;
    bool direct; /* peers' shares and results lie in buffers_of, … */
    uint64_t at; /* … at this offset                               */
} reduction;

DEVICE const uint8_t *source_of(const run *r, const reduction *j, uint32_t source)
{
    if (source == r->args->rank)
        return j->own;
    if (j->direct)
        return (const uint8_t *)(uintptr_t)(buffers_of[source].send + j->at);
    return inbox_of(r, source) + j->slots + (uint64_t)source * r->args->layout.chunk;
}

DEVICE uint8_t *target_of(const run *r, const reduction *j, uint32_t peer)
{
    if (j->direct)
        return (uint8_t *)(uintptr_t)(buffers_of[peer].recv + j->at);
    return r->args->arena[peer] + j->push;
}

DEVICE uint32_t take_lowest(uint32_t *mask)
{
    uint32_t lowest = (uint32_t)__builtin_ctz(*mask);
    *mask &= *mask - 1;
    return lowest;
}

/*
 * The fast way, for sums: 16 bytes at a time, several under way in each thread. Types
 * whose accumulators take as many registers share a loop; what differs is a branch that
 * all threads take alike, once for all that is under way.
 */
typedef enum sum_form {
    SUM_WORDS,  /* accumulators of the elements' size: 4 words for 16 bytes */
    SUM_HALVES, /* 8 floats                                                 */
    SUM_BYTES   /* 16 floats                                                */
} sum_form;

#define SUM_PACKS 4

/* 16-byte packs under way, so that they and what they become fit into registers. */
DEVICE uint32_t sum_packs(sum_form form)
{
    return SUM_PACKS >> form;
}

/* Four bytes in a word, without carries from one to the next. */
DEVICE uint32_t add_bytes(uint32_t a, uint32_t b)
{
    const uint32_t low = 0x7f7f7f7fu;
    return ((a & low) + (b & low)) ^ ((a ^ b) & ~low);
}

DEVICE void add_words(int type, wide *acc, const wide *term, uint32_t packs)
{
    const uint32_t words = 4 * packs;
    switch (type) {
    case MOTET_INT8:
    case MOTET_UINT8:
        UNROLL
        for (uint32_t i = 0; i < words; i++)
            acc->w[i] = add_bytes(acc->w[i], term->w[i]);
        break;
    case MOTET_INT32:
    case MOTET_UINT32: add(WIDE_U32, acc, term, words); break;
    case MOTET_INT64:
    case MOTET_UINT64: add(WIDE_U64, acc, term, words); break;
    case MOTET_FLOAT64: add(WIDE_DOUBLE, acc, term, words); break;
    default: add(WIDE_FLOAT, acc, term, words); break;
    }
}

/* All packs' elements, in the accumulators' form. */
DEVICE wide widen_packs(sum_form form, int type, const bits128 *v, uint32_t packs)
{
    wide out = { { 0 } };
    UNROLL
    for (uint32_t k = 0; k < packs; k++) {
        if (form == SUM_WORDS) {
            UNROLL
            for (uint32_t i = 0; i < 4; i++)
                out.w[4 * k + i] = v[k].w[i];
            continue;
        }
        const wide one = widen(type, v[k], 2);
        UNROLL
        for (uint32_t i = 0; i < (form == SUM_HALVES ? 8 : 16); i++)
            out.w[(8 * k + i) % 16] = one.w[i];
    }
    return out;
}

DEVICE wide widen_form(sum_form form, int type, const bits128 *v, uint32_t packs)
{
    if (form == SUM_WORDS)
        return widen_packs(form, MOTET_UINT32, v, packs);
    if (form == SUM_HALVES && type == MOTET_BFLOAT16)
        return widen_packs(form, MOTET_BFLOAT16, v, packs);
    if (form == SUM_HALVES)
        return widen_packs(form, MOTET_FLOAT16, v, packs);
    if (type == MOTET_FLOAT8E4M3)
        return widen_packs(form, MOTET_FLOAT8E4M3, v, packs);
    return widen_packs(form, MOTET_FLOAT8E5M2, v, packs);
}

DEVICE void average_sums(int type, wide *acc, uint32_t nranks)
{
    const float by = 1.0f / (float)nranks;
    if (type == MOTET_FLOAT64) {
        const double by64 = 1.0 / (double)nranks;
        UNROLL
        for (uint32_t i = 0; i < 8; i++)
            set_double(acc, i, double_at(acc, i) * by64);
        return;
    }
    UNROLL
    for (uint32_t i = 0; i < 16; i++)
        acc->w[i] = bits_of_float(float_at(acc, i) * by);
}

DEVICE bits128 narrow_pack(sum_form form, int type, const wide *acc, uint32_t k)
{
    wide one = { { 0 } };
    UNROLL
    for (uint32_t i = 0; i < 16; i++)
        one.w[i] = acc->w[((4u << form) * k + i) % 16];
    if (form == SUM_WORDS)
        return narrow(MOTET_UINT32, &one, 2);
    if (form == SUM_HALVES)
        return type == MOTET_BFLOAT16 ? narrow(MOTET_BFLOAT16, &one, 2)
                                      : narrow(MOTET_FLOAT16, &one, 2);
    return type == MOTET_FLOAT8E4M3 ? narrow(MOTET_FLOAT8E4M3, &one, 2)
                                    : narrow(MOTET_FLOAT8E5M2, &one, 2);
}

/* What one thread has under way: packs at `at`, at + step …, as far as they are whole. */
typedef struct sum_span {
    uint32_t at, step, whole;
} sum_span;

DEVICE bool has_pack(const sum_span *s, uint32_t k)
{
    return s->at + k * s->step < s->whole;
}

DEVICE void load_packs(bits128 *to, uint32_t packs, const uint8_t *from,
        const sum_span *s)
{
    UNROLL
    for (uint32_t k = 0; k < packs; k++)
        if (has_pack(s, k))
            to[k] = load128(from + s->at + k * s->step);
}

DEVICE void put_packs(sum_form form, const run *r, const reduction *j,
        const sum_span *s, const wide *acc)
{
    UNROLL
    for (uint32_t k = 0; k < sum_packs(form); k++) {
        if (!has_pack(s, k))
            continue;
        bits128 out = narrow_pack(form, (int)r->args->type, acc, k);
        uint32_t at = s->at + k * s->step, left = j->push_mask;
        store128(j->to + at, out);
        NO_UNROLL
        while (left != 0)
            store128(target_of(r, j, take_lowest(&left)) + at, out);
    }
}

/* The next source is asked for before the last one is added. */
DEVICE void sum_some(sum_form form, const run *r, const reduction *j, const sum_span *s)
{
    const int type = (int)r->args->type;
    const uint32_t packs = sum_packs(form);
    bits128 now[SUM_PACKS] = { { { 0 } } };
    wide acc = { { 0 } };
    uint32_t left = r->args->recv_mask;
    bool first = true, more = true;
    load_packs(now, packs, source_of(r, j, take_lowest(&left)), s);
    NO_UNROLL
    while (more) {
        bits128 next[SUM_PACKS] = { { { 0 } } };
        more = left != 0;
        if (more)
            load_packs(next, packs, source_of(r, j, take_lowest(&left)), s);
        wide term = widen_form(form, type, now, packs);
        if (first)
            acc = term;
        else if (form == SUM_WORDS)
            add_words(type, &acc, &term, packs);
        else
            add(WIDE_FLOAT, &acc, &term, 16);
        first = false;
        UNROLL
        for (uint32_t k = 0; k < packs; k++)
            now[k] = next[k];
    }
    if (r->args->redop == MOTET_AVG)
        average_sums(type, &acc, r->args->nranks);
    if (form == SUM_WORDS)
        canonical_nan(type, &acc, 16);
    put_packs(form, r, j, s, &acc);
}

DEVICE void sum_whole(sum_form form, const run *r, const reduction *j, uint32_t whole)
{
    sum_span s = { 16 * afresh(r->w.thread), 16 * r->w.threads, whole };
    NO_UNROLL
    for (; s.at < whole; s.at += sum_packs(form) * s.step)
        sum_some(form, r, j, &s);
}

/* Bytes that were done: all whole packs, or none. Averages of integers are not sums. */
DEVICE uint32_t sum_bulk(const run *r, const reduction *j)
{
    const motet_gpu_args *a = r->args;
    const int type = (int)a->type;
    const wide_class c = class_of(type);
    const bool is_float = c == WIDE_FLOAT || c == WIDE_DOUBLE;
    const uint32_t whole = j->bytes & ~15u;
    if (a->redop != MOTET_SUM && !(a->redop == MOTET_AVG && is_float))
        return 0;
    if (j->bias != NULL || (skew(j->own) | skew(j->to)) != 0)
        return 0;
    if (element_bytes(type) == 2)
        sum_whole(SUM_HALVES, r, j, whole);
    else if (element_bytes(type) == 1 && is_float)
        sum_whole(SUM_BYTES, r, j, whole);
    else
        sum_whole(SUM_WORDS, r, j, whole);
    return whole;
}

DEVICE uint64_t factor_of(const run *r, const reduction *j, uint32_t source)
{
    if (source == r->args->rank)
        return j->factor;
    if (j->direct)
        return buffers_of[source].factor;
    return load64(source_of(r, j, source) + r->args->layout.chunk - SLOT_FACTOR_BYTES);
}

/* Any operator, any alignment, the last bytes: 8 at a time. */
DEVICE void reduce_pack(const run *r, const reduction *j, uint32_t at)
{
    const motet_gpu_args *a = r->args;
    const int type = (int)a->type;
    const uint32_t bytes = j->bytes - at < 8 ? j->bytes - at : 8;
    uint32_t left = a->recv_mask;
    bool first = true;
    wide acc = { { 0 } };
    NO_UNROLL
    while (left != 0) {
        uint32_t source = take_lowest(&left);
        uint64_t bits = load_some64(source_of(r, j, source) + at, bytes);
        wide next = widen(type, bits_of_pack(bits), 1);
        if (j->scaled)
            scale(type, &next, factor_of(r, j, source));
        if (first)
            acc = next;
        else
            combine(type, a->redop, &acc, &next);
        first = false;
    }
    const bool biased = j->bias != NULL;
    uint64_t bias = biased ? load_some64(j->bias + at, bytes) : 0;
    uint64_t out = finish_pack(type, a->redop, a->nranks, &acc, biased, bias);
    store_some64(j->to + at, out, bytes);
    left = j->push_mask;
    NO_UNROLL
    while (left != 0)
        store_some64(target_of(r, j, take_lowest(&left)) + at, out, bytes);
}

DEVICE void reduce_slots(const run *r, const reduction *j)
{
    uint32_t at = sum_bulk(r, j) + 8 * r->w.thread;
    NO_UNROLL
    for (; at < j->bytes; at += 8 * r->w.threads)
        reduce_pack(r, j, at);
}

#endif
