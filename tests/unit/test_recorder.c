/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder's writing side: where files go, what survives, what it costs. */
#include "recorder_fixture.h"

#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void test_the_file_is_private_and_says_whose_it_is(void **state)
{
    char expected[128], boot_id[40];
    struct stat status;
    motet_recorder recorder = create();
    motet_trace_snapshot *seen = read_back(recorder.path);

    (void)state;
    snprintf(expected, sizeof(expected), "%s/motet-%d-000000000000feed-1.trace", folder,
            (int)getpid());
    assert_string_equal(recorder.path, expected);
    assert_int_equal(stat(recorder.path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, sizeof(motet_trace_file));
    motet_trace_boot_id(boot_id, sizeof(boot_id));
    assert_int_equal(seen->file.rank, 1);
    assert_int_equal(seen->file.nranks, 4);
    assert_int_equal(seen->file.device, -1);
    assert_int_equal(seen->file.pid, getpid());
    assert_true(seen->file.comm == COMM);
    assert_string_equal(seen->file.comm_name, "world");
    assert_string_equal(seen->file.boot_id, boot_id);
    assert_true(strlen(seen->file.command) > 0);
    assert_true(motet_trace_alive(&seen->file));
    assert_int_equal(seen->ops, 0);
    motet_recorder_destroy(&recorder, true);
}

static void test_a_clean_end_removes_the_file_and_another_end_keeps_it(void **state)
{
    motet_recorder recorder = create();
    char path[sizeof(recorder.path)];
    motet_trace_snapshot *seen;

    (void)state;
    memcpy(path, recorder.path, sizeof(path));
    motet_recorder_destroy(&recorder, true);
    assert_int_equal(access(path, F_OK), -1);
    assert_null(recorder.file);
    motet_recorder_destroy(&recorder, true);
    motet_recorder_destroy(&recorder, false);

    recorder = create();
    begin_number(&recorder, 1);
    motet_recorder_destroy(&recorder, false);
    seen = read_back(path);
    assert_int_equal(seen->file.begun, 1);
    assert_int_equal(seen->file.closed, 0);
}

static void test_who_has_the_file_open_sees_the_clean_end(void **state)
{
    motet_recorder recorder = create();
    int fd = open(recorder.path, O_RDONLY | O_CLOEXEC);
    motet_trace_file file;

    (void)state;
    motet_recorder_destroy(&recorder, true);
    assert_int_equal(pread(fd, &file, sizeof(file), 0), sizeof(file));
    assert_int_equal(file.closed, 1);
    close(fd);
}

static void test_an_operation_is_seen_in_each_of_its_states(void **state)
{
    motet_recorder recorder = create();
    motet_trace_op *op = begin_number(&recorder, 1);
    motet_trace_snapshot *seen = read_back(recorder.path);

    (void)state;
    assert_int_equal(seen->ops, 1);
    assert_int_equal(seen->file.op[0].seq, 1);
    assert_int_equal(seen->file.op[0].count, 3);
    assert_int_equal(seen->file.op[0].state, MOTET_TRACE_RUNNING);
    assert_int_equal(seen->file.op[0].waits_for, -1);
    assert_int_equal(seen->file.op[0].collective, 1);
    motet_recorder_waits(op, 2, 12345);
    seen = read_back(recorder.path);
    assert_int_equal(seen->file.op[0].state, MOTET_TRACE_WAITING);
    assert_int_equal(seen->file.op[0].waits_for, 2);
    assert_int_equal(seen->file.op[0].wait_ns, 12345);
    motet_recorder_end(op, MOTET_OK);
    seen = read_back(recorder.path);
    assert_int_equal(seen->file.op[0].state, MOTET_TRACE_DONE);
    assert_true(seen->file.op[0].end_ns >= seen->file.op[0].start_ns);
    op = begin_number(&recorder, 2);
    motet_recorder_end(op, MOTET_ERR_REMOTE);
    seen = read_back(recorder.path);
    assert_int_equal(seen->file.op[1].state, MOTET_TRACE_FAILED);
    motet_recorder_destroy(&recorder, true);
}

static void test_the_ring_keeps_the_last_operations(void **state)
{
    const uint64_t total = 3 * MOTET_TRACE_OPS + 17;
    motet_recorder recorder = create();
    motet_trace_snapshot *seen;

    (void)state;
    for (uint64_t n = 1; n <= total; n++)
        motet_recorder_end(begin_number(&recorder, n), MOTET_OK);
    seen = read_back(recorder.path);
    assert_int_equal(seen->file.begun, total);
    assert_int_equal(seen->ops, MOTET_TRACE_OPS);
    for (unsigned i = 0; i < seen->ops; i++) {
        uint64_t n = total - MOTET_TRACE_OPS + 1 + i;

        assert_int_equal(seen->file.op[i].seq, n);
        assert_int_equal(seen->file.op[i].count, 3 * n);
        assert_int_equal(seen->file.op[i].fingerprint, n);
    }
    motet_recorder_destroy(&recorder, true);
}

static void test_sends_do_not_count_as_collectives(void **state)
{
    static const uint8_t kinds[] = { MOTET_SEND, MOTET_ALL_REDUCE, MOTET_RECV,
        MOTET_SEND, MOTET_BROADCAST, MOTET_ALL_TO_ALL_V };
    static const uint32_t expected[] = { 0, 1, 1, 1, 2, 2 };
    motet_recorder recorder = create();
    motet_trace_snapshot *seen;

    (void)state;
    for (size_t i = 0; i < sizeof(kinds); i++) {
        motet_trace_call call = call_number(i);

        call.kind = kinds[i];
        motet_recorder_begin(&recorder, &call);
    }
    seen = read_back(recorder.path);
    for (size_t i = 0; i < sizeof(kinds); i++)
        assert_int_equal(seen->file.op[i].collective, expected[i]);
    motet_recorder_destroy(&recorder, true);
}

static void test_the_first_failure_stays(void **state)
{
    motet_recorder recorder = create();
    motet_trace_snapshot *seen;

    (void)state;
    motet_recorder_fail(&recorder, MOTET_OK, "nothing");
    assert_int_equal(read_back(recorder.path)->file.failed, 0);
    motet_recorder_fail(&recorder, MOTET_ERR_REMOTE, "rank 3 died");
    motet_recorder_fail(&recorder, MOTET_ERR_USAGE, "a consequence");
    seen = read_back(recorder.path);
    assert_int_equal(seen->file.failed, MOTET_ERR_REMOTE);
    assert_string_equal(seen->file.failure, "rank 3 died");
    motet_recorder_destroy(&recorder, true);
    motet_recorder_fail(&recorder, MOTET_ERR_REMOTE, "after the end");
}

static void test_a_long_sentence_is_cut_and_ended(void **state)
{
    char text[2 * MOTET_TRACE_TEXT];
    motet_recorder recorder = create();

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    motet_recorder_fail(&recorder, MOTET_ERR_SYSTEM, text);
    assert_int_equal(strlen(read_back(recorder.path)->file.failure),
            MOTET_TRACE_TEXT - 1);
    motet_recorder_destroy(&recorder, true);
}

/* ---- where the file goes ---- */

static void test_the_folder_is_chosen_in_order(void **state)
{
    static const struct {
        const char *own, *runtime, *expected; /* "F" stands for the test's folder */
    } cases[] = {
        { "F", "/dev/shm", "F" },
        { "", "F", "F" },
        { "", "", "/dev/shm" },
        { "", "/nowhere", "/dev/shm" },
        { "", "relative", "/dev/shm" },
        { "/nowhere", "F", "" },
        { "/dev/null", "F", "" },
        { "/proc/self/fdinfo", "F", "" },
    };
    char got[256];

    (void)state;
    if (access("/dev/shm", W_OK) != 0)
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *expected = cases[i].expected;

        set_text(MOTET_P_TRACE_DIR, strcmp(cases[i].own, "F") ? cases[i].own : folder);
        set_text(MOTET_P_XDG_RUNTIME_DIR,
                strcmp(cases[i].runtime, "F") ? cases[i].runtime : folder);
        if (strcmp(expected, "F") == 0)
            expected = folder;
        motet_trace_dir(&params, got, sizeof(got));
        if (strcmp(cases[i].own, "/proc/self/fdinfo") == 0 &&
                access(cases[i].own, W_OK) == 0)
            continue; /* root may do anything, there is no such folder for it */
        if (strcmp(got, expected) != 0)
            fail_msg("case %zu: got '%s', expected '%s'", i, got, expected);
    }
}

