/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads PyTorch's watchdog. A rank says in one line in which operation it timed out, and
 * in others, by process group, what it has asked for; the first does not name the group,
 * so it is found by rank and operation among the others.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What is kept of a text, however many lines it repeats. */
#define NOTES_MAX  65536u
#define GROUPS_MAX 256u
#define SIZES_MAX  4096u
/* Groups of the same rank and operation that are compared. */
#define ALIKE_MAX 64u

/* One line of a watchdog. */
struct note {
    struct dr_span group;  /* "" at NULL: not named              */
    uint64_t rank, global; /* global: of the launcher's prefix   */
    uint64_t seq, enqueued, in, out;
    struct dr_span op, shape;
    bool has_global, has_seq, has_enqueued, has_op, has_sizes;
    uint32_t line, order, index; /* index: of its group, DR_NONE: unknown */
};

struct notes {
    struct note *note;
    uint32_t count, room;
};

/* ---- lines ---- */

/* The last "Rank N]" before @p end, and the group if its bracket names one. */
static bool bracket(const char *text, const char *end, struct note *n)
{
    const char *open = NULL;
    struct dr_span found[3];

    for (const char *at = text; (at = strstr(at, "Rank ")) != NULL && at < end; at++)
        open = at;
    if (open == NULL || !dr_scan(open, "^Rank %d]", found) ||
            !dr_span_u64(found[0], &n->rank))
        return false;
    while (open > text && open[-1] != '[')
        open--;
    if (open == text)
        return true;
    if (dr_scan(open, "^PG ID %d PG GUID %*Rank %d]", found) ||
            dr_scan(open, "^PG ID %d %*Rank %d]", found))
        n->group = found[1];
    else if (dr_scan(open, "^PG GUID %*Rank %d]", found) ||
            dr_scan(open, "^PG %*Rank %d]", found))
        n->group = found[0];
    while (n->group.length > 0 && n->group.at[n->group.length - 1] == ' ')
        n->group.length--;
    return true;
}

static struct note *new_note(struct doctor *d, struct notes *all, uint32_t line,
        const char *end)
{
    const char *text = d->lines[line].text;
    struct note n = { .line = line, .order = all->count, .index = DR_NONE };

    if (all->count >= NOTES_MAX || !bracket(text, end, &n))
        return NULL;
    n.has_global = dr_begins(text, "[rank") && dr_line_rank(text, &n.global);
    *DR_PUSH(d, all->note, all->count, all->room) = n;
    return &all->note[all->count - 1];
}

/* "SeqNum=17, OpType=BROADCAST, NumelIn=4, NumelOut=4," of any version; a value that is
 * cut off does not count, so each must be followed by a comma. */
static void read_work(struct note *n, const char *at)
{
    const char *next = strstr(at + 1, "Watchdog caught");
    struct dr_span found[2];

    if (dr_scan(at, "(SeqNum=%d,", found) && (next == NULL || found[0].at < next))
        n->has_seq = dr_span_u64(found[0], &n->seq);
    if (dr_scan(at, "OpType=%w,", found) && (next == NULL || found[0].at < next)) {
        n->op = found[0];
        n->op.length = strcspn(n->op.at, ",)");
        n->has_op = n->op.length > 0;
    }
    if (dr_scan(at, "NumelIn=%d, NumelOut=%d,", found) &&
            (next == NULL || found[1].at < next))
        n->has_sizes = dr_span_u64(found[0], &n->in) && dr_span_u64(found[1], &n->out);
    if (dr_scan(at, "TensorShape=[%*]", found) && (next == NULL || found[0].at < next))
        n->shape = found[0];
}

/* A rank that waited for the others to start; nothing has a number yet. */
static void read_start(struct doctor *d, struct notes *all, uint32_t line)
{
    static const char name[] = "store based barrier";
    struct note n = { .line = line, .order = all->count, .index = DR_NONE };
    struct dr_span found[1];

    if (all->count >= NOTES_MAX ||
            !dr_scan(d->lines[line].text,
                    "imed out initializing process group in store based barrier on "
                    "rank: %d,",
                    found) ||
            !dr_span_u64(found[0], &n.rank))
        return;
    n.group = (struct dr_span){ name, sizeof(name) - 1 };
    *DR_PUSH(d, all->note, all->count, all->room) = n;
    dr_known(d, line);
}

