/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root services of this process: start, find, cancel, count. The list is guarded by
 * one lock. A service's thread is detached; it takes itself off the list when its
 * sockets are closed, so that "not on the list" means that nothing is left of it.
 */
#include "bootstrap/root.h"

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/listen.h"
#include "bootstrap/node.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES    (512u << 10)
#define CANCEL_WAIT_NS (2 * MOTET_NS_PER_S)

typedef struct service {
    struct service *next;
    bool ending; /* its sockets are being closed: do not touch wake_fd */
    motet_root root;
} service;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gone = PTHREAD_COND_INITIALIZER;
static service *services;
/* Held by motet_service_start() alone, over system calls: two threads that both are
 * rank 0 of one fixed id must end up at one service, which then says so. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
/* What a forked child found on the list; kept reachable, never used. */
static service *of_parent;

static service *find(const uint8_t secret[MOTET_SECRET_BYTES])
{
    for (service *s = services; s != NULL; s = s->next)
        if (memcmp(s->root.id.secret, secret, MOTET_SECRET_BYTES) == 0)
            return s;
    return NULL;
}

static void take_off(service *s)
{
    service **link = &services;

    pthread_mutex_lock(&lock);
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    pthread_cond_broadcast(&gone);
    pthread_mutex_unlock(&lock);
}

static void *service_main(void *arg)
{
    service *s = arg;

    pthread_setname_np(pthread_self(), "motet-root");
    motet_root_run(&s->root);
    pthread_mutex_lock(&lock);
    s->ending = true;
    pthread_mutex_unlock(&lock);
    motet_root_close(&s->root);
    take_off(s);
    free(s);
    return NULL;
}

/* exit() ends the threads without a word; what lies in the file system would stay.
 * Tries for 100 ms only: in a forked child without our handler the lock may be held
 * for ever, and the paths are the parent's. */
static void unlink_all(void)
{
    const struct timespec ms = { .tv_nsec = (long)MOTET_NS_PER_MS };
    int tries = 0;

    while (pthread_mutex_trylock(&lock) != 0) {
        if (++tries > 100)
            return;
        nanosleep(&ms, NULL);
    }
    for (service *s = services; s != NULL; s = s->next)
        if (s->root.facts.pid == (uint32_t)getpid())
            motet_root_unlink(&s->root);
    pthread_mutex_unlock(&lock);
}

static motet_result prepare(const motet_params *params, const motet_id_fields *fields,
        motet_root *root)
{
    motet_node node;

    motet_node_describe(params, &node);
    root->id = *fields;
    memcpy(root->host, node.host, sizeof(root->host));
    root->facts = (motet_root_facts){ .pid = (uint32_t)getpid(),
        .uid = (uint32_t)geteuid(),
        .boot_hash = node.boot_hash,
        .host = root->host };
    root->root_rank = MOTET_NO_RANK;
    root->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (root->wake_fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "open an eventfd for the rendezvous");
    motet_sock_note(root->wake_fd);
    if (!fields->fixed) {
        root->id.pid = root->facts.pid;
        root->id.uid = root->facts.uid;
        root->id.boot_hash = node.boot_hash;
        snprintf(root->id.host, sizeof(root->id.host), "%.*s",
                (int)sizeof(root->id.host) - 1, node.host);
    }
    return motet_root_listen(params, root);
}

static int create_thread(service *s, size_t stack_bytes)
{
    pthread_attr_t attr;
    pthread_t thread;
    int error = pthread_attr_init(&attr);

    if (error != 0)
        return error;
    error = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (error == 0 && stack_bytes != 0)
        error = pthread_attr_setstacksize(&attr, stack_bytes);
    if (error == 0)
        error = pthread_create(&thread, &attr, service_main, s);
    pthread_attr_destroy(&attr);
    return error;
}

/* No signals: handlers of the program must not run on a small stack of ours. */
static motet_result spawn(service *s)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = create_thread(s, STACK_BYTES);
    if (error == EINVAL) /* much thread-local storage in this program: default stack */
        error = create_thread(s, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    if (error != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "start the rendezvous' thread");
    return MOTET_OK;
}

