/* SPDX-License-Identifier: Apache-2.0 */
/* Which path each pair of GPU ranks takes: see paths.c. */
#ifndef MOTET_COMM_PATHS_H
#define MOTET_COMM_PATHS_H

#include "comm/comm.h"

/** How a pair's path fared, as one of its ends saw it. */
typedef enum motet_pair_fate {
    MOTET_PAIR_FINE,
    MOTET_PAIR_CANNOT, /* there is no way to the memory, or a device refuses work      */
    MOTET_PAIR_BYTES, /* bytes that were written did not arrive                       */
    MOTET_PAIR_WRONG, /* protocols gave wrong values                                  */
    MOTET_PAIR_LATE,  /* protocols gave nothing within the deadline                   */
    MOTET_PAIR_VETOED, /* one of these happened before: see transport/history.h         */
    MOTET_PAIR_HUNG, /* the first access never came back before                      */
    MOTET_PAIR_NUM_FATES
} motet_pair_fate;

/** What one rank found of its pairs: goes over the wire. */
typedef struct motet_pair_findings {
    /** By peer: motet_pair_fate, and a bit for each protocol that failed. */
    uint8_t why[MOTET_GPU_RANKS], protocols[MOTET_GPU_RANKS];
    /** Peers of whom `text` speaks. */
    uint32_t about;
    char text[400];
} motet_pair_findings;

_Static_assert(sizeof(motet_pair_findings) <= MOTET_OOB_MAX, "fits into a message");

/** Pairs with the peers in @p mask cannot take their path: @p text says why. */
void motet_pair_findings_fail(motet_pair_findings *findings, uint32_t mask,
        const char *text);

typedef struct motet_path_search {
    motet_comm *comm;
    const motet_params *params;
    const motet_gpu_constants *forced;
    /** Alike in the ranks of one process, and only there. */
    uint64_t process;
    uint64_t deadline_ns;
    /** Several ranks are on one device: they may take turns on it. */
    bool shared_device;
    /** Of all ranks' devices. */
    const char (*identity)[96];
} motet_path_search;

/**
 * Find a path for each pair of ranks, which has passed its proof; the communicator's
 * engine, with its limit, is there. All ranks end with the same.
 * @param taken_out false: copies are left for some pair, and so for all; nothing is mapped
 */
MOTET_MUST_USE motet_result motet_comm_find_paths(const motet_path_search *given,
        bool *taken_out);

/**
 * Prove all paths by what operations run: see prove.c.
 * @param deadline_ns for the exchanges together
 * @param say_deadline_ns for what the ranks say to one another
 * @param out what this rank found is added
 * @retval not MOTET_OK the ranks have lost one another
 */
MOTET_MUST_USE motet_result motet_comm_gpu_prove(motet_comm *comm, uint64_t deadline_ns,
        uint64_t say_deadline_ns, motet_pair_findings *out);

#endif
