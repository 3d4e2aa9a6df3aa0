/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interfaces, their addresses and speeds, in what `ip`, `ifconfig`, `ethtool`, `iw` and
 * sysfs print; and who has which address, from every kind of table that says so.
 */
#include "job.h"
#include "lines.h"
#include "typed.h"

#include <ctype.h>
#include <string.h>

/* ---- whose ---- */

/* The host in "ssh -o X=Y user@host command", or nothing: a loop's variable is no host. */
static struct dr_span ssh_host(const char *command)
{
    struct dr_span word = { NULL, 0 };
    size_t at = 0;
    bool ssh = false;

    while (dr_word(command, &at, &word)) {
        const char *user;

        if (!ssh) {
            ssh = dr_span_is(word, "ssh") || dr_span_is(word, "rsh") ||
                    dr_span_is(word, "clush") || dr_span_is(word, "pdsh");
            if (!ssh && !dr_span_is(word, "sudo") &&
                    memchr(word.at, '=', word.length) == NULL)
                break;
            continue;
        }
        if (word.at[0] == '-') {
            if (word.length == 2 && strchr("opilFJwLR", word.at[1]) != NULL)
                (void)dr_word(command, &at, &word);
            continue;
        }
        user = memchr(word.at, '@', word.length);
        if (user != NULL)
            word = (struct dr_span){ user + 1,
                word.length - (size_t)(user + 1 - word.at) };
        if (word.length == 0 || word.at[0] == '$' ||
                memchr(word.at, '[', word.length) != NULL)
            break;
        return word;
    }
    return (struct dr_span){ NULL, 0 };
}

const char *dr_place(struct doctor *d, uint32_t line)
{
    const char *command = dr_command(d, line);
    const struct dr_span host = ssh_host(command);

    if (host.length > 0)
        return dr_copy(d, host.at, host.length);
    if (dr_begins(command, "for "))
        return "";
    return d->machines[d->lines[line].machine].name;
}

static void add_address(struct doctor *d, uint32_t line, const char *host,
        struct dr_span interface, struct dr_span address, bool down)
{
    const char *slash = memchr(address.at, '/', address.length);
    struct dr_span prefix = { NULL, 0 };
    struct dr_job *job = d->job;
    struct dr_address *a;
    uint64_t bits = 0;
    const char *at = memchr(interface.at, '@', interface.length);

    if (at != NULL)
        interface.length = (size_t)(at - interface.at);
    while (interface.length > 0 && interface.at[interface.length - 1] == ':')
        interface.length--;
    if (slash != NULL) {
        prefix.at = slash + 1;
        prefix.length = address.length - (size_t)(prefix.at - address.at);
        address.length = (size_t)(slash - address.at);
    }
    if (!dr_is_address(address.at, address.length) ||
            job->num_addresses == DR_PLACES_MAX)
        return;
    a = DR_PUSH(d, job->addresses, job->num_addresses, job->room_addresses);
    a->host = host;
    a->interface = dr_copy(d, interface.at, interface.length);
    a->address = dr_copy(d, address.at, address.length);
    a->prefix = dr_span_u64(prefix, &bits) && bits <= 128 ? (uint32_t)bits : 0;
    a->down = down;
    a->line = line;
    if (interface.length > 0)
        dr_known(d, line);
}

/* Whether two names are of one host: the same, or one without the domain of the other. */
static bool same_host(const char *a, const char *b)
{
    const size_t length = strlen(a) < strlen(b) ? strlen(a) : strlen(b);

    return length > 0 && strncmp(a, b, length) == 0 &&
            (a[length] == 0 || a[length] == '.') &&
            (b[length] == 0 || b[length] == '.');
}

const char *dr_resolve(const struct doctor *d, const char *host)
{
    const struct dr_job *job = d->job;
    const char *found = NULL;

    for (uint32_t i = 0; i < job->num_addresses; i++) {
        const struct dr_address *a = &job->addresses[i];

        if (!same_host(a->host, host) || !dr_is_global(a->address))
            continue;
        if (found != NULL && strcmp(found, a->address) != 0)
            return host;
        found = a->address;
    }
    return found != NULL ? found : host;
}

const char *dr_host_with(const struct doctor *d, const char *address)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_addresses; i++)
        if (job->addresses[i].host[0] != 0 &&
                strcmp(job->addresses[i].address, address) == 0)
            return job->addresses[i].host;
    for (uint32_t i = 0; i < job->num_uses; i++)
        if (job->uses[i].host != DR_NONE && strcmp(job->uses[i].address, address) == 0)
            return job->hosts[job->uses[i].host].name;
    return NULL;
}

/* ---- ip and ifconfig ---- */

/* The interface whose block of lines this is. */
struct block {
    struct dr_span interface;
    uint32_t source;
    bool down;
};

/* "eth0  UP  192.0.2.1/24 fe80::1/64" */
static void read_brief(struct doctor *d, uint32_t line)
{
    static const char *const states[] = { "UP", "DOWN", "UNKNOWN", "LOWERLAYERDOWN",
        "DORMANT" };
    const char *text = d->lines[line].text, *host;
    struct dr_span interface, state, word;
    size_t at = 0;
    bool known = false;

    if (!dr_word(text, &at, &interface) || !dr_word(text, &at, &state))
        return;
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
        known = known || dr_span_is(state, states[i]);
    if (!known)
        return;
    host = dr_has(dr_command(d, line), "ip ") ? dr_place(d, line) : "";
    while (dr_word(text, &at, &word))
        add_address(d, line, host, interface, word, dr_span_is(state, "DOWN"));
}

