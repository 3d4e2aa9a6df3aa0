/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/window.h"

uint32_t motet_window_find(const motet_window *windows, int rank, const void *ptr,
        size_t bytes, uint64_t *offset_out)
{
    uintptr_t at = (uintptr_t)ptr;

    for (int i = 0; i < MOTET_WINDOWS; i++) {
        uint32_t number =
                atomic_load_explicit(&windows[i].number, memory_order_acquire);
        const motet_window_part *part;
        uintptr_t base;

        if (number == 0)
            continue;
        part = &windows[i].part[rank];
        base = (uintptr_t)part->base;
        if (base != 0 && at >= base && bytes <= part->bytes &&
                at - base <= part->bytes - bytes) {
            *offset_out = at - base;
            return number;
        }
    }
    return 0;
}

const uint8_t *motet_window_at(const motet_window *windows, uint32_t number, int rank,
        uint64_t offset, size_t bytes)
{
    for (int i = 0; i < MOTET_WINDOWS; i++) {
        const motet_window_part *part;

        if (atomic_load_explicit(&windows[i].number, memory_order_acquire) != number)
            continue;
        part = &windows[i].part[rank];
        if (part->base == NULL || bytes > part->bytes || offset > part->bytes - bytes)
            return NULL;
        return part->base + offset;
    }
    return NULL;
}
