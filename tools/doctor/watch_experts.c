/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the exchange between experts: DeepEP prints a line for each channel that waited in
 * vain, thousands of them, which fold into a table of receiving and sending nodes.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <string.h>

#define STARVED_MAX 512u
#define RANKS_MAX   4096u

/* Where a rank of the exchange is. */
struct member {
    bool entered, timed_out, empty;
    uint32_t line_empty, line_timeout;
};

static void add_starved(struct doctor *d, uint64_t node, uint64_t source, bool proof,
        uint32_t line)
{
    struct dr_watch *w = d->watch;
    struct dr_starved *s = NULL;

    for (uint32_t i = 0; i < w->num_starved && s == NULL; i++)
        if (w->starved[i].node == node && w->starved[i].source == source)
            s = &w->starved[i];
    if (s == NULL) {
        if (w->num_starved >= STARVED_MAX)
            return;
        s = DR_PUSH(d, w->starved, w->num_starved, w->room_starved);
        s->node = node;
        s->source = source;
        s->line = line;
    }
    s->count++;
    if (proof && !s->proof)
        s->line = line;
    s->proof = s->proof || proof;
}

static bool is_timeout(const char *text)
{
    return dr_has(text, "DeepEP") &&
            (dr_has_any_case(text, "timeout") || dr_has_any_case(text, "timed out"));
}

static bool is_dispatch_timeout(const char *text)
{
    if (is_timeout(text))
        return !dr_has_any_case(text, "combine");
    return dr_has_any_case(text, "dispatch") &&
            (dr_has_any_case(text, "timeout") || dr_has_any_case(text, "timed out") ||
                    dr_has_any_case(text, "hang") || dr_has_any_case(text, "stuck"));
}

static void read_starved(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span f[3];
    uint64_t node, source;

    if (!is_timeout(text))
        return;
    dr_trouble(d, line);
    if (!dr_has(text, "dispatch"))
        return;
    /* receivers decide; forwarders, which wait for the same, only count */
    if (dr_scan(text, "start: 0, end: 0%>", NULL) &&
            dr_scan(text, "RDMA: %d,%*src RDMA: %d,", f) && dr_span_u64(f[0], &node) &&
            dr_span_u64(f[2], &source))
        add_starved(d, node, source, true, line);
    else if (dr_scan(text, "meta: 0, 0, 0, 0%e", NULL) &&
            dr_scan(text, "RDMA: %d,%*src RDMA lane: %d,", f) &&
            dr_span_u64(f[0], &node) && dr_span_u64(f[2], &source))
        add_starved(d, node, source, false, line);
}

/* "0 tokens", "num_tokens=0" */
static bool says_empty(const char *text)
{
    static const char *const patterns[] = { "%<0 tokens%>", "%<0 token%>", "tokens=0%>",
        "tokens: 0%>", "tokens = 0%>", "tokens 0%>", "no tokens%>", "empty batch%>",
        "zero tokens%>" };

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (dr_scan(text, patterns[i], NULL))
            return true;
    return false;
}

static bool says_tokens(const char *text)
{
    return dr_scan(text, "%<%d tokens%>", NULL) || dr_scan(text, "tokens=%d", NULL) ||
            dr_scan(text, "tokens: %d", NULL) || dr_scan(text, "tokens = %d", NULL);
}

/* The rank of a line about experts: of its prefix, or the first that it names. */
static bool rank_of(const char *text, uint64_t *rank)
{
    static const char *const patterns[] = { "EP rank %d%>", "EP%d%>", "DP rank %d%>",
        "DP%d%>", "EngineCore_%d", "rank %d%>", "Rank %d%>", "rank=%d%>" };
    struct dr_span number;

    if (dr_line_rank(text, rank))
        return true;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (dr_scan(text, patterns[i], &number))
            return dr_span_u64(number, rank);
    return false;
}

/* Whether the line says that its rank leaves the step out. */
static bool says_skipped(const char *text)
{
    static const char *const words[] = { "skip", "no dispatch", "without dispatch",
        "not dispatch", "not enter", "return early", "returns early", "early return" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_has_any_case(text, words[i]))
            return true;
    return false;
}

static void read_member(struct doctor *d, struct member *members, uint32_t line)
{
    const char *text = d->lines[line].text;
    const bool empty = says_empty(text);
    const bool dispatch = dr_has_any_case(text, "dispatch");
    const bool skipped = says_skipped(text);
    struct member *m;
    uint64_t rank;

    if ((!empty && !dispatch && !dr_has(text, "tokens")) || !rank_of(text, &rank) ||
            rank >= RANKS_MAX)
        return;
    m = &members[rank];
    if (empty) {
        m->empty = true;
        m->entered = dispatch && !skipped;
        m->line_empty = line;
    } else if (says_tokens(text)) {
        m->empty = false;
    }
    if (is_dispatch_timeout(text)) {
        m->timed_out = true;
        m->line_timeout = line;
        dr_trouble(d, line);
    } else if (dispatch && !skipped) {
        m->entered = true;
    }
}

static void claim_uneven(struct doctor *d, const struct member *members, uint64_t rank,
        uint32_t line_timeout)
{
    struct dr_claim *c = dr_claim(d, DR_EP_HANG_UNEVEN_RANKS,
            dr_printf(d, "rank %llu", (unsigned long long)rank));
    uint32_t waiting = 0;

    dr_claim_line(c, members[rank].line_empty);
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        if (!members[i].timed_out)
            continue;
        waiting++;
        if (c->num_lines < 3)
            dr_claim_line(c, members[i].line_timeout);
    }
    if (waiting == 0)
        dr_claim_line(c, line_timeout);
    c->sentence = dr_printf(d,
            "rank %llu had no tokens in that step and did not enter the dispatch, "
            "where "
            "%s waited for its empty share until the time-out.",
            (unsigned long long)rank,
            waiting > 1            ? dr_printf(d, "%u others", waiting)
                    : waiting == 1 ? "another rank"
                                   : "the others");
}

void dr_read_experts(struct doctor *d)
{
    struct member *members;
    uint32_t line_timeout = DR_NONE;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        read_starved(d, i);
        if (line_timeout == DR_NONE && is_dispatch_timeout(d->lines[i].text))
            line_timeout = i;
    }
    if (line_timeout == DR_NONE)
        return;
    members = dr_alloc(d, RANKS_MAX * sizeof(*members));
    for (uint32_t i = 0; i < d->num_lines; i++)
        read_member(d, members, i);
    for (uint32_t i = 0; i < RANKS_MAX; i++)
        if (members[i].empty && !members[i].entered && !members[i].timed_out)
            claim_uneven(d, members, i, line_timeout);
}
