/* SPDX-License-Identifier: Apache-2.0 */
/* See ask_host.h. The order matters: an entry of the neighbour table that was there before
 * anything was sent proves nothing. */
#include "ask_host.h"

#include "deadline.h"
#include "gather.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ADDRESSES_MAX 4
#define RESOLVE_MS    10000
#define PINGS         3
#define PING_MS       1000
#define CONNECT_MS    5000
#define SSH_PORT      22

struct address {
    struct sockaddr_storage sa;
    char text[INET6_ADDRSTRLEN];
};

static bool wait_for(int fd, short what, int ms)
{
    struct pollfd p = { .fd = fd, .events = what };

    return poll(&p, 1, ms) > 0;
}

/* ---- names ---- */

/* In a child: a resolver may wait for minutes. */
static void write_addresses(FILE *out, const void *about)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
    struct addrinfo *all = NULL;
    const int rc = getaddrinfo(about, NULL, &hints, &all);
    char text[INET6_ADDRSTRLEN];

    if (rc != 0)
        fprintf(out, "!%s\n", gai_strerror(rc));
    for (const struct addrinfo *a = rc == 0 ? all : NULL; a != NULL; a = a->ai_next)
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text), NULL, 0,
                    NI_NUMERICHOST) == 0)
            fprintf(out, "%s\n", text);
}

static bool to_address(const char *text, struct address *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&out->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&out->sa;
    const char *zone = strchr(text, '%');

    memset(out, 0, sizeof(*out));
    snprintf(out->text, sizeof(out->text), "%.*s", (int)strcspn(text, "%"), text);
    if (inet_pton(AF_INET, out->text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        return true;
    }
    if (inet_pton(AF_INET6, out->text, &v6->sin6_addr) != 1)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_scope_id = zone != NULL ? if_nametoindex(zone + 1) : 0;
    return true;
}

static int resolve(struct doctor *d, const char *name,
        struct address out[ADDRESSES_MAX])
{
    char *save = NULL, *text;
    int count = 0;
    bool in_time;

    text = dr_ask_in_child(d, RESOLVE_MS, write_addresses, name, &in_time);
    if (!in_time)
        doctor_unread(d, name, "its name was not resolved within %d s",
                RESOLVE_MS / 1000);
    for (char *line = strtok_r(text, "\n", &save);
            line != NULL && count < ADDRESSES_MAX; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '!')
            doctor_unread(d, name, "%s", line + 1);
        else if (to_address(line, &out[count]) &&
                (count == 0 || strcmp(out[count].text, out[count - 1].text) != 0))
            count++;
    }
    return count;
}

/* ---- ping ---- */

static unsigned short checksum(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    unsigned sum = 0;

    for (size_t i = 0; i + 1 < bytes; i += 2)
        sum += (unsigned)at[i] << 8 | at[i + 1];
    sum = (sum >> 16) + (sum & 0xffff);
    sum += sum >> 16;
    return htons((unsigned short)~sum);
}

static int ping_socket(bool *raw)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);

    *raw = fd < 0;
    if (fd < 0)
        fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    return fd;
}

/* One echo; milliseconds until it came back, -1: it did not. */
static double echo(int fd, bool raw, const struct address *to, unsigned short sequence)
{
    struct icmphdr h = { .type = ICMP_ECHO };
    const int64_t begin = dr_now_ms(), end = begin + PING_MS;
    unsigned char buf[512];

    h.un.echo.id = htons((unsigned short)getpid());
    h.un.echo.sequence = htons(sequence);
    h.checksum = checksum(&h, sizeof(h));
    if (sendto(fd, &h, sizeof(h), 0, (const struct sockaddr *)(const void *)&to->sa,
                sizeof(struct sockaddr_in)) < 0)
        return -1;
    while (dr_now_ms() < end) {
        struct sockaddr_in from;
        socklen_t length = sizeof(from);
        struct icmphdr got;
        ssize_t bytes;
        size_t skip = 0;

        if (!wait_for(fd, POLLIN, (int)(end - dr_now_ms())))
            break;
        bytes = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)(void *)&from,
                &length);
        if (bytes < 0)
            return -1;
        skip = raw ? (size_t)(buf[0] & 15) * 4 : 0;
        if ((size_t)bytes < skip + sizeof(got))
            continue;
        memcpy(&got, buf + skip, sizeof(got));
        if (got.type == ICMP_ECHOREPLY && got.un.echo.sequence == h.un.echo.sequence &&
                from.sin_addr.s_addr ==
                        ((const struct sockaddr_in *)(const void *)&to->sa)
                                ->sin_addr.s_addr)
            return (double)(dr_now_ms() - begin);
    }
    return -1;
}

