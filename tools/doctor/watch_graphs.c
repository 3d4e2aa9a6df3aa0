/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads runs that replay captured graphs: which stand still with one communicator on
 * several streams, and whether the same program ends with one stream or with a
 * communicator for each. A run is what follows a command or a heading.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define USERS_MAX 64
#define ENDS_MAX  64
/* A line longer than this is no heading. */
#define HEADING_MAX 160
/* Words are looked for in so much of a line. */
#define WORDS_MAX 512

/* Who uses a communicator. */
struct user {
    struct dr_span comm, graph, stream;
    uint64_t who;
    uint32_t line;
};

/* How far an end of a communicator has come. */
struct end {
    struct dr_span comm, count;
    uint64_t who; /* rank or process, 0: not said */
    uint32_t line;
};

struct run {
    uint32_t title; /* its command or heading, or DR_NONE */
    bool graphs, stalls, done;
    bool several, shares, separate; /* what its text says of streams */
    uint32_t line_done, line_stall, line_shared, line_other;
    struct dr_span shared;
    struct user users[USERS_MAX];
    struct end ends[ENDS_MAX];
    uint32_t num_users, num_ends;
};

struct pair {
    struct run *run; /* the one that stands still */
    uint32_t line_control, title_control;
    const struct end *a, *b;
};

/* ---- words, of a line in small letters ---- */

static void lower(const char *text, char low[WORDS_MAX])
{
    size_t i = 0;

    for (; i + 1 < WORDS_MAX && text[i] != 0; i++)
        low[i] = (char)tolower((unsigned char)text[i]);
    low[i] = 0;
}

static bool same(struct dr_span a, struct dr_span b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static bool any_of(const char *text, const char *const *words)
{
    size_t count = 0;

    while (words[count] != NULL)
        count++;
    return dr_has_any_of(text, words, count);
}

/* "no hang", "without a hang", "timeout=600": not the thing itself. */
static bool is_denied(const char *text, const char *at, size_t length)
{
    static const char *const before[] = { "no ", "without ", "without a ", "never ",
        "not ", "zero ", "0 ", "--", "_", "set_" };

    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++) {
        const size_t n = strlen(before[i]);

        if ((size_t)(at - text) >= n && strncasecmp(at - n, before[i], n) == 0)
            return true;
    }
    return at[length] == '=' || at[length] == '_' || dr_begins(at + length, "(ms)");
}

static bool says_stall(const char *text)
{
    static const char *const words[] = { "hang", "hung", "stuck", "stall", "deadlock",
        "timed out", "timeout", "no progress", "still here", "nothing more", "^c",
        "code 124", "status 124", "exit 124", "rc=124" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const char *at = strstr(text, words[i]);

        if (at != NULL && !is_denied(text, at, strlen(words[i])))
            return true;
    }
    return false;
}

static bool says_end(const char *text)
{
    static const char *const words[] = { "done", "finish", "completed", "passed",
        "success", "no hang", "without hang", "without a hang", "no deadlock",
        "runs through", "ran through", "stable", NULL };

    return (any_of(text, words) || dr_scan(text, "%<ok%>", NULL) ||
                   dr_scan(text, "%<pass%>", NULL)) &&
            !dr_has(text, "fail") && !dr_has(text, "not ok");
}

/* One stream, one after the other, or a communicator for each. */
static bool says_separate(const char *text)
{
    static const char *const words[] = { "per-stream", "per stream", "per_stream",
        "perstream", "pergraph", "per-graph", "per graph", "per_graph", "own comm",
        "own_comm", "own-comm", "separate", "distinct comm", "private comm",
        "one at a time", "one graph", "one stream", "single stream", "single-stream",
        "single_stream", "single graph", "single-graph", "serial", "sequential",
        "each stream", "comm per", "comms per", "communicator per", "communicators per",
        "comm for each", "communicator for each", "unshared", "not shared", "no-share",
        "shared=0", "share-comm=0", "shared no", NULL };
    static const char *const counts[] = { "graphs 1%>", "graphs=1%>", "graphs: 1%>",
        "streams 1%>", "streams=1%>", "streams: 1%>", "%<1 graph%>", "%<1 stream%>",
        "%<s1%>" };

    if (any_of(text, words))
        return true;
    if (strchr(text, '1') == NULL)
        return false;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (dr_scan(text, counts[i], NULL))
            return true;
    return false;
}

