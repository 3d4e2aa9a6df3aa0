/* SPDX-License-Identifier: Apache-2.0 */
/* One collective between the ranks of a rig: its buffers, its arguments, and what must be
 * in every byte of them afterwards. */
#ifndef MOTET_TESTS_GPU_TRIAL_H
#define MOTET_TESTS_GPU_TRIAL_H

#include "gpu_buffer.h"
#include "reduce_reference.h"

/* ---- Kinds ------------------------------------------------------------------------ */

enum { NOBODY, ROOT, OTHERS, EVERYBODY };

typedef struct shape {
    const char *name;
    uint8_t sends_to[2]; /* of the root or anybody, of another */
    uint8_t takes_from[2];
    bool send_pieces, recv_pieces, reduces;
} shape;

static const shape shapes[] = {
    { "all_reduce", { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, false, false, true },
    { "reduce", { NOBODY, ROOT }, { EVERYBODY, NOBODY }, false, false, true },
    { "reduce_scatter", { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, true, false,
            true },
    { "broadcast", { OTHERS, NOBODY }, { ROOT, ROOT }, false, false, false },
    { "all_gather", { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, false, true, false },
    { "all_to_all", { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, true, true, false },
    { "gather", { NOBODY, ROOT }, { EVERYBODY, NOBODY }, false, true, false },
    { "scatter", { OTHERS, NOBODY }, { ROOT, ROOT }, true, false, false },
};
enum {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SHAPES
};

static bool is_rooted(int kind)
{
    return shapes[kind].takes_from[0] != shapes[kind].takes_from[1] ||
            shapes[kind].sends_to[0] != shapes[kind].sends_to[1];
}

static uint32_t mask_of(int who, int rank, int root, int nranks)
{
    uint32_t all = (1u << nranks) - 1;

    switch (who) {
    case ROOT: return 1u << root;
    case OTHERS: return all & ~(1u << rank);
    case EVERYBODY: return all;
    default: return 0;
    }
}

/* ---- One operation ---------------------------------------------------------------- */

typedef struct trial {
    const char *protocol; /* "ll", "stage", "twoshot" */
    int kind, type, redop, root;
    size_t count; /* elements of a piece */
    bool in_place, misaligned, bias;
    bool offers; /* buffers may lie in windows */
    uint32_t
            in_windows; /* bit 2r: rank r's send buffer does; 2r + 1: its recv buffer */
} trial;

typedef struct side {
    buffer send, recv, bias;
    uint8_t *from, *to; /* the operation's, in them */
    void *input;        /* a copy of what was sent  */
    uint64_t scalar;
} side;

static size_t pieces(const rig *g, bool many)
{
    return many ? (size_t)g->nranks : 1;
}

/* In place, the smaller buffer is a part of the larger one. */
static void side_make(const rig *g, const trial *t, int rank, uint64_t *random, side *s)
{
    const shape *k = &shapes[t->kind];
    size_t size = motet_type_table[t->type].bytes, piece = t->count * size;
    size_t send = piece * pieces(g, k->send_pieces);
    size_t recv = piece * pieces(g, k->recv_pieces);
    bool roots = is_rooted(t->kind) && rank == t->root;
    bool shared = t->in_place && (!is_rooted(t->kind) || roots);

    memset(s, 0, sizeof(*s));
    buffer_make(&s->send, shared && recv > send ? recv : send,
            t->misaligned ? size : 0);
    buffer_make(&s->recv, recv, t->misaligned && !k->send_pieces ? size : 0);
    buffer_make(&s->bias, piece, t->misaligned ? size : 0);
    s->from = s->send.data + (shared && k->recv_pieces ? (size_t)rank * piece : 0);
    s->to = shared ? s->send.data + (k->send_pieces ? (size_t)rank * piece : 0)
                   : s->recv.data;
    for (size_t i = 0; i < send / size; i++)
        put(t->type, s->from, i, input_bits(t->type, random));
    s->input = malloc(send + 1);
    assert_non_null(s->input);
    memcpy(s->input, s->from, send);
    s->scalar = moderate_bits(t->type, next_random(random)) & element_mask(t->type);
}

static void side_release(side *s)
{
    free(s->send.mem);
    free(s->recv.mem);
    free(s->bias.mem);
    free(s->input);
}

static motet_gpu_args trial_args(const rig *g, const trial *t, int rank, side *s)
{
    const shape *k = &shapes[t->kind];
    motet_gpu_args a = rig_args(g, rank);
    uint64_t piece = t->count * motet_type_table[t->type].bytes;
    int other = is_rooted(t->kind) && rank != t->root;

    a.send_mask = mask_of(k->sends_to[other], rank, t->root, g->nranks);
    a.recv_mask = mask_of(k->takes_from[other], rank, t->root, g->nranks);
    a.type = (uint32_t)t->type;
    a.redop = (uint32_t)t->redop;
    a.send = s->from;
    a.recv = s->to;
    a.bias = t->bias ? s->bias.data : NULL;
    a.bytes = piece;
    a.send_stride = k->send_pieces ? piece : 0;
    a.recv_stride = k->recv_pieces ? piece : 0;
    a.scalar = s->scalar;
    if (rank % 2 == 0)
        a.scalar_ptr = (const uint8_t *)&s->scalar;
    return a;
}

/* Window 1 of each rank is its send buffer, window 2 its recv buffer; all ranks know
 * where they are. */
static void offer_windows(const rig *g, const trial *t, const side *sides,
        motet_gpu_args *args)
{
    for (int r = 0; r < g->nranks; r++) {
        const buffer *buffers[] = { &sides[r].send, &sides[r].recv };

        for (uint32_t w = 1; w <= 2; w++) {
            uint64_t base = (uint64_t)(uintptr_t)(buffers[w - 1]->data - GUARD);
            for (int o = 0; o < g->nranks; o++)
                memcpy(motet_gpu_window_at(g->own[o], &g->layout, w, (uint32_t)r),
                        &base, sizeof(base));
        }
        args[r].offers = t->offers;
        if (t->in_windows >> (2 * r) & 1) {
            args[r].send_window = 1;
            args[r].send_offset =
                    (uint64_t)(sides[r].from - sides[r].send.data) + GUARD;
        }
        if (t->in_windows >> (2 * r + 1) & 1) {
            bool shared = sides[r].to != sides[r].recv.data;
            const buffer *b = buffers[shared ? 0 : 1];

            args[r].recv_window = shared ? 1 : 2;
            args[r].recv_offset = (uint64_t)(sides[r].to - b->data) + GUARD;
        }
    }
}

static void describe(const trial *t, const rig *g, char *text, size_t bytes)
{
    snprintf(text, bytes,
            "%s %s %s %s, %zu elements, %d ranks, %u blocks, root %d%s%s%s, windows %x",
            t->protocol, shapes[t->kind].name, motet_type_table[t->type].name,
            shapes[t->kind].reduces ? motet_redop_names[t->redop] : "", t->count,
            g->nranks, g->blocks, t->root, t->in_place ? ", in place" : "",
            t->misaligned ? ", misaligned" : "", t->bias ? ", bias" : "",
            t->offers ? t->in_windows : 0);
}

static void check_reduced(const rig *g, const trial *t, int rank, const side *sides)
{
    size_t first = shapes[t->kind].send_pieces ? (size_t)rank * t->count : 0;
    uint64_t src[RIG_RANKS], scalar[RIG_RANKS], bias, seen;
    char text[160];

    for (size_t i = 0; i < t->count; i++) {
        element_case c = { t->type, t->redop, g->nranks, g->nranks, src, scalar,
            t->bias ? &bias : NULL };

        for (int r = 0; r < g->nranks; r++) {
            src[r] = get(t->type, sides[r].input, first + i);
            scalar[r] = sides[r].scalar;
        }
        bias = get(t->type, sides[rank].bias.data, i);
        seen = get(t->type, sides[rank].to, i);
        if (seen == (reference(&c) & element_mask(t->type)))
            continue;
        describe(t, g, text, sizeof(text));
        fail_msg("%s: rank %d has 0x%llx in element %zu, need 0x%llx", text, rank,
                (unsigned long long)seen, i,
                (unsigned long long)(reference(&c) & element_mask(t->type)));
    }
}

static void check_copied(const rig *g, const trial *t, int rank, const side *sides)
{
    const shape *k = &shapes[t->kind];
    size_t piece = t->count * motet_type_table[t->type].bytes;
    char text[160];

    for (int r = 0; r < g->nranks; r++) {
        bool comes = k->recv_pieces || r == t->root;
        const uint8_t *from = (const uint8_t *)sides[r].input +
                (k->send_pieces ? piece * (size_t)rank : 0);
        const uint8_t *to = sides[rank].to + (k->recv_pieces ? piece * (size_t)r : 0);

        if (!comes || memcmp(from, to, piece) == 0)
            continue;
        describe(t, g, text, sizeof(text));
        fail_msg("%s: rank %d has not got what rank %d sent", text, rank, r);
    }
}

static void check_side(const rig *g, const trial *t, int rank, const side *sides)
{
    const side *s = &sides[rank];
    bool takes = !is_rooted(t->kind) || rank == t->root ||
            shapes[t->kind].takes_from[1] != NOBODY;

    buffer_check(&s->send);
    buffer_check(&s->recv);
    if (takes && shapes[t->kind].reduces)
        check_reduced(g, t, rank, sides);
    else if (takes)
        check_copied(g, t, rank, sides);
    for (size_t i = 0; (!takes || s->to != s->recv.data) && i < s->recv.bytes; i++)
        assert_int_equal(s->recv.data[i], POISON);
}

static void run_trial(rig *g, const trial *t, uint64_t *random)
{
    side sides[RIG_RANKS];
    motet_gpu_args args[RIG_RANKS];
    char kernel[64];

    for (int r = 0; r < g->nranks; r++)
        side_make(g, t, r, random, &sides[r]);
    for (size_t i = 0; i < t->count; i++) {
        uint64_t bits = input_bits(t->type, random);

        for (int r = 0; r < g->nranks; r++)
            put(t->type, sides[r].bias.data, i, bits);
    }
    for (int r = 0; r < g->nranks; r++)
        args[r] = trial_args(g, t, r, &sides[r]);
    offer_windows(g, t, sides, args);
    snprintf(kernel, sizeof(kernel), "motet_%s_%s", t->protocol,
            shapes[t->kind].reduces ? "reduce" : "copy");
    rig_run(g, kernel, args);
    rig_assert_in_step(g);
    for (int r = 0; r < g->nranks; r++) {
        check_side(g, t, r, sides);
        buffer_check(&sides[r].bias);
    }
    for (int r = 0; r < g->nranks; r++)
        side_release(&sides[r]);
}

#endif
