/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else comes to a rendezvous: bad arguments, strangers, other versions; and what
 * it leaves in the file system and in forked children, which is nothing.
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

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
    assert_int_equal(fields.folder, MOTET_FOLDER_XDG);
    assert_true(motet_id_path_name(&fields, test_params(none), fields.folder, &name));
    assert_int_equal(strncmp(name.addr.sun_path, test_folder, strlen(test_folder)), 0);
    assert_int_equal(stat(name.addr.sun_path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    motet_id_cancel(&id);
    assert_int_equal(stat(name.addr.sun_path, &st), -1);
}

static void test_tmp_is_used_where_xdg_runtime_dir_cannot_be(void **state)
{
    const char *const env[] = { "XDG_RUNTIME_DIR", "/nonexistent", NULL };
    motet_id_fields fields;
    motet_unix_name name;
    motet_id id;

    (void)state;
    assert_int_equal(motet_id_create(test_params(env), &id), MOTET_OK);
    assert_int_equal(motet_id_decode(&id, &fields), MOTET_OK);
    assert_int_equal(fields.folder, MOTET_FOLDER_TMP);
    assert_true(motet_id_path_name(&fields, test_params(env), fields.folder, &name));
    assert_int_equal(access(name.addr.sun_path, F_OK), 0);
    motet_id_cancel(&id);
    assert_int_equal(access(name.addr.sun_path, F_OK), -1);
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

static void test_a_root_that_cannot_take_descriptors_says_so_to_all(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->three_fds = true;
    g->root_fds = 7; /* three connections, and four of nine descriptors */
    group_run_processes(g);
    group_check_failure(g, MOTET_ERR_SYSTEM, "could not take the descriptors of rank ");
    group_check_failure(g, MOTET_ERR_SYSTEM, "too many open files (see ulimit -n)");
    group_free(g);
}

static void test_a_root_that_cannot_accept_says_so_at_the_deadline(void **state)
{
    group *g = group_plan(2);

    (void)state;
    g->root_fds = 1; /* one connection */
    g->plan[0].deadline_ms = 500;
    g->plan[1].delay_ms = 150; /* it finds rank 0 in the only place */
    group_run_processes(g);
    group_check_failure(g, MOTET_ERR_REMOTE, "rank 1 of 2 did not join within ");
    group_check_failure(g, MOTET_ERR_REMOTE, "0 ms (the rendezvous, pid ");
    rank_check_failure(g, 0, MOTET_ERR_REMOTE, "Too many open files");
    group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOIN_CASE(test_bad_arguments_are_refused),
        JOIN_CASE(test_strangers_are_turned_away_and_delay_nobody),
        JOIN_CASE(test_half_a_hello_is_dropped_after_5_s),
        JOIN_CASE(test_a_crowd_of_silent_strangers_makes_room),
        JOIN_CASE(test_a_rank_of_another_wire_version_is_named),
        JOIN_CASE(test_the_path_socket_is_private_and_goes_away),
        JOIN_CASE(test_tmp_is_used_where_xdg_runtime_dir_cannot_be),
        JOIN_CASE(test_exit_with_a_service_alive_leaves_no_file),
        JOIN_CASE(test_a_forked_child_holds_nothing_and_removes_nothing),
        JOIN_CASE(test_a_rank_out_of_descriptors_says_so),
        JOIN_CASE(test_a_root_that_cannot_take_descriptors_says_so_to_all),
        JOIN_CASE(test_a_root_that_cannot_accept_says_so_at_the_deadline),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
