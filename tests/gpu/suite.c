/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tables of suite.h: `test_gpu [--table NAME] [--list] [PART-OF-A-SENTENCE]`. */
#include "suite.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_S 120

static const struct {
    const char *name;
    const suite_test *rows;
} tables[] = {
    { "streams", suite_streams },
    { "graphs", suite_graphs },
    { "members", suite_members },
    { "paths", suite_paths },
    { "windows", suite_windows },
    { "failures", suite_failures },
    { "refusals", suite_refusals },
    { "wraps", suite_wraps },
    { "sizes", suite_sizes },
};

static size_t pool_bytes(void)
{
    return gpu_is_fake() ? SUITE_POOL_FAKE : SUITE_POOL;
}

unsigned suite_rounds(unsigned all)
{
    unsigned some = all / 50;

    if (!gpu_is_fake())
        return all;
    return some < 8 ? (all < 8 ? all : 8) : some;
}

/* ---- one row ---- */

/** Wait for the other ranks, where they have threads of their own. */
static bool meet(multi_rank *rank, const suite_test *test)
{
    return test->layout == MULTI_ONE_THREAD || multi_barrier(rank);
}

/** The body between a communicator's birth and its end. */
static void run_body(multi_rank *rank)
{
    const suite_test *test = rank->arg;
    char ordinal[16];
    gpu_rank g;
    bool fine;

    (void)snprintf(ordinal, sizeof(ordinal), "%d", rank->rank % gpu_devices());
    if (test->own_device)
        (void)setenv("CUDA_VISIBLE_DEVICES", ordinal, 1);
    fine = gpu_open(&g, rank, rank->rank, pool_bytes());
    fine = meet(rank, test) && fine;
    if (!fine || (!test->no_comm && !gpu_comm(&g, 0, &g.comm)))
        return;
    test->body(&g);
    if (g.comm != NULL)
        (void)multi_ok(rank,
                multi_failed(rank) ? ncclCommAbort(g.comm) : ncclCommDestroy(g.comm),
                "take the communicator down");
    /* Freeing waits for the device: not before every rank that is left is done. */
    if (!multi_failed(rank) && test->signal == 0 && meet(rank, test))
        gpu_close(&g);
}

static bool run_row(const suite_test *test)
{
    const char *environment[16] = { NULL };
    size_t n = 0;
    multi_spec spec = { .name = test->sentence,
        .layout = test->layout,
        .nranks = test->nranks,
        .deadline_s = test->deadline_s == 0 ? DEADLINE_S : test->deadline_s,
        .environment = environment,
        .body = run_body,
        .arg = (void *)(uintptr_t)test,
        .shared_bytes = 65536,
        .victim = test->victim,
        .signal = test->signal,
        .signal_after_us = test->signal_after_us };

    while (gpu_environment[n] != NULL) {
        environment[n] = gpu_environment[n];
        n++;
    }
    for (size_t i = 0; i < SUITE_VARIABLES && test->environment[i] != NULL; i++)
        environment[n++] = test->environment[i];
    return multi_run(&spec) == 0;
}

/** Why a row is left out, or NULL. */
static const char *left_out(const suite_test *test)
{
    switch (test->only) {
    case SUITE_FAKE: return gpu_is_fake() ? NULL : "only the stand-in has such faults";
    case SUITE_REAL: return gpu_is_fake() ? "too long for the stand-in" : NULL;
    case SUITE_DEVICES: return gpu_devices() >= 2 ? NULL : "needs two devices";
    default: return NULL;
    }
}

/* ---- helpers of the bodies ---- */

bool suite_put(gpu_rank *g, CUdeviceptr to, uint64_t seed, int of, size_t first,
        size_t count)
{
    float *host = malloc(count * sizeof(float) + 1);
    bool fine = multi_check(g->rank, host != NULL, "no memory");

    if (fine) {
        value_fill(host, ncclFloat32, VALUE_SUM, seed, of, first, count);
        fine = gpu_send(g, to, host, count * sizeof(float));
    }
    free(host);
    return fine;
}

bool suite_is_sum(gpu_rank *g, CUdeviceptr at, uint64_t seed, size_t count,
        const char *what)
{
    float *host = malloc(count * sizeof(float) + 1);
    value_reduction want = { .type = ncclFloat32,
        .op = VALUE_SUM,
        .seed = seed,
        .nranks = g->rank->nranks,
        .count = count };
    char why[256];
    bool fine = multi_check(g->rank, host != NULL, "no memory") &&
            gpu_fetch(g, host, at, count * sizeof(float));

    if (fine && !value_check(host, &want, why, sizeof(why)))
        fine = multi_check(g->rank, false, "%s: rank %d: %s", what, g->number, why);
    free(host);
    return fine;
}

