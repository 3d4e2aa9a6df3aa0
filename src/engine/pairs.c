/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives. Each ordered pair of ranks has a ring of slots in the sender's
 * arena; a message takes one slot for each pair_chunk of it, at least one, and rides
 * in the slot's header if it is small. Only the two ends know of a message, so only
 * per-pair numbers are used, and both derive the slots from its bytes alone.
 *
 * The sender fills slot p only when the receiver has taken slot p − MOTET_PAIR_SLOTS.
 * A message that fits into the free slots is gone before its receive is posted.
 *
 * All transfers of a group progress together: otherwise two ranks that send to each
 * other first would wait for ever once a message is larger than the ring.
 */
#include "engine/wait.h"

#include "trace/fingerprint.h"

#include <string.h>

enum { SENDS, RECEIVES };

static int direction(const motet_op *op)
{
    return op->kind == MOTET_SEND ? SENDS : RECEIVES;
}

motet_result motet_pairs_check(int rank, const motet_transfer *transfers, int count)
{
    int s = 0, r = 0;

    for (;;) {
        while (s < count &&
                !(transfers[s].op.kind == MOTET_SEND && transfers[s].op.root == rank))
            s++;
        while (r < count &&
                !(transfers[r].op.kind == MOTET_RECV && transfers[r].op.root == rank))
            r++;
        if (s == count && r == count)
            return MOTET_OK;
        if (s == count || r == count)
            return motet_fail(MOTET_ERR_USAGE,
                    "Trying to %s self without a matching %s in the same group",
                    r == count ? "send to" : "recv from", r == count ? "recv" : "send");
        if (motet_op_bytes(&transfers[s].op) != motet_op_bytes(&transfers[r].op))
            return motet_fail(MOTET_ERR_USAGE,
                    "rank %d sends %zu bytes to itself but receives %zu", rank,
                    motet_op_bytes(&transfers[s].op), motet_op_bytes(&transfers[r].op));
        s++;
        r++;
    }
}

/* Largest payload of a slot for a message of @p bytes, and where it lies. */
static size_t slot_capacity(const motet_engine *engine, size_t bytes)
{
    return bytes <= MOTET_INLINE_BYTES ? MOTET_INLINE_BYTES
                                       : engine->constants.pair_chunk;
}

static uint8_t *slot_payload(const motet_engine *engine, int owner, int reader,
        uint64_t position, size_t bytes)
{
    const motet_arena *arena = &engine->arena[owner];

    return bytes <= MOTET_INLINE_BYTES
            ? motet_pair_slot(arena, reader, position)->payload
            : motet_pair_chunk(arena, reader, position);
}

/* Bytes of the next slot of @p t; 0 for a message of none. */
static size_t next_piece(const motet_engine *engine, const motet_transfer *t)
{
    size_t bytes = motet_op_bytes(&t->op), left = bytes - t->moved;
    size_t capacity = slot_capacity(engine, bytes);

    return left < capacity ? left : capacity;
}

/* Fill one slot if one is free. */
static bool send_piece(motet_engine *engine, motet_transfer *t)
{
    int peer = t->op.root, me = engine->rank;
    motet_pair_state *pair = &engine->pair[peer];
    uint64_t position = pair->sent + 1;
    size_t bytes = motet_op_bytes(&t->op), piece = next_piece(engine, t);
    motet_slot *slot = motet_pair_slot(&engine->arena[me], peer, position);

    if (atomic_load_explicit(&engine->arena[peer].pair[me].taken,
                memory_order_acquire) +
                    MOTET_PAIR_SLOTS <
            position)
        return false;
    if (piece != 0)
        memcpy(slot_payload(engine, me, peer, position, bytes),
                (const uint8_t *)t->op.send + t->moved, piece);
    slot->bytes = bytes;
    atomic_store_explicit(&slot->position, position, memory_order_release);
    pair->sent = position;
    t->moved += piece;
    return true;
}

/* Take one slot if one has come. */
static motet_result receive_piece(motet_engine *engine, motet_transfer *t, bool *moved)
{
    int peer = t->op.root, me = engine->rank;
    motet_pair_state *pair = &engine->pair[peer];
    uint64_t position = pair->received + 1;
    size_t bytes = motet_op_bytes(&t->op), piece = next_piece(engine, t);
    const motet_slot *slot = motet_pair_slot(&engine->arena[peer], me, position);

    *moved = atomic_load_explicit(&slot->position, memory_order_acquire) >= position;
    if (!*moved)
        return MOTET_OK;
    if (slot->bytes != bytes)
        return motet_engine_fail(engine, MOTET_ERR_USAGE, -1,
                "ranks %d and %d disagree about a message: rank %d sends %llu bytes, "
                "rank "
                "%d receives %zu",
                peer, me, peer, (unsigned long long)slot->bytes, me, bytes);
    if (piece != 0)
        memcpy((uint8_t *)t->op.recv + t->moved,
                slot_payload(engine, peer, me, position, bytes), piece);
    pair->received = position;
    atomic_store_explicit(&engine->arena[me].pair[peer].taken, position,
            memory_order_release);
    t->moved += piece;
    return MOTET_OK;
}

/* A group of more messages than the recorder holds may have overwritten a record. */
static void end_record(const motet_transfer *t, motet_result result)
{
    if (atomic_load_explicit(&t->record->seq, memory_order_relaxed) == t->record_seq)
        motet_recorder_end(t->record, result);
}

