/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What emulate.py calls: one rank of a communicator, made of the library's own transport,
 * plans and engine on the device of device.h, and the values that go in and must come
 * out. All functions return 0, or −1 with a sentence from emulate_error().
 */
#ifndef MOTET_EMULATE_RANK_H
#define MOTET_EMULATE_RANK_H

#include "device.h"

#include <stdint.h>

typedef struct emulate_rank emulate_rank;

/** One collective; words as the library's tables spell them. */
typedef struct emulate_call {
    const char *kind, *type, *redop;
    /** "ll", "staged", "twoshot", "ce"; "" leaves it to the plan. */
    const char *protocol;
    uint64_t count;
    int32_t root;
    int32_t in_place;
    /** all_reduce: one more array is added. */
    int32_t biased;
    /** PREMUL_SUM: the factor is read from memory. */
    int32_t scalar_in_memory;
    /** As in a graph: eager and captured launches differ in their kernels. */
    int32_t captured;
    /** Bytes that the buffers are off their alignment of 256. */
    uint32_t send_shift, recv_shift;
    /** Other values for each. */
    uint32_t salt;
    /** Offsets in the inputs of a byte that is changed after the reference was taken, + 1. */
    uint64_t spoil;
} emulate_call;

/** A send or receive of a group; of the same salt and bytes at both ends. */
typedef struct emulate_transfer {
    int32_t receive, peer;
    uint64_t bytes;
    uint32_t salt, shift;
} emulate_transfer;

/** What came of it. */
typedef struct emulate_outcome {
    /** Elements, or bytes, that were compared, and those that differed. */
    uint64_t checked, wrong;
    /** The first that differed. */
    uint64_t at, got, wanted;
    /** Positions of the first two blocks afterwards: alike on all ranks. */
    uint32_t position[2];
    /** enum motet_gpu_error */
    uint32_t error;
} emulate_outcome;

const char *emulate_error(void);

/** @param staged arenas in host memory, not the device's
 *  @param fnuz   fp8 as gfx942 has it */
int emulate_open(int rank, int nranks, int staged, int fnuz, emulate_launch *launch,
        emulate_rank **out);

/** Bytes of what one rank tells the others; descriptors go along. */
uint64_t emulate_offer_bytes(void);
/** @param fds_out two, the caller's: arena, buffers */
int emulate_offer(emulate_rank *r, uint64_t nonce, void *out, int fds_out[2]);
int emulate_map(emulate_rank *r, int peer, const void *offer, const int fds[2]);
/** Fresh words: positions begin at @p start. The peers must not run anything. */
int emulate_reset(emulate_rank *r, uint32_t start);
/** From now on the buffers are a window, or none. All ranks alike. */
int emulate_window(emulate_rank *r, int on);

int emulate_collective(emulate_rank *r, const emulate_call *call, emulate_outcome *out);
/** @param copies by copy engines, not kernels */
int emulate_transfers(emulate_rank *r, const emulate_transfer *list, int count,
        int copies, emulate_outcome *out);
/** @p rounds of motet_litmus, @p bytes each. */
int emulate_litmus(emulate_rank *r, uint32_t blocks, uint32_t rounds, uint32_t bytes,
        emulate_outcome *out);

#endif
