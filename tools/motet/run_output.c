/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks' output, line by line. A line leaves in one piece, with its prefix, once its end
 * has come: '\n', or '\r' before anything but '\n' (progress bars). A line longer than
 * RUN_LINE_MAX is broken there, so that memory stays bounded.
 */
#include "run.h"

#include "term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Colours that are told apart on light and dark ground, by rank. */
static const int colours[] = { 36, 33, 35, 32, 34, 31 };

void run_stream_start(struct run_stream *s, int fd, int to, const char *tag, int rank,
        bool prefix)
{
    int n = 0;

    memset(s, 0, sizeof(*s));
    s->fd = fd;
    s->to = to;
    if (!prefix)
        return;
    if (term_colour(to))
        n = snprintf(s->prefix, sizeof(s->prefix), "\033[%dm[%.100s%s%d]\033[0m ",
                colours[(size_t)rank % (sizeof(colours) / sizeof(*colours))],
                tag != NULL ? tag : "", tag != NULL ? " " : "", rank);
    else
        n = snprintf(s->prefix, sizeof(s->prefix), "[%.100s%s%d] ",
                tag != NULL ? tag : "", tag != NULL ? " " : "", rank);
    s->prefix_bytes = n > 0 ? (size_t)n : 0;
}

static bool make_room(struct run_stream *s, size_t bytes)
{
    size_t room = s->room == 0 ? 4096 : s->room;
    char *line;

    while (room < s->used + bytes)
        room *= 2;
    if (room == s->room)
        return true;
    line = realloc(s->line, room);
    if (line == NULL)
        return false;
    s->line = line;
    s->room = room;
    return true;
}

static bool append(struct run_stream *s, const char *data, size_t bytes)
{
    if (!make_room(s, bytes))
        return false;
    memcpy(s->line + s->used, data, bytes);
    s->used += bytes;
    return true;
}

/* How much of data belongs to the current line, and whether it ends there. */
static size_t line_part(const char *data, size_t bytes, bool *ends, size_t *skip)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != '\n' && data[i] != '\r')
            continue;
        if (data[i] == '\r' && (i + 1 == bytes || data[i + 1] == '\n'))
            continue; /* part of "\r\n", or too early to tell */
        *ends = true;
        *skip = 1;
        return i;
    }
    *ends = false;
    *skip = 0;
    return bytes;
}

bool run_stream_feed(struct run_stream *s, const char *data, size_t bytes,
        run_sink sink, void *arg)
{
    while (bytes > 0) {
        size_t skip, part;
        bool ends;

        part = line_part(data, bytes, &ends, &skip);
        if (part > RUN_LINE_MAX) {
            part = RUN_LINE_MAX;
            skip = 0;
            ends = true;
        }
        if (s->used == 0 && !append(s, s->prefix, s->prefix_bytes))
            return false;
        if (!append(s, data, part))
            return false;
        data += part + skip;
        bytes -= part + skip;
        if (!ends && s->used < RUN_LINE_MAX)
            continue;
        if (!append(s, "\n", 1) || !sink(arg, s->to, s->line, s->used))
            return false;
        s->used = 0;
    }
    return true;
}

void run_stream_end(struct run_stream *s, run_sink sink, void *arg)
{
    if (s->used > 0 && append(s, "\n", 1))
        (void)sink(arg, s->to, s->line,
                s->used); /* the end, whether it is read or not */
    free(s->line);
    s->line = NULL;
    s->used = s->room = 0;
    s->fd = -1;
}
