/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of motet run that need no process: lines, other launchers' variables, maps. */
#include "run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------ lines */

struct sunk {
    char text[4096];
    size_t used;
    int pieces;
    bool refuse;
};

static bool sink(void *arg, int fd, const char *data, size_t bytes)
{
    struct sunk *s = arg;

    assert_int_equal(fd, 1);
    assert_true(s->used + bytes < sizeof(s->text));
    memcpy(s->text + s->used, data, bytes);
    s->used += bytes;
    s->text[s->used] = 0;
    s->pieces++;
    return !s->refuse;
}

static void test_lines_leave_whole_however_they_come(void **state)
{
    static const char input[] = "one\n\ntwo words\r\n10%\r20%\rdone\nlast";
    static const char wanted[] =
            "[3] one\n[3] \n[3] two words\r\n[3] 10%\n[3] 20%\n[3] done\n[3] last\n";

    (void)state;
    for (size_t cut = 1; cut < sizeof(input); cut++) {
        struct sunk s = { .used = 0 };
        struct run_stream stream;

        /* cut anywhere but right behind a '\r', where a piece cannot know what follows */
        if (input[cut - 1] == '\r')
            continue;
        run_stream_start(&stream, 9, 1, NULL, 3, true);
        assert_true(run_stream_feed(&stream, input, cut, sink, &s));
        assert_true(run_stream_feed(&stream, input + cut, sizeof(input) - 1 - cut, sink,
                &s));
        run_stream_end(&stream, sink, &s);
        assert_string_equal(s.text, wanted);
        assert_int_equal(s.pieces, 7);
    }
}

static void test_a_tag_and_no_prefix(void **state)
{
    struct sunk s = { .used = 0 };
    struct run_stream stream;

    (void)state;
    run_stream_start(&stream, 9, 1, "gpu box", 0, true);
    run_stream_feed(&stream, "x\n", 2, sink, &s);
    run_stream_end(&stream, sink, &s);
    run_stream_start(&stream, 9, 1, "gpu box", 0, false);
    run_stream_feed(&stream, "y\n\n", 3, sink, &s);
    run_stream_end(&stream, sink, &s);
    assert_string_equal(s.text, "[gpu box 0] x\ny\n\n");
}

static bool count_bytes(void *arg, int fd, const char *data, size_t bytes)
{
    size_t *counted = arg;

    (void)fd;
    assert_true(bytes <= RUN_LINE_MAX + 200);
    assert_int_equal(data[bytes - 1], '\n');
    *counted += bytes;
    return true;
}

static void test_a_line_without_end_does_not_eat_all_memory(void **state)
{
    char block[65536];
    struct run_stream stream;
    size_t counted = 0;

    (void)state;
    memset(block, 'z', sizeof(block));
    run_stream_start(&stream, 9, 1, NULL, 0, true);
    for (int i = 0; i < 80; i++) { /* 5 MiB */
        assert_true(
                run_stream_feed(&stream, block, sizeof(block), count_bytes, &counted));
        assert_true(stream.room <= 4 * RUN_LINE_MAX);
    }
    run_stream_end(&stream, count_bytes, &counted);
    assert_true(counted > 80 * sizeof(block));
}

static void test_a_closed_reader_stops_the_stream(void **state)
{
    struct sunk s = { .refuse = true };
    struct run_stream stream;

    (void)state;
    run_stream_start(&stream, 9, 1, NULL, 0, true);
    assert_false(run_stream_feed(&stream, "a\nb\n", 4, sink, &s));
    assert_int_equal(s.pieces, 1);
    run_stream_end(&stream, sink, &s);
}

/* -------------------------------------------------------------- launchers */

static const char *lookup(const char *name, void *arg)
{
    for (const char *const *pair = arg; *pair != NULL; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return NULL;
}

static const struct launched {
    const char *variables[24];
    const char *name;
    int rank, size, local_rank, local_size;
    const char *addr;
    bool usable;
} launched[] = {
    { { NULL }, NULL, -1, -1, -1, -1, "", true },
    { { "RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2",
              NULL },
            "torchrun", 1, 2, 1, 2, "", true },
    { { "OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4",
              "OMPI_COMM_WORLD_LOCAL_RANK", "3", "OMPI_COMM_WORLD_LOCAL_SIZE", "4",
              "PMIX_RANK", "3", "PMIX_NAMESPACE", "job-1", NULL },
            "Open MPI", 3, 4, 3, 4, "127.0.0.1", true },
    { { "OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "8",
              "OMPI_COMM_WORLD_LOCAL_RANK", "3", "OMPI_COMM_WORLD_LOCAL_SIZE", "4",
              NULL },
            "Open MPI", 3, 8, 3, 4, "", true },
    { { "PMI_RANK", "0", "PMI_SIZE", "2", "MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS",
              "2", NULL },
            "MPICH", 0, 2, 0, 2, "127.0.0.1", true },
    { { "SLURM_PROCID", "5", "SLURM_STEP_ID", "0", "SLURM_JOB_ID", "77",
              "SLURM_STEP_NUM_TASKS", "6", "SLURM_LOCALID", "1", "SLURM_NODEID", "1",
              "SLURM_STEP_NODELIST", "gpu[003-004]", "SLURM_STEP_TASKS_PER_NODE", "4,2",
              NULL },
            "Slurm", 5, 6, 1, 2, "gpu003", true },
    { { "SLURM_PROCID", "0", "SLURM_NTASKS", "6", "SLURM_JOB_ID", "77", NULL }, "Slurm",
            0, -1, -1, -1, "", false },
    { { "PMIX_RANK", "1", "PMIX_NAMESPACE", "x", NULL }, "PMIx", 1, -1, -1, -1, "",
            false },
    { { "RANK", "4", "WORLD_SIZE", "4", NULL }, "torchrun", 4, 4, -1, -1, "", false },
    { { "RANK", "one", "WORLD_SIZE", "4", NULL }, NULL, -1, -1, -1, -1, "", true },
};

static void test_other_launchers_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(launched) / sizeof(*launched); i++) {
        const struct launched *want = &launched[i];
        struct run_launcher got;

        run_launcher_find(lookup, (void *)want->variables, &got);
        if (want->name == NULL) {
            assert_null(got.name);
            continue;
        }
        assert_string_equal(got.name, want->name);
        assert_int_equal(got.rank, want->rank);
        assert_int_equal(got.size, want->size);
        assert_int_equal(got.local_rank, want->local_rank);
        assert_int_equal(got.local_size, want->local_size);
        assert_string_equal(got.master_addr, want->addr);
        assert_int_equal(got.why_not[0] == 0, want->usable);
    }
}

