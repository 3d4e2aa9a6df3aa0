/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's way to the root service: see reach.h. */
#include "bootstrap/reach.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How soon a cancelled wait ends. */
#define CANCEL_LOOK_NS (10 * MOTET_NS_PER_MS)
/* One TCP connect: longer than two lost SYNs take. */
#define TCP_CONNECT_NS (4 * MOTET_NS_PER_S)
#define SWEEP_TRIES    10
#define SWEEP_PAUSE_NS (5 * MOTET_NS_PER_MS)

static bool cancelled(const motet_patience *patience)
{
    return patience->cancel != NULL &&
            atomic_load_explicit(patience->cancel, memory_order_acquire) != 0;
}

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

motet_wait_end motet_wait_fd(int fd, short events, const motet_patience *patience,
        uint64_t most_ns)
{
    uint64_t now_ns = motet_now_ns();
    uint64_t until_ns = sooner(patience->until_ns, most_ns == 0 ? 0 : now_ns + most_ns);

    for (;; now_ns = motet_now_ns()) {
        struct pollfd set = { .fd = fd, .events = events };
        uint64_t slice_ns = patience->cancel != NULL ? CANCEL_LOOK_NS : MOTET_NS_PER_S;
        struct timespec t;

        if (cancelled(patience))
            return MOTET_WAIT_CANCELLED;
        if (until_ns != 0 && now_ns >= until_ns)
            return MOTET_WAIT_EXPIRED;
        if (until_ns != 0 && until_ns - now_ns < slice_ns)
            slice_ns = until_ns - now_ns;
        t.tv_sec = (time_t)(slice_ns / MOTET_NS_PER_S);
        t.tv_nsec = (long)(slice_ns % MOTET_NS_PER_S);
        if (ppoll(&set, 1, &t, NULL) > 0)
            return MOTET_WAIT_READY;
    }
}

static void MOTET_PRINTF(2, 3) note(motet_reach *reach, const char *fmt, ...)
{
    size_t used = strlen(reach->tried);
    va_list args;

    if (used > 0 && used + 2 < sizeof(reach->tried)) {
        memcpy(reach->tried + used, "; ", 3);
        used += 2;
    }
    va_start(args, fmt);
    vsnprintf(reach->tried + used, sizeof(reach->tried) - used, fmt, args);
    va_end(args);
}

static motet_reach_end try_unix(const motet_unix_name *name, motet_reach *out)
{
    bool abstract = name->addr.sun_path[0] == '\0';
    const char *text = name->addr.sun_path + (abstract ? 1 : 0);
    char error[128];
    pid_t pid;
    uid_t uid;

    out->fd = motet_sock_connect_unix(name);
    if (out->fd < 0) {
        int saved = errno;

        note(out, "Unix socket %s%s: %s", abstract ? "@" : "", text,
                strerror_r(saved, error, sizeof(error)));
        if (saved == EMFILE || saved == ENFILE)
            return MOTET_REACH_NO_FDS;
        return saved == EAGAIN || saved == EINTR ? MOTET_REACH_LATER
                                                 : MOTET_REACH_NOBODY;
    }
    if (!motet_sock_peer(out->fd, &pid, &uid) || !motet_sock_uid_fits(uid)) {
        note(out, "Unix socket %s%s: belongs to user %u, and this rank to user %u",
                abstract ? "@" : "", text, (unsigned)uid, (unsigned)geteuid());
        motet_sock_close(&out->fd);
        return MOTET_REACH_NOBODY;
    }
    out->tcp = false;
    return MOTET_REACH_CONNECTED;
}

