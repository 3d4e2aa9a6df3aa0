/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host and the kernels on a device agree on: the layout of a device arena and
 * the arguments of every kernel. Freestanding: the same file is compiled for the host,
 * PTX and AMD code objects, all 64-bit and little-endian.
 *
 * A device arena belongs to one rank. Its peers write into it, the rank reads it; every
 * word has one writer. A rank has up to two, of the same layout: one in its device's memory
 * for those that reach it there (direct), one in host memory that every device has mapped,
 * coherent, for the others (staged). A peer writes into one of the two only, and both know
 * into which. Beside them a rank has its own memory, always on its own device, which only
 * its kernels touch: states, windows, counts of pairs. All are cut by block index at fixed
 * offsets, so block b of one rank only ever meets block b of another.
 *
 * Positions. Each block counts steps. All ranks launch the same grid for the same
 * operation, so the counts of block b agree on all ranks, in a graph's replay too. An
 * operation that begins at position p and takes k steps uses positions p … p+k−1; the
 * block leaves p+k behind in its state line. 32 bits, compared as signed differences.
 *
 * Progress. At entry a block stores {position, fingerprint} as one 64-bit word in each
 * peer's line for it: "this rank has read everything below `position`". After each step
 * whose slot it has read it does so for those that sent, except after the last: that word
 * is the next operation's entry word. A sender may fill slot q mod S only when the
 * receiver's progress is at least q − S + 1. This is entry word, credit and fingerprint
 * at once, and covers one-way traffic, empty pieces and any mixture of protocols.
 *
 * LL slots hold 16-byte lines {data 4, tag 4, data 4, tag 4}; the tag is the position,
 * compared for equality. The host initialises all of them with the tag start + 2^31; a slot must
 * not keep a tag for 2^32 positions, which is what `cleared` in the state line is for.
 */
#ifndef MOTET_KERNELS_GPU_GPU_H
#define MOTET_KERNELS_GPU_GPU_H

#include <stddef.h>
#include <stdint.h>

/** Ranks of a communicator whose devices meet on one host. */
#define MOTET_GPU_RANKS 16
/** Most blocks of a grid. */
#define MOTET_GPU_BLOCKS 64
/** Threads of a block. */
#define MOTET_GPU_THREADS 512
/** LL slots and staging slots of a (block, source). */
#define MOTET_LL_SLOTS    2
#define MOTET_STAGE_SLOTS 4
#define MOTET_PAIR_STAGES 2
/** Ring slots of a (writer, reader): what copy engines fill and empty. */
#define MOTET_RING_SLOTS 4
#define MOTET_GPU_LINE   128
/** Arenas of a rank: in device memory, in host memory. */
#define MOTET_GPU_INBOXES 2
/** Windows of a communicator; own table in the arena: address of window w of rank r here. */
#define MOTET_GPU_WINDOWS 64

/** Own words of a block: written by its own rank alone, at exit; `closed` by the host. */
typedef struct motet_gpu_state {
    /* of the next operation */
    uint32_t position;
    /* byte i: generation (position >> 29) in which LL slot i was cleared; upper half: how
     * often the position has wrapped */
    uint32_t cleared;
    /* fingerprint of the operation before, 0 at first */
    uint32_t last;
    /* not 0: the communicator is gone; touch nothing, leave */
    uint32_t closed;
    /* of the operation that runs: unlike any other's */
    uint64_t mark;
    uint32_t reserved[26];
} motet_gpu_state;

/** Words that one peer writes for one block of this rank. */
typedef struct motet_gpu_line {
    /* position | fingerprint << 32; fingerprint 0 says nothing */
    uint64_t progress;
    /* staging, flags: slots below this count were filled; position | wraps << 32 */
    uint64_t published;
    uint64_t reserved[14];
} motet_gpu_line;

