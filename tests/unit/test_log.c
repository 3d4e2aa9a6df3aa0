/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "child.h"

#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define MAX_ENVIRONMENT 4

static void assert_matches(const char *text, const char *pattern)
{
    regex_t regex;
    int no_match;

    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    no_match = regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    if (no_match)
        fail_msg("'%s' does not match '%s'", text, pattern);
}

/* One line of each kind. */
static int log_each(const void *arg)
{
    (void)arg;
    motet_log_version();
    motet_log_version();
    motet_warn("a warning about '%s'", "x");
    motet_info(MOTET_SUB_INIT, "init line");
    motet_info(MOTET_SUB_COLL, "coll line");
    motet_info(MOTET_SUB_NET | MOTET_SUB_ENV, "net or env line");
    motet_trace_line(MOTET_SUB_INIT, "trace line");
    return 0;
}

static void test_levels_and_subsystems_decide_what_is_written(void **state)
{
    static const struct {
        const char *environment[MAX_ENVIRONMENT];
        bool version, warn, init, coll, net_or_env, trace; /* on stdout */
        bool warn_on_stderr;
    } cases[] = {
        { { NULL }, 0, 0, 0, 0, 0, 0, .warn_on_stderr = true },
        { { "NCCL_DEBUG=" }, 0, 0, 0, 0, 0, 0, .warn_on_stderr = true },
        { { "MOTET_DEBUG=0" }, 0, 0, 0, 0, 0, 0, false },
        { { "MOTET_DEBUG=no" }, 0, 0, 0, 0, 0, 0, false },
        { { "MOTET_DEBUG=1" }, 0, 0, 0, 0, 0, 0, .warn_on_stderr = true },
        { { "NCCL_DEBUG=NONE" }, 0, 0, 0, 0, 0, 0, false },
        { { "NCCL_DEBUG=VERSION" }, 1, 0, 0, 0, 0, 0, .warn_on_stderr = true },
        { { "NCCL_DEBUG=VERSION", "MOTET_DEBUG=0" }, 1, 0, 0, 0, 0, 0, false },
        { { "NCCL_DEBUG=WARN" }, 1, 1, 0, 0, 0, 0, false },
        { { "NCCL_DEBUG=WARN", "MOTET_DEBUG=0" }, 1, 1, 0, 0, 0, 0, false },
        { { "NCCL_DEBUG=INFO" }, 1, 1, 1, 0, 1, 0, false },
        { { "NCCL_DEBUG=info" }, 1, 1, 1, 0, 1, 0, false },
        { { "NCCL_DEBUG=TRACE" }, 1, 1, 1, 0, 1, 1, false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=COLL" }, 1, 1, 0, 1, 0, 0, false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=coll,net" }, 1, 1, 0, 1, 1, 0,
                false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^COLL" }, 1, 1, 1, 0, 1, 0, false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^INIT,NET,ENV" }, 1, 1, 0, 1, 0, 0,
                false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=ALL" }, 1, 1, 1, 1, 1, 0, false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^ALL" }, 1, 1, 0, 0, 0, 0, false },
        { { "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=NOSUCH,,COLL," }, 1, 1, 0, 1, 0, 0,
                false },
        { { "NCCL_DEBUG=TRACE", "NCCL_DEBUG_SUBSYS=COLL" }, 1, 1, 0, 1, 0, 0, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        child_result child = child_run(log_each, NULL, cases[i].environment);
        const char *first = cases[i].environment[0];

        if (first == NULL)
            first = "nothing set";
        assert_int_equal(child.status, 0);
        if (child_count(child.out, "NCCL version 2.27.7+motet") != cases[i].version ||
                child_count(child.out, "NCCL WARN") != cases[i].warn ||
                child_count(child.out, "NCCL INFO init line\n") != cases[i].init ||
                child_count(child.out, "NCCL INFO coll line\n") != cases[i].coll ||
                child_count(child.out, "NCCL INFO net or env line\n") !=
                        cases[i].net_or_env ||
                child_count(child.out, "NCCL TRACE trace line\n") != cases[i].trace ||
                child_count(child.err, "NCCL WARN") != cases[i].warn_on_stderr)
            fail_msg("case %zu (%s):\n%s\nstderr:\n%s", i, first, child.out, child.err);
    }
}

