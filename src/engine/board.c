/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over the board. In every step a poster fills its slot at the step's
 * position and a reader takes what is its own from the others' slots; what posts,
 * who reads and where things go is one row of a table for each kind.
 *
 * A rank posts step k + 1 before it reads step k, so that its peers never wait for
 * its reading. When the last step has been read, all positions of the operation have.
 *
 * twoshot takes two positions a step: inputs at 2k, sums at 2k + 1. Rank j adds up
 * slice j of everybody's inputs, in rank order, and posts the sum, so all ranks get
 * the same bits. The order on each rank is: post inputs k + 1, reduce k and post its
 * sum, copy the sums of k − 1; after that copy everything up to the inputs of k has
 * been read, and `done` says so.
 *
 * Zero-copy: a poster whose buffer lies in a window shows window and offset instead of
 * filling its slot, and its readers read the buffer itself. Steps, positions and flags
 * stay the same, so each rank decides alone. Such a rank must not return before all
 * others have read: it waits for their `done`. In place, a rank overwrites what it was
 * sent from only where nobody reads it any more (in_place_safe, and twoshot, whose
 * owner has read a slice before anybody can have its sum).
 */
#include "engine/board.h"

#include <string.h>

/* A buffer in a window is read in place from here on: below, a copy into the slot costs
 * less than waiting for the readers. */
#define DIRECT_MIN_BYTES (16u << 10)
/* From here on results do not stay in the caches anyway, and are stored around them. */
#define STREAM_MIN_BYTES (32u << 20)

typedef enum role { EVERYBODY, ROOT, OTHERS } role;

/* What one kind does in a step. */
typedef struct movement {
    role posts, reads;
    bool by_source; /* what is read from rank r goes to slice r of recv, else to its start */
    bool own_part; /* a rank has a part for itself, which needs no slot                 */
    bool in_place_safe; /* nobody reads what the poster's own result overwrites */
} movement;

/* clang-format off */
static const movement movements[MOTET_NUM_KINDS] = {
    [MOTET_ALL_REDUCE]     = { EVERYBODY, EVERYBODY, false, false, false },
    [MOTET_REDUCE]         = { OTHERS,    ROOT,      false, false, true  },
    [MOTET_REDUCE_SCATTER] = { EVERYBODY, EVERYBODY, false, false, true  },
    [MOTET_BROADCAST]      = { ROOT,      OTHERS,    false, true,  true  },
    [MOTET_ALL_GATHER]     = { EVERYBODY, EVERYBODY, true,  true,  true  },
    [MOTET_GATHER]         = { OTHERS,    ROOT,      true,  true,  true  },
    [MOTET_SCATTER]        = { ROOT,      OTHERS,    false, true,  true  },
    [MOTET_ALL_TO_ALL]     = { EVERYBODY, EVERYBODY, true,  true,  false },
};
/* clang-format on */

typedef struct board {
    motet_engine *engine;
    const motet_running *running;
    const motet_op *op;
    const motet_plan *plan;
    const movement *movement;
    size_t element;                    /* bytes of one */
    uint64_t base;                     /* position before the operation's first */
    uint64_t scalar;                   /* this rank's PREMUL_SUM factor         */
    uint32_t send_window, recv_window; /* that hold the buffers, 0 = not to be used */
    uint64_t send_offset, recv_offset;
    motet_copy_fn copy; /* into the caller's memory             */
} board;

static bool is(const board *b, role who)
{
    return who == EVERYBODY || (b->engine->rank == b->op->root) == (who == ROOT);
}

/* Elements of each slice in step k, and where they start within the slice. */
static size_t step_elements(const board *b, size_t k, size_t *first_out)
{
    size_t first = k * b->plan->step_count;
    size_t left = b->op->count - first;

    *first_out = first;
    return left < b->plan->step_count ? left : b->plan->step_count;
}

static uint8_t *slot_data(const board *b, int rank, uint64_t position)
{
    const motet_arena *arena = &b->engine->arena[rank];

    return b->plan->algorithm == MOTET_ALG_INLINE
            ? motet_arena_slot(arena, position)->payload
            : motet_arena_chunk(arena, position);
}

/* Wait until nobody reads what the slot of @p position held before. */
static motet_result reserve(const board *b, uint64_t position)
{
    motet_engine *engine = b->engine;
    uint64_t floor = UINT64_MAX;

    if (engine->done_floor + MOTET_BOARD_SLOTS > position)
        return MOTET_OK;
    for (int r = 0; r < engine->nranks; r++) {
        const _Atomic uint64_t *done = &engine->arena[r].head->done;
        uint64_t seen;
        motet_result result;

        if (r == engine->rank)
            continue;
        result = motet_wait_word(b->running, done, position + 1 - MOTET_BOARD_SLOTS, r);
        if (result != MOTET_OK)
            return result;
        seen = atomic_load_explicit(done, memory_order_acquire);
        floor = seen < floor ? seen : floor;
    }
    engine->done_floor = floor;
    return MOTET_OK;
}