/** Words of an ordered pair and block; like motet_gpu_line, but for send and receive. */
typedef struct motet_gpu_pair_line {
    /* by the sender, in the receiver's arena: slots filled */
    uint64_t published;
    /* by the receiver, in the sender's arena: slots read */
    uint64_t taken;
    /* by the sender, with a message's first slot: its bytes; by that slot's number mod 2 */
    uint64_t message[MOTET_PAIR_STAGES];
    uint64_t reserved[12];
} motet_gpu_pair_line;

/** Own words of a pair and block: how many slots were sent to, received from the peer. */
typedef struct motet_gpu_pair_state {
    uint32_t sent, received;
    uint32_t reserved[30];
} motet_gpu_pair_state;

/** Sizes that all ranks of a communicator agreed on, and the offsets that follow. */
typedef struct motet_gpu_layout {
    uint32_t nranks;
    /* most blocks of a collective's grid */
    uint32_t blocks;
    /* most blocks of one transfer */
    uint32_t pair_blocks;
    /* payload of an LL slot; a multiple of 16, 32 at least */
    uint32_t ll_bytes;
    /* bytes of a staging slot; a multiple of 256 */
    uint32_t chunk;
    /* bytes of a pair's staging slot; a multiple of 256 */
    uint32_t pair_chunk;
    /* bytes of a ring slot; a multiple of 256 */
    uint32_t ring_chunk;
    /* motet_gpu_layout_fill(): offsets in the own memory, and in the arena */
    uint64_t window, pair_state, own_bytes;
    uint64_t line, pair_line, ll, stage, pair_stage, ring, arena_bytes;
} motet_gpu_layout;

/** Host memory that the device has mapped: one for each rank. */
typedef struct motet_gpu_control {
    /* written by the host; not 0: every kernel leaves */
    uint32_t abort;
    uint32_t reserved0[31];
    /* written by kernels, in trouble only: enum motet_gpu_error; of several blocks, any
     * is right, and it is stored last */
    uint32_t error;
    uint32_t error_block, error_peer, error_position;
    /* FINGERPRINT: progress words; SIZE: bytes */
    uint64_t error_mine, error_theirs;
    uint32_t reserved1[24];
    /* a block that has spun for long: {peer + 1, position}; 0 when the wait is over */
    struct {
        uint32_t peer_plus_1, position;
    } waiting[MOTET_GPU_BLOCKS];
    /* by each block when it leaves, in good order or not: the ticket of its arguments, if
     * that is not 0 */
    uint32_t done[MOTET_GPU_BLOCKS];
} motet_gpu_control;

enum motet_gpu_error {
    MOTET_GPU_OK,
    /* the abort word was seen */
    MOTET_GPU_ERROR_ABORTED,
    /* a peer runs another operation at this position */
    MOTET_GPU_ERROR_FINGERPRINT,
    /* two operations of the communicator ran at once */
    MOTET_GPU_ERROR_OVERLAP,
    /* a send and its receive differ in bytes; reported by the receiver */
    MOTET_GPU_ERROR_SIZE
};

/**
 * A collective as an exchange of pieces. Peer p in send_mask gets the piece at
 * send + p·send_stride; from source r in recv_mask (which may hold this rank) a piece
 * comes that is reduced into recv, or copied to recv + r·recv_stride.
 */