bool suite_is(gpu_rank *g, CUdeviceptr at, uint64_t seed, int of, size_t first,
        size_t count, const char *what)
{
    float *host = malloc(2 * count * sizeof(float) + 1);
    bool fine = multi_check(g->rank, host != NULL, "no memory") &&
            gpu_fetch(g, host, at, count * sizeof(float));

    if (fine)
        value_fill(host + count, ncclFloat32, VALUE_SUM, seed, of, first, count);
    for (size_t i = 0; fine && i < count; i++)
        fine = multi_check(g->rank, memcmp(&host[i], &host[count + i], 4) == 0,
                "%s: rank %d: element %zu is %.9g, expected %.9g", what, g->number, i,
                (double)host[i], (double)host[count + i]);
    free(host);
    return fine;
}

bool suite_is_filled(gpu_rank *g, CUdeviceptr at, unsigned char byte, size_t bytes,
        const char *what)
{
    unsigned char *host = malloc(bytes + 1);
    bool fine = multi_check(g->rank, host != NULL, "no memory") &&
            gpu_fetch(g, host, at, bytes);

    for (size_t i = 0; fine && i < bytes; i++)
        fine = multi_check(g->rank, host[i] == byte,
                "%s: rank %d: byte %zu is 0x%02x, expected 0x%02x", what, g->number, i,
                host[i], byte);
    free(host);
    return fine;
}

bool suite_sum(gpu_rank *g, ncclComm_t comm, CUdeviceptr from, CUdeviceptr to,
        size_t count, CUstream stream)
{
    return multi_ok(g->rank,
            ncclAllReduce(gpu_at(from), gpu_at(to), count, ncclFloat32, ncclSum, comm,
                    gpu_handle(stream)),
            "ncclAllReduce");
}

ncclResult_t suite_fate(gpu_rank *g, ncclComm_t comm, unsigned ms)
{
    uint64_t start = multi_now_ns();
    ncclResult_t state = ncclSuccess;

    while (multi_now_ns() - start < ms * 1000000ull) {
        if (!multi_ok(g->rank, ncclCommGetAsyncError(comm, &state),
                    "ncclCommGetAsyncError"))
            return ncclInternalError;
        if (state != ncclSuccess && state != ncclInProgress)
            return state;
        multi_sleep_us(1000);
    }
    return ncclSuccess;
}

bool suite_says(gpu_rank *g, ncclComm_t comm, const char *word)
{
    return multi_check(g->rank, strstr(ncclGetLastError(comm), word) != NULL,
            "the sentence has no \"%s\": \"%s\"", word, ncclGetLastError(comm));
}

/* ---- the program ---- */

struct options {
    const char *table, *word;
    bool list;
};

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {
        { "table", required_argument, NULL, 't' },
        { "list", no_argument, NULL, 'l' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 't': o->table = optarg; break;
        case 'l': o->list = true; break;
        default: return false;
        }
    }
    if (optind < argc)
        o->word = argv[optind++];
    return optind == argc;
}

/** Run the rows of a table that are asked for; counts what ran and what failed. */
static void run_table(const struct options *o, size_t table, int *ran, int *failed)
{
    for (const suite_test *t = tables[table].rows; t->sentence != NULL; t++) {
        const char *why;
        uint64_t start = multi_now_ns();
        bool fine;

        if (o->word != NULL && strstr(t->sentence, o->word) == NULL)
            continue;
        if (o->list) {
            printf("%-9s %s (%d ranks, %s)\n", tables[table].name, t->sentence,
                    t->nranks, multi_layout_names[t->layout]);
            continue;
        }
        why = left_out(t);
        if (why != NULL) {
            printf("skip  %s: %s\n", t->sentence, why);
            continue;
        }
        fine = run_row(t);
        printf("%s  %s (%d ranks, %s, %.2f s)\n", fine ? "ok  " : "FAIL", t->sentence,
                t->nranks, multi_layout_names[t->layout],
                (double)(multi_now_ns() - start) / 1e9);
        (void)fflush(stdout);
        (*ran)++;
        *failed += !fine;
    }
}

int main(int argc, char **argv)
{
    struct options o = { 0 };
    int ran = 0, failed = 0, missing;

    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: test_gpu [--table NAME] [--list] [PART-OF-A-SENTENCE]\n");
        return 64;
    }
    if (!o.list && (missing = gpu_look()) != 0)
        return missing;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
        if (o.table == NULL || strcmp(o.table, tables[i].name) == 0)
            run_table(&o, i, &ran, &failed);
    if (o.list)
        return 0;
    printf("gpu: %d ran, %d failed\n", ran, failed);
    return ran == 0 || failed != 0;
}
