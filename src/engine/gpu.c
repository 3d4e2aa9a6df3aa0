/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu.h"

#include "base/log.h"

#include <string.h>

/* Names of the kernels, by protocol: for copies, for reductions. */
static const char *const kernel_names[MOTET_GPU_NUM_PROTOCOLS][2] = {
    [MOTET_GPU_LL] = { "motet_ll_copy", "motet_ll_reduce" },
    [MOTET_GPU_STAGED] = { "motet_stage_copy", "motet_stage_reduce" },
    [MOTET_GPU_TWOSHOT] = { NULL, "motet_twoshot_reduce" },
};

static motet_result find_kernels(motet_gpu_engine *g, void *module)
{
    const motet_gpu_ops *ops = g->link->ops;

    for (int p = MOTET_GPU_LL; p < MOTET_GPU_NUM_PROTOCOLS; p++)
        for (int i = 0; i < 2; i++)
            if (kernel_names[p][i] != NULL)
                MOTET_TRY(ops->function(g->link->gpu, module, kernel_names[p][i],
                                  &g->collective[p][i]),
                        "find the kernels");
    MOTET_TRY(motet_gpu_small_find(g, module), "find the kernels");
    MOTET_TRY(motet_gpu_copies_init(g, module), "prepare copies");
    return ops->function(g->link->gpu, module, "motet_pairs", &g->pairs);
}

motet_result motet_gpu_engine_init(motet_gpu_engine *g, void *module)
{
    const motet_gpu_ops *ops = g->link->ops;

    g->waiting_peer = -1;
    MOTET_TRY(find_kernels(g, module), "engine of rank %d", g->engine->rank);
    return ops->event_create(g->link->gpu, &g->join);
}

void motet_gpu_engine_release(motet_gpu_engine *g)
{
    if (g->join != NULL)
        g->link->ops->event_destroy(g->link->gpu, g->join);
    g->join = NULL;
    motet_gpu_look_end(g);
    motet_gpu_copies_release(g);
}

/* ---- order ---- */

static void release_link(void *link)
{
    motet_gpu_link_release(link);
}

static motet_result enter_capture(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state)
{
    const motet_gpu_ops *ops = g->link->ops;
    motet_gpu *gpu = g->link->gpu;
    motet_result result;

    if (g->mixing && g->used && !g->events)
        MOTET_TRY(ops->event_record(gpu, g->link->order, (void *)(uintptr_t)g->stream,
                          false),
                "end the eager operations");
    if (g->mixing) {
        g->events = true;
        MOTET_TRY(ops->event_wait(gpu, g->link->order, stream, true),
                "begin a capture");
    }
    motet_gpu_link_hold(g->link);
    result = ops->graph_hold(gpu, state->graph, release_link, g->link);
    if (result != MOTET_OK) {
        motet_gpu_link_release(g->link);
        return motet_error_wrap(result, "begin a capture");
    }
    g->capture = state->capture;
    g->capture_stream = stream;
    g->leaf = NULL;
    return MOTET_OK;
}

/* What runs on @p stream next runs after all that this communicator was given before. */
motet_result motet_gpu_order_before(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state)
{
    const motet_gpu_ops *ops = g->link->ops;
    motet_gpu *gpu = g->link->gpu;

    if (state->capturing && state->capture != g->capture)
        return enter_capture(g, stream, state);
    if (state->capturing && stream != g->capture_stream) {
        MOTET_TRY(ops->event_record(gpu, g->join, (void *)(uintptr_t)g->capture_stream,
                          false),
                "change streams in a capture");
        return ops->event_wait(gpu, g->join, stream, false);
    }
    if (state->capturing)
        return MOTET_OK;
    /* Nothing eager runs elsewhere, and no graph that would have told the event. */
    if ((!g->used || stream == g->stream) && (g->capture == 0 || !g->events))
        return MOTET_OK;
    if (!g->events)
        MOTET_TRY(ops->event_record(gpu, g->link->order, (void *)(uintptr_t)g->stream,
                          false),
                "change streams");
    g->events = true;
    return ops->event_wait(gpu, g->link->order, stream, false);
}

motet_result motet_gpu_order_after(motet_gpu_engine *g, void *stream,
        const motet_stream_state *state)
{
    const motet_gpu_ops *ops = g->link->ops;

    if (state->capturing) {
        g->capture_stream = stream;
        return g->mixing ? ops->graph_record(g->link->gpu, state, g->link->order,
                                   stream, &g->leaf)
                         : MOTET_OK;
    }
    g->stream = stream;
    g->used = true;
    return g->events ? ops->event_record(g->link->gpu, g->link->order, stream, false)
                     : MOTET_OK;
}

