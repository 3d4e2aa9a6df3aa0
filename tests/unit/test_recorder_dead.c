/* SPDX-License-Identifier: Apache-2.0 */
/* Recorder files of processes that are gone: they can be read, the newest stay, and a
 * forked child leaves its parent's alone. */
#include "recorder_fixture.h"

#include <signal.h>

static pid_t dead_pid(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

/* A file of a process that is gone; @p age orders them. */
static void plant_file(pid_t pid, unsigned n, uint64_t age_s, uint64_t heartbeat_ns)
{
    motet_trace_file file = { .magic = MOTET_TRACE_MAGIC,
        .version = MOTET_TRACE_VERSION,
        .nranks = 1,
        .pid = pid,
        .pid_start = 1,
        .created_wall_ns = motet_wall_ns() - age_s * MOTET_NS_PER_S,
        .created_ns = heartbeat_ns,
        .heartbeat_ns = heartbeat_ns };
    char path[128];
    int fd;

    motet_trace_boot_id(file.boot_id, sizeof(file.boot_id));
    snprintf(path, sizeof(path), "%s/motet-%d-%016x-0.trace", folder, (int)pid, n);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &file, sizeof(file)), sizeof(file));
    close(fd);
}

static bool have_file(pid_t pid, unsigned n)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/motet-%d-%016x-0.trace", folder, (int)pid, n);
    return access(path, F_OK) == 0;
}

static void test_the_newest_sixteen_of_dead_processes_stay(void **state)
{
    pid_t pid = dead_pid();
    motet_recorder recorder;

    (void)state;
    for (unsigned n = 0; n < 40; n++)
        plant_file(pid, n, 1000 + (n * 7) % 40, 1); /* ages 1000 … 1039 s, shuffled */
    recorder = create();
    assert_int_equal(count_files(), MOTET_TRACE_KEEP + 1);
    for (unsigned n = 0; n < 40; n++)
        assert_int_equal(have_file(pid, n), (n * 7) % 40 < MOTET_TRACE_KEEP);
    motet_recorder_destroy(&recorder, true);
}

static void test_pruning_spares_what_is_not_surely_ours_and_dead(void **state)
{
    static const char *const foreign[] = { "motet-1-2-3.trace", "motet-x", "other",
        "motet-99-000000000000feed-0.trace.bak", "motet-+9-000000000000feed-0.trace" };
    pid_t dead = dead_pid();
    char path[160];

    (void)state;
    for (unsigned n = 0; n < MOTET_TRACE_KEEP; n++)
        plant_file(dead, n, 10, 1);
    /* Older than all of them, and yet to be kept: */
    plant_file(dead, 100, 99999, motet_now_coarse_ns()); /* beats: another namespace */
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, foreign[i]);
        close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    snprintf(path, sizeof(path), "%s/motet-%d-00000000000000aa-0.trace", folder,
            (int)dead);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    motet_trace_prune(folder);
    assert_int_equal(count_files(),
            MOTET_TRACE_KEEP + 2 + (int)(sizeof(foreign) / sizeof(*foreign)));
    plant_file(dead, 101, 99999, 1); /* the same, silent: goes */
    motet_trace_prune(folder);
    assert_false(have_file(dead, 101));
    assert_true(have_file(dead, 100));
    motet_trace_prune("/nowhere/at/all");
}

static void test_a_reused_pid_counts_as_dead(void **state)
{
    motet_trace_file file = { .pid = getpid() };
    motet_trace_process self;

    (void)state;
    assert_true(motet_trace_process_read(getpid(), &self));
    assert_false(motet_trace_process_read(0, &self));
    assert_false(motet_trace_process_read(-5, &self));
    motet_trace_boot_id(file.boot_id, sizeof(file.boot_id));
    file.pid_start = self.start;
    assert_true(motet_trace_alive(&file));
    file.pid_start = self.start - 1;
    assert_false(motet_trace_alive(&file));
    file.pid_start = self.start;
    file.boot_id[0] ^= 1;
    assert_false(motet_trace_alive(&file));
}

