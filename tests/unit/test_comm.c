/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators from inside: their table and its graveyard, operators, registrations,
 * exchanges, and batches from their pool to the streams that they run on. */
#include "comm_rig.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void sleep_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static void make_comms(int n, motet_comm **comm)
{
    make_comms_on(MOTET_CHOOSE_CPU, n, comm);
}

static motet_op sum_of(int32_t *send, int32_t *recv)
{
    return (motet_op){ .kind = MOTET_ALL_REDUCE,
        .type = MOTET_INT32,
        .redop = MOTET_SUM,
        .root = -1,
        .send = send,
        .recv = recv,
        .count = 1 };
}

/* ---- the table and the graveyard ---- */

static void test_only_what_is_live_is_found(void **state)
{
    motet_comm *comm[2], *again;
    int before = motet_comm_count_live();
    char elsewhere[8];

    (void)state;
    assert_false(motet_comm_live(NULL));
    assert_false(motet_comm_live((motet_comm *)(void *)elsewhere));
    make_comms(2, comm);
    assert_int_equal(motet_comm_count_live(), before + 2);
    for (int i = 0; i < 3; i++) /* also when asked about another in between */
        for (int r = 0; r < 2; r++)
            assert_true(motet_comm_live(comm[r]));
    assert_int_equal(motet_comm_destroy(comm[1]), MOTET_OK);
    assert_false(motet_comm_live(comm[1]));
    assert_true(motet_comm_live(comm[0]));
    assert_int_equal(motet_comm_destroy(comm[0]), MOTET_OK);
    assert_false(motet_comm_live(comm[0]));
    assert_int_equal(motet_comm_count_live(), before);
    assert_int_equal(motet_comm_new(&again), MOTET_OK);
    assert_true(motet_comm_live(again));
    motet_comm_started(again, motet_fail(MOTET_ERR_SYSTEM, "not made"));
    motet_comm_discard(again);
    assert_false(motet_comm_live(again));
}

static void test_a_call_that_comes_too_late_finds_a_stopped_engine(void **state)
{
    int32_t one = 1;
    motet_op op = sum_of(&one, &one);
    motet_comm *comm[2];
    uint64_t number;

    (void)state;
    make_comms(2, comm);
    assert_int_equal(motet_comm_abort(comm[0]), MOTET_OK);
    assert_int_equal(motet_comm_destroy(comm[1]), MOTET_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_not_equal(motet_comm_run(comm[r], &op), MOTET_OK);
        assert_true(motet_error_trail()[0] != '\0');
        assert_int_not_equal(motet_launch_group(batch_of(comm[r], &op, NULL)),
                MOTET_OK);
        assert_int_not_equal(motet_exchange_draw(comm[r], &number), MOTET_OK);
        assert_int_equal(motet_comm_async(comm[r]),
                motet_engine_failure(&comm[r]->engine));
    }
    assert_non_null(strstr(motet_error_trail(), "ended"));
}

/* What each of 40 communicators holds when it goes must go with it: leak checkers tell. */
static void test_the_graveyard_frees_what_late_calls_left(void **state)
{
    int32_t one = 1;
    motet_op op = sum_of(&one, &one);

    (void)state;
    for (int i = 0; i < 40; i++) {
        motet_comm *comm;

        make_comms(1, &comm);
        assert_int_equal(motet_comm_run(comm, &op), MOTET_OK);
        assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
        motet_batch_drop(batch_of(comm, &op, NULL));
    }
}

