/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about watchdogs, RAS, stacks and loops; those about sets of ranks are
 * rules_ranks.c. */
#include "facts.h"
#include "rules.h"
#include "watch.h"

#include <string.h>

/* Lines that a finding quotes of many. */
#define QUOTED_MAX 6u

static void emit(struct doctor *d, const struct dr_claim *c)
{
    struct dr_finding *f;

    if (c->num_lines == 0)
        return;
    f = dr_found(d, c->code, "%s", c->subject);
    if (f->summary[0] == 0)
        dr_say(d, f, "%s", c->sentence);
    for (uint32_t i = 0; i < c->num_lines; i++)
        dr_because(d, f, c->lines[i]);
    if (c->fix != NULL)
        dr_fix(d, f, "%s", c->fix);
}

void dr_emit_claims(struct doctor *d, enum dr_code code)
{
    for (uint32_t i = 0; i < d->watch->num_claims; i++)
        if (d->watch->claims[i].code == code)
            emit(d, &d->watch->claims[i]);
}

void dr_rule_recorder(struct doctor *d)
{
    struct dr_span f[2];

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        struct dr_finding *found;
        uint64_t rank;

        if (!dr_has(text, "flight recorder dumps") ||
                !dr_scan(text,
                        "imed out after waiting for %dms flight recorder dumps to "
                        "finish",
                        f))
            continue;
        if (dr_line_rank(text, &rank) ||
                (dr_scan(text, "Rank %d]", f + 1) && dr_span_u64(f[1], &rank)))
            found = dr_found(d, DR_FLIGHT_RECORDER_TIMED_OUT, "rank %llu",
                    (unsigned long long)rank);
        else
            found = dr_found(d, DR_FLIGHT_RECORDER_TIMED_OUT, "%s", "");
        dr_say(d, found,
                "The dump of the flight recorder%s%s was given up after %.*s ms: what "
                "the "
                "rank could have told is lost.",
                found->subject[0] != 0 ? " of " : "", found->subject, (int)f[0].length,
                f[0].at);
        dr_because(d, found, i);
        dr_fix(d, found,
                "Give the dump more time (TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC) and a "
                "folder "
                "with room (TORCH_NCCL_DEBUG_INFO_TEMP_FILE).");
        dr_fix(d, found,
                "A recorder in a shared file needs no dump: it is there however the "
                "process ends.");
    }
}

/* ---- teardown ---- */

static void rule_abort(struct doctor *d, const struct dr_abort *a)
{
    struct dr_finding *f;

    if (a->service != NULL)
        f = dr_found(d, DR_ABORT_HANG, "thread \"%s\"", a->service);
    else
        f = dr_found(d, DR_ABORT_HANG, "%s", a->thread != NULL ? a->thread : "");
    if (a->service != NULL)
        dr_say(d, f,
                "ncclCommAbort joins the service thread of the communicator, \"%s\", "
                "which "
                "is not woken: the abort never returns.",
                a->service);
    else
        dr_say(d, f,
                "ncclCommAbort frees the communicator and joins a thread that does not "
                "end: the abort never returns.");
    dr_because(d, f, a->line_join);
    dr_because(d, f, a->line_free);
    dr_because(d, f, a->line_abort);
    dr_because(d, f, a->line_service);
}

static void rule_destroyed(struct doctor *d)
{
    struct dr_span f[1], g[2];

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        struct dr_finding *found;

        if (!dr_has(text, "has already been destroyed") ||
                !(dr_scan(text, "comm %w has already been destroyed", f) ||
                        dr_scan(text, "ommunicator %w has already been destroyed", f)))
            continue;
        found = dr_found(d, DR_DOUBLE_DESTROY, "comm %.*s", (int)f[0].length, f[0].at);
        if (dr_scan(text, "[%d] %*NCCL WARN", g))
            dr_say(d, found,
                    "Communicator %.*s of device %.*s is used or destroyed after it "
                    "was "
                    "destroyed.",
                    (int)f[0].length, f[0].at, (int)g[0].length, g[0].at);
        else
            dr_say(d, found,
                    "Communicator %.*s is used or destroyed after it was destroyed.",
                    (int)f[0].length, f[0].at);
        dr_because(d, found, i);
    }
}