static motet_reach_end try_tcp(const motet_inet *addr, const motet_patience *patience,
        motet_reach *out)
{
    char text[MOTET_INET_TEXT_MAX], error_text[128];
    motet_wait_end waited = MOTET_WAIT_READY;
    int error = 0;

    motet_inet_format(addr, text, sizeof(text));
    out->fd = motet_sock_connect_tcp(addr);
    if (out->fd < 0)
        error = errno;
    else
        waited = motet_wait_fd(out->fd, POLLOUT, patience, TCP_CONNECT_NS);
    if (waited == MOTET_WAIT_READY && error == 0)
        error = motet_sock_error(out->fd);
    if (waited == MOTET_WAIT_READY && error == 0) {
        out->tcp = true;
        return MOTET_REACH_CONNECTED;
    }
    motet_sock_close(&out->fd);
    if (waited == MOTET_WAIT_CANCELLED)
        return MOTET_REACH_CANCELLED;
    if (waited == MOTET_WAIT_EXPIRED)
        error = ETIMEDOUT;
    note(out, "%s: %s", text, strerror_r(error, error_text, sizeof(error_text)));
    return error == ECONNREFUSED ? MOTET_REACH_NOBODY : MOTET_REACH_LATER;
}

/* The folders that may hold the path socket; a fixed id does not say which. */
static int path_names(const motet_id_fields *id, const motet_params *params,
        motet_unix_name out[2])
{
    int n = 0;

    if (!id->fixed)
        return motet_id_path_name(id, params, id->folder, &out[0]) ? 1 : 0;
    n += motet_id_path_name(id, params, MOTET_FOLDER_XDG, &out[n]) ? 1 : 0;
    n += motet_id_path_name(id, params, MOTET_FOLDER_TMP, &out[n]) ? 1 : 0;
    return n;
}

/* A path that refuses was left by a process that was killed. Not so for a fixed id:
 * its service may be between bind and listen. */
static bool stale(const motet_id_fields *id, int error)
{
    return !id->fixed && error == ECONNREFUSED;
}

static motet_reach_end try_all_unix(const motet_id_fields *id,
        const motet_params *params, motet_reach *out)
{
    motet_unix_name name, paths[2];
    motet_reach_end end;
    int npaths = path_names(id, params, paths);

    motet_id_abstract_name(id, &name);
    end = try_unix(&name, out);
    /* a full queue or table is no reason to try another way in */
    for (int i = 0; i < npaths && end == MOTET_REACH_NOBODY; i++)
        end = try_unix(&paths[i], out);
    return end;
}

motet_reach_end motet_reach_once(const motet_id_fields *id, const motet_params *params,
        const motet_patience *patience, motet_reach *out)
{
    motet_reach_end end, worst = MOTET_REACH_NOBODY;

    *out = (motet_reach){ .fd = -1 };
    end = try_all_unix(id, params, out);
    if (end != MOTET_REACH_NOBODY)
        return end;
    for (int i = 0; i < id->naddrs; i++) {
        motet_reach again = { .fd = -1 };

        end = try_tcp(&id->addr[i], patience, out);
        if (end == MOTET_REACH_CANCELLED)
            return end;
        if (end == MOTET_REACH_LATER)
            worst = end;
        if (end != MOTET_REACH_CONNECTED)
            continue;
        /* The service opens its Unix sockets before its port: it may have started
         * between our tries, and over TCP it would take us for a rank of elsewhere. */
        if (try_all_unix(id, params, &again) == MOTET_REACH_CONNECTED) {
            motet_sock_close(&out->fd);
            out->fd = again.fd;
            out->tcp = false;
        }
        return end;
    }
    return worst;
}

void motet_reach_sweep(const motet_id_fields *id, const motet_params *params)
{
    motet_unix_name paths[2];
    int npaths = path_names(id, params, paths);
    const motet_patience patience = { 0 };

    for (int i = 0; i < npaths; i++) {
        int fd = motet_sock_connect_unix(&paths[i]);

        /* a process that is being killed may have its listener for a moment still */
        for (int tries = 0; fd >= 0 && tries < SWEEP_TRIES; tries++) {
            motet_sock_close(&fd);
            (void)motet_wait_fd(-1, 0, &patience, SWEEP_PAUSE_NS); /* a plain sleep */
            fd = motet_sock_connect_unix(&paths[i]);
        }
        if (fd < 0 && stale(id, errno))
            (void)unlink(paths[i].addr.sun_path); /* others may have done it already */
        motet_sock_close(&fd);
    }
}
