/* SPDX-License-Identifier: Apache-2.0 */
/* See unpack.h. gzip is read where zlib was there at build time. */
#include "unpack.h"

#include "archive.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#ifdef MOTET_DOCTOR_ZLIB
#include <zlib.h>
#endif

#define PEEK  512u
#define CHUNK 65536u

struct dr_unpack {
    FILE *in, *out;
    char peek[PEEK];
    size_t peeked, given; /* of the peeked bytes, how many were read again */
    uint64_t bytes;       /* that came out                                 */
    bool packed, damaged, too_large;
#ifdef MOTET_DOCTOR_ZLIB
    z_stream z;
    unsigned char raw[CHUNK];
    bool ended;
#endif
};

#ifdef MOTET_DOCTOR_ZLIB
static bool more_raw(struct dr_unpack *u)
{
    u->z.next_in = u->raw;
    u->z.avail_in = (unsigned)fread(u->raw, 1, CHUNK, u->in);
    return u->z.avail_in > 0;
}

static size_t inflate_some(struct dr_unpack *u, char *buf, size_t bytes)
{
    u->z.next_out = (unsigned char *)buf;
    u->z.avail_out = (unsigned)bytes;
    while (u->z.avail_out > 0 && !u->damaged) {
        int rc;

        if (u->z.avail_in == 0 && !more_raw(u)) {
            u->damaged = !u->ended;
            break;
        }
        if (u->ended) { /* another member follows, or padding that is none */
            if (u->z.next_in[0] != 0x1f || inflateReset(&u->z) != Z_OK)
                break;
            u->ended = false;
        }
        rc = inflate(&u->z, Z_NO_FLUSH);
        u->ended = rc == Z_STREAM_END;
        u->damaged = rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR;
    }
    return bytes - u->z.avail_out;
}
#endif

static size_t fill(struct dr_unpack *u, char *buf, size_t bytes)
{
    size_t got;

#ifdef MOTET_DOCTOR_ZLIB
    if (u->packed)
        got = inflate_some(u, buf, bytes > CHUNK ? CHUNK : bytes);
    else
#endif
        got = fread(buf, 1, bytes, u->in);
    u->bytes += got;
    if (u->packed && u->bytes > DR_ARCHIVE_BYTES) {
        u->too_large = true;
        return 0;
    }
    return got;
}

static ssize_t read_out(void *cookie, char *buf, size_t bytes)
{
    struct dr_unpack *u = cookie;
    const size_t left = u->peeked - u->given;

    if (left > 0) {
        if (bytes > left)
            bytes = left;
        memcpy(buf, u->peek + u->given, bytes);
        u->given += bytes;
        return (ssize_t)bytes;
    }
    bytes = fill(u, buf, bytes);
    if (bytes == 0 && ferror(u->in))
        return -1;
    return (ssize_t)bytes;
}

static const char *other_packing(const char *bytes, size_t count)
{
    static const struct {
        const char *magic;
        size_t length;
        const char *name;
    } known[] = { { "\x28\xb5\x2f\xfd", 4, "zstd" },
        { "\xfd"
          "7zXZ",
                5, "xz" },
        { "BZh", 3, "bzip2" }, { "PK\x03\x04", 4, "zip" }, { "7z\xbc\xaf", 4, "7z" },
        { "\x04\x22\x4d\x18", 4, "lz4" } };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (count >= known[i].length &&
                memcmp(bytes, known[i].magic, known[i].length) == 0)
            return known[i].name;
    return NULL;
}

/* Leave the raw bytes to the inflater, and peek at what it makes of them. */
static bool begin_gzip(struct dr_unpack *u, char *why, size_t why_bytes)
{
#ifdef MOTET_DOCTOR_ZLIB
    memcpy(u->raw, u->peek, u->peeked);
    u->z.next_in = u->raw;
    u->z.avail_in = (unsigned)u->peeked;
    if (inflateInit2(&u->z, 15 + 16) == Z_OK) {
        u->packed = true;
        u->peeked = fill(u, u->peek, PEEK);
        return true;
    }
    snprintf(why, why_bytes, "out of memory");
#else
    (void)u;
    snprintf(why, why_bytes,
            "packed with gzip, and this build of motet has no zlib: unpack it first");
#endif
    return false;
}

struct dr_unpack *dr_unpack_begin(FILE *in, char *why, size_t why_bytes)
{
    struct dr_unpack *u = calloc(1, sizeof(*u));
    const char *packing;

    if (u == NULL) {
        snprintf(why, why_bytes, "%s", strerror(errno));
        return NULL;
    }
    u->in = in;
    u->peeked = fread(u->peek, 1, PEEK, in);
    packing = other_packing(u->peek, u->peeked);
    if (packing != NULL) {
        snprintf(why, why_bytes, "packed with %s: unpack it first", packing);
    } else if (u->peeked < 2 || memcmp(u->peek, "\x1f\x8b", 2) != 0 ||
            begin_gzip(u, why, why_bytes)) {
        u->out = fopencookie(u, "r", (cookie_io_functions_t){ .read = read_out });
        if (u->out != NULL)
            return u;
        snprintf(why, why_bytes, "%s", strerror(errno));
    }
    free(u);
    return NULL;
}

const char *dr_unpack_peek(const struct dr_unpack *u)
{
    return u->peek;
}

size_t dr_unpack_peeked(const struct dr_unpack *u)
{
    return u->peeked;
}

FILE *dr_unpack_stream(struct dr_unpack *u)
{
    return u->out;
}

bool dr_unpack_end(struct dr_unpack *u, char *why, size_t why_bytes)
{
    const bool damaged = u->damaged, too_large = u->too_large;

    fclose(u->out);
#ifdef MOTET_DOCTOR_ZLIB
    if (u->packed)
        (void)inflateEnd(&u->z);
#endif
    free(u);
    if (too_large)
        snprintf(why, why_bytes, "it unpacks to more than is looked at");
    else if (damaged)
        snprintf(why, why_bytes, "its gzip data is damaged or ends too early");
    return !damaged && !too_large;
}
