/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher thread. Each round it lists all items and their descriptors, polls
 * without the lock until something happens or the next tick is due, and makes the
 * calls. The lock is not held during a call, so a callback may take locks that
 * somebody holds while adding or removing other items.
 *
 * Removal: motet_watch_remove() strikes the item from the list of the round in
 * progress, so no further call of it starts, and waits until a call of it that has
 * started is over. The round's list is written under the lock; the array given to
 * poll() is touched by the watcher alone.
 *
 * The thread ends when it is told to, not when it finds the list empty: between the
 * removal of the last item and the decision to stop, somebody may have added one.
 * Whoever removes the last item joins it; whoever adds one meanwhile waits for that
 * and starts a new one.
 */
#include "trace/watch.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TICK_NS     (250 * MOTET_NS_PER_MS)
#define STACK_BYTES (512u * 1024u)

/* One call that the round may make: on_tick of the item if index is −1, else on_event. */
typedef struct watch_slot {
    motet_watch_item *item; /* NULL once removed */
    int index;
} watch_slot;

static struct watcher {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a call ended, or the thread has been joined */
    motet_watch_item *items;
    motet_watch_item *running; /* whose callback runs now */
    pthread_t thread;
    bool started, stopping;
    int wake_fd;
    /* The round: slots[i] belongs to polled[i + 1]; polled[0] is wake_fd. */
    watch_slot *slots;
    struct pollfd *polled;
    size_t count, capacity;
} watcher = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .wake_fd = -1,
};

/* What a forked child inherits and cannot trust, kept so that it counts as in use. */
static struct {
    void *slots, *polled;
} left_by_parent;

static void wake(void)
{
    const uint64_t one = 1;

    /* A full counter means that a wake-up is pending already. */
    (void)!write(watcher.wake_fd, &one, sizeof(one));
}

static size_t slots_needed(void)
{
    size_t need = 0;

    for (const motet_watch_item *i = watcher.items; i != NULL; i = i->next)
        need += 1 + (size_t)(i->nfds > 0 ? i->nfds : 0);
    return need;
}

/* False without memory: the round then covers what fits, and the next one tries again. */
static bool grow(size_t need)
{
    size_t capacity = watcher.capacity == 0 ? 32 : watcher.capacity;
    watch_slot *slots;
    struct pollfd *polled;

    if (need <= watcher.capacity)
        return true;
    while (capacity < need)
        capacity *= 2;
    slots = realloc(watcher.slots, capacity * sizeof(*slots));
    if (slots == NULL)
        return false;
    watcher.slots = slots;
    polled = realloc(watcher.polled, (capacity + 1) * sizeof(*polled));
    if (polled == NULL)
        return false;
    watcher.polled = polled;
    watcher.capacity = capacity;
    return true;
}

static void put(motet_watch_item *item, int index, int fd)
{
    if (watcher.count == watcher.capacity)
        return;
    watcher.slots[watcher.count] = (watch_slot){ item, index };
    watcher.polled[watcher.count + 1] = (struct pollfd){ .fd = fd, .events = POLLIN };
    watcher.count++;
}

/* Ticks come first: without memory for everything, heartbeats go on. */
static void list_round(void)
{
    (void)grow(slots_needed());
    watcher.count = 0;
    watcher.polled[0] = (struct pollfd){ .fd = watcher.wake_fd, .events = POLLIN };
    for (motet_watch_item *i = watcher.items; i != NULL; i = i->next)
        put(i, -1, -1);
    for (motet_watch_item *i = watcher.items; i != NULL; i = i->next)
        for (int k = 0; k < i->nfds; k++)
            if (i->fds[k] >= 0)
                put(i, k, i->fds[k]);
}

/* Makes the round's calls; the lock is held on entry and exit. */
static void make_calls(bool tick, uint64_t now_ns)
{
    for (size_t k = 0; k < watcher.count; k++) {
        motet_watch_item *item = watcher.slots[k].item;
        int index = watcher.slots[k].index;

        if (item == NULL || (index < 0 ? !tick : watcher.polled[k + 1].revents == 0))
            continue;
        watcher.running = item;
        pthread_mutex_unlock(&watcher.lock);
        if (index < 0)
            item->on_tick(item, now_ns);
        else if (item->fds[index] >= 0)
            item->on_event(item, index);
        pthread_mutex_lock(&watcher.lock);
        watcher.running = NULL;
        pthread_cond_broadcast(&watcher.changed);
    }
}

static void drain_wake_fd(void)
{
    uint64_t ignored;

    if (watcher.polled[0].revents != 0)
        (void)!read(watcher.wake_fd, &ignored, sizeof(ignored));
}

