/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host streams: one thread and one queue each.
 *
 * Work is numbered in the order it is given: `given` counts it, `done` follows. To
 * wait for a stream is to wait until `done` reaches what `given` was, so a wait of one
 * stream for another needs nothing from the other. It cannot deadlock: work waits only
 * for work that was given before it.
 *
 * Lifetime: the table of live streams holds one reference, each call and each pending
 * wait for another stream hold one. destroy() takes the stream out of the table, so
 * that no new call finds it, and the last reference frees it.
 */
#include "device/stream.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    struct work *next;
    motet_stream_fn fn;
    void *arg;
    motet_host_stream *other; /* wait until other->done >= target; fn is NULL then */
    uint64_t target;
} work;

struct motet_host_stream {
    motet_host_stream *next; /* in the table; under table_lock */
    unsigned references;     /* under table_lock */
    pthread_t thread;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    work *first, **last;
    work *spare; /* used items, so that a steady stream allocates nothing */
    uint64_t given, done;
    bool closing;
    motet_result failure; /* the first since the last sync */
    char failure_trail[MOTET_ERROR_TRAIL_MAX];
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static motet_host_stream *table;

/* The place in the table that points to @p handle, or NULL. Under table_lock. */
static motet_host_stream **table_find(const void *handle)
{
    for (motet_host_stream **at = &table; *at != NULL; at = &(*at)->next) {
        if (*at == handle)
            return at;
    }
    return NULL;
}

/* A reference to a live stream, or NULL with a trail. */
static motet_host_stream *acquire(motet_host_stream *handle)
{
    motet_host_stream *stream = NULL;

    pthread_mutex_lock(&table_lock);
    if (handle != NULL && table_find(handle) != NULL) {
        stream = handle;
        stream->references++;
    }
    pthread_mutex_unlock(&table_lock);
    if (stream == NULL)
        (void)motet_fail(MOTET_ERR_ARGUMENT, "%p is not a live host stream",
                (void *)handle);
    return stream;
}

static void free_items(work *item)
{
    while (item != NULL) {
        work *next = item->next;

        free(item);
        item = next;
    }
}

static void release(motet_host_stream *stream)
{
    bool last;

    pthread_mutex_lock(&table_lock);
    last = --stream->references == 0;
    pthread_mutex_unlock(&table_lock);
    if (!last)
        return;
    free_items(stream->spare);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static void wait_until_done(motet_host_stream *stream, uint64_t target)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->done < target)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static motet_result run(const work *item)
{
    if (item->fn == NULL) {
        wait_until_done(item->other, item->target);
        release(item->other);
        return MOTET_OK;
    }
    motet_error_clear(); /* a trail belongs to the work that made it */
    return item->fn(item->arg);
}

/* Account for @p item, which has run and goes back to the spare ones. Under the lock. */
static void finish(motet_host_stream *stream, work *item, motet_result result)
{
    if (result != MOTET_OK && stream->failure == MOTET_OK) {
        stream->failure = result;
        strncpy(stream->failure_trail, motet_error_trail(),
                sizeof(stream->failure_trail) - 1);
    }
    item->next = stream->spare;
    stream->spare = item;
    stream->done++;
    pthread_cond_broadcast(&stream->changed);
}

static void *thread_main(void *arg)
{
    motet_host_stream *stream = arg;

    pthread_mutex_lock(&stream->lock);
    for (;;) {
        work *item = stream->first;
        motet_result result;

        if (item == NULL && stream->closing)
            break;
        if (item == NULL) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = item->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        pthread_mutex_unlock(&stream->lock);
        result = run(item);
        pthread_mutex_lock(&stream->lock);
        finish(stream, item, result);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Start the thread with all signals blocked: they are for the program's own threads. */
static int start_thread(motet_host_stream *stream)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    error = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error != 0)
        return error;
    error = pthread_create(&stream->thread, NULL, thread_main, stream);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* it was valid before */
    if (error == 0)
        (void)pthread_setname_np(stream->thread, "motet-stream"); /* only for people */
    return error;
}

motet_result motet_host_stream_create(motet_host_stream **out)
{
    motet_host_stream *stream = calloc(1, sizeof(*stream));
    int error;

    if (stream == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate a host stream");
    pthread_mutex_init(&stream->lock, NULL); /* neither fails on Linux */
    pthread_cond_init(&stream->changed, NULL);
    stream->references = 1;
    stream->last = &stream->first;
    error = start_thread(stream);
    if (error != 0) {
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
        errno = error;
        return motet_fail_errno(MOTET_ERR_SYSTEM, "start the thread of a host stream");
    }
    pthread_mutex_lock(&table_lock);
    stream->next = table;
    table = stream;
    pthread_mutex_unlock(&table_lock);
    *out = stream;
    return MOTET_OK;
}

/* The failure to report, once. Under the lock. */
static motet_result take_failure(motet_host_stream *stream)
{
    motet_result result = stream->failure;

    stream->failure = MOTET_OK;
    if (result == MOTET_OK)
        return MOTET_OK;
    return motet_error_adopt(result, stream->failure_trail);
}

/* Fails if the caller is the stream's own thread, which would wait for itself. */
static motet_result check_not_inside(const motet_host_stream *stream, const char *what)
{
    if (!pthread_equal(stream->thread, pthread_self()))
        return MOTET_OK;
    return motet_fail(MOTET_ERR_USAGE, "%s of host stream %p by its own work", what,
            (const void *)stream);
}

motet_result motet_host_stream_destroy(motet_host_stream *handle)
{
    motet_host_stream *stream = acquire(handle);
    motet_host_stream **at;
    motet_result result;

    if (stream == NULL)
        return MOTET_ERR_ARGUMENT;
    result = check_not_inside(stream, "destroy");
    if (result != MOTET_OK)
        goto out;

    pthread_mutex_lock(&table_lock);
    at = table_find(stream);
    if (at != NULL)
        *at = stream->next;
    pthread_mutex_unlock(&table_lock);
    if (at == NULL) {
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "host stream %p is being destroyed already", (void *)handle);
        goto out;
    }

    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&stream->lock);
    result = take_failure(stream);
    pthread_mutex_unlock(&stream->lock);
    release(stream); /* the table's */
out:
    release(stream); /* this call's */
    return result;
}