static bool says_several(const char *text)
{
    static const char *const words[] = { "two graphs", "three graphs", "four graphs",
        "two streams", "three streams", "four streams", "both graphs", "both streams",
        "several streams", "several graphs", "concurrent", NULL };
    static const char *const counts[] = { "graphs %d%>", "graphs=%d%>", "graphs: %d%>",
        "streams %d%>", "streams=%d%>", "streams: %d%>", "%<%d graphs%>",
        "%<%d streams%>", "%<%d captured graphs%>" };
    struct dr_span found[1];
    uint64_t count;

    if (any_of(text, words))
        return true;
    if (!dr_has(text, "graphs") && !dr_has(text, "streams"))
        return false;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (dr_scan(text, counts[i], found) && dr_span_u64(found[0], &count) &&
                count > 1)
            return true;
    return false;
}

static bool says_shared(const char *text)
{
    static const char *const words[] = { "shared", "share-comm", "share_comm",
        "share comm", "sharing", "one comm", "same comm", "single comm", NULL };

    return any_of(text, words) && !says_separate(text);
}

/* "comm 0x8c40", "stream=0x51c0": what follows the name, without punctuation. */
static bool handle_of(const char *text, const char *const *patterns,
        struct dr_span *out)
{
    for (; *patterns != NULL; patterns++)
        if (dr_scan(text, *patterns, out)) {
            out->length = strcspn(out->at, " \t,;:)]");
            return out->length > 0;
        }
    return false;
}

/* The rank of a line, or the process that wrote it; 0: neither is said. */
static uint64_t who_of(const char *text)
{
    struct dr_span f[4];
    uint64_t rank, hash = 14695981039346656037u;

    if (dr_line_rank(text, &rank) ||
            (dr_scan(text, "%<rank %d%>", f) && dr_span_u64(f[0], &rank)))
        return rank + 1;
    if (!dr_scan(text, "^%w:%d:%d [", f))
        return 0;
    for (const char *at = text; at < f[1].at + f[1].length; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return hash;
}

/* ---- lines ---- */

static void add_user(struct run *r, const struct user *u)
{
    for (uint32_t i = 0; i < r->num_users; i++) {
        const struct user *o = &r->users[i];

        if (o->who != u->who || !same(o->comm, u->comm))
            continue;
        if (r->shared.length == 0 &&
                ((u->stream.length > 0 && o->stream.length > 0 &&
                         !same(u->stream, o->stream)) ||
                        (u->graph.length > 0 && o->graph.length > 0 &&
                                !same(u->graph, o->graph)))) {
            r->shared = u->comm;
            r->line_shared = o->line;
            r->line_other = u->line;
        }
        return;
    }
    if (r->num_users < USERS_MAX)
        r->users[r->num_users++] = *u;
}

static void add_end(struct run *r, const struct end *e)
{
    for (uint32_t i = 0; i < r->num_ends; i++)
        if (r->ends[i].who == e->who && same(r->ends[i].comm, e->comm)) {
            r->ends[i] = *e;
            return;
        }
    if (r->num_ends < ENDS_MAX)
        r->ends[r->num_ends++] = *e;
}

/* The counts of operations in a line: one end's, or both ends'. */
static void read_counts(struct run *r, struct end *e, const char *text)
{
    static const char *const counts[] = { "opCount %x%>", "opCount=%x%>",
        "opCount: %x%>", "opcount %x%>", "opcount=%x%>", "op count %x%>",
        "op_count %x%>", "op_count=%x%>", "operation %d%>", "%<op %d%>", "%<op=%d%>",
        "%<op #%d%>", "SeqNum=%d,", "%<seq %d%>", "%<seq=%d%>", "collective %d%>",
        "collective #%d%>", "counter %d%>", "counter=%d%>" };

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        if (!dr_scan(text, counts[i], &e->count))
            continue;
        add_end(r, e);
        if (dr_scan(e->count.at + e->count.length, counts[i], &e->count)) {
            e->who = ~e->who; /* the other one */
            add_end(r, e);
        }
        return;
    }
}