/* Starts a child that waits in its fifth operation; returns when it does. */
static pid_t start_victim(char *path, size_t bytes)
{
    int pipe_fds[2];
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(pipe_fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        motet_recorder recorder;
        motet_trace_op *op = NULL;

        if (motet_recorder_create(&params, &args, &recorder) != MOTET_OK)
            _exit(1);
        for (uint64_t i = 1; i <= 5; i++) {
            if (op != NULL)
                motet_recorder_end(op, MOTET_OK);
            op = begin_number(&recorder, i);
        }
        motet_recorder_waits(op, 3, motet_now_ns());
        if (write(pipe_fds[1], recorder.path, sizeof(recorder.path)) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(pipe_fds[1]);
    n = read(pipe_fds[0], path, bytes);
    assert_int_equal(n, bytes);
    close(pipe_fds[0]);
    return pid;
}

static void copy_file(const char *from, const char *to)
{
    static char buf[MOTET_TRACE_OPS * 256];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ssize_t n = read(in, buf, sizeof(buf));

    assert_true(n > 0);
    assert_int_equal(write(out, buf, (size_t)n), n);
    close(in);
    close(out);
}

static void test_the_record_outlives_kill_and_can_be_copied(void **state)
{
    char path[256], copy[128];
    pid_t pid = start_victim(path, sizeof(path));
    motet_trace_snapshot *seen = read_back(path);

    (void)state;
    assert_true(motet_trace_alive(&seen->file));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    seen = read_back(path);
    assert_false(motet_trace_alive(&seen->file));
    assert_int_equal(seen->file.begun, 5);
    assert_int_equal(seen->file.op[4].state, MOTET_TRACE_WAITING);
    assert_int_equal(seen->file.op[4].waits_for, 3);
    assert_true(motet_trace_last_sign_ns(seen) >= seen->file.op[4].start_ns);
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    copy_file(path, copy);
    unlink(path);
    seen = read_back(copy);
    assert_int_equal(seen->file.pid, pid);
    assert_int_equal(seen->ops, 5);
    assert_int_equal(seen->file.op[4].waits_for, 3);
}

static void test_a_zombie_is_dead(void **state)
{
    char path[256];
    pid_t pid = start_victim(path, sizeof(path));
    siginfo_t info;

    (void)state;
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(motet_trace_alive(&read_back(path)->file));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static motet_recorder forked;

static void child_writes_after_fork(void)
{
    motet_trace_op *op = &forked.file->op[0];

    motet_recorder_after_fork(&forked);
    if (forked.file == NULL || forked.path[0] != '\0' || forked.file->rank != 1)
        _exit(1);
    motet_recorder_end(op, MOTET_OK); /* a pointer from before the fork */
    for (uint64_t n = 2; n < 10; n++)
        begin_number(&forked, n);
    motet_recorder_fail(&forked, MOTET_ERR_REMOTE, "the child's");
    motet_recorder_destroy(&forked, true);
}

static void test_a_forked_child_writes_and_removes_nothing(void **state)
{
    motet_trace_snapshot *seen;

    (void)state;
    forked = create();
    begin_number(&forked, 1);
    assert_int_equal(in_child(child_writes_after_fork), 0);
    seen = read_back(forked.path);
    assert_int_equal(seen->file.begun, 1);
    assert_int_equal(seen->file.failed, 0);
    assert_int_equal(seen->file.op[0].state, MOTET_TRACE_RUNNING);
    motet_recorder_destroy(&forked, true);
    motet_recorder_after_fork(&forked);
    assert_null(forked.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_the_newest_sixteen_of_dead_processes_stay),
        ROW(test_pruning_spares_what_is_not_surely_ours_and_dead),
        ROW(test_a_reused_pid_counts_as_dead),
        ROW(test_the_record_outlives_kill_and_can_be_copied),
        ROW(test_a_zombie_is_dead),
        ROW(test_a_forked_child_writes_and_removes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
