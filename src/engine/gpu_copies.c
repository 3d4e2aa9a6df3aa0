/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations by copy engines, and what they are made of: lanes, flags, copies.
 *
 * A rank fills slots of its own arena's ring on one stream, its lane for filling, and
 * empties those of its peers on another, its lane for reading, so that copies go both ways
 * at a time. Between two copies of a lane stands a kernel of one block, which tells the
 * peers what was done and waits until the next may be.
 *
 * Streams may share one of the device's queues (CUDA_DEVICE_MAX_CONNECTIONS, AMD's four
 * hardware queues): what is enqueued first then runs first, whatever its lane. So things
 * are enqueued in rounds: step i of filling in round i, step i of reading in round i + 1,
 * and what a flag waits for is told in an earlier round, or by a flag that comes before it
 * in the same one. That is an order in which they can run one by one on all ranks.
 *
 * In a graph no copy engine is used: nobody says in which order its branches run, and a
 * copy would be made after the communicator is gone. There a round is a flag and a kernel
 * that moves what the copies of both lanes would have moved; peers see no difference.
 */
#include "engine/gpu.h"

#include <string.h>

/* Blocks of a direction of motet_ring_step: enough for a link to host memory. */
#define STEP_BLOCKS 16
/* Threads of a flag: one for each peer. */
#define FLAG_THREADS 32

static const char *const kernel_names[MOTET_COPIES_KERNELS] = {
    [MOTET_COPIES_FLAG] = "motet_flag",
    [MOTET_COPIES_PAIR_FLAG] = "motet_pair_flag",
    [MOTET_COPIES_STEP] = "motet_ring_step",
};

motet_result motet_gpu_copies_init(motet_gpu_engine *g, void *module)
{
    const motet_gpu_ops *ops = g->link->ops;
    motet_gpu *gpu = g->link->gpu;

    for (int i = 0; i < MOTET_COPIES_KERNELS; i++)
        MOTET_TRY(ops->function(gpu, module, kernel_names[i], &g->copies.kernel[i]),
                "find the kernels");
    for (int i = 0; i < MOTET_LANES; i++)
        MOTET_TRY(ops->stream_create(gpu, true, &g->copies.lane[i]),
                "streams for copies");
    for (int i = 0; i < MOTET_COPIES_EVENTS; i++)
        MOTET_TRY(ops->event_create(gpu, &g->copies.event[i]), "events for copies");
    return MOTET_OK;
}

void motet_gpu_copies_release(motet_gpu_engine *g)
{
    const motet_gpu_ops *ops = g->link->ops;

    for (int i = 0; i < MOTET_COPIES_EVENTS; i++)
        if (g->copies.event[i] != NULL)
            ops->event_destroy(g->link->gpu, g->copies.event[i]);
    for (int i = 0; i < MOTET_LANES; i++)
        if (g->copies.lane[i] != NULL && !g->link->stuck) /* it might be waited for */
            ops->stream_destroy(g->link->gpu, g->copies.lane[i]);
    memset(&g->copies, 0, sizeof(g->copies));
}

/* ---- lanes ---- */

/* Point @p event of @p from is before what @p to gets next. */
static motet_result follow(motet_gpu_engine *g, int event, void *from, void *to)
{
    const motet_gpu_ops *ops = g->link->ops;

    if (from == to)
        return MOTET_OK;
    MOTET_TRY(ops->event_record(g->link->gpu, g->copies.event[event], from, false),
            "join streams");
    return ops->event_wait(g->link->gpu, g->copies.event[event], to, false);
}

static motet_result fork_lanes(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state, motet_gpu_lanes *out)
{
    memset(out, 0, sizeof(*out));
    out->stream = stream;
    out->captured = state->capturing;
    for (int i = 0; i < MOTET_LANES; i++) {
        out->lane[i] = state->capturing ? stream : g->copies.lane[i];
        MOTET_TRY(follow(g, MOTET_COPIES_FORK, stream, out->lane[i]), "copies");
    }
    return MOTET_OK;
}

motet_result motet_gpu_copies_fork(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state, motet_gpu_lanes *out)
{
    motet_result result = motet_gpu_order_before(g, stream, state);

    if (result == MOTET_OK)
        result = fork_lanes(g, stream, state, out);
    return motet_gpu_enqueued(g, result);
}

