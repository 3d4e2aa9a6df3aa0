/* SPDX-License-Identifier: Apache-2.0 */
/* NIC_SLOW_SELECTED: a wireless interface, or one ten times as slow as another that would do. */
#include "job.h"
#include "lines.h"

#include <stdlib.h>
#include <string.h>

static bool is_wireless(const struct doctor *d, const char *interface, uint32_t *line)
{
    for (uint32_t i = 0; i < d->job->num_speeds; i++)
        if (d->job->speeds[i].wireless &&
                strcmp(d->job->speeds[i].interface, interface) == 0) {
            *line = d->job->speeds[i].line;
            return true;
        }
    return dr_begins(interface, "wl") || dr_begins(interface, "wifi") ||
            dr_begins(interface, "ath");
}

static double speed_of(const struct doctor *d, const char *host, const char *interface,
        uint32_t *line)
{
    for (uint32_t i = 0; i < d->job->num_speeds; i++) {
        const struct dr_speed *s = &d->job->speeds[i];

        if (strcmp(s->interface, interface) == 0 && s->mbps > 0 &&
                (s->host[0] == 0 || host[0] == 0 || strcmp(s->host, host) == 0)) {
            *line = s->line;
            return s->mbps;
        }
    }
    return 0;
}

/* Whether a peer of the run is in the network of an interface's address. */
static bool reaches_peers(const struct doctor *d, const struct dr_address *a)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; a->prefix > 0 && i < job->num_addresses; i++)
        if (strcmp(job->addresses[i].address, a->address) != 0 &&
                strcmp(job->addresses[i].host, a->host) != 0 &&
                dr_same_network(job->addresses[i].address, a->address, a->prefix))
            return true;
    for (uint32_t i = 0; a->prefix > 0 && i < job->num_reaches; i++)
        if (strcmp(job->reaches[i].address, a->address) != 0 &&
                job->reaches[i].end == DR_REACH_OK &&
                dr_same_network(job->reaches[i].address, a->address, a->prefix))
            return true;
    return false;
}

static struct dr_finding *slow(struct doctor *d, const struct dr_use *u)
{
    struct dr_finding *f = dr_found(d, DR_NIC_SLOW_SELECTED, "%s", u->interface);

    dr_because(d, f, u->line);
    return f;
}

/* Ten times as fast, and it reaches the peers too. */
static void compare_speeds(struct doctor *d, const struct dr_use *u)
{
    const struct dr_job *job = d->job;
    uint32_t own_line = DR_NONE, line = DR_NONE;
    const double own = speed_of(d, dr_use_host(d, u), u->interface, &own_line);

    for (uint32_t i = 0; own > 0 && i < job->num_addresses; i++) {
        const struct dr_address *a = &job->addresses[i];
        const double other = speed_of(d, a->host, a->interface, &line);
        struct dr_finding *f;

        if (a->down || !dr_is_global(a->address) || other < 10 * own ||
                (a->host[0] != 0 && dr_use_host(d, u)[0] != 0 &&
                        strcmp(a->host, dr_use_host(d, u)) != 0) ||
                !reaches_peers(d, a))
            continue;
        f = slow(d, u);
        dr_say(d, f,
                "%s (%.0f Mb/s) is in use although %s (%.0f Mb/s) reaches the peers "
                "too.",
                u->interface, own, a->interface, other);
        dr_because(d, f, own_line);
        dr_because(d, f, line);
        dr_fix(d, f, "Set NCCL_SOCKET_IFNAME=%s and GLOO_SOCKET_IFNAME=%s.",
                a->interface, a->interface);
        return;
    }
}

/* The median of the times that follow the choice of an interface, milliseconds; 0: none. */
static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double time_after(const struct doctor *d, uint32_t line)
{
    double times[64];
    uint32_t count = 0;

    for (uint32_t i = line + 1; i < d->num_lines && count < 64 && i < line + 512; i++) {
        struct dr_span got[2];

        if ((d->lines[i].flags & DR_COMMAND) || dr_has(d->lines[i].text, "iface="))
            break;
        if (dr_scan(d->lines[i].text, "%<%f ms%>", got) ||
                dr_scan(d->lines[i].text, " %f ms%>", got))
            times[count++] = dr_span_double(got[0]);
        else if (dr_scan(d->lines[i].text, " %f s%>", got))
            times[count++] = dr_span_double(got[0]) * 1000;
    }
    if (count == 0)
        return 0;
    qsort(times, count, sizeof(*times), compare_doubles);
    return times[count / 2];
}

