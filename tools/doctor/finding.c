/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: made once for each code and subject, overruled, put in order. */
#include "finding.h"

#include <stdlib.h>
#include <string.h>

static char *printed(struct doctor *d, const char *fmt, va_list args)
{
    char text[4096];

    if (vsnprintf(text, sizeof(text), fmt, args) < 0)
        text[0] = 0;
    return dr_copy(d, text, strlen(text));
}

struct dr_finding *dr_found(struct doctor *d, enum dr_code code, const char *subject,
        ...)
{
    struct dr_finding *f;
    va_list args;
    char *name;

    va_start(args, subject);
    name = printed(d, subject, args);
    va_end(args);
    for (uint32_t i = 0; i < d->num_findings; i++) {
        f = &d->findings[i];
        if (f->code == code && strcmp(f->subject, name) == 0)
            return f;
    }
    if (d->findings_of[code] < DR_FINDINGS_MAX) {
        f = DR_PUSH(d, d->findings, d->num_findings, d->room_findings);
        d->findings_of[code]++;
    } else { /* the caller may fill it; nobody will see it */
        f = &d->not_kept;
        *f = (struct dr_finding){ 0 };
        d->more_of[code] = true;
    }
    f->code = code;
    f->subject = name;
    f->summary = "";
    return f;
}

void dr_say(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    f->summary = printed(d, fmt, args);
    va_end(args);
}

static void add_line(struct doctor *d, struct dr_list *list, uint32_t line)
{
    uint32_t room = (uint32_t)list->room;

    if (line == DR_NONE)
        return;
    for (size_t i = 0; i < list->count; i++)
        if (list->lines[i] == line)
            return;
    dr_known(d, line);
    if (list->count == DR_QUOTED_MAX)
        return;
    list->lines =
            dr_grow(d, list->lines, (uint32_t)list->count, &room, sizeof(*list->lines));
    list->room = room;
    list->lines[list->count++] = line;
}

static void add_words(struct doctor *d, struct dr_list *list, const char *fmt,
        va_list args)
{
    char *words = printed(d, fmt, args);
    uint32_t room = (uint32_t)list->room;

    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->words[i], words) == 0)
            return;
    list->words =
            dr_grow(d, list->words, (uint32_t)list->count, &room, sizeof(*list->words));
    list->room = room;
    list->words[list->count++] = words;
}

void dr_because(struct doctor *d, struct dr_finding *f, uint32_t line)
{
    add_line(d, &f->because, line);
}

void dr_consequence(struct doctor *d, struct dr_finding *f, uint32_t line)
{
    add_line(d, &f->consequences, line);
}

void dr_fix(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_words(d, &f->fix, fmt, args);
    va_end(args);
}

void dr_will_not_help(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_words(d, &f->will_not_help, fmt, args);
    va_end(args);
}

void dr_way_out(struct doctor *d, const char *what, const char *cost,
        const char *verify)
{
    struct dr_way_out *w;

    for (uint32_t i = 0; i < d->num_ways_out; i++)
        if (strcmp(d->ways_out[i].what, what) == 0)
            return;
    w = DR_PUSH(d, d->ways_out, d->num_ways_out, d->room_ways_out);
    w->what = what;
    w->cost = cost;
    w->verify = verify;
}

struct dr_finding *dr_finding_of(struct doctor *d, enum dr_code code)
{
    for (uint32_t i = 0; i < d->num_findings; i++)
        if (d->findings[i].code == code && !d->findings[i].dropped)
            return &d->findings[i];
    return NULL;
}

bool dr_has_finding(struct doctor *d, enum dr_code code, const char *subject)
{
    if (d->more_of[code])
        return true; /* it may be one of those that were not kept */
    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];

        if (f->code == code && !f->dropped &&
                (subject == NULL || strcmp(f->subject, subject) == 0))
            return true;
    }
    return false;
}

/* ---- one cause overrules another ---- */

/* Where the first stands, the second is its consequence and no finding. */
static const struct overrule {
    enum dr_code cause, effect;
    bool same_subject; /* only where both name the same thing */
} overrules[] = {
    { DR_HOSTNAME_NOT_UNIQUE, DR_FIREWALL_OR_ROUTE, false },
    { DR_HOSTNAME_NOT_UNIQUE, DR_SHM_TOO_SMALL, false },
    { DR_HOSTNAME_NOT_UNIQUE, DR_SHM_REGISTER_FAILED, false },
    { DR_HOSTNAME_NOT_UNIQUE, DR_DUPLICATE_GPU, false },
    { DR_HOST_OFF_OR_NIC_DEAD, DR_FIREWALL_OR_ROUTE, true },
    { DR_HOST_WEDGED, DR_FIREWALL_OR_ROUTE, true },
    { DR_GRAPH_REPLAY_SHARED_COMM, DR_RANK_BEHIND, false },
    { DR_GRAPH_REPLAY_SHARED_COMM, DR_RDMA_UNREACHABLE, false },
};

void dr_overrule(struct doctor *d)
{
    for (size_t i = 0; i < sizeof(overrules) / sizeof(*overrules); i++) {
        const struct overrule *o = &overrules[i];
        struct dr_finding *cause = dr_finding_of(d, o->cause);

        for (uint32_t k = 0; cause != NULL && k < d->num_findings; k++) {
            struct dr_finding *f = &d->findings[k];

            if (f->code != o->effect || f->dropped ||
                    (o->same_subject && !dr_has_finding(d, o->cause, f->subject)))
                continue;
            f->dropped = true;
            for (size_t n = 0; n < f->because.count; n++)
                dr_consequence(d, cause, f->because.lines[n]);
        }
    }
}

/* ---- order ---- */

static int compare(const void *a, const void *b)
{
    const struct dr_finding *x = a, *y = b;
    const int severity =
            (int)dr_codes[x->code].severity - (int)dr_codes[y->code].severity;

    if (x->dropped != y->dropped)
        return x->dropped - y->dropped;
    if ((x->code == DR_NO_FINDING) != (y->code == DR_NO_FINDING))
        return x->code == DR_NO_FINDING ? -1 : 1;
    if (severity != 0)
        return severity;
    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    return strcmp(x->subject, y->subject);
}

/* The last finding of a code that has more of them says so. */
static void tell_of_more(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_findings; i++) {
        struct dr_finding *f = &d->findings[i];
        const bool last = i + 1 == d->num_findings || f[1].code != f->code;

        if (last && d->more_of[f->code])
            f->summary = dr_printf(d, "%s More like this one are not listed.",
                    f->summary[0] != 0 ? f->summary : dr_codes[f->code].means);
    }
}

void dr_put_in_order(struct doctor *d)
{
    if (d->num_findings > 0)
        qsort(d->findings, d->num_findings, sizeof(*d->findings), compare);
    while (d->num_findings > 0 && d->findings[d->num_findings - 1].dropped)
        d->num_findings--;
    tell_of_more(d);
}