/* Waits for descriptors until @p due_ns. */
static void wait_until(uint64_t due_ns)
{
    uint64_t now_ns = motet_now_ns();
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    int timeout_ms = (int)((left_ns + MOTET_NS_PER_MS - 1) / MOTET_NS_PER_MS);

    if (poll(watcher.polled, (nfds_t)(watcher.count + 1), timeout_ms) >= 0)
        return;
    /* No memory in the kernel, or too many descriptors: nothing is known, so nothing is
     * reported; ticks go on, and this does not spin. */
    for (size_t k = 0; k <= watcher.count; k++)
        watcher.polled[k].revents = 0;
    if (errno != EINTR)
        (void)poll(NULL, 0, timeout_ms < 10 ? timeout_ms : 10);
}

static void *watch_main(void *arg)
{
    uint64_t due_ns = motet_now_ns() + TICK_NS;

    (void)arg;
    (void)prctl(PR_SET_NAME, "motet-watch");
    pthread_mutex_lock(&watcher.lock);
    while (!watcher.stopping) {
        uint64_t now_ns;
        bool tick;

        list_round();
        pthread_mutex_unlock(&watcher.lock);
        wait_until(due_ns);
        drain_wake_fd();
        now_ns = motet_now_ns();
        tick = now_ns >= due_ns;
        if (tick)
            due_ns = now_ns + TICK_NS;
        pthread_mutex_lock(&watcher.lock);
        make_calls(tick, now_ns);
    }
    watcher.count = 0;
    pthread_mutex_unlock(&watcher.lock);
    return NULL;
}

/* A thread that takes no signal of the application. Returns an errno value. */
static int spawn(void)
{
    sigset_t all, before;
    pthread_attr_t attr;
    long least = sysconf(_SC_THREAD_STACK_MIN);
    size_t stack = STACK_BYTES + (size_t)(least > 0 ? least : 0);
    int failed = pthread_attr_init(&attr);

    if (failed != 0)
        return failed;
    (void)pthread_attr_setstacksize(&attr, stack);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&watcher.thread, &attr, watch_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed;
}

/* Starts the thread; the lock is held and the list is not empty. */
static motet_result start(void)
{
    int failed;

    if (!grow(slots_needed()))
        return motet_fail(MOTET_ERR_SYSTEM, "no memory to watch %zu descriptors",
                slots_needed());
    watcher.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watcher.wake_fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "create the watcher's eventfd");
    failed = spawn();
    if (failed != 0) {
        close(watcher.wake_fd);
        watcher.wake_fd = -1;
        errno = failed;
        return motet_fail_errno(MOTET_ERR_SYSTEM, "start the watcher thread");
    }
    watcher.started = true;
    return MOTET_OK;
}

/* Joins the thread of an empty list; the lock is held, and given up meanwhile. */
static void stop(void)
{
    pthread_t thread = watcher.thread;

    watcher.stopping = true;
    wake();
    pthread_mutex_unlock(&watcher.lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&watcher.lock);
    close(watcher.wake_fd);
    watcher.wake_fd = -1;
    free(watcher.slots);
    free(watcher.polled);
    watcher.slots = NULL;
    watcher.polled = NULL;
    watcher.capacity = 0;
    watcher.started = false;
    watcher.stopping = false;
    pthread_cond_broadcast(&watcher.changed);
}

static void unlink_item(const motet_watch_item *item)
{
    motet_watch_item **at = &watcher.items;

    while (*at != NULL && *at != item)
        at = &(*at)->next;
    if (*at != NULL)
        *at = item->next;
    for (size_t k = 0; k < watcher.count; k++)
        if (watcher.slots[k].item == item)
            watcher.slots[k].item = NULL;
}

motet_result motet_watch_add(motet_watch_item *item)
{
    motet_result result = MOTET_OK;

    pthread_mutex_lock(&watcher.lock);
    while (watcher.stopping)
        pthread_cond_wait(&watcher.changed, &watcher.lock);
    item->next = watcher.items;
    watcher.items = item;
    if (watcher.started)
        wake();
    else
        result = start();
    if (result != MOTET_OK)
        unlink_item(item);
    pthread_mutex_unlock(&watcher.lock);
    return result;
}

void motet_watch_remove(motet_watch_item *item)
{
    pthread_mutex_lock(&watcher.lock);
    unlink_item(item);
    while (watcher.running == item)
        pthread_cond_wait(&watcher.changed, &watcher.lock);
    if (watcher.items == NULL && watcher.started && !watcher.stopping)
        stop();
    while (watcher.stopping)
        pthread_cond_wait(&watcher.changed, &watcher.lock);
    pthread_mutex_unlock(&watcher.lock);
}

void motet_watch_after_fork(void)
{
    if (watcher.wake_fd >= 0)
        close(watcher.wake_fd);
    /* The thread may have been anywhere when the parent forked, also inside realloc. */
    left_by_parent.slots = watcher.slots;
    left_by_parent.polled = watcher.polled;
    watcher = (struct watcher){
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .wake_fd = -1,
    };
}