/* Move what can be moved of the first transfer in @p peer's queue. */
static motet_result progress(motet_engine *engine, int peer, int way, bool *moved_out)
{
    motet_pair_state *pair = &engine->pair[peer];
    motet_transfer *t = pair->head[way];
    motet_result result = MOTET_OK;
    bool moved = false;

    if (way == SENDS)
        moved = send_piece(engine, t);
    else
        result = receive_piece(engine, t, &moved);
    if (result == MOTET_OK && moved) {
        *moved_out = true;
        if (t->moved == motet_op_bytes(&t->op)) {
            end_record(t, MOTET_OK);
            pair->head[way] = t->next;
        }
    }
    return result;
}

static void copy_to_self(motet_engine *engine)
{
    motet_pair_state *pair = &engine->pair[engine->rank];

    while (pair->head[SENDS] != NULL) {
        motet_transfer *s = pair->head[SENDS], *r = pair->head[RECEIVES];

        if (r->op.recv != s->op.send && motet_op_bytes(&s->op) != 0)
            memmove(r->op.recv, s->op.send, motet_op_bytes(&s->op));
        end_record(s, MOTET_OK);
        end_record(r, MOTET_OK);
        pair->head[SENDS] = s->next;
        pair->head[RECEIVES] = r->next;
    }
}

static void enqueue(motet_engine *engine, motet_transfer *t)
{
    motet_pair_state *pair = &engine->pair[t->op.root];
    int way = direction(&t->op);
    motet_trace_call call = {
        .count = motet_op_bytes(&t->op),
        .fingerprint = motet_fingerprint(t->op.kind, MOTET_UINT8, 0, t->op.root,
                motet_op_bytes(&t->op), 0),
        .peer = t->op.root,
        .algorithm = MOTET_ALG_PAIRS,
        .kind = (uint8_t)t->op.kind,
        .type = (uint8_t)t->op.type,
    };

    t->moved = 0;
    t->next = NULL;
    t->record = motet_recorder_begin(engine->recorder, &call);
    t->record_seq = atomic_load_explicit(&t->record->seq, memory_order_relaxed);
    *pair->tail[way] = t;
    pair->tail[way] = &t->next;
}

/* One pass over all queues. @p pending_out: a transfer that still waits, or NULL. */
static motet_result pass(motet_engine *engine, unsigned start, bool *moved_out,
        motet_transfer **pending_out)
{
    *pending_out = NULL;
    for (int i = 0; i < engine->nranks; i++) {
        int peer = (int)((start + (unsigned)i) % (unsigned)engine->nranks);

        for (int way = SENDS; way <= RECEIVES; way++) {
            motet_result result;

            if (engine->pair[peer].head[way] == NULL)
                continue;
            result = progress(engine, peer, way, moved_out);
            if (result != MOTET_OK)
                return result;
            if (engine->pair[peer].head[way] != NULL && *pending_out == NULL)
                *pending_out = engine->pair[peer].head[way];
        }
    }
    return MOTET_OK;
}

static motet_result run_queues(motet_engine *engine)
{
    motet_running running = { .engine = engine };
    motet_wait wait;
    unsigned turn = (unsigned)engine->rank;

    motet_wait_begin(&wait, &running);
    for (;;) {
        motet_transfer *pending;
        bool moved = false;
        motet_result result = pass(engine, turn++, &moved, &pending);

        if (result != MOTET_OK || pending == NULL)
            return result;
        if (moved) {
            motet_wait_end(&wait);
            motet_wait_begin(&wait, &running);
            continue;
        }
        /* Each turn looks at another of the peers that are waited for. */
        running.op = &pending->op;
        running.record = pending->record;
        result = motet_wait_turn(&wait, pending->op.root);
        if (result != MOTET_OK)
            return result;
    }
}

/* A message to a rank that is gone would vanish in its ring. */
static motet_result refuse_the_gone(motet_engine *engine, const motet_op *op)
{
    bool dead =
            atomic_load_explicit(&engine->pair[op->root].dead, memory_order_acquire);
    bool left = atomic_load_explicit(&engine->arena[op->root].head->life,
                        memory_order_acquire) == MOTET_LIFE_LEFT;
    motet_result result;

    if (op->kind != MOTET_SEND || (!dead && !left))
        return MOTET_OK;
    /* It may have left because of a failure: then that is the news. */
    result = motet_adopt_failure(engine);
    if (result != MOTET_OK)
        return result;
    return motet_engine_fail(engine, MOTET_ERR_REMOTE, op->root,
            "rank %d (pid %d) %s: nobody can receive what rank %d sends to it",
            op->root, engine->peer[op->root].pid,
            left ? "has destroyed its communicator" : "has died", engine->rank);
}

motet_result motet_engine_pairs(motet_engine *engine, motet_transfer *transfers,
        int count)
{
    motet_result result = motet_engine_failure(engine);

    for (int r = 0; r < engine->nranks; r++)
        for (int way = SENDS; way <= RECEIVES; way++) {
            engine->pair[r].head[way] = NULL;
            engine->pair[r].tail[way] = &engine->pair[r].head[way];
        }
    for (int i = 0; i < count && result == MOTET_OK; i++)
        result = refuse_the_gone(engine, &transfers[i].op);
    if (result != MOTET_OK)
        return result;
    for (int i = 0; i < count; i++)
        enqueue(engine, &transfers[i]);
    copy_to_self(engine);
    result = run_queues(engine);
    for (int i = 0; i < count && result != MOTET_OK; i++)
        if (transfers[i].moved < motet_op_bytes(&transfers[i].op))
            end_record(&transfers[i], result);
    return result;
}