/* A dump that another rank asked for tells that this one timed out. */
static void read_sender(struct doctor *d, const char *text)
{
    struct dr_watch *w = d->watch;
    struct dr_span found[1];
    uint64_t rank;

    if (!dr_scan(text, "due to a collective timeout from rank %d%>", found) ||
            !dr_span_u64(found[0], &rank) || rank >= DR_NONE ||
            w->num_elsewhere >= NOTES_MAX)
        return;
    *DR_PUSH(d, w->elsewhere, w->num_elsewhere, w->room_elsewhere) = (uint32_t)rank;
}

static void read_line(struct doctor *d, struct notes *all, uint32_t line)
{
    static const char *const works[] = { "detected by watchdog at work: %d,",
        "Timeout at NCCL work: %d,", "at work sequence id: %d ",
        "Timeout at collective: %d," };
    static const char *const lasts[] = { "ast enqueued NCCL work: %d,",
        "ast enqueued work: %d,", "ast enqueued collective: %d," };
    const char *text = d->lines[line].text;
    struct dr_span found[1];
    struct note *n;

    if (dr_has(text, "store based barrier"))
        read_start(d, all, line);
    if (!dr_has(text, "Rank "))
        return;
    for (const char *at = text; (at = strstr(at, "Watchdog caught")) != NULL; at++) {
        n = new_note(d, all, line, at);
        if (n == NULL)
            continue;
        read_work(n, at);
        dr_known(d, line);
    }
    read_sender(d, text);
    n = NULL;
    for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
        if (dr_scan(text, works[i], found)) {
            n = n != NULL ? n : new_note(d, all, line, found[0].at);
            if (n != NULL)
                n->has_seq = dr_span_u64(found[0], &n->seq);
        }
    for (size_t i = 0; i < sizeof(lasts) / sizeof(*lasts); i++)
        if (dr_scan(text, lasts[i], found)) {
            n = n != NULL ? n : new_note(d, all, line, found[0].at);
            if (n != NULL)
                n->has_enqueued = dr_span_u64(found[0], &n->enqueued);
        }
    if (n != NULL)
        dr_known(d, line);
}

/* ---- groups ---- */

static uint32_t group_named(struct doctor *d, struct dr_span name)
{
    struct dr_watch *w = d->watch;
    struct dr_group *g;

    for (uint32_t i = 0; i < w->num_groups; i++)
        if (dr_span_is(name, w->groups[i].name))
            return i;
    if (w->num_groups >= GROUPS_MAX)
        return DR_NONE;
    g = DR_PUSH(d, w->groups, w->num_groups, w->room_groups);
    g->name = dr_copy(d, name.length > 0 ? name.at : "", name.length);
    g->is_world = name.length == 0 || dr_has(g->name, "default_pg") ||
            strcmp(g->name, "0") == 0 || dr_has(g->name, "store based");
    return w->num_groups - 1;
}