static void ping(struct dr_gather *g, const struct address *to)
{
    const int64_t begin = dr_now_ms();
    int came = 0, fd;
    bool raw;

    if (to->sa.ss_family != AF_INET)
        return;
    fd = ping_socket(&raw);
    if (fd < 0) {
        doctor_unread(g->d, dr_printf(g->d, "ping %s", to->text),
                "%s; it needs root or net.ipv4.ping_group_range", strerror(errno));
        return;
    }
    dr_prompt(g, "ping -c %d -W 1 %s", PINGS, to->text);
    fprintf(g->out, "PING %s (%s) 0(28) bytes of data.\n", to->text, to->text);
    for (int i = 1; i <= PINGS; i++) {
        const double ms = echo(fd, raw, to, (unsigned short)i);

        if (ms < 0)
            continue;
        came++;
        fprintf(g->out, "8 bytes from %s: icmp_seq=%d ttl=64 time=%.1f ms\n", to->text,
                i, ms);
    }
    close(fd);
    fprintf(g->out,
            "\n--- %s ping statistics ---\n"
            "%d packets transmitted, %d received, %d%% packet loss, time %lldms\n\n",
            to->text, PINGS, came, 100 * (PINGS - came) / PINGS,
            (long long)(dr_now_ms() - begin));
}

/* ---- ssh's port ---- */

static int try_connect(const struct address *to)
{
    struct sockaddr_storage sa = to->sa;
    const bool v4 = sa.ss_family == AF_INET;
    const int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int reason = 0;
    socklen_t length = sizeof(reason);

    if (fd < 0)
        return errno;
    if (v4)
        ((struct sockaddr_in *)(void *)&sa)->sin_port = htons(SSH_PORT);
    else
        ((struct sockaddr_in6 *)(void *)&sa)->sin6_port = htons(SSH_PORT);
    if (connect(fd, (const struct sockaddr *)(const void *)&sa,
                v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) != 0) {
        reason = errno;
        if (reason == EINPROGRESS) {
            if (!wait_for(fd, POLLOUT, CONNECT_MS))
                reason = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length) != 0)
                reason = errno;
        }
    }
    close(fd);
    return reason;
}

static void connect_to(struct dr_gather *g, const struct address *to)
{
    const int reason = try_connect(to);

    if (reason == 0) {
        dr_prompt(g, "nc -zv -w 5 %s %d", to->text, SSH_PORT);
        fprintf(g->out, "Connection to %s %d port [tcp/ssh] succeeded!\n", to->text,
                SSH_PORT);
        return;
    }
    if (reason == ECONNREFUSED) { /* nobody listens, but the machine says so */
        fprintf(g->out, "%s %d/tcp closed, answered at once\n", to->text, SSH_PORT);
        return;
    }
    dr_prompt(g, "ssh -o ConnectTimeout=%d %s", CONNECT_MS / 1000, to->text);
    fprintf(g->out, "ssh: connect to host %s port %d: %s\n", to->text, SSH_PORT,
            strerror(reason));
}

/* ---- neighbours ---- */

static const char *state_name(unsigned state)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = { { NUD_INCOMPLETE, "INCOMPLETE" }, { NUD_REACHABLE, "REACHABLE" },
        { NUD_STALE, "STALE" }, { NUD_DELAY, "DELAY" }, { NUD_PROBE, "PROBE" },
        { NUD_FAILED, "FAILED" }, { NUD_NOARP, "NOARP" },
        { NUD_PERMANENT, "PERMANENT" } };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (state & names[i].bit)
            return names[i].name;
    return "NONE";
}