/* ---- launching ---- */

/* A captured operation ends when its graph runs, as often as that is: its record says
 * that it was given, and ends here. */
void motet_gpu_note_pending(motet_gpu_engine *g, motet_trace_op *record, bool captured,
        uint32_t blocks)
{
    uint32_t head = atomic_load_explicit(&g->pending_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&g->pending_tail, memory_order_acquire);

    if (captured || head - tail == MOTET_GPU_PENDING) {
        motet_recorder_end(record, MOTET_OK);
        return;
    }
    g->pending[head % MOTET_GPU_PENDING] = (motet_gpu_pending){
        .record = record,
        .seq = atomic_load_explicit(&record->seq, memory_order_relaxed),
        .ticket = g->link->ticket,
        .blocks = blocks,
    };
    atomic_store_explicit(&g->pending_head, head + 1, memory_order_release);
}

/* The number of the next launch; 0 in a capture, whose kernels run any number of times. */
uint32_t motet_gpu_next_ticket(motet_gpu_engine *g, const motet_stream_state *state,
        uint32_t blocks)
{
    if (state->capturing)
        return 0;
    g->link->blocks = blocks;
    g->link->ticket = g->link->ticket + 1 == 0 ? 1 : g->link->ticket + 1;
    g->link->used = true;
    return g->link->ticket;
}

motet_result motet_gpu_stream_state(motet_gpu_engine *g, void *stream,
        motet_stream_state *out)
{
    MOTET_TRY(g->link->ops->stream_state(g->link->gpu, stream, out), "stream");
    if (out->invalidated)
        return motet_fail(MOTET_ERR_USAGE,
                "the stream's capture has failed before this call: end it first");
    return MOTET_OK;
}

motet_result motet_gpu_enqueued(motet_gpu_engine *g, motet_result result)
{
    if (result == MOTET_OK || g->unrecorded)
        return result;
    return motet_engine_fail(g->engine, result, g->engine->rank,
            "rank %d cannot enqueue its part: %s", g->engine->rank,
            motet_error_trail());
}

motet_result motet_gpu_enqueue(motet_gpu_engine *g, const motet_launch *launch,
        void *stream, const motet_stream_state *state)
{
    motet_result result = motet_gpu_order_before(g, stream, state);

    if (result == MOTET_OK)
        result = g->link->ops->launch(g->link->gpu, launch, stream);
    if (result == MOTET_OK)
        result = motet_gpu_order_after(g, stream, state);
    return motet_gpu_enqueued(g, result);
}

void motet_gpu_fill_common(const motet_gpu_engine *g, motet_gpu_args *args)
{
    const motet_gpu_link *link = g->link;

    memset(args, 0, sizeof(*args));
    args->own = (uint8_t *)(uintptr_t)link->own.address;
    for (int r = 0; r < link->nranks; r++)
        args->arena[r] = (uint8_t *)(uintptr_t)link->at[r];
    for (int i = 0; i < MOTET_GPU_INBOXES; i++)
        args->inbox[i] = (uint8_t *)(uintptr_t)link->inbox[i];
    args->hosted = link->hosted;
    args->control = (motet_gpu_control *)(uintptr_t)link->control_device;
    args->layout = link->layout;
    args->rank = (uint32_t)link->rank;
    args->nranks = (uint32_t)link->nranks;
}

/* The window that holds @p bytes at @p ptr, 0 for none. */
static uint32_t window_of(const motet_gpu_engine *g, const void *ptr, uint64_t bytes,
        uint64_t *offset_out)
{
    uint64_t at = (uint64_t)(uintptr_t)ptr;

    for (uint32_t i = 0; i < MOTET_GPU_WINDOWS; i++) {
        const motet_gpu_window *w = &g->window[i];

        if (at < w->base || bytes > w->bytes || at - w->base > w->bytes - bytes)
            continue;
        *offset_out = at - w->base;
        return i + 1;
    }
    return 0;
}

/* Where this rank's buffers lie, for its peers to read and write in place. */
static void fill_offer(const motet_gpu_engine *g, const motet_gpu_plan *plan,
        motet_gpu_args *args)
{
    uint64_t n = args->nranks;

    args->offers = 1;
    args->send_window = window_of(g, args->send,
            plan->send_stride != 0 ? n * plan->piece : plan->piece, &args->send_offset);
    args->recv_window = window_of(g, args->recv,
            plan->recv_stride != 0 ? n * plan->piece : plan->piece, &args->recv_offset);
}

