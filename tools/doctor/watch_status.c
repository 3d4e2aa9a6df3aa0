/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what `motet status` printed, its text and its JSON: it has judged already. */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <string.h>

/* How its verdicts are called here. DR_NUM_CODES: no cause, only trouble. */
static const struct verdict {
    const char *name;
    enum dr_code code;
    const char *fix;
} verdicts[] = {
    { "COLLECTIVE_MISMATCH", DR_COLLECTIVE_MISMATCH,
            "Look for the branch of the program that only some of these ranks take, or "
            "for "
            "sizes that differ between them." },
    { "RANK_DEAD", DR_RANK_MISSING,
            "See why that process ended: the system log (out of memory?) and the "
            "output of "
            "the launcher." },
    { "RANK_STOPPED", DR_RANK_BEHIND,
            "Continue the process with `kill -CONT PID`, and see who stopped it." },
    { "RANK_BEHIND", DR_RANK_BEHIND,
            "Look at the stack of that rank (`py-spy dump --pid PID`, `gdb -p PID`), "
            "not at "
            "those that wait." },
    { "RANK_AWAITED", DR_RANK_BEHIND,
            "Look at the stack of that rank (`py-spy dump --pid PID`, `gdb -p PID`), "
            "not at "
            "those that wait." },
    { "RANK_MISSING", DR_RANK_MISSING,
            "See whether it has left, or runs as another user, on another host or with "
            "another MOTET_TRACE_DIR." },
    { "ALL_PRESENT_SAME_OP", DR_ALL_PRESENT_SAME_OP, NULL },
    { "RANKS_WAIT_IN_CIRCLE", DR_COLLECTIVE_MISMATCH,
            "Put the sends and receives that belong together into one group." },
    { "RANK_FAILED", DR_NUM_CODES, NULL },
};

static const struct verdict *verdict_of(struct dr_span name)
{
    for (size_t i = 0; i < sizeof(verdicts) / sizeof(*verdicts); i++)
        if (dr_span_is(name, verdicts[i].name))
            return &verdicts[i];
    return NULL;
}

/* "rank 3" or "ranks 0-2" from the beginning of a sentence. */
static const char *subject_of(struct doctor *d, const char *text)
{
    struct dr_span number;
    size_t length;

    if (dr_scan(text, "^rank %d", &number))
        return dr_printf(d, "rank %.*s", (int)number.length, number.at);
    if (!dr_scan(text, "^ranks %d", &number))
        return "all ranks";
    length = strspn(number.at, "0123456789-, ");
    while (length > 0 && (number.at[length - 1] == ' ' || number.at[length - 1] == ','))
        length--;
    return dr_printf(d, "ranks %.*s", (int)length, number.at);
}

static struct dr_claim *claim(struct doctor *d, const struct verdict *v,
        const char *text, uint32_t line)
{
    struct dr_claim *c;

    dr_trouble(d, line);
    if (v->code == DR_NUM_CODES)
        return NULL;
    c = dr_claim(d, v->code, subject_of(d, text));
    c->sentence = dr_printf(d, "motet status says: %s", text);
    c->fix = v->fix;
    dr_claim_line(c, line);
    return c;
}

/* ---- text ---- */

/* The findings stand below the table of their communicator, a long one in several lines. */
static void read_text(struct doctor *d)
{
    bool inside = false;
    struct dr_claim *open = NULL;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        const struct verdict *v;
        struct dr_span f[3];

        if (dr_scan(text, "^communicator %x%*: %d rank", f)) {
            inside = true;
            dr_known(d, i);
        } else if (d->lines[i].flags & DR_COMMAND) {
            inside = false;
        }
        if (open != NULL && inside && dr_begins(text, "      ")) {
            open->sentence =
                    dr_printf(d, "%s %s", open->sentence, text + strspn(text, " "));
            dr_claim_line(open, i);
            continue;
        }
        open = NULL;
        if (inside && dr_scan(text, "^ problem %w: %*", f) &&
                (v = verdict_of(f[0])) != NULL)
            open = claim(d, v, f[1].at, i);
    }
}

/* ---- JSON ---- */

/* The text of a JSON string at @p at, behind its quote; no further than its end. */
static const char *unquoted(struct doctor *d, const char *at)
{
    const size_t most = strlen(at);
    char *out = dr_alloc(d, most + 1);
    size_t used = 0;

    for (; *at != 0 && *at != '"'; at++) {
        if (*at == '\\' && at[1] != 0) {
            at++;
            out[used++] = (char)(*at == 'n' || *at == 't' ? ' ' : *at);
        } else {
            out[used++] = *at;
        }
    }
    return out;
}

/* One member a line, or all of them in one: a finding is complete with its "text". */
static void read_json(struct doctor *d)
{
    const struct verdict *v = NULL;
    bool problem = false, inside = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *at = text;
        struct dr_span f[1];

        if (dr_has(text, "\"communicators\"") || dr_has(text, "\"communicator\"")) {
            inside = true;
            dr_known(d, i);
        }
        if (!inside || strchr(text, '"') == NULL)
            continue;
        while ((at = strchr(at, '"')) != NULL) {
            if (dr_begins(at, "\"code\"")) {
                v = dr_scan(at, "^\"code\": \"%*\"", f) ||
                                dr_scan(at, "^\"code\":\"%*\"", f)
                        ? verdict_of(f[0])
                        : NULL;
                problem = false;
            } else if (dr_begins(at, "\"severity\"")) {
                problem = dr_scan(at, "^\"severity\": \"problem\"", NULL) ||
                        dr_scan(at, "^\"severity\":\"problem\"", NULL);
            } else if (dr_begins(at, "\"text\"") && v != NULL && problem &&
                    (dr_scan(at, "^\"text\": \"%*", f) ||
                            dr_scan(at, "^\"text\":\"%*", f))) {
                (void)claim(d, v, unquoted(d, f[0].at), i);
                v = NULL;
            }
            at++;
        }
    }
}

/* A dead rank is behind as a matter of course: that is said once. */
static void fold(struct doctor *d)
{
    struct dr_watch *w = d->watch;

    for (uint32_t i = 0; i < w->num_claims; i++) {
        const struct dr_claim *c = &w->claims[i];

        for (uint32_t k = i + 1; k < w->num_claims && k < i + 32; k++) {
            struct dr_claim *later = &w->claims[k];

            if (strcmp(c->subject, later->subject) != 0 ||
                    (c->code != DR_RANK_MISSING && c->code != DR_RANK_BEHIND) ||
                    later->code != DR_RANK_BEHIND || later->num_lines == 0)
                continue;
            dr_claim_line(&w->claims[i], later->lines[0]);
            later->num_lines = 0; /* no finding of its own */
        }
    }
}

void dr_read_status(struct doctor *d)
{
    read_text(d);
    read_json(d);
    fold(d);
}
