/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of one figure. Fill the buffers, warm up, then for each turn a barrier and the
 * calls: issued one after another, captured once and replayed, or each waited for. A
 * turn's time is what lies between two marks on the rank's stream where the backend has
 * marks, else the clock of the wall; it is combined over the ranks as -a says, and the
 * figure is the median of the turns.
 *
 * With --vs the two libraries take turns (A B A B …), so that whatever else the machine
 * does meets both; the spread of A's turns says how large a ratio means anything. On CPUs
 * they share ranks and buffers; on GPUs each has its own processes, of which one library's
 * wait while the other's work.
 */
#include "bench.h"

#include "cmd.h"
#include "stats.h"

#include "base/clock.h"

#include <string.h>

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

static int failed(struct work *w, int i, const char *what, const char *bad)
{
    return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s %s: %s", w->ranks->first + i,
            what, w->collective->name, bad);
}

/* ------------------------------------------------------------------- graphs */

void bench_drop_graphs(struct bench_side *side)
{
    struct ranks *self = side->work.ranks;

    for (int i = 0; side->graph != NULL && i < self->count; i++) {
        if (side->graph[i] != NULL)
            self->backend->graph_destroy(side->graph[i]);
        side->graph[i] = NULL;
    }
}

static int begin_captures(struct work *w)
{
    for (int i = 0; i < w->ranks->count; i++) {
        const char *bad;

        if (ranks_bind(w->ranks, i) != EXIT_FINE)
            return EXIT_PROBLEM;
        bad = w->ranks->backend->capture_begin(w->streams[i]);
        if (bad != NULL)
            return failed(w, i, "capture", bad);
    }
    return EXIT_FINE;
}

static int end_captures(struct work *w, void **captured)
{
    for (int i = 0; i < w->ranks->count; i++) {
        const char *bad;

        if (ranks_bind(w->ranks, i) != EXIT_FINE)
            return EXIT_PROBLEM;
        bad = w->ranks->backend->capture_end(w->streams[i], &captured[i]);
        if (bad != NULL)
            return failed(w, i, "capture", bad);
    }
    return EXIT_FINE;
}

/* Record @p groups groups of @p size calls into one graph for each rank. All ranks have
 * theirs when it returns: making one may wait for a device that another's calls keep busy
 * until this rank joins them. */
static int capture(struct bench_side *side, int groups, int size)
{
    struct work *w = &side->work;
    void *captured[RANKS_MAX] = { NULL };
    int code;

    bench_drop_graphs(side); /* before: destroying is nothing to do in a capture */
    w->turn = 0;
    code = begin_captures(w);
    for (int g = 0; g < groups && code == EXIT_FINE; g++)
        code = work_issue(w, size);
    if (code == EXIT_FINE)
        code = end_captures(w, captured);
    for (int i = 0; i < w->ranks->count && code == EXIT_FINE; i++) {
        const char *bad;

        if (ranks_bind(w->ranks, i) != EXIT_FINE)
            return EXIT_PROBLEM;
        bad = w->ranks->backend->graph_create(captured[i], &side->graph[i]);
        if (bad != NULL)
            code = failed(w, i, "capture", bad);
    }
    return code == EXIT_FINE && !ranks_barrier(w->ranks) ? EXIT_PROBLEM : code;
}

static int replay(struct bench_side *side, int times)
{
    struct work *w = &side->work;

    for (int t = 0; t < times; t++)
        for (int i = 0; i < w->ranks->count; i++) {
            const char *bad = w->ranks->backend->replay(side->graph[i], w->streams[i]);

            if (bad != NULL)
                return failed(w, i, "replay", bad);
        }
    return EXIT_FINE;
}

/* -------------------------------------------------------------------- calls */