static void rule_growth(struct doctor *d)
{
    const struct dr_watch *w = d->watch;
    char list[400];
    size_t used = 0;
    struct dr_finding *f;
    struct dr_span program = { "", 0 };
    size_t at = 0;

    if (w->num_growths == 0)
        return;
    for (uint32_t i = 0; i < w->num_growths && used + 64 < sizeof(list); i++) {
        const struct dr_growth *g = &w->growths[i];
        const int n = snprintf(list + used, sizeof(list) - used, "%s%.40s %s by %.4g",
                i == 0           ? ""
                        : i < 6u ? ", "
                                 : "; ",
                g->name, g->falls ? "falls" : "rises", g->per_cycle);

        used += n > 0 ? (size_t)n : 0;
    }
    (void)dr_word(dr_command(d, w->growths[0].first), &at, &program);
    f = dr_found(d, DR_LEAK, "%.*s", (int)program.length, program.at);
    dr_say(d, f, "After the first cycle, in each of %u more: %s.", w->growths[0].cycles,
            list);
    for (uint32_t i = 0; i < w->num_growths && f->because.count < QUOTED_MAX; i++) {
        dr_because(d, f, w->growths[i].first);
        dr_because(d, f, w->growths[i].last);
    }
    dr_fix(d, f,
            "Destroy each communicator (ncclCommDestroy, destroy_process_group) before "
            "the "
            "loop makes the next; the loss of a cycle is in the sentence above.");
}

void dr_rule_teardown(struct doctor *d)
{
    for (uint32_t i = 0; i < d->watch->num_aborts; i++)
        rule_abort(d, &d->watch->aborts[i]);
    rule_destroyed(d);
    dr_emit_claims(d, DR_GRAPH_REPLAY_SHARED_COMM);
    rule_growth(d);
}

/* ---- experts ---- */

/* One receiving node: who sent nothing, and how often that was said. */
static void rule_starved(struct doctor *d, uint64_t node)
{
    const struct dr_watch *w = d->watch;
    char list[400];
    size_t used = 0;
    struct dr_finding *f =
            dr_found(d, DR_EP_DISPATCH_TIMEOUT, "RDMA: %llu", (unsigned long long)node);

    if (f->summary[0] != 0)
        return;
    for (uint32_t i = 0; i < w->num_starved && used + 64 < sizeof(list); i++) {
        const struct dr_starved *s = &w->starved[i];
        int n;

        if (s->node != node)
            continue;
        n = snprintf(list + used, sizeof(list) - used, "%s%llu (%u)",
                used > 0 ? ", " : "", (unsigned long long)s->source, s->count);
        used += n > 0 ? (size_t)n : 0;
        if (f->because.count < QUOTED_MAX)
            dr_because(d, f, s->line);
    }
    dr_say(d, f,
            "Node RDMA: %llu received nothing in the dispatch; sending nodes, with the "
            "lines that say so: %s.",
            (unsigned long long)node, list);
    dr_fix(d, f,
            "On node %llu look at its RDMA adapter: port state, GID index, RoCE flow "
            "control, and how many queue pairs each peer has.",
            (unsigned long long)node);
}

void dr_rule_experts(struct doctor *d)
{
    const struct dr_watch *w = d->watch;

    dr_emit_claims(d, DR_EP_HANG_UNEVEN_RANKS);
    if (dr_has_finding(d, DR_EP_HANG_UNEVEN_RANKS, NULL))
        return; /* the others' time-outs follow from it */
    for (uint32_t i = 0; i < w->num_starved; i++)
        if (w->starved[i].proof)
            rule_starved(d, w->starved[i].node);
}
