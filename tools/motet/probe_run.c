/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows there are, and running them one after the other: for each library what it
 * takes to load it, then each card by itself, each pair, and all cards. A row runs whatever
 * became of those before it, except where these say that it cannot: a library that does
 * not load, a card that does not answer.
 */
#include "probe_run.h"

#include "apart.h"
#include "cmd.h"
#include "serving.h"
#include "term.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What a run remembers of one library. */
struct run {
    struct probe_report *report;
    struct probe_found *found;
    int library;
    const char *why_not; /* no row of this library runs; NULL: they do */
    bool silent[PROBE_RANKS_MAX];
    bool on_gpus;
};

/* -------------------------------------------------------------------- rows */

static struct probe_row *new_row(struct probe_report *report, int library,
        const char *operation, int nranks)
{
    struct probe_row *row;

    if (report->nrows == report->room) {
        size_t room = report->room == 0 ? 64 : 2 * report->room;
        struct probe_row *rows = realloc(report->rows, room * sizeof(*rows));

        if (rows == NULL)
            return NULL;
        report->rows = rows;
        report->room = room;
    }
    row = &report->rows[report->nrows];
    *row = (struct probe_row){ .library = library,
        .operation = operation,
        .nranks = nranks,
        .ranks = calloc((size_t)nranks, sizeof(*row->ranks)) };
    if (row->ranks == NULL)
        return NULL;
    report->nrows++;
    return row;
}

/* "all_reduce of /opt/…/librccl.so.1 on devices 0, 1" */
static void say_stage(const struct run *run, const struct probe_operation *o,
        const struct probe_rank *ranks, int nranks, char *buf, size_t bytes)
{
    const struct probe_library *l = &run->report->libraries[run->library];
    size_t n = (size_t)snprintf(buf, bytes, "%s of %s", o->name, l->path);

    for (int r = 0; r < nranks && n < bytes && ranks[r].device >= 0; r++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%d",
                r == 0 ? " on devices " : ", ", ranks[r].device);
}

const char *probe_begin(const struct probe_options *options, const char *stage,
        int *refused, char *buf, size_t bytes)
{
    char said[160];

    if (options->until_ns != 0 && motet_now_ns() > options->until_ns)
        return "the time was up";
    if (*refused < 0)
        *refused = serving_refuse("probe", options->anyway);
    if (*refused >= 0)
        return "someone else computes on a GPU of this host";
    if (!options->anyway && !options->repeat &&
            serving_did_not_return("probe", stage, said, sizeof(said))) {
        snprintf(buf, bytes, "it began %s and did not come back; --repeat runs it",
                said);
        return buf;
    }
    serving_begin("probe", stage);
    return NULL;
}

void probe_end(const char *stage, const struct probe_rank *ranks, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (ranks[r].stuck)
            return;
    serving_end("probe", stage);
    serving_forget_stage("probe", stage); /* of earlier tries, too */
}

/* Why these cells are not to run; NULL: they are. */
static const char *begin_cell(struct run *run, const char *stage,
        const struct probe_rank *ranks, int nranks, char *buf, size_t bytes)
{
    const struct probe_options *o = run->report->options;

    if (run->why_not != NULL)
        return run->why_not;
    for (int r = 0; r < nranks; r++)
        if (ranks[r].device >= 0 && run->silent[ranks[r].device]) {
            snprintf(buf, bytes, "card %d did not answer", ranks[r].device);
            return buf;
        }
    if (run->on_gpus)
        return probe_begin(o, stage, &run->report->refused, buf, bytes);
    return o->until_ns != 0 && motet_now_ns() > o->until_ns ? "the time was up" : NULL;
}

static void run_cell(struct run *run, const struct probe_operation *o,
        struct probe_rank *ranks, int nranks)
{
    struct probe_report *report = run->report;
    struct probe_trial trial = { .options = report->options,
        .backend = report->place.backend,
        .library = &report->libraries[run->library],
        .operation = o,
        .found = run->found };
    char stage[PATH_MAX + 160], buf[256];
    const char *why;

    say_stage(run, o, ranks, nranks, stage, sizeof(stage));
    why = begin_cell(run, stage, ranks, nranks, buf, sizeof(buf));
    if (why != NULL) {
        probe_not_run(ranks, nranks, "%s", why);
        return;
    }
    term_progress("%s", stage);
    probe_cell(report->options, o->body, &trial, ranks, nranks);
    if (run->on_gpus)
        probe_end(stage, ranks, nranks);
}