typedef struct motet_gpu_args {
    /* this rank's own words, in its device's memory */
    uint8_t *own;
    /* by peer: its arena that this rank writes into, as this rank has it mapped */
    uint8_t *arena[MOTET_GPU_RANKS];
    /* this rank's arenas: motet_gpu_inbox(); of one that has one only, twice the same */
    uint8_t *inbox[MOTET_GPU_INBOXES];
    motet_gpu_control *control;
    motet_gpu_layout layout;
    uint32_t rank, nranks, blocks;
    /* bit p: what peer p writes lies in inbox[1], else in inbox[0] */
    uint32_t hosted;
    uint32_t send_mask, recv_mask;
    /* of the operation; 0: not compared */
    uint32_t fingerprint;
    /* of a reduction: enum motet_type, enum motet_redop */
    uint32_t type, redop;
    const uint8_t *send;
    uint8_t *recv;
    /* all_reduce: added before the rounding, or NULL */
    const uint8_t *bias;
    /* of a piece (two-shot: of the whole message) */
    uint64_t bytes;
    uint64_t send_stride, recv_stride;
    /* PREMUL_SUM: this rank's factor, read here if not NULL, else its bytes */
    const uint8_t *scalar_ptr;
    uint64_t scalar;
    /* Zero-copy, of motet_stage_copy and motet_twoshot_reduce; others take no notice.
     * `offers`: the communicator has windows (all ranks know it alike), so ranks tell each
     * other at entry where their buffers lie. Copies go straight into a recv buffer that
     * lies in a window; a two-shot works in place if all buffers of all ranks do. A
     * buffer counts if its offset is a multiple of 16. Takes one position more. */
    uint32_t offers;
    /* numbers, 1 and up; 0: in none */
    uint32_t send_window, recv_window;
    /* of the buffers in them, below 2^48 */
    uint64_t send_offset, recv_offset;
    /* not 0: each block stores it in control->done[block] when it leaves */
    uint32_t ticket;
} motet_gpu_args;

/** Ranks that motet_gpu_small_args has room for. */
#define MOTET_GPU_SMALL_RANKS 8
/** own_offset: nothing of this rank's own is needed. */
#define MOTET_GPU_NO_OWN UINT32_MAX

/**
 * An LL exchange of one step: pieces of whole packs of 8 bytes in buffers aligned to that.
 * Everything is worked out by the host that can be; what all threads need comes first.
 */
typedef struct motet_gpu_small_args {
    /* of block 0; the others' follow */
    uint8_t *state;
    /* own arenas: the peers' words of block 0; two as in motet_gpu_args.inbox */
    uint8_t *lines[MOTET_GPU_INBOXES];
    /* own arenas: LL slot 0 of block 0, source 0 */
    uint8_t *slots[MOTET_GPU_INBOXES];
    const uint8_t *send;
    uint8_t *recv;
    motet_gpu_control *control;
    uint32_t rank, nranks;
    /* of a piece, and of a block's part of it */
    uint32_t bytes, each;
    uint32_t send_mask, recv_mask;
    uint32_t send_stride, recv_stride;
    /* in send, of what this rank sends to all or keeps */
    uint32_t own_offset;
    uint32_t slot_stride, source_stride, line_stride;
    uint32_t fingerprint, redop, ticket;
    /* as in motet_gpu_args */
    uint32_t hosted;
    /* LL slot 0 of block 0 for this rank, there */
    uint8_t *to[MOTET_GPU_SMALL_RANKS];
    /* this rank's word of block 0, there */
    uint8_t *word[MOTET_GPU_SMALL_RANKS];
} motet_gpu_small_args;

/** One send or receive of a launch. */
typedef struct motet_gpu_transfer {
    uint8_t *buffer;
    uint64_t bytes;
    uint16_t peer;
    /* 0 send, 1 receive */
    uint8_t receive;
    /* blocks that move it: from its bytes alone, alike at both ends */
    uint8_t blocks;
    /* grid block that is its block 0 */
    uint32_t first;
} motet_gpu_transfer;

#define MOTET_GPU_TRANSFERS 96

/** Transfers of one launch. Each runs on the grid's blocks [first, first + blocks); a
 * block runs those that it has a part in one after the other, in the order of the array. */
typedef struct motet_gpu_pairs_args {
    /* as in motet_gpu_args */
    uint8_t *own;
    uint8_t *arena[MOTET_GPU_RANKS];
    uint8_t *inbox[MOTET_GPU_INBOXES];
    motet_gpu_control *control;
    motet_gpu_layout layout;
    uint32_t rank, nranks, blocks, hosted;
    uint32_t ticket;
    /* of `transfer` */
    uint32_t count;
    motet_gpu_transfer transfer[MOTET_GPU_TRANSFERS];
} motet_gpu_pairs_args;

/**
 * One step between copies of a collective: motet_flag, of one block. It first tells, then
 * waits. Counts are of steps of the operation, from its beginning; masks may be 0.
 */
