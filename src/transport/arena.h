/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: the memory through which ranks meet. Each rank owns one for each
 * communicator, is the only one that writes it, and maps all others read-only. So
 * every word has one writer, and no rank can harm what another one wrote.
 *
 * An arena holds
 *  - the head: who this is, life state, failure, the last calls, what was read;
 *  - the board: a ring of slots that all ranks read (collectives). All ranks give
 *    the slots of one step the same position, a number that only grows;
 *  - for each peer a ring of slots that only that peer reads (send and receive).
 *
 * Reuse of a board slot. Position p lies in slot p mod MOTET_BOARD_SLOTS. A rank
 * writes it only after every rank has published done > p − MOTET_BOARD_SLOTS, that
 * is, has finished reading the position that the slot held before. `done` grows in
 * the reader's own head, and the writer re-reads it only when what it saw last is
 * not enough. Pair slots follow the same rule with one reader: `taken`.
 *
 * Order of memory. Payload and the header's other fields are written first, then
 * `position` with release; a reader loads `position` with acquire. `done` and
 * `taken` are stored with release after the last read of the slot, and loaded with
 * acquire before the slot is written again. Positions have 64 bits and start at 1
 * or later: a stale slot can never match, and nothing wraps.
 */
#ifndef MOTET_TRANSPORT_ARENA_H
#define MOTET_TRANSPORT_ARENA_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOTET_ARENA_MAGIC   0x616e657261746f6dull /* "motarena" */
#define MOTET_ARENA_VERSION 1

/** Two cache lines: x86 prefetches lines in pairs. */
#define MOTET_LINE 128
/** Slots of a board; a power of two. */
#define MOTET_BOARD_SLOTS 16
/** Slots of a pair's ring; a power of two. */
#define MOTET_PAIR_SLOTS 4
/** Payload that fits in a slot's header. */
#define MOTET_INLINE_BYTES 96
/** Calls that a head remembers; a power of two. */
#define MOTET_CALLS 16
/** Longest out-of-band message of a rank, bytes. */
#define MOTET_OOB_MAX 1024
/** Longest failure sentence, bytes with the NUL. */
#define MOTET_FAILURE_MAX 896

typedef struct motet_slot {
    _Atomic uint64_t position; /* written last                                   */
    uint32_t fingerprint;
    uint32_t window; /* board slots: the window that holds the payload, 0 = the slot */
    union {
        uint64_t bytes;  /* pair slots: bytes of the whole message               */
        uint64_t offset; /* board slots: of the poster's buffer in the window    */
    };
    uint64_t scalar; /* PREMUL_SUM: the poster's factor                          */
    uint8_t payload[MOTET_INLINE_BYTES];
} motet_slot;

/** A call, for the sentence that sets two of them side by side. */
typedef struct motet_call {
    _Atomic uint64_t seq; /* 0 while it is being written */
    _Atomic uint64_t count;
    _Atomic uint32_t fingerprint;
    _Atomic int32_t root;
    _Atomic uint32_t kind_type_op; /* kind << 16 | type << 8 | operator */
    _Atomic uint32_t chain;        /* fingerprint of this and all calls before it */
    uint32_t reserved[8];
} motet_call;

typedef enum motet_life {
    MOTET_LIFE_JOINING = 0,
    MOTET_LIFE_READY = 1,
    MOTET_LIFE_LEFT = 2,   /* destroyed in good order: everything it sent is there */
    MOTET_LIFE_GAVE_UP = 3 /* ended before it was ready */
} motet_life;

