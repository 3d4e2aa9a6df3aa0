/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams as queues. Whoever enqueues into an idle stream gives it a thread of the pool,
 * which works until the queue is empty. What must come first is in the items: the newest
 * items of other streams (legacy stream, waits for events), never anything enqueued
 * later, so the queues alone cannot deadlock.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

fake_point *fake_point_new(void)
{
    fake_point *point = fake_need(sizeof(*point));

    point->refs = 1;
    return point;
}

fake_point *fake_point_ref(fake_point *point)
{
    if (point != NULL)
        point->refs++;
    return point;
}

void fake_point_unref(fake_point *point)
{
    if (point != NULL && --point->refs == 0)
        free(point);
}

void fake_point_reach(fake_point *point)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    point->done_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    point->done = true;
    pthread_cond_broadcast(&fake_changed);
}

void fake_point_wait(fake_point *point)
{
    if (point == NULL)
        return;
    fake_point_ref(point);
    while (!point->done)
        pthread_cond_wait(&fake_changed, &fake_lock);
    fake_point_unref(point);
}

void fake_points_add(fake_points *points, fake_point *point)
{
    if (point == NULL || point->done)
        return;
    points->at = fake_grow(points->at, (points->count + 1) * sizeof(*points->at));
    points->at[points->count++] = fake_point_ref(point);
}

void fake_points_clear(fake_points *points)
{
    for (size_t i = 0; i < points->count; i++)
        fake_point_unref(points->at[i]);
    free(points->at);
    *points = (fake_points){ 0 };
}

fake_work fake_work_copy(const fake_work *work)
{
    fake_work copy = *work;

    if (work->kind == FAKE_KERNEL) {
        copy.kernel.args = fake_need(FAKE_ARGS_LIMIT);
        memcpy(copy.kernel.args, work->kernel.args, work->kernel.bytes);
    }
    if (work->kind == FAKE_RECORD || work->kind == FAKE_WAIT)
        copy.event->refs++;
    return copy;
}

void fake_work_release(fake_work *work)
{
    switch (work->kind) {
    case FAKE_KERNEL: free(work->kernel.args); break;
    case FAKE_RECORD:
    case FAKE_WAIT: fake_event_unref(work->event); break;
    case FAKE_GRAPH: fake_launch_free(work->launch); break;
    case FAKE_COPY: free(work->copy.staged); break;
    case FAKE_EMPTY:
    case FAKE_FILL:
    case FAKE_HOST: break;
    }
    work->kind = FAKE_EMPTY;
}

FAKE_BY_DEVICE static void run_fill(const fake_fill *fill)
{
    uint32_t *to = (uint32_t *)(uintptr_t)fill->address;

    for (size_t i = 0; i < fill->words; i++)
        to[i] = fill->value;
}

static void run_host(const fake_work *work)
{
    fake_self.callback = true;
    work->host.fn(work->host.arg);
    fake_self.callback = false;
}

/* A word arrives whole, also where a kernel polls it. */
FAKE_BY_DEVICE static void run_copy(const fake_work *work)
{
    void *to = (void *)(uintptr_t)work->copy.to;
    const void *from = (const void *)(uintptr_t)work->copy.from;
    uint32_t word;

    if (work->copy.bytes != sizeof(word) || work->copy.to % sizeof(word) != 0) {
        memmove(to, from, work->copy.bytes);
        return;
    }
    memcpy(&word, from, sizeof(word));
    __atomic_store_n((uint32_t *)to, word, __ATOMIC_RELEASE);
}

void fake_work_run(const fake_work *work)
{
    CUresult sticky;

    pthread_mutex_lock(&fake_lock);
    sticky = work->context->sticky;
    pthread_mutex_unlock(&fake_lock);
    if (work->kind == FAKE_GRAPH) {
        fake_launch_run(work->launch); /* its points are reached, whatever happened */
        return;
    }
    if (sticky != CUDA_SUCCESS)
        return;
    if (work->kind != FAKE_KERNEL)
        fake_shadow_carry();
    switch (work->kind) {
    case FAKE_KERNEL: fake_grid_run(work); break;
    case FAKE_COPY: run_copy(work); break;
    case FAKE_FILL: run_fill(&work->fill); break;
    case FAKE_HOST: run_host(work); break;
    default: break;
    }
    fake_shadow_carry();
}