static int issue(struct work *w, enum bench_timing timing, int groups, int size)
{
    for (int g = 0; g < groups; g++) {
        int code = work_issue(w, size);

        if (code == EXIT_FINE && timing == BENCH_BLOCKING)
            code = work_wait(w);
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

int bench_run_calls(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side, bool once)
{
    struct work *w = &side->work;
    int code = EXIT_FINE;

    if (timing == BENCH_GRAPH) {
        if (once)
            code = capture(side, o->sets, 1);
        if (code == EXIT_FINE)
            code = replay(side, 1);
    } else if (once || timing == BENCH_BLOCKING) {
        code = issue(w, timing, o->sets, 1);
    } else {
        code = issue(w, timing, o->iters, o->aggregate);
    }
    return code == EXIT_FINE ? work_wait(w) : code;
}

/* Calls that are not timed; of a graph, also its first replay. */
static int warm_up(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side)
{
    struct work *w = &side->work;
    int groups = o->warm_ups, code = work_prepare(w);

    if (code != EXIT_FINE)
        return code;
    if (!ranks_barrier(w->ranks))
        return EXIT_PROBLEM;
    if (timing == BENCH_GRAPH && groups == 0)
        groups = 1; /* a library may do work at a first call that no capture allows */
    code = issue(w, timing, groups, o->aggregate);
    if (code == EXIT_FINE)
        code = work_wait(w);
    if (timing != BENCH_GRAPH || code != EXIT_FINE)
        return code;
    code = capture(side, o->iters, o->aggregate);
    if (code == EXIT_FINE)
        code = replay(side, 1);
    return code == EXIT_FINE ? work_wait(w) : code;
}

/* ------------------------------------------------------------------- a turn */

/* Marks at the begin (0) or the end (1) of a turn. */
static int set_marks(struct bench_side *side, int which)
{
    struct work *w = &side->work;

    for (int i = 0; i < w->ranks->count; i++) {
        const char *bad =
                w->ranks->backend->mark(side->mark[2 * i + which], w->streams[i]);

        if (bad != NULL)
            return failed(w, i, "time", bad);
    }
    return EXIT_FINE;
}

static int between_marks(struct bench_side *side, double *us)
{
    struct work *w = &side->work;

    for (int i = 0; i < w->ranks->count; i++) {
        const char *bad = w->ranks->backend->elapsed(side->mark[2 * i],
                side->mark[2 * i + 1], &us[i]);

        if (bad != NULL)
            return failed(w, i, "time", bad);
    }
    return EXIT_FINE;
}

/* The turn's calls on this thread: µs of each rank, and until all were issued. */
static int run_turn(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side, double *us, double *issue_us)
{
    struct work *w = &side->work;
    bool marks = side->mark != NULL && timing != BENCH_BLOCKING;
    uint64_t start = motet_now_ns(), issued;
    int code = marks ? set_marks(side, 0) : EXIT_FINE;

    if (code == EXIT_FINE && timing == BENCH_GRAPH)
        code = replay(side, o->replays);
    else if (code == EXIT_FINE)
        code = issue(w, timing, o->iters, o->aggregate);
    issued = motet_now_ns();
    if (code == EXIT_FINE && marks)
        code = set_marks(side, 1);
    if (code == EXIT_FINE)
        code = work_wait(w);
    for (int i = 0; i < w->ranks->count; i++) {
        us[i] = (double)(motet_now_ns() - start) / 1e3;
        issue_us[i] = (double)(issued - start) / 1e3;
    }
    return code == EXIT_FINE && marks ? between_marks(side, us) : code;
}

/* One turn: µs for a call, the same numbers on all ranks of the team. */
static int take_turn(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side, double *us_out, double *issue_out)
{
    double mine[RANKS_MAX], issues[RANKS_MAX], all[RANKS_MAX];
    double calls = (double)o->iters * o->aggregate;
    struct ranks *self = side->work.ranks;
    int code;

    if (timing == BENCH_GRAPH)
        calls *= o->replays;
    if (!ranks_barrier(self))
        return EXIT_PROBLEM;
    code = run_turn(o, timing, side, mine, issues);
    if (code != EXIT_FINE)
        return code;
    if (!ranks_gather(self, issues, all))
        return EXIT_PROBLEM;
    *issue_out = combine(all, self->nranks, o->average) / calls;
    if (!ranks_gather(self, mine, all))
        return EXIT_PROBLEM;
    *us_out = combine(all, self->nranks, o->average) / calls;
    if (o->cpu_time)
        *us_out = *issue_out;
    return EXIT_FINE;
}

/* A turn of side @p k, which everybody hears of. */
static int take_and_tell(const struct bench_options *o, enum bench_timing timing,
        struct bench_sides *s, int k, int turn)
{
    struct bench_side *side = &s->side[k];
    double got[2] = { 0, 0 };
    int code = EXIT_FINE;

    if (side->here)
        code = take_turn(o, timing, side, &got[0], &got[1]);
    if (code == EXIT_FINE && !ranks_tell(s->self, k, got, sizeof(got)))
        code = EXIT_PROBLEM;
    side->turns[turn] = got[0];
    side->issues[turn] = got[1];
    return code;
}

int bench_time_half(const struct bench_options *o, enum bench_timing timing,
        struct bench_sides *s, struct bench_half *half)
{
    size_t rounds = (size_t)o->rounds;
    int code = EXIT_FINE;

    for (int k = 0; k < s->n && code == EXIT_FINE; k++)
        if (s->side[k].here)
            code = warm_up(o, timing, &s->side[k]);
    for (int turn = 0; turn < o->rounds && code == EXIT_FINE; turn++)
        for (int k = 0; k < s->n && code == EXIT_FINE; k++)
            code = take_and_tell(o, timing, s, k, turn);
    if (code != EXIT_FINE)
        return code;
    half->measured = true;
    half->spread = stats_spread(s->side[0].turns, rounds);
    half->time_us = stats_median(s->side[0].turns, rounds);
    half->p10_us = stats_percentile(s->side[0].turns, rounds, 10);
    half->p90_us = stats_percentile(s->side[0].turns, rounds, 90);
    half->issue_us = stats_median(s->side[0].issues, rounds);
    if (s->n > 1) {
        half->other_us = stats_median(s->side[1].turns, rounds);
        half->ratio = half->time_us > 0 ? half->other_us / half->time_us : 0;
    }
    return EXIT_FINE;
}
