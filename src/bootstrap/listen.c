/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a root service listens: an abstract Unix socket, a path socket, TCP. One
 * Unix socket is enough; the rest serves ranks that cannot see it, and ranks of
 * other nodes, which then at least hear why they cannot join.
 */
#include "bootstrap/listen.h"

#include "base/log.h"
#include "bootstrap/iface.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int motet_root_family(const motet_params *params)
{
    static const int families[] = { 0, AF_INET, AF_INET6 };

    return families[motet_param(params, MOTET_P_SOCKET_FAMILY)];
}

static void add_listener(motet_root *root, int fd, bool tcp)
{
    root->listener[root->nlisteners].fd = fd;
    root->listener[root->nlisteners].tcp = tcp;
    root->nlisteners++;
}

static const char *errno_text(char buf[128])
{
    return strerror_r(errno, buf, 128);
}

static motet_result listen_abstract(motet_root *root)
{
    motet_unix_name name;
    char error[128];
    int fd;

    motet_id_abstract_name(&root->id, &name);
    fd = motet_sock_listen_unix(&name, 0);
    if (fd >= 0)
        add_listener(root, fd, false);
    else if (errno == EADDRINUSE)
        return motet_fail(MOTET_ERR_SYSTEM,
                "listen on Unix socket '@%s': another process holds a rendezvous with "
                "the same NCCL_COMM_ID",
                name.addr.sun_path + 1);
    else
        motet_info(MOTET_SUB_BOOTSTRAP, "no abstract Unix socket '@%s': %s",
                name.addr.sun_path + 1, errno_text(error));
    return MOTET_OK;
}

/* A path that nobody listens at was left by a process that was killed: replace it. */
static int listen_path(const motet_unix_name *name)
{
    int fd = motet_sock_listen_unix(name, 0600), probe;

    if (fd >= 0 || errno != EADDRINUSE)
        return fd;
    probe = motet_sock_connect_unix(name);
    if (probe >= 0) {
        motet_sock_close(&probe);
        errno = EADDRINUSE;
        return -1;
    }
    if (errno != ECONNREFUSED || unlink(name->addr.sun_path) != 0)
        return -1;
    return motet_sock_listen_unix(name, 0600);
}

static void listen_first_path(const motet_params *params, motet_root *root)
{
    const char *xdg = motet_param_text(params, MOTET_P_XDG_RUNTIME_DIR);
    motet_id_folder order[2] = { MOTET_FOLDER_XDG, MOTET_FOLDER_TMP };
    char run_user[32];

    snprintf(run_user, sizeof(run_user), "/run/user/%u", (unsigned)root->facts.uid);
    if (strcmp(xdg, run_user) == 0)
        order[0] = MOTET_FOLDER_RUN_USER;
    for (int i = 0; i < 2; i++) {
        motet_unix_name name;
        char error[128];
        int fd;

        if (!motet_id_path_name(&root->id, params, order[i], &name))
            continue;
        fd = listen_path(&name);
        if (fd < 0) {
            motet_info(MOTET_SUB_BOOTSTRAP, "no Unix socket '%s': %s",
                    name.addr.sun_path, errno_text(error));
            continue;
        }
        add_listener(root, fd, false);
        memcpy(root->path, name.addr.sun_path, sizeof(root->path));
        atomic_store_explicit(&root->has_path, true, memory_order_relaxed);
        if (!root->id.fixed)
            root->id.folder = order[i];
        return;
    }
}

/* The address that NCCL_COMM_ID names. */
static motet_result listen_fixed(motet_root *root)
{
    motet_iface any;
    char text[MOTET_INET_TEXT_MAX];
    motet_inet *addr = &root->id.addr[0];
    int fd = motet_sock_listen_tcp(addr, (motet_port_range){ addr->port, addr->port });
    int error = errno;

    if (fd >= 0) {
        add_listener(root, fd, true);
        return MOTET_OK;
    }
    motet_inet_format(addr, text, sizeof(text));
    if (error == EADDRNOTAVAIL && motet_iface_list(&any, 1) == 0)
        return MOTET_OK; /* no interface at all: Unix sockets do */
    errno = error;
    return motet_fail_errno(MOTET_ERR_SYSTEM, "listen on NCCL_COMM_ID's address %s",
            text);
}

static motet_result listen_at(motet_root *root, motet_inet *addr,
        motet_port_range ports)
{
    char text[MOTET_INET_TEXT_MAX], error[128];
    int fd = motet_sock_listen_tcp(addr, ports);

    if (fd < 0 && ports.low != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "no free TCP port in MOTET_PORT_RANGE %u-%u", (unsigned)ports.low,
                (unsigned)ports.high);
    motet_inet_format(addr, text, sizeof(text));
    if (fd < 0) {
        motet_info(MOTET_SUB_BOOTSTRAP, "cannot listen on %s: %s", text,
                errno_text(error));
        return MOTET_OK;
    }
    motet_info(MOTET_SUB_BOOTSTRAP, "rendezvous listens on %s", text);
    add_listener(root, fd, true);
    root->id.addr[root->id.naddrs++] = *addr;
    return MOTET_OK;
}

/* One port of each family on the chosen interface. None is fine: Unix sockets do. */
static motet_result listen_chosen(const motet_params *params, motet_root *root)
{
    const char *names = motet_param_text(params, MOTET_P_SOCKET_IFNAME);
    motet_iface list[MOTET_IFACES_MAX];
    motet_inet addrs[MOTET_ID_ADDRS];
    motet_port_range ports;
    int n = motet_iface_list(list, MOTET_IFACES_MAX);

    MOTET_TRY(motet_port_range_parse(motet_param_text(params, MOTET_P_PORT_RANGE),
                      &ports),
            "open the rendezvous");
    n = motet_iface_choose(list, n, names, motet_root_family(params), addrs);
    if (n == 0)
        motet_info(MOTET_SUB_BOOTSTRAP,
                "no network interface fits (NCCL_SOCKET_IFNAME is '%s'): Unix sockets "
                "only",
                names);
    for (int i = 0; i < n; i++)
        MOTET_TRY(listen_at(root, &addrs[i], ports), "open the rendezvous");
    return MOTET_OK;
}

motet_result motet_root_listen(const motet_params *params, motet_root *root)
{
    MOTET_TRY(listen_abstract(root), "open the rendezvous");
    listen_first_path(params, root);
    if (root->nlisteners == 0)
        return motet_fail(MOTET_ERR_SYSTEM,
                "open the rendezvous: no Unix socket can be bound, neither an abstract "
                "one nor one in $XDG_RUNTIME_DIR or /tmp");
    return root->id.fixed ? listen_fixed(root) : listen_chosen(params, root);
}
