/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/arena.h"

#include "base/segment.h"

#include <errno.h>
#include <string.h>

/* Where each part starts, in bytes. Chunks are page aligned. */
typedef struct layout {
    size_t pair, board, pair_data, end;
} layout;

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static layout layout_of(const motet_arena_shape *shape)
{
    size_t n = (size_t)shape->nranks;
    layout at;

    at.pair = page_up(sizeof(motet_arena_head));
    at.board = page_up(at.pair + n * sizeof(motet_pair));
    at.pair_data = at.board + (size_t)MOTET_BOARD_SLOTS * shape->board_chunk;
    at.end = at.pair_data + n * MOTET_PAIR_SLOTS * shape->pair_chunk;
    return at;
}

size_t motet_arena_bytes(const motet_arena_shape *shape)
{
    return layout_of(shape).end;
}

static void bind(motet_arena *arena, const motet_arena_shape *shape, void *map)
{
    layout at = layout_of(shape);

    arena->head = map;
    arena->pair = (motet_pair *)(void *)((uint8_t *)map + at.pair);
    arena->board = (uint8_t *)map + at.board;
    arena->pair_data = (uint8_t *)map + at.pair_data;
    arena->shape = *shape;
    arena->bytes = at.end;
}

motet_result motet_arena_create(const motet_arena_shape *shape, int rank,
        uint64_t nonce, motet_arena *out, int *fd_out)
{
    void *map;
    motet_arena_head *head;

    MOTET_TRY(motet_segment_create("motet-arena", motet_arena_bytes(shape), &map,
                      fd_out),
            "arena of rank %d", rank);
    bind(out, shape, map);
    head = out->head;
    head->magic = MOTET_ARENA_MAGIC;
    head->version = MOTET_ARENA_VERSION;
    head->rank = rank;
    head->nranks = shape->nranks;
    head->board_chunk = shape->board_chunk;
    head->pair_chunk = shape->pair_chunk;
    head->bytes = out->bytes;
    head->nonce = nonce;
    head->failed_rank = -1;
    return MOTET_OK;
}

/* The bytes that the owner wrote have arrived here, and are that owner's. */
static motet_result prove(const motet_arena *arena, int rank, uint64_t nonce)
{
    const motet_arena_head *head = arena->head;

    if (head->magic != MOTET_ARENA_MAGIC || head->version != MOTET_ARENA_VERSION)
        return motet_fail(MOTET_ERR_SYSTEM,
                "the segment of rank %d does not hold a version %d arena", rank,
                MOTET_ARENA_VERSION);
    if (head->rank != rank || head->nranks != arena->shape.nranks ||
            head->nonce != nonce || head->board_chunk != arena->shape.board_chunk ||
            head->pair_chunk != arena->shape.pair_chunk)
        return motet_fail(MOTET_ERR_SYSTEM,
                "the segment of rank %d shows other bytes here than its owner wrote",
                rank);
    return MOTET_OK;
}

motet_result motet_arena_map(const motet_arena_shape *shape, int rank, uint64_t nonce,
        int fd, motet_arena *out)
{
    motet_arena arena;
    motet_result result;
    void *map;

    MOTET_TRY(motet_segment_map(fd, motet_arena_bytes(shape), false, &map),
            "map the arena of rank %d", rank);
    bind(&arena, shape, map);
    result = prove(&arena, rank, nonce);
    if (result != MOTET_OK)
        motet_arena_release(&arena);
    else
        *out = arena;
    return result;
}

void motet_arena_release(motet_arena *arena)
{
    if (arena->head != NULL)
        motet_segment_unmap(arena->head, arena->bytes);
    *arena = (motet_arena){ 0 };
}