/* The slot is filled, or what it would hold lies at @p offset in @p window: show it. */
static void show(const board *b, uint64_t position, uint32_t window, uint64_t offset)
{
    motet_slot *slot = motet_arena_slot(&b->engine->arena[b->engine->rank], position);

    slot->window = window;
    slot->offset = offset;
    slot->fingerprint = b->running->fingerprint;
    slot->scalar = b->scalar;
    atomic_store_explicit(&slot->position, position, memory_order_release);
}

static void publish_done(motet_engine *engine, uint64_t below)
{
    atomic_store_explicit(&engine->arena[engine->rank].head->done, below,
            memory_order_release);
}

/* Wait for rank r's slot at @p position and check that it makes the same call. */
static motet_result await_slot(const board *b, int r, uint64_t position,
        const motet_slot **slot_out)
{
    const motet_slot *slot = motet_arena_slot(&b->engine->arena[r], position);
    motet_result result = motet_wait_word(b->running, &slot->position, position, r);

    if (result != MOTET_OK)
        return result;
    if (slot->fingerprint != b->running->fingerprint)
        return motet_mismatch(b->running, r);
    *slot_out = slot;
    return MOTET_OK;
}

/* Where a part of rank r's post lies: @p in_slot bytes into its slot, or @p in_buffer
 * bytes into its buffer. */
static motet_result locate(const board *b, int r, uint64_t position,
        const motet_slot *slot, size_t in_slot, size_t in_buffer, size_t bytes,
        const uint8_t **out)
{
    if (slot->window == 0) {
        *out = slot_data(b, r, position) + in_slot;
        return MOTET_OK;
    }
    *out = motet_window_at(b->engine->window, slot->window, r, slot->offset + in_buffer,
            bytes);
    if (*out == NULL && bytes != 0)
        return motet_engine_fail(b->engine, MOTET_ERR_USAGE, r,
                "rank %d sends from window number %u, which rank %d has deregistered",
                r, slot->window, b->engine->rank);
    return MOTET_OK;
}

/* Fill and show this rank's slot of step k. */
static motet_result post(const board *b, size_t k)
{
    uint64_t position = b->base + 1 + k;
    size_t first, elements = step_elements(b, k, &first);
    const uint8_t *send = b->op->send;
    motet_result result = reserve(b, position);
    uint8_t *data;

    if (result != MOTET_OK)
        return result;
    data = slot_data(b, b->engine->rank, position);
    for (int s = 0; s < b->plan->slices && b->send_window == 0; s++) {
        if (b->plan->slices > 1 && s == b->engine->rank)
            continue; /* nobody reads it */
        memcpy(data + (size_t)s * elements * b->element,
                send + ((size_t)s * b->op->count + first) * b->element,
                elements * b->element);
    }
    show(b, position, b->send_window, b->send_offset);
    return MOTET_OK;
}

/* The part of step k that this rank has for itself. */
static void keep(const board *b, size_t k)
{
    size_t first, elements = step_elements(b, k, &first);
    size_t own = (size_t)b->engine->rank * b->op->count;
    const uint8_t *from = b->op->send;
    uint8_t *to = b->op->recv;

    if (b->op->kind == MOTET_SCATTER || b->op->kind == MOTET_ALL_TO_ALL)
        from += own * b->element;
    if (b->movement->by_source)
        to += own * b->element;
    if (from != to && to != NULL)
        b->copy(to + first * b->element, from + first * b->element,
                elements * b->element);
}

static void reduce(const board *b, void *dst, void *dst2, const void *const *sources,
        const uint64_t *scalars, size_t first, size_t elements)
{
    const uint8_t *bias = b->op->bias;
    motet_reduce_args args = {
        .dst = dst,
        .dst2 = dst2,
        .src = sources,
        .nsrc = b->engine->nranks,
        .count = elements,
        .type = (int)b->op->type,
        .redop = (int)b->op->redop,
        .nranks = b->engine->nranks,
        .scalar = b->op->redop == MOTET_PREMUL_SUM ? scalars : NULL,
        .bias = bias == NULL ? NULL : bias + first * b->element,
    };

    b->engine->kernels->reduce(&args);
}

/* All inputs of one slice at @p position, in rank order; this rank's own is @p mine. The
 * slice lies @p in_slot bytes into each slot, and @p in_buffer into each buffer. */