static int by_work(const void *a, const void *b)
{
    const struct note *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int by_report(const void *a, const void *b)
{
    const struct note *x = a, *y = b;

    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The group of a note that names none, by the others of its rank and operation, which
 * stand from @p first on. */
static uint32_t group_of(const struct notes *all, const struct note *n, uint32_t first)
{
    const struct note *other = &all->note[first];

    for (uint32_t i = first; i < all->count && i - first < ALIKE_MAX; i++, other++) {
        if (other->rank != n->rank || other->seq != n->seq)
            break;
        if (other->group.length > 0 && other->has_seq &&
                (!other->has_global || !n->has_global || other->global == n->global))
            return other->index;
    }
    return DR_NONE;
}

/* Every note gets its group; with no group named there is one without a name. */
static void find_groups(struct doctor *d, struct notes *all)
{
    struct dr_watch *w = d->watch;

    for (uint32_t i = 0; i < all->count; i++)
        if (all->note[i].group.length > 0)
            all->note[i].index = group_named(d, all->note[i].group);
    qsort(all->note, all->count, sizeof(*all->note), by_work);
    for (uint32_t i = 0, first = 0; i < all->count; i++) {
        struct note *n = &all->note[i];

        if (i > 0 && (n->rank != n[-1].rank || n->seq != n[-1].seq))
            first = i;
        if (n->index == DR_NONE && n->group.length == 0 && n->has_seq)
            n->index = group_of(all, n, first);
    }
    for (uint32_t i = 0; i < all->count; i++) {
        struct note *n = &all->note[i];

        if (n->index != DR_NONE)
            continue;
        if (w->num_groups <= 1)
            n->index = w->num_groups == 0 ? group_named(d, (struct dr_span){ 0 }) : 0;
        else if (n->rank < DR_NONE) /* it timed out, in whichever group */
            *DR_PUSH(d, w->elsewhere, w->num_elsewhere, w->room_elsewhere) =
                    (uint32_t)n->rank;
    }
}

static void merge(struct dr_report *r, const struct note *n)
{
    if (n->has_seq && !r->has_seq) {
        r->has_seq = true;
        r->seq = n->seq;
        r->line = n->line;
    }
    if (n->has_op && !r->has_op && (!n->has_seq || n->seq == r->seq)) {
        r->has_op = true;
        r->op = n->op;
        r->shape = n->shape;
        r->has_sizes = n->has_sizes;
        r->in = n->in;
        r->out = n->out;
        r->line = n->line;
    }
    if (n->has_enqueued && !r->has_enqueued) {
        r->has_enqueued = true;
        r->enqueued = n->enqueued;
        r->line_enqueued = n->line;
    }
}

/* One report for each rank of a group. */
static void make_reports(struct doctor *d, struct notes *all)
{
    struct dr_watch *w = d->watch;
    uint64_t global = 0;
    bool has_global = false;

    qsort(all->note, all->count, sizeof(*all->note), by_report);
    for (uint32_t i = 0; i < all->count && all->note[i].index != DR_NONE; i++) {
        const struct note *n = &all->note[i];
        struct dr_group *g = &w->groups[n->index];

        if (n->rank >= DR_NONE)
            continue;
        if (g->count == 0)
            g->first = w->num_reports;
        if (g->count == 0 || w->reports[w->num_reports - 1].rank != n->rank) {
            struct dr_report *r =
                    DR_PUSH(d, w->reports, w->num_reports, w->room_reports);

            r->group = n->index;
            r->rank = (uint32_t)n->rank;
            r->line = r->line_enqueued = n->line;
            g->count++;
            has_global = false;
        }
        if (n->has_global) {
            g->is_ambiguous = g->is_ambiguous || (has_global && global != n->global);
            if (g->name[0] == 0 && n->global != n->rank)
                g->is_world = false;
            global = n->global;
            has_global = true;
        }
        merge(&w->reports[w->num_reports - 1], n);
    }
}

/* ---- sizes ---- */

enum size_kind { WORLD, COMMUNICATOR, TENSOR, LAUNCHED, NUM_SIZES };

struct size {
    enum size_kind kind;
    uint64_t value;
    uint32_t line;
};

struct sizes {
    struct size *size;
    uint32_t count, room;
};

/* The number after @p name, which "=", ":" or a bracket may part. */
static bool number_after(const char *text, const char *name, const char **at,
        uint64_t *value)
{
    const char *found = strcasestr(*at, name);
    struct dr_span span;

    if (found == NULL)
        return false;
    *at = found + strlen(name);
    if (found > text && (isalnum((unsigned char)found[-1]) || found[-1] == '_'))
        return false;
    span.at = *at + strspn(*at, "'\" =:(");
    span.length = strspn(span.at, "0123456789");
    return span.at - *at <= 5 && span.at[span.length] != '.' &&
            dr_span_u64(span, value);
}

/* Words before "world size" that make it the size of something else. */
static bool is_partial(const char *text, const char *at)
{
    static const char *const words[] = { "local ", "tp ", "dp ", "pp ", "ep ", "cp ",
        "parallel ", "group ", "node ", "model ", "expert ", "sub" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const size_t length = strlen(words[i]);

        if ((size_t)(at - text) >= length &&
                strncasecmp(at - length, words[i], length) == 0)
            return true;
    }
    return false;
}

static void add_size(struct doctor *d, struct sizes *all, enum size_kind kind,
        uint64_t value, uint32_t line)
{
    if (value == 0 || value >= DR_NONE || all->count >= SIZES_MAX)
        return;
    *DR_PUSH(d, all->size, all->count, all->room) =
            (struct size){ .kind = kind, .value = value, .line = line };
}

/* What a launcher was told to start: ranks a node, times nodes. */
static uint64_t launched(const char *text)
{
    static const char *const per_node[] = { "nproc_per_node", "nproc-per-node",
        "--num_gpus", "--gpus-per-node" };
    static const char *const all[] = { "mpirun -np ", "mpirun -n ", "mpiexec -n ",
        "--num_processes", "--ntasks" };
    uint64_t count = 0, nodes = 1;
    struct dr_span found[1];
    const char *at;

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (at = text, number_after(text, all[i], &at, &count))
            return count;
    for (size_t i = 0; i < sizeof(per_node) / sizeof(*per_node) && count == 0; i++)
        (void)(at = text, number_after(text, per_node[i], &at, &count));
    if (dr_scan(text, "--nnodes=%w", found) || dr_scan(text, "--nnodes %w", found))
        nodes = dr_span_u64(found[0], &nodes) ? nodes : 0; /* "1:4": not known */
    return nodes < 65536 && count < 65536 ? count * nodes : 0;
}

static void read_sizes(struct doctor *d, struct sizes *all, uint32_t line)
{
    static const struct {
        const char *name;
        enum size_kind kind;
    } names[] = { { "world_size", WORLD }, { "world size", WORLD },
        { "worldsize", WORLD }, { "nranks", COMMUNICATOR },
        { "num_processes", LAUNCHED }, { "tp_size", TENSOR },
        { "tensor_parallel_size", TENSOR }, { "tensor-parallel-size", TENSOR } };
    const char *text = d->lines[line].text;
    struct dr_span found[2];
    uint64_t value;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *at = text;

        if (number_after(text, names[i].name, &at, &value) &&
                !is_partial(text, at - strlen(names[i].name)))
            add_size(d, all, names[i].kind, value, line);
    }
    if (dr_scan(text, "MEMBER: %d/%d%>", found) && dr_span_u64(found[1], &value))
        add_size(d, all, WORLD, value, line);
    if (dr_scan(text, "Starting with %d processes", found) &&
            dr_span_u64(found[0], &value))
        add_size(d, all, WORLD, value, line);
    if (dr_has(text, "run") || dr_has(text, "launch") || dr_has(text, "deepspeed") ||
            dr_has(text, "mpiexec"))
        add_size(d, all, LAUNCHED, launched(text), line);
}

/* The value of a kind, in @p source or anywhere (DR_NONE); NULL if there is none or two.
 * Of communicators, which may be parts of the world, the largest. */
static const struct size *size_of_kind(const struct doctor *d, const struct sizes *all,
        enum size_kind kind, uint32_t source)
{
    const struct size *best = NULL;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct size *s = &all->size[i];

        if (s->kind != kind ||
                (source != DR_NONE && d->lines[s->line].source != source))
            continue;
        if (best != NULL && best->value != s->value && kind != COMMUNICATOR)
            return NULL;
        if (best == NULL || s->value > best->value)
            best = s;
    }
    return best;
}