typedef struct motet_arena_head {
    uint64_t magic;
    uint32_t version;
    int32_t rank, nranks;
    uint32_t board_chunk, pair_chunk;
    uint64_t bytes, nonce;
    _Alignas(MOTET_LINE) _Atomic uint32_t life;
    _Atomic uint64_t heartbeat_ns; /* coarse monotonic clock, by the watcher     */
    _Alignas(MOTET_LINE) _Atomic uint64_t done; /* board positions below were read */
    _Alignas(MOTET_LINE) _Atomic uint64_t seq;  /* operations begun                */
    _Alignas(MOTET_LINE) _Atomic uint32_t
            failed;      /* motet_result; text is written before */
    int32_t failed_rank; /* the rank at fault, −1 unknown                               */
    char failure[MOTET_FAILURE_MAX];
    _Alignas(MOTET_LINE) motet_call call[MOTET_CALLS];
    _Alignas(MOTET_LINE) motet_slot board[MOTET_BOARD_SLOTS];
} motet_arena_head;

_Static_assert(sizeof(motet_slot) == MOTET_LINE, "a slot's header is one line");
_Static_assert(sizeof(motet_call) == 64, "one cache line");

/** Sizes that all ranks of a communicator agreed on. */
typedef struct motet_arena_shape {
    int nranks;
    uint32_t board_chunk; /* bytes of a board slot, a multiple of 4096 */
    uint32_t pair_chunk;  /* bytes of a pair slot, a multiple of 4096  */
} motet_arena_shape;

/** One end's ring towards one peer. */
typedef struct motet_pair {
    _Alignas(MOTET_LINE) _Atomic uint64_t
            taken; /* what this rank has taken from that peer's ring */
    _Alignas(MOTET_LINE) motet_slot slot[MOTET_PAIR_SLOTS];
    _Alignas(MOTET_LINE) _Atomic uint64_t
            oob_round; /* out-of-band messages to that peer */
    uint32_t oob_bytes[2];
    uint8_t oob[2][MOTET_OOB_MAX];
} motet_pair;

/** An arena as seen from here. */
typedef struct motet_arena {
    motet_arena_head *head;
    uint8_t *board;     /* MOTET_BOARD_SLOTS chunks               */
    motet_pair *pair;   /* nranks entries, by peer                */
    uint8_t *pair_data; /* nranks × MOTET_PAIR_SLOTS chunks       */
    motet_arena_shape shape;
    size_t bytes;
} motet_arena;

/** Bytes of an arena of @p shape. */
size_t motet_arena_bytes(const motet_arena_shape *shape);

/**
 * Make and map this rank's own arena.
 * @param fd_out the segment, CLOEXEC, to hand to the peers; the caller's to close.
 */
MOTET_MUST_USE motet_result motet_arena_create(const motet_arena_shape *shape, int rank,
        uint64_t nonce, motet_arena *out, int *fd_out);

/**
 * Map a peer's arena read-only and prove that it is that rank's: magic, version,
 * rank, shape and the nonce that it announced.
 */
MOTET_MUST_USE motet_result motet_arena_map(const motet_arena_shape *shape, int rank,
        uint64_t nonce, int fd, motet_arena *out);

/** Unmap; idempotent. */
void motet_arena_release(motet_arena *arena);

static inline motet_slot *motet_arena_slot(const motet_arena *arena, uint64_t position)
{
    return &arena->head->board[position & (MOTET_BOARD_SLOTS - 1)];
}

static inline uint8_t *motet_arena_chunk(const motet_arena *arena, uint64_t position)
{
    return arena->board +
            (size_t)(position & (MOTET_BOARD_SLOTS - 1)) * arena->shape.board_chunk;
}

static inline motet_slot *motet_pair_slot(const motet_arena *arena, int peer,
        uint64_t position)
{
    return &arena->pair[peer].slot[position & (MOTET_PAIR_SLOTS - 1)];
}

static inline uint8_t *motet_pair_chunk(const motet_arena *arena, int peer,
        uint64_t position)
{
    size_t index =
            (size_t)peer * MOTET_PAIR_SLOTS + (position & (MOTET_PAIR_SLOTS - 1));

    return arena->pair_data + index * arena->shape.pair_chunk;
}

#endif
