/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives of a group on a GPU: one launch, as long as it has room.
 *
 * Sends use the lower half of the grid, receives the upper. Each transfer belongs to a
 * round, {how many of the same pair and direction come before it in the group, distance
 * to the peer}, which both ends know alike. Transfers that share blocks run there in the
 * order of their rounds, and a group too large for one launch is cut in that order. So
 * the earliest round that is unfinished anywhere is running at both of its ends, and
 * something always advances.
 */
#include "engine/gpu.h"

#include "trace/fingerprint.h"

#include <stdlib.h>
#include <string.h>

/* A transfer with its place in the order. */
typedef struct ranked {
    motet_transfer *transfer;
    uint32_t occurrence, distance;
} ranked;

static bool is_receive(const motet_transfer *t)
{
    return t->op.kind == MOTET_RECV;
}

static uint32_t distance(const motet_gpu_engine *g, const motet_transfer *t)
{
    int n = g->engine->nranks, mine = g->engine->rank, peer = t->op.root;

    return (uint32_t)((is_receive(t) ? mine - peer : peer - mine) + n) % (uint32_t)n;
}

static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->occurrence != y->occurrence)
        return x->occurrence < y->occurrence ? -1 : 1;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return is_receive(x->transfer) - is_receive(y->transfer);
}

/* In order of rounds; transfers with this rank itself have distance 0. */
static void rank_all(const motet_gpu_engine *g, motet_transfer *transfers, int count,
        ranked *out)
{
    uint32_t seen[2][MOTET_GPU_RANKS] = { 0 };

    for (int i = 0; i < count; i++) {
        motet_transfer *t = &transfers[i];

        out[i] = (ranked){ t, seen[is_receive(t)][t->op.root]++, distance(g, t) };
    }
    qsort(out, (size_t)count, sizeof(*out), compare);
}

/* Of a grid that all ranks have room for, and the layout has words for. */
static uint32_t half_of_grid(const motet_gpu_engine *g)
{
    return (g->limit < g->constants.blocks ? g->limit : g->constants.blocks) / 2;
}

/* Blocks of each half of the grid that one distance gets. */
static uint32_t blocks_of_distance(const motet_gpu_engine *g)
{
    uint32_t half = half_of_grid(g), peers = (uint32_t)g->engine->nranks - 1;

    return half / peers == 0 ? 1 : half / peers;
}

/* Where a transfer's blocks begin. Distances share blocks when there are too few. */
static void place(const motet_gpu_engine *g, const ranked *r, motet_gpu_transfer *out)
{
    uint32_t half = half_of_grid(g), each = blocks_of_distance(g);
    const motet_op *op = &r->transfer->op;
    bool receive = is_receive(r->transfer);
    motet_gpu_pair_plan plan;

    *out = (motet_gpu_transfer){
        .buffer = receive ? op->recv : (uint8_t *)(uintptr_t)op->send,
        .bytes = motet_op_bytes(op),
        .peer = (uint16_t)op->root,
        .receive = receive,
    };
    motet_gpu_pair_plan_make(out->bytes, g->engine->nranks, &g->constants, each, &plan);
    out->blocks = (uint8_t)plan.blocks;
    out->first = (receive ? half : 0) + (r->distance - 1) * each % half;
}

static motet_gpu_pair_plan plan_of(const motet_gpu_engine *g, const motet_op *op)
{
    motet_gpu_pair_plan plan;

    motet_gpu_pair_plan_make(motet_op_bytes(op), g->engine->nranks, &g->constants,
            g->limit, &plan);
    plan.copies = plan.copies && op->root != g->engine->rank;
    return plan;
}

static motet_trace_op *record_of(motet_gpu_engine *g, const motet_op *op)
{
    motet_trace_call call = {
        .count = op->count,
        .peer = op->root,
        .kind = (uint8_t)op->kind,
        .type = (uint8_t)op->type,
        .algorithm = plan_of(g, op).copies ? MOTET_GPU_COPIES : MOTET_GPU_PAIRS,
        .fingerprint = motet_fingerprint(op->kind, op->type, 0, op->root, op->count, 0),
    };

    return motet_recorder_begin(g->engine->recorder, &call);
}

static motet_result launch_some(motet_gpu_engine *g, const ranked *r, int count,
        void *stream, const motet_stream_state *state)
{
    const motet_gpu_link *link = g->link;
    motet_gpu_pairs_args args = { .count = (uint32_t)count };
    motet_launch launch = { .function = g->pairs,
        .threads = MOTET_GPU_THREADS,
        .args = &args,
        .bytes = sizeof(args) };

    args.own = (uint8_t *)(uintptr_t)link->own.address;
    for (int i = 0; i < link->nranks; i++)
        args.arena[i] = (uint8_t *)(uintptr_t)link->at[i];
    for (int i = 0; i < MOTET_GPU_INBOXES; i++)
        args.inbox[i] = (uint8_t *)(uintptr_t)link->inbox[i];
    args.hosted = link->hosted;
    args.control = (motet_gpu_control *)(uintptr_t)link->control_device;
    args.layout = link->layout;
    args.rank = (uint32_t)link->rank;
    args.nranks = (uint32_t)link->nranks;
    for (int i = 0; i < count; i++) {
        uint32_t end;

        place(g, &r[i], &args.transfer[i]);
        end = args.transfer[i].first + args.transfer[i].blocks;
        args.blocks = end > args.blocks ? end : args.blocks;
    }
    launch.blocks = args.blocks;
    args.ticket = motet_gpu_next_ticket(g, state, args.blocks);
    return motet_gpu_enqueue(g, &launch, stream, state);
}

