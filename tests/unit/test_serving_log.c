/* SPDX-License-Identifier: Apache-2.0 */
/* What was begun and did not come back. */
#include "serving_fixture.h"

#include "trace/recorder.h"

#include <limits.h>
#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>

/* The only record's path; "" if there is none. */
static const char *record(void)
{
    static char path[PATH_MAX];
    char folder[128];
    struct dirent *entry;
    DIR *dir;

    path[0] = 0;
    snprintf(folder, sizeof(folder), "%s/stages", state_dir);
    dir = opendir(folder);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    if (dir != NULL)
        closedir(dir);
    return path;
}

static void put_record(const char *name, const char *boot, const char *host, int pid,
        unsigned long long start)
{
    char text[512], path[200], pids[64];
    ssize_t n = readlink("/proc/self/ns/pid", pids, sizeof(pids) - 1);

    pids[n > 0 ? n : 0] = 0;
    snprintf(text, sizeof(text),
            "boot %s\nhost %s\npids %s\npid %d\nstart %llu\nat 1700000000\n", boot,
            host, pids, pid, start);
    snprintf(path, sizeof(path), "/state/motet/stages/%s", name);
    put(path, text);
}

static void test_a_stage_is_on_disk_while_it_runs(void **state)
{
    char boot[64], text[1024], said[160];
    FILE *file;
    size_t n;

    (void)state;
    motet_trace_boot_id(boot, sizeof(boot));
    serving_begin("probe", "all_reduce of 0,1");
    assert_says(record(), "/stages/probe.all_reduce_of_0_1.");
    file = fopen(record(), "re");
    assert_non_null(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = 0;
    fclose(file);
    assert_says(text, boot);
    assert_says(text, "stage all_reduce of 0,1\n");
    /* it runs */
    assert_false(
            serving_did_not_return("probe", "all_reduce of 0,1", said, sizeof(said)));
    serving_end("probe", "something else");
    assert_string_not_equal(record(), "");
    serving_end("probe", "all_reduce of 0,1");
    assert_string_equal(record(), "");
    /* long ones stay apart */
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    serving_begin("probe", text);
    assert_true(strlen(strrchr(record(), '/')) < 200);
    text[sizeof(text) - 2] = 'y';
    serving_end("probe", text);
    assert_string_not_equal(record(), "");
    text[sizeof(text) - 2] = 'x';
    serving_end("probe", text);
    assert_string_equal(record(), "");
}

static void test_what_did_not_come_back_is_known(void **state)
{
    struct utsname host;
    char boot[64], said[160];
    motet_trace_process self;

    (void)state;
    motet_trace_boot_id(boot, sizeof(boot));
    assert_int_equal(uname(&host), 0);
    assert_true(motet_trace_process_read(getpid(), &self));
    put_record("smoke.a.1", "00000000-0000-0000-0000-000000000000", host.nodename, 1,
            1);
    assert_true(serving_did_not_return("smoke", "a", said, sizeof(said)));
    assert_string_equal(said,
            "at 2023-11-14 22:13:20 UTC, and this machine was started anew since");
    assert_false(serving_did_not_return("smoke", "b", said, sizeof(said)));
    assert_false(serving_did_not_return("bench", "a", said, sizeof(said)));
    put_record("smoke.b.4194305", boot, host.nodename, 4194305, 1);
    assert_true(serving_did_not_return("smoke", "b", said, sizeof(said)));
    assert_says(said, "its process (pid 4194305) is gone");
    /* this number is another process's now */
    put_record("smoke.c.1", boot, host.nodename, (int)getpid(), self.start + 1);
    assert_true(serving_did_not_return("smoke", "c", said, sizeof(said)));
    put_record("smoke.d.1", boot, host.nodename, (int)getpid(), self.start);
    assert_false(serving_did_not_return("smoke", "d", said, sizeof(said)));
    put_record("smoke.e.1", "another", "another-host", 1, 1);
    assert_false(serving_did_not_return("smoke", "e", said, sizeof(said)));
    put("/state/motet/stages/smoke.f.1", ""); /* the machine went down while writing */
    assert_true(serving_did_not_return("smoke", "f", said, sizeof(said)));
    serving_forget("smok");
    assert_true(serving_did_not_return("smoke", "a", said, sizeof(said)));
    serving_forget("smoke");
    for (const char *stage = "a\0b\0c\0f\0"; *stage != 0; stage += 2)
        assert_false(serving_did_not_return("smoke", stage, said, sizeof(said)));
    assert_string_not_equal(record(), ""); /* d runs */
}

static void test_records_that_lie_are_survived(void **state)
{
    static char text[20000];
    char said[160];

    (void)state;
    memset(text, 'x', sizeof(text));
    put_bytes("/state/motet/stages/smoke.a.1", text, sizeof(text));
    put("/state/motet/stages/smoke.b.1", "boot\nhost\npid x\nat 9223372036854775807\n");
    put_link("/state/motet/stages/smoke.c.1", "/dev/zero");
    put("/state/motet/stages/smoke.d.1/x", "");
    put("/state/motet/stages/smoke.e.1x", "");
    assert_true(serving_did_not_return("smoke", "a", said, sizeof(said)));
    assert_true(serving_did_not_return("smoke", "b", said, sizeof(said)));
    assert_says(said, "an unknown time");
    assert_false(serving_did_not_return("smoke", "c", said, sizeof(said)));
    assert_false(serving_did_not_return("smoke", "d", said, sizeof(said)));
    assert_false(serving_did_not_return("smoke", "e", said, sizeof(said)));
}

/* A child begins a stage and is ended by @p signal_number in the middle. */
static void end_in_the_middle(int signal_number)
{
    int ends[2], status;
    char word;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        serving_begin("smoke", "ranks");
        (void)!write(ends[1], "x", 1);
        sleep(30);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &word, 1), 1);
    close(ends[0]);
    assert_string_not_equal(record(), "");
    assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_number);
}

