/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher thread: events, ticks, and that removal means it. */
#include "trace/watch.h"

#include "base/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

/* Far beyond what anything here takes; only a defect meets it. */
#define PATIENCE_S 20

typedef struct probe {
    motet_watch_item item; /* first: callbacks get its address */
    int fds[4];
    sem_t event, tick, entered, leave;
    _Atomic int events, ticks, last_index;
    _Atomic bool removed, called_after_removal, hold;
    _Atomic uint64_t last_now_ns;
    pthread_mutex_t *wanted; /* a lock that the tick takes, or NULL */
} probe;

static void await(sem_t *sem)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (sem_timedwait(sem, &until) != 0)
        fail_msg("nothing came within %d s", PATIENCE_S);
}

static void note_call(probe *p)
{
    if (atomic_load(&p->removed))
        atomic_store(&p->called_after_removal, true);
}

static void on_event(motet_watch_item *item, int index)
{
    probe *p = (probe *)item;

    note_call(p);
    atomic_store(&p->last_index, index);
    atomic_fetch_add(&p->events, 1);
    item->fds[index] = -1;
    sem_post(&p->event);
}

static void on_tick(motet_watch_item *item, uint64_t now_ns)
{
    probe *p = (probe *)item;

    note_call(p);
    atomic_store(&p->last_now_ns, now_ns);
    atomic_fetch_add(&p->ticks, 1);
    sem_post(&p->tick);
    if (p->wanted != NULL) {
        pthread_mutex_lock(p->wanted);
        pthread_mutex_unlock(p->wanted);
    }
    if (atomic_load(&p->hold)) {
        sem_post(&p->entered);
        while (sem_wait(&p->leave) != 0)
            ;
    }
}

static void probe_init(probe *p, int fd)
{
    memset(p, 0, sizeof(*p));
    p->fds[0] = -1;
    p->fds[1] = fd;
    p->fds[2] = -1;
    p->item = (motet_watch_item){ .fds = p->fds,
        .nfds = 3,
        .on_event = on_event,
        .on_tick = on_tick };
    sem_init(&p->event, 0, 0);
    sem_init(&p->tick, 0, 0);
    sem_init(&p->entered, 0, 0);
    sem_init(&p->leave, 0, 0);
}

static void add(probe *p)
{
    if (motet_watch_add(&p->item) != MOTET_OK)
        fail_msg("%s", motet_error_trail());
}

static void remove_probe(probe *p)
{
    motet_watch_remove(&p->item);
    atomic_store(&p->removed, true);
}

static int count_threads(void)
{
    DIR *stream = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(stream);
    return n;
}

static void test_a_readable_descriptor_is_reported_with_its_index(void **state)
{
    static probe p;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    probe_init(&p, fds[0]);
    add(&p);
    assert_int_equal(write(fds[1], "x", 1), 1);
    await(&p.event);
    assert_int_equal(atomic_load(&p.last_index), 1);
    /* The callback set the entry to -1, so that it is not polled again, though readable. */
    await(&p.tick);
    await(&p.tick);
    assert_int_equal(atomic_load(&p.events), 1);
    remove_probe(&p);
    close(fds[0]);
    close(fds[1]);
}

static void test_hang_up_is_reported_at_once(void **state)
{
    static probe p;
    uint64_t start_ns;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    probe_init(&p, fds[0]);
    add(&p);
    start_ns = motet_now_ns();
    close(fds[1]);
    await(&p.event);
    assert_true(motet_now_ns() - start_ns < 2 * MOTET_NS_PER_S);
    remove_probe(&p);
    close(fds[0]);
}

static void test_a_descriptor_of_an_item_added_later_is_seen_at_once(void **state)
{
    static probe first, second;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    probe_init(&first, -1);
    probe_init(&second, fds[0]);
    add(&first);
    await(&first.tick); /* the thread is in its poll */
    add(&second);
    await(&second.event);
    remove_probe(&first);
    remove_probe(&second);
    close(fds[0]);
    close(fds[1]);
}

static void test_ticks_come_each_quarter_of_a_second(void **state)
{
    static probe p;
    uint64_t start_ns;

    (void)state;
    probe_init(&p, -1);
    add(&p);
    await(&p.tick);
    start_ns = atomic_load(&p.last_now_ns);
    for (int i = 0; i < 4; i++)
        await(&p.tick);
    assert_true(atomic_load(&p.last_now_ns) - start_ns >= MOTET_NS_PER_S);
    remove_probe(&p);
}

static void test_many_descriptors_are_all_watched(void **state)
{
    enum { ITEMS = 40 };
    static probe p[ITEMS];
    int fds[ITEMS][2];

    (void)state;
    for (int i = 0; i < ITEMS; i++) {
        assert_int_equal(pipe(fds[i]), 0);
        probe_init(&p[i], fds[i][0]);
        add(&p[i]);
    }
    for (int i = ITEMS - 1; i >= 0; i--)
        close(fds[i][1]);
    for (int i = 0; i < ITEMS; i++)
        await(&p[i].event);
    for (int i = 0; i < ITEMS; i++) {
        remove_probe(&p[i]);
        close(fds[i][0]);
        assert_int_equal(atomic_load(&p[i].events), 1);
    }
}

static void test_the_thread_lives_as_long_as_there_are_items(void **state)
{
    static probe a, b;
    int before = count_threads();

    (void)state;
    probe_init(&a, -1);
    probe_init(&b, -1);
    add(&a);
    assert_int_equal(count_threads(), before + 1);
    add(&b);
    assert_int_equal(count_threads(), before + 1);
    remove_probe(&a);
    assert_int_equal(count_threads(), before + 1);
    remove_probe(&b);
    assert_int_equal(count_threads(), before);
    remove_probe(&b); /* once more: nothing happens */
    probe_init(&a, -1);
    add(&a);
    await(&a.tick);
    remove_probe(&a);
    assert_int_equal(count_threads(), before);
}