/* Write the entry if it is the one of @p to. */
static bool write_neighbour(struct dr_gather *g, const struct address *to,
        struct nlmsghdr *n)
{
    const struct ndmsg *m = NLMSG_DATA(n);
    const bool v4 = to->sa.ss_family == AF_INET;
    const void *wanted = v4
            ? (const void *)&((const struct sockaddr_in *)(const void *)&to->sa)
                      ->sin_addr
            : (const void *)&((const struct sockaddr_in6 *)(const void *)&to->sa)
                      ->sin6_addr;
    const size_t bytes = v4 ? 4 : 16;
    const unsigned char *hardware = NULL;
    size_t left = n->nlmsg_len - NLMSG_LENGTH(sizeof(*m)), hardware_bytes = 0;
    char interface[IF_NAMESIZE] = "?";
    bool same = false;

    if (m->ndm_family != to->sa.ss_family)
        return false;
    for (struct rtattr *a = (struct rtattr *)(void *)((char *)NLMSG_DATA(n) +
                 NLMSG_ALIGN(sizeof(*m)));
            RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == NDA_DST && RTA_PAYLOAD(a) == bytes)
            same = memcmp(RTA_DATA(a), wanted, bytes) == 0;
        if (a->rta_type == NDA_LLADDR) {
            hardware = RTA_DATA(a);
            hardware_bytes = RTA_PAYLOAD(a);
        }
    }
    if (!same)
        return false;
    (void)if_indextoname((unsigned)m->ndm_ifindex, interface);
    fprintf(g->out, "%s dev %s", to->text, interface);
    for (size_t i = 0; i < hardware_bytes && i < 20; i++)
        fprintf(g->out, "%s%02x", i == 0 ? " lladdr " : ":", hardware[i]);
    fprintf(g->out, " %s\n", state_name(m->ndm_state));
    return true;
}

/* The kernel's table of neighbours, looked through for one address. */
static void write_neighbours(struct dr_gather *g, const struct address *to)
{
    struct {
        struct nlmsghdr n;
        struct ndmsg m;
    } request = { .n = { .nlmsg_len = sizeof(request),
                          .nlmsg_type = RTM_GETNEIGH,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
        .m = { .ndm_family = (unsigned char)to->sa.ss_family } };
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    _Alignas(struct nlmsghdr) char buf[32768];
    bool done = fd < 0 || send(fd, &request, sizeof(request), 0) < 0, some = false;

    dr_prompt(g, "ip neigh show %s", to->text);
    while (!done && wait_for(fd, POLLIN, 1000)) {
        const ssize_t got = recv(fd, buf, sizeof(buf), 0);
        size_t left = got > 0 ? (size_t)got : 0;

        done = got <= 0;
        for (struct nlmsghdr *n = (struct nlmsghdr *)(void *)buf; NLMSG_OK(n, left);
                n = NLMSG_NEXT(n, left)) {
            done = done || n->nlmsg_type == NLMSG_DONE || n->nlmsg_type == NLMSG_ERROR;
            if (n->nlmsg_type == RTM_NEWNEIGH)
                some = write_neighbour(g, to, n) || some;
        }
    }
    if (fd >= 0)
        close(fd);
    if (!some)
        doctor_unread(g->d, dr_printf(g->d, "neighbour entry of %s", to->text),
                "there is none: it is this machine, or behind a router");
}

void dr_ask_host(struct doctor *d, const char *name, struct dr_captures *out)
{
    struct dr_gather g = { .d = d,
        .captures = out,
        .root = "",
        .host = dr_host_name(d, "") };
    struct address addresses[ADDRESSES_MAX];
    const int count = resolve(d, name, addresses);

    out->host = g.host;
    if (count == 0)
        return; /* resolve() said why */
    dr_begin_capture(&g);
    dr_prompt(&g, "getent ahosts %s", name);
    for (int i = 0; i < count; i++)
        fprintf(g.out, "%s STREAM %s\n", addresses[i].text, name);
    for (int i = 0; i < count; i++) {
        ping(&g, &addresses[i]);
        connect_to(&g, &addresses[i]);
        write_neighbours(&g, &addresses[i]);
    }
    dr_end_capture(&g, "asked.txt");
    dr_begin_capture(&g);
    dr_gather_network(&g);
    dr_end_capture(&g, "network.txt");
}