static motet_result gather_inputs(const board *b, uint64_t position, size_t in_slot,
        size_t in_buffer, size_t bytes, const void **sources, uint64_t *scalars)
{
    for (int r = 0; r < b->engine->nranks; r++) {
        const motet_slot *slot = NULL;
        const uint8_t *part = (const uint8_t *)b->op->send + in_buffer;
        motet_result result = MOTET_OK;

        if (r != b->engine->rank)
            result = await_slot(b, r, position, &slot);
        if (result == MOTET_OK && slot != NULL)
            result = locate(b, r, position, slot, in_slot, in_buffer, bytes, &part);
        if (result != MOTET_OK)
            return result;
        sources[r] = part;
        scalars[r] = slot == NULL ? b->scalar : slot->scalar;
    }
    return MOTET_OK;
}

static motet_result read_reduced(const board *b, size_t k)
{
    const void *sources[MOTET_REDUCE_MAX];
    uint64_t scalars[MOTET_REDUCE_MAX];
    size_t first, elements = step_elements(b, k, &first);
    size_t slice = b->plan->slices > 1 ? (size_t)b->engine->rank : 0;
    motet_result result = gather_inputs(b, b->base + 1 + k,
            slice * elements * b->element, (slice * b->op->count + first) * b->element,
            elements * b->element, sources, scalars);

    if (result == MOTET_OK)
        reduce(b, (uint8_t *)b->op->recv + first * b->element, NULL, sources, scalars,
                first, elements);
    return result;
}

static motet_result read_copied(const board *b, size_t k)
{
    motet_engine *engine = b->engine;
    uint64_t position = b->base + 1 + k;
    size_t first, elements = step_elements(b, k, &first);
    size_t slice = b->plan->slices > 1 ? (size_t)engine->rank : 0;
    bool from_root = b->movement->posts == ROOT;

    for (int i = 1; i < engine->nranks; i++) {
        /* Everybody starts with the next rank: reads spread over the posters. */
        int r = from_root ? b->op->root : (engine->rank + i) % engine->nranks;
        size_t target = b->movement->by_source ? (size_t)r * b->op->count : 0;
        const motet_slot *slot = NULL;
        const uint8_t *part = NULL;
        motet_result result = await_slot(b, r, position, &slot);

        if (result == MOTET_OK)
            result = locate(b, r, position, slot, slice * elements * b->element,
                    (slice * b->op->count + first) * b->element, elements * b->element,
                    &part);
        if (result != MOTET_OK)
            return result;
        b->copy((uint8_t *)b->op->recv + (target + first) * b->element, part,
                elements * b->element);
        if (from_root)
            break;
    }
    return MOTET_OK;
}

static motet_result run_steps(const board *b)
{
    bool posts = is(b, b->movement->posts), reads = is(b, b->movement->reads);
    bool reduces = motet_kind_table[b->op->kind].reduces;
    motet_result result = MOTET_OK;

    if (posts)
        result = post(b, 0);
    for (size_t k = 0; k < b->plan->steps && result == MOTET_OK; k++) {
        if (posts && k + 1 < b->plan->steps)
            result = post(b, k + 1);
        if (result == MOTET_OK && b->movement->own_part &&
                (b->movement->posts != ROOT || b->engine->rank == b->op->root) &&
                (b->movement->reads != ROOT || b->engine->rank == b->op->root))
            keep(b, k);
        if (result == MOTET_OK && reads)
            result = reduces ? read_reduced(b, k) : read_copied(b, k);
        publish_done(b->engine, b->base + 2 + k);
    }
    return result;
}

/* Slice j of twoshot's step k: elements, and where they start in the vector. */
static size_t slice_elements(const board *b, size_t k, int j, size_t *first_out)
{
    size_t step = b->plan->step_count;
    size_t first = (k * (size_t)b->engine->nranks + (size_t)j) * step;

    *first_out = first;
    if (first >= b->op->count)
        return 0;
    return b->op->count - first < step ? b->op->count - first : step;
}

static motet_result post_inputs(const board *b, size_t k)
{
    uint64_t position = b->base + 1 + 2 * k;
    motet_result result = reserve(b, position);
    size_t stride = b->plan->step_count * b->element;
    uint8_t *data;

    if (result != MOTET_OK)
        return result;
    data = slot_data(b, b->engine->rank, position);
    for (int j = 0; j < b->engine->nranks && b->send_window == 0; j++) {
        size_t first, elements = slice_elements(b, k, j, &first);

        if (j != b->engine->rank && elements != 0)
            memcpy(data + (size_t)j * stride,
                    (const uint8_t *)b->op->send + first * b->element,
                    elements * b->element);
    }
    show(b, position, b->send_window, b->send_offset);
    return MOTET_OK;
}

