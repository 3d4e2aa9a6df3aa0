/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "device/stream.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#if defined(__has_feature) && !defined(__SANITIZE_THREAD__)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1 /* gcc's name for it */
#endif
#endif

static motet_host_stream *create(void)
{
    motet_host_stream *stream = NULL;

    assert_int_equal(motet_host_stream_create(&stream), MOTET_OK);
    assert_non_null(stream);
    return stream;
}

/* Work that writes the next number of a shared counter into its slot. */
static atomic_int counter;

static motet_result take_number(void *arg)
{
    *(int *)arg = atomic_fetch_add(&counter, 1);
    return MOTET_OK;
}

static motet_result wait_for_gate(void *arg)
{
    while (sem_wait(arg) != 0)
        ;
    return MOTET_OK;
}

/* A literal as the argument of fail_with(), which only reads it. */
static void *text(const char *literal)
{
    return (void *)(uintptr_t)literal;
}

static motet_result fail_with(void *arg)
{
    return motet_fail(MOTET_ERR_REMOTE, "%s", (const char *)arg);
}

static void test_work_runs_in_order_behind_the_callers_back(void **state)
{
    motet_host_stream *stream = create();
    int numbers[1000];
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    atomic_store(&counter, 0);
    assert_int_equal(motet_host_stream_query(stream), MOTET_OK);
    assert_int_equal(motet_host_stream_submit(stream, wait_for_gate, &gate), MOTET_OK);
    for (int i = 0; i < 1000; i++) /* none of these waits for the gate */
        assert_int_equal(motet_host_stream_submit(stream, take_number, &numbers[i]),
                MOTET_OK);
    assert_int_equal(motet_host_stream_query(stream), MOTET_IN_PROGRESS);
    assert_int_equal(atomic_load(&counter), 0);
    sem_post(&gate);
    assert_int_equal(motet_host_stream_sync(stream), MOTET_OK);
    assert_int_equal(motet_host_stream_query(stream), MOTET_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
    sem_destroy(&gate);
}

static void test_the_first_failure_is_reported_once_with_its_sentence(void **state)
{
    motet_host_stream *stream = create();
    int number = -1;

    (void)state;
    atomic_store(&counter, 5);
    assert_int_equal(motet_host_stream_submit(stream, fail_with, text("rank 3 died")),
            MOTET_OK);
    assert_int_equal(motet_host_stream_submit(stream, fail_with, text("later")),
            MOTET_OK);
    assert_int_equal(motet_host_stream_submit(stream, take_number, &number), MOTET_OK);
    motet_error_clear();
    assert_int_equal(motet_host_stream_sync(stream), MOTET_ERR_REMOTE);
    assert_string_equal(motet_error_trail(), "rank 3 died");
    assert_int_equal(number, 5); /* work after a failure runs */
    assert_int_equal(motet_host_stream_sync(stream), MOTET_OK);

    assert_int_equal(motet_host_stream_submit(stream, fail_with, text("x")), MOTET_OK);
    while (motet_host_stream_query(stream) == MOTET_IN_PROGRESS)
        sched_yield();
    assert_int_equal(motet_host_stream_query(stream),
            MOTET_OK); /* stays for the sync */
    assert_int_equal(motet_host_stream_sync(stream), MOTET_ERR_REMOTE);
    assert_string_equal(motet_error_trail(), "x");

    assert_int_equal(motet_host_stream_submit(stream, fail_with, text("unseen")),
            MOTET_OK);
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_ERR_REMOTE);
    assert_string_equal(motet_error_trail(), "unseen");
    assert_false(motet_host_stream_valid(stream));
}

