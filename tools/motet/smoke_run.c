/* SPDX-License-Identifier: Apache-2.0 */
/* What smoke's ranks do: see smoke.h. */
#include "smoke.h"

#include "cmd.h"
#include "stats.h"
#include "term.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define WARM_UPS  5
#define MAX_BYTES ((size_t)512 * 1024)

static const size_t sizes[SMOKE_SIZES] = { 4 * 1024, 32 * 1024, 128 * 1024, MAX_BYTES };

/* Counts of the check: one element, and two that fill no whole vector, chunk or slot. */
static const size_t check_counts[] = { 1, 17, 4099 };
#define NCOUNTS (sizeof(check_counts) / sizeof(*check_counts))

/* The cases of people who had to find out whether their library works at all. */
static const char *const value_collectives[] = { "all_reduce", "all_gather" };
static const motet_type value_types[] = { MOTET_FLOAT32, MOTET_FLOAT16,
    MOTET_BFLOAT16 };
static const size_t value_counts[] = { 1024, 1024 * 1024 };

_Static_assert(sizeof(value_collectives) / sizeof(*value_collectives) *
                        (sizeof(value_types) / sizeof(*value_types)) *
                        (sizeof(value_counts) / sizeof(*value_counts)) ==
                SMOKE_VALUES,
        "room for each case");
_Static_assert(sizeof(((struct smoke_part *)0)->verdict) /
                        sizeof(struct smoke_verdict) >=
                11,
        "a verdict for each collective");

/* What many ranks gather, and what has to be computed to check it, stays small. */
static size_t value_count(size_t count, int nranks)
{
    size_t n = (size_t)nranks, most = (size_t)16 * 1024 * 1024 / (n * n);

    return count < most ? count : most;
}

/* -------------------------------------------------------------------- times */

static int time_calls(struct work *w, double *us)
{
    for (int i = -WARM_UPS; i < SMOKE_ITERATIONS; i++) {
        double all[RANKS_MAX], mine[RANKS_MAX];
        uint64_t start;
        int code;

        if (!ranks_barrier(w->ranks))
            return EXIT_PROBLEM;
        start = motet_now_ns();
        code = work_issue(w, 1);
        if (code == EXIT_FINE)
            code = work_wait(w);
        if (code != EXIT_FINE)
            return code;
        for (int r = 0; r < w->ranks->count; r++)
            mine[r] = (double)(motet_now_ns() - start) / 1e3;
        if (!ranks_gather(w->ranks, mine, all))
            return EXIT_PROBLEM;
        if (i < 0)
            continue;
        us[i] = 0;
        for (int r = 0; r < w->ranks->nranks; r++)
            us[i] = all[r] > us[i] ? all[r] : us[i];
    }
    return EXIT_FINE;
}

static int time_size(struct work *w, size_t bytes, struct smoke_timing *t)
{
    double us[SMOKE_ITERATIONS];
    int code;

    w->layout = w->collective->layout(bytes / sizeof(float), sizeof(float),
            w->ranks->nranks);
    code = work_prepare(w);
    if (code == EXIT_FINE)
        code = time_calls(w, us);
    if (code != EXIT_FINE)
        return code;
    stats_sort(us, SMOKE_ITERATIONS);
    t->median_us = stats_percentile(us, SMOKE_ITERATIONS, 50);
    t->p10_us = stats_percentile(us, SMOKE_ITERATIONS, 10);
    t->p90_us = stats_percentile(us, SMOKE_ITERATIONS, 90);
    code = work_wrong_of_all(w, &t->wrong);
    if (code == EXIT_FINE)
        t->bytes = bytes;
    return code;
}

/* ------------------------------------------------------------------- values */

/* One collective, type, operator, count and placement. */
static int check_case(struct work *w, size_t count, bool in_place, uint64_t *wrong)
{
    uint64_t found = 0;
    int nranks = w->ranks->nranks, code;
    bool parts = w->collective->layout(16, 16, 2).param != 16;

    /* element size 16: the layout then rounds nothing, so that odd counts stay odd */
    w->layout =
            w->collective->layout(parts ? count * (size_t)nranks : count, 16, nranks);
    w->in_place = in_place;
    w->root = (int)(count % (size_t)nranks);
    w->check.seed = (uint32_t)count;
    code = work_prepare(w);
    if (code == EXIT_FINE)
        code = work_issue(w, 1);
    if (code == EXIT_FINE)
        code = work_wait(w);
    if (code == EXIT_FINE)
        code = work_wrong_of_all(w, &found);
    *wrong += found;
    return code;
}

static int check_value(struct work *w, struct smoke_value *v)
{
    int code;

    w->collective = v->collective;
    code = work_set_op(w, v->type, MOTET_SUM);
    for (int in_place = 0; in_place < 2 && code == EXIT_FINE; in_place++)
        code = check_case(w, v->count, in_place != 0, &v->wrong);
    v->done = code == EXIT_FINE;
    return code;
}

