/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the text of NCCL's RAS service, and other sentences that name the ranks at fault
 * themselves. RAS lists the smaller group of ranks, which may be the one that is ahead.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <stdlib.h>
#include <string.h>

/* Ranks that are listed one by one. */
#define RANKS_MAX 4096u
#define STEPS_MAX 16u
#define ROWS_MAX  256u

/* Ranks at one operation. */
struct step {
    uint64_t operation, count;
    uint64_t *ranks;
    uint32_t num_ranks, room_ranks;
    uint32_t line; /* of the count, or of the first rank */
    struct dr_span where;
};

struct block {
    uint32_t line; /* "#0-0 (…) MISMATCH" */
    uint64_t size; /* of the communicator, 0 */
    bool incomplete;
    const char *what; /* "AllReduce" */
    struct step steps[STEPS_MAX];
    uint32_t num_steps;
    uint32_t lost[DR_CLAIM_LINES], num_lost;
};

struct ras {
    struct block block;
    struct {
        uint64_t group, size;
    } rows[ROWS_MAX];
    uint32_t num_rows;
    bool open;
};

static struct step *step_of(struct block *b, uint64_t operation, uint32_t line)
{
    for (uint32_t i = 0; i < b->num_steps; i++)
        if (b->steps[i].operation == operation)
            return &b->steps[i];
    if (b->num_steps == STEPS_MAX)
        return NULL;
    b->steps[b->num_steps] = (struct step){ .operation = operation, .line = line };
    return &b->steps[b->num_steps++];
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t in_step(const struct step *s)
{
    return s->num_ranks > s->count ? s->num_ranks : s->count;
}

/* The ranks of a step that RAS only counts: all that the other steps do not list. */
static void complement(struct doctor *d, const struct block *b, struct step *s)
{
    uint64_t next = 0;
    uint64_t *others = dr_alloc(d, RANKS_MAX * sizeof(*others));
    uint32_t count = 0;

    for (uint32_t i = 0; i < b->num_steps; i++) {
        const struct step *o = &b->steps[i];

        if (o == s)
            continue;
        if (o->num_ranks == 0 || count + o->num_ranks > RANKS_MAX)
            return;
        memcpy(others + count, o->ranks, o->num_ranks * sizeof(*others));
        count += o->num_ranks;
    }
    if (s->num_ranks > 0 || b->size != count + s->count || b->size > RANKS_MAX)
        return;
    qsort(others, count, sizeof(*others), by_value);
    for (uint32_t i = 0; i < count || next < b->size; i++) {
        const uint64_t end = i < count ? others[i] : b->size;

        for (; next < end && next < b->size; next++)
            *DR_PUSH(d, s->ranks, s->num_ranks, s->room_ranks) = next;
        next = end + 1;
    }
}

/* A step's ranks, in words; at most one finding each step. */
static void claim_behind(struct doctor *d, struct block *b, struct step *s,
        const struct step *most)
{
    const char *who;
    struct dr_claim *c;

    complement(d, b, s);
    if (s->num_ranks > 0) {
        qsort(s->ranks, s->num_ranks, sizeof(*s->ranks), by_value);
        who = dr_rank_list(d, s->ranks, s->num_ranks);
    } else {
        who = dr_printf(d, "the %llu ranks at operation %llu",
                (unsigned long long)s->count, (unsigned long long)s->operation);
    }
    c = dr_claim(d, DR_RANK_BEHIND, who);
    c->sentence = dr_printf(d,
            "%s launched %s up to operation %llu, the other %llu up to %llu%s%.*s%s.",
            s->num_ranks > 1 || s->num_ranks == 0 ? dr_printf(d, "%s have", who)
                                                  : dr_printf(d, "%s has", who),
            b->what, (unsigned long long)s->operation,
            (unsigned long long)in_step(most), (unsigned long long)most->operation,
            s->num_ranks == 1 ? " (" : "", s->num_ranks == 1 ? (int)s->where.length : 0,
            s->num_ranks == 1 ? s->where.at : "", s->num_ranks == 1 ? ")" : "");
    dr_claim_line(c, b->line);
    dr_claim_line(c, most->line);
    dr_claim_line(c, s->line);
}

static void end_counts(struct doctor *d, struct block *b)
{
    const struct step *most = NULL;

    for (uint32_t i = 0; i < b->num_steps; i++)
        if (most == NULL || b->steps[i].operation > most->operation)
            most = &b->steps[i];
    for (uint32_t i = 0; b->num_steps > 1 && i < b->num_steps; i++)
        if (&b->steps[i] != most)
            claim_behind(d, b, &b->steps[i], most);
    b->num_steps = 0;
}

static void end_block(struct doctor *d, struct ras *r)
{
    struct block *b = &r->block;
    struct dr_claim *c;

    if (!r->open)
        return;
    end_counts(d, b);
    r->open = false;
    /* of a process that is gone RAS knows the GPUs, and no ranks */
    if (!b->incomplete || b->num_lost == 0 ||
            (b->size > 0 && (uint64_t)b->num_lost * 2 > b->size))
        return;
    for (uint32_t i = 0; i < b->num_lost; i++) {
        const char *text = d->lines[b->lost[i]].text;

        text += strspn(text, " \t");
        c = dr_claim(d, DR_RANK_MISSING, text);
        c->sentence = dr_printf(d, "The communicator has no data of %s.", text);
        dr_claim_line(c, b->line);
        dr_claim_line(c, b->lost[i]);
    }
}

static void begin_block(struct doctor *d, struct ras *r, uint32_t line,
        struct dr_span number, bool incomplete)
{
    uint64_t group = 0;