static void check_memory_only(const char *dir)
{
    motet_recorder recorder;

    set_text(MOTET_P_TRACE_DIR, dir);
    recorder = create();
    assert_string_equal(recorder.path, "");
    motet_recorder_end(begin_number(&recorder, 1), MOTET_OK);
    motet_recorder_fail(&recorder, MOTET_ERR_REMOTE, "x");
    assert_int_equal(recorder.file->begun, 1);
    motet_recorder_destroy(&recorder, true);
    assert_null(recorder.file);
}

static void test_without_a_usable_folder_it_lives_in_memory(void **state)
{
    char deep[300];

    (void)state;
    check_memory_only("/nowhere/at/all");
    check_memory_only("/dev/null");
    check_memory_only("/proc/self");
    snprintf(deep, sizeof(deep), "%s/", folder);
    memset(deep + strlen(deep), 'd', 240);
    deep[strlen(folder) + 1 + 200] = '\0';
    assert_int_equal(mkdir(deep, 0700), 0);
    check_memory_only(deep); /* the path would not fit */
}

static void create_with_a_file_limit(void)
{
    struct rlimit limit = { 4096, 4096 };
    motet_recorder recorder;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
            motet_recorder_create(&params, &args, &recorder) != MOTET_OK)
        _exit(1);
    _exit(recorder.path[0] == '\0' && recorder.file != NULL ? 0 : 2);
}