static void test_a_failed_creation_says_why_however_often_it_is_asked(void **state)
{
    char text[MOTET_ERROR_TRAIL_MAX];
    motet_comm *comm;

    (void)state;
    assert_int_equal(motet_comm_new(&comm), MOTET_OK);
    assert_int_equal(motet_comm_async(comm), MOTET_IN_PROGRESS);
    motet_comm_started(comm, motet_fail(MOTET_ERR_REMOTE, "rank 1 is absent"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(motet_comm_async(comm), MOTET_ERR_REMOTE);
        (void)snprintf(text, sizeof(text), "%s", motet_error_trail());
        assert_string_equal(text, "rank 1 is absent");
    }
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

/* ---- operators ---- */

static void test_made_operators_fill_the_table_and_make_room_again(void **state)
{
    static int handle[MOTET_MADE_REDOPS];
    motet_comm *comm[2];
    int extra;

    (void)state;
    make_comms(2, comm);
    for (int i = 0; i < MOTET_MADE_REDOPS; i++) {
        int32_t scalar = i;

        assert_int_equal(motet_redop_make(comm[0], MOTET_INT32, &scalar, true,
                                 &handle[i]),
                MOTET_OK);
        assert_true(handle[i] >= MOTET_NUM_BUILTIN_REDOPS);
    }
    for (int i = 0; i < MOTET_MADE_REDOPS; i++) {
        const motet_made_redop *redop = motet_redop_find(comm[0], handle[i]);

        assert_non_null(redop);
        assert_int_equal(redop->scalar, i);
        assert_null(motet_redop_find(comm[1], handle[i]));
    }
    assert_int_equal(motet_redop_make(comm[0], MOTET_INT32, &extra, true, &extra),
            MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "1024"));
    assert_int_equal(motet_redop_destroy(comm[1], handle[7]), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_redop_destroy(comm[0], handle[7]), MOTET_OK);
    assert_int_equal(motet_redop_destroy(comm[0], handle[7]), MOTET_ERR_ARGUMENT);
    assert_null(motet_redop_find(comm[0], handle[7]));
    assert_int_equal(motet_redop_make(comm[0], MOTET_FLOAT64, &handle, false, &extra),
            MOTET_OK);
    assert_int_equal(extra, handle[7]);
    assert_ptr_equal(motet_redop_find(comm[0], extra)->scalar_ptr, handle);
    assert_null(motet_redop_find(comm[0], MOTET_SUM));
    assert_null(motet_redop_find(comm[0], -1));
    assert_null(motet_redop_find(comm[0], INT32_MAX));
    destroy_comms(2, comm);
}

/* ---- registrations ---- */

static void test_a_buffer_is_registered_once_and_counted(void **state)
{
    static char buf[100];
    motet_registration *a, *b, *other;
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    assert_int_equal(motet_register(comm, buf, 100, false, &a), MOTET_OK);
    assert_int_equal(motet_register(comm, buf, 100, false, &b), MOTET_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(motet_register(comm, buf, 99, false, &other), MOTET_OK);
    assert_ptr_not_equal(a, other);
    assert_int_equal(motet_deregister(comm, a, true), MOTET_ERR_USAGE);
    assert_int_equal(motet_deregister(comm, a, false), MOTET_OK);
    assert_true(motet_registration_live(comm, a, false));
    assert_int_equal(motet_deregister(comm, a, false), MOTET_OK);
    assert_false(motet_registration_live(comm, a, false));
    assert_int_equal(motet_deregister(comm, a, false), MOTET_ERR_USAGE);
    assert_true(motet_registration_live(comm, other, false));
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK); /* takes `other` along */
}

static void test_a_window_of_one_rank_is_a_handle(void **state)
{
    static char buf[4096];
    motet_registration *a, *b;
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    assert_int_equal(motet_register(comm, buf, 4096, true, &a), MOTET_OK);
    assert_int_equal(motet_register(comm, buf, 4096, true, &b), MOTET_OK);
    assert_ptr_not_equal(a, b);
    assert_int_equal(a->number, 0);
    assert_false(motet_registration_live(comm, a, false));
    assert_int_equal(motet_deregister(comm, a, false), MOTET_ERR_USAGE);
    assert_int_equal(motet_deregister(comm, a, true), MOTET_OK);
    assert_int_equal(motet_deregister(comm, b, true), MOTET_OK);
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

/* ---- exchanges ---- */

typedef struct waiter {
    motet_comm *comm;
    uint64_t number;
    _Atomic int *order;
    int place;
    pthread_t thread;
} waiter;

static void *take_a_turn(void *arg)
{
    waiter *w = arg;

    if (motet_exchange_begin(w->comm, w->number) == MOTET_OK)
        w->place = atomic_fetch_add(w->order, 1);
    motet_exchange_end(w->comm);
    return NULL;
}

static void test_exchanges_run_in_the_order_in_which_they_were_drawn(void **state)
{
    waiter w[4] = { 0 };
    _Atomic int order = 0;
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    for (int i = 0; i < 4; i++) {
        w[i] = (waiter){ .comm = comm, .order = &order, .place = -1 };
        assert_int_equal(motet_exchange_draw(comm, &w[i].number), MOTET_OK);
    }
    for (int i = 3; i >= 0; i--) {
        assert_int_equal(pthread_create(&w[i].thread, NULL, take_a_turn, &w[i]), 0);
        sleep_ms(2);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].place, i);
    }
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

static void *destroy_thread(void *arg)
{
    return motet_comm_destroy(arg) == MOTET_OK ? NULL : arg;
}

static void test_the_end_waits_for_an_exchange_and_refuses_the_next(void **state)
{
    uint64_t number, next;
    motet_comm *comm;
    pthread_t thread;
    void *failed;

    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        make_comms(1, &comm);
        assert_int_equal(motet_exchange_draw(comm, &number), MOTET_OK);
        if (begun)
            assert_int_equal(motet_exchange_begin(comm, number), MOTET_OK);
        assert_int_equal(pthread_create(&thread, NULL, destroy_thread, comm), 0);
        sleep_ms(30);
        assert_true(motet_comm_live(comm));
        if (!begun)
            assert_int_equal(motet_exchange_begin(comm, number), MOTET_OK);
        motet_exchange_end(comm);
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_false(motet_comm_live(comm));
        assert_int_equal(motet_exchange_draw(comm, &next), MOTET_ERR_ARGUMENT);
    }
}

