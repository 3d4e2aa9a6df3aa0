/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining a rendezvous, with threads and with processes as ranks: that it works, and
 * what everybody hears when it does not. Each case with its own bound in time.
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
#include "join_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- success ---- */

static void check_size(int nranks, bool processes)
{
    group *g = group_plan(nranks);

    g->processes = processes;
    group_run(g);
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

/* More descriptors than one message carries, and the most ranks that there can be. */
static void test_the_largest_group_meets_with_all_its_descriptors(void **state)
{
    group *g = group_plan(MOTET_MAX_RANKS);

    (void)state;
    g->three_fds = true;
    group_run_processes(g);
    group_check_success(g);
    group_free(g);
}

static void test_late_ranks_are_waited_for(void **state)
{
    group *g = group_plan(3);

    (void)state;
    g->plan[2].delay_ms = 700;
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
    g->processes = processes;
    group_run(g);
    group_check_failure(g, result, part);
    for (int i = 0; i < g->nranks; i++)
        if (g->outcome[i].took_ms > within_ms)
            fail_msg("rank %d took %llu ms, more than %llu", i,
                    (unsigned long long)g->outcome[i].took_ms,
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

static void test_a_failed_rendezvous_ends_by_itself(void **state)
{
    group *g = group_plan(2);

    (void)state;
    g->plan[1].absent = true;
    g->plan[0].deadline_ms = 200;
    group_run(g);
    group_check_failure(g, MOTET_ERR_REMOTE, "rank 1 of 2 did not join within ");
    assert_int_equal(motet_bootstrap_services(), 1); /* for a latecomer, 5 s */
    check_no_service(6500);
    group_free(g);
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
    if (g->outcome[1].took_ms > 700 || g->outcome[0].took_ms > 900)
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
    /* nobody else can remove the path of the killed root but a rank that comes */
    group_again(g);
    group_run_threads(g);
    rank_check_failure(g, 0, MOTET_ERR_REMOTE, "nobody answers for this id");
    group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOIN_CASE(test_ranks_meet_as_threads),
        JOIN_CASE(test_ranks_meet_as_processes),
        JOIN_CASE(test_the_only_rank_needs_nobody_and_ends_the_service),
        JOIN_CASE(test_the_largest_group_meets_with_all_its_descriptors),
        JOIN_CASE(test_late_ranks_are_waited_for),
        JOIN_CASE(test_two_hundred_joins_leave_nothing),
        JOIN_CASE(test_several_rendezvous_at_once_do_not_mix),
        JOIN_CASE(test_a_join_of_two_takes_milliseconds),
        JOIN_CASE(test_an_absent_rank_is_named_at_the_deadline),
        JOIN_CASE(test_a_failed_rendezvous_ends_by_itself),
        JOIN_CASE(test_the_smallest_deadline_counts_for_all),
        JOIN_CASE(test_a_latecomer_hears_why_the_others_gave_up),
        JOIN_CASE(test_an_odd_setting_is_named),
        JOIN_CASE(test_a_rank_that_comes_twice_is_named),
        JOIN_CASE(test_another_nranks_is_named),
        JOIN_CASE(test_other_host_ids_are_several_nodes),
        JOIN_CASE(test_a_killed_rank_is_named_to_all_also_to_latecomers),
        JOIN_CASE(test_a_cancelled_join_ends_at_once),
        JOIN_CASE(test_a_cancelled_id_wakes_those_who_wait),
        JOIN_CASE(test_an_id_whose_service_is_gone_says_so_at_once),
        JOIN_CASE(test_a_killed_root_is_named_to_those_who_come),
        JOIN_CASE(test_a_killed_root_is_named_to_those_who_wait),
        JOIN_CASE(test_a_killed_root_that_is_a_rank_is_named_by_rank),
        JOIN_CASE(test_a_stopped_root_does_not_hold_a_rank_for_ever),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
