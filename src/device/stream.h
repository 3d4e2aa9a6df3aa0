/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host streams: what a CPU rank uses where a GPU rank uses cudaStream_t. A stream
 * is a thread that runs the work given to it, in order. The handle is checked
 * against the table of live streams, never followed blindly.
 */
#ifndef MOTET_DEVICE_STREAM_H
#define MOTET_DEVICE_STREAM_H

#include "base/error.h"

#include <stdbool.h>

typedef struct motet_host_stream motet_host_stream;

/** Work: returns the result that motet_stream_sync() will report; the trail is taken over. */
typedef motet_result (*motet_stream_fn)(void *arg);

MOTET_MUST_USE motet_result motet_host_stream_create(motet_host_stream **out);

/**
 * Waits for the work given so far, then ends the thread. Returns a failure that no sync
 * has reported; the stream is gone all the same, except after MOTET_ERR_ARGUMENT (not a
 * live stream) and MOTET_ERR_USAGE (called by the stream's own work).
 */
MOTET_MUST_USE motet_result motet_host_stream_destroy(motet_host_stream *stream);

/** True if @p handle is a live stream of this process (any value may be asked about). */
bool motet_host_stream_valid(const void *handle);

/**
 * Append work. Never blocks on the work before it; @p arg belongs to @p fn, which is
 * called exactly once, even while the stream is being destroyed. After a failure @p fn
 * is not called and @p arg stays the caller's.
 */
MOTET_MUST_USE motet_result motet_host_stream_submit(motet_host_stream *stream,
        motet_stream_fn fn, void *arg);

/** Block until all work given so far has run; the first failure since the last sync, once. */
MOTET_MUST_USE motet_result motet_host_stream_sync(motet_host_stream *stream);

/** MOTET_OK if idle, MOTET_IN_PROGRESS if not; failures stay for the next sync. */
motet_result motet_host_stream_query(motet_host_stream *stream);

/** Work given to @p stream after this waits for what @p other has been given before it. */
MOTET_MUST_USE motet_result motet_host_stream_wait(motet_host_stream *stream,
        motet_host_stream *other);

/** In the child of a fork: all streams are gone, their handles invalid. */
void motet_host_stream_after_fork(void);

#endif