static motet_result join(motet_gpu_engine *g, const motet_gpu_lanes *l)
{
    for (int i = 0; i < MOTET_LANES; i++)
        MOTET_TRY(follow(g, MOTET_COPIES_JOIN + i, l->lane[i], l->stream), "copies");
    return MOTET_OK;
}

static motet_result launch(motet_gpu_engine *g, int kernel, uint32_t blocks,
        uint32_t threads, const void *args, size_t bytes, void *stream)
{
    motet_launch l = {
        .function = g->copies.kernel[kernel],
        .blocks = blocks,
        .threads = threads,
        .args = args,
        .bytes = bytes,
    };

    return g->link->ops->launch(g->link->gpu, &l, stream);
}

/* In a graph: what the lanes have been given since the last time. */
static motet_result run_step(motet_gpu_engine *g, motet_gpu_lanes *l)
{
    motet_gpu_ring_args *s = &l->step;
    motet_gpu_args common;
    motet_result result;

    if (s->fills + s->reads == 0 && s->op.recv_mask == 0)
        return MOTET_OK;
    motet_gpu_fill_common(g, &common);
    common.type = s->op.type;
    common.redop = s->op.redop;
    common.recv_mask = s->op.recv_mask;
    common.send = s->op.send;
    common.recv = s->op.recv;
    common.bytes = s->op.bytes;
    common.blocks = STEP_BLOCKS;
    s->op = common;
    result = launch(g, MOTET_COPIES_STEP, 2 * STEP_BLOCKS, MOTET_GPU_THREADS, s,
            sizeof(*s), l->lane[MOTET_LANE_READ]);
    memset(s, 0, sizeof(*s));
    return result;
}

/* All that fills comes before all that reads, in a step. */
static motet_result copy(motet_gpu_engine *g, motet_gpu_lanes *l, int lane, uint64_t to,
        uint64_t from, uint64_t bytes)
{
    motet_gpu_ring_args *s = &l->step;

    if (bytes == 0 || to == from)
        return MOTET_OK;
    if (!l->captured)
        return g->link->ops->copy(g->link->gpu, to, from, bytes, l->lane[lane]);
    s->copy[s->fills + s->reads] =
            (motet_gpu_ring_copy){ .to = (uint8_t *)(uintptr_t)to,
                .from = (const uint8_t *)(uintptr_t)from,
                .bytes = bytes };
    if (lane == MOTET_LANE_FILL)
        s->fills++;
    else
        s->reads++;
    return MOTET_OK;
}

/*
 * ---- rings ----
 *
 * Slots for one reader are read by nobody else, slots for all by all others. So who fills
 * one waits, with the readers of this operation, for all that have read it before.
 */

/* Where this rank fills slot @p slot for @p reader; for all: in @p inbox, of two. */
static uint64_t own_slot(const motet_gpu_engine *g, int inbox, uint64_t slot,
        int reader)
{
    return g->link->inbox[inbox] +
            motet_gpu_ring_offset(&g->link->layout, (uint32_t)(slot % MOTET_RING_SLOTS),
                    (uint32_t)reader);
}

static int inbox_for(const motet_gpu_engine *g, int peer)
{
    return (int)(g->link->hosted >> peer & 1u);
}

static motet_result fill_for(motet_gpu_engine *g, motet_gpu_lanes *l, uint64_t slot,
        int reader, uint64_t from, uint64_t bytes)
{
    return copy(g, l, MOTET_LANE_FILL, own_slot(g, inbox_for(g, reader), slot, reader),
            from, bytes);
}

/* Once for each arena that has readers in @p mask. */
static motet_result fill_for_all(motet_gpu_engine *g, motet_gpu_lanes *l, uint64_t slot,
        uint32_t mask, uint64_t from, uint64_t bytes)
{
    const uint32_t readers[2] = { mask & ~g->link->hosted, mask & g->link->hosted };

    for (int i = 0; i < 2; i++)
        if (readers[i] != 0)
            MOTET_TRY(copy(g, l, MOTET_LANE_FILL, own_slot(g, i, slot, g->link->rank),
                              from, bytes),
                    "fill a ring");
    return MOTET_OK;
}