static void list_values(struct smoke_value values[SMOKE_VALUES], int nranks)
{
    for (size_t i = 0; i < SMOKE_VALUES; i++)
        values[i] = (struct smoke_value){
            .collective = collective_find(value_collectives[i / 6]),
            .type = value_types[i / 2 % 3],
            .count = value_count(value_counts[i % 2], nranks),
        };
}

/* Types and operators that came to the API with a version, and reductions of fp8 that
 * NVIDIA has from sm_90 on. Alike on all ranks. */
static bool lacks(const struct work *w, const struct smoke *s, motet_type type,
        motet_redop redop, bool reduces)
{
    bool fp8 = type == MOTET_FLOAT8E4M3 || type == MOTET_FLOAT8E5M2;
    int version = w->lib->version;

    if (fp8 && version < 22400)
        return true;
    if ((type == MOTET_BFLOAT16 || (reduces && redop == MOTET_AVG)) && version < 21000)
        return true;
    if (!reduces)
        return false;
    if (redop == MOTET_PREMUL_SUM && w->lib->redop_create_premul == NULL)
        return true;
    for (int r = 0; fp8 && !w->lib->motet && r < s->options.ranks; r++) {
        const struct backend_device *d = backend_device_of(&s->place, r);
        int capability;

        if (d != NULL && sscanf(d->target, "sm_%d", &capability) == 1 &&
                capability < 90)
            return true;
    }
    return work_has_no_sum(w, type, backend_fp8(&s->place, s->options.ranks));
}

static int check_type_and_op(struct work *w, motet_type type, motet_redop redop,
        struct smoke_verdict *v)
{
    int code = work_set_op(w, type, redop);

    for (size_t i = 0; i < NCOUNTS && code == EXIT_FINE; i++) {
        code = check_case(w, check_counts[i], false, &v->wrong);
        v->cases++;
        if (code != EXIT_FINE || !w->collective->checks_in_place)
            continue;
        code = check_case(w, check_counts[i], true, &v->wrong);
        v->cases++;
    }
    work_drop_op(w);
    return code;
}

static int check_collective(struct work *w, const struct collective *c,
        const struct smoke *s, struct smoke_verdict *v)
{
    int nranks = w->ranks->nranks, code = EXIT_FINE;

    w->collective = c;
    for (int type = 0; type < MOTET_NUM_TYPES && code == EXIT_FINE; type++) {
        if (c->power_of_two && (nranks & (nranks - 1)) != 0)
            break;
        if (ranks_prints(w->ranks))
            term_progress("checking %s, %s", c->name, motet_type_table[type].name);
        for (int op = 0; op < (c->reduces ? (int)MOTET_NUM_REDOPS : 1); op++) {
            if (lacks(w, s, (motet_type)type, (motet_redop)op, c->reduces)) {
                v->refused++;
                continue;
            }
            code = check_type_and_op(w, (motet_type)type, (motet_redop)op, v);
            if (code != EXIT_FINE)
                break;
        }
    }
    v->done = code == EXIT_FINE;
    return code;
}

/* --------------------------------------------------------------- everything */

uint64_t smoke_wrong(const struct smoke_part *p)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < SMOKE_SIZES; i++)
        wrong += p->timing[i].wrong;
    for (size_t i = 0; i < SMOKE_VALUES; i++)
        wrong += p->value[i].wrong;
    for (size_t i = 0; i < ncollectives; i++)
        wrong += p->verdict[i].wrong;
    return wrong;
}

/* Every rank finds the same; rank 0's thread shows it to the parent, which prints it as
 * JSON whatever becomes of the ranks. */
static void show(const struct work *w, void *there, const void *own, size_t bytes)
{
    if (ranks_prints(w->ranks))
        memcpy(there, own, bytes);
}

static int time_sizes(struct work *w, const struct smoke_run *run,
        struct smoke_part *own)
{
    int code;

    w->collective = collective_find("all_reduce");
    code = work_set_op(w, MOTET_FLOAT32, MOTET_SUM);
    for (size_t i = 0; i < SMOKE_SIZES && code == EXIT_FINE; i++) {
        code = time_size(w, sizes[i], &own->timing[i]);
        show(w, &run->part->timing[i], &own->timing[i], sizeof(own->timing[i]));
        if (code == EXIT_FINE && ranks_prints(w->ranks))
            smoke_print_timing(run->smoke, &own->timing[i]);
    }
    return code;
}

static int check_values(struct work *w, const struct smoke_run *run,
        struct smoke_part *own)
{
    int code = EXIT_FINE;

