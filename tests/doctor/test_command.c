/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command and judging what it left. */
#include "facts.h"
#include "run_command.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t run(struct doctor *d, const char *script, unsigned timeout_s)
{
    char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, strdup(script), NULL };
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const struct dr_command command = { .argv = argv,
        .timeout_s = timeout_s,
        .out_fd = null,
        .err_fd = null,
        .host = "box" };

    assert_true(dr_run_command(d, &command));
    free(argv[2]);
    close(null);
    return d->num_troubles;
}

static bool has_line(const struct doctor *d, const char *text)
{
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (dr_has(d->lines[i].text, text))
            return true;
    return false;
}

static void test_a_commands_output_and_logs_are_sources(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    assert_int_equal(run(d,
                             "echo out; echo err >&2; echo $NCCL_DEBUG $AMD_LOG_LEVEL;"
                             "echo log > ${NCCL_DEBUG_FILE%.%h.%p}.h.1; echo a > "
                             "${AMD_LOG_LEVEL_FILE}_1",
                             0),
            0);
    assert_int_equal(d->num_sources, 3);
    assert_true(has_line(d, "box$ sh -c"));
    assert_true(has_line(d, "INFO 3"));
    assert_true(has_line(d, "err"));
    assert_true(has_line(d, "log"));
    doctor_free(d);
}

static void test_a_failure_and_a_deadline_are_troubles(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    assert_int_equal(run(d, "exit 3", 0), 1);
    assert_true(has_line(d, "exit status 3"));
    doctor_free(d);
    d = doctor_new();
    assert_int_equal(run(d, "sleep 1000 & sleep 1000", 1), 1);
    assert_true(has_line(d, "exit status 124"));
    doctor_free(d);
}

static void test_no_session_outlives_the_command(void **state)
{
    static const char *const scripts[] = {
        "setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000",
        "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & sleep 1"
    };

    (void)state;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        skip(); /* an emulator: orphans cannot be found there */
    for (size_t i = 0; i < 2; i++) {
        struct doctor *d = doctor_new();
        pid_t pid = 0;

        (void)run(d, scripts[i], 1);
        for (uint32_t k = 0; k < d->num_lines && pid == 0; k++)
            pid = (pid_t)strtol(d->lines[k].text, NULL, 10);
        assert_true(pid > 0);
        assert_int_equal(kill(pid, 0), -1);
        doctor_free(d);
    }
}

static void test_a_child_that_was_there_before_stays(void **state)
{
    struct doctor *d = doctor_new();
    const pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(run(d, "true", 0), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    doctor_free(d);
}

/* Interrupted, and yet it says that all went well. */
static void test_an_interrupted_command_is_a_trouble(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    assert_int_equal(run(d, "trap 'exit 0' INT; kill -INT $PPID; sleep 5", 0), 1);
    assert_true(has_line(d, "^C"));
    assert_true(has_line(d, "exit status 0"));
    doctor_free(d);
}

static void test_a_reader_that_leaves_ends_the_command(void **state)
{
    char *argv[] = { (char[]){ "yes" }, NULL };
    struct doctor *d = doctor_new();
    struct dr_command command = { .argv = argv, .host = "box" };
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    command.out_fd = command.err_fd = ends[1];
    assert_true(dr_run_command(d, &command));
    assert_int_equal(d->num_troubles, 1);
    close(ends[1]);
    doctor_free(d);
}

static void test_a_log_that_grows_too_large_keeps_both_ends(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    (void)run(d,
            "f=${AMD_LOG_LEVEL_FILE}_1; echo first > $f; head -c 90000000 /dev/zero |"
            "tr '\\0' '\\n' >> $f; sleep 1; echo last >> $f; sleep 1",
            0);
    assert_true(has_line(d, "first"));
    assert_true(has_line(d, "last"));
    doctor_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_commands_output_and_logs_are_sources),
        cmocka_unit_test(test_a_failure_and_a_deadline_are_troubles),
        cmocka_unit_test(test_no_session_outlives_the_command),
        cmocka_unit_test(test_a_child_that_was_there_before_stays),
        cmocka_unit_test(test_an_interrupted_command_is_a_trouble),
        cmocka_unit_test(test_a_reader_that_leaves_ends_the_command),
        cmocka_unit_test(test_a_log_that_grows_too_large_keeps_both_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
