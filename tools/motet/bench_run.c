/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured, on every thread of every rank process: each way of calling, type,
 * operator, root and size of each collective, out of place and in place. Checking comes
 * after timing, on fresh values.
 */
#include "bench.h"

#include "cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void bandwidth(struct bench_half *half, const struct bench_row *row,
        const struct work *w)
{
    double bytes = (double)w->layout.moved * (double)motet_type_table[row->type].bytes;

    if (half->time_us <= 0)
        return;
    half->alg_bw = bytes / half->time_us / 1e3;
    half->bus_bw = half->alg_bw * row->collective->bus_factor(w->ranks->nranks);
}

/* The work of the first side that this thread takes part in. */
static struct work *own_work(struct bench_sides *s)
{
    return &s->side[s->side[0].here ? 0 : 1].work;
}

static int measure_half(struct bench *b, struct bench_sides *s, struct bench_row *row,
        bool in_place)
{
    const struct bench_options *o = &b->options;
    struct bench_half *half = &row->half[in_place ? 1 : 0];
    const struct work *w = own_work(s);
    int code;

    for (int k = 0; k < s->n; k++)
        s->side[k].work.in_place = in_place;
    code = bench_time_half(o, row->timing, s, half);
    if (code != EXIT_FINE)
        return code;
    bandwidth(half, row, w);
    half->wrong = -1;
    if (o->checks == 0 || (in_place && !row->collective->checks_in_place))
        return EXIT_FINE;
    code = bench_count_wrong(o, row->timing, s, 0, &half->wrong);
    if (code == EXIT_FINE && s->n > 1)
        code = bench_count_wrong(o, row->timing, s, 1, &half->other_wrong);
    return code;
}

static bool keep_row(struct bench_results *r, const struct bench_row *row)
{
    if (r->nrows == r->room) {
        size_t room = r->room == 0 ? 64 : 2 * r->room;
        struct bench_row *rows = realloc(r->rows, room * sizeof(*rows));

        if (rows == NULL)
            return false;
        r->rows = rows;
        r->room = room;
    }
    r->rows[r->nrows++] = *row;
    return true;
}

static int add_row(struct bench *b, struct ranks *self, const struct bench_row *row)
{
    struct bench_results *r = &b->results;

    for (int i = 0; i < 2; i++) {
        if (!row->half[i].measured)
            continue;
        r->bus_bw_sum += row->half[i].bus_bw;
        r->bus_bw_count++;
        if (row->half[i].wrong > 0)
            r->wrong += (uint64_t)row->half[i].wrong;
        if (row->half[i].other_wrong > 0)
            r->wrong += (uint64_t)row->half[i].other_wrong;
    }
    bench_print_row(b, row);
    if (!keep_row(r, row))
        return ranks_fail(self, EXIT_PROBLEM, "no memory for the results");
    return EXIT_FINE;
}

static int measure_size(struct bench *b, struct bench_sides *s, struct bench_row *row,
        uint64_t bytes)
{
    struct work *w = own_work(s);
    size_t element = motet_type_table[row->type].bytes;
    size_t widest;
    int code;

    for (int k = 0; k < s->n; k++) {
        s->side[k].work.layout = row->collective->layout((size_t)bytes / element,
                element, s->self->nranks);
        s->side[k].work.root = row->root < 0 ? 0 : row->root;
    }
    widest = w->layout.send > w->layout.recv ? w->layout.send : w->layout.recv;
    row->bytes = widest * element;
    row->count = w->layout.param;
    memset(row->half, 0, sizeof(row->half));
    code = measure_half(b, s, row, false);
    if (code == EXIT_FINE && !b->options.out_of_place_only)
        code = measure_half(b, s, row, true);
    for (int k = 0; k < s->n; k++)
        bench_drop_graphs(&s->side[k]);
    if (code != EXIT_FINE || !ranks_prints(s->self))
        return code;
    code = add_row(b, s->self, row);
    if (b->options.explain)
        bench_print_plan(b, row, w);
    return code;
}

static int sweep_sizes(struct bench *b, struct bench_sides *s, struct bench_row *row)
{
    const struct bench_options *o = &b->options;
    uint64_t bytes = o->min_bytes;
    int code = EXIT_FINE;

    while (bytes <= o->max_bytes && code == EXIT_FINE) {
        uint64_t next =
                o->step_factor != 0 ? bytes * o->step_factor : bytes + o->step_bytes;

        code = measure_size(b, s, row, bytes);
        if (next <= bytes)
            break; /* wrapped */
        bytes = next;
    }
    return code;
}

static int sweep_roots(struct bench *b, struct bench_sides *s, struct bench_row *row)
{
    const struct bench_options *o = &b->options;
    int first = o->root, last = o->root, code = EXIT_FINE;

    if (!row->collective->rooted)
        first = last = -1;
    else if (o->root == BENCH_ALL) {
        first = 0;
        last = s->self->nranks - 1;
    }
    for (int root = first; root <= last && code == EXIT_FINE; root++) {
        row->root = root;
        code = sweep_sizes(b, s, row);
    }
    return code;
}

