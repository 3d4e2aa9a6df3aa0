/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of motet status share: made-up recorders of one job, a judge, and what
 * it says, as text. */
#ifndef MOTET_TESTS_STATUS_FIXTURE_H
#define MOTET_TESTS_STATUS_FIXTURE_H

#include "../../tools/motet/cmd.h"
#include "../../tools/motet/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS_MAX 8
#define BOOT      "11111111-2222-3333-4444-555555555555"

/* Now is 1000 s after boot; 2026-01-02 03:04:05 UTC was 900 s after boot. */
#define NOW_NS       (1000 * MOTET_NS_PER_S)
#define MADE_NS      (900 * MOTET_NS_PER_S)
#define MADE_WALL_NS (1767323045ull * MOTET_NS_PER_S)

/* Seconds ago, as a moment. */
#define AGO(seconds) (NOW_NS - (uint64_t)((seconds) * 1e9))

static motet_trace_snapshot snapshots[RANKS_MAX];
static motet_trace_process processes[RANKS_MAX];
static bool exists[RANKS_MAX];
static status_rank ranks[RANKS_MAX];
static size_t count;
static status_group *groups;
static status_report report;
static char text[65536];

/* A living rank of communicator 0xc0ffee that has done nothing yet. */
static inline motet_trace_snapshot *add_rank(int rank, int nranks)
{
    motet_trace_snapshot *s = &snapshots[count];

    memset(s, 0, sizeof(*s));
    s->file.rank = rank;
    s->file.nranks = nranks;
    s->file.device = -1;
    s->file.pid = 4000 + rank;
    s->file.pid_start = 77;
    s->file.comm = 0xc0ffee;
    s->file.created_ns = MADE_NS;
    s->file.created_wall_ns = MADE_WALL_NS;
    s->file.heartbeat_ns = AGO(0.1);
    snprintf(s->file.boot_id, sizeof(s->file.boot_id), BOOT);
    snprintf(s->file.host, sizeof(s->file.host), "node1");
    snprintf(s->file.command, sizeof(s->file.command), "python3");
    snprintf(s->path, sizeof(s->path), "/dev/shm/r%d.trace", rank);
    exists[count] = true;
    processes[count] = (motet_trace_process){ .start = 77, .state = 'S' };
    count++;
    return s;
}

/* Appends an all_reduce that ended @p ended_s ago. */
static inline motet_trace_op *add_op(motet_trace_snapshot *s, uint64_t elements,
        double ended_s)
{
    uint32_t collective = s->ops == 0 ? 0 : s->file.op[s->ops - 1].collective;
    motet_trace_op *op = &s->file.op[s->ops++];

    s->file.begun++;
    op->seq = s->file.begun;
    op->collective = collective + 1;
    op->count = elements;
    op->kind = MOTET_ALL_REDUCE;
    op->type = MOTET_FLOAT32;
    op->redop = MOTET_SUM;
    op->fingerprint = (uint32_t)elements;
    op->peer = op->waits_for = -1;
    op->start_ns = AGO(ended_s) - 1000000;
    op->end_ns = AGO(ended_s);
    op->state = MOTET_TRACE_DONE;
    return op;
}

/* Appends an all_reduce that has waited for @p waits_for since @p since_s ago. */
static inline motet_trace_op *add_wait(motet_trace_snapshot *s, int waits_for,
        double since_s)
{
    motet_trace_op *op = add_op(s, 1024, 0);

    op->start_ns = AGO(since_s) - 1000;
    op->wait_ns = AGO(since_s);
    op->end_ns = 0;
    op->state = MOTET_TRACE_WAITING;
    op->waits_for = waits_for;
    return op;
}

/* Makes @p op a send or receive. */
static inline void make_pairwise(motet_trace_op *op, motet_kind kind, int peer)
{
    op->kind = (uint8_t)kind;
    op->type = MOTET_INT8;
    op->peer = peer;
    op->collective--;
}

static inline int judge(void)
{
    for (size_t i = 0; i < count; i++) {
        ranks[i].snapshot = &snapshots[i];
        status_classify(&ranks[i], NOW_NS, BOOT, exists[i] ? &processes[i] : NULL);
    }
    free(groups);
    memset(&report, 0, sizeof(report));
    groups = status_judge(ranks, count, &report.group_count);
    report.groups = groups;
    report.places = "'/dev/shm'";
    report.now_ns = NOW_NS;
    return status_exit(&report);
}

static inline const char *print(bool json, bool all)
{
    FILE *out = fmemopen(text, sizeof(text), "w");

    assert_non_null(out);
    if (json)
        assert_true(status_print_json(out, &report, all));
    else
        status_print(out, &report, all);
    assert_int_equal(fclose(out), 0);
    return text;
}

static inline const status_finding *find(const char *code)
{
    for (size_t g = 0; g < report.group_count; g++)
        for (size_t i = 0; i < report.groups[g].finding_count; i++)
            if (strcmp(report.groups[g].findings[i].code, code) == 0)
                return &report.groups[g].findings[i];
    return NULL;
}

static inline const status_finding *need(const char *code)
{
    static const status_finding none;
    const status_finding *finding = find(code);

    if (finding == NULL)
        fail_msg("no %s in:\n%s", code, print(false, false));
    return finding == NULL ? &none : finding;
}

static inline void expect(const char *printed, const char *piece)
{
    if (strstr(printed, piece) == NULL)
        fail_msg("'%s' is not in:\n%s", piece, printed);
}

static inline int setup(void **state)
{
    (void)state;
    count = 0;
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    free(groups);
    groups = NULL;
    return 0;
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
