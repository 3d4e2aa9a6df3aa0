/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces of this machine and the choice among them: see iface.h. */
#include "bootstrap/iface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static bool usable(const struct ifaddrs *entry, motet_inet *out)
{
    if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0 ||
            (entry->ifa_flags & IFF_RUNNING) == 0)
        return false;
    if (!motet_inet_from_sockaddr(entry->ifa_addr, out))
        return false;
    if (out->family == AF_INET6) {
        struct in6_addr ip;

        memcpy(&ip, out->ip, sizeof(ip));
        /* a link-local address means nothing to a machine that lacks its scope */
        if (IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip))
            return false;
    }
    out->port = 0;
    return true;
}

int motet_iface_list(motet_iface *out, int max)
{
    struct ifaddrs *all = NULL;
    int n = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *entry = all; entry != NULL && n < max;
            entry = entry->ifa_next)
        if (usable(entry, &out[n].addr)) {
            snprintf(out[n].name, sizeof(out[n].name), "%s", entry->ifa_name);
            n++;
        }
    freeifaddrs(all);
    return n;
}

/* Does the comma list @p names hold @p name, as a prefix or exactly? */
static bool listed(const char *names, bool exact, const char *name)
{
    size_t name_len = strlen(name);

    while (*names != '\0') {
        size_t len = strcspn(names, ",");

        if (len > 0 && strncmp(names, name, len) == 0 && (!exact || len == name_len))
            return true;
        names += len;
        if (*names == ',')
            names++;
    }
    return false;
}

static bool allowed(const char *names, const char *name)
{
    bool except = names[0] == '^';
    bool exact;

    if (except)
        names++;
    exact = names[0] == '=';
    if (exact)
        names++;
    return listed(names, exact, name) != except;
}

/* First address of @p family (0: either) on the first interface that @p names allows. */
static const motet_iface *first(const motet_iface *list, int n, const char *names,
        int family)
{
    for (int i = 0; i < n; i++)
        if ((family == 0 || list[i].addr.family == family) &&
                allowed(names, list[i].name))
            return &list[i];
    return NULL;
}

int motet_iface_choose(const motet_iface *list, int n, const char *names, int family,
        motet_inet out[2])
{
    static const char *const order[] = { "ib", "^docker,lo,virbr", "docker", "lo",
        "virbr" };
    const motet_iface *chosen = NULL;
    int found = 0;

    if (names[0] != '\0') {
        chosen = first(list, n, names, family);
    } else {
        for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && chosen == NULL; i++)
            chosen = first(list, n, order[i], family);
    }
    if (chosen == NULL)
        return 0;
    for (int i = 0; i < n && found < 2; i++) {
        if (strcmp(list[i].name, chosen->name) != 0 ||
                (family != 0 && list[i].addr.family != family) ||
                (found == 1 && list[i].addr.family == out[0].family))
            continue;
        out[found++] = list[i].addr;
    }
    return found;
}
