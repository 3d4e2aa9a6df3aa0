/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for whatever must run now: a task never waits for another one, since blocks
 * of kernels spin for each other. Idle threads are kept for the next task.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct worker {
    struct worker *next_idle;
    pthread_cond_t wake;
    void (*fn)(
            void *); /* NULL: idle                                                   */
    void *arg;
} worker;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static worker *idle;
static unsigned threads;

void *fake_grow(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);

    if (memory == NULL) {
        fprintf(stderr, "%s: out of memory for %zu bytes\n", fake_the_face.name, bytes);
        abort();
    }
    return memory;
}

void *fake_need(size_t bytes)
{
    char *memory = fake_grow(NULL, bytes);

    memset(memory, 0, bytes);
    return memory;
}

static void *work(void *arg)
{
    worker *self = arg;

    pthread_mutex_lock(&pool_lock);
    for (;;) {
        void (*fn)(void *) = self->fn;

        if (fn == NULL) {
            pthread_cond_wait(&self->wake, &pool_lock);
            continue;
        }
        pthread_mutex_unlock(&pool_lock);
        fn(self->arg);
        pthread_mutex_lock(&pool_lock);
        self->fn = NULL;
        self->next_idle = idle;
        idle = self;
    }
    return NULL;
}

static bool hire(void (*fn)(void *), void *arg)
{
    worker *self = fake_need(sizeof(*self));
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    pthread_cond_init(&self->wake, NULL);
    self->fn = fn;
    self->arg = arg;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, work, self);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        pthread_cond_destroy(&self->wake);
        free(self);
        return false;
    }
    threads++;
    return true;
}

bool fake_start(void (*fn)(void *), void *arg)
{
    bool started = true;

    pthread_mutex_lock(&pool_lock);
    if (idle != NULL) {
        worker *self = idle;

        idle = self->next_idle;
        self->fn = fn;
        self->arg = arg;
        pthread_cond_signal(&self->wake);
    } else {
        started = threads < FAKE_THREADS && hire(fn, arg);
    }
    pthread_mutex_unlock(&pool_lock);
    return started;
}
