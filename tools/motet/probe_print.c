/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of motet probe for people: the libraries, the matrix with a column for each
 * card, what was said where it failed, and what all that decides.
 */
#include "probe_decide.h"
#include "probe_trial.h"

#include "term.h"

#include "find/find.h"

#include <string.h>
#include <unistd.h>

#define NAME_WIDTH 18
#define CELL_WIDTH 17
/* Columns of one table; with more, each library has a table of its own. */
#define COLUMNS_MAX 8

struct printer {
    const struct probe_report *report;
    FILE *out;
    bool colour;
    const char *column; /* "card", or "rank" where the ranks are on CPUs */
    int gap;            /* blanks that the next text of the line needs in front */
    size_t per_library; /* rows; each library has the same, in the same order */
};

static char letter(int library)
{
    return (char)('A' + library);
}

static const char *short_name(const struct probe_library *l)
{
    const char *slash = strrchr(l->path, '/');

    if (l->given == NULL)
        return "ours";
    return slash != NULL ? slash + 1 : l->path;
}

/* A field of a line of the table, without blanks behind the last one. */
static void put(struct printer *p, int width, const char *code, const char *text)
{
    if (text[0] != 0) {
        fprintf(p->out, "%*s", p->gap, "");
        p->gap = 0;
        if (code != NULL && p->colour)
            fprintf(p->out, "\033[%sm%s\033[0m", code, text);
        else
            fputs(text, p->out);
    }
    p->gap += width - (int)strlen(text);
}

static void end_line(struct printer *p)
{
    fputc('\n', p->out);
    p->gap = 0;
}

/* ---------------------------------------------------------------------- head */

static void print_card(const struct printer *p, int i)
{
    const struct probe_card *card = &p->report->cards[i];
    const char *const parts[][2] = { { "", card->target }, { "", card->address },
        { "root port ", card->root_port }, { "", card->link },
        { "AtomicOps ", card->atomics } };

    fprintf(p->out, "card %d: %s", i, card->name);
    for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++)
        if (parts[k][1][0] != 0)
            fprintf(p->out, ", %s%s", parts[k][0], parts[k][1]);
    fputc('\n', p->out);
}

static void print_head(const struct printer *p)
{
    const struct probe_report *r = p->report;
    char version[24];

    fprintf(p->out, "motet probe: %d %s, deadline %u s a cell\n", r->nranks,
            r->place.facts.devices > 0 ? (r->nranks == 1 ? "card" : "cards")
                                       : "ranks on the CPU",
            r->options->timeout_s);
    for (int i = 0; i < r->ncards && r->place.facts.devices > 0; i++)
        print_card(p, i);
    if (r->place.facts.devices > 0)
        fprintf(p->out, "driver: %s, %s\n", r->place.facts.driver_path,
                r->place.facts.driver_text);
    for (int i = 0; i < r->nlibraries; i++) {
        const struct probe_library *l = &r->libraries[i];

        fprintf(p->out, "library %c: %s, %s\n", letter(i), l->path, l->why);
        fprintf(p->out, "           version %s, sha256 %s\n",
                l->version != 0
                        ? motet_find_version(l->version, version, sizeof(version))
                        : "unknown",
                l->sha256);
    }
    if (r->note[0] != 0)
        fprintf(p->out, "no other library: %s\n", r->note);
}

/* ---------------------------------------------------------------------- table */

static const struct probe_row *row_of(const struct printer *p, int library, size_t i)
{
    return &p->report->rows[(size_t)library * p->per_library + i];
}

/* Cells that are each by themselves all have rank 0. */
static bool is_group(const struct probe_row *row)
{
    return row->nranks > 1 && row->ranks[1].rank != 0;
}

static void print_cell(struct printer *p, const struct probe_rank *cell)
{
    const char *code = cell->ok ? "32" : cell->stage == PROBE_NOT_RUN ? "33" : "31";
    bool aside = cell->stage == PROBE_NOT_RUN || cell->stage == PROBE_WAITING;
    char text[48];

    if (cell->ok && cell->ms >= 0)
        snprintf(text, sizeof(text), "ok %.2f ms", cell->ms);
    else if (cell->ok)
        snprintf(text, sizeof(text), "ok");
    else
        snprintf(text, sizeof(text), "%s%s", aside ? "" : "FAIL ",
                probe_stage_name(cell->stage));
    put(p, CELL_WIDTH, code, text);
}