static int log_forms(const void *arg)
{
    (void)arg;
    motet_log_set_device(3);
    motet_log_version();
    motet_info(MOTET_SUB_INIT, "hello");
    motet_warn("careful");
    motet_trace_line(MOTET_SUB_INIT, "deep");
    return 0;
}

static void test_lines_have_nccls_form(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=TRACE", NULL };
    child_result child = child_run(log_forms, NULL, environment);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_matches(child.out,
            "^NCCL version 2\\.27\\.7\\+motet[0-9]+\\.[0-9]+\\.[0-9]+\n"
            "[^:. ]+:[0-9]+:[0-9]+ \\[3\\] NCCL INFO hello\n"
            "\n\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "
            "[^:. ]+:[0-9]+:[0-9]+ \\[3\\] [a-z/_]*test_log\\.c:[0-9]+ NCCL WARN "
            "careful\n"
            "[^:. ]+:[0-9]+:[0-9]+ \\[3\\] [0-9.]+ [a-z/_]*test_log\\.c:[0-9]+ "
            "NCCL TRACE deep\n$");
}

static int warn_often(const void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++) {
        motet_warn("the same");
        motet_warn("for ever %d", i);
    }
    motet_warn("the same");
    return 0;
}

static void test_without_a_level_each_cause_is_warned_about_once(void **state)
{
    child_result child = child_run(warn_often, NULL, NULL);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_string_equal(child.out, "");
    assert_int_equal(child_count(child.err, "the same\n"), 2); /* two places */
    assert_int_equal(child_count(child.err, "for ever "), 8);
    assert_matches(child.err, "^[^:]+:[0-9]+:[0-9]+ \\[-1\\] NCCL WARN the same\n");
}

static void test_with_a_level_every_warning_is_written(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=WARN", NULL };
    child_result child = child_run(warn_often, NULL, environment);

    (void)state;
    assert_int_equal(child_count(child.out, "the same\n"), 101);
    assert_int_equal(child_count(child.out, "for ever "), 100);
    assert_string_equal(child.err, "");
}

static int log_odd_texts(const void *arg)
{
    char text[5000];

    (void)arg;
    motet_info(MOTET_SUB_INIT, "a\nb\tc\x1b[31md%s", "");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    motet_info(MOTET_SUB_INIT, "%s", text);
    return 0;
}

static void test_a_line_is_one_line_whatever_it_quotes(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO", NULL };
    child_result child = child_run(log_odd_texts, NULL, environment);

    (void)state;
    assert_int_equal(child_count(child.out, "\n"), 2);
    assert_int_equal(child_count(child.out, "NCCL INFO a b c [31md\n"), 1);
    assert_true(strlen(child.out) > 1000 && strlen(child.out) < 2200);
    assert_matches(child.out, "xxxx\n$");
}

static int log_and_look_at_errno(const void *arg)
{
    (void)arg;
    errno = EXDEV;
    motet_info(MOTET_SUB_INIT, "%m");
    motet_warn("one");
    motet_log_version();
    close(STDOUT_FILENO); /* now the line itself fails */
    errno = EXDEV;
    motet_info(MOTET_SUB_INIT, "two");
    return errno == EXDEV ? 0 : 1;
}

static void test_errno_survives(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO",
        "NCCL_DEBUG_SUBSYS=INIT", NULL };
    child_result child = child_run(log_and_look_at_errno, NULL, environment);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.out, "Invalid cross-device link\n"), 1);
}

static int count_evaluations(const void *arg)
{
    int evaluated = 0;

    (void)arg;
    motet_info(MOTET_SUB_COLL, "%d", evaluated++);
    motet_trace_line(MOTET_SUB_INIT, "%d", evaluated++);
    return evaluated;
}

