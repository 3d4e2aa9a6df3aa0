/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of ranks: who called something else, who is behind, who is missing, or whether all
 * stand in the same operation. Each process group by itself, since ranks of another one
 * are at other numbers.
 */
#include "facts.h"
#include "rules.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>

/* Ranks that get a finding each; more are named in one. */
#define SINGLE_MAX 8u
#define QUOTED_MAX 3u
/* Ranks that are listed. */
#define LISTED_MAX 4096u

/* What is found of one group. */
struct judged {
    const struct dr_group *group;
    const struct dr_report *reports;
    bool has_seq;
    uint64_t seq;     /* of the most */
    uint32_t typical; /* a report at it */
    bool fault;       /* missing, behind, another operation, or not to be told */
};

static const char *group_words(struct doctor *d, const struct dr_group *g)
{
    return g->name[0] == 0 || g->is_world
            ? ""
            : dr_printf(d, " of process group %s", g->name);
}

/* ---- the usual operation ---- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The most frequent of @p numbers, of equally frequent ones the highest. */
static uint64_t most_frequent(uint64_t *numbers, uint32_t count)
{
    uint64_t best = 0;
    uint32_t most = 0;

    qsort(numbers, count, sizeof(*numbers), by_number);
    for (uint32_t i = 0, n = 0; i < count; i++) {
        n = i > 0 && numbers[i] == numbers[i - 1] ? n + 1 : 1;
        if (n >= most) {
            most = n;
            best = numbers[i];
        }
    }
    return best;
}

static void find_usual(struct doctor *d, struct judged *j)
{
    uint64_t *numbers = dr_alloc(d, j->group->count * sizeof(*numbers));
    uint32_t count = 0;

    for (uint32_t i = 0; i < j->group->count; i++)
        if (j->reports[i].has_seq)
            numbers[count++] = j->reports[i].seq;
    j->has_seq = count > 0;
    if (j->has_seq)
        j->seq = most_frequent(numbers, count);
    for (uint32_t i = 0; i < j->group->count; i++)
        if (j->reports[i].has_seq && j->reports[i].seq == j->seq) {
            j->typical = i;
            return;
        }
}

/* ---- mismatch ---- */

