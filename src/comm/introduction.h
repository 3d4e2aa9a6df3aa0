/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank tells the others when it joins: a blob on the wire, fixed width. */
#ifndef MOTET_COMM_INTRODUCTION_H
#define MOTET_COMM_INTRODUCTION_H

#include "comm/comm.h"

/** CPUs that a mask can name. */
#define MOTET_INTRODUCTION_CPUS 1024

typedef struct motet_introduction {
    uint64_t nonce;            /* written into the rank's arena: proves the mapping  */
    uint64_t number;           /* rank 0's names the communicator                    */
    uint64_t process;          /* alike in the ranks of one process, and only there  */
    motet_constants constants; /* rank 0's count                           */
    int32_t ordinal;
    uint32_t quota_percent; /* CPU quota of the rank's group, 0 = none     */
    uint64_t cpus[MOTET_INTRODUCTION_CPUS / 64]; /* that the rank may run on      */
} motet_introduction;

_Static_assert(sizeof(motet_introduction) <= MOTET_BLOB_MAX, "fits into a blob");

/** Fill in this rank's surroundings and random numbers. */
MOTET_MUST_USE motet_result motet_introduction_fill(motet_introduction *intro);

/** True if @p count ranks have fewer cores than ranks to run on. */
bool motet_introduction_oversubscribed(const motet_introduction *ranks, int count);

/**
 * The settings that must be equal on all ranks, as "key=value" lines.
 * @retval MOTET_ERR_ARGUMENT they do not fit.
 */
MOTET_MUST_USE motet_result motet_settings_text(const motet_params *params,
        const motet_comm_spec *spec, const motet_device_ops *device,
        const motet_constants *constants, char *buf, size_t bytes);

#endif
