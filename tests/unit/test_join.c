/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining a rendezvous, with threads and with processes as ranks: that it works, what
 * everybody hears when it does not, and that nothing is left behind. Each case with
 * its own bound in time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "bootstrap/id.h"
#include "join_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing may be left after any test: descriptors, services, socket files. */
static int fds_before, files_before;

static int before_each(void **state)
{
    (void)state;
    fds_before = count_fds();
    files_before = count_socket_files();
    return 0;
}

static int after_each(void **state)
{
    (void)state;
    check_no_service(7000); /* a failed rendezvous may wait 5 s for latecomers */
    assert_int_equal(count_fds(), fds_before);
    assert_int_equal(count_socket_files(), files_before);
    return 0;
}

/* ---- success ---- */

static void check_size(int nranks, bool processes)
{
    group *g = group_plan(nranks);

    group_make_id(g);
    if (processes)
        group_run_processes(g);
    else
        group_run_threads(g);
    group_check_success(g);
    check_no_service(1000);
    group_free(g);
}

static void test_ranks_meet_as_threads(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 8; nranks++)
        check_size(nranks, false);
}

static void test_ranks_meet_as_processes(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 8; nranks++) {
        if (nranks == 1)
            continue; /* the id's service lives here: see the test of its own */
        check_size(nranks, true);
    }
}

static void test_the_only_rank_needs_nobody_and_ends_the_service(void **state)
{
    group *g = group_plan(1);

    (void)state;
    group_make_id(g);
    assert_int_equal(motet_bootstrap_services(), 1);
    group_run_threads(g);
    group_check_success(g);
    assert_int_equal(motet_bootstrap_services(), 0);
    group_free(g);
}

static void test_the_roster_names_the_processes(void **state)
{
    static const char *const none[] = { NULL };
    motet_id id;
    motet_join_args args = { .rank = 1, .nranks = 2 };
    motet_roster roster;
    pid_t child;

    (void)state;
    assert_int_equal(motet_id_create(test_params(none), &id), MOTET_OK);
    child = fork();
    if (child == 0) {
        args.rank = 0;
        motet_bootstrap_after_fork();
        _exit(motet_bootstrap_join(test_params(none), &id, &args, &roster) == MOTET_OK
                        ? 0
                        : 1);
    }
    args.deadline_ns = motet_deadline_after_s(20);
    assert_int_equal(motet_bootstrap_join(test_params(none), &id, &args, &roster),
            MOTET_OK);
    assert_int_equal(roster.rank[0].pid, child);
    assert_int_equal(roster.rank[1].pid, getpid());
    motet_roster_release(&roster);
    waitpid(child, NULL, 0);
}

static void test_late_ranks_are_waited_for(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[2].delay_ms = 700;
    group_make_id(g);
    group_run_processes(g);
    group_check_success(g);
    assert_true(g->outcome[0].took_ms >= 500);
    group_free(g);
}

static void test_two_hundred_joins_leave_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        check_size(2, false);
    assert_int_equal(count_fds(), fds_before);
}

/* Ten groups, one after the other; the number that went wrong. */
static void *join_loop(void *arg)
{
    int *wrong = arg;

    for (int i = 0; i < 10; i++) {
        group *g = group_plan(3);

        group_make_id(g);
        group_run_threads(g);
        for (int r = 0; r < 3; r++)
            *wrong += g->outcome[r].values_right ? 0 : 1;
        group_free(g);
    }
    return NULL;
}

