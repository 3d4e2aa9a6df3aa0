/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of pairs: where one pair of devices has no way, or a way that lies, that pair
 * alone meets in host memory; and what is remembered of it, and for how long.
 */
#include "suite.h"

#include <motet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a row expects; no variables of the library's. */
#define EXPECTED  "EXPECTED_PATH"
#define REMEMBERS "EXPECTED_LINE"

#define LINES_BYTES 16384

/* ---- helpers ---- */

static bool path_is(gpu_rank *g, ncclComm_t comm, const char *expected)
{
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;

    return multi_ok(g->rank, motet_comm_query(comm, &info), "motet_comm_query") &&
            multi_check(g->rank, strcmp(info.path, expected) == 0,
                    "the path is %s, expected %s", info.path, expected);
}

static void history_path(char buf[512])
{
    (void)snprintf(buf, 512, "%s/paths", getenv("MOTET_STATE_DIR"));
}

/** The file, "" if there is none. */
static void read_history(char text[LINES_BYTES])
{
    char path[512];
    size_t n = 0;
    FILE *file;

    history_path(path);
    file = fopen(path, "r");
    if (file != NULL) {
        n = fread(text, 1, LINES_BYTES - 1, file);
        (void)fclose(file);
    }
    text[n] = '\0';
}

/** All ranks have come so far: a sum of one element. */
static bool wait_for_all(gpu_rank *g, ncclComm_t comm)
{
    CUdeviceptr at = gpu_reserve(g, 2 * sizeof(float));

    return at != 0 && suite_sum(g, comm, at, at + sizeof(float), 1, g->stream[0]) &&
            gpu_sync(g, g->stream[0]);
}

static bool rounds_are_right(gpu_rank *g)
{
    static const size_t counts[] = { 1, 1021, 40013, 120007 };
    size_t most = counts[3] * sizeof(float) * (size_t)g->rank->nranks, room;
    CUdeviceptr in, out;

    room = (most + 255) / 256 * 256;
    in = gpu_reserve(g, room);
    out = gpu_reserve(g, 4 * room);
    for (size_t i = 0; in != 0 && out != 0 && i < 4; i++)
        if (!suite_round(g, in, out, room, counts[i], 900 + i))
            return false;
    return in != 0 && out != 0;
}

/* ---- bodies ---- */

static void takes_its_paths(gpu_rank *g)
{
    const char *line = getenv(REMEMBERS);
    char text[LINES_BYTES];

    if (!path_is(g, g->comm, getenv(EXPECTED)) || !rounds_are_right(g) ||
            !gpu_well(g->rank, g->comm))
        return;
    read_history(text);
    (void)multi_check(g->rank, line == NULL || strstr(text, line) != NULL,
            "nothing was remembered with \"%s\": \"%s\"", line, text);
}

/** Each line of the history, as @p edit makes it, into a new history. */
static bool rewrite_history(gpu_rank *g, void (*edit)(const char *word[10]))
{
    char text[LINES_BYTES], path[512], *save = NULL;
    FILE *file;

    read_history(text);
    history_path(path);
    file = fopen(path, "w");
    if (!multi_check(g->rank, file != NULL && text[0] != '\0',
                "the history is empty or cannot be written"))
        return false;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        const char *word[10] = { NULL };
        char *rest = NULL;
        int n = 0;

        for (char *w = strtok_r(line, " ", &rest); w != NULL && n < 9;
                w = strtok_r(NULL, " ", &rest))
            word[n++] = w;
        if (!multi_check(g->rank, n == 9, "a line of %d words", n))
            break;
        edit(word);
        if (word[0] == NULL)
            continue;
        for (int i = 0; i < n; i++)
            (void)fprintf(file, "%s%c", word[i], i + 1 < n ? ' ' : '\n');
    }
    return fclose(file) == 0 && !multi_failed(g->rank);
}

/** A communicator; rank 0 changes the history; another one. */
static void remembers(gpu_rank *g, void (*edit)(const char *word[10]), const char *then)
{
    ncclComm_t first, second;

    if (!gpu_comm(g, 0, &first) || !path_is(g, first, "direct") ||
            !wait_for_all(g, first) || (g->number == 0 && !rewrite_history(g, edit)) ||
            !wait_for_all(g, first) || !gpu_comm(g, 1, &second))
        return;
    g->comm = second;
    if (path_is(g, second, then))
        (void)rounds_are_right(g);
    (void)multi_ok(g->rank, ncclCommDestroy(first), "ncclCommDestroy");
}

/* The pair's first access came back: a veto of that pair in its place. */
static void veto(const char *word[10])
{
    if (strcmp(word[0], "touched") != 0) {
        word[0] = NULL;
        return;
    }
    word[0] = "veto";
    word[6] = "direct";
    word[7] = "staged";
    word[8] = "wrong";
}