static void *remove_from_thread(void *arg)
{
    probe *p = arg;

    remove_probe(p);
    sem_post(&p->event);
    return NULL;
}

static void test_removal_waits_for_the_running_call(void **state)
{
    static probe p;
    pthread_t remover;

    (void)state;
    probe_init(&p, -1);
    atomic_store(&p.hold, true);
    add(&p);
    await(&p.entered);
    assert_int_equal(pthread_create(&remover, NULL, remove_from_thread, &p), 0);
    for (int i = 0; i < 1000; i++)
        sched_yield();
    assert_false(atomic_load(&p.removed));
    assert_int_equal(sem_trywait(&p.event), -1);
    atomic_store(&p.hold, false);
    sem_post(&p.leave);
    await(&p.event);
    pthread_join(remover, NULL);
    assert_false(atomic_load(&p.called_after_removal));
}

static void test_another_item_can_go_while_a_call_wants_our_lock(void **state)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static probe busy, other;

    (void)state;
    probe_init(&busy, -1);
    probe_init(&other, -1);
    busy.wanted = &lock;
    pthread_mutex_lock(&lock);
    add(&busy);
    add(&other);
    await(&busy.tick); /* its call now waits for our lock */
    remove_probe(&other);
    probe_init(&other, -1);
    add(&other);
    remove_probe(&other);
    pthread_mutex_unlock(&lock);
    remove_probe(&busy);
}

static void test_the_watcher_takes_no_signals(void **state)
{
    static probe p;
    sigset_t usr1, pending;

    (void)state;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    probe_init(&p, -1);
    add(&p);
    await(&p.tick);
    /* Blocked here, and everywhere else: it stays pending for the process. */
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    await(&p.tick);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGUSR1), 1);
    signal(SIGUSR1, SIG_IGN); /* drops it */
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    remove_probe(&p);
}

#define CHURNERS 4
#define ROUNDS   (UNDER_TSAN ? 150 : 600)

static void *churn(void *arg)
{
    probe *p = arg;
    int fds[2];

    if (pipe(fds) != 0)
        return arg;
    for (int i = 0; i < ROUNDS; i++) {
        probe_init(p, fds[0]);
        if (motet_watch_add(&p->item) != MOTET_OK)
            return arg;
        if (i % 3 == 0) {
            char c;

            if (write(fds[1], "x", 1) != 1)
                return arg;
            await(&p->event);
            if (read(fds[0], &c, 1) != 1)
                return arg;
        }
        remove_probe(p);
        if (atomic_load(&p->called_after_removal))
            return arg;
        /* The memory is somebody else's now: a late call would crash. */
        memset(&p->item, 0xee, sizeof(p->item));
    }
    close(fds[0]);
    close(fds[1]);
    return NULL;
}

static void test_threads_add_and_remove_at_once(void **state)
{
    static probe p[CHURNERS];
    pthread_t threads[CHURNERS];
    int before = count_threads();

    (void)state;
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &p[i]), 0);
    for (int i = 0; i < CHURNERS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(count_threads(), before);
}

static probe inherited;

static void child_after_fork(void)
{
    static probe own;
    int fds[2];

    motet_watch_after_fork();
    if (count_threads() != 1)
        _exit(1);
    motet_watch_remove(&inherited.item); /* unknown here: nothing to wait for */
    if (UNDER_TSAN)
        _exit(0); /* which allows no new thread here */
    if (pipe(fds) != 0)
        _exit(2);
    probe_init(&own, fds[0]);
    if (motet_watch_add(&own.item) != MOTET_OK)
        _exit(3);
    close(fds[1]);
    await(&own.event);
    motet_watch_remove(&own.item);
    if (atomic_load(&inherited.events) != 0)
        _exit(4);
    _exit(count_threads() == 1 ? 0 : 5);
}

static void test_a_forked_child_has_no_items_and_may_have_its_own(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    probe_init(&inherited, -1);
    add(&inherited);
    await(&inherited.tick);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_after_fork();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    await(&inherited.tick); /* the parent's watcher did not notice */
    remove_probe(&inherited);
}

static void child_without_descriptors(void)
{
    struct rlimit none = { 0, 0 };
    static probe p;

    probe_init(&p, -1);
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        _exit(1);
    if (motet_watch_add(&p.item) != MOTET_ERR_SYSTEM)
        _exit(2);
    if (strstr(motet_error_trail(), "eventfd: ") == NULL)
        _exit(3);
    motet_watch_remove(&p.item);
    _exit(0);
}

static void test_without_descriptors_it_is_an_error_and_nothing_is_added(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0)
        child_without_descriptors();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_readable_descriptor_is_reported_with_its_index),
        cmocka_unit_test(test_hang_up_is_reported_at_once),
        cmocka_unit_test(test_a_descriptor_of_an_item_added_later_is_seen_at_once),
        cmocka_unit_test(test_ticks_come_each_quarter_of_a_second),
        cmocka_unit_test(test_many_descriptors_are_all_watched),
        cmocka_unit_test(test_the_thread_lives_as_long_as_there_are_items),
        cmocka_unit_test(test_removal_waits_for_the_running_call),
        cmocka_unit_test(test_another_item_can_go_while_a_call_wants_our_lock),
        cmocka_unit_test(test_the_watcher_takes_no_signals),
        cmocka_unit_test(test_threads_add_and_remove_at_once),
        cmocka_unit_test(test_a_forked_child_has_no_items_and_may_have_its_own),
        cmocka_unit_test(test_without_descriptors_it_is_an_error_and_nothing_is_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