static int enter(void)
{
    return serving_enter("smoke", "ranks", false);
}

static int enter_anyway(void)
{
    return serving_enter("smoke", "ranks", true);
}

static void test_an_interrupt_counts_as_coming_back_and_a_kill_does_not(void **state)
{
    const char *text;
    int code;

    (void)state;
    end_in_the_middle(SIGINT);
    assert_string_equal(record(), "");
    end_in_the_middle(SIGTERM);
    assert_string_equal(record(), "");
    end_in_the_middle(SIGKILL);
    text = words_of(enter, &code);
    assert_int_equal(code, 2);
    assert_says(text, "motet smoke: refused: the same began at 20");
    assert_says(text, "--serving-anyway");
    (void)words_of(enter_anyway, &code);
    assert_int_equal(code, -1);
    serving_end("smoke", "ranks");
    assert_string_equal(record(), "");
    (void)words_of(enter, &code);
    assert_int_equal(code, -1);
    serving_end("smoke", "ranks");
}

static void test_without_a_folder_it_goes_on(void **state)
{
    char said[160];
    int code;

    (void)state;
    put("/file", "");
    snprintf(said, sizeof(said), "%s/file/motet", tree);
    assert_int_equal(setenv("MOTET_STATE_DIR", said, 1), 0);
    assert_says(words_of(enter, &code), "nobody will know");
    assert_int_equal(code, -1);
    assert_false(serving_did_not_return("smoke", "ranks", said, sizeof(said)));
    serving_end("smoke", "ranks");
    serving_forget("smoke");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVING_TEST(test_a_stage_is_on_disk_while_it_runs),
        SERVING_TEST(test_what_did_not_come_back_is_known),
        SERVING_TEST(test_records_that_lie_are_survived),
        SERVING_TEST(test_an_interrupt_counts_as_coming_back_and_a_kill_does_not),
        SERVING_TEST(test_without_a_folder_it_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