/* This rank's sends to itself meet its receives in the order given. */
static motet_result copy_own(motet_gpu_engine *g, const ranked *r, int count,
        void *stream)
{
    const motet_op *send = NULL;

    for (int i = 0; i < count; i++) {
        const motet_op *op = &r[i].transfer->op;

        if (r[i].distance != 0)
            continue;
        if (op->kind == MOTET_SEND)
            send = op; /* its receive is next: same round */
        else if (send != NULL && op->recv != send->send && op->count != 0)
            MOTET_TRY(g->link->ops->copy(g->link->gpu, (uint64_t)(uintptr_t)op->recv,
                              (uint64_t)(uintptr_t)send->send, motet_op_bytes(op),
                              stream),
                    "send to this rank itself");
    }
    return MOTET_OK;
}

bool motet_gpu_pairs_by_copies(const motet_gpu_engine *g,
        const motet_transfer *transfers, int count)
{
    for (int i = 0; i < count; i++)
        if (plan_of(g, &transfers[i].op).copies)
            return true;
    return false;
}

/* Takes those for copy engines out of @p r, into @p out. */
static int take_copies(const motet_gpu_engine *g, ranked *r, int *count,
        motet_gpu_message *out)
{
    int kept = 0, taken = 0;

    for (int i = 0; i < *count; i++) {
        const motet_op *op = &r[i].transfer->op;
        motet_gpu_pair_plan plan = plan_of(g, op);

        if (plan.copies)
            out[taken++] = (motet_gpu_message){ op, plan.step, plan.steps };
        else
            r[kept++] = r[i];
    }
    *count = kept;
    return taken;
}

static motet_result launch_all(motet_gpu_engine *g, const ranked *r, int count,
        void *stream, const motet_stream_state *state)
{
    for (int at = 0; at < count; at += MOTET_GPU_TRANSFERS) {
        int some = count - at < MOTET_GPU_TRANSFERS ? count - at : MOTET_GPU_TRANSFERS;

        MOTET_TRY(launch_some(g, r + at, some, stream, state), "pairs");
    }
    return MOTET_OK;
}

/* Kernels and copies move what they are given at the same time. */
static motet_result run(motet_gpu_engine *g, ranked *r, int count, void *stream,
        const motet_stream_state *state)
{
    motet_gpu_message few[2 * MOTET_GPU_RANKS], *messages = few;
    motet_gpu_lanes lanes;
    int others = 0, copies;
    motet_result result;

    MOTET_TRY(copy_own(g, r, count, stream), "pairs");
    for (int i = 0; i < count; i++)
        if (r[i].distance != 0)
            r[others++] = r[i];
    if (others > (int)(sizeof(few) / sizeof(*few)))
        messages = malloc((size_t)others * sizeof(*messages));
    if (messages == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "group of %d transfers", others);
    copies = take_copies(g, r, &others, messages);
    result = copies == 0 ? MOTET_OK : motet_gpu_copies_fork(g, stream, state, &lanes);
    if (result == MOTET_OK)
        result = launch_all(g, r, others, stream, state);
    if (result == MOTET_OK && copies != 0)
        result = motet_gpu_copies_messages(g, messages, copies, &lanes, state);
    if (messages != few)
        free(messages);
    return result;
}

motet_result motet_gpu_pairs(motet_gpu_engine *g, motet_transfer *transfers, int count,
        const void *given)
{
    void *stream = (void *)(uintptr_t)given;
    ranked few[2 * MOTET_GPU_RANKS], *r = few;
    motet_stream_state state;
    motet_result result = motet_gpu_failure(g);

    if (result == MOTET_OK)
        result = motet_gpu_stream_state(g, stream, &state);
    if (result != MOTET_OK)
        return result;
    if (count > (int)(sizeof(few) / sizeof(*few)))
        r = malloc((size_t)count * sizeof(*r));
    if (r == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "group of %d transfers", count);
    rank_all(g, transfers, count, r);
    for (int i = 0; i < count; i++)
        transfers[i].record = g->unrecorded ? NULL : record_of(g, &transfers[i].op);
    result = run(g, r, count, stream, &state);
    for (int i = 0; i < count && !g->unrecorded; i++) {
        if (result != MOTET_OK)
            motet_recorder_end(transfers[i].record, result);
        else
            motet_gpu_note_pending(g, transfers[i].record, state.capturing,
                    g->link->blocks);
    }
    if (r != few)
        free(r);
    return result;
}