static void test_a_line_that_is_off_costs_no_argument(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO", NULL };
    child_result child = child_run(count_evaluations, NULL, environment);

    (void)state;
    assert_int_equal(child.status, 0);
}

static int log_then_reset(const void *arg)
{
    (void)arg;
    motet_log_version();
    motet_info(MOTET_SUB_INIT, "before");
    putenv((char[]){ "NCCL_DEBUG=WARN" });
    motet_info(MOTET_SUB_INIT, "not yet");
    motet_log_reset();
    motet_log_version();
    motet_log_version();
    motet_info(MOTET_SUB_INIT, "after");
    return 0;
}

static void test_reset_reads_the_variables_again(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO", NULL };
    child_result child = child_run(log_then_reset, NULL, environment);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.out, "before\n"), 1);
    assert_int_equal(child_count(child.out, "not yet\n"), 1);
    assert_int_equal(child_count(child.out, "after\n"), 0);
    assert_int_equal(child_count(child.out, "NCCL version"), 2);
}

static void test_a_wrong_level_is_said(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=LOUD", NULL };
    child_result child = child_run(log_each, NULL, environment);

    (void)state;
    assert_int_equal(child_count(child.err,
                             "NCCL_DEBUG is 'LOUD', need VERSION, WARN, INFO or TRACE"),
            1);
    assert_int_equal(child_count(child.err, "NCCL WARN"), 2);
    assert_string_equal(child.out, "");
}

static void read_whole(const char *path, char *buf, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    child_slurp(fd, buf, bytes);
}

static int log_to_two_files(const void *arg)
{
    motet_info(MOTET_SUB_INIT, "one");
    dprintf(STDOUT_FILENO, "%d\n", (int)getpid());
    motet_log_reset();
    setenv("NCCL_DEBUG_FILE", arg, 1);
    motet_info(MOTET_SUB_INIT, "two");
    motet_log_reset();
    unsetenv("NCCL_DEBUG_FILE");
    motet_info(MOTET_SUB_INIT, "three");
    motet_log_reset();
    setenv("NCCL_DEBUG_FILE", arg, 1);
    motet_info(MOTET_SUB_INIT, "four");
    return 0;
}

static void test_the_file_is_named_by_host_and_process_and_appended_to(void **state)
{
    char folder[] = "/tmp/motet-log-XXXXXX", pattern[64], first[400], second[64],
         text[512];
    char host[256], variable[96];
    const char *environment[] = { "NCCL_DEBUG=INFO", variable, NULL };
    child_result child;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(pattern, sizeof(pattern), "%s/%%h.%%p.100%%%%", folder);
    snprintf(variable, sizeof(variable), "NCCL_DEBUG_FILE=%s", pattern);
    snprintf(second, sizeof(second), "%s/second", folder);
    child = child_run(log_to_two_files, second, environment);
    assert_int_equal(child.status, 0);

    assert_int_equal(gethostname(host, sizeof(host)), 0);
    host[strcspn(host, ".")] = '\0';
    snprintf(first, sizeof(first), "%s/%s.%d.100%%", folder, host,
            (int)strtol(child.out, NULL, 10));
    read_whole(first, text, sizeof(text));
    assert_int_equal(child_count(text, "INFO one\n"), 1);
    assert_int_equal(child_count(text, "\n"), 1);
    read_whole(second, text, sizeof(text));
    assert_int_equal(child_count(text, "INFO two\n"), 1);
    assert_int_equal(child_count(text, "INFO four\n"), 1);
    assert_int_equal(child_count(text, "\n"), 2);
    assert_int_equal(child_count(child.out, "INFO three\n"), 1);

    unlink(first);
    unlink(second);
    rmdir(folder);
}

