/* SPDX-License-Identifier: Apache-2.0 */
/* The report for programs: one document, described in docs/status.md. */
#include "status.h"

#include "json.h"

#include <inttypes.h>
#include <string.h>

static double seconds(uint64_t ns)
{
    return (double)ns / (double)MOTET_NS_PER_S;
}

/* Numbers of 64 bits are text: many readers keep only 53 of them. */
static void put_hex(struct json *j, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    json_string(j, key, text);
}

static void put_rank_number(struct json *j, const char *key, int32_t rank)
{
    if (rank < 0)
        json_null(j, key);
    else
        json_int(j, key, rank);
}

static void put_moment(struct json *j, const char *key, const motet_trace_file *file,
        uint64_t at_ns)
{
    char text[64];

    if (at_ns == 0)
        json_null(j, key);
    else
        json_string(j, key, status_moment(file, at_ns, text, sizeof(text)));
}

static void put_op(struct json *j, const char *key, const status_rank *rank,
        const motet_trace_op *op)
{
    const motet_kind_info *kind = &motet_kind_table[op->kind];
    const motet_trace_file *file = &rank->snapshot->file;

    json_object(j, key);
    json_uint(j, "seq", op->seq);
    json_uint(j, "collective", op->collective);
    json_string(j, "kind", kind->name);
    json_uint(j, "count", op->count);
    json_string(j, "type", kind->pairwise ? NULL : motet_type_table[op->type].name);
    json_string(j, "op", kind->reduces ? motet_redop_names[op->redop] : NULL);
    put_rank_number(j, "peer", kind->rooted ? op->peer : -1);
    put_hex(j, "fingerprint", op->fingerprint);
    json_uint(j, "algorithm", op->algorithm);
    json_string(j, "state", status_state_names[op->state]);
    put_rank_number(j, "waits_for",
            op->state == MOTET_TRACE_WAITING ? op->waits_for : -1);
    put_moment(j, "started", file, op->start_ns);
    put_moment(j, "waits_since", file,
            op->state == MOTET_TRACE_WAITING ? op->wait_ns : 0);
    put_moment(j, "ended", file, op->end_ns);
    if (status_in_op(op))
        json_double(j, "for_s",
                seconds(status_since(rank->now_ns, status_begin_of_wait(op))));
    else if (op->end_ns >= op->start_ns)
        json_double(j, "took_s", seconds(op->end_ns - op->start_ns));
    json_end(j);
}

static void put_operations(struct json *j, const status_rank *rank)
{
    const motet_trace_snapshot *snapshot = rank->snapshot;
    unsigned shown =
            snapshot->ops < STATUS_OPS_SHOWN ? snapshot->ops : STATUS_OPS_SHOWN;

    json_array(j, "operations");
    for (unsigned i = snapshot->ops - shown; i < snapshot->ops; i++)
        put_op(j, NULL, rank, &snapshot->file.op[i]);
    json_end(j);
}

static void put_rank(struct json *j, const status_rank *rank, uint64_t now_ns, bool all)
{
    const motet_trace_snapshot *snapshot = rank->snapshot;
    const motet_trace_file *file = &snapshot->file;
    const motet_trace_op *op = status_current_op(rank);

    json_object(j, NULL);
    json_int(j, "rank", file->rank);
    json_int(j, "pid", file->pid);
    json_string(j, "command", file->command);
    json_string(j, "host", file->host);
    put_rank_number(j, "device", file->device);
    json_string(j, "process", status_process_names[rank->process]);
    json_string(j, "file", snapshot->path);
    put_moment(j, "created", file, file->created_ns);
    put_moment(j, "last_sign", file, motet_trace_last_sign_ns(snapshot));
    if (rank->process == STATUS_UNKNOWN)
        json_null(j, "heartbeat_age_s");
    else
        json_double(j, "heartbeat_age_s",
                seconds(status_since(now_ns, file->heartbeat_ns)));
    json_uint(j, "begun", file->begun);
    json_string(j, "failed",
            file->failed == 0 ? NULL : motet_result_describe((int)file->failed)->name);
    json_string(j, "failure", file->failed == 0 ? NULL : file->failure);
    if (op == NULL)
        json_null(j, "operation");
    else
        put_op(j, "operation", rank, op);
    if (all)
        put_operations(j, rank);
    json_end(j);
}

static void put_findings(struct json *j, const status_group *group)
{
    json_array(j, "findings");
    for (size_t i = 0; i < group->finding_count; i++) {
        const status_finding *finding = &group->findings[i];

        json_object(j, NULL);
        json_string(j, "code", finding->code);
        json_string(j, "severity",
                finding->problem             ? "problem"
                        : finding->undecided ? "unknown"
                                             : "note");
        json_string(j, "ranks", finding->ranks);
        json_string(j, "text", finding->text);
        json_end(j);
    }
    json_end(j);
    json_uint(j, "findings_dropped", group->findings_dropped);
}

static void put_group(struct json *j, const status_group *group, uint64_t now_ns,
        bool all)
{
    json_object(j, NULL);
    put_hex(j, "communicator", group->comm);
    json_string(j, "name", group->ranks[0].snapshot->file.comm_name);
    json_int(j, "nranks", group->nranks);
    json_string(j, "path", group->ranks[0].snapshot->file.path);
    json_array(j, "ranks");
    for (size_t i = 0; i < group->count; i++)
        put_rank(j, &group->ranks[i], now_ns, all);
    json_end(j);
    json_int(j, "missing_ranks", group->missing_total);
    json_array(j, "missing");
    for (size_t i = 0; i < group->missing_listed; i++)
        json_int(j, NULL, group->missing[i]);
    json_end(j);
    put_findings(j, group);
    json_end(j);
}

bool status_print_json(FILE *out, const status_report *report, bool all)
{
    struct json j;

    json_start(&j, out);
    json_object(&j, NULL);
    json_int(&j, "format", 1);
    json_array(&j, "communicators");
    for (size_t g = 0; g < report->group_count; g++)
        put_group(&j, &report->groups[g], report->now_ns, all);
    json_end(&j);
    json_array(&j, "not_read");
    for (size_t i = 0; i < report->unread_count; i++) {
        json_object(&j, NULL);
        json_string(&j, "file", report->unread[i].path);
        json_string(&j, "reason", report->unread[i].reason);
        json_end(&j);
    }
    json_end(&j);
    json_string(&j, "looked_in", report->places);
    json_int(&j, "exit_status", status_exit(report));
    json_end(&j);
    return json_finish(&j);
}
