/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces with addresses, speed and kind; routes; RDMA devices. */
#include "gather.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NET "/sys/class/net"

static unsigned prefix_of(const struct sockaddr *mask)
{
    const unsigned char *bytes;
    unsigned bits = 0, count;

    if (mask == NULL)
        return 0;
    if (mask->sa_family == AF_INET) {
        bytes = (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)
                        ->sin_addr;
        count = 4;
    } else {
        bytes = ((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr.s6_addr;
        count = 16;
    }
    for (unsigned i = 0; i < count * 8; i++)
        bits += (unsigned)bytes[i / 8] >> (7 - i % 8) & 1u;
    return bits;
}

static void write_address(struct dr_gather *g, const struct ifaddrs *a)
{
    char text[INET6_ADDRSTRLEN];
    const struct sockaddr *sa = a->ifa_addr;
    const void *bytes = sa->sa_family == AF_INET
            ? (const void *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr
            : (const void *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

    if (inet_ntop(sa->sa_family, bytes, text, sizeof(text)) != NULL)
        fprintf(g->out, " %s/%u", text, prefix_of(a->ifa_netmask));
}

static void write_interfaces(struct dr_gather *g)
{
    struct ifaddrs *all = NULL;
    bool done;

    if (getifaddrs(&all) != 0)
        return;
    dr_prompt(g, "ip -br addr");
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        const char *state;

        done = false; /* an interface stands in the list once for each address */
        for (const struct ifaddrs *b = all; b != a && !done; b = b->ifa_next)
            done = strcmp(a->ifa_name, b->ifa_name) == 0;
        if (done)
            continue;
        state = dr_word_of(g, dr_printf(g->d, NET "/%s/operstate", a->ifa_name));
        fprintf(g->out, "%-16s ", a->ifa_name);
        for (const char *c = state; *c != 0; c++)
            fputc(*c >= 'a' && *c <= 'z' ? *c - 32 : *c, g->out);
        if (state[0] == 0)
            fputs(a->ifa_flags & IFF_UP ? "UNKNOWN" : "DOWN", g->out);
        for (const struct ifaddrs *b = a; b != NULL; b = b->ifa_next)
            if (strcmp(a->ifa_name, b->ifa_name) == 0 && b->ifa_addr != NULL &&
                    (b->ifa_addr->sa_family == AF_INET ||
                            b->ifa_addr->sa_family == AF_INET6))
                write_address(g, b);
        fputc('\n', g->out);
    }
    freeifaddrs(all);
}

/* What an interface is: its device, or what made it. */
static void write_kinds(struct dr_gather *g)
{
    static const char *const names[] = { "speed", "operstate", "mtu", "type",
        "uevent" };
    const struct dr_names nets = dr_names_of(g, NET);

    if (nets.num > 0)
        dr_prompt(g, "grep . " NET "/*/*");
    for (uint32_t i = 0; i < nets.num; i++) {
        const char *net = dr_printf(g->d, NET "/%s", nets.name[i]);

        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
            (void)dr_write_file(g, dr_printf(g->d, "%s/%s", net, names[k]));
        (void)dr_write_link(g, dr_printf(g->d, "%s/device", net),
                dr_printf(g->d, "%s/device", net));
        (void)dr_write_link(g, dr_printf(g->d, "%s/device/driver", net),
                dr_printf(g->d, "%s/device/driver", net));
        (void)dr_write_link(g, dr_printf(g->d, "%s/master", net),
                dr_printf(g->d, "%s/master", net));
    }
}

/* "default via 192.0.2.1 dev eth0" of /proc/net/route, where addresses are in hexadecimal. */
static void write_default_route(struct dr_gather *g)
{
    char *text = dr_slurp(g, "/proc/net/route", DR_FILE_MAX, NULL), *save = NULL;

    if (text == NULL)
        return;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        struct dr_span part[3];
        uint64_t gateway = 0;
        struct in_addr address;
        char shown[INET_ADDRSTRLEN];

        if (!dr_scan(line, "^%w %x %x ", part) || !dr_span_is(part[1], "00000000") ||
                !dr_span_hex(part[2], &gateway))
            continue;
        address.s_addr = (in_addr_t)gateway;
        dr_prompt(g, "ip route show default");
        fprintf(g->out, "default via %s dev %.*s\n",
                inet_ntop(AF_INET, &address, shown, sizeof(shown)), (int)part[0].length,
                part[0].at);
    }
}

static void write_rdma(struct dr_gather *g)
{
    static const char base[] = "/sys/class/infiniband";
    static const char *const names[] = { "state", "phys_state", "link_layer", "rate" };
    const struct dr_names devices = dr_names_of(g, base);

    if (devices.num > 0)
        dr_prompt(g, "grep . %s/*/ports/*/*", base);
    for (uint32_t i = 0; i < devices.num; i++) {
        const char *device = dr_printf(g->d, "%s/%s", base, devices.name[i]);
        const struct dr_names ports =
                dr_names_of(g, dr_printf(g->d, "%s/ports", device));

        (void)dr_write_link(g, dr_printf(g->d, "%s/device", device),
                dr_printf(g->d, "%s/device", device));
        for (uint32_t p = 0; p < ports.num; p++)
            for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
                (void)dr_write_file(g,
                        dr_printf(g->d, "%s/ports/%s/%s", device, ports.name[p],
                                names[k]));
    }
    if (devices.num > 0)
        (void)dr_write_file(g, "/sys/module/nvidia_peermem/refcnt");
}

void dr_gather_network(struct dr_gather *g)
{
    if (dr_gather_live(g))
        write_interfaces(g);
    write_kinds(g);
    write_default_route(g);
    write_rdma(g);
}