/* Operations whose sizes are alike on all ranks; others may differ in good order. */
static bool is_even(struct dr_span op)
{
    static const char *const names[] = { "ALLREDUCE", "BROADCAST", "REDUCE",
        "ALLGATHER", "_ALLGATHER_BASE", "ALLGATHER_BASE", "REDUCE_SCATTER",
        "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER_BASE", "BARRIER" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (dr_span_is(op, names[i]))
            return true;
    return false;
}

static bool same_span(struct dr_span a, struct dr_span b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

/* Sends and receives are pairs, not the same call. */
static bool is_pairwise(struct dr_span op)
{
    return dr_span_is(op, "SEND") || dr_span_is(op, "RECV") ||
            dr_span_is(op, "RECVANYSOURCE") || dr_span_is(op, "COALESCED");
}

static bool differs(const struct dr_report *a, const struct dr_report *b)
{
    if (!a->has_op || !b->has_op || a->seq != b->seq || is_pairwise(a->op) ||
            is_pairwise(b->op))
        return false;
    if (!same_span(a->op, b->op))
        return true;
    if (!is_even(a->op))
        return false;
    if (a->has_sizes && b->has_sizes)
        return a->in != b->in || a->out != b->out;
    return a->shape.length > 0 && b->shape.length > 0 && !same_span(a->shape, b->shape);
}

static const char *call_of(struct doctor *d, const struct dr_report *r)
{
    if (r->has_sizes && r->in == r->out)
        return dr_printf(d, "%.*s of %llu elements", (int)r->op.length, r->op.at,
                (unsigned long long)r->in);
    if (r->has_sizes)
        return dr_printf(d, "%.*s of %llu elements into %llu", (int)r->op.length,
                r->op.at, (unsigned long long)r->in, (unsigned long long)r->out);
    if (r->shape.length > 0)
        return dr_printf(d, "%.*s of [%.*s]", (int)r->op.length, r->op.at,
                (int)r->shape.length, r->shape.at);
    return dr_printf(d, "%.*s", (int)r->op.length, r->op.at);
}

/* The report that most others agree with, at the usual operation. */
static const struct dr_report *usual_call(const struct judged *j)
{
    const struct dr_report *best = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < j->group->count && i < SINGLE_MAX; i++) {
        const struct dr_report *r = &j->reports[i];
        uint32_t alike = 0;

        if (!r->has_op || !r->has_seq || r->seq != j->seq)
            continue;
        for (uint32_t k = 0; k < j->group->count; k++)
            alike += j->reports[k].has_op && j->reports[k].has_seq &&
                    j->reports[k].seq == r->seq && !differs(r, &j->reports[k]);
        if (alike > most) {
            most = alike;
            best = r;
        }
    }
    return best;
}

static void rule_mismatch(struct doctor *d, struct judged *j)
{
    const struct dr_report *usual = j->has_seq ? usual_call(j) : NULL;
    uint32_t single = 0;

    for (uint32_t i = 0; usual != NULL && i < j->group->count && single < SINGLE_MAX;
            i++) {
        const struct dr_report *r = &j->reports[i];
        struct dr_finding *f;

        if (!r->has_seq || !differs(usual, r))
            continue;
        single++;
        j->fault = true;
        f = dr_found(d, DR_COLLECTIVE_MISMATCH, "rank %u", r->rank);
        dr_say(d, f, "In operation %llu%s rank %u calls %s, rank %u %s.",
                (unsigned long long)r->seq, group_words(d, j->group), r->rank,
                call_of(d, r), usual->rank, call_of(d, usual));
        dr_because(d, f, r->line);
        dr_because(d, f, usual->line);
        dr_fix(d, f,
                "Find why rank %u calls this: a branch that only some ranks take, or a "
                "batch of another length. Both calls are in the sentence above.",
                r->rank);
    }
}

/* "ALLREDUCE of [2, 4096] at sequence number 412" of a fingerprint's text. */
static const char *fingerprint(struct doctor *d, const char *text)
{
    struct dr_span op = { "an operation", 12 }, shape = { 0 }, seq = { 0 };

    if (dr_scan(text, "OpType=%w,", &op))
        op.length = strcspn(op.at, ",)");
    (void)dr_scan(text, "TensorShape=[%*]", &shape);
    (void)dr_scan(text, "SequenceNumber=%d,", &seq);
    return dr_printf(d, "%.*s%s%.*s%s%s%.*s", (int)op.length, op.at,
            shape.length > 0 ? " of [" : "", (int)shape.length,
            shape.length > 0 ? shape.at : "", shape.length > 0 ? "]" : "",
            seq.length > 0 ? " at sequence number " : "", (int)seq.length,
            seq.length > 0 ? seq.at : "");
}

/* "Rank 1 is running collective: CollectiveFingerPrint(…), but Rank 0 is running …" */
static void rule_fingerprints(struct doctor *d, uint32_t line)
{
    static const char running[] = "%<Rank %d is running %*ollective: %*";
    const char *text = d->lines[line].text;
    struct dr_span f[3], g[3];
    struct dr_finding *found;
    const char *but;
    uint64_t a = 0, b = 0;

    if (!dr_scan(text, running, f) || !dr_span_u64(f[0], &a)) {
        found = dr_found(d, DR_COLLECTIVE_MISMATCH, "%s", "");
        dr_say(d, found, "PyTorch found that the ranks call different collectives.");
        dr_because(d, found, line);
        return;
    }
    but = strstr(f[2].at, "but Rank ");
    if (but != NULL && dr_scan(but, running, g) && dr_span_u64(g[0], &b)) {
        found = dr_found(d, DR_COLLECTIVE_MISMATCH, "ranks %llu and %llu",
                (unsigned long long)(a < b ? a : b),
                (unsigned long long)(a < b ? b : a));
        if (found->summary[0] == 0)
            dr_say(d, found, "rank %llu calls %s, rank %llu %s.", (unsigned long long)a,
                    fingerprint(d, dr_copy(d, f[2].at, (size_t)(but - f[2].at))),
                    (unsigned long long)b, fingerprint(d, g[2].at));
    } else {
        found = dr_found(d, DR_COLLECTIVE_MISMATCH, "rank %llu", (unsigned long long)a);
        dr_say(d, found, "rank %llu calls %s, another rank something else.",
                (unsigned long long)a, fingerprint(d, f[2].at));
    }
    dr_because(d, found, line);
    dr_fix(d, found,
            "Compare the two calls above with the program: a branch that only some "
            "ranks "
            "take, or a batch of another length.");
}

/* What the programs say of themselves. */
static void rule_mismatch_lines(struct doctor *d)
{
    struct dr_span f[2];

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        struct dr_finding *found;

        if (!dr_has(text, "ismatch"))
            continue;
        if (dr_has(text, "Detected mismatch between collectives") ||
                dr_has(text, "ismatch between collective operation types")) {
            rule_fingerprints(d, i);
        } else if (dr_scan(text,
                           "collective mismatch error, local size %d remote size %d%>",
                           f)) {
            found = dr_found(d, DR_COLLECTIVE_MISMATCH,
                    "local size %.*s, remote size %.*s", (int)f[0].length, f[0].at,
                    (int)f[1].length, f[1].at);
            dr_say(d, found,
                    "One end of a connection has %.*s bytes to move where its peer has "
                    "%.*s.",
                    (int)f[0].length, f[0].at, (int)f[1].length, f[1].at);
            dr_because(d, found, i);
            dr_fix(d, found,
                    "Compare the calls of the two ranks, and their settings, such as "
                    "NCCL_BUFFSIZE, NCCL_PROTO and NCCL_ALGO.");
        } else if (dr_has(text, "ismatched collective detected")) {
            const bool named = dr_scan(text, "around rank %d%>", f);

            found = dr_found(d, DR_COLLECTIVE_MISMATCH, "%s%.*s", named ? "rank " : "",
                    named ? (int)f[0].length : 0, named ? f[0].at : "");
            dr_say(d, found, "The library found that the calls%s%.*s do not match.",
                    named ? " around rank " : "", named ? (int)f[0].length : 0,
                    named ? f[0].at : "");
            dr_because(d, found, i);
            dr_fix(d, found,
                    "Print both sides: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL on every "
                    "rank, and compare the calls at the same opCount.");
        }
    }
}