static void test_a_full_folder_leaves_no_half_file(void **state)
{
    (void)state;
    assert_int_equal(in_child(create_with_a_file_limit), 0);
    assert_int_equal(count_files(), 0);
}

static void create_without_memory(void)
{
    struct rlimit limit = { 1, 1 };
    motet_recorder recorder = { .next = 77 };

    if (setrlimit(RLIMIT_AS, &limit) != 0 ||
            motet_recorder_create(&params, &args, &recorder) != MOTET_ERR_SYSTEM)
        _exit(1);
    _exit(recorder.next == 77 && strstr(motet_error_trail(), "rank 1") != NULL ? 0 : 2);
}

static void test_no_memory_is_a_system_error_and_leaves_no_file(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    assert_int_equal(in_child(create_without_memory), 0);
    assert_int_equal(count_files(), 0);
}

static void test_a_planted_link_is_replaced_not_followed(void **state)
{
    char victim[128], planted[160], text[16] = "";
    struct stat status;
    motet_recorder recorder;
    int fd;

    (void)state;
    snprintf(victim, sizeof(victim), "%s/victim", folder);
    snprintf(planted, sizeof(planted), "%s/motet-%d-000000000000feed-1.trace", folder,
            (int)getpid());
    fd = open(victim, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "precious", 8), 8);
    assert_int_equal(symlink(victim, planted), 0);
    recorder = create();
    assert_string_equal(recorder.path, planted);
    assert_int_equal(lstat(planted, &status), 0);
    assert_true(S_ISREG(status.st_mode));
    begin_number(&recorder, 1);
    assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 8);
    assert_string_equal(text, "precious");
    motet_recorder_destroy(&recorder, true);
    assert_int_equal(access(victim, F_OK), 0);
    close(fd);
}

static void test_a_reader_does_not_follow_links_or_wait_for_a_fifo(void **state)
{
    static motet_trace_snapshot snapshot;
    char link_path[128], fifo[128];
    motet_recorder recorder = create();

    (void)state;
    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    assert_int_equal(symlink(recorder.path, link_path), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(motet_trace_read(link_path, &snapshot), MOTET_ERR_SYSTEM);
    assert_int_equal(motet_trace_read(fifo, &snapshot), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_trace_read(folder, &snapshot), MOTET_ERR_ARGUMENT);
    motet_recorder_destroy(&recorder, true);
}

/* ---- cost ---- */

static void test_the_hot_path_allocates_nothing(void **state)
{
    motet_recorder recorder = create();
    struct mallinfo2 before = mallinfo2(), after;

    (void)state;
    for (uint64_t n = 1; n <= 1000000; n++)
        motet_recorder_end(begin_number(&recorder, n), MOTET_OK);
    after = mallinfo2();
    assert_int_equal(recorder.file->begun, 1000000);
    assert_int_equal(before.uordblks, after.uordblks);
    assert_int_equal(before.hblkhd, after.hblkhd);
    motet_recorder_destroy(&recorder, true);
}

static motet_recorder confined;

/* In strict mode every system call but read, write and exit kills. */
static void run_without_system_calls(void)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        _exit(77);
    for (uint64_t n = 1; n <= 100000; n++) {
        motet_trace_op *op = begin_number(&confined, n);

        motet_recorder_waits(op, 0, 1);
        motet_recorder_end(op, MOTET_OK);
    }
    syscall(SYS_exit, 0);
}

