/* SPDX-License-Identifier: Apache-2.0 */
/* motet bench: see bench.h. */
#include "bench.h"

#include "cmd.h"
#include "serving.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Open for writing before anything is measured, so that a bad name costs nothing. */
static int open_result(const char *name, FILE **out)
{
    if (name == NULL)
        return EXIT_FINE;
    *out = strcmp(name, "-") == 0 ? stdout : fopen(name, "we");
    if (*out == NULL)
        return cmd_error("bench", EXIT_USAGE, "open '%s' for writing: %s", name,
                strerror(errno));
    return EXIT_FINE;
}

static bool is_stdout(const char *name)
{
    return name != NULL && strcmp(name, "-") == 0;
}

static int open_results(struct bench *b)
{
    const struct bench_options *o = &b->options;
    int code = open_result(o->csv, &b->csv);

    b->table = stdout;
    if (is_stdout(o->csv) + is_stdout(o->json) + is_stdout(o->svg) > 1)
        return cmd_usage_error("bench", "only one of --csv, --json and --svg can be -");
    if (is_stdout(o->csv) || is_stdout(o->json) || is_stdout(o->svg))
        b->table = stderr;
    if (code == EXIT_FINE)
        code = open_result(o->json, &b->json);
    if (code == EXIT_FINE)
        code = open_result(o->svg, &b->svg);
    return code;
}

static void close_results(struct bench *b)
{
    FILE *files[] = { b->csv, b->json, b->svg };

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (files[i] != NULL && files[i] != stdout)
            fclose(files[i]);
}

static int least_bandwidth(struct bench *b)
{
    const char *text = getenv("NCCL_TESTS_MIN_BW");
    char *end;

    if (text == NULL || *text == 0)
        return EXIT_FINE;
    b->results.min_bw = strtod(text, &end);
    if (*end != 0 || b->results.min_bw < 0)
        return cmd_error("bench", EXIT_USAGE,
                "NCCL_TESTS_MIN_BW is '%s', need a number of GB/s", text);
    return EXIT_FINE;
}

/* Look for the devices, the files and the memory that are needed, before any rank starts. */
static int prepare(struct bench *b)
{
    struct bench_options *o = &b->options;
    const char *vs = o->vs;
    char why[PATH_MAX + 256];
    int code = backend_choose("bench", o->device, o->host_memory, &b->place);

    if (code >= 0)
        return code;
    check_fp8(backend_fp8(&b->place, o->processes * o->threads * o->per_thread) ==
            FP8_FNUZ);
    code = bench_settle(o, b->place.backend);
    if (code >= 0)
        return code;
    b->teams = vs != NULL && b->place.backend->mirrored;
    if (o->nvs_env > 0 && !b->teams)
        return cmd_usage_error("bench",
                "--vs-env needs --vs and ranks on GPUs: on CPUs both libraries share "
                "their processes");
    if (vs != NULL && strcmp(vs, "self") == 0)
        vs = o->lib != NULL ? o->lib : "";
    if ((o->lib != NULL && !library_find(o->lib, b->lib_path, why, sizeof(why))) ||
            (vs != NULL && !library_find(vs, b->vs_path, why, sizeof(why))))
        return cmd_error("bench", EXIT_UNDECIDED, "%s", why);
    code = open_results(b);
    return code == EXIT_FINE ? least_bandwidth(b) : code;
}

/* Of ranks_plan. */
static int look(void *arg)
{
    const struct bench *b = arg;

    return serving_refuse("bench", b->options.serving_anyway);
}

/* On GPUs, or a library may. */
static bool launches(const struct bench *b)
{
    return b->place.facts.devices > 0 ||
            (b->lib_path[0] != 0 && library_may_launch(b->lib_path)) ||
            (b->vs_path[0] != 0 && library_may_launch(b->vs_path));
}

/* Run the ranks; on GPUs nobody else computes there, and it is written down. */
static int run(struct bench *b, struct ranks_plan *plan)
{
    const struct bench_options *o = &b->options;
    char stage[2 * PATH_MAX + 64];
    struct ranks_end end;
    int code;

    if (!launches(b))
        return ranks_run(plan, bench_body, b);
    snprintf(stage, sizeof(stage), "%s, %s%s%s", b->place.backend->name,
            o->lib != NULL ? b->lib_path : "built in", o->vs != NULL ? " against " : "",
            o->vs != NULL ? b->vs_path : "");
    code = serving_enter("bench", stage, o->serving_anyway);
    if (code >= 0)
        return code;
    plan->look = look;
    plan->look_arg = b;
    plan->end = &end;
    code = ranks_run(plan, bench_body, b);
    if (!end.left)
        serving_end("bench", stage);
    return code;
}

int cmd_bench(int argc, char **argv)
{
    struct ranks_plan plan = { .command = "bench" };
    struct bench *b = calloc(1, sizeof(*b));
    int code;

    if (b == NULL)
        return cmd_error("bench", EXIT_PROBLEM, "no memory");
    pthread_mutex_init(&b->lock, NULL);
    b->argc = argc;
    b->argv = argv;
    code = bench_read_options(argc, argv, &b->options);
    if (code < 0 && (code = prepare(b)) == EXIT_FINE) {
        plan.processes = b->options.processes;
        plan.threads = b->options.threads;
        plan.per_thread = b->options.per_thread;
        plan.teams = b->teams ? 2 : 1;
        plan.place = &b->place;
        plan.stall_s = (unsigned)b->options.timeout_s;
        code = run(b, &plan);
    }
    close_results(b);
    free(b);
    return code;
}
