/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do the ranks that joined fit together? Pure: from what they said to a sentence.
 *
 * The odd one is named by majority: for each property the value that most ranks have
 * is right; of two equally frequent ones that of rank 0's group, or of the lowest
 * rank if rank 0 is in neither. Everybody gets the same sentence.
 */
#ifndef MOTET_BOOTSTRAP_AGREE_H
#define MOTET_BOOTSTRAP_AGREE_H

#include "bootstrap/wire.h"

/** Most ranks that are looked at: duplicates and ranks of another group come on top. */
#define MOTET_MEMBERS_MAX (MOTET_MAX_RANKS + 64)

/** One rank that said hello. */
typedef struct motet_member {
    const motet_hello *hello; /**< rank, nranks only where version is not ours */
    uint32_t pid;             /**< as the root sees it, else as it sees itself */
    uint16_t version;         /**< of the wire                                 */
    bool tcp;                 /**< came over TCP, so without descriptors       */
} motet_member;

/** The process of the root service. */
typedef struct motet_root_facts {
    uint32_t pid, uid;
    uint64_t boot_hash;
    const char *host;
} motet_root_facts;

/** "300 s" or "250 ms": a time limit, rounded to what a person set. */
void motet_limit_text(uint64_t ms, char *buf, size_t bytes);

/** "rank 3", "ranks 0, 2" or "ranks 0-3, 7" of those with in[r] true, r < n. */
void motet_rank_list(const bool *in, int n, char *buf, size_t bytes);

/**
 * True if these two can never belong to one complete group: the same rank twice,
 * another nranks, or another wire version. The others need not be waited for.
 */
bool motet_members_clash(const motet_member *a, const motet_member *b);

/**
 * MOTET_OK if the members agree and are on the root's node; else the code, and the
 * sentence in @p sentence.
 */
motet_result motet_members_agree(const motet_member *members, int n,
        const motet_root_facts *root, char *sentence, size_t bytes);

/** Who of @p nranks is not among the members, @p waited_ms after the start. */
void motet_members_absent(const motet_member *members, int n, int nranks,
        uint64_t waited_ms, char *sentence, size_t bytes);

#endif
