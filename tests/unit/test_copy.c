/* SPDX-License-Identifier: Apache-2.0 */
/* copy_streaming of every set: on both sides of the size where it begins to stream, from
 * and to every kind of alignment, and nothing written beside the destination. */
#include "kernels/reduce.h"
#include "kernels/sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    LEAST = MOTET_STREAM_LEAST_BYTES,
    MOST = (1 << 20) + 77,
    GUARD = 128,
    CANARY = 0xa5
};

static const size_t sizes[] = { 0, 1, 2, 7, 8, 63, 64, 65, LEAST - 1, LEAST, LEAST + 1,
    LEAST + 63, LEAST + 64, 65536, 65536 + 31, MOST };

static const size_t offsets[] = { 0, 1, 4, 8, 16, 31, 32, 63 };

typedef struct arena {
    unsigned char *from,
            *to; /* GUARD bytes before, and room for MOST and GUARD behind */
} arena;

static unsigned char *new_memory(void)
{
    unsigned char *p = aligned_alloc(64, (2 * GUARD + 64 + MOST + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static size_t first_other_than(const unsigned char *p, size_t n, unsigned char value)
{
    size_t i = 0;
    while (i < n && p[i] == value)
        i++;
    return i;
}

static void check_copy(const motet_cpu_kernels *set, const arena *a, size_t bytes,
        size_t from_offset, size_t to_offset)
{
    const unsigned char *from = a->from + GUARD + from_offset;
    unsigned char *to = a->to + GUARD + to_offset;
    memset(to - GUARD, CANARY, 2 * GUARD + bytes);
    set->copy_streaming(to, from, bytes);
    bool same = memcmp(to, from, bytes) == 0;
    bool before = first_other_than(to - GUARD, GUARD, CANARY) == GUARD;
    bool behind = first_other_than(to + bytes, GUARD, CANARY) == GUARD;
    if (!same || !before || !behind)
        fail_msg("%s: %zu bytes from offset %zu to offset %zu: %s", set->name, bytes,
                from_offset, to_offset, same ? "wrote beside" : "wrong bytes");
}

static void test_every_size_and_alignment_arrives_whole_and_nothing_beside(void **state)
{
    (void)state;
    const size_t n_offsets = sizeof(offsets) / sizeof(offsets[0]);
    const motet_cpu_kernels *const *sets = motet_cpu_kernels_all();
    arena a = { new_memory(), new_memory() };
    for (size_t i = 0; i < 2 * GUARD + MOST; i++)
        a.from[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int s = 0; sets[s]; s++)
        for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++)
            for (size_t o = 0; o < n_offsets; o++) {
                check_copy(sets[s], &a, sizes[n], 0, offsets[o]);
                check_copy(sets[s], &a, sizes[n], offsets[o], 0);
                check_copy(sets[s], &a, sizes[n], offsets[o],
                        offsets[n_offsets - 1 - o]);
            }
    free(a.from);
    free(a.to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
                test_every_size_and_alignment_arrives_whole_and_nothing_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
