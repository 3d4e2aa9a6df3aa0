/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root service of one id.
 *
 * root.c is its loop, on a thread of its own:
 *
 *   GATHER   accept, read hellos, turn strangers away. First hello: nranks is known.
 *      │     A member leaves, a deadline passes, or it is cancelled → FAIL. Two members
 *      │     clash (agree.h) → wait 1 s more for a majority, then judge.
 *      │     Everybody is there → judge.
 *   TELL     one answer, the same for all. After a FAIL the listeners stay open for
 *      │     up to 5 s, so that ranks that come late hear the sentence too.
 *   end      sockets closed, path unlinked.
 *
 * service.c starts, finds and cancels services; the process may have many.
 */
#ifndef MOTET_BOOTSTRAP_ROOT_H
#define MOTET_BOOTSTRAP_ROOT_H

#include "bootstrap/conn.h"
#include "bootstrap/id.h"

#include <stdatomic.h>

/** Abstract, path, and one for each address. */
#define MOTET_ROOT_LISTENERS (2 + MOTET_ID_ADDRS)
#define MOTET_ROOT_CONNS     (MOTET_MAX_RANKS + 64)

_Static_assert(MOTET_ROOT_CONNS <= MOTET_MEMBERS_MAX, "the judge sees all of them");

typedef struct motet_root {
    motet_id_fields id;
    motet_root_facts facts;
    char host[MOTET_NAME_MAX]; /**< facts.host points here                     */
    int wake_fd;               /**< eventfd: look at `cancel`                  */
    _Atomic bool cancel;
    _Atomic bool judged;   /**< GATHER is over                             */
    _Atomic bool has_path; /**< there is a path socket to unlink           */
    char path[108];        /**< where it is                                */

    /* Below: the loop's own, from its start. */
    int nlisteners;
    struct {
        int fd;
        bool tcp;
    } listener[MOTET_ROOT_LISTENERS];
    int nconns;
    motet_conn *conn[MOTET_ROOT_CONNS];
    int nranks;            /**< largest one heard, 0 before the first hello */
    int accounted;         /**< ranks that heard the answer, or left        */
    int strangers;         /**< turned away so far                          */
    int accept_errno;      /**< why accept() failed last, 0                 */
    uint64_t accept_at_ns; /**< no accept() before: out of descriptors      */
    uint64_t retry_at_ns;  /**< no send before: see motet_conn_write()      */
    uint64_t deadline_ns;  /**< smallest of the members', 0 = none          */
    uint64_t waited_ms;    /**< how long that was, for the sentence         */
    uint64_t clash_ns;     /**< when to judge a clash, 0 = there is none    */
    uint64_t end_ns;       /**< end of TELL after a FAIL, 0 = GATHER        */
    uint32_t root_rank;    /**< rank that lives in this process             */
    bool failed;           /**< the answer is a FAIL                        */
    motet_answer answer;   /**< bytes NULL before TELL                      */
} motet_root;

/** Close all sockets, unlink the path, free connections and answer. Idempotent. */
void motet_root_close(motet_root *root);

/** Unlink the path socket if that was not done yet; from any thread. */
void motet_root_unlink(motet_root *root);

/** Run until everybody was told, or it is cancelled. */
void motet_root_run(motet_root *root);

/**
 * Start the service of @p fields, whose addresses, folder, pid, uid, host and boot hash
 * it fills unless the id is fixed. If a service of this id is at work in this process
 * already, that one serves.
 */
MOTET_MUST_USE motet_result motet_service_start(const motet_params *params,
        motet_id_fields *fields);

/** Cancel the service of @p fields if it is in this process, and wait for its end. */
void motet_service_cancel(const motet_id_fields *fields);

#endif