/* From the slot that @p peer filled for this rank, or for all. */
static motet_result fetch(motet_gpu_engine *g, motet_gpu_lanes *l, uint64_t slot,
        int peer, bool for_all, uint64_t to, uint64_t bytes)
{
    return copy(g, l, MOTET_LANE_READ, to,
            g->link->at[peer] +
                    motet_gpu_ring_offset(&g->link->layout,
                            (uint32_t)(slot % MOTET_RING_SLOTS),
                            (uint32_t)(for_all ? peer : g->link->rank)),
            bytes);
}

/* ---- collectives ---- */

/*
 * Positions of a collective. With one phase, step t is position t. An all_reduce has two
 * for each step: 2t, in which all get their slices of the step, and 2t + 3, in which sums
 * go to all; so sums are there before they are needed, whatever the order of lanes.
 */
typedef struct collective {
    motet_gpu_engine *g;
    const motet_op *op;
    const motet_gpu_plan *plan;
    motet_gpu_lanes lanes;
    uint32_t fingerprint, ticket;
    uint32_t positions;
    uint32_t to, from;         /* peers */
    motet_gpu_flag_args round; /* captured: what both lanes tell and wait for */
} collective;

typedef struct place {
    bool sums; /* second phase */
    bool empty;
    uint64_t step;
} place;

static place place_of(const collective *c, uint32_t position)
{
    place p = { .step = position };

    if (c->plan->phases == 1)
        return p;
    p.sums = position % 2 != 0;
    p.step = p.sums ? (uint64_t)position / 2 - 1 : position / 2;
    p.empty = p.step >= c->plan->steps; /* before the first sums it wraps */
    return p;
}

/* Offset in the message and bytes of step @p step of rank @p r's slice. */
static uint64_t slice_at(const collective *c, int r, uint64_t step, uint64_t *bytes_out)
{
    const motet_gpu_plan *plan = c->plan;
    uint64_t in_slice = step * plan->step, at = (uint64_t)r * plan->slice + in_slice;
    uint64_t bytes = plan->slice - in_slice;

    if (bytes > plan->step)
        bytes = plan->step;
    if (at >= plan->piece)
        bytes = 0;
    else if (bytes > plan->piece - at)
        bytes = plan->piece - at;
    *bytes_out = bytes;
    return at;
}

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static motet_result launch_flag(collective *c, motet_gpu_flag_args *args, void *stream)
{
    motet_gpu_fill_common(c->g, &args->op);
    args->op.fingerprint = c->fingerprint;
    args->steps = c->positions;
    if (args->last)
        args->op.ticket = c->ticket;
    return launch(c->g, MOTET_COPIES_FLAG, 1, FLAG_THREADS, args, sizeof(*args),
            stream);
}

/* On a lane; in a graph, both lanes' flags of a round become one. */
static motet_result flag(collective *c, motet_gpu_flag_args *args, int lane)
{
    if (!c->lanes.captured) {
        args->place = lane == MOTET_LANE_READ ? 1 : 0;
        return launch_flag(c, args, c->lanes.lane[lane]);
    }
    if (lane == MOTET_LANE_FILL) {
        c->round = *args;
    } else {
        c->round.read_mask = args->read_mask;
        c->round.read = args->read;
        c->round.data_mask = args->data_mask;
        c->round.data = args->data;
    }
    return MOTET_OK;
}

static motet_result fill_slices(collective *c, const place *p)
{
    motet_gpu_engine *g = c->g;
    uint64_t bytes, at;

    if (p->sums) {
        at = slice_at(c, g->link->rank, p->step, &bytes);
        return fill_for_all(g, &c->lanes, p->step, c->to, address(c->op->recv) + at,
                bytes);
    }
    for (int i = 1; i < g->link->nranks; i++) {
        int peer = (g->link->rank + i) % g->link->nranks;

        at = slice_at(c, peer, p->step, &bytes);
        MOTET_TRY(fill_for(g, &c->lanes, p->step, peer, address(c->op->send) + at,
                          bytes),
                "fill a ring");
    }
    return MOTET_OK;
}

/* The same of a piece. */
static uint64_t piece_at(const motet_gpu_plan *plan, uint64_t step, uint64_t *bytes_out)
{
    uint64_t at = step * plan->step, left = plan->piece - at;

    *bytes_out = left < plan->step ? left : plan->step;
    return at;
}