/* The group that holds it may never end; its communicator must go all the same. */
static void test_an_abort_does_not_wait_for_an_exchange_that_has_not_begun(void **state)
{
    uint64_t number[2];
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    for (int i = 0; i < 2; i++)
        assert_int_equal(motet_exchange_draw(comm, &number[i]), MOTET_OK);
    assert_int_equal(motet_comm_abort(comm), MOTET_OK);
    for (int i = 0; i < 40; i++) { /* the graveyard must keep it meanwhile */
        motet_comm *other;

        make_comms(1, &other);
        assert_int_equal(motet_comm_destroy(other), MOTET_OK);
    }
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(motet_exchange_begin(comm, number[i]), MOTET_ERR_ARGUMENT);
        motet_exchange_end(comm);
    }
}

/* ---- batches ---- */

static void test_batches_are_used_again_with_their_room(void **state)
{
    int32_t one = 1, sum = 0;
    motet_op op = sum_of(&one, &sum);
    motet_op *room;
    motet_batch *first, *second;
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    first = batch_of(comm, &op, NULL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(motet_batch_add(first, &op, NULL), MOTET_OK);
    room = first->collective;
    assert_int_equal(motet_launch_group(first), MOTET_OK);
    assert_int_equal(sum, 1);
    assert_int_equal(motet_batch_get(comm, &second), MOTET_OK);
    assert_ptr_equal(second, first);
    assert_ptr_equal(second->collective, room);
    assert_int_equal(second->collectives, 0);
    assert_int_equal(second->streams, 0);
    motet_batch_drop(second);
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

static void test_a_group_names_so_many_streams_and_no_more(void **state)
{
    int32_t one = 1;
    motet_op op = sum_of(&one, &one);
    static char streams[MOTET_GROUP_STREAMS + 1];
    motet_batch *batch;
    motet_comm *comm;

    (void)state;
    make_comms(1, &comm);
    assert_int_equal(motet_batch_get(comm, &batch), MOTET_OK);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MOTET_GROUP_STREAMS; i++)
            assert_int_equal(motet_batch_add(batch, &op, &streams[i]), MOTET_OK);
    assert_int_equal(motet_batch_add(batch, &op, &streams[MOTET_GROUP_STREAMS]),
            MOTET_ERR_USAGE);
    motet_batch_drop(batch);
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

/* A group of all ranks: rank r's batch names the streams given. */
static motet_result launch_all(int n, motet_comm **comm, int32_t *value,
        const void *const *stream, int streams)
{
    motet_batch *batches = NULL;

    for (int r = n - 1; r >= 0; r--) {
        motet_op op = sum_of(&value[r], &value[r]);
        motet_batch *batch = batch_of(comm[r], &op, stream[0]);

        for (int i = 1; i < streams; i++) {
            op.count = 0;
            assert_int_equal(motet_batch_add(batch, &op, stream[i]), MOTET_OK);
        }
        batch->next = batches;
        batches = batch;
    }
    return motet_launch_group(batches);
}

static void test_ranks_of_one_thread_run_at_the_same_time(void **state)
{
    const void *none[1] = { NULL };
    int32_t value[3] = { 1, 10, 100 };
    motet_comm *comm[3];

    (void)state;
    make_comms(3, comm);
    assert_int_equal(launch_all(3, comm, value, none, 1), MOTET_OK);
    for (int r = 0; r < 3; r++)
        assert_int_equal(value[r], 111);
    destroy_comms(3, comm);
}

static void test_ranks_that_share_a_stream_do_not_wait_for_each_other(void **state)
{
    int32_t value[3] = { 1, 10, 100 };
    motet_host_stream *stream;
    motet_comm *comm[3];

    (void)state;
    make_comms(3, comm);
    assert_int_equal(motet_host_stream_create(&stream), MOTET_OK);
    for (int i = 0; i < 3; i++) {
        const void *shared[1] = { stream };

        assert_int_equal(launch_all(3, comm, value, shared, 1), MOTET_OK);
    }
    assert_int_equal(motet_host_stream_sync(stream), MOTET_OK);
    for (int r = 0; r < 3; r++)
        assert_int_equal(value[r], 999);
    destroy_comms(3, comm);
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
}

typedef struct late_store {
    int32_t *to, value;
} late_store;

static motet_result store_late(void *arg)
{
    late_store *s = arg;

    sleep_ms(30);
    *s->to = s->value;
    return MOTET_OK;
}

static void test_a_batch_waits_for_every_stream_that_it_names(void **state)
{
    int32_t value[2] = { 0, 0 }, seen = 0;
    motet_host_stream *a, *b;
    motet_comm *comm[2];

    (void)state;
    make_comms(2, comm);
    assert_int_equal(motet_host_stream_create(&a), MOTET_OK);
    assert_int_equal(motet_host_stream_create(&b), MOTET_OK);
    for (int blocks = 0; blocks < 2; blocks++) {
        late_store first = { &value[0], 5 }, second = { &value[1], 7 };
        const void *streams[3] = { a, b, NULL };

        assert_int_equal(motet_host_stream_submit(a, store_late, &first), MOTET_OK);
        assert_int_equal(motet_host_stream_submit(b, store_late, &second), MOTET_OK);
        assert_int_equal(launch_all(2, comm, value, streams, 2 + blocks), MOTET_OK);
        if (!blocks) { /* the streams wait for the batch, too */
            assert_int_equal(motet_host_stream_sync(a), MOTET_OK);
            seen = value[0];
            assert_int_equal(motet_host_stream_sync(b), MOTET_OK);
            assert_int_equal(seen, 12);
        }
        assert_int_equal(value[0], 12);
        assert_int_equal(value[1], 12);
    }
    destroy_comms(2, comm);
    assert_int_equal(motet_host_stream_destroy(a), MOTET_OK);
    assert_int_equal(motet_host_stream_destroy(b), MOTET_OK);
}

typedef struct run_in_thread {
    motet_comm **comm;
    motet_result result;
    pthread_t thread;
} run_in_thread;

static void *launch_two(void *arg)
{
    run_in_thread *run = arg;
    const void *none[1] = { NULL };
    int32_t value[2] = { 1, 1 };

    run->result = launch_all(2, run->comm, value, none, 1);
    return NULL;
}

/* A thread waits for two of three ranks; another aborts them. */
static void test_an_abort_frees_a_group_of_ranks_with_its_sentence(void **state)
{
    motet_comm *comm[3];
    run_in_thread run = { .comm = comm };

    (void)state;
    make_comms(3, comm);
    assert_int_equal(pthread_create(&run.thread, NULL, launch_two, &run), 0);
    sleep_ms(30);
    assert_int_equal(motet_comm_abort(comm[0]), MOTET_OK);
    assert_int_equal(motet_comm_abort(comm[1]), MOTET_OK);
    pthread_join(run.thread, NULL);
    assert_int_equal(run.result, MOTET_ERR_REMOTE);
    assert_int_equal(motet_comm_abort(comm[2]), MOTET_OK);
}

static void test_calls_of_several_threads_take_turns(void **state)
{
    enum { THREADS = 4 };
    motet_comm *comm;
    pthread_t thread[THREADS];
    run_in_thread run[THREADS];
    motet_comm *pair[THREADS][2];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        make_comms(2, pair[i]);
        run[i] = (run_in_thread){ .comm = pair[i] };
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, launch_two, &run[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(run[i].result, MOTET_OK);
        destroy_comms(2, pair[i]);
    }
    make_comms(1, &comm);
    assert_int_equal(motet_comm_drain(comm), MOTET_OK);
    assert_int_equal(motet_comm_finalize(comm), MOTET_OK);
    assert_int_equal(motet_comm_finalize(comm), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_comm_destroy(comm), MOTET_OK);
}

static int set_up(void **state)
{
    (void)state;
    setenv("MOTET_TRACE_DIR", "/nonexistent", 1); /* recorders in memory only */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_live_is_found),
        cmocka_unit_test(test_a_call_that_comes_too_late_finds_a_stopped_engine),
        cmocka_unit_test(test_the_graveyard_frees_what_late_calls_left),
        cmocka_unit_test(test_a_failed_creation_says_why_however_often_it_is_asked),
        cmocka_unit_test(test_made_operators_fill_the_table_and_make_room_again),
        cmocka_unit_test(test_a_buffer_is_registered_once_and_counted),
        cmocka_unit_test(test_a_window_of_one_rank_is_a_handle),
        cmocka_unit_test(test_exchanges_run_in_the_order_in_which_they_were_drawn),
        cmocka_unit_test(test_the_end_waits_for_an_exchange_and_refuses_the_next),
        cmocka_unit_test(
                test_an_abort_does_not_wait_for_an_exchange_that_has_not_begun),
        cmocka_unit_test(test_batches_are_used_again_with_their_room),
        cmocka_unit_test(test_a_group_names_so_many_streams_and_no_more),
        cmocka_unit_test(test_ranks_of_one_thread_run_at_the_same_time),
        cmocka_unit_test(test_ranks_that_share_a_stream_do_not_wait_for_each_other),
        cmocka_unit_test(test_a_batch_waits_for_every_stream_that_it_names),
        cmocka_unit_test(test_an_abort_frees_a_group_of_ranks_with_its_sentence),
        cmocka_unit_test(test_calls_of_several_threads_take_turns),
    };

    return cmocka_run_group_tests_name("comm", tests, set_up, NULL);
}