static void only_read_the_clock(void)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        _exit(77);
    syscall(SYS_exit, motet_now_coarse_ns() == 0);
}

static void test_the_hot_path_makes_no_system_call(void **state)
{
    (void)state;
    /* Where even the coarse clock is a system call there is nothing to show. */
    if (SANITIZED || in_child(only_read_the_clock) != 0)
        skip();
    confined = create();
    assert_int_equal(in_child(run_without_system_calls), 0);
    assert_int_equal(confined.file->begun, 100000);
    motet_recorder_destroy(&confined, true);
}

/* ---- a reader at any moment ---- */

#define LIVE_OPS (SANITIZED ? 300000u : 2000000u)

static void *write_operations(void *arg)
{
    motet_recorder *recorder = arg;

    for (uint64_t n = 1; n <= LIVE_OPS; n++) {
        motet_trace_op *op = begin_number(recorder, n);

        if (n % 5 == 0)
            motet_recorder_waits(op, (int)(n % 4), n);
        motet_recorder_end(op, MOTET_OK);
    }
    motet_recorder_fail(recorder, MOTET_ERR_REMOTE, "the end of the test");
    return NULL;
}

static void check_live(const motet_trace_snapshot *seen)
{
    uint64_t before = 0;

    for (unsigned i = 0; i < seen->ops; i++) {
        const motet_trace_op *op = &seen->file.op[i];

        assert_true(op->seq > before);
        assert_true(op->count == 3 * op->seq);
        assert_true(op->fingerprint == (uint32_t)op->seq);
        assert_true(op->algorithm == op->seq % 7);
        assert_true(op->collective == (uint32_t)op->seq);
        before = op->seq;
    }
    assert_true(seen->file.begun >= before);
    if (seen->file.failed != 0)
        assert_string_equal(seen->file.failure, "the end of the test");
}

static void test_no_torn_record_is_ever_seen(void **state)
{
    static motet_trace_snapshot mapped;
    motet_recorder recorder = create();
    unsigned long records = 0;
    pthread_t writer;

    (void)state;
    assert_int_equal(pthread_create(&writer, NULL, write_operations, &recorder), 0);
    do {
        assert_int_equal(motet_trace_parse(recorder.file, sizeof(motet_trace_file),
                                 &mapped),
                MOTET_OK);
        check_live(&mapped);
        check_live(read_back(recorder.path));
        records += mapped.ops;
    } while (mapped.file.failed == 0);
    pthread_join(writer, NULL);
    assert_true(records > 0);
    motet_recorder_destroy(&recorder, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_the_file_is_private_and_says_whose_it_is),
        ROW(test_a_clean_end_removes_the_file_and_another_end_keeps_it),
        ROW(test_who_has_the_file_open_sees_the_clean_end),
        ROW(test_an_operation_is_seen_in_each_of_its_states),
        ROW(test_the_ring_keeps_the_last_operations),
        ROW(test_sends_do_not_count_as_collectives),
        ROW(test_the_first_failure_stays),
        ROW(test_a_long_sentence_is_cut_and_ended),
        ROW(test_the_folder_is_chosen_in_order),
        ROW(test_without_a_usable_folder_it_lives_in_memory),
        ROW(test_a_full_folder_leaves_no_half_file),
        ROW(test_no_memory_is_a_system_error_and_leaves_no_file),
        ROW(test_a_planted_link_is_replaced_not_followed),
        ROW(test_a_reader_does_not_follow_links_or_wait_for_a_fifo),
        ROW(test_the_hot_path_allocates_nothing),
        ROW(test_the_hot_path_makes_no_system_call),
        ROW(test_no_torn_record_is_ever_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