typedef struct motet_gpu_flag_args {
    /* own, arena, inbox, control, layout, rank, nranks, hosted, fingerprint, ticket */
    motet_gpu_args op;
    /* positions that the operation takes */
    uint32_t steps;
    /* bool: its first launch, which greets; its last, which ends it */
    uint32_t first, last;
    /* of control->waiting, where it shows that it waits */
    uint32_t place;
    /* told: so many steps were filled; so many were read */
    uint32_t filled_mask, filled;
    uint32_t read_mask, read;
    /* waited for: that they have read so many steps; that they have filled so many */
    uint32_t credit_mask, credit;
    uint32_t data_mask, data;
} motet_gpu_flag_args;

/**
 * The same for a send or a receive: motet_pair_flag. A message of k steps takes k + 1
 * counts: with the first, the receiver says that it is there.
 */
typedef struct motet_gpu_pair_flag_args {
    /* as in motet_gpu_flag_args; bytes: of the message */
    motet_gpu_args op;
    uint32_t peer, receive;
    /* counts from the message's beginning on; 0: neither told nor waited for */
    uint32_t told, awaited;
    /* bool: with `told` or `awaited` comes or is to come the message's size */
    uint32_t sizes;
    /* not 0: the message ends, and took so many counts */
    uint32_t ends;
    uint32_t place, reserved;
} motet_gpu_pair_flag_args;

/** Bytes that motet_ring_step moves. */
typedef struct motet_gpu_ring_copy {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
} motet_gpu_ring_copy;

/**
 * What copy engines cannot do, or may not in a graph, between two flags: motet_ring_step,
 * of twice op.blocks blocks. The first half of the grid makes the first copies, which fill
 * slots; the other half those that follow, which empty some, and then reduces: what the
 * ranks in op.recv_mask, if any, have in ring slot `slot` for this rank, and of itself
 * op.bytes at op.send, to op.recv. It waits for nothing.
 */
typedef struct motet_gpu_ring_args {
    motet_gpu_args op;
    uint32_t slot;
    uint32_t fills, reads;
    motet_gpu_ring_copy copy[2 * MOTET_GPU_RANKS];
} motet_gpu_ring_args;

_Static_assert(sizeof(motet_gpu_state) == MOTET_GPU_LINE, "one line");
_Static_assert(sizeof(motet_gpu_line) == MOTET_GPU_LINE, "one line");
_Static_assert(sizeof(motet_gpu_pair_line) == MOTET_GPU_LINE, "one line");
_Static_assert(sizeof(motet_gpu_args) <= 4096, "kernel parameters are 4 KiB at most");
_Static_assert(sizeof(motet_gpu_pairs_args) <= 4096,
        "kernel parameters are 4 KiB at most");

/** Fill in the offsets of @p layout from its sizes. */
static inline void motet_gpu_layout_fill(motet_gpu_layout *l)
{
    uint64_t lines = (uint64_t)l->blocks * l->nranks;
    /* one more than blocks: copies are counted apart from what kernels move */
    uint64_t pairs = ((uint64_t)l->pair_blocks + 1) * l->nranks;

    l->window = (uint64_t)l->blocks * sizeof(motet_gpu_state);
    l->pair_state =
            l->window + (uint64_t)MOTET_GPU_WINDOWS * l->nranks * sizeof(uint64_t);
    l->pair_state =
            (l->pair_state + MOTET_GPU_LINE - 1) / MOTET_GPU_LINE * MOTET_GPU_LINE;
    l->own_bytes = l->pair_state + pairs * sizeof(motet_gpu_pair_state);

    l->line = 0;
    l->pair_line = lines * sizeof(motet_gpu_line);
    l->ll = l->pair_line + pairs * sizeof(motet_gpu_pair_line);
    l->stage = l->ll + lines * MOTET_LL_SLOTS * 2 * l->ll_bytes;
    l->pair_stage = l->stage + lines * MOTET_STAGE_SLOTS * l->chunk;
    l->ring = l->pair_stage +
            (uint64_t)l->pair_blocks * l->nranks * MOTET_PAIR_STAGES * l->pair_chunk;
    l->arena_bytes = l->ring + (uint64_t)l->nranks * MOTET_RING_SLOTS * l->ring_chunk;
}

