/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes, cut into blocks' parts and steps, and moved between buffers of any alignment by
 * all threads of a block together. Slots are aligned to 16 bytes; a caller's buffer to its
 * element at least.
 */
#ifndef MOTET_KERNELS_GPU_MOVE_H
#define MOTET_KERNELS_GPU_MOVE_H

#include "kernels/gpu/target.h"

DEVICE uint64_t round_up(uint64_t v, uint64_t unit)
{
    return (v + unit - 1) / unit * unit;
}

/* A block's part of a piece, and how many slots of `capacity` bytes it takes. */
typedef struct share {
    uint64_t at, bytes;
    uint32_t capacity, steps;
} share;

/* Of as many bytes as all blocks but the last: a multiple of 16. There is one step at
 * least, so that positions advance alike whatever the bytes. */
DEVICE share share_of(uint64_t bytes, uint32_t blocks, uint32_t block,
        uint32_t capacity)
{
    uint64_t each = bytes;
    if (blocks > 1 && bytes >> 31 == 0) /* no target divides 64 bits at once */
        each = round_up(((uint32_t)bytes + blocks - 1) / blocks, 16);
    else if (blocks > 1)
        each = round_up((bytes + blocks - 1) / blocks, 16);
    share s = { .at = each * block, .bytes = each, .capacity = capacity, .steps = 1 };
    if (s.at > bytes)
        s.at = bytes;
    if (s.bytes > bytes - s.at)
        s.bytes = bytes - s.at;
    if (s.bytes > capacity)
        s.steps = (uint32_t)((s.bytes + capacity - 1) / capacity);
    return s;
}

/* Bytes of step s; the piece's offset is at + s * capacity. */
DEVICE uint32_t step_bytes(const share *s, uint32_t step)
{
    uint64_t left = s->bytes - (uint64_t)step * s->capacity;
    return left < s->capacity ? (uint32_t)left : s->capacity;
}

/* How well an address is aligned, as the low bits of what it is a multiple of. */
DEVICE uint32_t skew(const void *p)
{
    return (uint32_t)(uintptr_t)p & 15u;
}

/* The first n bytes (8 at most) at any address, zeros above. */
DEVICE uint64_t load_some64(const uint8_t *p, uint32_t n)
{
    uint64_t v = 0;
    if (n == 8 && skew(p) % 8 == 0)
        return load64(p);
    if (n == 8 && skew(p) % 4 == 0)
        return load32(p) | (uint64_t)load32(p + 4) << 32;
    UNROLL /* all are asked for before the first has come */
            for (uint32_t i = 0; i < 8; i++) if (i < n) v |=
            (uint64_t)load8(p + i) << (8 * i);
    return v;
}

DEVICE void store_some64(uint8_t *p, uint64_t v, uint32_t n)
{
    if (n == 8 && skew(p) % 8 == 0) {
        store64(p, v);
    } else if (n == 8 && skew(p) % 4 == 0) {
        store32(p, (uint32_t)v);
        store32(p + 4, (uint32_t)(v >> 32));
    } else {
        NO_UNROLL
        for (uint32_t i = 0; i < n; i++)
            store8(p + i, (uint8_t)(v >> (8 * i)));
    }
}

/* The first n bytes (16 at most) at any address, zeros above. */
DEVICE bits128 load_some128(const uint8_t *p, uint32_t n)
{
    if (n == 16 && skew(p) == 0)
        return load128(p);
    uint64_t low = load_some64(p, n < 8 ? n : 8);
    uint64_t high = n > 8 ? load_some64(p + 8, n - 8) : 0;
    return (bits128){ { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
            (uint32_t)(high >> 32) } };
}

DEVICE void store_some128(uint8_t *p, bits128 v, uint32_t n)
{
    if (n == 16 && skew(p) == 0) {
        store128(p, v);
        return;
    }
    store_some64(p, v.w[0] | (uint64_t)v.w[1] << 32, n < 8 ? n : 8);
    if (n > 8)
        store_some64(p + 8, v.w[2] | (uint64_t)v.w[3] << 32, n - 8);
}

/* Packs of 16 bytes that one thread moves at a time. */
#define MOVE_PACKS 4

/* Four loads are under way before the first store. A pack that lies askew is put together
 * from smaller words, and so is the last one. */
DEVICE void copy_bytes(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    const uint32_t step = 16 * thread_count();
    uint32_t at = 16 * thread_index();

    if ((skew(to) | skew(from)) == 0) {
        const uint32_t whole = bytes & ~15u;
        NO_UNROLL
        for (; at + (MOVE_PACKS - 1) * step < whole; at += MOVE_PACKS * step) {
            bits128 v[MOVE_PACKS];
            UNROLL
            for (uint32_t k = 0; k < MOVE_PACKS; k++)
                v[k] = load128(from + at + k * step);
            UNROLL
            for (uint32_t k = 0; k < MOVE_PACKS; k++)
                store128(to + at + k * step, v[k]);
        }
    }
    NO_UNROLL
    for (; at < bytes; at += step) {
        uint32_t n = bytes - at < 16 ? bytes - at : 16;
        store_some128(to + at, load_some128(from + at, n), n);
    }
}

#endif
