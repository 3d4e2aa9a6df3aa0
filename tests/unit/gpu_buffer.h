/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of any alignment with canaries around them, poisoned at first. */
#ifndef MOTET_TESTS_GPU_BUFFER_H
#define MOTET_TESTS_GPU_BUFFER_H

#include "gpu_rig.h"

enum { GUARD = 64, CANARY = 0xa5, POISON = 0x5c };

typedef struct buffer {
    uint8_t *mem, *data;
    size_t bytes;
} buffer;

static void buffer_make(buffer *b, size_t bytes, size_t offset)
{
    b->bytes = bytes;
    b->mem = malloc(bytes + offset + 2 * GUARD + 16);
    assert_non_null(b->mem);
    b->data = (uint8_t *)(((uintptr_t)b->mem + GUARD + 15) / 16 * 16 + offset);
    memset(b->data - GUARD, CANARY, bytes + 2 * GUARD);
    memset(b->data, POISON, bytes);
}

static void buffer_check(const buffer *b)
{
    for (size_t i = 1; i <= GUARD; i++) {
        assert_int_equal(b->data[-(ptrdiff_t)i], CANARY);
        assert_int_equal(b->data[b->bytes + i - 1], CANARY);
    }
}

#endif
