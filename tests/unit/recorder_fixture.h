/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the flight recorder share: a folder of its own for each test, a
 * recorder in it, operations whose fields follow from their number, and children. */
#ifndef MOTET_TESTS_RECORDER_FIXTURE_H
#define MOTET_TESTS_RECORDER_FIXTURE_H

#include "trace/recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COMM 0xfeedull

static char folder[64];
static motet_params params;
static const motet_recorder_args args = { .rank = 1,
    .nranks = 4,
    .device = -1,
    .comm = COMM,
    .comm_name = "world" };

static inline void set_text(motet_param_id id, const char *text)
{
    snprintf(params.value[id].text, sizeof(params.value[id].text), "%s", text);
}

static inline void remove_all(const char *dir)
{
    struct dirent *entry;
    DIR *stream = opendir(dir);

    if (stream == NULL)
        return;
    while ((entry = readdir(stream)) != NULL)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(stream), entry->d_name, 0) != 0)
            (void)unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR);
    closedir(stream);
    rmdir(dir);
}

static inline int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s", "/tmp/motet-recorder-XXXXXX");
    assert_non_null(mkdtemp(folder));
    memset(&params, 0, sizeof(params));
    set_text(MOTET_P_TRACE_DIR, folder);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    remove_all(folder);
    return 0;
}

static inline motet_recorder create(void)
{
    motet_recorder recorder;

    assert_int_equal(motet_recorder_create(&params, &args, &recorder), MOTET_OK);
    assert_non_null(recorder.file);
    return recorder;
}

static inline motet_trace_snapshot *read_back(const char *path)
{
    static motet_trace_snapshot snapshot;

    if (motet_trace_read(path, &snapshot) != MOTET_OK)
        fail_msg("%s", motet_error_trail());
    return &snapshot;
}

static inline motet_trace_call call_number(uint64_t n)
{
    return (motet_trace_call){ .count = 3 * n,
        .fingerprint = (uint32_t)n,
        .peer = -1,
        .algorithm = (uint32_t)(n % 7),
        .kind = MOTET_ALL_REDUCE,
        .type = MOTET_FLOAT32,
        .redop = MOTET_SUM };
}

static inline motet_trace_op *begin_number(motet_recorder *recorder, uint64_t n)
{
    motet_trace_call call = call_number(n);

    return motet_recorder_begin(recorder, &call);
}

/* Runs @p body in a child and returns its wait status. */
static inline int in_child(void (*body)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static inline int count_files(void)
{
    struct dirent *entry;
    DIR *stream = opendir(folder);
    int n = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(stream);
    return n;
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