static void test_a_file_that_cannot_be_opened_leaves_stdout(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO",
        "NCCL_DEBUG_FILE=/no/such/folder/file", NULL };
    child_result child = child_run(log_each, NULL, environment);

    (void)state;
    assert_int_equal(child_count(child.out,
                             "open NCCL_DEBUG_FILE '/no/such/folder/file': "
                             "No such file or directory\n"),
            1);
    assert_int_equal(child_count(child.out, "init line\n"), 1);
}

enum { THREADS = 4, LINES = 200 };

static atomic_bool stop_resetting;

static void *log_many(void *arg)
{
    for (int i = 0; i < LINES; i++)
        motet_info(MOTET_SUB_INIT, "thread %d line %d end", *(int *)arg, i);
    return NULL;
}

static void *reset_many(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop_resetting)) {
        motet_log_reset();
        motet_log_version();
    }
    return NULL;
}

static int log_from_threads(const void *arg)
{
    pthread_t threads[THREADS], resetter;
    int numbers[THREADS];

    (void)arg;
    pthread_create(&resetter, NULL, reset_many, NULL);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, log_many, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop_resetting, true);
    pthread_join(resetter, NULL);
    return 0;
}

static void test_lines_of_threads_stay_whole_while_the_variables_are_read(void **state)
{
    char path[] = "/tmp/motet-log-XXXXXX", variable[64];
    const char *environment[] = { "NCCL_DEBUG=INFO", variable, NULL };
    static char line[4096];
    child_result child;
    int lines = 0, fd = mkstemp(path);
    FILE *file;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(variable, sizeof(variable), "NCCL_DEBUG_FILE=%s", path);
    child = child_run(log_from_threads, NULL, environment);
    if (child.status != 0)
        fail_msg("status %d: %s", child.status, child.err);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "NCCL version", 12) == 0)
            continue;
        assert_matches(line,
                "^[^:]+:[0-9]+:[0-9]+ \\[-1\\] NCCL INFO thread [0-9]+ line "
                "[0-9]+ end\n$");
        lines++;
    }
    fclose(file);
    unlink(path);
    assert_int_equal(lines, THREADS * LINES);
}

static int fork_while_resetting(const void *arg)
{
    pthread_t resetter;
    int bad = 0;

    (void)arg;
    motet_log_version(); /* a fork inside pthread_once() hangs under TSan, which has its
                            own; glibc's starts again in the child */
    pthread_create(&resetter, NULL, reset_many, NULL);
    for (int i = 0; i < 50; i++) {
        int status = 1;
        pid_t pid = fork();

        if (pid == 0) {
            alarm(10); /* a lock that stayed closed would keep it here */
            motet_log_reset();
            motet_info(MOTET_SUB_INIT, "in the child");
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            bad++;
    }
    atomic_store(&stop_resetting, true);
    pthread_join(resetter, NULL);
    return bad;
}

static void test_a_fork_at_any_moment_leaves_the_log_usable(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=WARN", NULL };
    child_result child = child_run(fork_while_resetting, NULL, environment);

    (void)state;
    if (child.status != 0)
        fail_msg("%d children were stuck: %s", child.status, child.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_and_subsystems_decide_what_is_written),
        cmocka_unit_test(test_lines_have_nccls_form),
        cmocka_unit_test(test_without_a_level_each_cause_is_warned_about_once),
        cmocka_unit_test(test_with_a_level_every_warning_is_written),
        cmocka_unit_test(test_a_line_is_one_line_whatever_it_quotes),
        cmocka_unit_test(test_errno_survives),
        cmocka_unit_test(test_a_line_that_is_off_costs_no_argument),
        cmocka_unit_test(test_reset_reads_the_variables_again),
        cmocka_unit_test(test_a_wrong_level_is_said),
        cmocka_unit_test(test_the_file_is_named_by_host_and_process_and_appended_to),
        cmocka_unit_test(test_a_file_that_cannot_be_opened_leaves_stdout),
        cmocka_unit_test(test_lines_of_threads_stay_whole_while_the_variables_are_read),
        cmocka_unit_test(test_a_fork_at_any_moment_leaves_the_log_usable),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