/* What follows the variables of a command, and the interface that they name. */
static const char *bare_command(struct doctor *d, uint32_t line, const char **interface)
{
    const char *text = dr_typed(&d->lines[line]);
    struct dr_span word;
    size_t at = 0, begin = 0;

    *interface = dr_interface_at(d, line);
    while (dr_word(text, &at, &word) && memchr(word.at, '=', word.length) != NULL &&
            word.at[0] >= 'A' && word.at[0] <= 'Z')
        begin = at;
    return text + begin + strspn(text + begin, " ");
}

/* A measurement: what ran, over which interface, how long it took. */
struct timing {
    const char *command, *interface; /* interface: NULL, the program's own choice */
    double ms;
    uint32_t line;
};

#define TIMINGS_MAX 64

/* Measured after a line that names Gloo's device, or after a command. */
static uint32_t read_timings(struct doctor *d, struct timing all[TIMINGS_MAX])
{
    const struct dr_job *job = d->job;
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->num_uses && count < TIMINGS_MAX / 2; i++) {
        const struct dr_use *u = &job->uses[i];
        const uint32_t command = d->lines[u->line].command;
        struct timing t = { "", u->interface, 0, u->line };
        const char *named;

        if (u->kind != DR_USE_GLOO || i > 256)
            continue;
        t.ms = time_after(d, u->line);
        if (command != DR_NONE)
            t.command = bare_command(d, command, &named);
        if (t.ms > 0)
            all[count++] = t;
    }
    for (uint32_t i = 0, looked = 0;
            i < d->num_lines && count < TIMINGS_MAX && looked < 1024; i++) {
        struct timing t = { NULL, NULL, 0, i };

        if (!(d->lines[i].flags & DR_COMMAND))
            continue;
        looked++;
        t.ms = time_after(d, i);
        t.command = bare_command(d, i, &t.interface);
        if (t.ms > 0)
            all[count++] = t;
    }
    return count;
}

/* The same thing over two interfaces, one of them ten times as fast. */
static void compare_times(struct doctor *d)
{
    struct timing all[TIMINGS_MAX];
    const uint32_t count = read_timings(d, all);

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            const struct timing *a = &all[i], *b = &all[k];
            struct dr_finding *f;

            if (b->interface == NULL || a->ms < 10 * b->ms ||
                    strcmp(a->command, b->command) != 0 ||
                    (a->interface != NULL && strcmp(a->interface, b->interface) == 0))
                continue;
            f = dr_found(d, DR_NIC_SLOW_SELECTED, "%s",
                    a->interface != NULL ? a->interface : "the interface of the default route");
            dr_because(d, f, a->line);
            dr_because(d, f, b->line);
            if (f->summary[0] != 0)
                continue;
            dr_say(d, f,
                    "The same operation takes %.0f ms over %s and %.0f ms over %s.",
                    a->ms, f->subject, b->ms, b->interface);
            dr_fix(d, f, "Set GLOO_SOCKET_IFNAME=%s and NCCL_SOCKET_IFNAME=%s.",
                    b->interface, b->interface);
        }
}

void dr_rule_slow_interfaces(struct doctor *d)
{
    compare_times(d);
    for (uint32_t i = 0; i < d->job->num_uses && i < 256; i++) {
        const struct dr_use *u = &d->job->uses[i];
        uint32_t line = DR_NONE;

        if (dr_is_loopback(u->address))
            continue;
        compare_speeds(d, u);
        if (u->kind != DR_USE_SOCKET && is_wireless(d, u->interface, &line)) {
            struct dr_finding *f = slow(d, u);

            dr_because(d, f, line);
            if (f->summary[0] == 0)
                dr_say(d, f, "%s is a wireless interface, and the ranks talk over it.",
                        u->interface);
        }
    }
}