/* An all-gather grows by the size of its group, a reduce-scatter shrinks by it. */
static uint64_t size_by_shape(const struct dr_report *r)
{
    uint64_t small = 0, large = 0;

    if (!r->has_op || !r->has_sizes)
        return 0;
    if (memmem(r->op.at, r->op.length, "ALLGATHER", 9) != NULL) {
        small = r->in;
        large = r->out;
    } else if (memmem(r->op.at, r->op.length, "REDUCE_SCATTER", 14) != NULL) {
        small = r->out;
        large = r->in;
    }
    return small > 0 && large > small && large % small == 0 ? large / small : 0;
}

static void find_size(struct doctor *d, const struct sizes *all, struct dr_group *g)
{
    static const enum size_kind kinds[] = { WORLD, COMMUNICATOR, LAUNCHED, TENSOR };
    const struct dr_report *reports = d->watch->reports + g->first;
    const uint32_t source = d->lines[reports[0].line].source;
    const struct size *s = NULL;
    uint64_t value;

    for (uint32_t i = 0; i < g->count; i++) {
        value = size_by_shape(&reports[i]);
        if (value == 0)
            continue;
        if (g->size != 0 && g->size != value) {
            g->size = 0;
            return;
        }
        g->size = value;
        g->line_size = reports[i].line;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && g->size == 0; i++) {
        if (!g->is_world && kinds[i] != TENSOR)
            continue;
        s = size_of_kind(d, all, kinds[i], source);
        s = s != NULL ? s : size_of_kind(d, all, kinds[i], DR_NONE);
        if (s != NULL) {
            g->size = s->value;
            g->line_size = s->line;
        }
    }
    if (g->size <= reports[g->count - 1].rank)
        g->size = 0; /* of something else */
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

void dr_read_watchdog(struct doctor *d)
{
    struct dr_watch *w = d->watch;
    struct notes notes = { 0 };
    struct sizes sizes = { 0 };

    for (uint32_t i = 0; i < d->num_lines; i++)
        read_line(d, &notes, i);
    if (notes.count == 0)
        return;
    for (uint32_t i = 0; i < d->num_lines; i++)
        read_sizes(d, &sizes, i);
    find_groups(d, &notes);
    make_reports(d, &notes);
    if (w->num_elsewhere > 0)
        qsort(w->elsewhere, w->num_elsewhere, sizeof(*w->elsewhere), by_number);
    for (uint32_t i = 0; i < w->num_groups; i++)
        if (w->groups[i].count > 0)
            find_size(d, &sizes, &w->groups[i]);
}