static void read_address(struct doctor *d, uint32_t line, struct block *b)
{
    static const char *const inets[] = { "^ inet %w", "^ inet6 %w", "^ inet addr:%w",
        "^ inet6 addr: %w" };
    const char *text = d->lines[line].text;
    struct dr_span got[4];

    if (dr_scan(text, "^%d: %w inet %w", got) ||
            dr_scan(text, "^%d: %w inet6 %w", got)) {
        add_address(d, line, dr_place(d, line), got[1], got[2], false);
        return;
    }
    if (dr_scan(text, "^%d: %w <%*> mtu %d", got)) {
        *b = (struct block){ got[1], d->lines[line].source, !dr_has(got[2].at, "UP") };
        return;
    }
    if (dr_scan(text, "^%w flags=%d<%*> mtu %d", got) ||
            dr_scan(text, "^%w Link encap:%w", got)) {
        *b = (struct block){ got[0], d->lines[line].source, false };
        return;
    }
    for (size_t i = 0; i < sizeof(inets) / sizeof(*inets); i++)
        if (b->interface.length > 0 && b->source == d->lines[line].source &&
                dr_scan(text, inets[i], got)) {
            add_address(d, line, dr_place(d, line), b->interface, got[0], b->down);
            return;
        }
    if (!isspace((unsigned char)*text))
        read_brief(d, line);
}

/* "rank 2  node-c 198.51.100.35", "PING n-b (198.51.100.93)", a line of /etc/hosts. */
static void read_alias(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    const struct dr_span none = { "", 0 };
    struct dr_span got[4];

    if (dr_scan(text, "^rank %d %w %w", got) && got[2].length < 64)
        add_address(d, line, dr_copy(d, got[1].at, got[1].length), none, got[2], false);
    else if (dr_scan(text, "^PING %w (%w)", got))
        add_address(d, line, dr_copy(d, got[0].at, got[0].length), none, got[1], false);
    else if (isxdigit((unsigned char)*text) && dr_scan(text, "^%w %w%e", got) &&
            dr_is_address(got[0].at, got[0].length) &&
            (dr_has(dr_command(d, line), "hosts")))
        add_address(d, line, dr_copy(d, got[1].at, got[1].length), none, got[0], false);
}

/* ---- speeds ---- */

static void add_speed(struct doctor *d, uint32_t line, struct dr_span interface,
        double mbps, bool wireless)
{
    struct dr_job *job = d->job;
    struct dr_speed *s;

    if (!wireless && mbps <= 0)
        return;
    s = DR_PUSH(d, job->speeds, job->num_speeds, job->room_speeds);
    s->host = dr_place(d, line);
    s->interface = dr_copy(d, interface.at, interface.length);
    s->mbps = mbps;
    s->wireless = wireless;
    s->line = line;
    dr_known(d, line);
}

/* `cat /sys/class/net/eth0/speed …`: the numbers follow in the order of the words. */
static void read_sysfs_speeds(struct doctor *d, uint32_t line)
{
    const char *words[16];
    const char *command = dr_typed(&d->lines[line]);
    uint32_t count, end, at = line + 1;

    if (!dr_has(command, "/sys/class/net/") || !dr_has(command, "/speed"))
        return;
    count = dr_typed_words(d, command, "/sys/class/net/", words, 16);
    end = dr_output_end(d, line);
    for (uint32_t i = 0; i < count && i < 16; i++) {
        const char *name =
                dr_begins(words[i], "/sys/class/net/") ? words[i] + 15 : words[i];
        const size_t length = strcspn(name, "/");
        struct dr_span got[1];

        if (strncmp(name + length, "/speed", 6) != 0)
            continue;
        for (; at < end && !dr_scan(d->lines[at].text, "^%d%e", got); at++) {
        }
        if (at >= end)
            break;
        add_speed(d, at++, (struct dr_span){ name, length }, dr_span_double(got[0]),
                false);
    }
}

static void read_speed(struct doctor *d, uint32_t line, struct dr_span *settings)
{
    const char *text = d->lines[line].text;
    struct dr_span got[3];

    if (dr_scan(text, "/sys/class/net/%*/speed:%d%e", got))
        add_speed(d, line, got[0], dr_span_double(got[1]), false);
    else if (dr_scan(text, "^Settings for %*:%e", got))
        *settings = got[0];
    else if (settings->length > 0 && dr_scan(text, "^ Speed: %dMb/s", got))
        add_speed(d, line, *settings, dr_span_double(got[0]), false);
    else if (dr_scan(text, "tx bitrate: %f MBit/s", got) &&
            dr_scan(dr_command(d, line), "iw dev %w link", got + 1))
        add_speed(d, line, got[1], dr_span_double(got[0]), true);
    else if (dr_scan(text, "iface=%w, speed=%d,", got))
        add_speed(d, line, got[0], dr_span_double(got[1]), false);
    else if (dr_scan(text, "^%w IEEE 802.11", got))
        add_speed(d, line, got[0], 0, true);
}

void dr_read_interfaces(struct doctor *d)
{
    struct block b = { 0 };
    struct dr_span settings = { NULL, 0 };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (d->lines[i].flags & DR_COMMAND) {
            b.interface.length = settings.length = 0;
            read_sysfs_speeds(d, i);
        } else if (d->job->log_of[i] == DR_NONE && !(d->lines[i].flags & DR_REMARK)) {
            read_address(d, i, &b);
            read_alias(d, i);
            read_speed(d, i, &settings);
        }
    }
}
