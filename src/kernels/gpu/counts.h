/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of an ordered pair of ranks (pairs.c): waiting for one, telling one, and the size
 * that comes with a message's first. */
#ifndef MOTET_KERNELS_GPU_COUNTS_H
#define MOTET_KERNELS_GPU_COUNTS_H

#include "kernels/gpu/watch.h"

DEVICE uint8_t *message_word(uint8_t *line, uint32_t slot)
{
    return line + offsetof(motet_gpu_pair_line, message) +
            slot % MOTET_PAIR_STAGES * sizeof(uint64_t);
}

/* The first thread waits until the count has reached `wanted`; all meet. False: leave. */
DEVICE bool await_count(watch *w, uint32_t peer, const uint8_t *word, uint32_t wanted)
{
    uint32_t spins = 0;
    while (w->thread == 0 && (int32_t)((uint32_t)load64_acquire(word) - wanted) < 0 &&
            !spin(w, peer, wanted, &spins))
        ;
    wait_is_over(w, spins);
    block_acquire();
    return !end_round(w);
}

DEVICE void tell_count(const watch *w, uint8_t *word, uint32_t count)
{
    block_release();
    if (w->thread != 0)
        return;
    flag_fence();
    store64_shared(word, count);
}

/* After the first slot has come, by the thread that waited, within the same round. */
DEVICE bool is_as_long(watch *w, uint32_t peer, const uint8_t *word, uint64_t bytes)
{
    if (w->thread == 0) {
        uint64_t theirs = load64_shared(word);
        if (theirs != bytes)
            must_leave(w, MOTET_GPU_ERROR_SIZE, peer, theirs, bytes);
    }
    block_sync();
    return !end_round(w);
}

#endif