static int sweep_ops(struct bench *b, struct bench_sides *s, struct bench_row *row)
{
    const struct bench_options *o = &b->options;
    int first = o->redop, last = o->redop, code = EXIT_FINE;

    if (!row->collective->reduces)
        first = last = MOTET_SUM;
    else if (o->redop == BENCH_ALL) {
        first = 0;
        last = MOTET_NUM_REDOPS - 1;
    }
    for (int op = first; op <= last && code == EXIT_FINE; op++) {
        int opened = 0;

        row->redop = (motet_redop)op;
        for (; opened < s->n && code == EXIT_FINE; opened++)
            if (s->side[opened].here)
                code = work_set_op(&s->side[opened].work, row->type, row->redop);
        if (code == EXIT_FINE)
            code = sweep_roots(b, s, row);
        while (opened-- > 0)
            if (s->side[opened].here)
                work_drop_op(&s->side[opened].work);
    }
    return code;
}

/* Of "all types", one that the first library refuses to reduce, as all ranks decide. */
static int pass_over(struct bench *b, struct bench_sides *s,
        const struct bench_row *row, bool *out)
{
    const struct bench_options *o = &b->options;
    int nranks = o->processes * o->threads * o->per_thread;

    *out = o->type == BENCH_ALL && row->collective->reduces &&
            work_has_no_sum(own_work(s), row->type, backend_fp8(&b->place, nranks));
    if (!ranks_tell(s->self, 0, out, sizeof(*out)))
        return EXIT_PROBLEM;
    if (*out && ranks_prints(s->self))
        fprintf(b->table, "# %s has no sum on these devices, skipping\n",
                motet_type_table[row->type].name);
    return EXIT_FINE;
}

static int measure_collective(struct bench *b, struct bench_sides *s,
        const struct collective *c, enum bench_timing timing)
{
    const struct bench_options *o = &b->options;
    struct bench_row row = { .collective = c, .timing = timing };
    struct ranks *self = s->self;
    int first = o->type, last = o->type, code = EXIT_FINE;
    bool skip;

    if (ranks_prints(self)) {
        b->results.bus_bw_sum = 0;
        b->results.bus_bw_count = 0;
        b->results.wrong = 0;
        bench_print_head(b, c, timing, self->nranks);
    }
    if (o->type == BENCH_ALL) {
        first = 0;
        last = MOTET_NUM_TYPES - 1;
    }
    if (c->power_of_two && (self->nranks & (self->nranks - 1)) != 0) {
        if (ranks_prints(self))
            fprintf(b->table, "# nRanks %d is not a power of 2, skipping\n",
                    self->nranks);
        last = first - 1;
    }
    for (int type = first; type <= last && code == EXIT_FINE; type++) {
        row.type = (motet_type)type;
        s->buffers.offset = (size_t)o->unalign * motet_type_table[type].bytes;
        for (int k = 0; k < s->n; k++)
            s->side[k].work.collective = c;
        code = pass_over(b, s, &row, &skip);
        if (code == EXIT_FINE && !skip)
            code = sweep_ops(b, s, &row);
    }
    if (code == EXIT_FINE && ranks_prints(self) && !bench_print_foot(b, c))
        b->results.failed = true;
    return code;
}

/* -------------------------------------------------------------- life cycle */

static int gather_pids(struct bench *b, struct ranks *self)
{
    uint64_t mine[RANKS_MAX], all[RANKS_MAX];

    for (int i = 0; i < self->count; i++)
        mine[i] = (uint64_t)getpid();
    if (!ranks_gather_words(self, mine, all))
        return EXIT_PROBLEM;
    for (int r = 0; ranks_prints(self) && r < self->nranks; r++)
        b->pids[r] = (int)all[r];
    return EXIT_FINE;
}

static int measure_all(struct bench *b, struct bench_sides *s)
{
    const struct bench_options *o = &b->options;
    int code = EXIT_FINE;

    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++)
        for (int i = 0; i < o->nlist; i++)
            for (int t = 0; t < o->ntimings; t++) {
                code = ranks_look(s->self);
                if (code == EXIT_FINE)
                    code = measure_collective(b, s, o->list[i], o->timing[t]);
                if (code != EXIT_FINE)
                    return code;
            }
    return code;
}

static bool write_files(struct bench *b, int nranks)
{
    bool good = true;

    if (b->csv != NULL)
        good = bench_write_csv(b) && good;
    if (b->json != NULL)
        good = bench_write_json(b, nranks) && good;
    if (b->svg != NULL)
        good = bench_write_svg(b, nranks) && good;
    return good;
}

int bench_body(struct ranks *self, void *arg)
{
    struct bench *b = arg;
    struct bench_sides sides;
    int code = bench_open_sides(b, &sides, self);

    if (code == EXIT_FINE)
        code = gather_pids(b, self);
    if (code == EXIT_FINE)
        code = measure_all(b, &sides);
    bench_close_sides(b, &sides);
    if (!ranks_prints(self))
        return code;
    if (!write_files(b, self->nranks) && code == EXIT_FINE)
        code = ranks_fail(self, EXIT_PROBLEM, "write the results: %s", strerror(errno));
    free(b->results.rows);
    return code == EXIT_FINE && b->results.failed ? EXIT_PROBLEM : code;
}
