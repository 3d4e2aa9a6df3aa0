/* SPDX-License-Identifier: Apache-2.0 */
/* Which path the ranks take, above all where a driver grants what it does not keep: a
 * path is taken only if its proof passed, and values are right whichever it is. */
#include "suite.h"

#include <motet.h>
#include <stdlib.h>
#include <string.h>

/** The path that a row expects; no variable of the library's. */
#define EXPECTED "EXPECTED_PATH"

static bool sums_are_right(gpu_rank *g, size_t count, uint64_t seed)
{
    CUdeviceptr from = gpu_reserve(g, count * sizeof(float));
    CUdeviceptr to = gpu_reserve(g, count * sizeof(float));

    return from != 0 && to != 0 && suite_put(g, from, seed, g->number, 0, count) &&
            gpu_fill(g, to, 0xa5, count * sizeof(float)) &&
            suite_sum(g, g->comm, from, to, count, g->stream[0]) &&
            gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm) &&
            suite_is_sum(g, to, seed, count, "a sum");
}

static void takes_its_path(gpu_rank *g)
{
    static const size_t counts[] = { 1, 1021, 40013, 300007 };
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;
    const char *expected = getenv(EXPECTED);

    if (!multi_ok(g->rank, motet_comm_query(g->comm, &info), "motet_comm_query"))
        return;
    (void)multi_check(g->rank, strcmp(info.path, expected) == 0,
            "the path is %s, expected %s", info.path, expected);
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (!sums_are_right(g, counts[i], 70 + i))
            return;
}

/* One of tests/fakecuda's wrong kernels, and the path that runs without it: the staged one
 * has neither LL nor two-shot. */
#define WRONG(what, kernel, path)                                               \
    SUITE_ROW("kernels that " what " are not used", takes_its_path, THREADS, 2, \
            .only = SUITE_FAKE,                                                 \
            .environment = { "FAKE_KERNELS=libwrong_" kernel ".so",             \
                    EXPECTED "=" path })

const suite_test suite_paths[] = {
    SUITE_ROW("the staged path where it is asked for", takes_its_path, THREADS, 3,
            .environment = { "MOTET_PATH=staged", EXPECTED "=staged" }),
    SUITE_ROW("the staged path where it is asked for", takes_its_path, PROCESSES, 2,
            .environment = { "NCCL_P2P_DISABLE=1", EXPECTED "=staged" }),
    SUITE_ROW("the copy path where it is asked for", takes_its_path, THREADS, 3,
            .environment = { "MOTET_PATH=copy", EXPECTED "=copy" }),
    SUITE_ROW("the copy path where it is asked for", takes_its_path, PROCESSES, 2,
            .environment = { "MOTET_PATH=copy", EXPECTED "=copy" }),
    SUITE_ROW("devices without peer access meet in host memory", takes_its_path,
            THREADS, 2, .only = SUITE_FAKE,
            .environment = { "FAKE_PEER=none", EXPECTED "=staged" }),
    SUITE_ROW("access in one direction only is none", takes_its_path, THREADS, 2,
            .only = SUITE_FAKE,
            .environment = { "FAKE_PEER=oneway", EXPECTED "=staged" }),
    SUITE_ROW("a peer's memory that takes no bytes is not used", takes_its_path,
            PROCESSES, 2, .only = SUITE_FAKE,
            .environment = { "FAKE_IMPORT=drop", EXPECTED "=staged" }),
    SUITE_ROW("a peer's memory that shows zeros is not used", takes_its_path, PROCESSES,
            3, .only = SUITE_FAKE,
            .environment = { "FAKE_IMPORT=zero", EXPECTED "=staged" }),
    SUITE_ROW("a peer's memory whose flags arrive and whose data is misplaced is not "
              "used",
            takes_its_path, PROCESSES, 2, .only = SUITE_FAKE,
            .environment = { "FAKE_IMPORT=falsify", "FAKE_IMPORT_FROM=131072",
                    EXPECTED "=staged" }),
    WRONG("take the halves of a word for each other", "ll", "staged"),
    WRONG("send every peer the same piece", "stage", "copy"),
    WRONG("give back what was not reduced", "twoshot", "staged"),
    WRONG("send the beginning again and again", "pairs", "copy"),
    SUITE_ROW("memory is handed on by handles where there are no descriptors",
            takes_its_path, PROCESSES, 2, .only = SUITE_FAKE, .vendor = SUITE_CUDA,
            .environment = { "FAKE_VMM=0", EXPECTED "=direct" }),
    { .sentence = NULL },
};
