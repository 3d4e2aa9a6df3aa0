/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's way to the root service: which sockets it tries, how long it waits. */
#ifndef MOTET_BOOTSTRAP_REACH_H
#define MOTET_BOOTSTRAP_REACH_H

#include "bootstrap/id.h"

typedef enum motet_wait_end {
    MOTET_WAIT_READY,
    MOTET_WAIT_EXPIRED,
    MOTET_WAIT_CANCELLED
} motet_wait_end;

/** Until when, and what ends it early. */
typedef struct motet_patience {
    uint64_t until_ns;              /**< monotonic, 0 = none        */
    const _Atomic uint32_t *cancel; /**< non-zero ends it; may be NULL */
} motet_patience;

/** Wait for @p events of @p fd (−1: just sleep), at most @p most_ns (0: no other limit). */
motet_wait_end motet_wait_fd(int fd, short events, const motet_patience *patience,
        uint64_t most_ns);

typedef enum motet_reach_end {
    MOTET_REACH_CONNECTED,
    MOTET_REACH_LATER, /**< nobody there now; may come, or could not be tried         */
    MOTET_REACH_NOBODY, /**< every way was refused for good: there is no service       */
    MOTET_REACH_NO_FDS, /**< this process can open no more sockets */
    MOTET_REACH_CANCELLED
} motet_reach_end;

/** What was tried in one round, and how it went. */
typedef struct motet_reach {
    int fd;
    bool tcp;
    char tried[400]; /**< "@motet-…: connection refused; …" */
} motet_reach;

/** Try each way once: abstract socket, path socket, TCP. */
motet_reach_end motet_reach_once(const motet_id_fields *id, const motet_params *params,
        const motet_patience *patience, motet_reach *out);

/** Unlink the path socket of a root that was killed: nobody else will. */
void motet_reach_sweep(const motet_id_fields *id, const motet_params *params);

#endif
