/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of the rendezvous: non-blocking, CLOEXEC, never SIGPIPE. Every descriptor
 * that belongs to a rendezvous under way is also noted in a bitmap, so that the
 * child of a fork can close what it inherited without taking any lock: a child that
 * kept a connection open would hide its parent's death from the peers.
 */
#ifndef MOTET_BOOTSTRAP_SOCK_H
#define MOTET_BOOTSTRAP_SOCK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/** Most descriptors of one SCM_RIGHTS message; the kernel takes 253. */
#define MOTET_SOCK_FDS_MAX 250

/** An IP address and port. family 0: none. */
typedef struct motet_inet {
    int family; /**< AF_INET or AF_INET6                   */
    uint16_t port;
    uint8_t ip[16]; /**< network order; IPv4 takes the first 4 */
} motet_inet;

/** Longest text of motet_inet_format(), bytes with the NUL. */
#define MOTET_INET_TEXT_MAX 56

/** "10.0.0.1:80" or "[fd00::1]:80" into @p buf. */
void motet_inet_format(const motet_inet *addr, char *buf, size_t bytes);

/** False if @p addr is neither IPv4 nor IPv6. */
bool motet_inet_from_sockaddr(const struct sockaddr *addr, motet_inet *out);

/** Name of a Unix socket and its length: abstract (sun_path starts with a NUL) or a path. */
typedef struct motet_unix_name {
    struct sockaddr_un addr;
    socklen_t bytes;
} motet_unix_name;

/** Ports to try, low to high; 0 and 0 let the kernel choose. */
typedef struct motet_port_range {
    uint16_t low, high;
} motet_port_range;

/** Parse "", "7000" or "7000-7010". */
MOTET_MUST_USE motet_result motet_port_range_parse(const char *text,
        motet_port_range *out);

/** Note @p fd as the rendezvous' own. */
void motet_sock_note(int fd);

/** Drop the note: the descriptor is somebody else's from now on. */
void motet_sock_forget(int fd);

/** Forget and close *fd, and set it to −1. A negative one is ignored. */
void motet_sock_close(int *fd);

/** In the child of a fork: close every noted descriptor. */
void motet_sock_close_inherited(void);

/** Listen at @p name; @p mode is that of the path, if it is one. −1 with errno. */
int motet_sock_listen_unix(const motet_unix_name *name, mode_t mode);

/** Listen at @p addr with the first free port of @p ports; the port goes into @p addr. −1 with errno. */
int motet_sock_listen_tcp(motet_inet *addr, motet_port_range ports);

/** Connect to @p name. −1 with errno; EAGAIN: the listener's queue is full. */
int motet_sock_connect_unix(const motet_unix_name *name);

/** Start to connect to @p addr: the socket is writable when it is done. −1 with errno. */
int motet_sock_connect_tcp(const motet_inet *addr);

/** How a connect ended: 0 or an errno. */
int motet_sock_error(int fd);

/** Process and user at the other end of a Unix socket. False with errno. */
bool motet_sock_peer(int fd, pid_t *pid, uid_t *uid);

/** Whether a Unix peer of @p uid may be talked to: ours, or root is one of the two. */
bool motet_sock_uid_fits(uid_t uid);

/** Send without blocking; @p fds travel with the first byte. Bytes sent, or −1 with errno. */
ssize_t motet_sock_send(int fd, const void *bytes, size_t nbytes, const int *fds,
        int nfds);

/** Descriptors that came in, oldest first. */
typedef struct motet_fd_queue {
    int *fd; /**< room for `max`                                           */
    int n, max;
    bool lost; /**< some did not fit here or in this process; they are closed */
} motet_fd_queue;

/**
 * Receive without blocking; descriptors are noted and appended to @p queue.
 * Bytes received, 0 at the end of the stream, or −1 with errno.
 */
ssize_t motet_sock_recv(int fd, void *buf, size_t bytes, motet_fd_queue *queue);

#endif
