/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values, after the times and in the same way of calling: what was captured is replayed
 * on fresh inputs, what was issued in a row is issued in a row. Only where a second call
 * would find its inputs overwritten (a reduction in place) each buffer meets one call.
 */
#include "bench.h"

#include "cmd.h"

#include <string.h>

/* One round on this thread's team: how many are wrong on all its ranks. */
static int count_round(const struct bench_options *o, enum bench_timing timing,
        struct bench_side *side, int round, int64_t *out)
{
    uint64_t wrong = 0;
    struct work *w = &side->work;
    bool once = w->in_place && w->collective->reduces;
    int code;

    w->check.seed = 1 + (uint32_t)round;
    code = work_prepare(w);
    if (code == EXIT_FINE)
        code = bench_run_calls(o, timing, side, once);
    if (code == EXIT_FINE)
        code = work_wrong_of_all(w, &wrong);
    *out += (int64_t)wrong;
    return code;
}

int bench_count_wrong(const struct bench_options *o, enum bench_timing timing,
        struct bench_sides *s, int k, int64_t *out)
{
    int code = EXIT_FINE;

    *out = 0;
    for (int round = 0; s->side[k].here && round < o->checks; round++) {
        code = count_round(o, timing, &s->side[k], round, out);
        if (code != EXIT_FINE)
            return code;
    }
    return ranks_tell(s->self, k, out, sizeof(*out)) ? EXIT_FINE : EXIT_PROBLEM;
}
