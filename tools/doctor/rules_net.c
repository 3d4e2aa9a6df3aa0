/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about hosts that do not answer, and about interfaces that were chosen. */
#include "job.h"
#include "rules.h"

#include <string.h>

/* ---- HOST_OFF_OR_NIC_DEAD, HOST_WEDGED ---- */

static bool is_asked(const struct doctor *d, const char *address)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_neighbours; i++)
        if (job->neighbours[i].asked &&
                strcmp(job->neighbours[i].address, address) == 0)
            return true;
    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (strcmp(job->reaches[i].address, address) == 0)
            return true;
    for (uint32_t i = 0; i < job->num_uses; i++)
        if (strcmp(job->uses[i].address, address) == 0)
            return true;
    return false;
}

/* Whether the last that is said of the address, anywhere, is that nobody answers. */
static bool stays_silent(const struct doctor *d, const struct dr_neighbour *n)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_neighbours; i++) {
        const struct dr_neighbour *o = &job->neighbours[i];

        if (strcmp(o->address, n->address) == 0 && o->state == DR_NEIGHBOUR_ANSWERS &&
                (d->lines[o->line].source != d->lines[n->line].source ||
                        o->line > n->line))
            return false;
    }
    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (strcmp(job->reaches[i].address, n->address) == 0 &&
                (job->reaches[i].end == DR_REACH_OK ||
                        job->reaches[i].end == DR_REACH_REFUSED) &&
                job->reaches[i].how != DR_REACH_RANK && job->reaches[i].line > n->line)
            return false;
    return true;
}

static const char *host_words(struct doctor *d, const char *address)
{
    const char *host = dr_host_with(d, address);

    return host != NULL && strcmp(host, address) != 0
            ? dr_printf(d, "%s (%s)", host, address)
            : address;
}

static void fold_reaches(struct doctor *d, struct dr_finding *f, const char *address)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (strcmp(job->reaches[i].address, address) == 0 &&
                job->reaches[i].end != DR_REACH_OK)
            dr_consequence(d, f, job->reaches[i].line);
}

static void host_off(struct doctor *d, const struct dr_neighbour *n)
{
    struct dr_finding *f;

    if (!dr_is_global(n->address) || !is_asked(d, n->address) || !stays_silent(d, n))
        return;
    f = dr_found(d, DR_HOST_OFF_OR_NIC_DEAD, "%s", n->address);
    dr_say(d, f,
            "%s does not answer ARP on its own link: the host is off, or its network "
            "card or "
            "cable is dead.",
            host_words(d, n->address));
    dr_because(d, f, n->line);
    fold_reaches(d, f, n->address);
}

/* What one capture shows of an address before a line. */
struct attempts {
    uint32_t ping, tcp; /* lines of failed ones, or DR_NONE */
    bool answered;
};

static struct attempts attempts_on(const struct doctor *d, const struct dr_neighbour *n)
{
    struct attempts a = { DR_NONE, DR_NONE, false };

    for (uint32_t i = 0; i < d->job->num_reaches; i++) {
        const struct dr_reach *r = &d->job->reaches[i];

        if (strcmp(r->address, n->address) != 0 ||
                d->lines[r->line].source != d->lines[n->line].source)
            continue;
        if (r->end == DR_REACH_OK || r->end == DR_REACH_REFUSED)
            a.answered = true;
        else if (r->line < n->line && r->how == DR_REACH_PING &&
                r->end == DR_REACH_LOST)
            a.ping = r->line;
        else if (r->line < n->line && r->how != DR_REACH_PING &&
                r->end == DR_REACH_TIMEOUT)
            a.tcp = r->line;
    }
    return a;
}

static void host_wedged(struct doctor *d, const struct dr_neighbour *n)
{
    const struct attempts a = attempts_on(d, n);
    struct dr_finding *f;

    if (a.answered || a.ping == DR_NONE || a.tcp == DR_NONE)
        return;
    f = dr_found(d, DR_HOST_WEDGED, "%s", n->address);
    dr_say(d, f,
            "%s still answers ARP, but neither ping nor a connection: its kernel "
            "hangs. A "
            "packet filter that drops everything looks the same from outside.",
            host_words(d, n->address));
    dr_because(d, f, a.ping);
    dr_because(d, f, a.tcp);
    dr_because(d, f, n->line);
    fold_reaches(d, f, n->address);
}