static void test_several_rendezvous_at_once_do_not_mix(void **state)
{
    pthread_t thread[4];
    int wrong[4] = { 0 };

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, join_loop, &wrong[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
}

static void test_a_join_of_two_takes_milliseconds(void **state)
{
    uint64_t best_ms = UINT64_MAX;

    (void)state;
    for (int i = 0; i < 10; i++) {
        group *g = group_plan(2);

        group_make_id(g);
        group_run_threads(g);
        group_check_success(g);
        if (g->outcome[1].took_ms < best_ms)
            best_ms = g->outcome[1].took_ms;
        group_free(g);
    }
    if (best_ms > 10)
        fail_msg("the best of 10 joins took %llu ms", (unsigned long long)best_ms);
}

/* ---- failures that everybody hears ---- */

static void check_failure(group *g, bool processes, motet_result result,
        const char *part, uint64_t within_ms)
{
    uint64_t start_ms = test_now_ms(), took_ms;

    group_make_id(g);
    if (processes)
        group_run_processes(g);
    else
        group_run_threads(g);
    took_ms = test_now_ms() - start_ms;
    group_check_failure(g, result, part);
    if (took_ms > within_ms)
        fail_msg("took %llu ms, more than %llu", (unsigned long long)took_ms,
                (unsigned long long)within_ms);
    group_free(g);
}

static void test_an_absent_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int processes = 0; processes < 2; processes++) {
        group *g = group_plan(4);

        g->plan[1].absent = g->plan[3].absent = true;
        g->plan[0].deadline_ms = g->plan[2].deadline_ms = 1000;
        check_failure(g, processes != 0, MOTET_ERR_REMOTE,
                "ranks 1, 3 of 4 did not join within 1 s", 2500);
    }
}

static void test_the_smallest_deadline_counts_for_all(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[2].absent = true;
    g->plan[1].deadline_ms = 400;
    check_failure(g, false, MOTET_ERR_REMOTE, "rank 2 of 3 did not join within ", 2000);
}

static void test_a_latecomer_hears_why_the_others_gave_up(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[0].deadline_ms = 300;
    g->plan[2].delay_ms = 1000;
    check_failure(g, false, MOTET_ERR_REMOTE, "rank 2 of 3 did not join within ", 3000);
    check_no_service(500); /* all are accounted for: it waits no longer */
}

static void test_an_odd_setting_is_named(void **state)
{
    (void)state;
    for (int processes = 0; processes < 2; processes++) {
        group *g = group_plan(3);

        g->plan[1].settings = "path=copy\nchunk=16384\n";
        check_failure(g, processes != 0, MOTET_ERR_USAGE,
                "rank 1 has 'path' = copy, but ranks 0, 2 have 'path' = shared", 1000);
    }
}

static void test_a_rank_that_comes_twice_is_named(void **state)
{
    (void)state;
    for (int processes = 0; processes < 2; processes++) {
        group *g = group_plan(3);

        g->plan[2].rank = 1;
        check_failure(g, processes != 0, MOTET_ERR_USAGE, "rank 1 joined twice: pid ",
                1000);
    }
}

static void test_another_nranks_is_named(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[2].nranks = 4;
    check_failure(g, false, MOTET_ERR_USAGE,
            "rank 2 was given nranks 4, but ranks 0, 1 were given nranks 3", 2500);
}

static void test_other_host_ids_are_several_nodes(void **state)
{
    group *g = group_plan(4);

    (void)state;
    g->plan[0].hostid = g->plan[1].hostid = "alpha";
    g->plan[2].hostid = g->plan[3].hostid = "beta";
    check_failure(g, true, MOTET_ERR_USAGE,
            "ranks are on several nodes (ranks 0, 1 on alpha, ranks 2, 3 on beta), "
            "which "
            "this version of motet does not support yet: run all ranks on one node",
            1000);
}

static void test_a_killed_rank_is_named_to_all_also_to_latecomers(void **state)
{
    group *g = group_plan(4);
    char part[64];

    (void)state;
    g->plan[2].dies = true;
    g->plan[3].delay_ms = 1000;
    group_make_id(g);
    group_run_processes(g);
    snprintf(part, sizeof(part), "rank 2 (pid %d on ", (int)g->outcome[2].pid);
    group_check_failure(g, MOTET_ERR_REMOTE, part);
    group_check_failure(g, MOTET_ERR_REMOTE, ") left while joining");
    assert_true(g->outcome[0].took_ms < 1000);
    group_free(g);
}