    end_block(d, r);
    r->block = (struct block){ .line = line,

        .what = "collectives",
        .incomplete = incomplete };
    r->open = true;
    for (uint32_t i = 0; dr_span_u64(number, &group) && i < r->num_rows; i++)
        if (r->rows[i].group == group)
            r->block.size = r->rows[i].size;
    dr_trouble(d, line);
}

/* "{1, 3}", "0-2,5": the ranks that another tool lists as missing. */
static void claim_listed(struct doctor *d, uint32_t line, struct dr_span list,
        uint32_t line_head)
{
    uint64_t *ranks = dr_alloc(d, RANKS_MAX * sizeof(*ranks));
    size_t count = 0, length;
    const char *end = list.at + list.length;
    struct dr_claim *c;
    uint64_t number, last = 0;
    bool range = false;

    for (const char *at = list.at; at < end; at += length > 0 ? length : 1) {
        length = strspn(at, "0123456789");
        if (length == 0 && strchr(" ,{}[]-\t", *at) == NULL)
            break;
        if (length == 0) {
            range = *at == '-';
            continue;
        }
        if (!dr_span_u64((struct dr_span){ at, length }, &number))
            break;
        for (last = range && count > 0 ? ranks[count - 1] + 1 : number;
                last <= number && count < RANKS_MAX; last++)
            ranks[count++] = last;
        range = false;
    }
    if (count == 0)
        return;
    qsort(ranks, count, sizeof(*ranks), by_value);
    c = dr_claim(d, DR_RANK_MISSING, dr_rank_list(d, ranks, count));
    c->sentence =
            dr_printf(d, "%s did not take part, the other ranks wait.", c->subject);
    dr_claim_line(c, line);
    if (line_head != DR_NONE)
        dr_claim_line(c, line_head);
    dr_trouble(d, line);
}

/* A row of the table of communicators: group, comms, nodes, ranks a node, ranks a comm … */
static void read_row(struct ras *r, const char *text)
{
    struct dr_span f[8];

    if (r->num_rows < ROWS_MAX && dr_scan(text, "^ %d %d %d %d %d %d %w %w", f) &&
            dr_span_u64(f[0], &r->rows[r->num_rows].group) &&
            dr_span_u64(f[4], &r->rows[r->num_rows].size))
        r->num_rows++;
}

static void read_counts(struct doctor *d, struct block *b, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span f[3];
    uint64_t first, operation;
    struct step *s;

    if (dr_scan(text, "ranks have different %* operation counts", f)) {
        end_counts(d, b);
        b->what = dr_copy(d, f[0].at, f[0].length);
    } else if (dr_scan(text, " %d ranks have launched up to operation %d%>", f) &&
            dr_span_u64(f[0], &first) && dr_span_u64(f[1], &operation)) {
        s = step_of(b, operation, line);
        if (s != NULL) {
            s->count = first;
            s->line = line;
        }
    } else if (dr_scan(text, "Rank %d has launched up to operation %d%>", f) &&
            dr_span_u64(f[0], &first) && dr_span_u64(f[1], &operation)) {
        s = step_of(b, operation, line);
        if (s != NULL && s->num_ranks < RANKS_MAX) {
            *DR_PUSH(d, s->ranks, s->num_ranks, s->room_ranks) = first;
            if (dr_scan(text, "-- %*", f))
                s->where = f[0];
        }
    }
}

static void read_line(struct doctor *d, struct ras *r, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span f[3];

    if (dr_scan(text, "#%d-%d (%x) MISMATCH", f)) {
        begin_block(d, r, line, f[0], false);
    } else if (dr_scan(text, "#%d-%d (%x) INCOMPLETE", f)) {
        begin_block(d, r, line, f[0], true);
    } else if (dr_has(text, "Communicators... (") || dr_has(text, "Job summary")) {
        end_block(d, r);
        r->num_rows = 0;
        dr_known(d, line);
    } else if (r->open && text[0] == '#') {
        end_block(d, r);
    } else if (r->open && r->block.incomplete &&
            dr_scan(text, "issing rank%*: %*", f)) {
        claim_listed(d, line, f[1], r->block.line);
        r->block.num_lost = 0;
        r->block.incomplete = false;
    } else if (r->open && r->block.incomplete) {
        if (dr_scan(text, "^ Process %d on node %w", NULL) &&
                r->block.num_lost < DR_CLAIM_LINES)
            r->block.lost[r->block.num_lost++] = line;
    } else if (r->open) {
        read_counts(d, &r->block, line);
    } else {
        read_row(r, text);
    }
}

/* ---- sentences that name the ranks ---- */

/* "Ranks 1, 2 failed to pass monitoredBarrier in 30000 ms" */
static void read_barrier(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span f[2];
    struct dr_claim *c;

    if (!dr_has(text, "monitoredBarrier") ||
            !(dr_scan(text, "%<Ranks %* failed to pass monitoredBarrier in %d", f) ||
                    dr_scan(text, "%<Rank %* failed to pass monitoredBarrier in %d",
                            f)) ||
            f[0].length > 200)
        return;
    c = dr_claim(d, DR_RANK_MISSING,
            dr_printf(d, "%s %.*s",
                    memchr(f[0].at, ',', f[0].length) != NULL ? "ranks" : "rank",
                    (int)f[0].length, f[0].at));
    c->sentence = dr_printf(d, "%s did not reach the barrier within %.*s ms.",
            c->subject, (int)f[1].length, f[1].at);
    dr_claim_line(c, line);
    dr_trouble(d, line);
}

/* What PyTorch's reader of flight recorders says (torchfrtrace). */
static void read_recorder(struct doctor *d, uint32_t line, uint32_t *head)
{
    const char *text = d->lines[line].text;
    struct dr_span f[2];
    struct dr_claim *c;

    if (dr_has(text, "Not all ranks joining collective") ||
            dr_scan(text, "ollective sequence number: %d has errors", NULL)) {
        *head = line;
        dr_trouble(d, line);
    } else if (*head != DR_NONE && dr_scan(text, "%<missing ranks: %*", f)) {
        claim_listed(d, line, f[0], *head);
    } else if (dr_scan(text, "Culprit rank %d%>%*MISMATCH%*", f)) {
        c = dr_claim(d, DR_COLLECTIVE_MISMATCH,
                dr_printf(d, "rank %.*s", (int)f[0].length, f[0].at));
        c->sentence = dr_printf(d,
                "%s calls something else than the other ranks in that operation.",
                c->subject);
        dr_claim_line(c, line);
        if (*head != DR_NONE)
            dr_claim_line(c, *head);
        dr_trouble(d, line);
    }
}

void dr_read_ras(struct doctor *d)
{
    uint32_t head = DR_NONE;
    struct ras *r = dr_alloc(d, sizeof(*r));

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (r->open && d->lines[i].source != d->lines[r->block.line].source)
            end_block(d, r);
        read_line(d, r, i);
        read_barrier(d, i);
        read_recorder(d, i, &head);
    }
    end_block(d, r);
}