static void note_words(struct run *r, const char *text)
{
    r->graphs = r->graphs || dr_has(text, "graph");
    r->several = r->several || says_several(text);
    r->shares = r->shares || says_shared(text);
    r->separate = r->separate || says_separate(text);
}

static void read_line(struct doctor *d, struct run *r, uint32_t line, const char *low)
{
    static const char *const comms[] = { "%<comm %w", "%<comm=%w", "%<comm: %w",
        "ommunicator %w", NULL };
    static const char *const streams[] = { "stream %w", "stream=%w", "stream: %w",
        NULL };
    static const char *const graphs[] = { "%<graph %w", "%<graph=%w", "Graph %w",
        NULL };
    const char *text = d->lines[line].text;
    struct user u = { .line = line, .who = who_of(text) };
    struct end e = { .line = line, .who = u.who };

    note_words(r, low);
    if (says_stall(low)) {
        r->stalls = true;
        r->line_stall = line;
    } else if (says_end(low)) {
        r->done = true;
        r->line_done = line;
    }
    (void)handle_of(text, comms, &u.comm);
    if (u.comm.length > 0 && !dr_scan(u.comm.at, "^0x%x", NULL) &&
            strcspn(u.comm.at, "0123456789") >= u.comm.length)
        u.comm.length = 0; /* a word of the sentence */
    e.comm = u.comm;
    if (u.comm.length > 0 || u.who != 0 || dr_has(low, "count"))
        read_counts(r, &e, text);
    if (u.comm.length == 0)
        return;
    (void)handle_of(text, graphs, &u.graph);
    (void)handle_of(text, streams, &u.stream);
    if (u.graph.length > 0 || u.stream.length > 0)
        add_user(r, &u);
    if (r->shared.length == 0 && says_several(low)) {
        r->shared = u.comm;
        r->line_shared = r->line_other = line;
    }
}

/* ---- runs ---- */

/* Whether the counts are one apart, in whichever base they are printed. */
static bool one_apart(struct dr_span a, struct dr_span b)
{
    uint64_t x, y;

    if (dr_span_u64(a, &x) && dr_span_u64(b, &y) && (x + 1 == y || y + 1 == x))
        return true;
    return dr_span_hex(a, &x) && dr_span_hex(b, &y) && (x + 1 == y || y + 1 == x);
}

/* Two ends of the run that stand one operation apart. */
static bool apart(const struct run *r, const struct end **a, const struct end **b)
{
    for (uint32_t i = 0; i < r->num_ends; i++)
        for (uint32_t k = i + 1; k < r->num_ends; k++) {
            const struct end *x = &r->ends[i], *y = &r->ends[k];

            if ((x->who != y->who || x->who == 0) && one_apart(x->count, y->count)) {
                *a = x;
                *b = y;
                return true;
            }
        }
    return false;
}

/* The communicator that is shared: by its users, or the words of the run. */
static bool is_shared(struct run *r)
{
    if (r->shared.length > 0)
        return true;
    if (!r->several || !r->shares)
        return false;
    r->line_shared = r->line_other = r->title;
    for (uint32_t i = 0; i < r->num_ends && r->shared.length == 0; i++)
        r->shared = r->ends[i].comm;
    return true;
}

static void end_run(struct doctor *d, struct run *r, struct pair *found)
{
    if (found->line_control == DR_NONE && r->separate && r->done && !r->stalls) {
        found->line_control = r->line_done;
        found->title_control = r->title;
    }
    if (found->run == NULL && r->graphs && r->stalls &&
            apart(r, &found->a, &found->b) && is_shared(r)) {
        found->run = dr_alloc(d, sizeof(*r));
        *found->run = *r;
        (void)apart(found->run, &found->a, &found->b);
    }
    if (r->graphs && r->stalls && (r->num_users > 0 || r->num_ends > 1))
        dr_trouble(d, r->line_stall);
    r->num_users = r->num_ends = 0;
    r->graphs = r->stalls = r->done = r->several = r->shares = r->separate = false;
    r->shared.length = 0;
    r->title = DR_NONE;
}

