/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which network interface the rendezvous listens on. The choice is a pure function
 * of a list of interfaces, so that tests need none. The rules are NCCL's (api.md
 * 2.2), because people set the same variables for both.
 */
#ifndef MOTET_BOOTSTRAP_IFACE_H
#define MOTET_BOOTSTRAP_IFACE_H

#include "bootstrap/sock.h"

/** One address of one interface; an interface with several has several entries. */
typedef struct motet_iface {
    char name[16];
    motet_inet addr; /**< port 0 */
} motet_iface;

/** Most entries looked at. */
#define MOTET_IFACES_MAX 64

/** Usable addresses of this machine, in the kernel's order: interface up, no ::1, no link-local IPv6. */
int motet_iface_list(motet_iface *out, int max);

/**
 * Choose an interface.
 *
 * With @p names: the first one that it allows ("eth,ib" prefixes, "^docker" all but
 * these, "=eth0" exact, "^=eth0" all but exactly these). Without: the first of ib*,
 * else of all but docker*, lo and virbr*, else docker*, else lo, else virbr*.
 *
 * @param family AF_INET, AF_INET6, or 0 for both.
 * @param out    its first address of each family.
 * @return number of addresses, 0 to 2.
 */
int motet_iface_choose(const motet_iface *list, int n, const char *names, int family,
        motet_inet out[2]);

#endif
