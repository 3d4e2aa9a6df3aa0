/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in their order, out of memory or unpacked on the way. */
#ifndef MOTET_CODEOBJ_SOURCE_H
#define MOTET_CODEOBJ_SOURCE_H

#include "codeobj.h"

#include <stddef.h>
#include <stdint.h>

/** How dense packed data may be: nothing real comes near it. Less than SOURCE_SMALL is not
 *  asked. */
#define SOURCE_RATIO_MAX 512u
#define SOURCE_SMALL     (UINT64_C(256) << 20)

enum source_method { SOURCE_PLAIN, SOURCE_ZLIB, SOURCE_ZSTD };

struct source {
    const unsigned char *data; /* that comes in */
    size_t bytes, used;
    uint64_t given, limit; /* that went out, and the most that may */
    enum source_method method;
    void *state;
    bool ended;
    bool one_frame; /* zstd: what follows the first frame is something else */
    char why[CODEOBJ_WHY_MAX]; /* what went wrong; "" if nothing did */
};

/** Begin. False with s->why: no memory, or the method is not built in. For source_close()
 *  in any case. */
bool source_open(struct source *s, enum source_method method, const void *data,
        size_t bytes, uint64_t limit);

/** The next @p bytes into @p to, and how many there were. Fewer: the end, or s->why. */
size_t source_read(struct source *s, void *to, size_t bytes);

/** Leave out @p bytes; how many there were. */
uint64_t source_skip(struct source *s, uint64_t bytes);

void source_close(struct source *s);

/** "zlib" and "zstd"; never NULL. */
const char *source_method_name(enum source_method method);

/** What does it, "zstd 1.5.4"; NULL if nothing is needed or this build has nothing. */
const char *source_library(enum source_method method);

#endif