static void test_a_cancelled_join_ends_at_once(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[1].cancel_ms = 200;
    g->plan[2].absent = true;
    group_make_id(g);
    group_run_threads(g);
    rank_check_failure(g, 1, MOTET_ERR_USAGE,
            "rank 1 of 3 was aborted while it joined");
    rank_check_failure(g, 0, MOTET_ERR_REMOTE, "rank 1 (pid ");
    assert_true(g->outcome[1].took_ms >= 190);
    if (g->outcome[1].took_ms > 300 || g->outcome[0].took_ms > 400)
        fail_msg("took %llu and %llu ms", (unsigned long long)g->outcome[1].took_ms,
                (unsigned long long)g->outcome[0].took_ms);
    group_free(g);
}

static void *cancel_id_later(void *arg)
{
    group *g = arg;

    test_sleep_ms(200);
    motet_id_cancel(&g->id);
    return NULL;
}

static void test_a_cancelled_id_wakes_those_who_wait(void **state)
{
    group *g = group_plan(3);
    pthread_t thread;

    (void)state;
    g->plan[2].absent = true;
    group_make_id(g);
    assert_int_equal(pthread_create(&thread, NULL, cancel_id_later, g), 0);
    group_run_threads(g);
    pthread_join(thread, NULL);
    group_check_failure(g, MOTET_ERR_REMOTE, "the id was cancelled by the process");
    assert_int_equal(motet_bootstrap_services(), 0);
    group_free(g);
}

static void test_an_id_whose_service_is_gone_says_so_at_once(void **state)
{
    group *g = group_plan(2);

    (void)state;
    group_make_id(g);
    motet_id_cancel(&g->id);
    motet_id_cancel(&g->id); /* twice is once */
    group_run_threads(g);
    for (int i = 0; i < 2; i++) {
        rank_check_failure(g, i, MOTET_ERR_REMOTE, "nobody answers for this id");
        rank_check_failure(g, i, MOTET_ERR_REMOTE, "Connection refused");
        assert_true(g->outcome[i].took_ms < 500);
    }
    group_free(g);
}

