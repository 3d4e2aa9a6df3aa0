/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: callers' buffers that the other ranks have mapped, so that they read them
 * in place. Registered collectively, so a window's number is the same on all ranks;
 * whether a given operation's buffer lies in one is known to its own rank only, and
 * goes with every slot that it shows.
 */
#ifndef MOTET_ENGINE_WINDOW_H
#define MOTET_ENGINE_WINDOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Windows of one communicator that can be mapped at the same time. */
#define MOTET_WINDOWS 64

/** One rank's part of a window, as mapped here. */
typedef struct motet_window_part {
    uint8_t *base; /* NULL: not readable in place */
    size_t bytes;
    void *map;          /* what to unmap, NULL for this rank's own            */
    const void *shared; /* this rank's own: memory that is held for the others */
    size_t map_bytes;
} motet_window_part;

typedef struct motet_window {
    _Atomic uint32_t number; /* 0 = free; written last, cleared first */
    motet_window_part *part; /* by rank */
} motet_window;

/**
 * The number of a window whose part of @p rank, this rank, holds @p bytes at @p ptr and
 * can be read by all ranks; 0 if there is none.
 */
uint32_t motet_window_find(const motet_window *windows, int rank, const void *ptr,
        size_t bytes, uint64_t *offset_out);

/** Where rank @p rank's @p bytes at @p offset of window @p number lie here; NULL if nowhere. */
const uint8_t *motet_window_at(const motet_window *windows, uint32_t number, int rank,
        uint64_t offset, size_t bytes);

#endif
