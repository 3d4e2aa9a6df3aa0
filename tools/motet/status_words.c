/* SPDX-License-Identifier: Apache-2.0 */
/* How motet status writes ranks, calls and times; the same in text and JSON. */
#include "status.h"

#include <string.h>
#include <time.h>

const char *const status_process_names[STATUS_NUM_PROCESSES] = {
    [STATUS_ALIVE] = "alive",
    [STATUS_ELSEWHERE] = "alive in another pid namespace",
    [STATUS_STOPPED] = "stopped",
    [STATUS_DEAD] = "dead",
    [STATUS_CLOSED] = "exited cleanly",
    [STATUS_UNKNOWN] = "unknown",
};

const char *const status_state_names[MOTET_TRACE_FAILED + 1] = {
    [MOTET_TRACE_EMPTY] = "empty",
    [MOTET_TRACE_RUNNING] = "running",
    [MOTET_TRACE_WAITING] = "waiting",
    [MOTET_TRACE_DONE] = "done",
    [MOTET_TRACE_FAILED] = "failed",
};

uint64_t status_since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

const char *status_duration(uint64_t ns, char *buf, size_t bytes)
{
    unsigned long long s = ns / MOTET_NS_PER_S;

    if (s < 120)
        snprintf(buf, bytes, "%llu.%llu s", s,
                (unsigned long long)(ns / (100 * MOTET_NS_PER_MS) % 10));
    else if (s < 7200)
        snprintf(buf, bytes, "%llu min %llu s", s / 60, s % 60);
    else if (s < 2 * 86400ull)
        snprintf(buf, bytes, "%llu h %llu min", s / 3600, s / 60 % 60);
    else
        snprintf(buf, bytes, "%llu d %llu h", s / 86400, s / 3600 % 24);
    return buf;
}

const char *status_moment(const motet_trace_file *file, uint64_t at_ns, char *buf,
        size_t bytes)
{
    uint64_t wall_ns = file->created_wall_ns + (at_ns - file->created_ns);
    time_t seconds = (time_t)(wall_ns / MOTET_NS_PER_S);
    struct tm utc;

    if (gmtime_r(&seconds, &utc) == NULL ||
            strftime(buf, bytes, "%Y-%m-%d %H:%M:%S UTC", &utc) == 0)
        snprintf(buf, bytes, "an unknown time");
    return buf;
}

/* How a root or peer is named, by kind of operation. */
static const char *peer_word(uint8_t kind)
{
    return kind == MOTET_BROADCAST || kind == MOTET_SCATTER || kind == MOTET_RECV
            ? "from"
            : "to";
}

const char *status_call(const motet_trace_op *op, char *buf, size_t bytes)
{
    const motet_kind_info *kind = &motet_kind_table[op->kind];
    char what[64], peer[32] = "";

    if (kind->pairwise)
        snprintf(what, sizeof(what), "%llu bytes", (unsigned long long)op->count);
    else
        snprintf(what, sizeof(what), "%llu x %s", (unsigned long long)op->count,
                motet_type_table[op->type].name);
    if (kind->rooted && op->peer >= 0)
        snprintf(peer, sizeof(peer), " %s rank %d", peer_word(op->kind), op->peer);
    snprintf(buf, bytes, "%s %s%s%s%s", kind->name, what, kind->reduces ? ", " : "",
            kind->reduces ? motet_redop_names[op->redop] : "", peer);
    return buf;
}

const motet_trace_op *status_current_op(const status_rank *rank)
{
    const motet_trace_snapshot *snapshot = rank->snapshot;
    const motet_trace_op *best = NULL;

    for (unsigned i = 0; i < snapshot->ops; i++) {
        const motet_trace_op *op = &snapshot->file.op[i];

        if (!status_in_op(op))
            continue;
        if (best == NULL || op->state > best->state ||
                (op->state == best->state &&
                        status_begin_of_wait(op) < status_begin_of_wait(best)))
            best = op;
    }
    if (best == NULL && snapshot->ops > 0)
        best = &snapshot->file.op[snapshot->ops - 1];
    return best;
}

bool status_in_op(const motet_trace_op *op)
{
    return op != NULL &&
            (op->state == MOTET_TRACE_RUNNING || op->state == MOTET_TRACE_WAITING);
}

uint64_t status_begin_of_wait(const motet_trace_op *op)
{
    return op->state == MOTET_TRACE_WAITING && op->wait_ns != 0 ? op->wait_ns
                                                                : op->start_ns;
}

bool status_runs(const status_rank *rank)
{
    return rank->process == STATUS_ALIVE || rank->process == STATUS_ELSEWHERE ||
            rank->process == STATUS_STOPPED;
}

/* Index of the last of a run of chosen ranks with consecutive numbers. */
static size_t end_of_run(const status_rank *ranks, const bool *chosen, size_t count,
        size_t i)
{
    while (i + 1 < count && chosen[i + 1] &&
            ranks[i + 1].snapshot->file.rank == ranks[i].snapshot->file.rank + 1)
        i++;
    return i;
}

size_t status_list_ranks(const status_rank *ranks, const bool *chosen, size_t count,
        char *buf, size_t bytes)
{
    size_t used = 0, n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        int32_t first = ranks[i].snapshot->file.rank;
        char piece[32];
        size_t last, length;

        if (!chosen[i])
            continue;
        last = end_of_run(ranks, chosen, count, i);
        snprintf(piece, sizeof(piece), "%s%d", n == 0 ? "" : ", ", first);
        length = strlen(piece);
        if (last != i)
            snprintf(piece + length, sizeof(piece) - length, "-%d",
                    ranks[last].snapshot->file.rank);
        length = strlen(piece);
        if (used + length < bytes) {
            memcpy(buf + used, piece, length + 1);
            used += length;
        } else {
            used = bytes; /* full: the rest is counted only */
        }
        n += last - i + 1;
        i = last;
    }
    return n;
}
