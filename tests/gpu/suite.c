/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tables of suite.h: `test_gpu [--table NAME] [--list] [PART-OF-A-SENTENCE]`. */
#include "suite.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_S           120
#define SUITE_VARIABLE_BYTES 128

static const struct {
    const char *name;
    const suite_test *rows;
} tables[] = {
    { "streams", suite_streams },
    { "graphs", suite_graphs },
    { "members", suite_members },
    { "pairs", suite_pairs },
    { "paths", suite_paths },
    { "windows", suite_windows },
    { "failures", suite_failures },
    { "refusals", suite_refusals },
    { "copies", suite_copies },
    { "wraps", suite_wraps },
    { "sizes", suite_sizes },
    { "hip", suite_hip },
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
        (void)setenv(gpu_visible_variable(), ordinal, 1);
    if (test->before != NULL)
        test->before(rank);
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

/** A row's variable, by its full name: see suite.h. Kept in @p room if it is another. */
static const char *spelled(const char *variable, char room[SUITE_VARIABLE_BYTES])
{
    static const char mark[] = "FAKE_";
    const char *rest = variable + sizeof(mark) - 1;

    if (strncmp(variable, mark, sizeof(mark) - 1) != 0)
        return variable;
    (void)snprintf(room, SUITE_VARIABLE_BYTES, "%s%s", gpu_fake_prefix(), rest);
    return room;
}

static bool run_row(const suite_test *test)
{
    const char *environment[16] = { NULL };
    char room[SUITE_VARIABLES][SUITE_VARIABLE_BYTES], log_file[512];
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
        environment[n++] = spelled(test->environment[i], room[i]);
    gpu_forget_paths();
    if (test->logs) {
        (void)snprintf(log_file, sizeof(log_file), "NCCL_DEBUG_FILE=%s/log.%%p",
                getenv("MOTET_STATE_DIR"));
        environment[n++] = "NCCL_DEBUG=INFO";
        environment[n++] = log_file;
    }
    return multi_run(&spec) == 0;
}

/** Why a row is left out, or NULL. */
static const char *left_out(const suite_test *test)
{
    if (test->vendor == SUITE_CUDA && gpu_is_hip())
        return "AMD's runtime has no such thing";
    if (test->vendor == SUITE_HIP && !gpu_is_hip())
        return "only AMD's runtime has such things";
    switch (test->only) {
    case SUITE_FAKE: return gpu_is_fake() ? NULL : "only the stand-in has such faults";
    case SUITE_REAL: return gpu_is_fake() ? "too long for the stand-in" : NULL;
    case SUITE_DEVICES: return gpu_devices() >= 2 ? NULL : "needs two devices";
    default: return NULL;
    }
}

/* ---- helpers of the bodies ---- */

void suite_read_log(const multi_rank *rank, char *buf, size_t bytes)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/log.%d", getenv("MOTET_STATE_DIR"),
            (int)multi_pid(rank, 0));
    multi_read_file(path, buf, bytes);
}

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

bool suite_round(gpu_rank *g, CUdeviceptr in, CUdeviceptr out, size_t room,
        size_t count, uint64_t seed)
{
    int n = g->rank->nranks, me = g->number, root = (int)(seed % (unsigned)n);
    int next = (me + 1) % n, prev = (me + n - 1) % n;
    size_t piece = count / (size_t)n + 1;
    cudaStream_t s = gpu_handle(g->stream[0]);
    CUdeviceptr at[4];

    for (size_t i = 0; i < 4; i++)
        at[i] = out + i * room;
    if (!suite_put(g, in, seed, me, 0, room / sizeof(float)) ||
            !suite_sum(g, g->comm, in, at[0], count, g->stream[0]) ||
            !multi_ok(g->rank,
                    ncclBroadcast(gpu_at(in), gpu_at(at[1]), count, ncclFloat32, root,
                            g->comm, s),
                    "broadcast") ||
            !multi_ok(g->rank, ncclGroupStart(), "ncclGroupStart") ||
            !multi_ok(g->rank,
                    ncclSend(gpu_at(in), count, ncclFloat32, next, g->comm, s),
                    "send") ||
            !multi_ok(g->rank,
                    ncclRecv(gpu_at(at[2]), count, ncclFloat32, prev, g->comm, s),
                    "recv") ||
            !multi_ok(g->rank, ncclGroupEnd(), "ncclGroupEnd") ||
            !multi_ok(g->rank,
                    ncclAlltoAll(gpu_at(in), gpu_at(at[3]), piece, ncclFloat32, g->comm,
                            s),
                    "all_to_all") ||
            !gpu_sync(g, g->stream[0]) || !gpu_well(g->rank, g->comm) ||
            !suite_is_sum(g, at[0], seed, count, "the sum") ||
            !suite_is(g, at[1], seed, root, 0, count, "the broadcast") ||
            !suite_is(g, at[2], seed, prev, 0, count, "the message"))
        return false;
    for (int r = 0; r < n; r++)
        if (!suite_is(g, at[3] + (size_t)r * piece * sizeof(float), seed, r,
                    (size_t)me * piece, piece, "all_to_all"))
            return false;
    return true;
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
    if (ran == 0 && o.word == NULL) {
        printf("SKIPPED  no test of this table is for such devices\n");
        return 77;
    }
    return ran == 0 || failed != 0;
}