/* ---- behind ---- */

static bool is_behind(const struct judged *j, const struct dr_report *r,
        bool has_enqueued, uint64_t enqueued)
{
    if (r->has_seq)
        return r->seq < j->seq;
    if (!r->has_enqueued)
        return false;
    return j->has_seq ? r->enqueued < j->seq : has_enqueued && r->enqueued < enqueued;
}

static void say_behind(struct doctor *d, struct judged *j, const struct dr_report *r,
        uint64_t usual)
{
    const struct dr_report *typical = &j->reports[j->typical];
    struct dr_finding *f = dr_found(d, DR_RANK_BEHIND, "rank %u", r->rank);

    dr_say(d, f, "rank %u%s is at operation %llu, most others are at %llu.", r->rank,
            group_words(d, j->group),
            (unsigned long long)(r->has_seq ? r->seq : r->enqueued),
            (unsigned long long)usual);
    dr_because(d, f, r->has_seq ? r->line : r->line_enqueued);
    dr_because(d, f, typical->line);
    dr_fix(d, f,
            "Look at what rank %u does (`py-spy dump --pid PID` on its host), not at "
            "the "
            "ranks that wait for it.",
            r->rank);
}

static void rule_behind(struct doctor *d, struct judged *j)
{
    uint64_t *numbers = dr_alloc(d, j->group->count * sizeof(*numbers));
    uint32_t count = 0, behind = 0;
    uint64_t enqueued = 0;

    for (uint32_t i = 0; i < j->group->count; i++)
        if (j->reports[i].has_enqueued)
            numbers[count++] = j->reports[i].enqueued;
    if (count > 0)
        enqueued = most_frequent(numbers, count);
    for (uint32_t i = 0; i < j->group->count && !j->has_seq; i++)
        if (j->reports[i].has_enqueued && j->reports[i].enqueued == enqueued)
            j->typical = i;
    for (uint32_t i = 0; i < j->group->count; i++) {
        const struct dr_report *r = &j->reports[i];

        if (!is_behind(j, r, count > 0, enqueued))
            continue;
        j->fault = true;
        if (behind++ < SINGLE_MAX)
            say_behind(d, j, r, j->has_seq ? j->seq : enqueued);
    }
}

