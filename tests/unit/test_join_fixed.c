/* SPDX-License-Identifier: Apache-2.0 */
/* Port ranges, and the rendezvous at the address that NCCL_COMM_ID names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/id.h"
#include "join_ranks.h"

#include <netinet/in.h>
#include <unistd.h>

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
        group_again(g);
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
    group_again(g);
    group_run_threads(g);
    group_check_success(g);
    group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOIN_CASE(test_a_port_range_is_kept_to),
        JOIN_CASE(test_a_fixed_address_works_whoever_comes_first),
        JOIN_CASE(test_a_fixed_address_that_nobody_opens_says_so),
        JOIN_CASE(test_a_fixed_port_that_is_taken_says_so),
        JOIN_CASE(test_a_failed_fixed_rendezvous_can_be_tried_again),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
