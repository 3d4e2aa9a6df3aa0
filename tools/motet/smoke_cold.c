/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators made by fresh processes, used once and destroyed, again and again: some
 * faults of drivers and libraries show in one of many cold starts only.
 */
#include "smoke.h"

#include "apart.h"
#include "cmd.h"
#include "stats.h"
#include "term.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT    1024
#define HUNG_MAX 3 /* so many that hang are enough: each takes a deadline */

/* One attempt, in memory that its ranks share with the parent. */
struct attempt {
    const struct smoke *smoke;
    double init_ms, call_ms;
    uint64_t wrong;
    bool finished;
};

static double ms_since(uint64_t start)
{
    return (double)(motet_now_ns() - start) / 1e6;
}

/* The first call, checked. */
static int call_once(struct work *w, struct attempt *a)
{
    uint64_t wrong = 0, start;
    int code;

    w->collective = collective_find("all_reduce");
    w->layout = w->collective->layout(COUNT, sizeof(float), w->ranks->nranks);
    code = work_set_op(w, MOTET_FLOAT32, MOTET_SUM);
    if (code == EXIT_FINE)
        code = work_prepare(w);
    start = motet_now_ns();
    if (code == EXIT_FINE)
        code = work_issue(w, 1);
    if (code == EXIT_FINE)
        code = work_wait(w);
    if (ranks_prints(w->ranks))
        a->call_ms = ms_since(start);
    if (code == EXIT_FINE)
        code = work_wrong_of_all(w, &wrong);
    if (code == EXIT_FINE && wrong != 0)
        code = ranks_fail(w->ranks, EXIT_PROBLEM, "%llu values wrong in all_reduce",
                (unsigned long long)wrong);
    return code;
}

static int cold_body(struct ranks *self, void *arg)
{
    struct attempt *a = arg;
    struct buffers buffers = { 0 };
    struct library lib;
    struct work work;
    uint64_t start;
    int code = smoke_open(self, a->smoke, false, &lib);

    if (code != EXIT_FINE)
        return code;
    start = motet_now_ns();
    code = work_open(&work, self, &lib, NULL, false);
    if (ranks_prints(self))
        a->init_ms = ms_since(start);
    if (code == EXIT_FINE)
        code = buffers_alloc(&buffers, self, NULL, 1, COUNT * sizeof(float), 0);
    if (code == EXIT_FINE) {
        work.buffers = &buffers;
        code = call_once(&work, a);
    }
    work_close(&work);
    if (buffers.base != NULL)
        buffers_free(&buffers); /* last: after a failure calls may still be under way */
    if (ranks_prints(self))
        a->finished = true;
    return code;
}

static void summarise(double *ms, int n, double out[2])
{
    stats_sort(ms, (size_t)n);
    out[0] = stats_percentile(ms, (size_t)n, 50);
    out[1] = stats_percentile(ms, (size_t)n, 100);
}

/* One attempt; whether it was good. */
static bool attempt_once(const struct smoke *s, const struct smoke_part *p,
        struct attempt *a, struct ranks_end *end)
{
    struct ranks_plan plan = smoke_plan(s, p, end);
    int code;

    plan.quiet = true;
    *a = (struct attempt){ .smoke = s };
    code = ranks_run(&plan, cold_body, a);
    if (!end->left)
        smoke_leave(s, p);
    if (code == EXIT_FINE && !a->finished) {
        snprintf(end->said, sizeof(end->said),
                "the library ended the process with status 0");
        code = EXIT_PROBLEM;
    }
    if (code == EXIT_FINE)
        return true;
    if (end->said[0] == 0)
        snprintf(end->said, sizeof(end->said), "the ranks ended with status %d", code);
    return false;
}

static int run_attempts(const struct smoke *s, struct smoke_part *p, struct attempt *a,
        double *init_ms, double *call_ms)
{
    struct smoke_cold *c = &p->cold;
    int code = EXIT_FINE, hung = 0;

    while (c->tried < s->options.cold && c->stopped == NULL) {
        struct ranks_end end = { 0 };
        int refused = smoke_enter(s, p);

        if (refused >= 0) {
            code = refused;
            c->stopped = "the next was refused, for the reason on stderr";
            break;
        }
        term_progress("cold start %d of %d", c->tried + 1, s->options.cold);
        c->tried++;
        if (attempt_once(s, p, a, &end)) {
            init_ms[c->good] = a->init_ms;
            call_ms[c->good] = a->call_ms;
            c->good++;
            continue;
        }
        if (end.left)
            c->stopped = "a process could not be ended";
        else if (end.killed && ++hung == HUNG_MAX)
            c->stopped = "too many had to be killed";
        if (c->first_bad != 0)
            continue;
        c->first_bad = c->tried;
        snprintf(c->said, sizeof(c->said), "%s", end.said);
    }
    term_progress_end();
    summarise(init_ms, c->good, c->init_ms);
    summarise(call_ms, c->good, c->call_ms);
    return c->first_bad != 0 ? EXIT_PROBLEM : code;
}

int smoke_cold_run(struct smoke *s, struct smoke_part *p)
{
    size_t n = (size_t)s->options.cold;
    double *ms = calloc(2 * n, sizeof(*ms));
    struct attempt *a = apart_memory(sizeof(*a));
    int code = EXIT_PROBLEM;

    if (ms == NULL || a == NULL)
        cmd_error("smoke", EXIT_PROBLEM, "no memory for %zu cold starts", n);
    else
        code = run_attempts(s, p, a, ms, ms + n);
    apart_free(a, sizeof(*a));
    free(ms);
    return code;
}