static motet_result start_new(const motet_params *params, motet_id_fields *fields)
{
    static bool at_exit_done; /* guarded by start_lock */
    service *s = calloc(1, sizeof(*s));
    motet_id_fields filled;
    motet_result result;

    if (s == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "allocate %zu bytes for the rendezvous", sizeof(*s));
    s->root.wake_fd = -1;
    result = prepare(params, fields, &s->root);
    if (result != MOTET_OK)
        goto out_close;
    if (!at_exit_done)
        at_exit_done = atexit(unlink_all) == 0;
    filled = s->root.id; /* now: the service may have come and gone after spawn() */
    pthread_mutex_lock(&lock);
    s->next = services;
    services = s;
    pthread_mutex_unlock(&lock);
    result = spawn(s);
    if (result != MOTET_OK)
        goto out_list;
    *fields = filled;
    return MOTET_OK;

out_list:
    take_off(s);
out_close:
    motet_root_close(&s->root);
    free(s);
    return result;
}

motet_result motet_service_start(const motet_params *params, motet_id_fields *fields)
{
    motet_result result = MOTET_OK;
    bool serves;
    service *s;

    pthread_mutex_lock(&start_lock);
    pthread_mutex_lock(&lock);
    s = find(fields->secret);
    serves = s != NULL && !s->ending &&
            !atomic_load_explicit(&s->root.judged, memory_order_acquire);
    pthread_mutex_unlock(&lock);
    if (s != NULL && !serves)
        motet_service_cancel(fields); /* the last attempt at this address is over */
    if (!serves)
        result = start_new(params, fields);
    pthread_mutex_unlock(&start_lock);
    return result;
}

void motet_service_cancel(const motet_id_fields *fields)
{
    uint64_t until_ns = motet_now_ns() + CANCEL_WAIT_NS, one = 1;
    struct timespec until = { .tv_sec = (time_t)(until_ns / MOTET_NS_PER_S),
        .tv_nsec = (long)(until_ns % MOTET_NS_PER_S) };
    service *s;
    int error = 0;

    pthread_mutex_lock(&lock);
    s = find(fields->secret);
    if (s != NULL && !s->ending) {
        atomic_store_explicit(&s->root.cancel, true, memory_order_release);
        (void)!write(s->root.wake_fd, &one, sizeof(one)); /* full means woken already */
    }
    /* by secret, not by pointer: it is freed when it is gone. The bound is for a roster
     * on its way to a rank that is stopped; nothing here can hurry that. */
    while (error == 0 && find(fields->secret) != NULL)
        error = pthread_cond_clockwait(&gone, &lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&lock);
}

int motet_bootstrap_services(void)
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (const service *s = services; s != NULL; s = s->next)
        n++;
    pthread_mutex_unlock(&lock);
    return n;
}

void motet_bootstrap_after_fork(void)
{
    /* The child has one thread, and the locks may be held by threads it lacks. */
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&start_lock, NULL);
    pthread_cond_init(&gone, NULL);
    of_parent = services;
    services = NULL;
    motet_sock_close_inherited();
}

motet_result motet_id_create(const motet_params *params, motet_id *out)
{
    const char *address = motet_param_text(params, MOTET_P_COMM_ID);
    motet_id_fields fields = { 0 };

    if (address[0] != '\0') {
        MOTET_TRY(motet_id_from_address(address, motet_root_family(params), &fields),
                "make a unique id");
    } else {
        MOTET_TRY(motet_id_random(&fields), "make a unique id");
        MOTET_TRY(motet_service_start(params, &fields), "make a unique id");
    }
    motet_id_encode(&fields, out);
    return MOTET_OK;
}

void motet_id_cancel(const motet_id *id)
{
    motet_id_fields fields;

    if (motet_id_decode(id, &fields) == MOTET_OK)
        motet_service_cancel(&fields);
}