/* ---- missing ---- */

static bool is_elsewhere(const struct doctor *d, uint64_t rank)
{
    const struct dr_watch *w = d->watch;
    uint32_t low = 0, high = w->num_elsewhere;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (w->elsewhere[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->num_elsewhere && w->elsewhere[low] == rank;
}

/* The ranks below @p size that do not report; how many are listed. */
static uint32_t list_missing(const struct doctor *d, const struct judged *j,
        uint64_t size, uint64_t missing[LISTED_MAX])
{
    uint32_t count = 0;
    uint64_t next = 0;

    for (uint32_t i = 0; i <= j->group->count && count < LISTED_MAX; i++) {
        const uint64_t end = i < j->group->count ? j->reports[i].rank : size;

        for (; next < end && count < LISTED_MAX; next++)
            if (!is_elsewhere(d, next))
                missing[count++] = next;
        next = end + 1;
    }
    return count;
}

/* The last lines of a rank that did not report. */
static void quote_last_words(struct doctor *d, struct dr_finding *f, uint64_t rank)
{
    uint32_t last[2] = { DR_NONE, DR_NONE };
    uint64_t whose;

    for (uint32_t i = 0; i < d->num_lines; i++)
        if (!(d->lines[i].flags & (DR_COMMAND | DR_REMARK)) &&
                dr_line_rank(d->lines[i].text, &whose) && whose == rank) {
            last[0] = last[1];
            last[1] = i;
        }
    for (int i = 0; i < 2; i++)
        if (last[i] != DR_NONE)
            dr_because(d, f, last[i]);
}

static void say_missing(struct doctor *d, struct judged *j, const char *who,
        uint64_t rank, bool one, uint64_t size)
{
    const struct dr_report *typical = &j->reports[j->typical];
    struct dr_finding *f = dr_found(d, DR_RANK_MISSING, "%s", who);
    const char *where = typical->has_op
            ? dr_printf(d, "%.*s %llu", (int)typical->op.length, typical->op.at,
                      (unsigned long long)typical->seq)
            : typical->has_seq || typical->has_enqueued ? "an operation"
                                                        : "the barrier at the start";

    dr_say(d, f, "%s%s never reported: %u of %llu ranks wait in %s.", who,
            group_words(d, j->group), j->group->count, (unsigned long long)size, where);
    if (one && j->group->is_world)
        quote_last_words(d, f, rank);
    dr_because(d, f, typical->line);
    if (j->group->size > 0)
        dr_because(d, f, j->group->line_size);
    dr_fix(d, f,
            "Look at %s: is its process alive, what was its last line, where does its "
            "stack "
            "stand (`py-spy dump --pid PID`)? The ranks that timed out only wait.",
            who);
}

static void rule_missing(struct doctor *d, struct judged *j)
{
    const struct dr_group *g = j->group;
    const uint64_t size =
            g->size > 0 ? g->size : (uint64_t)j->reports[g->count - 1].rank + 1;
    uint64_t *missing = dr_alloc(d, LISTED_MAX * sizeof(*missing));
    const uint32_t count = list_missing(d, j, size, missing);
    struct dr_finding *f;

    if (count == 0)
        return;
    j->fault = true;
    if ((uint64_t)g->count * 2 < size) {
        if (g->size == 0)
            return;
        f = dr_found(d, DR_RANKS_UNACCOUNTED, "%u of %llu ranks", g->count,
                (unsigned long long)size);
        dr_say(d, f,
                "Only %u of %llu ranks%s are in the text%s: who is missing cannot be "
                "said.",
                g->count, (unsigned long long)size, group_words(d, g),
                j->has_seq ? dr_printf(d, ", at operation %llu",
                                     (unsigned long long)j->seq)
                           : "");
        dr_because(d, f, j->reports[j->typical].line);
        dr_because(d, f, g->line_size);
        return;
    }
    for (uint32_t i = 0; count <= SINGLE_MAX && i < count; i++)
        say_missing(d, j, dr_rank_list(d, &missing[i], 1), missing[i], true, size);
    if (count > SINGLE_MAX)
        say_missing(d, j, dr_rank_list(d, missing, count), 0, false, size);
}

/* ---- all there ---- */

static bool all_alike(const struct judged *j)
{
    const struct dr_report *first = &j->reports[0];

    if (j->group->size == 0 || j->group->count != j->group->size)
        return false;
    for (uint32_t i = 0; i < j->group->count; i++) {
        const struct dr_report *r = &j->reports[i];

        if (!r->has_seq || !r->has_op || r->seq != first->seq ||
                !same_span(r->op, first->op) || r->has_sizes != first->has_sizes ||
                differs(first, r))
            return false;
    }
    return true;
}

static void rule_all_present(struct doctor *d, const struct judged *j)
{
    const struct dr_report *r = &j->reports[0];
    struct dr_finding *f;

    if (!all_alike(j))
        return;
    f = dr_found(d, DR_ALL_PRESENT_SAME_OP, "operation %llu%s",
            (unsigned long long)r->seq, group_words(d, j->group));
    dr_say(d, f,
            "All %u ranks%s are in the same operation, %llu, %s: nobody is missing or "
            "late, "
            "the transport is stuck.",
            j->group->count, group_words(d, j->group), (unsigned long long)r->seq,
            call_of(d, r));
    for (uint32_t i = 0; i < j->group->count && i < QUOTED_MAX; i++)
        dr_because(d, f, j->reports[i].line);
    dr_because(d, f, j->group->line_size);
    dr_fix(d, f,
            "Look at the links between the ranks: the library's log with "
            "NCCL_DEBUG=INFO, "
            "the kernel log of each host at that time, port and link errors.");
    dr_will_not_help(d, f, "A longer time-out, or a search in the training script.");
}

void dr_rule_ranks(struct doctor *d)
{
    static const enum dr_code codes[] = { DR_COLLECTIVE_MISMATCH, DR_RANK_MISSING,
        DR_RANK_BEHIND };
    struct dr_watch *w = d->watch;
    struct judged *judged = dr_alloc(d, (w->num_groups + 1) * sizeof(*judged));
    bool fault = false;

    rule_mismatch_lines(d);
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        dr_emit_claims(d, codes[i]);
    for (uint32_t i = 0; i < w->num_groups; i++) {
        struct judged *j = &judged[i];

        j->group = &w->groups[i];
        j->reports = w->reports + j->group->first;
        j->fault = j->group->is_ambiguous || j->group->count == 0;
        if (!j->fault) {
            find_usual(d, j);
            rule_mismatch(d, j);
            rule_behind(d, j);
        }
        if (!j->fault)
            rule_missing(d, j);
        fault = fault || (j->fault && j->group->count > 0);
    }
    /* with too few ranks in the text that is the answer; else a cause is owed */
    for (uint32_t i = 0; i < w->num_reports && i < LISTED_MAX &&
            !dr_has_finding(d, DR_RANKS_UNACCOUNTED, NULL);
            i++)
        dr_trouble(d, w->reports[i].line);
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        fault = fault || dr_has_finding(d, codes[i], NULL);
    if (fault)
        return;
    for (uint32_t i = 0; i < w->num_groups; i++)
        if (!judged[i].fault)
            rule_all_present(d, &judged[i]);
    dr_emit_claims(d, DR_ALL_PRESENT_SAME_OP);
}