static void print_cells(struct printer *p, const struct probe_row *row)
{
    for (int column = 0; column < p->report->ncards; column++) {
        const struct probe_rank *cell = NULL;

        for (int k = 0; k < row->nranks; k++)
            if (row->ranks[k].device == column ||
                    (row->ranks[k].device < 0 && column == 0))
                cell = &row->ranks[k];
        if (cell != NULL)
            print_cell(p, cell);
        else
            put(p, CELL_WIDTH, NULL, "");
    }
}

static void print_heading(struct printer *p, const struct probe_row *row)
{
    bool pair = row->nranks == 2;

    fprintf(p->out, "\n%s%ss%s", pair ? "" : "all ", p->column, pair ? "" : ":");
    for (int k = 0; k < row->nranks; k++)
        fprintf(p->out, "%s %d",
                k == 0         ? ""
                        : pair ? " and"
                               : ",",
                row->ranks[k].device);
    end_line(p);
}

static bool begins_group(const struct printer *p, size_t i)
{
    const struct probe_row *row = row_of(p, 0, i), *above;

    if (!is_group(row))
        return false;
    above = i > 0 ? row_of(p, 0, i - 1) : NULL;
    if (above == NULL || !is_group(above) || above->nranks != row->nranks)
        return true;
    return above->ranks[0].device != row->ranks[0].device ||
            above->ranks[1].device != row->ranks[1].device;
}

static const char *root_port_of(const struct probe_card *card)
{
    return card->root_port;
}

static const char *link_of(const struct probe_card *card)
{
    return card->link;
}

/* A line of the head with something of each card, unless no card has it. */
static void print_columns(struct printer *p, int libraries,
        const char *(*text)(const struct probe_card *), const char *title)
{
    bool some = false;

    for (int i = 0; i < p->report->ncards; i++)
        some = some || text(&p->report->cards[i])[0] != 0;
    if (!some)
        return;
    put(p, NAME_WIDTH, NULL, title);
    for (int l = 0; l < libraries; l++)
        for (int i = 0; i < p->report->ncards; i++)
            put(p, CELL_WIDTH, NULL, text(&p->report->cards[i]));
    end_line(p);
}

static void print_table_head(struct printer *p, int first, int last)
{
    const struct probe_report *r = p->report;
    int width = CELL_WIDTH * r->ncards;
    char title[CELL_WIDTH * PROBE_RANKS_MAX + 1];

    end_line(p);
    put(p, NAME_WIDTH, NULL, "");
    for (int l = first; l <= last; l++) {
        snprintf(title, sizeof(title), "%c: %.*s", letter(l), width - 5,
                short_name(&r->libraries[l]));
        put(p, width, NULL, title);
    }
    end_line(p);
    put(p, NAME_WIDTH, NULL, "");
    for (int l = first; l <= last; l++)
        for (int i = 0; i < r->ncards; i++) {
            snprintf(title, sizeof(title), "%s %d", p->column, i);
            put(p, CELL_WIDTH, NULL, title);
        }
    end_line(p);
    print_columns(p, last - first + 1, root_port_of, "root port");
    print_columns(p, last - first + 1, link_of, "link");
}

static void print_table(struct printer *p, int first, int last)
{
    print_table_head(p, first, last);
    for (size_t i = 0; i < p->per_library; i++) {
        const struct probe_row *row = row_of(p, first, i);

        if (begins_group(p, i))
            print_heading(p, row);
        p->gap = is_group(row) ? 2 : 0;
        put(p, NAME_WIDTH - p->gap, NULL, row->operation);
        for (int l = first; l <= last; l++)
            print_cells(p, row_of(p, l, i));
        end_line(p);
    }
}

/* -------------------------------------------------------------------- sentences */

