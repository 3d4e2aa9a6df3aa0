/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of motet bench mean on the device that was found: see bench.h. */
#include "bench.h"

#include "cmd.h"

#include <string.h>

/* Replays of a graph in a turn, and turns, if nothing is said. */
#define REPLAYS 10
#define TURNS   7
/* How long GPUs may do nothing, s: a kernel that waits for ever is not seen otherwise. */
#define GPU_TIMEOUT_S 300

const char *const bench_timing_names[BENCH_NUM_TIMINGS] = {
    [BENCH_EAGER] = "eager",
    [BENCH_GRAPH] = "graph",
    [BENCH_BLOCKING] = "blocking",
};

static bool has_timing(const struct bench_options *o, enum bench_timing timing)
{
    for (int i = 0; i < o->ntimings; i++)
        if (o->timing[i] == timing)
            return true;
    return false;
}

static void add_timing(struct bench_options *o, enum bench_timing timing)
{
    if (!has_timing(o, timing))
        o->timing[o->ntimings++] = timing;
}

int bench_take_timings(struct bench_options *o, const char *list)
{
    for (const char *word = list; *word != 0;) {
        size_t length = strcspn(word, ",");
        int found = -1;

        for (int t = 0; t < BENCH_NUM_TIMINGS; t++)
            if (strlen(bench_timing_names[t]) == length &&
                    strncmp(word, bench_timing_names[t], length) == 0)
                found = t;
        if (found < 0)
            return cmd_usage_error("bench",
                    "--timing is '%s', need a list of eager, graph and blocking", list);
        add_timing(o, (enum bench_timing)found);
        word += length;
        word += *word == ',';
    }
    return -1;
}

/* -G and -z say it in nccl-tests' way. */
static void settle_timings(struct bench_options *o, bool gpu)
{
    if (o->ntimings == 0 && o->replays > 0)
        add_timing(o, BENCH_GRAPH);
    if (o->ntimings == 0 && o->blocking >= 0)
        add_timing(o, o->blocking == 0 ? BENCH_EAGER : BENCH_BLOCKING);
    if (o->ntimings == 0)
        add_timing(o, gpu ? BENCH_EAGER : BENCH_BLOCKING);
    if (o->blocking < 0)
        o->blocking = has_timing(o, BENCH_EAGER) || gpu ? 0 : 1;
    if (o->replays == 0)
        o->replays = REPLAYS;
}

int bench_settle(struct bench_options *o, const struct backend *backend)
{
    bool gpu = backend->mirrored;

    settle_timings(o, gpu);
    if (has_timing(o, BENCH_GRAPH) && backend->replay == NULL)
        return cmd_usage_error("bench",
                "CPU ranks have no graphs to capture; --timing eager (-z 0) measures "
                "calls that are issued ahead");
    if (o->average < 0)
        o->average = gpu ? 3 : 1;
    if (o->timeout_s < 0)
        o->timeout_s = gpu ? GPU_TIMEOUT_S : 0;
    if (o->rounds == 0)
        o->rounds = o->vs != NULL || gpu ? TURNS : 1;
    return -1;
}