fake_stream *fake_stream_new(fake_context *context, unsigned flags, int priority)
{
    fake_stream *stream = fake_need(sizeof(*stream));

    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->number = fake_serial();
    LIST_INSERT_HEAD(&context->streams, stream, link);
    return stream;
}

static void collect(fake_stream *stream)
{
    if (!stream->destroyed || stream->active)
        return;
    LIST_REMOVE(stream, link);
    fake_point_unref(stream->last);
    free(stream);
}

void fake_stream_drop(fake_stream *stream)
{
    stream->destroyed = true;
    collect(stream);
}

bool fake_stream_blocking(const fake_stream *stream)
{
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

static void run_item(fake_item *item)
{
    for (size_t i = 0; i < item->after.count; i++)
        fake_point_wait(item->after.at[i]);
    fake_points_clear(&item->after);
    pthread_mutex_unlock(&fake_lock);
    if (item->work.kind != FAKE_EMPTY)
        fake_work_run(&item->work);
    pthread_mutex_lock(&fake_lock);
    fake_work_release(&item->work);
    fake_point_reach(item->point);
    fake_point_unref(item->point);
    free(item);
}

static void drain(void *arg)
{
    fake_stream *stream = arg;

    pthread_mutex_lock(&fake_lock);
    while (stream->head != NULL) {
        fake_item *item = stream->head;

        stream->head = item->next;
        run_item(item);
    }
    stream->active = false;
    collect(stream);
    pthread_mutex_unlock(&fake_lock);
}

/* What the rules of the legacy stream put before new work of @p stream. */
static void add_legacy(fake_stream *stream, fake_points *after)
{
    const fake_context *context = stream->context;

    if (stream == context->legacy) {
        fake_stream *s;

        for (s = LIST_FIRST(&context->streams); s != NULL; s = LIST_NEXT(s, link))
            if (s != stream && fake_stream_blocking(s))
                fake_points_add(after, s->last);
    } else if (fake_stream_blocking(stream)) {
        fake_points_add(after, context->legacy->last);
    }
}

static CUresult enqueue(fake_stream *stream, const fake_work *work,
        const fake_points *after, fake_point **point_out)
{
    fake_item *item;

    if (!stream->active) {
        if (!fake_start(drain, stream))
            return CUDA_ERROR_OUT_OF_MEMORY;
        stream->active = true;
        stream->head = NULL;
    }
    item = fake_need(sizeof(*item));
    item->work = *work;
    item->after = *after;
    item->point = fake_point_new();
    add_legacy(stream, &item->after);
    if (stream->head == NULL)
        stream->head = item;
    else
        stream->tail->next = item;
    stream->tail = item;
    fake_point_unref(stream->last);
    stream->last = fake_point_ref(item->point);
    if (point_out != NULL)
        *point_out = fake_point_ref(item->point);
    return CUDA_SUCCESS;
}

CUresult fake_submit(fake_stream *stream, fake_work work, fake_points after,
        fake_point **point_out)
{
    CUresult code = CUDA_SUCCESS;

    if (stream->capture != NULL) {
        fake_points_clear(&after);
        return fake_capture_add(stream, work);
    }
    if (stream == stream->context->legacy)
        code = fake_capture_implicit(stream->context, true);
    if (code == CUDA_SUCCESS)
        code = enqueue(stream, &work, &after, point_out);
    if (code != CUDA_SUCCESS) {
        fake_work_release(&work);
        fake_points_clear(&after);
    }
    return code;
}

void fake_context_drain(fake_context *context)
{
    fake_points points = { 0 };
    fake_stream *s;

    for (s = LIST_FIRST(&context->streams); s != NULL; s = LIST_NEXT(s, link))
        fake_points_add(&points, s->last);
    for (size_t i = 0; i < points.count; i++)
        fake_point_wait(points.at[i]);
    fake_points_clear(&points);
}