/* The id's process, separate from all ranks, is killed: before or while they wait. */
static void check_root_killed(bool while_waiting, const char *part)
{
    group *g = group_plan(2);
    motet_id *id = mmap(NULL, sizeof(*id), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2];
    char byte;
    pid_t root, killer = -1;

    assert_int_equal(pipe(ready), 0);
    root = fork();
    if (root == 0) {
        static const char *const none[] = { NULL };

        if (motet_id_create(test_params(none), id) != MOTET_OK)
            _exit(1);
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    g->id = *id;
    munmap(id, sizeof(*id));
    g->plan[1].absent = while_waiting;
    if (while_waiting) {
        killer = fork();
        if (killer == 0) {
            test_sleep_ms(200);
            kill(root, SIGKILL);
            _exit(0);
        }
    } else {
        kill(root, SIGKILL);
        waitpid(root, NULL, 0);
    }
    group_run_threads(g);
    for (int i = 0; i < (while_waiting ? 1 : 2); i++)
        rank_check_failure(g, i, MOTET_ERR_REMOTE, part); /* each saw it for itself */
    assert_true(g->outcome[0].took_ms < 1500);
    if (while_waiting) {
        waitpid(killer, NULL, 0);
        waitpid(root, NULL, 0);
    }
    group_free(g);
}

static void test_a_killed_root_is_named_to_those_who_come(void **state)
{
    (void)state;
    check_root_killed(false,
            "nobody answers for this id: the process that made the id (pid ");
}

static void test_a_killed_root_is_named_to_those_who_wait(void **state)
{
    (void)state;
    check_root_killed(true, "ended before all ranks had joined");
}

static void test_a_killed_root_that_is_a_rank_is_named_by_rank(void **state)
{
    motet_id *id = mmap(NULL, sizeof(*id), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static const char *const none[] = { NULL };
    motet_join_args args = { .rank = 0, .nranks = 3 };
    motet_roster roster;
    int ready[2];
    char byte, part[64];
    pid_t root, killer;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    root = fork();
    if (root == 0) {
        args.rank = 2;
        if (motet_id_create(test_params(none), id) != MOTET_OK)
            _exit(1);
        (void)!write(ready[1], "x", 1);
        (void)!motet_bootstrap_join(test_params(none), id, &args, &roster);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    killer = fork();
    if (killer == 0) {
        test_sleep_ms(300);
        kill(root, SIGKILL);
        _exit(0);
    }
    args.deadline_ns = motet_deadline_after_s(20);
    assert_int_equal(motet_bootstrap_join(test_params(none), id, &args, &roster),
            MOTET_ERR_REMOTE);
    snprintf(part, sizeof(part), "rank 2 (pid %d on ", (int)root);
    assert_non_null(strstr(motet_error_trail(), part));
    assert_non_null(strstr(motet_error_trail(), "ended before all ranks had joined"));
    waitpid(killer, NULL, 0);
    waitpid(root, NULL, 0);
    munmap(id, sizeof(*id));
}

static void test_a_stopped_root_does_not_hold_a_rank_for_ever(void **state)
{
    group *g = group_plan(2);
    motet_id *id = mmap(NULL, sizeof(*id), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static const char *const none[] = { NULL };
    pid_t root;
    int status;

    (void)state;
    root = fork();
    if (root == 0) {
        if (motet_id_create(test_params(none), id) != MOTET_OK)
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(root, &status, WUNTRACED), root);
    assert_true(WIFSTOPPED(status));
    g->id = *id;
    g->plan[1].absent = true;
    g->plan[0].deadline_ms = 300;
    group_run_threads(g);
    rank_check_failure(g, 0, MOTET_ERR_REMOTE,
            "does not answer: no word within 300 ms and 2 s more");
    assert_in_range(g->outcome[0].took_ms, 2200, 4000);
    kill(root, SIGKILL);
    waitpid(root, NULL, 0);
    munmap(id, sizeof(*id));
    /* nobody else can remove what the killed root left in /tmp but a rank that comes */
    memset(&g->outcome[0], 0, sizeof(g->outcome[0]));
    group_run_threads(g);
    rank_check_failure(g, 0, MOTET_ERR_REMOTE, "nobody answers for this id");
    group_free(g);
}

/* ---- bad input ---- */

static void test_bad_arguments_are_refused(void **state)
{
    static const struct {
        int rank, nranks, nfds;
        size_t blob_bytes;
        motet_result result;
        const char *sentence;
    } cases[] = {
        { 0, 0, 0, 0, MOTET_ERR_ARGUMENT, "nranks is 0, need 1 to 128" },
        { 0, 129, 0, 0, MOTET_ERR_ARGUMENT, "nranks is 129, need 1 to 128" },
        { -1, 2, 0, 0, MOTET_ERR_ARGUMENT, "rank is -1, need 0 to 1" },
        { 2, 2, 0, 0, MOTET_ERR_ARGUMENT, "rank is 2, need 0 to 1" },
        { 0, 2, 4, 0, MOTET_ERR_INTERNAL, "4 descriptors" },
        { 0, 2, 0, 1025, MOTET_ERR_INTERNAL, "1025 bytes" },
    };
    static const char *const none[] = { NULL };
    motet_id id = { { 0 } };
    motet_roster roster;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        motet_join_args args = { .rank = cases[i].rank,
            .nranks = cases[i].nranks,
            .nfds = cases[i].nfds,
            .blob_bytes = cases[i].blob_bytes };

        assert_int_equal(motet_bootstrap_join(test_params(none), &id, &args, &roster),
                cases[i].result);
        if (strstr(motet_error_trail(), cases[i].sentence) == NULL)
            fail_msg("'%s' without '%s'", motet_error_trail(), cases[i].sentence);
    }
    motet_join_args args = { .rank = 0, .nranks = 2 };

    assert_int_equal(motet_bootstrap_join(test_params(none), &id, &args, &roster),
            MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "all 128 bytes are zero"));
    motet_id_cancel(&id); /* not one of ours: ignored */
}

/* ---- strangers ---- */

/* Connect to the service of an id, over TCP if it has an address, else Unix. */
static int connect_raw(const motet_id *id, bool tcp)
{
    motet_id_fields fields;
    motet_unix_name name;
    int fd;

    assert_int_equal(motet_id_decode(id, &fields), MOTET_OK);
    if (!tcp) {
        motet_id_abstract_name(&fields, &name);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&name.addr, name.bytes),
                0);
        return fd;
    }
    struct sockaddr_in to = { .sin_family = AF_INET,
        .sin_port = htons(fields.addr[0].port) };

    if (fields.naddrs == 0 || fields.addr[0].family != AF_INET)
        return -1;
    memcpy(&to.sin_addr, fields.addr[0].ip, 4);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* What the service answers before it closes; its length. */
static ssize_t read_all(int fd, char *buf, size_t bytes)
{
    struct timeval limit = { .tv_sec = 8 };
    size_t have = 0;
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    while (have < bytes && (n = recv(fd, buf + have, bytes - have, 0)) > 0)
        have += (size_t)n;
    return (ssize_t)have;
}

static void test_strangers_are_turned_away_and_delay_nobody(void **state)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    group *g = group_plan(2);
    int fd[8];
    uint8_t hello[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX], noise[512];
    motet_hello words = { .rank = 1, .nranks = 2, .host = "x", .node = "x" };
    uint8_t wrong[MOTET_SECRET_BYTES] = "not the secret";
    size_t n = motet_wire_put_hello(hello, sizeof(hello), &words, wrong);
    char answer[2048];

    (void)state;
    group_make_id(g);
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 131 + 17);
    for (int i = 0; i < 8; i++) {
        fd[i] = connect_raw(&g->id, i >= 4);
        if (fd[i] < 0)
            continue; /* no IPv4 interface here: the Unix half is tested */
        if (i % 4 == 0)
            assert_int_equal(send(fd[i], get, sizeof(get) - 1, MSG_NOSIGNAL),
                    sizeof(get) - 1);
        else if (i % 4 == 1)
            assert_int_equal(send(fd[i], noise, sizeof(noise), MSG_NOSIGNAL),
                    sizeof(noise));
        else if (i % 4 == 2)
            assert_int_equal(send(fd[i], hello, n, MSG_NOSIGNAL), n);
        /* the last says nothing at all */
    }
    group_run_threads(g);
    group_check_success(g);
    assert_true(g->outcome[0].took_ms < 500);
    for (int i = 0; i < 8; i++) {
        ssize_t got;

        if (fd[i] < 0)
            continue;
        memset(answer, 0, sizeof(answer));
        got = read_all(fd[i], answer, sizeof(answer));
        if (i % 4 == 2) { /* told why, and not told our secret */
            motet_id_fields fields;

            assert_int_equal(motet_id_decode(&g->id, &fields), MOTET_OK);
            assert_non_null(memmem(answer, (size_t)got, "belongs to another id", 21));
            assert_null(memmem(answer, (size_t)got, fields.secret, MOTET_SECRET_BYTES));
        } else {
            assert_int_equal(got, 0);
        }
        close(fd[i]);
    }
    group_free(g);
}