static void test_one_stream_waits_for_what_another_was_given(void **state)
{
    motet_host_stream *a = create(), *b = create();
    int in_a = -1, in_b = -1, in_b_later = -1;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    atomic_store(&counter, 0);
    assert_int_equal(motet_host_stream_submit(b, wait_for_gate, &gate), MOTET_OK);
    assert_int_equal(motet_host_stream_submit(b, take_number, &in_b), MOTET_OK);
    assert_int_equal(motet_host_stream_wait(a, b), MOTET_OK);
    assert_int_equal(motet_host_stream_submit(a, take_number, &in_a), MOTET_OK);
    /* each for the other, again and again: only for what was given before */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(motet_host_stream_wait(b, a), MOTET_OK);
        assert_int_equal(motet_host_stream_wait(a, b), MOTET_OK);
    }
    assert_int_equal(motet_host_stream_submit(b, take_number, &in_b_later), MOTET_OK);
    assert_int_equal(motet_host_stream_wait(a, a), MOTET_OK);
    assert_int_equal(motet_host_stream_query(a), MOTET_IN_PROGRESS);
    sem_post(&gate);
    assert_int_equal(motet_host_stream_sync(a), MOTET_OK);
    assert_int_equal(motet_host_stream_sync(b), MOTET_OK);
    assert_int_equal(in_b, 0);
    assert_int_equal(in_a, 1);
    assert_int_equal(in_b_later, 2);
    assert_int_equal(motet_host_stream_destroy(a), MOTET_OK);
    assert_int_equal(motet_host_stream_destroy(b), MOTET_OK);
    sem_destroy(&gate);
}

static void *destroy_in_thread(void *arg)
{
    return motet_host_stream_destroy(arg) == MOTET_OK ? NULL : arg;
}

static void test_a_stream_that_is_waited_for_may_be_destroyed(void **state)
{
    motet_host_stream *a = create(), *b = create();
    int in_a = -1, in_b = -1;
    pthread_t destroyer;
    void *failed;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    atomic_store(&counter, 0);
    assert_int_equal(motet_host_stream_submit(b, wait_for_gate, &gate), MOTET_OK);
    assert_int_equal(motet_host_stream_submit(b, take_number, &in_b), MOTET_OK);
    assert_int_equal(motet_host_stream_wait(a, b), MOTET_OK);
    assert_int_equal(motet_host_stream_submit(a, take_number, &in_a), MOTET_OK);
    assert_int_equal(pthread_create(&destroyer, NULL, destroy_in_thread, b), 0);
    sem_post(&gate);
    pthread_join(destroyer, &failed);
    assert_null(failed);
    assert_int_equal(motet_host_stream_destroy(a), MOTET_OK);
    assert_int_equal(in_b, 0);
    assert_int_equal(in_a, 1);
    sem_destroy(&gate);
}

static void test_only_live_streams_are_accepted(void **state)
{
    motet_host_stream *stream = create(), *gone = create();
    void *handles[] = { NULL, (void *)1, (void *)2, (void *)UINTPTR_MAX, &stream,
        NULL };

    (void)state;
    assert_int_equal(motet_host_stream_destroy(gone), MOTET_OK);
    handles[5] = gone;
    for (size_t i = 0; i < sizeof(handles) / sizeof(*handles); i++) {
        motet_host_stream *bad = handles[i];

        assert_false(motet_host_stream_valid(bad));
        assert_int_equal(motet_host_stream_submit(bad, take_number, NULL),
                MOTET_ERR_ARGUMENT);
        assert_int_equal(motet_host_stream_sync(bad), MOTET_ERR_ARGUMENT);
        assert_int_equal(motet_host_stream_query(bad), MOTET_ERR_ARGUMENT);
        assert_int_equal(motet_host_stream_wait(bad, stream), MOTET_ERR_ARGUMENT);
        assert_int_equal(motet_host_stream_wait(stream, bad), MOTET_ERR_ARGUMENT);
        assert_int_equal(motet_host_stream_destroy(bad), MOTET_ERR_ARGUMENT);
        assert_non_null(strstr(motet_error_trail(), "is not a live host stream"));
    }
    assert_true(motet_host_stream_valid(stream));
    assert_int_equal(motet_host_stream_submit(stream, NULL, NULL), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
}

typedef struct inside {
    motet_host_stream *stream;
    motet_result sync, destroy, submit;
    int number;
} inside;

static motet_result call_from_inside(void *arg)
{
    inside *in = arg;

    in->sync = motet_host_stream_sync(in->stream);
    in->destroy = motet_host_stream_destroy(in->stream);
    in->submit = motet_host_stream_submit(in->stream, take_number, &in->number);
    return MOTET_OK;
}

static void test_work_that_would_wait_for_itself_is_refused(void **state)
{
    inside in = { .stream = create(), .number = -1 };

    (void)state;
    atomic_store(&counter, 9);
    assert_int_equal(motet_host_stream_submit(in.stream, call_from_inside, &in),
            MOTET_OK);
    assert_int_equal(motet_host_stream_sync(in.stream), MOTET_OK);
    assert_int_equal(motet_host_stream_destroy(in.stream), MOTET_OK);
    assert_int_equal(in.sync, MOTET_ERR_USAGE);
    assert_int_equal(in.destroy, MOTET_ERR_USAGE);
    assert_int_equal(in.submit, MOTET_OK);
    assert_int_equal(in.number, 9);
}

enum { SUBMITTERS = 4, SUBMISSIONS = 2000 };

static atomic_int ran;

static motet_result count_run(void *arg)
{
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return MOTET_OK;
}

static void *submit_many(void *arg)
{
    uintptr_t accepted = 0;

    for (int i = 0; i < SUBMISSIONS; i++) {
        if (motet_host_stream_submit(arg, count_run, NULL) == MOTET_OK)
            accepted++;
        if (i % 50 == 0)
            (void)motet_host_stream_query(arg); /* only its races matter here */
    }
    return (void *)accepted;
}

static void test_what_was_accepted_runs_exactly_once_even_in_destruction(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        motet_host_stream *stream = create();
        pthread_t submitters[SUBMITTERS], destroyers[2];
        uintptr_t accepted = 0, failed = 0;
        void *result;

        atomic_store(&ran, 0);
        for (int i = 0; i < SUBMITTERS; i++)
            assert_int_equal(pthread_create(&submitters[i], NULL, submit_many, stream),
                    0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&destroyers[i], NULL, destroy_in_thread,
                                     stream),
                    0);
        for (int i = 0; i < SUBMITTERS; i++) {
            pthread_join(submitters[i], &result);
            accepted += (uintptr_t)result;
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(destroyers[i], &result);
            failed += result != NULL;
        }
        assert_int_equal(atomic_load(&ran), accepted);
        assert_int_equal(failed, 1); /* one of the two destroyed it */
        assert_false(motet_host_stream_valid(stream));
    }
}