/* --------------------------------------------------------------- what to run */

/* Whether --only wants it; the first two are always needed. */
static bool wanted(const struct probe_options *o, const struct probe_operation *op)
{
    const char *at = o->only;

    if (at == NULL || (op->scopes & PROBE_ONCE) != 0)
        return true;
    for (; *at != 0; at += *at == ',') {
        size_t n = strcspn(at, ",");

        if (strlen(op->name) == n && strncmp(at, op->name, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* The slowest rank's time of a step counts, of all groups. */
static void take_home(struct run *run)
{
    struct probe_report *report = run->report;
    double *slowest = &report->step_us[run->library];

    for (int r = 0; r < PROBE_RANKS_MAX; r++) {
        if (run->found->step_us[r] > *slowest)
            *slowest = run->found->step_us[r];
        run->found->step_us[r] = 0;
    }
}

/* A row of @p nranks ranks on the devices @p device, as one communicator. */
static bool add_row(struct run *run, const struct probe_operation *o, const int *device,
        int nranks)
{
    struct probe_row *row = new_row(run->report, run->library, o->name, nranks);

    if (row == NULL)
        return false;
    for (int r = 0; r < nranks; r++) {
        row->ranks[r].rank = r;
        row->ranks[r].device = device[r];
    }
    run_cell(run, o, row->ranks, nranks);
    take_home(run);
    return true;
}

/* A row whose cells are each by itself. */
static bool add_row_of_each(struct run *run, const struct probe_operation *o)
{
    int n = run->report->nranks;
    struct probe_row *row = new_row(run->report, run->library, o->name, n);

    if (row == NULL)
        return false;
    for (int r = 0; r < n; r++) {
        row->ranks[r].device = r;
        run_cell(run, o, &row->ranks[r], 1);
        if (row->ranks[r].stage == PROBE_HANG && strcmp(o->name, "device") == 0)
            run->silent[r] = true;
    }
    return true;
}

static bool add_pairs(struct run *run)
{
    bool fine = true;

    for (int a = 0; a < run->report->nranks && fine; a++)
        for (int b = a + 1; b < run->report->nranks && fine; b++)
            for (size_t i = 0; i < nprobe_operations && fine; i++)
                if ((probe_operations[i].scopes & PROBE_PAIR) != 0 &&
                        wanted(run->report->options, &probe_operations[i]))
                    fine = add_row(run, &probe_operations[i], (int[]){ a, b }, 2);
    return fine;
}

static bool add_all(struct run *run)
{
    int device[PROBE_RANKS_MAX];
    bool fine = true;

    for (int r = 0; r < run->report->nranks; r++)
        device[r] = r;
    for (size_t i = 0; i < nprobe_operations && fine && run->report->nranks > 2; i++)
        if ((probe_operations[i].scopes & PROBE_ALL) != 0 &&
                wanted(run->report->options, &probe_operations[i]))
            fine = add_row(run, &probe_operations[i], device, run->report->nranks);
    return fine;
}

/* ------------------------------------------------------------- the libraries */

static void hash(struct probe_library *l)
{
    struct stat st;

    if (stat(l->path, &st) != 0 || !S_ISREG(st.st_mode) ||
            sha256_file(l->path, l->sha256) != 0)
        snprintf(l->sha256, sizeof(l->sha256), "unreadable");
}

/* The loader searched for it in vain: not a fault of the library. */
static bool was_not_found(const struct probe_library *l, const struct probe_rank *r)
{
    return l->given != NULL && strncmp(r->message, l->path, strlen(l->path)) == 0 &&
            strstr(r->message, ": cannot open shared object file: No such file") !=
            NULL;
}

static bool add_first_rows(struct run *run)
{
    struct probe_report *report = run->report;
    struct probe_library *l = &report->libraries[run->library];
    const int none = -1;

    for (size_t i = 0; (probe_operations[i].scopes & PROBE_ONCE) != 0; i++) {
        struct probe_rank *cell;

        if (!add_row(run, &probe_operations[i], &none, 1))
            return false;
        cell = report->rows[report->nrows - 1].ranks;
        if (cell->ok || run->why_not != NULL)
            continue;
        if (was_not_found(l, cell))
            cell->stage = PROBE_NOT_RUN;
        run->why_not = i == 0 ? "the library was not loaded"
                              : "the library is not one with the NCCL ABI";
    }
    if (run->found->path[0] != 0) {
        snprintf(l->path, sizeof(l->path), "%s", run->found->path);
        l->version = run->found->version;
        l->motet = run->found->motet;
    }
    hash(l);
    if (run->why_not == NULL)
        run->why_not = probe_needs_gpu(report, l);
    return true;
}

static bool run_library(struct run *run)
{
    bool fine = add_first_rows(run);

    for (size_t i = 0; i < nprobe_operations && fine; i++)
        if ((probe_operations[i].scopes & PROBE_EACH) != 0 &&
                wanted(run->report->options, &probe_operations[i]))
            fine = add_row_of_each(run, &probe_operations[i]);
    return fine && add_pairs(run) && add_all(run);
}

/* ------------------------------------------------------------------ the whole */

static int count_ranks(struct probe_report *report)
{
    int devices = report->place.facts.devices, asked = report->options->ranks;
    int most = devices > 0 && devices < PROBE_RANKS_MAX ? devices : PROBE_RANKS_MAX;

    if (asked > most)
        return cmd_error("probe", EXIT_UNDECIDED,
                "%d ranks need as many cards, and of those here %d can be used; on "
                "CPUs there can be %d ranks",
                asked, most, PROBE_RANKS_MAX);
    report->nranks = asked != 0 ? asked : devices > 0 ? most : 2;
    return -1;
}

/* A library with code for GPUs that is given host memory may launch all the same. */
static bool may_launch(const struct probe_report *report)
{
    for (int l = 0; l < report->nlibraries && report->options->host_memory; l++)
        if (!report->libraries[l].missing && report->libraries[l].given != NULL &&
                library_may_launch(report->libraries[l].path))
            return true;
    return false;
}

int probe_run(const struct probe_options *options, struct probe_report *out)
{
    struct run run = { .report = out };
    struct probe_traces traces;
    bool fine = true;
    int code;

    *out = (struct probe_report){ .options = options, .refused = -1 };
    code = backend_choose("probe", options->device, options->host_memory, &out->place);
    if (code < 0)
        code = count_ranks(out);
    run.on_gpus = code < 0 && out->place.facts.devices > 0;
    if (run.on_gpus)
        code = serving_refuse("probe", options->anyway);
    if (code >= 0)
        return code;
    probe_choose_libraries(out);
    if (!run.on_gpus && may_launch(out)) {
        run.on_gpus = true;
        code = serving_refuse("probe", options->anyway);
    }
    if (code >= 0)
        return code;
    probe_look_at_cards(out);
    probe_traces_make(&traces);
    run.found = apart_memory(sizeof(*run.found));
    for (int l = 0; l < out->nlibraries && run.found != NULL && fine; l++) {
        memset(run.found, 0, sizeof(*run.found));
        memset(run.silent, 0, sizeof(run.silent));
        run.library = l;
        run.why_not = out->libraries[l].missing ? out->libraries[l].why : NULL;
        fine = run_library(&run);
    }
    term_progress_end();
    probe_traces_remove(&traces);
    if (run.found == NULL || !fine) {
        probe_report_free(out);
        return cmd_error("probe", EXIT_UNDECIDED, "no memory");
    }
    apart_free(run.found, sizeof(*run.found));
    return -1;
}

void probe_report_free(struct probe_report *report)
{
    for (size_t i = 0; i < report->nrows; i++)
        free(report->rows[i].ranks);
    free(report->rows);
    report->rows = NULL;
    report->nrows = report->room = 0;
}

int probe_exit_status(const struct probe_report *report)
{
    int worst = report->nrows == 0 || report->unsettled ? EXIT_UNDECIDED : EXIT_FINE;

    for (size_t i = 0; i < report->nrows; i++)
        for (int r = 0; r < report->rows[i].nranks; r++) {
            const struct probe_rank *cell = &report->rows[i].ranks[r];

            if (cell->ok)
                continue;
            if (cell->stage != PROBE_NOT_RUN)
                return EXIT_PROBLEM;
            worst = EXIT_UNDECIDED;
        }
    return worst;
}