static void test_half_a_hello_is_dropped_after_5_s(void **state)
{
    group *g = group_plan(2);
    motet_id_fields fields;
    uint8_t hello[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX];
    motet_hello words = { .rank = 1, .nranks = 2, .host = "x", .node = "x" };
    uint64_t start_ms = test_now_ms();
    char byte;
    int fd;

    (void)state;
    group_make_id(g);
    assert_int_equal(motet_id_decode(&g->id, &fields), MOTET_OK);
    assert_true(motet_wire_put_hello(hello, sizeof(hello), &words, fields.secret) > 60);
    fd = connect_raw(&g->id, false);
    assert_int_equal(send(fd, hello, 60, MSG_NOSIGNAL), 60);
    assert_int_equal(read_all(fd, &byte, 1), 0);
    assert_in_range(test_now_ms() - start_ms, 4500, 6500);
    close(fd);
    group_run_threads(g); /* it was no rank: the real ones still meet */
    group_check_success(g);
    group_free(g);
}

static void test_a_crowd_of_silent_strangers_makes_room(void **state)
{
    enum { CROWD = 260 }; /* more than the service holds */
    group *g = group_plan(3);
    int fd[CROWD];

    (void)state;
    group_make_id(g);
    for (int i = 0; i < CROWD; i++)
        fd[i] = connect_raw(&g->id, false);
    group_run_threads(g);
    group_check_success(g);
    assert_true(g->outcome[0].took_ms < 2000);
    for (int i = 0; i < CROWD; i++)
        close(fd[i]);
    group_free(g);
}