/* A line that tells the next run from the last one. */
static bool begins_run(const struct doctor *d, uint32_t i, const struct run *r,
        const char *low)
{
    static const char *const heads[] = { "==", "--", "##", "**", "run ", "case ",
        "test ", "config", "mode", "experiment", "scenario", "variant", "[run ",
        "[case ", "[mode" };
    const struct dr_line *line = &d->lines[i];

    if (line->flags & DR_COMMAND)
        return true;
    if (i > 0 && line->source != d->lines[i - 1].source)
        return true;
    if (line->length > HEADING_MAX)
        return false;
    /* what a person says of the run above it is no heading */
    if ((line->flags & DR_REMARK) && !dr_begins(line->text, "##"))
        return !(says_stall(low) || says_end(low)) || (!r->graphs && r->num_users == 0);
    for (size_t k = 0; k < sizeof(heads) / sizeof(*heads); k++)
        if (strncasecmp(line->text, heads[k], strlen(heads[k])) == 0)
            return k < 4 ||
                    (!dr_has(line->text, "0x") &&
                            (dr_has_any_case(line->text, "stream") ||
                                    dr_has_any_case(line->text, "comm") ||
                                    dr_has_any_case(line->text, "graph")));
    return false;
}

/* A line by itself that says how another arrangement ended. */
static void read_remark(const struct doctor *d, uint32_t line, const char *text,
        struct pair *found)
{
    if (found->line_control == DR_NONE && !(d->lines[line].flags & DR_COMMAND) &&
            says_separate(text) && says_end(text) && !says_stall(text))
        found->line_control = line;
}

static bool any_graph(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (dr_has(d->lines[i].text, "graph") || dr_has(d->lines[i].text, "Graph"))
            return true;
    return false;
}

static void claim_shared(struct doctor *d, const struct pair *found)
{
    const struct run *r = found->run;
    const bool named = r->shared.length > 0;
    const char *which = named
            ? dr_printf(d, "communicator %.*s", (int)r->shared.length, r->shared.at)
            : "one communicator";
    struct dr_claim *c = dr_claim(d, DR_GRAPH_REPLAY_SHARED_COMM, named ? which : "");

    c->sentence = dr_printf(d,
            "Captured graphs replay %s from several streams at once: its ends stand at "
            "operations %.*s and %.*s, and the control run ends.",
            which, (int)found->a->count.length, found->a->count.at,
            (int)found->b->count.length, found->b->count.at);
    if (r->line_shared != DR_NONE)
        dr_claim_line(c, r->line_shared);
    if (r->line_other != r->line_shared)
        dr_claim_line(c, r->line_other);
    dr_claim_line(c, found->a->line);
    if (found->b->line != found->a->line)
        dr_claim_line(c, found->b->line);
    if (found->title_control != DR_NONE)
        dr_claim_line(c, found->title_control);
    dr_claim_line(c, found->line_control);
}

void dr_read_graphs(struct doctor *d)
{
    struct run *r = dr_alloc(d, sizeof(*r));
    char low[WORDS_MAX];
    struct pair found = { .line_control = DR_NONE, .title_control = DR_NONE };

    if (!any_graph(d))
        return;
    r->title = DR_NONE;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const bool command = d->lines[i].flags & DR_COMMAND;

        lower(d->lines[i].text, low);
        if (begins_run(d, i, r, low)) {
            end_run(d, r, &found);
            r->title = i;
            note_words(r, low);
        }
        if (!command)
            read_line(d, r, i, low);
        read_remark(d, i, low, &found);
    }
    end_run(d, r, &found);
    if (found.run != NULL && found.line_control != DR_NONE)
        claim_shared(d, &found);
}