static void test_two_jobs_get_two_ports_and_one_job_one(void **state)
{
    const char *a[] = { "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2",
        "PMIX_NAMESPACE", "job-1", NULL };
    const char *b[] = { "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2",
        "PMIX_NAMESPACE", "job-1", NULL };
    const char *c[] = { "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2",
        "PMIX_NAMESPACE", "job-2", NULL };
    struct run_launcher first, second, other;

    (void)state;
    run_launcher_find(lookup, a, &first);
    run_launcher_find(lookup, b, &second);
    run_launcher_find(lookup, c, &other);
    assert_string_equal(first.master_port, second.master_port);
    assert_string_not_equal(first.master_port, other.master_port);
}

static void test_slurm_lists(void **state)
{
    static const struct {
        const char *list, *host;
    } hosts[] = {
        { "solo", "solo" },
        { "a,b", "a" },
        { "n[01-04,07]", "n01" },
        { "n[7,9]", "n7" },
        { "r1[3-4]-ib,x", "r13-ib" },
        { "", NULL },
        { "n[", NULL },
        { "n[]", NULL },
        { "n[1", NULL },
    };
    static const struct {
        const char *list;
        int node, tasks;
    } tasks[] = {
        { "4", 0, 4 },
        { "4", 1, -1 },
        { "2(x3),1", 0, 2 },
        { "2(x3),1", 2, 2 },
        { "2(x3),1", 3, 1 },
        { "2(x3),1", 4, -1 },
        { "", 0, -1 },
        { "x", 0, -1 },
        { "2(x", 0, -1 },
        { "3,", 1, -1 },
        { "0", 0, -1 },
    };
    char buf[64];

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
        bool good = run_first_host(hosts[i].list, buf, sizeof(buf));

        assert_int_equal(good, hosts[i].host != NULL);
        if (good)
            assert_string_equal(buf, hosts[i].host);
    }
    for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++)
        assert_int_equal(run_tasks_of_node(tasks[i].list, tasks[i].node),
                tasks[i].tasks);
}

/* ------------------------------------------------------------------- maps */

static void test_which_mappings_are_libraries_with_the_nccl_abi(void **state)
{
    static const struct {
        const char *line, *path;
    } cases[] = {
        { "7f00-7f01 r-xp 00000000 08:01 42   /opt/rocm/lib/librccl.so.1.0\n",
                "/opt/rocm/lib/librccl.so.1.0" },
        { "7f00-7f01 r--p 00000000 08:01 42   /a b/libnccl.so.2 (deleted)\n",
                "/a b/libnccl.so.2" },
        { "7f00-7f01 r--p 00000000 08:01 42   /usr/lib/libnccl-net.so\n", NULL },
        { "7f00-7f01 r--p 00000000 08:01 42   /usr/lib/libc.so.6\n", NULL },
        { "7f00-7f01 rw-p 00000000 00:00 0    [heap]\n", NULL },
        { "7f00-7f01 rw-p 00000000 00:00 0 \n", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char line[200];
        const char *got;

        snprintf(line, sizeof(line), "%s", cases[i].line);
        got = run_maps_library(line);
        if (cases[i].path == NULL)
            assert_null(got);
        else
            assert_string_equal(got == NULL ? "(none)" : got, cases[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_leave_whole_however_they_come),
        cmocka_unit_test(test_a_tag_and_no_prefix),
        cmocka_unit_test(test_a_line_without_end_does_not_eat_all_memory),
        cmocka_unit_test(test_a_closed_reader_stops_the_stream),
        cmocka_unit_test(test_other_launchers_are_understood),
        cmocka_unit_test(test_two_jobs_get_two_ports_and_one_job_one),
        cmocka_unit_test(test_slurm_lists),
        cmocka_unit_test(test_which_mappings_are_libraries_with_the_nccl_abi),
    };

    return cmocka_run_group_tests_name("run_parts", tests, NULL, NULL);
}