void dr_rule_hosts(struct doctor *d)
{
    for (uint32_t i = 0; i < d->job->num_neighbours && i < 1024; i++) {
        const struct dr_neighbour *n = &d->job->neighbours[i];

        if (n->state == DR_NEIGHBOUR_SILENT)
            host_off(d, n);
        else if (n->state == DR_NEIGHBOUR_ANSWERS)
            host_wedged(d, n);
    }
}

/* ---- interfaces that a run listens on ---- */

static bool is_virtual(const char *interface)
{
    static const char *const kinds[] = { "veth", "cali", "docker", "br-", "virbr",
        "cni", "flannel", "tun", "tap", "tunl", "ip6tnl", "sit", "gre" };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (dr_begins(interface, kinds[i]))
            return true;
    return false;
}

/* An interface of the same host that has a global address, or NULL. */
static const char *better_interface(struct doctor *d, const struct dr_use *u)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_uses; i++)
        if (job->uses[i].host == u->host && dr_is_global(job->uses[i].address))
            return job->uses[i].interface;
    for (uint32_t i = 0; i < job->num_addresses; i++) {
        const struct dr_address *a = &job->addresses[i];

        if (a->interface[0] != 0 && !a->down && !is_virtual(a->interface) &&
                dr_is_global(a->address) &&
                (a->host[0] == 0 || strcmp(a->host, dr_use_host(d, u)) == 0))
            return a->interface;
    }
    return NULL;
}

/* Whatever failed to connect to such an address follows from the choice. */
static void fold_dials(struct doctor *d, struct dr_finding *f,
        bool (*is_kind)(const char *address))
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const struct dr_failure *x = &job->failures[i];

        if ((x->kind == DR_FAILED_CONNECT && is_kind(x->address)) ||
                x->kind == DR_FAILED_FALL_OUT || x->kind == DR_FAILED_CLOSED)
            dr_consequence(d, f, x->line);
    }
}

static void chosen(struct doctor *d, const struct dr_use *u, enum dr_code code)
{
    const char *better = better_interface(d, u), *host = dr_use_host(d, u);
    struct dr_finding *f;
    const bool loopback = code == DR_NIC_LOOPBACK_ACROSS_HOSTS;

    f = dr_found(d, code, "%s", u->interface);
    dr_because(d, f, u->line);
    if (f->summary[0] != 0)
        return;
    if (loopback)
        dr_say(d, f,
                "%s listens on %s (%s) while the ranks are on several hosts: peers are "
                "told "
                "to dial themselves.",
                host, u->interface, u->address);
    else
        dr_say(d, f,
                "%s uses %s, %s with nothing but the link-local address %s: other "
                "hosts are "
                "not reached over it.",
                host, u->interface,
                code == DR_NIC_VIRTUAL_SELECTED ? "a virtual interface"
                                                : "an interface",
                u->address);
    if (loopback)
        dr_fix(d, f, "Take %s out of NCCL_SOCKET_IFNAME on every host.", u->interface);
    if (better != NULL)
        dr_fix(d, f, "Set NCCL_SOCKET_IFNAME=%s, the interface with a global address.",
                better);
    else if (!loopback)
        dr_fix(d, f, "Exclude it: NCCL_SOCKET_IFNAME=^%s.", u->interface);
    fold_dials(d, f, loopback ? dr_is_loopback : dr_is_link_local);
}

static void chosen_interfaces(struct doctor *d)
{
    const struct dr_job *job = d->job;

    if (dr_num_hosts(d) < 2)
        return;
    for (uint32_t i = 0; i < job->num_uses && i < 4096; i++) {
        const struct dr_use *u = &job->uses[i];

        if (dr_is_loopback(u->address) || strcmp(u->interface, "lo") == 0) {
            if (u->kind != DR_USE_GLOO)
                chosen(d, u, DR_NIC_LOOPBACK_ACROSS_HOSTS);
        } else if (dr_is_link_local(u->address) && u->kind != DR_USE_OOB) {
            chosen(d, u,
                    is_virtual(u->interface) ? DR_NIC_VIRTUAL_SELECTED
                                             : DR_NIC_LINK_LOCAL_SELECTED);
        }
    }
}

