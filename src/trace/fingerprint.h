/* SPDX-License-Identifier: Apache-2.0 */
/* 32 bits that two ranks compare to see whether they make the same call. */
#ifndef MOTET_TRACE_FINGERPRINT_H
#define MOTET_TRACE_FINGERPRINT_H

#include "base/types.h"

#include <stdint.h>

/**
 * Of a collective: kind, type, operator, root and count; per-call limits go into
 * @p limits (0 if none). Type is part of it, not only the bytes, so that an int32
 * sum never meets a float sum. PREMUL_SUM counts as itself, whatever its scalar.
 */
static inline uint32_t motet_fingerprint(motet_kind kind, motet_type type, int redop,
        int root, uint64_t count, uint32_t limits)
{
    uint64_t h = ((uint64_t)kind << 56) ^ ((uint64_t)type << 48) ^
            ((uint64_t)(uint8_t)redop << 40) ^ (uint64_t)(uint32_t)(root + 1);

    h ^= (uint64_t)limits << 20;
    h *= 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
    h += count;
    h *= 0xbf58476d1ce4e5b9ull;
    h ^= h >> 32;
    return (uint32_t)h == 0 ? 1 : (uint32_t)h;
}

/**
 * Of a sequence of calls: @p chain is that of the calls before, 0 at first. It tells two
 * ranks apart that made different calls in which neither read anything of the other.
 */
static inline uint32_t motet_fingerprint_chain(uint32_t chain, uint32_t fingerprint)
{
    uint64_t h = ((uint64_t)chain << 32 | fingerprint) * 0x9e3779b97f4a7c15ull;

    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

#endif
