/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the root service: a hello comes in, an answer goes out, neither
 * ever blocks. A connection is a stranger until its whole hello was good.
 */
#ifndef MOTET_BOOTSTRAP_CONN_H
#define MOTET_BOOTSTRAP_CONN_H

#include "bootstrap/agree.h"
#include "bootstrap/sock.h"
#include "bootstrap/wire.h"

/** What everybody is told at the end: one buffer for all, descriptors at fixed places. */
typedef struct motet_answer {
    uint8_t *bytes;
    size_t nbytes;
    int nparts;
    struct {
        size_t at; /**< descriptors ride with the byte at this offset */
        int nfds;
        int fds[MOTET_SOCK_FDS_MAX]; /**< borrowed from the connections */
    } part[2];
} motet_answer;

_Static_assert(MOTET_MAX_RANKS *MOTET_JOIN_FDS <=
                2 * (MOTET_SOCK_FDS_MAX - MOTET_JOIN_FDS),
        "two parts hold every rank's descriptors");

typedef struct motet_conn {
    int fd;
    bool tcp, member; /**< member: its hello was good           */
    uint16_t version; /**< of its hello's wire                  */
    uint32_t pid;     /**< SO_PEERCRED's, 0 if it cannot be had */
    uint64_t since_ns;
    size_t have; /**< bytes of the hello so far            */
    size_t sent; /**< bytes of the answer so far           */
    int fds[MOTET_JOIN_FDS];
    motet_fd_queue queue; /**< over fds                             */
    uint8_t in[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX];
    motet_hello hello;
} motet_conn;

/** Take over @p fd. NULL, with the descriptor closed, if there is no memory. */
motet_conn *motet_conn_new(int fd, bool tcp, uint32_t pid, uint64_t now_ns);

/** Close the connection and the descriptors it brought. NULL is ignored. */
void motet_conn_free(motet_conn *conn);

typedef enum motet_conn_event {
    MOTET_CONN_WAITS,    /**< nothing to do for now                                  */
    MOTET_CONN_HELLO,    /**< became a member just now                               */
    MOTET_CONN_STRANGER, /**< is none of ours; *why says how that shows              */
    MOTET_CONN_LEFT,     /**< a member closed its end, or broke the protocol         */
    MOTET_CONN_DONE      /**< has the whole answer                                   */
} motet_conn_event;

/** Read what is there. */
motet_conn_event motet_conn_read(motet_conn *conn,
        const uint8_t secret[MOTET_SECRET_BYTES], const char **why);

/**
 * Send more of @p answer. WAITS with *full_out true: the kernel holds too many
 * descriptors of this user in flight, try again a little later.
 */
motet_conn_event motet_conn_write(motet_conn *conn, const motet_answer *answer,
        bool *full_out);

/** Send a WELCOME. False if the connection is no longer good. */
bool motet_conn_welcome(motet_conn *conn, const motet_welcome *welcome,
        const uint8_t secret[MOTET_SECRET_BYTES]);

/** As the judge sees it. */
motet_member motet_conn_member(const motet_conn *conn);

#endif