static void veto_of_another_boot(const char *word[10])
{
    veto(word);
    word[1] = "00000000-0000-0000-0000-000000000000";
}

static void veto_of_another_build(const char *word[10])
{
    veto(word);
    word[3] = "0.0.0";
}

/* It never came back: the machine went down with it. */
static void hung(const char *word[10])
{
    word[1] = "00000000-0000-0000-0000-000000000000";
    if (strcmp(word[0], "touched") == 0)
        word[0] = NULL;
}

/* This process is gone. */
static void died(const char *word[10])
{
    word[8] = "1";
    if (strcmp(word[0], "touched") == 0)
        word[0] = NULL;
}

static void touched(const char *word[10])
{
    (void)word;
}

static void remembers_a_veto(gpu_rank *g)
{
    remembers(g, veto, "staged");
}

static void forgets_another_boot(gpu_rank *g)
{
    remembers(g, veto_of_another_boot, "direct");
}

static void forgets_another_build(gpu_rank *g)
{
    remembers(g, veto_of_another_build, "direct");
}

static void remembers_what_hung(gpu_rank *g)
{
    remembers(g, hung, "staged");
}

static void remembers_who_died(gpu_rank *g)
{
    remembers(g, died, "staged");
}

static void remembers_what_came_back(gpu_rank *g)
{
    remembers(g, touched, "direct");
}

/* The row's arenas: where a fault is to show, in a mapping of three ranks. */
#define IN_LL    "FAKE_IMPORT_FROM=32768", "FAKE_IMPORT_TO=1048576"
#define IN_SLOTS "FAKE_IMPORT_FROM=3178496", "FAKE_IMPORT_TO=3403776"

const suite_test suite_pairs[] = {
    SUITE_ROW("one pair without peer access meets in host memory", takes_its_paths,
            THREADS, 3, .only = SUITE_FAKE,
            .environment = { "FAKE_DEVICES=3", "FAKE_PEER=none", "FAKE_PAIR=0-2",
                    EXPECTED "=direct+staged" }),
    SUITE_ROW("one pair with access in one direction meets in host memory",
            takes_its_paths, PROCESSES, 4, .only = SUITE_FAKE,
            .environment = { "FAKE_DEVICES=4", "FAKE_PEER=oneway", "FAKE_PAIR=1-3",
                    EXPECTED "=direct+staged" }),
    SUITE_ROW("a pair whose bytes are dropped meets in host memory, and is remembered",
            takes_its_paths, PROCESSES, 3, .only = SUITE_FAKE,
            .environment = { "FAKE_DEVICES=3", "FAKE_IMPORT=drop", "FAKE_PAIR=0-1",
                    EXPECTED "=direct+staged", REMEMBERS "= direct staged bytes" }),
    SUITE_ROW("a pair on which chunks come wrong meets in host memory", takes_its_paths,
            PROCESSES, 3, .only = SUITE_FAKE,
            .environment = { "FAKE_DEVICES=3", "FAKE_IMPORT=drop", "FAKE_PAIR=1-2",
                    IN_SLOTS, EXPECTED "=direct+staged",
                    REMEMBERS "= direct staged wrong" }),
    SUITE_ROW("a pair on which nothing comes in time meets in host memory",
            takes_its_paths, PROCESSES, 3, .only = SUITE_FAKE,
            .environment = { "FAKE_DEVICES=3", "FAKE_IMPORT=drop", "FAKE_PAIR=1-2",
                    IN_LL, EXPECTED "=direct+staged", REMEMBERS "= direct ll late" }),
    SUITE_ROW("a pair whose proof failed is not tried again", remembers_a_veto, THREADS,
            2, .no_comm = true, .only = SUITE_FAKE, .environment = { NULL }),
    SUITE_ROW("what failed in another boot is tried again", forgets_another_boot,
            PROCESSES, 2, .no_comm = true, .only = SUITE_FAKE),
    SUITE_ROW("what failed with another build is tried again", forgets_another_build,
            PROCESSES, 2, .no_comm = true, .only = SUITE_FAKE),
    SUITE_ROW("a first access that took the machine down is not repeated",
            remembers_what_hung, PROCESSES, 2, .no_comm = true, .only = SUITE_FAKE),
    SUITE_ROW("a first access that took its process down is not repeated",
            remembers_who_died, PROCESSES, 2, .no_comm = true, .only = SUITE_FAKE),
    SUITE_ROW("a first access that came back is repeated", remembers_what_came_back,
            PROCESSES, 2, .no_comm = true, .only = SUITE_FAKE),
    { .sentence = NULL },
};