static motet_result fill_pieces(collective *c, const place *p)
{
    motet_gpu_engine *g = c->g;
    const motet_gpu_plan *plan = c->plan;
    uint64_t bytes, at = piece_at(plan, p->step, &bytes);

    if (plan->for_all)
        return fill_for_all(g, &c->lanes, p->step, c->to, address(c->op->send) + at,
                bytes);
    for (int i = 1; i < g->link->nranks; i++) {
        int peer = (g->link->rank + i) % g->link->nranks;

        if ((c->to >> peer & 1u) != 0)
            MOTET_TRY(fill_for(g, &c->lanes, p->step, peer,
                              address(c->op->send) +
                                      (uint64_t)peer * plan->send_stride + at,
                              bytes),
                    "fill a ring");
    }
    return MOTET_OK;
}

/* Position @p k of the lane that fills; the last one only tells of the one before. */
static motet_result fill(collective *c, uint32_t k)
{
    const uint32_t ahead = c->plan->phases * MOTET_RING_SLOTS - 1;
    bool more = k < c->positions;
    void *stream = c->lanes.lane[MOTET_LANE_FILL];
    place p = place_of(c, k);
    motet_gpu_flag_args args = {
        .filled_mask = k != 0 ? c->to : 0,
        .filled = k,
        .credit_mask = more ? c->to : 0,
        .credit = k > ahead ? k - ahead : 0,
    };

    if (c->to == 0)
        return MOTET_OK;
    MOTET_TRY(flag(c, &args, MOTET_LANE_FILL), "tell what was filled");
    if (!more || p.empty)
        return MOTET_OK;
    if (p.sums && stream != c->lanes.lane[MOTET_LANE_READ])
        MOTET_TRY(c->g->link->ops->event_wait(c->g->link->gpu,
                          c->g->copies.event[MOTET_COPIES_REDUCED], stream, false),
                "wait for sums");
    return c->plan->phases == 2 ? fill_slices(c, &p) : fill_pieces(c, &p);
}

static motet_result reduce_step(collective *c, const place *p, uint64_t own,
        uint64_t to, uint64_t bytes)
{
    motet_gpu_ring_args *s = &c->lanes.step;

    if (bytes == 0)
        return MOTET_OK;
    s->slot = (uint32_t)(p->step % MOTET_RING_SLOTS);
    s->op.type = (uint32_t)c->op->type;
    s->op.redop = (uint32_t)c->op->redop;
    s->op.recv_mask = c->plan->recv_mask;
    s->op.send = (const uint8_t *)(uintptr_t)own;
    s->op.recv = (uint8_t *)(uintptr_t)to;
    s->op.bytes = bytes;
    return c->lanes.captured ? MOTET_OK : run_step(c->g, &c->lanes);
}

static motet_result read_slices(collective *c, const place *p)
{
    motet_gpu_engine *g = c->g;
    uint64_t bytes, at;

    if (!p->sums) {
        at = slice_at(c, g->link->rank, p->step, &bytes);
        MOTET_TRY(reduce_step(c, p, address(c->op->send) + at,
                          address(c->op->recv) + at, bytes),
                "reduce");
        return c->lanes.captured ? MOTET_OK
                                 : g->link->ops->event_record(g->link->gpu,
                                           g->copies.event[MOTET_COPIES_REDUCED],
                                           c->lanes.lane[MOTET_LANE_READ], false);
    }
    for (int i = 1; i < g->link->nranks; i++) {
        int peer = (g->link->rank + i) % g->link->nranks;

        at = slice_at(c, peer, p->step, &bytes);
        MOTET_TRY(fetch(g, &c->lanes, p->step, peer, true, address(c->op->recv) + at,
                          bytes),
                "empty a ring");
    }
    return MOTET_OK;
}

static motet_result read_pieces(collective *c, const place *p)
{
    motet_gpu_engine *g = c->g;
    const motet_gpu_plan *plan = c->plan;
    uint64_t bytes, at = piece_at(plan, p->step, &bytes);

    if (plan->reduce)
        return reduce_step(c, p,
                address(c->op->send) + (uint64_t)g->link->rank * plan->send_stride + at,
                address(c->op->recv) + at, bytes);
    for (int i = 1; i < g->link->nranks; i++) {
        int peer = (g->link->rank + i) % g->link->nranks;

        if ((c->from >> peer & 1u) != 0)
            MOTET_TRY(fetch(g, &c->lanes, p->step, peer, plan->for_all,
                              address(c->op->recv) +
                                      (uint64_t)peer * plan->recv_stride + at,
                              bytes),
                    "empty a ring");
    }
    return MOTET_OK;
}

