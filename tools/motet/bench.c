/* SPDX-License-Identifier: Apache-2.0 */
/* motet bench: see bench.h. */
#include "bench.h"

#include "cmd.h"
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
    if (code < 0) {
        code = open_results(b);
        if (code == EXIT_FINE)
            code = least_bandwidth(b);
        if (code == EXIT_FINE && b->options.device != NULL &&
                setenv("MOTET_DEVICE", b->options.device, 1) != 0)
            code = cmd_error("bench", EXIT_PROBLEM, "set MOTET_DEVICE: no memory");
        plan.processes = b->options.processes;
        plan.threads = b->options.threads;
        plan.per_thread = b->options.per_thread;
        plan.stall_s = (unsigned)b->options.timeout_s;
        if (code == EXIT_FINE)
            code = ranks_run(&plan, bench_body, b);
    }
    close_results(b);
    free(b);
    return code;
}
