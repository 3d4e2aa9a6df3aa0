/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other. A unique id names a rendezvous: a root service (one
 * thread of the process that made the id) listens on an abstract Unix socket, on a
 * 0600 path socket, and on TCP. Every rank joins once: it hands over a hello, a
 * blob and a few file descriptors, and gets everybody's back. Nothing here outlives
 * the join; later exchanges go through the arenas.
 *
 * Wire rules: a fixed header with magic, version and type before any length is
 * believed; the secret of the id must match; on Unix sockets the peer's uid must be
 * ours or root's; a connection that has not said a whole hello within 5 s, or says
 * anything else, is closed and counted, and never delays the others.
 */
#ifndef MOTET_BOOTSTRAP_BOOTSTRAP_H
#define MOTET_BOOTSTRAP_BOOTSTRAP_H

#include "base/error.h"
#include "base/param.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define MOTET_ID_BYTES 128
/** Most ranks of one communicator. */
#define MOTET_MAX_RANKS 128
/** Longest blob of a rank, bytes. */
#define MOTET_BLOB_MAX 1024
/** Longest settings text, bytes with the NUL. */
#define MOTET_SETTINGS_MAX 1024
/** Most file descriptors of a rank. */
#define MOTET_JOIN_FDS 3

/** Opaque, position independent, copyable: what ncclUniqueId holds. */
typedef struct motet_id {
    uint8_t bytes[MOTET_ID_BYTES];
} motet_id;

/**
 * Make an id and start its root service. With NCCL_COMM_ID set the id names that
 * address, and no service starts here: rank 0's join starts it.
 */
MOTET_MUST_USE motet_result motet_id_create(const motet_params *params, motet_id *out);

/** Check that @p id was made by this library (any process); the sentence says what it is instead. */
MOTET_MUST_USE motet_result motet_id_check(const motet_id *id);

/**
 * End the service of @p id if it runs in this process and has not gathered all ranks:
 * for ids that will not be used. Wakes ranks that already wait, with an error.
 */
void motet_id_cancel(const motet_id *id);

/** What one rank brings. */
typedef struct motet_join_args {
    int rank, nranks;
    const char *
            settings; /**< "key=value\n" lines that must be equal on all ranks; the first
                               difference fails all, naming the odd rank, key and values    */
    const void
            *blob; /**< handed to every rank as it is                                */
    size_t blob_bytes;
    int fds[MOTET_JOIN_FDS]; /**< handed to every rank as duplicates; the caller keeps its own */
    int nfds;
    uint64_t deadline_ns; /**< monotonic, 0 = none                              */
    const _Atomic uint32_t
            *cancel; /**< non-zero ends the wait (ncclCommAbort); may be NULL */
} motet_join_args;

/** What everybody brought, by rank. */
typedef struct motet_roster_entry {
    pid_t pid;     /**< as the root sees it (SO_PEERCRED), 0 if not visible there */
    char host[64]; /**< host name                                                  */
    uint8_t blob[MOTET_BLOB_MAX];
    size_t blob_bytes;
    int fds[MOTET_JOIN_FDS]; /**< −1 where the rank sent none, or for this rank itself; CLOEXEC */
} motet_roster_entry;

typedef struct motet_roster {
    int nranks;
    motet_roster_entry *rank; /**< nranks entries */
} motet_roster;

/**
 * Join and wait for the others. On any failure every rank that joined gets the same
 * sentence: who is absent (deadline), who left, who differs in which setting, who
 * has a rank twice or another nranks, or the names of the nodes if there are several.
 *
 * @param id     where; @p params decide interfaces, family, ports and NCCL_HOSTID.
 * @param out    release with motet_roster_release(); written only on success.
 * @retval MOTET_ERR_REMOTE   the deadline passed, or a rank left before the end.
 * @retval MOTET_ERR_USAGE    disagreement, several nodes, a duplicate rank; or *cancel
 *                            became non-zero.
 * @retval MOTET_ERR_ARGUMENT not one of our ids.
 */
MOTET_MUST_USE motet_result motet_bootstrap_join(const motet_params *params,
        const motet_id *id, const motet_join_args *args, motet_roster *out);

/** Close the roster's descriptors that were not taken (set to −1) and free it. */
void motet_roster_release(motet_roster *roster);

/**
 * Root services alive in this process: for leak tests. One that failed lives up to 5 s
 * longer unless every rank heard why, or motet_id_cancel() ends it.
 */
int motet_bootstrap_services(void);

/** In the child of a fork: close inherited service sockets and forget them. */
void motet_bootstrap_after_fork(void);

#endif