static motet_result read_signal_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return MOTET_OK;
}

static void test_the_programs_signals_are_not_for_our_thread(void **state)
{
    motet_host_stream *stream = create();
    sigset_t theirs, mine;

    (void)state;
    sigemptyset(&theirs);
    assert_int_equal(motet_host_stream_submit(stream, read_signal_mask, &theirs),
            MOTET_OK);
    assert_int_equal(motet_host_stream_sync(stream), MOTET_OK);
    assert_true(
            sigismember(&theirs, SIGINT) == 1 && sigismember(&theirs, SIGUSR1) == 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGINT), 0);
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
}

static int use_after_fork(const void *arg)
{
    motet_host_stream *old = (motet_host_stream *)(uintptr_t)arg, *fresh;
    int number = -1;

    motet_host_stream_after_fork();
    if (motet_host_stream_valid(old) ||
            motet_host_stream_sync(old) != MOTET_ERR_ARGUMENT)
        return 1;
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer allows no thread in a child of a process that has some */
    (void)fresh;
    (void)number;
    return 0;
#endif
    if (motet_host_stream_create(&fresh) != MOTET_OK ||
            motet_host_stream_submit(fresh, take_number, &number) != MOTET_OK ||
            motet_host_stream_destroy(fresh) != MOTET_OK)
        return 2;
    return number >= 0 ? 0 : 3;
}

static void test_a_forked_child_has_no_streams_and_can_make_new_ones(void **state)
{
    motet_host_stream *stream = create();
    child_result child = child_run(use_after_fork, stream, NULL);

    (void)state;
    if (child.status != 0)
        fail_msg("status %d: %s", child.status, child.err);
    assert_true(motet_host_stream_valid(stream));
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_runs_in_order_behind_the_callers_back),
        cmocka_unit_test(test_the_first_failure_is_reported_once_with_its_sentence),
        cmocka_unit_test(test_one_stream_waits_for_what_another_was_given),
        cmocka_unit_test(test_a_stream_that_is_waited_for_may_be_destroyed),
        cmocka_unit_test(test_only_live_streams_are_accepted),
        cmocka_unit_test(test_work_that_would_wait_for_itself_is_refused),
        cmocka_unit_test(test_what_was_accepted_runs_exactly_once_even_in_destruction),
        cmocka_unit_test(test_the_programs_signals_are_not_for_our_thread),
        cmocka_unit_test(test_a_forked_child_has_no_streams_and_can_make_new_ones),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