bool motet_host_stream_valid(const void *handle)
{
    bool found;

    pthread_mutex_lock(&table_lock);
    found = handle != NULL && table_find(handle) != NULL;
    pthread_mutex_unlock(&table_lock);
    return found;
}

/* Append an item like @p model. */
static motet_result append(motet_host_stream *stream, const work *model)
{
    motet_result result = MOTET_OK;
    work *item;

    pthread_mutex_lock(&stream->lock);
    item = stream->spare;
    if (stream->closing) {
        result = motet_fail(MOTET_ERR_ARGUMENT, "host stream %p is being destroyed",
                (void *)stream);
    } else if (item != NULL) {
        stream->spare = item->next;
    } else if ((item = malloc(sizeof(*item))) == NULL) {
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "allocate work of a host stream");
    }
    if (result == MOTET_OK) {
        *item = *model;
        item->next = NULL;
        *stream->last = item;
        stream->last = &item->next;
        stream->given++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return result;
}

motet_result motet_host_stream_submit(motet_host_stream *handle, motet_stream_fn fn,
        void *arg)
{
    const work model = { .fn = fn, .arg = arg };
    motet_host_stream *stream;
    motet_result result;

    if (fn == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "work for host stream %p is NULL",
                (void *)handle);
    stream = acquire(handle);
    if (stream == NULL)
        return MOTET_ERR_ARGUMENT;
    result = append(stream, &model);
    release(stream);
    return result;
}

motet_result motet_host_stream_sync(motet_host_stream *handle)
{
    motet_host_stream *stream = acquire(handle);
    motet_result result;

    if (stream == NULL)
        return MOTET_ERR_ARGUMENT;
    result = check_not_inside(stream, "sync");
    if (result == MOTET_OK) {
        uint64_t target;

        pthread_mutex_lock(&stream->lock);
        target = stream->given;
        while (stream->done < target)
            pthread_cond_wait(&stream->changed, &stream->lock);
        result = take_failure(stream);
        pthread_mutex_unlock(&stream->lock);
    }
    release(stream);
    return result;
}

motet_result motet_host_stream_query(motet_host_stream *handle)
{
    motet_host_stream *stream = acquire(handle);
    bool idle;

    if (stream == NULL)
        return MOTET_ERR_ARGUMENT;
    pthread_mutex_lock(&stream->lock);
    idle = stream->done == stream->given;
    pthread_mutex_unlock(&stream->lock);
    release(stream);
    return idle ? MOTET_OK : MOTET_IN_PROGRESS;
}

motet_result motet_host_stream_wait(motet_host_stream *handle,
        motet_host_stream *other_handle)
{
    motet_host_stream *stream = acquire(handle);
    motet_host_stream *other = stream != NULL ? acquire(other_handle) : NULL;
    motet_result result = MOTET_ERR_ARGUMENT;
    work model = { .fn = NULL };

    if (other == NULL)
        goto out;
    result = MOTET_OK;
    if (other == stream) /* in order anyway */
        goto out_other;
    pthread_mutex_lock(&other->lock);
    model.target = other->given;
    pthread_mutex_unlock(&other->lock);
    model.other = other;
    result = append(stream, &model);
    if (result == MOTET_OK)
        goto out; /* the reference to `other` is the item's now */
out_other:
    release(other);
out:
    if (stream != NULL)
        release(stream);
    return result;
}

void motet_host_stream_after_fork(void)
{
    /* The threads are not in the child, and a lock may be held by one of them: the
     * parent's streams are left as they are, unreachable. */
    table_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    table = NULL;
}
