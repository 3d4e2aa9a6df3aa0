/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels report of themselves in host memory, for the watcher. */
#include "engine/gpu.h"

#include "base/clock.h"

#include <stdio.h>

static uint32_t word(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void end_records(motet_gpu_engine *g)
{
    uint32_t tail = atomic_load_explicit(&g->pending_tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&g->pending_head, memory_order_acquire);

    while (tail != head) {
        motet_gpu_pending *p = &g->pending[tail % MOTET_GPU_PENDING];

        if (!motet_gpu_link_ended(g->link, p->ticket, p->blocks))
            break;
        if (atomic_load_explicit(&p->record->seq, memory_order_relaxed) == p->seq)
            motet_recorder_end(p->record, (motet_result)atomic_load(&g->engine->stop));
        atomic_store_explicit(&g->pending_tail, ++tail, memory_order_release);
    }
}

/* The operation that ended last is followed by the one that runs. */
static motet_trace_op *running_record(motet_gpu_engine *g)
{
    uint32_t tail = atomic_load_explicit(&g->pending_tail, memory_order_relaxed);
    motet_gpu_pending *p = &g->pending[tail % MOTET_GPU_PENDING];

    if (tail == atomic_load_explicit(&g->pending_head, memory_order_acquire) ||
            atomic_load_explicit(&p->record->seq, memory_order_relaxed) != p->seq)
        return NULL;
    return p->record;
}

static const char *call_of(const motet_gpu_engine *g, int rank, uint64_t progress,
        char *buf, size_t bytes)
{
    motet_op op;

    if (motet_find_call(g->engine, rank, (uint32_t)(progress >> 32), &op))
        motet_op_describe(&op, buf, bytes);
    else
        snprintf(buf, bytes, "another");
    return buf;
}

static motet_result report_error(motet_gpu_engine *g, uint32_t error)
{
    motet_gpu_control *c = g->link->control;
    int rank = g->engine->rank, peer = (int)word(&c->error_peer);
    char mine[128], theirs[128];

    switch (error) {
    case MOTET_GPU_ERROR_FINGERPRINT:
        return motet_engine_fail(g->engine, MOTET_ERR_USAGE, -1,
                "the ranks disagree about an operation: rank %d calls %s, rank %d "
                "calls %s",
                rank, call_of(g, rank, c->error_mine, mine, sizeof(mine)), peer,
                call_of(g, peer, c->error_theirs, theirs, sizeof(theirs)));
    case MOTET_GPU_ERROR_OVERLAP:
        return motet_engine_fail(g->engine, MOTET_ERR_USAGE, rank,
                "two operations of one communicator ran at the same time on rank %d: "
                "a captured and an eager one may, if graph mixing is off",
                rank);
    case MOTET_GPU_ERROR_SIZE:
        return motet_engine_fail(g->engine, MOTET_ERR_USAGE, -1,
                "a send and its receive differ: rank %d sends %llu bytes, rank %d "
                "receives %llu",
                peer, (unsigned long long)c->error_theirs, rank,
                (unsigned long long)c->error_mine);
    default: return MOTET_OK; /* aborted: whoever did it has said why */
    }
}

motet_result motet_gpu_failure(motet_gpu_engine *g)
{
    uint32_t error = word(&g->link->control->error);

    return error == 0 || atomic_load(&g->engine->stop) != 0
            ? motet_engine_failure(g->engine)
            : report_error(g, error);
}

/* The first block that reports a long wait. False if none does. */
static bool find_waiting(const motet_gpu_control *c, int *peer_out,
        uint32_t *position_out)
{
    for (int b = 0; b < MOTET_GPU_BLOCKS; b++) {
        uint32_t peer = word(&c->waiting[b].peer_plus_1);

        if (peer == 0)
            continue;
        *peer_out = (int)peer - 1;
        *position_out = word(&c->waiting[b].position);
        return true;
    }
    return false;
}

static void begin_wait(motet_gpu_engine *g, int peer, uint32_t position,
        uint64_t now_ns)
{
    motet_trace_op *record = running_record(g);

    g->waiting_peer = peer;
    g->waiting_position = position;
    g->waiting_op = (motet_op){ .kind = MOTET_NUM_KINDS, .root = -1 };
    if (record != NULL)
        g->waiting_op = (motet_op){
            .kind = (motet_kind)record->kind,
            .type = (motet_type)record->type,
            .redop = (motet_redop)record->redop,
            .root = record->peer,
            .count = record->count,
        };
    g->waiting = (motet_running){ .engine = g->engine,
        .op = &g->waiting_op,
        .record = record };
    motet_wait_begin(&g->wait, &g->waiting);
    g->wait.start_ns = now_ns;
}

/* Communicators of this process with work under way: where streams share hardware queues,
 * the one may lie behind the other. */
static _Atomic int busy_engines;

static void count_busy(motet_gpu_engine *g, bool busy)
{
    if (busy != g->busy)
        atomic_fetch_add(&busy_engines, busy ? 1 : -1);
    g->busy = busy;
}

void motet_gpu_look_end(motet_gpu_engine *g)
{
    count_busy(g, false);
}

static motet_result look_at_waits(motet_gpu_engine *g, uint64_t now_ns)
{
    uint32_t position;
    int peer;

    if (!find_waiting(g->link->control, &peer, &position)) {
        if (g->waiting_peer >= 0 && g->waiting.record != NULL)
            motet_wait_end(&g->wait);
        g->waiting_peer = -1;
        return MOTET_OK;
    }
    if (g->waiting_peer != peer || g->waiting_position != position)
        begin_wait(g, peer, position, now_ns);
    g->wait.hint = atomic_load(&busy_engines) > 1
            ? g->link->ops->facts(g->link->gpu)->queue_hint
            : NULL;
    return motet_wait_look(&g->wait, peer, now_ns);
}

motet_result motet_gpu_look(motet_gpu_engine *g, uint64_t now_ns)
{
    motet_result result = motet_gpu_failure(g);

    count_busy(g, g->waiting_peer >= 0 || running_record(g) != NULL);
    if (result == MOTET_OK)
        result = look_at_waits(g, now_ns);
    end_records(g);
    if (result == MOTET_OK && running_record(g) != NULL) {
        result = g->link->ops->health(g->link->gpu);
        if (result != MOTET_OK)
            result = motet_engine_fail(g->engine, result, g->engine->rank,
                    "the device of rank %d has failed: %s", g->engine->rank,
                    motet_error_trail());
    }
    return result;
}
