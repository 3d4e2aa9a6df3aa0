/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the failure tests: `failure [--kills N] [--seed S] [PART-OF-A-SENTENCE]`.
 *
 * Everything happens in folders of this run, so that what is left behind can be
 * counted after each test: no process, no file but the recorder's files of ranks that
 * were killed.
 */
#include "failure.h"

#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char failure_folder[128], failure_stderr[160];
static char runtime_folder[128];
unsigned failure_kills = 20;
uint64_t failure_seed = 1;

const char *const failure_kind_names[FAILURE_KINDS] = { "all_reduce", "reduce",
    "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
    "send/recv ring", "a group of three" };

static ncclResult_t ring(void *send, void *recv, size_t count, const multi_rank *rank,
        ncclComm_t comm, cudaStream_t stream)
{
    int next = (rank->rank + 1) % rank->nranks;
    int prev = (rank->rank + rank->nranks - 1) % rank->nranks;
    ncclResult_t got = ncclGroupStart();

    if (got == ncclSuccess)
        got = ncclSend(send, count, ncclInt32, next, comm, stream);
    if (got == ncclSuccess)
        got = ncclRecv(recv, count, ncclInt32, prev, comm, stream);
    return got == ncclSuccess ? ncclGroupEnd() : (ncclGroupEnd(), got);
}

static ncclResult_t three(void *send, void *recv, size_t count, int root,
        ncclComm_t comm, cudaStream_t stream)
{
    int32_t *to = recv;
    ncclResult_t got = ncclGroupStart();

    if (got == ncclSuccess)
        got = ncclAllReduce(send, to, count, ncclInt32, ncclSum, comm, stream);
    if (got == ncclSuccess)
        got = ncclBroadcast(send, to + count, count, ncclInt32, root, comm, stream);
    if (got == ncclSuccess)
        got = ncclReduceScatter(send, to + 2 * count, count / 4, ncclInt32, ncclMax,
                comm, stream);
    return got == ncclSuccess ? ncclGroupEnd() : (ncclGroupEnd(), got);
}

ncclResult_t failure_operation(int kind, void *send, void *recv, size_t count, int root,
        const multi_rank *rank, ncclComm_t comm, cudaStream_t stream)
{
    switch (kind) {
    case 0: return ncclAllReduce(send, recv, count, ncclInt32, ncclSum, comm, stream);
    case 1:
        return ncclReduce(send, recv, count, ncclInt32, ncclSum, root, comm, stream);
    case 2: return ncclBroadcast(send, recv, count, ncclInt32, root, comm, stream);
    case 3: return ncclAllGather(send, recv, count, ncclInt32, comm, stream);
    case 4:
        return ncclReduceScatter(send, recv, count, ncclInt32, ncclSum, comm, stream);
    case 5: return ncclAlltoAll(send, recv, count, ncclInt32, comm, stream);
    case 6: return ncclGather(send, recv, count, ncclInt32, root, comm, stream);
    case 7: return ncclScatter(send, recv, count, ncclInt32, root, comm, stream);
    case 8: return ring(send, recv, count, rank, comm, stream);
    default: return three(send, recv, count, root, comm, stream);
    }
}

/** The beginning of what the children wrote: a sanitizer's report, or a warning. */
static void print_stderr(void)
{
    static char text[6000];

    multi_read_file(failure_stderr, text, sizeof(text));
    if (text[0] != '\0')
        printf("---- stderr of the ranks\n%s\n----\n", text);
}

uint64_t failure_slowest_ns;

/** Survivors left how long it took them to see the death. */
static int note_slowest(const multi_spec *spec, void *shared)
{
    const uint64_t *took = shared;

    for (int r = 0; r < spec->nranks; r++)
        if (took[r] > failure_slowest_ns)
            failure_slowest_ns = took[r];
    return 0;
}