/* Position @p k of the lane that reads. What was read last, the next operation tells. */
static motet_result read_at(collective *c, uint32_t k)
{
    place p = place_of(c, k);
    motet_gpu_flag_args args = {
        .read_mask = k != 0 ? c->from : 0,
        .read = k,
        .data_mask = c->from,
        .data = k + 1,
    };

    if (c->from == 0)
        return MOTET_OK;
    MOTET_TRY(flag(c, &args, MOTET_LANE_READ), "wait for what is filled");
    if (p.empty)
        return MOTET_OK;
    return c->plan->phases == 2 ? read_slices(c, &p) : read_pieces(c, &p);
}

/* This rank's own piece, which goes through no ring. */
static motet_result keep_own(collective *c)
{
    const motet_gpu_plan *plan = c->plan;
    uint64_t rank = (uint64_t)c->g->link->rank;

    if (plan->reduce || (plan->recv_mask >> rank & 1) == 0)
        return MOTET_OK;
    return copy(c->g, &c->lanes, MOTET_LANE_READ,
            address(c->op->recv) + rank * plan->recv_stride,
            address(c->op->send) + rank * plan->send_stride, plan->piece);
}

/* In a graph, what both lanes were given in this round. */
static motet_result end_round(collective *c)
{
    if (!c->lanes.captured)
        return MOTET_OK;
    MOTET_TRY(launch_flag(c, &c->round, c->lanes.stream), "flag");
    memset(&c->round, 0, sizeof(c->round));
    return run_step(c->g, &c->lanes);
}

static motet_result enqueue_collective(collective *c, void *stream,
        const motet_stream_state *state)
{
    MOTET_TRY(motet_gpu_order_before(c->g, stream, state), "order");
    MOTET_TRY(launch_flag(c, &(motet_gpu_flag_args){ .first = 1 }, stream), "enter");
    MOTET_TRY(fork_lanes(c->g, stream, state, &c->lanes), "fork");
    for (uint32_t round = 0; round <= c->positions; round++) {
        MOTET_TRY(fill(c, round), "fill");
        if (round == 0)
            MOTET_TRY(keep_own(c), "own piece");
        else
            MOTET_TRY(read_at(c, round - 1), "read");
        MOTET_TRY(end_round(c), "round");
    }
    MOTET_TRY(join(c->g, &c->lanes), "join");
    return launch_flag(c, &(motet_gpu_flag_args){ .last = 1 }, stream);
}

motet_result motet_gpu_copies_collective(motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, void *stream,
        const motet_stream_state *state)
{
    const uint32_t self = 1u << g->link->rank;
    collective c = {
        .g = g,
        .op = op,
        .plan = plan,
        .fingerprint = fingerprint,
        .ticket = motet_gpu_next_ticket(g, state, 1),
        .positions = plan->phases == 1 ? plan->steps : 2 * plan->steps + 2,
        .to = plan->send_mask & ~self,
        .from = plan->recv_mask & ~self,
    };
    motet_result result = enqueue_collective(&c, stream, state);

    if (result == MOTET_OK)
        result = motet_gpu_order_after(g, stream, state);
    return motet_gpu_enqueued(g, result);
}

/* ---- messages ---- */

/*
 * A message of k steps takes k + 2 rounds: the receiver says that it is there, then come
 * the steps, in which reading is one round behind. Both ends count rounds alike, so those
 * of one direction are in step whatever goes the other way. They need two lanes: in a
 * graph, which has one, a receive of this rank would wait behind a send that waits for the
 * peer's next call. So they are not captured.
 */
typedef struct train {
    motet_gpu_engine *g;
    motet_gpu_lanes *lanes;
    const motet_gpu_message *messages;
    int count, at; /* the message that runs */
    bool receives;
    uint64_t round; /* of it */
} train;

static bool is_in_train(const train *t, int i)
{
    return (t->messages[i].op->kind == MOTET_RECV) == t->receives;
}

static motet_result pair_flag(const train *t, motet_gpu_pair_flag_args *args)
{
    const motet_op *op = t->messages[t->at].op;

    motet_gpu_fill_common(t->g, &args->op);
    args->op.bytes = motet_op_bytes(op);
    args->peer = (uint32_t)op->root;
    args->receive = t->receives;
    args->place = t->receives;
    return launch(t->g, MOTET_COPIES_PAIR_FLAG, 1, FLAG_THREADS, args, sizeof(*args),
            t->lanes->lane[t->receives ? MOTET_LANE_READ : MOTET_LANE_FILL]);
}