#define MOTET_GPU_AT static inline __attribute__((always_inline))

/* Which of two addresses is that of what @p writer writes: both are there before it is
 * known, so that none of them waits for the other. */
MOTET_GPU_AT uint8_t *motet_gpu_inbox(uint8_t *const *inbox, uint32_t hosted,
        uint32_t writer)
{
    uint8_t *in_device = inbox[0], *in_host = inbox[1];
    return (hosted >> writer & 1u) != 0 ? in_host : in_device;
}

MOTET_GPU_AT uint8_t *motet_gpu_state_at(uint8_t *own, uint32_t block)
{
    return own + (uint64_t)block * sizeof(motet_gpu_state);
}

/* Where this rank's own table says that window @p number of rank @p r lies (a uint64_t). */
MOTET_GPU_AT uint8_t *motet_gpu_window_at(uint8_t *own, const motet_gpu_layout *l,
        uint32_t number, uint32_t r)
{
    return own + l->window +
            ((uint64_t)(number - 1) * l->nranks + r) * sizeof(uint64_t);
}

/* The offset in an arena of the line that rank @p writer writes for block @p block. */
MOTET_GPU_AT uint64_t motet_gpu_line_offset(const motet_gpu_layout *l, uint32_t block,
        uint32_t writer)
{
    return l->line + ((uint64_t)block * l->nranks + writer) * sizeof(motet_gpu_line);
}

/* The offset in an arena of what rank @p writer puts into LL slot @p position. */
MOTET_GPU_AT uint64_t motet_gpu_ll_offset(const motet_gpu_layout *l, uint32_t block,
        uint32_t position, uint32_t writer)
{
    return l->ll +
            (((uint64_t)block * MOTET_LL_SLOTS + position % MOTET_LL_SLOTS) *
                            l->nranks +
                    writer) *
            2 * l->ll_bytes;
}

/* The same, of its staging slot. */
MOTET_GPU_AT uint64_t motet_gpu_stage_offset(const motet_gpu_layout *l, uint32_t block,
        uint32_t position, uint32_t writer)
{
    return l->stage +
            (((uint64_t)block * MOTET_STAGE_SLOTS + position % MOTET_STAGE_SLOTS) *
                            l->nranks +
                    writer) *
            l->chunk;
}

/* Own counts of the pair with @p peer. */
MOTET_GPU_AT uint8_t *motet_gpu_pair_state_at(uint8_t *own, const motet_gpu_layout *l,
        uint32_t block, uint32_t peer)
{
    return own + l->pair_state +
            ((uint64_t)block * l->nranks + peer) * sizeof(motet_gpu_pair_state);
}

MOTET_GPU_AT uint8_t *motet_gpu_pair_line_at(uint8_t *arena, const motet_gpu_layout *l,
        uint32_t block, uint32_t writer)
{
    return arena + l->pair_line +
            ((uint64_t)block * l->nranks + writer) * sizeof(motet_gpu_pair_line);
}

MOTET_GPU_AT uint8_t *motet_gpu_pair_stage_at(uint8_t *arena, const motet_gpu_layout *l,
        uint32_t block, uint32_t slot, uint32_t writer)
{
    return arena + l->pair_stage +
            (((uint64_t)block * MOTET_PAIR_STAGES + slot % MOTET_PAIR_STAGES) *
                            l->nranks +
                    writer) *
            l->pair_chunk;
}

/* The offset in an arena of ring slot @p slot that its owner fills for rank @p reader; what
 * is for all is for the owner. */
MOTET_GPU_AT uint64_t motet_gpu_ring_offset(const motet_gpu_layout *l, uint32_t slot,
        uint32_t reader)
{
    return l->ring +
            ((uint64_t)reader * MOTET_RING_SLOTS + slot % MOTET_RING_SLOTS) *
            l->ring_chunk;
}

#endif