/* Of which cards, and which of them; sentences speak of ranks of the row. */
static void print_who(const struct printer *p, const struct probe_row *row,
        const struct probe_rank *cell)
{
    for (int k = 0; k < row->nranks && is_group(row) && p->report->nranks > 2; k++)
        fprintf(p->out, "%s%d", k > 0 ? ", " : " of ", row->ranks[k].device);
    if (cell->device >= 0)
        fprintf(p->out, ", %s %d", p->column, cell->device);
    if (is_group(row) && cell->device != cell->rank)
        fprintf(p->out, " (rank %d of them)", cell->rank);
}

/* Each cell that is not ok; what was not run for the same reason as the row above once. */
static void print_sentences(const struct printer *p)
{
    const char *last = "";
    bool some = false;

    for (size_t i = 0; i < p->report->nrows; i++) {
        const struct probe_row *row = &p->report->rows[i];

        for (int k = 0; k < row->nranks; k++) {
            const struct probe_rank *cell = &row->ranks[k];

            if (cell->ok ||
                    (cell->stage == PROBE_NOT_RUN && strcmp(last, cell->message) == 0))
                continue;
            if (!some)
                fprintf(p->out, "\nwhat was said:\n");
            some = true;
            fprintf(p->out, "  %c %s", letter(row->library), row->operation);
            print_who(p, row, cell);
            fprintf(p->out, ": %s: %s\n", probe_stage_name(cell->stage), cell->message);
            last = cell->stage == PROBE_NOT_RUN ? cell->message : "";
        }
    }
}

/* On AMD's cards there is one usual cause, and there are tools for each part of it. */
static void print_next(const struct printer *p)
{
    bool failed = false;

    for (size_t i = 0; i < p->report->nrows; i++)
        for (int k = 0; k < p->report->rows[i].nranks; k++) {
            const struct probe_rank *cell = &p->report->rows[i].ranks[k];

            failed = failed || (!cell->ok && cell->stage != PROBE_NOT_RUN);
        }
    if (failed && p->report->place.backend == &backend_hip)
        fprintf(p->out,
                "  why: `motet probe --gate-kernels` shows whether these cards "
                "refuse kernels that declare a hostcall, `motet hostcall LIBRARY` "
                "whether the library has such, `motet doctor` which port is why\n");
}

static void print_model(const struct printer *p)
{
    const struct dr_model *m = &p->report->options->model;

    if (m->hidden > 0)
        fprintf(p->out,
                "  a token step of the model is %llu calls of all_reduce (two a layer) "
                "of %llu bytes\n",
                (unsigned long long)(2 * m->layers),
                (unsigned long long)(m->hidden * m->batch * m->dtype_bytes));
}

static void print_decides(const struct printer *p)
{
    const struct probe_report *r = p->report;

    fprintf(p->out, "\nwhat this decides:\n");
    for (size_t i = 0; i < nprobe_uses; i++)
        for (int l = 0; l < r->nlibraries; l++) {
            struct probe_answer a;

            probe_decide(r, &probe_uses[i], l, &a);
            fprintf(p->out, "  %-18s %c  %-7s  %s", l == 0 ? probe_uses[i].name : "",
                    letter(l), probe_word_name(a.word), a.because);
            if (a.step_ms >= 0)
                fprintf(p->out, "; %.3f ms of a token step", a.step_ms);
            fputc('\n', p->out);
        }
    print_model(p);
    print_next(p);
}

void probe_print_text(const struct probe_report *report, FILE *out)
{
    struct printer p = { .report = report,
        .out = out,
        .column = report->place.facts.devices > 0 ? "card" : "rank",
        .colour = out == stdout && term_colour(STDOUT_FILENO) };

    print_head(&p);
    if (report->nlibraries > 0)
        p.per_library = report->nrows / (size_t)report->nlibraries;
    if (report->nlibraries * report->ncards <= COLUMNS_MAX)
        print_table(&p, 0, report->nlibraries - 1);
    else
        for (int l = 0; l < report->nlibraries; l++)
            print_table(&p, l, l);
    print_sentences(&p);
    print_decides(&p);
}