static motet_result reduce_slice(const board *b, size_t k)
{
    const void *sources[MOTET_REDUCE_MAX];
    uint64_t scalars[MOTET_REDUCE_MAX];
    int me = b->engine->rank;
    uint64_t position = b->base + 1 + 2 * k;
    size_t first, elements = slice_elements(b, k, me, &first);
    motet_result result =
            gather_inputs(b, position, (size_t)me * b->plan->step_count * b->element,
                    first * b->element, elements * b->element, sources, scalars);

    if (result == MOTET_OK)
        result = reserve(b, position + 1);
    if (result != MOTET_OK)
        return result;
    if (elements != 0)
        reduce(b, (uint8_t *)b->op->recv + first * b->element,
                b->recv_window == 0 ? slot_data(b, me, position + 1) : NULL, sources,
                scalars, first, elements);
    show(b, position + 1, b->recv_window, b->recv_offset);
    return MOTET_OK;
}

static motet_result copy_sums(const board *b, size_t k)
{
    motet_engine *engine = b->engine;
    uint64_t position = b->base + 2 + 2 * k;

    for (int i = 1; i < engine->nranks; i++) {
        int r = (engine->rank + i) % engine->nranks;
        size_t first, elements = slice_elements(b, k, r, &first);
        const motet_slot *slot = NULL;
        const uint8_t *part = NULL;
        motet_result result = await_slot(b, r, position, &slot);

        if (result == MOTET_OK && elements != 0)
            result = locate(b, r, position, slot, 0, first * b->element,
                    elements * b->element, &part);
        if (result != MOTET_OK)
            return result;
        if (elements != 0)
            b->copy((uint8_t *)b->op->recv + first * b->element, part,
                    elements * b->element);
    }
    return MOTET_OK;
}

static motet_result run_twoshot(const board *b)
{
    size_t steps = b->plan->steps;
    motet_result result = post_inputs(b, 0);

    for (size_t k = 0; k <= steps && result == MOTET_OK; k++) {
        if (k + 1 < steps)
            result = post_inputs(b, k + 1);
        if (result == MOTET_OK && k < steps)
            result = reduce_slice(b, k);
        if (result == MOTET_OK && k > 0) {
            result = copy_sums(b, k - 1);
            publish_done(b->engine, b->base + 2 * k + (k < steps ? 2 : 1));
        }
    }
    return result;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* Which of this rank's buffers the others may read in place. */
static void find_windows(board *b)
{
    size_t bytes = motet_op_bytes(b->op), n = (size_t)b->engine->nranks;
    size_t sent = b->plan->slices > 1 && b->plan->posts == 1 ? bytes * n : bytes;
    size_t received = b->movement->by_source ? bytes * n : bytes;
    bool twoshot = b->plan->algorithm == MOTET_ALG_TWOSHOT;

    if (b->plan->algorithm == MOTET_ALG_INLINE || sent < DIRECT_MIN_BYTES)
        return;
    if (is(b, b->movement->posts) &&
            (twoshot || b->movement->in_place_safe ||
                    !overlap(b->op->send, sent, b->op->recv, received)))
        b->send_window = motet_window_find(b->engine->window, b->engine->rank,
                b->op->send, sent, &b->send_offset);
    if (twoshot)
        b->recv_window = motet_window_find(b->engine->window, b->engine->rank,
                b->op->recv, bytes, &b->recv_offset);
}

/* The others have read all of this rank's buffers. */
static motet_result await_readers(const board *b)
{
    motet_result result = MOTET_OK;

    for (int r = 0; r < b->engine->nranks && result == MOTET_OK; r++)
        if (r != b->engine->rank)
            result = motet_wait_word(b->running, &b->engine->arena[r].head->done,
                    b->engine->position + 1, r);
    return result;
}

motet_result motet_board_run(const motet_running *running, const motet_plan *plan,
        uint64_t scalar)
{
    motet_engine *engine = running->engine;
    const motet_op *op = running->op;
    uint64_t positions = plan->steps * (uint64_t)plan->posts;
    motet_result result;
    board b = {
        .engine = engine,
        .running = running,
        .op = op,
        .plan = plan,
        .movement = &movements[op->kind],
        .element = motet_type_table[op->type].bytes,
        .base = engine->position,
        .scalar = scalar,
        .copy = motet_op_bytes(op) >= STREAM_MIN_BYTES ? engine->kernels->copy_streaming
                                                       : motet_copy_plain,
    };

    engine->position += positions;
    find_windows(&b);
    result = plan->algorithm == MOTET_ALG_TWOSHOT ? run_twoshot(&b) : run_steps(&b);
    if (result == MOTET_OK && (b.send_window | b.recv_window) != 0)
        result = await_readers(&b);
    return result;
}

void motet_copy_plain(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}
