/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows decide: see probe_decide.h. A way of use needs rows: of all ranks together,
 * of each card and the next one, and always of each card by itself. The first one that is
 * missing or failed is the reason.
 */
#include "probe_decide.h"

#include <string.h>

static const char *const collectives_needed[] = { "init", "all_reduce", "broadcast",
    "barrier", "all_gather", NULL };
static const char *const messages_needed[] = { "init", "send_0_to_1", "send_1_to_0",
    NULL };

const struct probe_use probe_uses[] = {
    { "tensor_parallel", "tensor parallel", collectives_needed, NULL,
            "all_reduce, broadcast, barrier and all_gather of all together work",
            true },
    { "pipeline_parallel", "pipeline parallel", NULL, messages_needed,
            "messages of each to and from the next one arrive", false },
    { "layer_split", "layer split", NULL, NULL,
            "each works by itself, and no collective is needed", false },
    { "replicas", "replicas", NULL, NULL,
            "each works by itself, and no collective is needed", false },
};

const size_t nprobe_uses = sizeof(probe_uses) / sizeof(*probe_uses);

const char *probe_word_name(enum probe_word word)
{
    static const char *const names[] = { [PROBE_NO] = "no",
        [PROBE_YES] = "yes",
        [PROBE_UNKNOWN] = "unknown" };

    return names[word];
}

/* The row of a library for these devices; NULL if it was not asked for. */
static const struct probe_row *find(const struct probe_report *r, int library,
        const char *operation, const int *device, int nranks)
{
    for (size_t i = 0; i < r->nrows; i++) {
        const struct probe_row *row = &r->rows[i];
        bool same = row->library == library && row->nranks == nranks &&
                strcmp(row->operation, operation) == 0;

        for (int k = 0; k < nranks && same; k++)
            same = row->ranks[k].device == device[k];
        if (same)
            return row;
    }
    return NULL;
}

static const char *column_word(const struct probe_report *r)
{
    return r->place.facts.devices > 0 ? "card" : "rank";
}

static const char *group_text(const struct probe_report *r, const int *device,
        int nranks, char *buf, size_t bytes)
{
    size_t n = (size_t)snprintf(buf, bytes, "%ss ", column_word(r));

    for (int i = 0; i < nranks && n < bytes; i++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%d", i > 0 ? ", " : "", device[i]);
    return buf;
}

/* The cell to blame in a row that failed: one that is at fault before one that waited. */
static const struct probe_rank *worst_of(const struct probe_row *row)
{
    const struct probe_rank *worst = NULL;

    for (int i = 0; i < row->nranks; i++) {
        const struct probe_rank *cell = &row->ranks[i];

        if (!cell->ok && (worst == NULL || worst->stage == PROBE_WAITING))
            worst = cell;
    }
    return worst;
}

/* What one row says, in @p out: a "no" is final, and the first "unknown" stays. */
static void ask_row(const struct probe_report *r, int library, const char *operation,
        const int *device, int nranks, struct probe_answer *out)
{
    const struct probe_row *row = find(r, library, operation, device, nranks);
    const struct probe_rank *cell = row != NULL ? worst_of(row) : NULL;
    bool runs = row != NULL && (cell == NULL || cell->stage != PROBE_NOT_RUN);
    char group[96];

    if (out->word == PROBE_NO || (runs && cell == NULL) ||
            (!runs && out->word == PROBE_UNKNOWN))
        return;
    (void)group_text(r, device, nranks, group, sizeof(group));
    out->word = runs ? PROBE_NO : PROBE_UNKNOWN;
    if (runs)
        snprintf(out->because, sizeof(out->because), "%s of %s fails on %s %d: %s",
                operation, group, column_word(r), cell->device,
                probe_stage_name(cell->stage));
    else
        snprintf(out->because, sizeof(out->because), "%s of %s was not run%s%.120s",
                operation, group, cell != NULL ? ": " : "",
                cell != NULL ? cell->message : "");
}

static void ask_rows(const struct probe_report *r, int library,
        const char *const *operations, const int *device, int nranks,
        struct probe_answer *out)
{
    for (; operations != NULL && *operations != NULL; operations++)
        ask_row(r, library, *operations, device, nranks, out);
}

/* Where all together cannot, some pair may. */
static void add_pairs_that_can(const struct probe_report *r, int library,
        const char *const *operations, struct probe_answer *out)
{
    const char *before = "; these pairs can: ";

    for (int a = 0; a < r->nranks; a++)
        for (int b = a + 1; b < r->nranks; b++) {
            struct probe_answer pair = { .word = PROBE_YES };
            size_t at = strlen(out->because);

            ask_rows(r, library, operations, (int[]){ a, b }, 2, &pair);
            if (pair.word != PROBE_YES)
                continue;
            snprintf(out->because + at, sizeof(out->because) - at, "%s%d and %d",
                    before, a, b);
            before = ", ";
        }
}

void probe_decide(const struct probe_report *r, const struct probe_use *use,
        int library, struct probe_answer *out)
{
    int device[PROBE_RANKS_MAX];

    *out = (struct probe_answer){ .word = PROBE_UNKNOWN, .step_ms = -1 };
    for (int i = 0; i < r->nranks; i++)
        device[i] = i;
    snprintf(out->because, sizeof(out->because), "there is one %s only",
            column_word(r));
    if (r->nranks < 2)
        return;
    out->word = PROBE_YES;
    snprintf(out->because, sizeof(out->because), "%s", use->needs);
    /* The row of cards by themselves has a cell for each: it is found as all of them. */
    ask_row(r, library, "device", device, r->nranks, out);
    for (int i = 0; i + 1 < r->nranks; i++)
        ask_rows(r, library, use->next, device + i, 2, out);
    ask_rows(r, library, use->group, device, r->nranks, out);
    if (out->word == PROBE_NO && use->group != NULL && r->nranks > 2)
        add_pairs_that_can(r, library, use->group, out);
    if (use->steps && r->step_us[library] > 0)
        out->step_ms =
                2.0 * (double)r->options->model.layers * r->step_us[library] / 1e3;
}
