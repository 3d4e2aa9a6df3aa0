/* SPDX-License-Identifier: Apache-2.0 */
/* The report for people: a table of ranks for each communicator, then the verdict. */
#include "status.h"

#include <inttypes.h>
#include <string.h>

#define DOING_BYTES 320

/* What became of the process, with the age of its last sign of life. */
static void describe_process(const status_rank *rank, uint64_t now_ns, char *buf,
        size_t bytes)
{
    const motet_trace_file *file = &rank->snapshot->file;
    uint64_t sign_ns = motet_trace_last_sign_ns(rank->snapshot);
    char age[32];

    if (rank->process == STATUS_CLOSED || rank->process == STATUS_UNKNOWN) {
        snprintf(buf, bytes, "%s", status_process_names[rank->process]);
        return;
    }
    if (status_runs(rank))
        snprintf(buf, bytes, "%s, heartbeat %s ago",
                rank->process == STATUS_ELSEWHERE ? "alive elsewhere"
                                                  : status_process_names[rank->process],
                status_duration(status_since(now_ns, file->heartbeat_ns), age,
                        sizeof(age)));
    else
        snprintf(buf, bytes, "%s, last sign %s ago",
                status_process_names[rank->process],
                status_duration(status_since(now_ns, sign_ns), age, sizeof(age)));
}

/* "waits for rank 3 for 12.3 s", in the past tense if the process is gone. */
static void describe_state(const status_rank *rank, const motet_trace_op *op, char *buf,
        size_t bytes)
{
    bool runs = status_runs(rank);
    char time[64], whom[32] = "";

    if (status_in_op(op)) {
        status_duration(status_since(rank->now_ns, status_begin_of_wait(op)), time,
                sizeof(time));
        if (op->state == MOTET_TRACE_RUNNING)
            snprintf(buf, bytes, "%s for %s", runs ? "running" : "had run", time);
        else {
            if (op->waits_for >= 0)
                snprintf(whom, sizeof(whom), " for rank %d", op->waits_for);
            snprintf(buf, bytes, "%s%s for %s", runs ? "waits" : "had waited", whom,
                    time);
        }
    } else if (runs) {
        snprintf(buf, bytes, "%s %s ago", status_state_names[op->state],
                status_duration(status_since(rank->now_ns, op->end_ns), time,
                        sizeof(time)));
    } else {
        snprintf(buf, bytes, "%s %s", status_state_names[op->state],
                status_moment(&rank->snapshot->file, op->end_ns, time, sizeof(time)));
    }
}

static void describe_op(const status_rank *rank, const motet_trace_op *op, char *buf,
        size_t bytes)
{
    char call[160], state[112];

    if (op == NULL) {
        snprintf(buf, bytes, "no operation yet");
        return;
    }
    describe_state(rank, op, state, sizeof(state));
    snprintf(buf, bytes, "%s: %s", status_call(op, call, sizeof(call)), state);
}

/* The one host of all ranks, or NULL. */
static const char *common_host(const status_group *group)
{
    const char *host = group->ranks[0].snapshot->file.host;

    for (size_t i = 1; i < group->count; i++)
        if (strcmp(host, group->ranks[i].snapshot->file.host) != 0)
            return NULL;
    return host;
}

static void print_operations(FILE *out, const status_rank *rank)
{
    const motet_trace_snapshot *snapshot = rank->snapshot;
    unsigned shown =
            snapshot->ops < STATUS_OPS_SHOWN ? snapshot->ops : STATUS_OPS_SHOWN;

    for (unsigned i = snapshot->ops - shown; i < snapshot->ops; i++) {
        const motet_trace_op *op = &snapshot->file.op[i];
        char doing[DOING_BYTES], when[64];

        describe_op(rank, op, doing, sizeof(doing));
        fprintf(out, "          %10" PRIu64 " %10u  %s  %s\n", op->seq, op->collective,
                status_moment(&snapshot->file, op->start_ns, when, sizeof(when)),
                doing);
    }
}

static void print_rank(FILE *out, const status_rank *rank, uint64_t now_ns,
        const char *host)
{
    const motet_trace_file *file = &rank->snapshot->file;
    const motet_trace_op *op = status_current_op(rank);
    char process[96], doing[DOING_BYTES], device[24] = "cpu";

    describe_process(rank, now_ns, process, sizeof(process));
    describe_op(rank, op, doing, sizeof(doing));
    if (file->device >= 0)
        snprintf(device, sizeof(device), "gpu %d", file->device);
    fprintf(out, "  %5d %8d  %-15s %-6s %-31s %10" PRIu64 "  %s%s%s\n", file->rank,
            file->pid, file->command, device, process, (uint64_t)file->begun,
            host == NULL ? file->host : "", host == NULL ? ": " : "", doing);
}

/* A finding, whose text may have several lines, with its code in front. */
static void print_finding(FILE *out, const status_finding *finding)
{
    const char *line = finding->text;
    size_t length = strcspn(line, "\n");

    fprintf(out, "  %s %s: %.*s\n",
            finding->problem             ? "problem"
                    : finding->undecided ? "unknown"
                                         : "note   ",
            finding->code, (int)length, line);
    while (line[length] != '\0') {
        line += length + 1;
        length = strcspn(line, "\n");
        fprintf(out, "            %.*s\n", (int)length, line);
    }
}

static void print_group(FILE *out, const status_group *group, uint64_t now_ns, bool all)
{
    const motet_trace_file *first = &group->ranks[0].snapshot->file;
    const char *host = common_host(group);
    char when[64];

    fprintf(out, "communicator %016" PRIx64 "%s%s%s: %d rank%s", group->comm,
            first->comm_name[0] != '\0' ? " '" : "", first->comm_name,
            first->comm_name[0] != '\0' ? "'" : "", group->nranks,
            group->nranks == 1 ? "" : "s");
    if (host != NULL)
        fprintf(out, " on %s", host);
    if (first->path[0] != '\0')
        fprintf(out, ", path %s", first->path);
    fprintf(out, ", made %s\n",
            status_moment(first, first->created_ns, when, sizeof(when)));
    fprintf(out, "  %5s %8s  %-15s %-6s %-31s %10s  %s\n", "rank", "pid", "command",
            "device", "process", "operations", "the last one");
    for (size_t i = 0; i < group->count; i++) {
        print_rank(out, &group->ranks[i], now_ns, host);
        if (all)
            print_operations(out, &group->ranks[i]);
    }
    for (size_t i = 0; i < group->finding_count; i++)
        print_finding(out, &group->findings[i]);
    if (group->findings_dropped > 0)
        fprintf(out, "  and %zu more findings\n", group->findings_dropped);
    if (group->finding_count == 0)
        fprintf(out, "  fine: no rank is dead, late or missing\n");
}

void status_print(FILE *out, const status_report *report, bool all)
{
    for (size_t g = 0; g < report->group_count; g++) {
        if (g > 0)
            fputc('\n', out);
        print_group(out, &report->groups[g], report->now_ns, all);
    }
    if (report->group_count == 0 && report->unread_count == 0)
        fprintf(out, "no communicator is running here (looked in %s)\n",
                report->places);
    for (size_t i = 0; i < report->unread_count; i++)
        fprintf(out, "not read: %s: %s\n", report->unread[i].path,
                report->unread[i].reason);
}