    list_values(own->value, w->ranks->nranks);
    for (size_t i = 0; i < SMOKE_VALUES && code == EXIT_FINE; i++) {
        own->value[i].refused =
                lacks(w, run->smoke, own->value[i].type, MOTET_SUM, false);
        if (!own->value[i].refused)
            code = check_value(w, &own->value[i]);
        show(w, &run->part->value[i], &own->value[i], sizeof(own->value[i]));
    }
    if (code == EXIT_FINE && ranks_prints(w->ranks))
        smoke_print_values(run->smoke, own);
    return code;
}

static int measure_and_check(struct work *w, const struct smoke_run *run)
{
    struct smoke_part own = { 0 };
    int code = time_sizes(w, run, &own);

    if (code == EXIT_FINE)
        code = check_values(w, run, &own);
    for (size_t i = 0; i < ncollectives && code == EXIT_FINE; i++) {
        code = check_collective(w, &collectives[i], run->smoke, &own.verdict[i]);
        show(w, &run->part->verdict[i], &own.verdict[i], sizeof(own.verdict[i]));
        if (code == EXIT_FINE && ranks_prints(w->ranks))
            smoke_print_verdict(run->smoke, &collectives[i], &own.verdict[i]);
    }
    if (code == EXIT_FINE && smoke_wrong(&own) != 0)
        code = EXIT_PROBLEM;
    return code;
}

static size_t buffer_bytes(int nranks)
{
    size_t n = (size_t)nranks, checked = check_counts[NCOUNTS - 1] * 8 * n;
    size_t gathered = value_count(value_counts[1], nranks) * sizeof(float) * n;
    size_t most = checked > gathered ? checked : gathered;

    return most > MAX_BYTES ? most : MAX_BYTES;
}

static int run_ranks(struct ranks *self, const struct smoke_run *run,
        const struct library *lib)
{
    struct buffers buffers = { 0 };
    struct work work;
    uint64_t start = motet_now_ns();
    int code = work_open(&work, self, lib, NULL, false);

    if (ranks_prints(self) && code == EXIT_FINE) {
        run->part->init_ms = (double)(motet_now_ns() - start) / 1e6;
        run->part->connected = true;
        smoke_print_connected(run->smoke, run->part);
    }
    if (code == EXIT_FINE)
        code = buffers_alloc(&buffers, self, NULL, 1, buffer_bytes(self->nranks), 0);
    if (code == EXIT_FINE) {
        work.buffers = &buffers;
        code = measure_and_check(&work, run);
    }
    work_close(&work);
    if (buffers.base != NULL)
        buffers_free(&buffers); /* last: after a failure calls may still be under way */
    return code;
}

int smoke_open(struct ranks *self, const struct smoke *s, bool hashed,
        struct library *lib)
{
    const char *name = s->options.lib != NULL ? s->lib_path : NULL;
    char why[PATH_MAX + 256];
    int bad = hashed ? library_open(lib, name, why, sizeof(why))
                     : library_load(lib, name, why, sizeof(why));

    if (bad != 0)
        return ranks_fail(self, EXIT_UNDECIDED, "%s", why);
    if (!lib->motet && !s->options.host_memory && !self->backend->mirrored)
        return ranks_fail(self, EXIT_UNDECIDED,
                "'%s' is not motet, so its ranks want GPU memory, and the ranks are on "
                "CPUs here; --host-memory if it takes host memory",
                lib->path);
    return EXIT_FINE;
}

/* False if the way is not for this library; it is in that way's only process. */
static bool can_go(struct ranks *self, const struct smoke_run *run,
        const struct library *lib, int *code)
{
    if (!smoke_ways[run->part->way].init_all || lib->comm_init_all != NULL)
        return true;
    *code = EXIT_FINE;
    if (run->smoke->options.init_all)
        *code = ranks_fail(self, EXIT_UNDECIDED, "'%s' has no ncclCommInitAll",
                lib->path);
    else if (ranks_prints(self))
        snprintf(run->part->untried, sizeof(run->part->untried),
                "the library has no ncclCommInitAll");
    return false;
}

int smoke_body(struct ranks *self, void *arg)
{
    const struct smoke_run *run = arg;
    struct smoke *s = run->smoke;
    struct library lib;
    int code = smoke_open(self, s, ranks_prints(self) && !s->named, &lib);

    if (code != EXIT_FINE)
        return code;
    if (ranks_prints(self)) {
        if (!s->named) {
            snprintf(s->path, sizeof(s->path), "%s", lib.path);
            snprintf(s->sha256, sizeof(s->sha256), "%s", lib.sha256);
            s->version = lib.version;
            s->linked = lib.linked;
            s->named = true;
            smoke_print_head(s, run->part);
        }
    }
    if (can_go(self, run, &lib, &code))
        code = run_ranks(self, run, &lib);
    if (ranks_prints(self)) {
        term_progress_end();
        run->part->finished = true;
        fflush(stdout);
    }
    /* not closed: another thread of this process may still be inside it */
    return code;
}