static uint64_t bytes_at(const motet_gpu_message *m, uint64_t step)
{
    uint64_t left = motet_op_bytes(m->op) - step * m->step;

    return left < m->step ? left : m->step;
}

/* Step k is filled; the last round only tells of the one before. */
static motet_result send_round(const train *t)
{
    const motet_gpu_message *m = &t->messages[t->at];
    uint32_t k = (uint32_t)t->round - 1;
    bool more = k < m->steps;
    motet_gpu_pair_flag_args args = {
        .told = k != 0 ? k + 1 : 0,
        .awaited = !more               ? 0
                : k < MOTET_RING_SLOTS ? 1
                                       : k - MOTET_RING_SLOTS + 2,
        .sizes = k == 1,
        .ends = more ? 0 : (uint32_t)m->steps + 1,
    };

    if (t->round == 0)
        return MOTET_OK;
    MOTET_TRY(pair_flag(t, &args), "tell what was filled");
    return !more ? MOTET_OK
                 : fill_for(t->g, t->lanes, k, m->op->root,
                           address(m->op->send) + k * m->step, bytes_at(m, k));
}

/* The first round says that this rank is there, the second is the sender's alone. */
static motet_result receive_round(const train *t)
{
    const motet_gpu_message *m = &t->messages[t->at];
    uint32_t k = (uint32_t)t->round - 2;
    motet_gpu_pair_flag_args args = {
        .told = t->round == 0 ? 1
                : k != 0      ? k + 1
                              : 0,
        .awaited = t->round == 0 ? 0 : k + 2,
        .sizes = t->round != 0 && k == 0,
    };

    if (t->round == 1)
        return MOTET_OK;
    MOTET_TRY(pair_flag(t, &args), "wait for what is filled");
    if (t->round == 0)
        return MOTET_OK;
    MOTET_TRY(fetch(t->g, t->lanes, k, m->op->root, false,
                      address(m->op->recv) + k * m->step, bytes_at(m, k)),
            "empty a ring");
    args = (motet_gpu_pair_flag_args){ .told = k + 2, .ends = (uint32_t)m->steps + 1 };
    return k + 1 == m->steps ? pair_flag(t, &args) : MOTET_OK;
}

/* False: all messages are done. */
static bool find_message(train *t)
{
    while (t->at < t->count && !is_in_train(t, t->at))
        t->at++;
    return t->at < t->count;
}

static motet_result advance(train *t)
{
    MOTET_TRY(t->receives ? receive_round(t) : send_round(t), "message");
    if (t->round++ == t->messages[t->at].steps + 1) {
        t->round = 0;
        t->at++;
    }
    return MOTET_OK;
}

static motet_result enqueue_messages(train *sends, train *receives)
{
    motet_gpu_engine *g = sends->g;
    bool sending = true, receiving = true;

    while (sending || receiving) {
        sending = find_message(sends);
        if (sending)
            MOTET_TRY(advance(sends), "send");
        receiving = find_message(receives);
        if (receiving)
            MOTET_TRY(advance(receives), "receive");
    }
    return join(g, sends->lanes);
}

motet_result motet_gpu_copies_messages(motet_gpu_engine *g,
        const motet_gpu_message *messages, int count, motet_gpu_lanes *lanes,
        const motet_stream_state *state)
{
    train trains[2] = {
        { .g = g, .lanes = lanes, .messages = messages, .count = count },
        { .g = g,
                .lanes = lanes,
                .messages = messages,
                .count = count,
                .receives = true },
    };
    motet_gpu_pair_flag_args end = { .peer = (uint32_t)(1 - g->link->rank) };
    motet_result result = enqueue_messages(&trains[0], &trains[1]);

    motet_gpu_fill_common(g, &end.op);
    end.op.ticket = motet_gpu_next_ticket(g, state, 1);
    if (result == MOTET_OK)
        result = launch(g, MOTET_COPIES_PAIR_FLAG, 1, FLAG_THREADS, &end, sizeof(end),
                lanes->stream);
    if (result == MOTET_OK)
        result = motet_gpu_order_after(g, lanes->stream, state);
    return motet_gpu_enqueued(g, result);
}