static void test_a_rank_of_another_wire_version_is_named(void **state)
{
    group *g = group_plan(2);
    motet_id_fields fields;
    uint8_t hello[MOTET_WIRE_HEADER_BYTES + 100] = { 0 };
    motet_wire_writer w = { .at = hello + MOTET_WIRE_HEADER_BYTES,
        .end = hello + sizeof(hello) };
    char answer[2048] = "";
    ssize_t got;
    int fd;

    (void)state;
    group_make_id(g);
    assert_int_equal(motet_id_decode(&g->id, &fields), MOTET_OK);
    motet_put_u32(&w, 1); /* rank, nranks, then whatever a later version may say */
    motet_put_u32(&w, 2);
    motet_wire_put_header(hello, MOTET_WIRE_HELLO, 100, fields.secret);
    hello[4] = 9;
    fd = connect_raw(&g->id, false);
    assert_int_equal(send(fd, hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    g->plan[1].absent = true;
    group_run_threads(g);
    rank_check_failure(g, 0, MOTET_ERR_USAGE,
            "rank 1 speaks wire version 9, but rank 0 speaks wire version 1");
    got = read_all(fd, answer, sizeof(answer));
    assert_non_null(memmem(answer, (size_t)got, "speaks wire version 9", 21));
    close(fd);
    group_free(g);
}

/* ---- the path socket ---- */

static void test_the_path_socket_is_private_and_goes_away(void **state)
{
    static const char *const none[] = { NULL };
    motet_id_fields fields;
    motet_unix_name name;
    motet_id id;
    struct stat st;

    (void)state;
    assert_int_equal(motet_id_create(test_params(none), &id), MOTET_OK);
    assert_int_equal(motet_id_decode(&id, &fields), MOTET_OK);
    assert_true(motet_id_path_name(&fields, test_params(none), fields.folder, &name));
    assert_int_equal(strncmp(name.addr.sun_path, "/tmp/motet-", 11), 0);
    assert_int_equal(stat(name.addr.sun_path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    motet_id_cancel(&id);
    assert_int_equal(stat(name.addr.sun_path, &st), -1);
}

static void test_xdg_runtime_dir_is_used_if_it_can_be_written(void **state)
{
    char dir[] = "/tmp/join-test-XXXXXX";
    const char *env[] = { "XDG_RUNTIME_DIR", dir, NULL };
    const char *bad[] = { "XDG_RUNTIME_DIR", "/nonexistent", NULL };
    motet_id_fields fields;
    motet_id id;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(motet_id_create(test_params(env), &id), MOTET_OK);
    assert_int_equal(motet_id_decode(&id, &fields), MOTET_OK);
    assert_int_equal(fields.folder, MOTET_FOLDER_XDG);
    motet_id_cancel(&id);
    assert_int_equal(rmdir(dir), 0); /* empty again */
    assert_int_equal(motet_id_create(test_params(bad), &id), MOTET_OK);
    assert_int_equal(motet_id_decode(&id, &fields), MOTET_OK);
    assert_int_equal(fields.folder, MOTET_FOLDER_TMP);
    motet_id_cancel(&id);
}

static void test_exit_with_a_service_alive_leaves_no_file(void **state)
{
    static const char *const none[] = { NULL };
    pid_t child;
    int status;

    (void)state;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        motet_id id;

        fclose(stdout); /* its buffer is the parent's */
        exit(motet_id_create(test_params(none), &id) == MOTET_OK ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(count_socket_files(), files_before);
}

static void test_a_forked_child_holds_nothing_and_removes_nothing(void **state)
{
    static const char *const none[] = { NULL };
    motet_id id;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(motet_id_create(test_params(none), &id), MOTET_OK);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        bool held = count_fds() > fds_before;

        motet_bootstrap_after_fork();
        _exit(held && motet_bootstrap_services() == 0 && count_fds() == fds_before ? 0
                                                                                   : 1);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(motet_bootstrap_services(), 1);
    assert_int_equal(count_socket_files(), files_before + 1);
    motet_id_cancel(&id);
}

/* ---- ports and fixed addresses ---- */

/* A TCP port that is free now: bound and closed again. */
static int busy_port(int *fd_out, bool keep)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t bytes = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    if (keep)
        *fd_out = fd;
    else
        close(fd);
    return ntohs(at.sin_port);
}

static void test_a_port_range_is_kept_to(void **state)
{
    int fd, busy = busy_port(&fd, true), low = busy < 65535 ? busy : busy - 1;
    char range[32], port[16];
    const char *env[] = { "MOTET_PORT_RANGE", range, NULL };
    motet_id_fields fields;
    motet_id id;

    (void)state;
    snprintf(range, sizeof(range), "%d-%d", low, low + 1 < 65535 ? low + 20 : low + 1);
    assert_int_equal(motet_id_create(test_params(env), &id), MOTET_OK);
    assert_int_equal(motet_id_decode(&id, &fields), MOTET_OK);
    for (int i = 0; i < fields.naddrs; i++)
        assert_in_range(fields.addr[i].port, low, low + 20);
    motet_id_cancel(&id);
    snprintf(range, sizeof(range), "%d", busy);
    if (fields.naddrs > 0) {
        assert_int_equal(motet_id_create(test_params(env), &id), MOTET_ERR_SYSTEM);
        snprintf(port, sizeof(port), "%d-%d", busy, busy);
        assert_non_null(strstr(motet_error_trail(), "no free TCP port"));
        assert_non_null(strstr(motet_error_trail(), port));
    }
    snprintf(range, sizeof(range), "%d-x", busy);
    assert_int_equal(motet_id_create(test_params(env), &id), MOTET_ERR_ARGUMENT);
    close(fd);
}

static void check_fixed(bool processes, uint64_t rank_0_delay_ms)
{
    group *g = group_plan(3);
    char address[32];

    snprintf(address, sizeof(address), "127.0.0.1:%d", busy_port(NULL, false));
    for (int i = 0; i < 3; i++)
        g->plan[i].comm_id = address;
    g->plan[0].delay_ms = rank_0_delay_ms;
    for (int again = 0; again < 5; again++) { /* the next one at the same address */
        memset(g->outcome, 0, GROUP_MAX * sizeof(*g->outcome));
        if (processes)
            group_run_processes(g);
        else
            group_run_threads(g);
        group_check_success(g);
    }
    check_no_service(1000);
    group_free(g);
}

static void test_a_fixed_address_works_whoever_comes_first(void **state)
{
    (void)state;
    check_fixed(false, 0);
    check_fixed(true, 0);
    check_fixed(true, 60);
}

static void test_a_fixed_address_that_nobody_opens_says_so(void **state)
{
    group *g = group_plan(2);
    char address[32];

    (void)state;
    snprintf(address, sizeof(address), "127.0.0.1:%d", busy_port(NULL, false));
    for (int i = 0; i < 2; i++) {
        g->plan[i].comm_id = address;
        g->plan[i].deadline_ms = 400;
    }
    g->plan[0].absent = true;
    group_run_threads(g);
    rank_check_failure(g, 1, MOTET_ERR_REMOTE,
            "rank 0 did not open the rendezvous of NCCL_COMM_ID within 400 ms (");
    rank_check_failure(g, 1, MOTET_ERR_REMOTE, address);
    assert_in_range(g->outcome[1].took_ms, 390, 1500);
    group_free(g);
}

static void test_a_fixed_port_that_is_taken_says_so(void **state)
{
    group *g = group_plan(2);
    char address[32];
    int fd;

    (void)state;
    snprintf(address, sizeof(address), "127.0.0.1:%d", busy_port(&fd, true));
    g->plan[0].comm_id = address;
    g->plan[1].absent = true;
    group_run_threads(g);
    rank_check_failure(g, 0, MOTET_ERR_SYSTEM,
            "listen on NCCL_COMM_ID's address 127.0.0.1");
    rank_check_failure(g, 0, MOTET_ERR_SYSTEM, "Address already in use");
    close(fd);
    group_free(g);
}

static void test_a_failed_fixed_rendezvous_can_be_tried_again(void **state)
{
    group *g = group_plan(2);
    char address[32];

    (void)state;
    snprintf(address, sizeof(address), "127.0.0.1:%d", busy_port(NULL, false));
    for (int i = 0; i < 2; i++)
        g->plan[i].comm_id = address;
    g->plan[1].settings = "path=copy\nchunk=16384\n";
    group_run_threads(g);
    group_check_failure(g, MOTET_ERR_USAGE, "rank 1 has 'path' = copy");
    g->plan[1].settings = NULL;
    memset(g->outcome, 0, GROUP_MAX * sizeof(*g->outcome));
    group_run_threads(g);
    group_check_success(g);
    group_free(g);
}

/* ---- out of descriptors ---- */

static void test_a_rank_out_of_descriptors_says_so(void **state)
{
    static const char *const none[] = { NULL };
    motet_id id;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(motet_id_create(test_params(none), &id), MOTET_OK);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        motet_join_args args = { .rank = 0, .nranks = 2 };
        motet_roster roster;
        struct rlimit limit = { 3, 3 };

        motet_bootstrap_after_fork();
        args.deadline_ns = motet_deadline_after_s(5);
        setrlimit(RLIMIT_NOFILE, &limit);
        if (motet_bootstrap_join(test_params(none), &id, &args, &roster) !=
                        MOTET_ERR_SYSTEM ||
                strstr(motet_error_trail(), "see ulimit -n") == NULL)
            _exit(1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    motet_id_cancel(&id);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, before_each, after_each)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_ranks_meet_as_threads),
        CASE(test_ranks_meet_as_processes),
        CASE(test_the_only_rank_needs_nobody_and_ends_the_service),
        CASE(test_the_roster_names_the_processes),
        CASE(test_late_ranks_are_waited_for),
        CASE(test_two_hundred_joins_leave_nothing),
        CASE(test_several_rendezvous_at_once_do_not_mix),
        CASE(test_a_join_of_two_takes_milliseconds),
        CASE(test_an_absent_rank_is_named_at_the_deadline),
        CASE(test_the_smallest_deadline_counts_for_all),
        CASE(test_a_latecomer_hears_why_the_others_gave_up),
        CASE(test_an_odd_setting_is_named),
        CASE(test_a_rank_that_comes_twice_is_named),
        CASE(test_another_nranks_is_named),
        CASE(test_other_host_ids_are_several_nodes),
        CASE(test_a_killed_rank_is_named_to_all_also_to_latecomers),
        CASE(test_a_cancelled_join_ends_at_once),
        CASE(test_a_cancelled_id_wakes_those_who_wait),
        CASE(test_an_id_whose_service_is_gone_says_so_at_once),
        CASE(test_a_killed_root_is_named_to_those_who_come),
        CASE(test_a_killed_root_is_named_to_those_who_wait),
        CASE(test_a_killed_root_that_is_a_rank_is_named_by_rank),
        CASE(test_a_stopped_root_does_not_hold_a_rank_for_ever),
        CASE(test_bad_arguments_are_refused),
        CASE(test_strangers_are_turned_away_and_delay_nobody),
        CASE(test_half_a_hello_is_dropped_after_5_s),
        CASE(test_a_crowd_of_silent_strangers_makes_room),
        CASE(test_a_rank_of_another_wire_version_is_named),
        CASE(test_the_path_socket_is_private_and_goes_away),
        CASE(test_xdg_runtime_dir_is_used_if_it_can_be_written),
        CASE(test_exit_with_a_service_alive_leaves_no_file),
        CASE(test_a_forked_child_holds_nothing_and_removes_nothing),
        CASE(test_a_port_range_is_kept_to),
        CASE(test_a_fixed_address_works_whoever_comes_first),
        CASE(test_a_fixed_address_that_nobody_opens_says_so),
        CASE(test_a_fixed_port_that_is_taken_says_so),
        CASE(test_a_failed_fixed_rendezvous_can_be_tried_again),
        CASE(test_a_rank_out_of_descriptors_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