bool failure_run(const failure_test *test)
{
    char trace[160], runtime[160];
    int victim = test->victim;
    const char *environment[] = { trace, runtime, test->environment, NULL };
    multi_spec spec = { .name = test->sentence,
        .layout = test->layout,
        .nranks = test->nranks,
        .init = test->init,
        .deadline_s = 60,
        .environment = environment,
        .body = test->body,
        .arg = &victim,
        .stderr_path = failure_stderr,
        .shared_bytes = 65536,
        .after = note_slowest,
        .victim = test->victim,
        .signal = test->signal,
        .signal_after_us = test->signal_after_us,
        .continue_after_us = test->continue_after_us };

    (void)snprintf(trace, sizeof(trace), "MOTET_TRACE_DIR=%s", failure_folder);
    (void)snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", runtime_folder);
    (void)unlink(failure_stderr);
    if (multi_run(&spec) == 0)
        return true;
    print_stderr();
    return false;
}

/** Files in @p folder that are no recorder files of processes that are gone. */
static int count_strange_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0, pid;

    if (dir == NULL)
        return 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char proc[64];
        size_t length = strlen(e->d_name);

        if (e->d_name[0] == '.')
            continue;
        if (sscanf(e->d_name, "motet-%d-", &pid) == 1 && length > 6 &&
                strcmp(e->d_name + length - 6, ".trace") == 0) {
            (void)snprintf(proc, sizeof(proc), "/proc/%d", pid);
            if (access(proc, F_OK) != 0)
                continue;
        }
        printf("      left behind: %s/%s\n", folder, e->d_name);
        n++;
    }
    (void)closedir(dir);
    return n;
}

/** Whether a child of ours is still there: all were reaped, so any is a grandchild. */
static bool children_left(void)
{
    char path[64], text[256];

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    multi_read_file(path, text, sizeof(text));
    return text[0] != '\0';
}

/**
 * A memfd or an abstract socket without a process to hold it does not exist, and the
 * survivors count their own descriptors: what remains to look for is files, the path
 * socket of the rendezvous among them, and processes.
 */
static bool nothing_is_left(void)
{
    int files =
            count_strange_files(failure_folder) + count_strange_files(runtime_folder);
    bool children = children_left();

    if (files == 0 && !children)
        return true;
    printf("FAIL  something is left: %d files%s\n", files,
            children ? ", processes" : "");
    return false;
}

static bool parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "kills", required_argument, NULL, 'k' },
        { "seed", required_argument, NULL, 's' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'k')
            failure_kills = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 's')
            failure_seed = strtoull(optarg, NULL, 10);
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const failure_test *const tables[] = { failure_deaths, failure_waits };
    int ran = 0, failed = 0;
    char base[96];

    if (!parse(argc, argv) || !multi_temp_folder(base, sizeof(base))) {
        fprintf(stderr, "usage: failure [--kills N] [--seed S] [PART-OF-A-SENTENCE]\n");
        return 64;
    }
    (void)snprintf(failure_folder, sizeof(failure_folder), "%s/trace", base);
    (void)snprintf(failure_stderr, sizeof(failure_stderr), "%s/stderr", base);
    (void)snprintf(runtime_folder, sizeof(runtime_folder), "%s/run", base);
    (void)mkdir(failure_folder, 0700);
    (void)mkdir(runtime_folder, 0700);
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
        for (const failure_test *test = tables[t]; test->sentence != NULL; test++) {
            bool fine;

            if (optind < argc && strstr(test->sentence, argv[optind]) == NULL)
                continue;
            fine = (test->run == NULL ? failure_run : test->run)(test);
            fine = nothing_is_left() && fine;
            printf("%s  %s\n", fine ? "ok  " : "FAIL", test->sentence);
            (void)fflush(stdout);
            ran++;
            failed += !fine;
        }
    multi_remove_folder(failure_folder);
    multi_remove_folder(runtime_folder);
    multi_remove_folder(base);
    printf("failure: %d ran, %d failed\n", ran, failed);
    return ran == 0 || failed != 0;
}
