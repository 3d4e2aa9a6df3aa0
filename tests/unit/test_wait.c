/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a wait that lasts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "engine/wait.h"

#include "base/clock.h"

#define HINT "the streams of a process share 4 hardware queues"

/* Rank 0 of two waits for rank 1, since an hour; says the warning and the failure. */
static int wait_an_hour(const void *arg)
{
    static motet_arena_head heads[2];
    static motet_recorder nowhere; /* without a file it keeps nothing */
    motet_arena arenas[2] = { { .head = &heads[0] }, { .head = &heads[1] } };
    const motet_peer peers[2] = { { .pid = 0 }, { .pid = 0 } };
    motet_engine engine = { .nranks = 2,
        .arena = arenas,
        .peer = peers,
        .recorder = &nowhere,
        .warn_after_ns = MOTET_NS_PER_S,
        .dead_rank = -1 };
    const motet_op op = { .kind = MOTET_NUM_KINDS, .root = -1 };
    const motet_running running = { .engine = &engine, .op = &op };
    const uint64_t now_ns = motet_now_ns();
    motet_wait wait;

    pthread_mutex_init(&engine.failure_lock, NULL);
    motet_wait_begin(&wait, &running);
    wait.start_ns = now_ns - 3600 * MOTET_NS_PER_S;
    wait.hint = arg;
    if (motet_wait_look(&wait, 1, now_ns) != MOTET_OK ||
            motet_wait_look(&wait, 1, now_ns) != MOTET_OK) /* said once */
        return 1;
    atomic_store(&engine.timeout_ns, MOTET_NS_PER_S);
    if (motet_wait_look(&wait, 1, now_ns) != MOTET_ERR_REMOTE)
        return 2;
    printf("%s", motet_error_trail());
    return 0;
}

static void test_a_hint_stands_in_the_warning_and_the_failure(void **state)
{
    const child_result child = child_run(wait_an_hour, HINT, NULL);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.err, "rank 0 has waited 3600 s in"), 1);
    assert_int_equal(child_count(child.err, "for rank 1; " HINT), 1);
    assert_non_null(strstr(child.out, "for rank 1, which has not come; " HINT));
}

static void test_without_a_hint_none_is_said(void **state)
{
    const child_result child = child_run(wait_an_hour, NULL, NULL);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.err, "for rank 1\n"), 1);
    assert_null(strstr(child.out, ";"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hint_stands_in_the_warning_and_the_failure),
        cmocka_unit_test(test_without_a_hint_none_is_said),
    };

    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
