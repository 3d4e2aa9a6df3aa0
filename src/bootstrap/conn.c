/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of the root service: see conn.h. */
#include "bootstrap/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

motet_conn *motet_conn_new(int fd, bool tcp, uint32_t pid, uint64_t now_ns)
{
    motet_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        motet_sock_close(&fd);
        return NULL;
    }
    conn->fd = fd;
    conn->tcp = tcp;
    conn->pid = pid;
    conn->since_ns = now_ns;
    conn->queue = (motet_fd_queue){ .fd = conn->fds, .max = MOTET_JOIN_FDS };
    return conn;
}

void motet_conn_free(motet_conn *conn)
{
    if (conn == NULL)
        return;
    for (int i = 0; i < conn->queue.n; i++)
        motet_sock_close(&conn->fds[i]);
    motet_sock_close(&conn->fd);
    free(conn);
}

/* Tell a rank of another id why it is sent away, under its own secret: ours is not
 * for strangers. One try; whether it arrives does not matter to us. */
static void send_refusal(motet_conn *conn, const uint8_t secret[MOTET_SECRET_BYTES])
{
    uint8_t out[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_FAIL_MAX];
    size_t n = motet_wire_put_fail(out, sizeof(out), MOTET_ERR_USAGE,
            "the rendezvous at this address belongs to another id: all ranks need the "
            "same id, or the same text in NCCL_COMM_ID",
            secret);

    (void)motet_sock_send(conn->fd, out, n, NULL, 0); /* a stranger: best effort */
}

/* All bytes of the message are there. */
static motet_conn_event take_hello(motet_conn *conn, const motet_wire_header *head,
        const char **why)
{
    const uint8_t *payload = conn->in + MOTET_WIRE_HEADER_BYTES;
    bool good;

    conn->version = head->version;
    if (head->version == MOTET_WIRE_VERSION)
        good = motet_wire_get_hello(payload, head->bytes, &conn->hello);
    else
        good = motet_wire_get_hello_ranks(payload, head->bytes, &conn->hello);
    if (!good) {
        *why = "its hello is malformed";
        return MOTET_CONN_STRANGER;
    }
    conn->member = true;
    return MOTET_CONN_HELLO;
}

static motet_conn_event examine(motet_conn *conn,
        const uint8_t secret[MOTET_SECRET_BYTES], const char **why)
{
    motet_wire_header head;

    if (conn->have < MOTET_WIRE_HEADER_BYTES) {
        uint8_t magic[4] = { MOTET_WIRE_MAGIC & 0xff, (MOTET_WIRE_MAGIC >> 8) & 0xff,
            (MOTET_WIRE_MAGIC >> 16) & 0xff, MOTET_WIRE_MAGIC >> 24 };
        size_t n = conn->have < sizeof(magic) ? conn->have : sizeof(magic);

        if (memcmp(conn->in, magic, n) == 0)
            return MOTET_CONN_WAITS;
        *why = "it does not speak motet";
        return MOTET_CONN_STRANGER;
    }
    if (!motet_wire_get_header(conn->in, &head) || head.type != MOTET_WIRE_HELLO) {
        *why = "it does not speak motet";
        return MOTET_CONN_STRANGER;
    }
    if (memcmp(head.secret, secret, MOTET_SECRET_BYTES) != 0) {
        send_refusal(conn, head.secret);
        *why = "it has the secret of another id";
        return MOTET_CONN_STRANGER;
    }
    if (conn->have < MOTET_WIRE_HEADER_BYTES + head.bytes)
        return MOTET_CONN_WAITS;
    if (conn->have > MOTET_WIRE_HEADER_BYTES + head.bytes) {
        *why = "it says more than a hello";
        return MOTET_CONN_STRANGER;
    }
    return take_hello(conn, &head, why);
}

/* A member has nothing more to say: anything but silence means that it left. */
static motet_conn_event read_member(motet_conn *conn)
{
    uint8_t byte;
    int fds[1];
    motet_fd_queue none = { .fd = fds, .max = 0 };
    ssize_t n = motet_sock_recv(conn->fd, &byte, 1, &none);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return MOTET_CONN_WAITS;
    return MOTET_CONN_LEFT;
}

motet_conn_event motet_conn_read(motet_conn *conn,
        const uint8_t secret[MOTET_SECRET_BYTES], const char **why)
{
    if (conn->member)
        return read_member(conn);
    while (conn->have < sizeof(conn->in)) {
        ssize_t n = motet_sock_recv(conn->fd, conn->in + conn->have,
                sizeof(conn->in) - conn->have, &conn->queue);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            *why = "it closed before a whole hello";
            return MOTET_CONN_STRANGER;
        }
        conn->have += (size_t)n;
        motet_conn_event event = examine(conn, secret, why);

        if (event != MOTET_CONN_WAITS)
            return event;
    }
    return MOTET_CONN_WAITS;
}

/* Where the next send ends, and which descriptors ride with its first byte. */
static size_t next_stretch(const motet_answer *answer, size_t at, const int **fds,
        int *nfds)
{
    size_t end = answer->nbytes;

    *fds = NULL;
    *nfds = 0;
    for (int p = answer->nparts - 1; p >= 0; p--) {
        if (answer->part[p].at > at)
            end = answer->part[p].at;
        if (answer->part[p].at == at) {
            *fds = answer->part[p].fds;
            *nfds = answer->part[p].nfds;
        }
    }
    return end;
}

motet_conn_event motet_conn_write(motet_conn *conn, const motet_answer *answer,
        bool *full_out)
{
    *full_out = false;
    while (conn->sent < answer->nbytes) {
        const int *fds;
        int nfds;
        size_t end = next_stretch(answer, conn->sent, &fds, &nfds);
        ssize_t n = motet_sock_send(conn->fd, answer->bytes + conn->sent,
                end - conn->sent, fds, nfds);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)) {
            *full_out = true;
            return MOTET_CONN_WAITS;
        }
        if (n < 0 && errno == EAGAIN)
            return MOTET_CONN_WAITS;
        if (n < 0)
            return MOTET_CONN_LEFT;
        conn->sent += (size_t)n;
    }
    return MOTET_CONN_DONE;
}

bool motet_conn_welcome(motet_conn *conn, const motet_welcome *welcome,
        const uint8_t secret[MOTET_SECRET_BYTES])
{
    uint8_t out[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_WELCOME_MAX];
    size_t n = motet_wire_put_welcome(out, sizeof(out), welcome, secret);

    /* tiny, and the first things in an empty socket buffer: it goes whole or not at all */
    return n > 0 && motet_sock_send(conn->fd, out, n, NULL, 0) == (ssize_t)n;
}

motet_member motet_conn_member(const motet_conn *conn)
{
    return (motet_member){ .hello = &conn->hello,
        .pid = conn->pid != 0 ? conn->pid : conn->hello.pid,
        .version = conn->version,
        .tcp = conn->tcp };
}
