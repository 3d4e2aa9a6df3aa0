/* SPDX-License-Identifier: Apache-2.0 */
/* One collective from its call to its end: stamp, plan, run, record. */
#include "engine/board.h"

#include "trace/fingerprint.h"

#include <string.h>

motet_trace_call motet_call_of(const motet_op *op)
{
    return (motet_trace_call){
        .count = op->count,
        .fingerprint = motet_fingerprint(op->kind, op->type, (int)op->redop, op->root,
                op->count, op->timeout_ms ^ (op->bias != NULL ? 1u << 31 : 0)),
        .peer = op->root,
        .kind = (uint8_t)op->kind,
        .type = (uint8_t)op->type,
        .redop = (uint8_t)op->redop,
    };
}

void motet_show_call(motet_engine *engine, const motet_op *op, uint32_t fingerprint)
{
    motet_arena_head *head = engine->arena[engine->rank].head;
    motet_call *call = &head->call[engine->seq & (MOTET_CALLS - 1)];
    uint32_t word =
            (uint32_t)op->kind << 16 | (uint32_t)op->type << 8 | (uint32_t)op->redop;

    /* A reader that sees the number change drops the call: each store is a release, so
     * that none is seen before the number is gone. */
    atomic_store_explicit(&call->seq, 0, memory_order_relaxed);
    atomic_store_explicit(&call->count, op->count, memory_order_release);
    atomic_store_explicit(&call->fingerprint, fingerprint, memory_order_release);
    atomic_store_explicit(&call->chain, engine->chain, memory_order_release);
    atomic_store_explicit(&call->root, op->root, memory_order_release);
    atomic_store_explicit(&call->kind_type_op, word, memory_order_release);
    atomic_store_explicit(&call->seq, engine->seq, memory_order_release);
    atomic_store_explicit(&head->seq, engine->seq, memory_order_release);
}

static uint64_t scalar_of(const motet_op *op)
{
    uint64_t scalar = op->scalar;

    if (op->scalar_ptr != NULL)
        memcpy(&scalar, op->scalar_ptr, motet_type_table[op->type].bytes);
    return scalar;
}

/* One rank: what the operation means without peers. */
static void run_alone(motet_engine *engine, const motet_op *op, uint64_t scalar)
{
    const void *sources[1] = { op->send };
    motet_reduce_args args = {
        .dst = op->recv,
        .src = sources,
        .nsrc = 1,
        .count = op->count,
        .type = (int)op->type,
        .redop = (int)op->redop,
        .nranks = 1,
        .scalar = op->redop == MOTET_PREMUL_SUM ? &scalar : NULL,
        .bias = op->bias,
    };
    bool arithmetic = motet_kind_table[op->kind].reduces &&
            (op->redop == MOTET_PREMUL_SUM || op->bias != NULL);

    if (arithmetic)
        engine->kernels->reduce(&args);
    else if (op->send != op->recv)
        memmove(op->recv, op->send, motet_op_bytes(op));
}

motet_result motet_engine_collective(motet_engine *engine, const motet_op *op)
{
    motet_running running = { .engine = engine, .op = op };
    motet_trace_call call = motet_call_of(op);
    uint64_t scalar = op->redop == MOTET_PREMUL_SUM ? scalar_of(op) : 0;
    motet_result result = motet_engine_failure(engine);
    motet_plan plan;

    if (result == MOTET_OK)
        result = motet_plan_make(op, engine->nranks, &engine->constants, &plan);
    if (result != MOTET_OK)
        return result;
    running.seq = ++engine->seq;
    running.fingerprint = engine->chain =
            motet_fingerprint_chain(engine->chain, call.fingerprint);
    call.algorithm = plan.algorithm;
    call.collective = (uint32_t)running.seq;
    motet_show_call(engine, op, call.fingerprint);
    running.record = motet_recorder_begin(engine->recorder, &call);
    if (plan.algorithm != MOTET_ALG_NONE)
        result = motet_board_run(&running, &plan, scalar);
    else if (op->count != 0)
        run_alone(engine, op, scalar);
    motet_recorder_end(running.record, result);
    return result;
}
