/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous between network, mount and UTS namespaces: what containers and
 * other machines look like. Needs root; the namespaces end with the processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/iface.h"
#include "join_ranks.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define IP(...) test_run_ip((const char *const[]){ "ip", __VA_ARGS__, NULL })

/*
 * A case runs in a child with namespaces of its own, so that its links, its /tmp and
 * its host name are nobody else's. 0: passed, 77: not allowed here, else failed.
 */
static int cases_run;

static void run_apart(int (*fn)(void))
{
    pid_t pid;
    int status;

    wait_for_one_thread();
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) != 0 ||
                sethostname("alpha", 5) != 0)
            _exit(77);
        exit(fn()); /* so that a service that still waits removes its path */
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    cases_run++;
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Rank 0's sentence, and whether all have the same one with @p part. */
static int all_failed_with(const group *g, const char *part)
{
    for (int i = 0; i < g->nranks; i++)
        if (strcmp(g->outcome[i].trail, "no namespaces") == 0)
            return 77; /* the others could only wait for it */
    for (int i = 0; i < g->nranks; i++) {
        const rank_outcome *outcome = &g->outcome[i];

        if (outcome->done && outcome->result == MOTET_ERR_USAGE &&
                strstr(outcome->trail, part) != NULL &&
                strcmp(outcome->trail, g->outcome[0].trail) == 0)
            continue;
        fprintf(stderr, "rank %d: done %d, result %d, '%s' without '%s'\n", i,
                outcome->done, outcome->result, outcome->trail, part);
        return 1;
    }
    return 0;
}

static int all_joined(const group *g)
{
    for (int i = 0; i < g->nranks; i++) {
        const rank_outcome *outcome = &g->outcome[i];

        if (outcome->done && outcome->result == MOTET_OK && outcome->values_right)
            continue;
        fprintf(stderr, "rank %d: done %d, result %d: %s\n", i, outcome->done,
                outcome->result, outcome->trail);
        return 1;
    }
    return 0;
}

static int run_and_free(group *g)
{
    int rc;

    group_run_processes(g);
    rc = all_joined(g);
    group_free(g);
    return rc;
}

/* The kernel gives a new network namespace a loopback that is down. */
static int no_interface_is_up(void)
{
    motet_iface list[4];

    if (motet_iface_list(list, 4) != 0) {
        fprintf(stderr, "interface %s is up\n", list[0].name);
        return 1;
    }
    return run_and_free(group_plan(3));
}

static void test_ranks_meet_without_any_interface(void **state)
{
    (void)state;
    run_apart(no_interface_is_up);
}

/* No interface, and NCCL_COMM_ID all the same: the Unix sockets still do. */
static int fixed_without_interface(void)
{
    group *g = group_plan(2);

    for (int i = 0; i < 2; i++)
        g->plan[i].comm_id = "10.77.0.1:7000";
    return run_and_free(g);
}

static void test_a_fixed_address_works_without_any_interface(void **state)
{
    (void)state;
    run_apart(fixed_without_interface);
}

static int other_network_same_folder(void)
{
    group *g;

    if (!IP("link", "set", "lo", "up"))
        return 77;
    g = group_plan(2);
    g->plan[1].unshare_flags = CLONE_NEWNET;
    return run_and_free(g);
}

static void test_the_path_socket_joins_network_namespaces(void **state)
{
    (void)state;
    run_apart(other_network_same_folder);
}

/*
 * Rank 1 enters a network namespace that a veth pair connects with this one, and sees
 * no /tmp of ours: only TCP is left. A child of ours holds the namespace, and brings
 * its end of the link up before the id is made: an interface without its other end is
 * not running.
 */
static void hold_network(int socket)
{
    char byte = 'x';

    if (unshare(CLONE_NEWNET) != 0 || write(socket, &byte, 1) != 1 ||
            read(socket, &byte, 1) != 1) /* the link is there */
        _exit(1);
    if (!IP("addr", "add", "10.77.0.2/24", "dev", "eth1") ||
            !IP("link", "set", "eth1", "up") || write(socket, &byte, 1) != 1)
        _exit(1);
    (void)!read(socket, &byte, 1); /* until the other end closes */
    _exit(0);
}

/* 10.77.0.1 on eth0 here, 10.77.0.2 on eth1 there. */
static bool connect_network(pid_t there, int socket)
{
    char pid[16], byte;

    snprintf(pid, sizeof(pid), "%d", (int)there);
    return read(socket, &byte, 1) == 1 &&
            IP("link", "add", "eth0", "type", "veth", "peer", "name", "eth1", "netns",
                    pid) &&
            IP("addr", "add", "10.77.0.1/24", "dev", "eth0") &&
            IP("link", "set", "eth0", "up") && write(socket, &byte, 1) == 1 &&
            read(socket, &byte, 1) == 1;
}

static int over_a_link(group *g, const char *part)
{
    char path[64];
    int pair[2], rc = 77;
    pid_t there;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    there = fork();
    if (there == 0) {
        close(pair[0]);
        hold_network(pair[1]);
    }
    close(pair[1]);
    if (there > 0 && connect_network(there, pair[0])) {
        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)there);
        g->plan[1].net_path = path;
        group_run_processes(g);
        rc = all_failed_with(g, part);
    }
    close(pair[0]);
    waitpid(there, NULL, 0);
    group_free(g);
    return rc;
}

static int same_machine_over_tcp(void)
{
    group *g = group_plan(2);

    g->plan[1].unshare_flags = CLONE_NEWNS;
    g->plan[1].own_tmp = true;
    return over_a_link(g, "rank 1 and the process that made the id (pid ");
}

static void test_one_node_without_a_shared_socket_is_explained(void **state)
{
    (void)state;
    run_apart(same_machine_over_tcp);
}

static int two_machines(void)
{
    group *g = group_plan(2);

    g->plan[1].unshare_flags = CLONE_NEWNS | CLONE_NEWUTS;
    g->plan[1].own_tmp = true;
    g->plan[1].uts = "beta";
    g->plan[0].hostid = "alpha"; /* both run on one kernel: NCCL_HOSTID parts them */
    g->plan[1].hostid = "beta";
    return over_a_link(g,
            "ranks are on several nodes (rank 0 on alpha, rank 1 on beta), which this "
            "version of motet does not support yet: run all ranks on one node");
}

static void test_two_nodes_are_named_on_both(void **state)
{
    (void)state;
    run_apart(two_machines);
}

static int machines_apart_by_name_only(void)
{
    group *g = group_plan(2);

    /* another host name alone, with a Unix socket that connects, is one node */
    g->plan[1].unshare_flags = CLONE_NEWUTS;
    g->plan[1].uts = "beta";
    return run_and_free(g);
}

static void test_another_host_name_alone_is_no_other_node(void **state)
{
    (void)state;
    run_apart(machines_apart_by_name_only);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_meet_without_any_interface),
        cmocka_unit_test(test_a_fixed_address_works_without_any_interface),
        cmocka_unit_test(test_the_path_socket_joins_network_namespaces),
        cmocka_unit_test(test_one_node_without_a_shared_socket_is_explained),
        cmocka_unit_test(test_two_nodes_are_named_on_both),
        cmocka_unit_test(test_another_host_name_alone_is_no_other_node),
    };

    if (geteuid() != 0) {
        fprintf(stderr, "skipped: making namespaces needs root\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);

    return failed == 0 && cases_run == 0 ? 77 : failed;
}
