/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the rendezvous: see sock.h. */
#include "bootstrap/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One bit a descriptor. Those above NOTED_MAX are not noted: CLOEXEC still covers
 * a child that execs. Relaxed order is enough: the only reader runs in a forked
 * child, alone, on a snapshot of this memory. */
#define NOTED_MAX 65536
static _Atomic uint64_t noted[NOTED_MAX / 64];

void motet_sock_note(int fd)
{
    if (fd >= 0 && fd < NOTED_MAX)
        atomic_fetch_or_explicit(&noted[fd / 64], UINT64_C(1) << (fd % 64),
                memory_order_relaxed);
}

void motet_sock_forget(int fd)
{
    if (fd >= 0 && fd < NOTED_MAX)
        atomic_fetch_and_explicit(&noted[fd / 64], ~(UINT64_C(1) << (fd % 64)),
                memory_order_relaxed);
}

void motet_sock_close(int *fd)
{
    if (*fd < 0)
        return;
    motet_sock_forget(
            *fd); /* first: a fork in between must not close a reused number */
    close(*fd);
    *fd = -1;
}

void motet_sock_close_inherited(void)
{
    for (int word = 0; word < NOTED_MAX / 64; word++) {
        uint64_t bits = atomic_exchange_explicit(&noted[word], 0, memory_order_relaxed);

        for (int bit = 0; bits != 0; bit++, bits >>= 1)
            if ((bits & 1) != 0)
                close(word * 64 + bit);
    }
}

static socklen_t inet_to_sockaddr(const motet_inet *addr, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (addr->family == AF_INET) {
        struct sockaddr_in in4 = { .sin_family = AF_INET };

        in4.sin_port = htons(addr->port);
        memcpy(&in4.sin_addr, addr->ip, sizeof(in4.sin_addr));
        memcpy(out, &in4, sizeof(in4));
        return sizeof(in4);
    }
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

    in6.sin6_port = htons(addr->port);
    memcpy(&in6.sin6_addr, addr->ip, sizeof(in6.sin6_addr));
    memcpy(out, &in6, sizeof(in6));
    return sizeof(in6);
}

bool motet_inet_from_sockaddr(const struct sockaddr *addr, motet_inet *out)
{
    *out = (motet_inet){ 0 };
    if (addr->sa_family == AF_INET) {
        struct sockaddr_in in4;

        memcpy(&in4, addr, sizeof(in4));
        out->port = ntohs(in4.sin_port);
        memcpy(out->ip, &in4.sin_addr, sizeof(in4.sin_addr));
    } else if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;

        memcpy(&in6, addr, sizeof(in6));
        out->port = ntohs(in6.sin6_port);
        memcpy(out->ip, &in6.sin6_addr, sizeof(in6.sin6_addr));
    } else {
        return false;
    }
    out->family = addr->sa_family;
    return true;
}

void motet_inet_format(const motet_inet *addr, char *buf, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN];

    if (inet_ntop(addr->family, addr->ip, ip, sizeof(ip)) == NULL)
        snprintf(buf, bytes, "?");
    else
        snprintf(buf, bytes, addr->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
                (unsigned)addr->port);
}

/* A decimal port from 1; NULL if there is none at @p text, else what follows it. */
static const char *parse_port(const char *text, uint16_t *out)
{
    unsigned value = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9' && value <= 65535; at++)
        value = value * 10 + (unsigned)(*at - '0');
    if (at == text || value < 1 || value > 65535)
        return NULL;
    *out = (uint16_t)value;
    return at;
}

motet_result motet_port_range_parse(const char *text, motet_port_range *out)
{
    motet_port_range range = { 0, 0 };
    const char *at = text;

    if (*text != '\0') {
        at = parse_port(text, &range.low);
        range.high = range.low;
        if (at != NULL && *at == '-')
            at = parse_port(at + 1, &range.high);
    }
    if (at == NULL || *at != '\0' || range.high < range.low)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "MOTET_PORT_RANGE is '%s', need a port (7000) or LOW-HIGH (7000-7010) "
                "between 1 and 65535",
                text);
    *out = range;
    return MOTET_OK;
}

static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    motet_sock_note(fd);
    return fd;
}