/* ---- NIC_NAMES_DIFFER, NO_IP_INTERFACE ---- */

/* The interface name that the failing process was given, or NULL. */
static const char *requested(struct doctor *d, const struct dr_failure *x,
        uint32_t *line)
{
    const struct dr_job *job = d->job;
    const uint32_t command = d->lines[x->line].command;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const uint32_t log = job->log_of[i];
        const bool command_of_it = (d->lines[i].flags & DR_COMMAND) != 0;

        if (!dr_has(d->lines[i].text, "_IFNAME"))
            continue;
        if (log != DR_NONE && x->worker != DR_NONE &&
                job->workers[job->log[log].worker].host != job->workers[x->worker].host)
            continue;
        /* given on the line of another command: not to this process */
        if (command_of_it && i != command && !dr_has(d->lines[i].text, "export "))
            continue;
        const char *value = dr_interface_at(d, i);

        if (value == NULL)
            continue;
        *line = i;
        return value;
    }
    return NULL;
}

/* A line that shows a usable address of the failing host; DR_NONE: none. */
static uint32_t usable_address(const struct doctor *d, const char *host, bool *listed)
{
    const struct dr_job *job = d->job;

    *listed = false;
    for (uint32_t i = 0; i < job->num_addresses; i++) {
        const struct dr_address *a = &job->addresses[i];

        if (a->interface[0] == 0 || strcmp(a->host, host) != 0)
            continue;
        *listed = true;
        if (!a->down && dr_is_global(a->address))
            return a->line;
    }
    return DR_NONE;
}

/* A host on which the name does exist. */
static uint32_t works_elsewhere(const struct doctor *d, const char *name, uint32_t host)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_uses; i++)
        if (job->uses[i].host != host && strcmp(job->uses[i].interface, name) == 0 &&
                dr_is_global(job->uses[i].address))
            return job->uses[i].line;
    return DR_NONE;
}

static void no_interface(struct doctor *d, const struct dr_failure *x)
{
    const struct dr_job *job = d->job;
    const uint32_t host_index =
            x->worker != DR_NONE ? job->workers[x->worker].host : DR_NONE;
    const char *host = host_index != DR_NONE
            ? job->hosts[host_index].name
            : d->machines[d->lines[x->line].machine].name;
    uint32_t set = DR_NONE, shown;
    const char *name = requested(d, x, &set);
    struct dr_span got[3];
    bool listed;
    struct dr_finding *f;

    if (name == NULL) {
        if (dr_has(d->lines[x->line].text, "find ")) /* of a named interface */
            return;
        f = dr_found(d, DR_NO_IP_INTERFACE, "%s", host);
        dr_say(d, f,
                "%s has no interface with an address to listen on, and no interface "
                "was asked "
                "for by name.",
                host[0] != 0 ? host : "This machine");
        dr_because(d, f, x->line);
        return;
    }
    if (name[0] == '^') /* names that were kept out: nobody asked for one */
        return;
    shown = usable_address(d, host, &listed);
    if (shown == DR_NONE && !listed)
        shown = works_elsewhere(d, name, host_index);
    /* "(RayWorkerWrapper pid=31, ip=192.0.2.9) …": it does have an address */
    if (dr_scan(d->lines[x->line].text, "^(%w pid=%d, ip=%*)", got) &&
            dr_is_global(dr_copy(d, got[2].at, got[2].length))) {
        host = dr_copy(d, got[2].at, got[2].length);
        shown = shown == DR_NONE ? x->line : shown;
    }
    if (shown == DR_NONE)
        return;
    f = dr_found(d, DR_NIC_NAMES_DIFFER, "%s", name);
    dr_say(d, f,
            "%s has no usable interface called %s, the one name that was given to all.",
            host[0] != 0 ? host : "A host", name);
    dr_because(d, f, set);
    dr_because(d, f, x->line);
    dr_because(d, f, shown);
}

void dr_rule_interfaces(struct doctor *d)
{
    chosen_interfaces(d);
    for (uint32_t i = 0; i < d->job->num_failures; i++)
        if (d->job->failures[i].kind == DR_FAILED_NO_INTERFACE)
            no_interface(d, &d->job->failures[i]);
    if (dr_num_hosts(d) != 1)
        dr_rule_slow_interfaces(d);
}