static void fill_args(const motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, motet_gpu_args *args)
{
    motet_gpu_fill_common(g, args);
    args->blocks = plan->blocks;
    args->send_mask = plan->send_mask;
    args->recv_mask = plan->recv_mask;
    args->fingerprint = fingerprint;
    args->type = (uint32_t)op->type;
    args->redop = (uint32_t)op->redop;
    args->send = op->send;
    args->recv = op->recv;
    args->bias = op->bias;
    args->bytes = plan->piece;
    args->send_stride = plan->send_stride;
    args->recv_stride = plan->recv_stride;
    args->scalar = op->scalar;
    args->scalar_ptr = op->scalar_ptr;
    if (g->windows != 0 && plan->protocol != MOTET_GPU_LL)
        fill_offer(g, plan, args);
}

/* One rank that computes nothing: a copy, if anything. */
static motet_result copy_alone(motet_gpu_engine *g, const motet_op *op, void *stream)
{
    if (op->send == op->recv)
        return MOTET_OK;
    return g->link->ops->copy(g->link->gpu, (uint64_t)(uintptr_t)op->recv,
            (uint64_t)(uintptr_t)op->send, motet_op_bytes(op), stream);
}

static bool computes(const motet_op *op)
{
    return motet_kind_table[op->kind].reduces &&
            (op->redop == MOTET_PREMUL_SUM || op->bias != NULL);
}

/* By the kernels that serve everything. */
static motet_result launch_any(motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, void *stream,
        const motet_stream_state *state)
{
    motet_gpu_args args;
    motet_launch launch = {
        .function = g->collective[plan->protocol][plan->reduce],
        .blocks = plan->blocks,
        .threads = MOTET_GPU_THREADS,
        .args = &args,
        .bytes = sizeof(args),
    };

    fill_args(g, op, plan, fingerprint, &args);
    args.ticket = motet_gpu_next_ticket(g, state, plan->blocks);
    return motet_gpu_enqueue(g, &launch, stream, state);
}

/* Once for a communicator. */
static void say_policy(motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan)
{
    if (!g->constants.zero || g->said_policy || plan->protocol == MOTET_GPU_COPIES ||
            plan->protocol == MOTET_GPU_NOTHING || g->unrecorded)
        return;
    g->said_policy = true;
    motet_info(MOTET_SUB_COLL,
            "rank %d CTA policy ZERO: copy engines do not serve %s, kernels do",
            g->engine->rank, motet_kind_table[op->kind].name);
}

motet_result motet_gpu_collective(motet_gpu_engine *g, const motet_op *op,
        const void *given)
{
    motet_engine *engine = g->engine;
    void *stream = (void *)(uintptr_t)given;
    motet_trace_call call = motet_call_of(op);
    motet_stream_state state;
    motet_gpu_plan plan;
    motet_trace_op *record = NULL;
    motet_result result = motet_gpu_failure(g);

    if (result == MOTET_OK)
        result = motet_gpu_stream_state(g, stream, &state);
    if (result != MOTET_OK)
        return result;
    motet_gpu_plan_make(op, engine->rank, engine->nranks, &g->constants, g->limit,
            &plan);
    say_policy(g, op, &plan);
    call.algorithm = plan.protocol;
    call.collective = (uint32_t)++engine->seq;
    if (!g->unrecorded) {
        motet_show_call(engine, op, call.fingerprint);
        record = motet_recorder_begin(engine->recorder, &call);
    }
    if (plan.protocol == MOTET_GPU_NOTHING || (engine->nranks == 1 && !computes(op))) {
        result = op->count == 0 ? MOTET_OK : copy_alone(g, op, stream);
        if (record != NULL)
            motet_recorder_end(record, result);
        return result;
    }
    if (plan.protocol == MOTET_GPU_COPIES)
        result = motet_gpu_copies_collective(g, op, &plan, call.fingerprint, stream,
                &state);
    else if (motet_gpu_small_fits(g, op, &plan))
        result = motet_gpu_small(g, op, &plan, call.fingerprint, stream, &state);
    else
        result = launch_any(g, op, &plan, call.fingerprint, stream, &state);
    if (record != NULL && result != MOTET_OK)
        motet_recorder_end(record, result);
    else if (record != NULL)
        motet_gpu_note_pending(g, record, state.capturing, plan.blocks);
    return result;
}
