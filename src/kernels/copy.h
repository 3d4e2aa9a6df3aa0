/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying past the cache. A streaming store writes a line without reading it first
 * and without throwing out what the cache holds. Whether that pays is the caller's to
 * know: it does where the whole destination, not only this call's part, is larger than
 * what a cache would keep for its reader.
 */
#ifndef MOTET_KERNELS_COPY_H
#define MOTET_KERNELS_COPY_H

#include "kernels/sets.h"
#include "kernels/vector.h"

#if defined(__x86_64__)

static ALWAYS_INLINE void stream_vec(void *p, vec v)
{
#if VEC_BYTES == 64
    _mm512_stream_si512(p, (__m512i)v);
#elif VEC_BYTES == 32
    _mm256_stream_si256(p, (__m256i)v);
#else
    _mm_stream_si128(p, (__m128i)v);
#endif
}

/* A whole line at a time, so that write combining never sends half of one. */
static ALWAYS_INLINE void stream_line(char *to, const char *from)
{
    for (size_t i = 0; i < 64; i += VEC_BYTES)
        stream_vec(to + i, load_vec(from + i));
}

static void copy_streaming(void *dst, const void *src, size_t bytes)
{
    if (bytes < MOTET_STREAM_LEAST_BYTES) {
        memcpy(dst, src, bytes);
        return;
    }
    char *to = dst;
    const char *from = src;
    size_t head = -(uintptr_t)to & 63;
    memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= 64; bytes -= 64) {
        stream_line(to, from);
        to += 64;
        from += 64;
    }
    memcpy(to, from, bytes);
    /* Streaming stores are weakly ordered: before the caller's flag, which says that
     * the bytes are there, they must all be visible. */
    _mm_sfence();
}

#else

static void copy_streaming(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#endif

#endif
