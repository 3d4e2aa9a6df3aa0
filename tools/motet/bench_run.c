/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring, on every thread of every rank process.
 *
 * One figure: fill the buffers, warm up, then for each turn a barrier and `iters` calls
 * back to back; a turn's time is combined over the ranks as -a says, and the figure is
 * the median of the turns. With --vs the two libraries take turns in the same ranks and
 * buffers (A B A B …), so that whatever else the machine does meets both; the spread of
 * A's turns says how large a ratio means anything. Checking comes after timing, on
 * fresh values.
 */
#include "bench.h"

#include "cmd.h"
#include "stats.h"
#include "work.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The two libraries' side of one thread. */
struct sides {
    struct work side[2];
    int n; /* 1 without --vs */
    struct buffers buffers;
    struct registration registration[2];
    double *turns[2]; /* rank 0: times of the turns, µs */
};

static double combine(const double *all, int n, int how)
{
    double sum = 0, least = all[0], most = all[0];

    for (int i = 0; i < n; i++) {
        sum += all[i];
        least = all[i] < least ? all[i] : least;
        most = all[i] > most ? all[i] : most;
    }
    return how == 0 ? all[0] : how == 1 ? sum / n : how == 2 ? least : most;
}

static int issue_many(const struct bench_options *o, struct work *w, int times)
{
    for (int i = 0; i < times; i++) {
        int code = work_issue(w, o->aggregate);

        if (code == EXIT_FINE && o->blocking >= 2)
            code = work_wait(w);
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

/* One turn: µs for a call, the same number on all ranks. */
static int take_turn(const struct bench_options *o, struct work *w, double *us_out)
{
    double mine[RANKS_MAX], all[RANKS_MAX];
    uint64_t start, issued, done;
    int code;

    if (!ranks_barrier(w->ranks))
        return EXIT_PROBLEM;
    start = motet_now_ns();
    code = issue_many(o, w, o->iters);
    issued = motet_now_ns();
    if (code == EXIT_FINE)
        code = work_wait(w);
    done = motet_now_ns();
    if (code != EXIT_FINE)
        return code;
    for (int i = 0; i < w->ranks->count; i++)
        mine[i] = (double)((o->cpu_time ? issued : done) - start) / 1e3 /
                ((double)o->iters * o->aggregate);
    if (!ranks_gather(w->ranks, mine, all))
        return EXIT_PROBLEM;
    *us_out = combine(all, w->ranks->nranks, o->average);
    return EXIT_FINE;
}

static int warm_up(const struct bench_options *o, struct work *w)
{
    int code;

    work_prepare(w);
    if (!ranks_barrier(w->ranks))
        return EXIT_PROBLEM;
    code = issue_many(o, w, o->warm_ups);
    return code == EXIT_FINE ? work_wait(w) : code;
}

static int time_half(const struct bench_options *o, struct sides *s,
        struct bench_half *half)
{
    int code = EXIT_FINE;

    for (int k = 0; k < s->n && code == EXIT_FINE; k++)
        code = warm_up(o, &s->side[k]);
    for (int turn = 0; turn < o->rounds && code == EXIT_FINE; turn++)
        for (int k = 0; k < s->n && code == EXIT_FINE; k++)
            code = take_turn(o, &s->side[k], &s->turns[k][turn]);
    if (code != EXIT_FINE)
        return code;
    half->measured = true;
    half->spread = stats_spread(s->turns[0], (size_t)o->rounds);
    half->time_us = stats_median(s->turns[0], (size_t)o->rounds);
    if (s->n > 1) {
        half->other_us = stats_median(s->turns[1], (size_t)o->rounds);
        half->ratio = half->time_us > 0 ? half->other_us / half->time_us : 0;
    }
    return EXIT_FINE;
}

/* Wrong values on all ranks, over the rounds of checking. */
static int count_wrong(const struct bench_options *o, struct work *w, int64_t *out)
{
    uint64_t mine[RANKS_MAX], all[RANKS_MAX], digests[RANKS_MAX];
    bool one_result = w->collective->same_everywhere;

    *out = 0;
    for (int round = 0; round < o->checks; round++) {
        int code;

        w->check.seed = 1 + (uint32_t)round;
        work_prepare(w);
        code = work_issue(w, 1);
        if (code == EXIT_FINE)
            code = work_wait(w);
        if (code != EXIT_FINE)
            return code;
        memset(mine, 0, sizeof(mine));
        mine[0] = work_wrong(w, digests);
        if (!ranks_gather_words(w->ranks, mine, all))
            return EXIT_PROBLEM;
        for (int r = 0; r < w->ranks->nranks; r++)
            *out += (int64_t)all[r];
        if (one_result && !ranks_gather_words(w->ranks, digests, all))
            return EXIT_PROBLEM;
        for (int r = 1; one_result && r < w->ranks->nranks; r++)
            *out += all[r] != all[0];
    }
    return EXIT_FINE;
}

static void bandwidth(struct bench_half *half, const struct bench_row *row,
        const struct work *w)
{
    double bytes = (double)w->layout.moved * (double)motet_type_table[row->type].bytes;

    if (half->time_us <= 0)
        return;
    half->alg_bw = bytes / half->time_us / 1e3;
    half->bus_bw = half->alg_bw * row->collective->bus_factor(w->ranks->nranks);
}

static int measure_half(struct bench *b, struct sides *s, struct bench_row *row,
        bool in_place)
{
    const struct bench_options *o = &b->options;
    struct bench_half *half = &row->half[in_place ? 1 : 0];
    int code;

    for (int k = 0; k < s->n; k++)
        s->side[k].in_place = in_place;
    code = time_half(o, s, half);
    if (code != EXIT_FINE)
        return code;
    bandwidth(half, row, &s->side[0]);
    half->wrong = -1;
    if (o->checks == 0 || (in_place && !row->collective->checks_in_place))
        return EXIT_FINE;
    code = count_wrong(o, &s->side[0], &half->wrong);
    if (code == EXIT_FINE && s->n > 1)
        code = count_wrong(o, &s->side[1], &half->other_wrong);
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

static int measure_size(struct bench *b, struct sides *s, struct bench_row *row,
        uint64_t bytes)
{
    struct work *w = &s->side[0];
    size_t element = motet_type_table[row->type].bytes;
    size_t widest;
    int code;

    for (int k = 0; k < s->n; k++) {
        s->side[k].layout = row->collective->layout((size_t)bytes / element, element,
                w->ranks->nranks);
        s->side[k].root = row->root < 0 ? 0 : row->root;
    }
    widest = w->layout.send > w->layout.recv ? w->layout.send : w->layout.recv;
    row->bytes = widest * element;
    row->count = w->layout.param;
    memset(row->half, 0, sizeof(row->half));
    code = measure_half(b, s, row, false);
    if (code == EXIT_FINE && !b->options.out_of_place_only)
        code = measure_half(b, s, row, true);
    if (code == EXIT_FINE && ranks_prints(w->ranks))
        code = add_row(b, w->ranks, row);
    return code;
}

static int sweep_sizes(struct bench *b, struct sides *s, struct bench_row *row)
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

static int sweep_roots(struct bench *b, struct sides *s, struct bench_row *row)
{
    const struct bench_options *o = &b->options;
    int first = o->root, last = o->root, code = EXIT_FINE;

    if (!row->collective->rooted)
        first = last = -1;
    else if (o->root == BENCH_ALL) {
        first = 0;
        last = s->side[0].ranks->nranks - 1;
    }
    for (int root = first; root <= last && code == EXIT_FINE; root++) {
        row->root = root;
        code = sweep_sizes(b, s, row);
    }
    return code;
}

static int sweep_ops(struct bench *b, struct sides *s, struct bench_row *row)
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
            code = work_set_op(&s->side[opened], row->type, row->redop);
        if (code == EXIT_FINE)
            code = sweep_roots(b, s, row);
        while (opened-- > 0)
            work_drop_op(&s->side[opened]);
    }
    return code;
}

static int measure_collective(struct bench *b, struct sides *s,
        const struct collective *c)
{
    const struct bench_options *o = &b->options;
    struct bench_row row = { .collective = c };
    struct ranks *self = s->side[0].ranks;
    int first = o->type, last = o->type, code = EXIT_FINE;

    if (ranks_prints(self)) {
        b->results.bus_bw_sum = 0;
        b->results.bus_bw_count = 0;
        b->results.wrong = 0;
        bench_print_head(b, c, self->nranks);
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
            s->side[k].collective = c;
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

static int open_sides(struct bench *b, struct sides *s, struct ranks *self)
{
    const struct bench_options *o = &b->options;
    const struct library *lib[2] = { &b->lib, &b->vs };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    bool streams = o->blocking != 1 && !b->no_streams;
    int code = EXIT_FINE;

    s->n = o->vs != NULL ? 2 : 1;
    config.CTAPolicy = o->cta_policy;
    for (int k = 0; k < s->n && code == EXIT_FINE; k++) {
        s->side[k].ranks = self;
        code = work_open(&s->side[k], self, lib[k], o->cta_policy >= 0 ? &config : NULL,
                streams);
        s->side[k].buffers = &s->buffers;
    }
    if (code == EXIT_FINE)
        code = buffers_alloc(&s->buffers, self, o->use_malloc ? NULL : &b->lib,
                (size_t)o->max_bytes, (size_t)o->unalign * 8);
    for (int k = 0; k < s->n && code == EXIT_FINE; k++) {
        s->registration[k].kind = o->registration;
        s->turns[k] = calloc((size_t)o->rounds, sizeof(double));
        if (s->turns[k] == NULL)
            code = ranks_fail(self, EXIT_PROBLEM, "no memory for %d turns", o->rounds);
        else
            code = registration_make(&s->registration[k], self, lib[k],
                    s->side[k].comms, &s->buffers);
    }
    return code;
}

static void close_sides(struct bench *b, struct sides *s, struct ranks *self)
{
    const struct library *lib[2] = { &b->lib, &b->vs };

    for (int k = 0; k < s->n; k++) {
        registration_drop(&s->registration[k], self, lib[k], s->side[k].comms);
        free(s->turns[k]);
    }
    for (int k = 0; k < s->n; k++)
        if (s->side[k].ranks != NULL)
            work_close(&s->side[k]);
    buffers_free(&s->buffers); /* last: after a failure calls may still be under way */
}

static int measure_all(struct bench *b, struct sides *s)
{
    const struct bench_options *o = &b->options;
    int code = EXIT_FINE;

    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++)
        for (int i = 0; i < o->nlist; i++) {
            code = measure_collective(b, s, o->list[i]);
            if (code != EXIT_FINE)
                return code;
        }
    return code;
}

static void refuse_gpu_library(struct bench *b, const struct library *lib)
{
    if (!lib->motet && !b->options.host_memory && b->failure[0] == 0)
        snprintf(b->failure, sizeof(b->failure),
                "'%.3000s' is not motet, so its ranks want GPU memory, which this "
                "version cannot provide; --host-memory if it takes host memory",
                lib->path);
}

static void open_libraries(struct bench *b)
{
    const struct bench_options *o = &b->options;

    if (library_open(&b->lib, o->lib, b->failure, sizeof(b->failure)) != 0)
        return;
    refuse_gpu_library(b, &b->lib);
    b->no_streams = o->blocking != 1 && !b->lib.streams;
    if (o->vs == NULL ||
            library_open(&b->vs, o->vs, b->failure, sizeof(b->failure)) != 0)
        return;
    refuse_gpu_library(b, &b->vs);
    b->no_streams = b->no_streams || (o->blocking != 1 && !b->vs.streams);
}

/* Each process opens the libraries once, by whichever of its threads comes first. */
static void open_libraries_once(struct bench *b)
{
    pthread_mutex_lock(&b->lock);
    if (!b->opened)
        open_libraries(b);
    b->opened = true;
    pthread_mutex_unlock(&b->lock);
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
    struct sides sides;
    int code;

    memset(&sides, 0, sizeof(sides));
    open_libraries_once(b);
    if (b->failure[0] != 0)
        return ranks_fail(self, EXIT_UNDECIDED, "%s", b->failure);
    code = open_sides(b, &sides, self);
    if (code == EXIT_FINE)
        code = gather_pids(b, self);
    if (code == EXIT_FINE)
        code = measure_all(b, &sides);
    close_sides(b, &sides, self);
    if (!ranks_prints(self))
        return code;
    if (!write_files(b, self->nranks) && code == EXIT_FINE)
        code = ranks_fail(self, EXIT_PROBLEM, "write the results: %s", strerror(errno));
    free(b->results.rows);
    return code == EXIT_FINE && b->results.failed ? EXIT_PROBLEM : code;
}
