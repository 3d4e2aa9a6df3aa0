/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in their order: the table of ways to unpack them. A frame of zstd's asks for a
 * window of any size up to 2 GiB; those above what may be unpacked are refused, and of the
 * others only the pages that were unpacked to are memory that is taken. */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef CODEOBJ_NO_ZLIB
#define ZLIB_CONST /* its input is not written to */
#include <zlib.h>
#endif
#ifndef CODEOBJ_NO_ZSTD
#include <zstd.h>
#endif

#define SCRATCH_BYTES 65536u
/* The largest window of zstd's, 2 GiB, which HIP's compiler may ask for, and the smallest. */
#define WINDOW_LOG_MAX   31
#define WINDOW_LOG_LEAST 10

/* Bytes into [to, bytes) or fewer; 0 at the end, and with s->why. */
typedef size_t read_some(struct source *s, unsigned char *to, size_t bytes);

static size_t plain_read(struct source *s, unsigned char *to, size_t bytes)
{
    const size_t left = s->bytes - s->used, take = bytes < left ? bytes : left;

    memcpy(to, s->data + s->used, take);
    s->used += take;
    s->ended = s->used == s->bytes;
    return take;
}

#ifndef CODEOBJ_NO_ZLIB
static bool zlib_open(struct source *s)
{
    z_stream *z = calloc(1, sizeof(*z));

    if (z == NULL || inflateInit(z) != Z_OK) {
        free(z);
        return false;
    }
    s->state = z;
    return true;
}

static size_t zlib_read(struct source *s, unsigned char *to, size_t bytes)
{
    const uInt most = 1u << 30;
    const size_t left = s->bytes - s->used;
    z_stream *z = s->state;
    int status;
    uInt room, input;

    room = bytes < most ? (uInt)bytes : most;
    input = left < most ? (uInt)left : most;
    z->next_in = s->data + s->used;
    z->avail_in = input;
    z->next_out = to;
    z->avail_out = room;
    status = inflate(z, Z_NO_FLUSH);
    s->used += input - z->avail_in;
    if (status == Z_STREAM_END)
        s->ended = true;
    else if (status != Z_OK && status != Z_BUF_ERROR)
        snprintf(s->why, sizeof(s->why), "zlib: %.100s",
                z->msg != NULL ? z->msg : zError(status));
    else if (z->avail_out == room && s->used == s->bytes)
        snprintf(s->why, sizeof(s->why), "zlib: its data is cut off");
    return room - z->avail_out;
}

static void zlib_close(struct source *s)
{
    if (s->state != NULL)
        (void)inflateEnd(s->state);
    free(s->state);
}
#endif

#ifndef CODEOBJ_NO_ZSTD
static bool zstd_open(struct source *s)
{
    int window = WINDOW_LOG_LEAST;

    while (window < WINDOW_LOG_MAX && UINT64_C(1) << window < s->limit)
        window++;
    s->state = ZSTD_createDStream();
    return s->state != NULL &&
            !ZSTD_isError(
                    ZSTD_DCtx_setParameter(s->state, ZSTD_d_windowLogMax, window));
}

/* Whether another frame follows on the one that has ended: both are one text. */
static bool zstd_goes_on(const struct source *s)
{
    const uint32_t magic = ZSTD_MAGICNUMBER;

    return !s->one_frame && s->bytes - s->used >= sizeof(magic) &&
            memcmp(s->data + s->used, &magic, sizeof(magic)) == 0;
}

static size_t zstd_read(struct source *s, unsigned char *to, size_t bytes)
{
    ZSTD_inBuffer in = { s->data, s->bytes, s->used };
    ZSTD_outBuffer out = { to, bytes, 0 };
    const size_t status = ZSTD_decompressStream(s->state, &out, &in);

    s->used = in.pos;
    if (ZSTD_isError(status))
        snprintf(s->why, sizeof(s->why), "zstd: %.100s", ZSTD_getErrorName(status));
    else if (status == 0)
        s->ended = !zstd_goes_on(s);
    else if (out.pos == 0 && s->used == s->bytes)
        snprintf(s->why, sizeof(s->why), "zstd: its data is cut off");
    return out.pos;
}

static void zstd_close(struct source *s)
{
    ZSTD_freeDStream(s->state);
}
#endif

static const struct {
    const char *name, *library;
    bool (*open)(struct source *s);
    read_some *read; /* NULL: this build has it not */
    void (*close)(struct source *s);
} methods[] = {
    [SOURCE_PLAIN] = { "none", NULL, NULL, plain_read, NULL },
#ifdef CODEOBJ_NO_ZLIB
    [SOURCE_ZLIB] = { "zlib", NULL, NULL, NULL, NULL },
#else
    [SOURCE_ZLIB] = { "zlib", "zlib " ZLIB_VERSION, zlib_open, zlib_read, zlib_close },
#endif
#ifdef CODEOBJ_NO_ZSTD
    [SOURCE_ZSTD] = { "zstd", NULL, NULL, NULL, NULL },
#else
    [SOURCE_ZSTD] = { "zstd", "zstd " ZSTD_VERSION_STRING, zstd_open, zstd_read,
            zstd_close },
#endif
};

bool source_open(struct source *s, enum source_method method, const void *data,
        size_t bytes, uint64_t limit)
{
    memset(s, 0, sizeof(*s));
    s->data = data;
    s->bytes = bytes;
    s->limit = limit;
    s->method = method;
    if (methods[method].read == NULL)
        snprintf(s->why, sizeof(s->why), "this build of motet has no %s",
                methods[method].name);
    else if (methods[method].open != NULL && !methods[method].open(s))
        snprintf(s->why, sizeof(s->why), "no memory for %s", methods[method].name);
    return s->why[0] == 0;
}

size_t source_read(struct source *s, void *to, size_t bytes)
{
    size_t got = 0;

    while (got < bytes && !s->ended && s->why[0] == 0)
        got += methods[s->method].read(s, (unsigned char *)to + got, bytes - got);
    s->given += got;
    if (s->given > s->limit && s->why[0] == 0)
        snprintf(s->why, sizeof(s->why),
                "it unpacks to more than the %llu bytes that are read",
                (unsigned long long)s->limit);
    if (s->method != SOURCE_PLAIN && s->given > SOURCE_SMALL &&
            s->given / SOURCE_RATIO_MAX > s->used && s->why[0] == 0)
        snprintf(s->why, sizeof(s->why),
                "it is packed more densely than any code, and left out");
    return got;
}

uint64_t source_skip(struct source *s, uint64_t bytes)
{
    unsigned char scratch[SCRATCH_BYTES];
    uint64_t done = 0;
    size_t got = 1;

    while (done < bytes && got > 0) {
        got = source_read(s, scratch,
                bytes - done < sizeof(scratch) ? (size_t)(bytes - done)
                                               : sizeof(scratch));
        done += got;
    }
    return done;
}

void source_close(struct source *s)
{
    if (methods[s->method].close != NULL)
        methods[s->method].close(s);
    s->state = NULL;
}

const char *source_method_name(enum source_method method)
{
    return methods[method].name;
}

const char *source_library(enum source_method method)
{
    return methods[method].library;
}