/* Close and keep the errno that says why. */
static int give_up(int fd)
{
    int saved = errno;

    motet_sock_close(&fd);
    errno = saved;
    return -1;
}

int motet_sock_listen_unix(const motet_unix_name *name, mode_t mode)
{
    int fd = new_socket(AF_UNIX);

    if (fd < 0)
        return -1;
    /* Linux gives the path the socket's own mode: no window, and no umask(), which
     * would touch the files that other threads of the program create meanwhile. */
    if (name->addr.sun_path[0] != '\0' && fchmod(fd, mode) != 0)
        return give_up(fd);
    if (bind(fd, (const struct sockaddr *)&name->addr, name->bytes) != 0 ||
            listen(fd, SOMAXCONN) != 0)
        return give_up(fd);
    return fd;
}

static int listen_tcp_at(const motet_inet *addr)
{
    struct sockaddr_storage at;
    socklen_t bytes = inet_to_sockaddr(addr, &at);
    int one = 1, fd = new_socket(addr->family);

    if (fd < 0)
        return -1;
    /* A port is free again at once when a rendezvous ends, whatever TIME_WAIT says. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (addr->family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&at, bytes) != 0 ||
            listen(fd, SOMAXCONN) != 0)
        return give_up(fd);
    return fd;
}

int motet_sock_listen_tcp(motet_inet *addr, motet_port_range ports)
{
    motet_inet at = *addr;
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    int fd = -1;

    for (unsigned port = ports.low; port <= ports.high; port++) {
        at.port = (uint16_t)port;
        fd = listen_tcp_at(&at);
        if (fd >= 0 || (errno != EADDRINUSE && errno != EACCES))
            break;
    }
    if (fd < 0)
        return -1;
    if (getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0 ||
            !motet_inet_from_sockaddr((const struct sockaddr *)&bound, &at))
        return give_up(fd);
    *addr = at;
    return fd;
}

int motet_sock_connect_unix(const motet_unix_name *name)
{
    int fd = new_socket(AF_UNIX);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&name->addr, name->bytes) != 0)
        return give_up(fd);
    return fd;
}

int motet_sock_connect_tcp(const motet_inet *addr)
{
    struct sockaddr_storage to;
    socklen_t bytes = inet_to_sockaddr(addr, &to);
    int one = 1, fd = new_socket(addr->family);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (const struct sockaddr *)&to, bytes) != 0 && errno != EINPROGRESS)
        return give_up(fd);
    return fd;
}

int motet_sock_error(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    return error;
}

bool motet_sock_peer(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred cred;
    socklen_t bytes = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return false;
    *pid = cred.pid;
    *uid = cred.uid;
    return true;
}

bool motet_sock_uid_fits(uid_t uid)
{
    uid_t ours = geteuid();

    return uid == ours || uid == 0 || ours == 0;
}

ssize_t motet_sock_send(int fd, const void *bytes, size_t nbytes, const int *fds,
        int nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * MOTET_SOCK_FDS_MAX)];
    } control;
    struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = nbytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (nfds > 0) {
        size_t fd_bytes = sizeof(int) * (size_t)nfds;
        struct cmsghdr *head;

        memset(&control, 0, sizeof(control));
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fd_bytes);
        head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(head), fds, fd_bytes);
    }
    return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void take_fds(const struct cmsghdr *head, motet_fd_queue *queue)
{
    size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    for (size_t i = 0; i < n; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        motet_sock_note(fd);
        if (queue->n < queue->max) {
            queue->fd[queue->n++] = fd;
        } else {
            queue->lost = true;
            motet_sock_close(&fd);
        }
    }
}

ssize_t motet_sock_recv(int fd, void *buf, size_t bytes, motet_fd_queue *queue)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 253)]; /* the most that one can carry */
    } control;
    struct iovec iov = { .iov_base = buf, .iov_len = bytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t got;

    msg.msg_control = control.bytes;
    msg.msg_controllen = sizeof(control.bytes);
    got = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return got;
    if ((msg.msg_flags & MSG_CTRUNC) != 0)
        queue->lost = true;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&msg); head != NULL;
            head = CMSG_NXTHDR(&msg, head))
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
            take_fds(head, queue);
    return got;
}
