/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts to reach an address and how they ended: pings, connections from a shell, dials
 * of ranks; and what the neighbour tables say of addresses.
 */
#include "job.h"
#include "lines.h"

#include <ctype.h>
#include <string.h>

/* ---- how an attempt ends ---- */

static const struct ending {
    const char *text;
    enum dr_reach_end end;
} endings[] = {
    { "o route to host", DR_REACH_NO_ROUTE },
    { "113(", DR_REACH_NO_ROUTE },
    { "errno: 113", DR_REACH_NO_ROUTE },
    { "etwork is unreachable", DR_REACH_OTHER },
    { "onnection timed out", DR_REACH_TIMEOUT },
    { "peration timed out", DR_REACH_TIMEOUT },
    { "errno: 110", DR_REACH_TIMEOUT },
    { "110(", DR_REACH_TIMEOUT },
    { "Timeout was reached", DR_REACH_TIMEOUT },
    { "(tcp) timed out", DR_REACH_TIMEOUT },
    { "Ncat: TIMEOUT", DR_REACH_TIMEOUT },
    { "port 22 timed out", DR_REACH_TIMEOUT },
    { "oftware caused connection abort", DR_REACH_ABORT },
    { "onnection refused", DR_REACH_REFUSED },
    { "errno: 111", DR_REACH_REFUSED },
    { "111(", DR_REACH_REFUSED },
};

static enum dr_reach_end ending_of(const char *text)
{
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (dr_has(text, endings[i].text))
            return endings[i].end;
    return DR_REACH_OTHER;
}

/* ---- who was dialled ---- */

/* Sentences that name whom they could not reach; the captures are address and port. */
static const struct dial {
    const char *shape;
    enum dr_reach_how how;
    bool gloo;
    bool port; /* the second capture */
} dials[] = {
    { "onnect to %*<%d> ", DR_REACH_RANK, false, true },
    { "recv from %*<%d> failed", DR_REACH_RANK, false, true },
    { "send to %*<%d> failed", DR_REACH_RANK, false, true },
    { "remote=[%*]:%d", DR_REACH_RANK, true, true },
    { "connect [%*]:%d", DR_REACH_RANK, true, true },
    { "failed to connect to [%*]:%d", DR_REACH_RANK, false, true },
    { "cannot be initialized to connect to [%*]:%d", DR_REACH_RANK, false, true },
    { "failed to connect to %*:%d (errno", DR_REACH_RANK, false, true },
    { "failed to connect to any network address of (%*, %d)", DR_REACH_RANK, false,
            true },
    { "trying to connect to (%*, %d)", DR_REACH_RANK, false, true },
    { "dest_addr=%*:%d) failed: ", DR_REACH_RANK, false, true },
    { "connect() to %*:%d failed: ", DR_REACH_RANK, false, true },
    { "connect() to %w failed: ", DR_REACH_RANK, false, false },
    { "ssh: connect to host %w port %d: ", DR_REACH_SHELL, false, true },
    { "^Connection to %w port %d timed out", DR_REACH_SHELL, false, true },
    { "nc: connect to %w port %d ", DR_REACH_SHELL, false, true },
    { "nc: connect to %w (%*) %d port ", DR_REACH_SHELL, false, false },
    { "(UNKNOWN) [%*] %d (", DR_REACH_SHELL, false, true },
    { "Failed to connect to %w port %d", DR_REACH_SHELL, false, true },
    { "connect to address %w: ", DR_REACH_SHELL, false, false },
    { "Connection to %w %d port [", DR_REACH_SHELL, false, true },
    { "/dev/tcp/%*/%d: ", DR_REACH_SHELL, false, true },
};

/* Sentences of tools that leave the address to what was typed. */
static const char *const addressless[] = { "curl: (28) ", "curl: (7) ",
    "Ncat: ", "telnet: Unable to connect", "bash: connect: ", "wget: " };

/* The address among the typed words: bare, user@address, or in a URL. */
static const char *typed_address(struct doctor *d, const char *command)
{
    struct dr_span word;
    size_t at = 0;

    while (dr_word(command, &at, &word)) {
        const char *end = word.at + word.length;
        const char *from = word.at, *slashes = NULL;
        size_t length;

        for (const char *c = word.at; c + 2 < end; c++)
            if (dr_begins(c, "://"))
                slashes = c + 3;
        from = slashes != NULL ? slashes : from;
        for (const char *c = from; c < end; c++)
            if (*c == '@')
                from = c + 1;
        length = (size_t)(end - from);
        if (slashes != NULL || !dr_is_address(from, length)) {
            const size_t host = strcspn(from, "/:;|\"'");

            length = host < length ? host : length;
        }
        if (dr_is_address(from, length))
            return dr_copy(d, from, length);
    }
    return NULL;
}

static const char *address_of(struct doctor *d, struct dr_span span)
{
    static const char mapped[] = "::ffff:";
    const char *last;

    /* the shortest match may begin with words: "Connect to peer 192.0.2.1<5>" */
    for (last = span.at + span.length; last > span.at && last[-1] != ' '; last--) {
    }
    span.length -= (size_t)(last - span.at);
    span.at = last;
    if (span.length > sizeof(mapped) && dr_begins(span.at, mapped)) {
        span.at += sizeof(mapped) - 1;
        span.length -= sizeof(mapped) - 1;
    }
    if (span.length == 0 || span.length > 255)
        return NULL;
    return dr_copy(d, span.at, span.length);
}

static bool is_success(const char *text)
{
    return dr_has(text, "succeeded!") ||
            dr_scan(text, "^(UNKNOWN) [%*] %d (%*) open", NULL);
}

/* Whether any of the sentences can be in it: most lines hold none. */
static bool names_a_dial(const char *text)
{
    static const char *const words[] = { "onnect", " from ", "send to", "remote=[",
        "(UNKNOWN)", "/dev/tcp/", "curl: (", "Ncat: ", "telnet: ", "wget: " };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_has(text, words[i]))
            return true;
    return false;
}

/* Whether the line says that a dial ended, of whom, and how. */
static bool reach_line(struct doctor *d, uint32_t line, struct dr_reach *out)
{
    const char *text = d->lines[line].text;
    struct dr_span got[4];

    *out = (struct dr_reach){ .line = line, .port = "", .final = true };
    if (d->lines[line].flags & (DR_COMMAND | DR_REMARK))
        return false;
    if (!names_a_dial(text))
        return false;
    out->final = !dr_has(text, ", retrying") && !dr_has(text, "errno: 97");
    for (size_t i = 0; i < sizeof(dials) / sizeof(*dials); i++) {
        if (!dr_scan(text, dials[i].shape, got))
            continue;
        out->address = address_of(d, got[0]);
        out->port = dials[i].port ? dr_copy(d, got[1].at, got[1].length) : "";
        out->how = dials[i].how;
        out->gloo = dials[i].gloo;
        out->end = is_success(text) ? DR_REACH_OK : ending_of(got[0].at);
        if (out->end == DR_REACH_OTHER)
            out->end = ending_of(text);
        return out->address != NULL;
    }
    for (size_t i = 0; i < sizeof(addressless) / sizeof(*addressless); i++)
        if (dr_begins(text, addressless[i])) {
            out->how = DR_REACH_SHELL;
            out->end = ending_of(text);
            out->address = typed_address(d, dr_command(d, line));
            return out->address != NULL;
        }
    return false;
}

/* ---- pings ---- */

/* The address that the statistics are of. */
struct ping {
    const char *address;
    uint32_t command;
};

static void add_reach(struct doctor *d, const struct dr_reach *r)
{
    struct dr_job *job = d->job;
    struct dr_reach copy = *r;

    if (job->num_reaches == DR_PLACES_MAX)
        return;
    if (!dr_is_address(copy.address, strlen(copy.address)))
        copy.address = dr_resolve(d, copy.address);
    *DR_PUSH(d, job->reaches, job->num_reaches, job->room_reaches) = copy;
    dr_known(d, r->line);
}

static void read_ping(struct doctor *d, uint32_t line, struct ping *p)
{
    const char *text = d->lines[line].text, *command;
    struct dr_reach r = { .how = DR_REACH_PING,
        .port = "",
        .line = line,
        .final = true };
    struct dr_span got[6];

    if (!dr_begins(text, "PING ") && !dr_begins(text, "--- ") &&
            !dr_has(text, "packets transmitted") && !dr_has(text, "bytes from ") &&
            !dr_begins(text, "rtt min"))
        return;
    command = dr_command(d, line);
    if (p->command != d->lines[line].command)
        *p = (struct ping){ NULL, d->lines[line].command };
    if (dr_scan(text, "^PING %w (%*)", got) && dr_is_address(got[1].at, got[1].length))
        p->address = dr_copy(d, got[1].at, got[1].length);
    else if (dr_scan(text, "^PING %w", got) && dr_is_address(got[0].at, got[0].length))
        p->address = dr_copy(d, got[0].at, got[0].length);
    else if (p->address == NULL && dr_scan(text, "^--- %w ping statistics", got))
        p->address = dr_copy(d, got[0].at, got[0].length);
    r.address = p->address;
    if (r.address == NULL && dr_has(command, "ping"))
        r.address = typed_address(d, command);
    if (r.address == NULL)
        return;
    if (dr_scan(text, "packets transmitted, %d %*", got))
        r.end = dr_span_is(got[0], "0") ? DR_REACH_LOST : DR_REACH_OK;
    else if (dr_scan(text, "bytes from %*: icmp_seq=%d", got) ||
            dr_begins(text, "rtt min/avg/max"))
        r.end = DR_REACH_OK;
    else
        return;
    add_reach(d, &r);
}

/* ---- neighbours ---- */

static void add_neighbour(struct doctor *d, uint32_t line, struct dr_span address,
        enum dr_neighbour_state state)
{
    struct dr_job *job = d->job;
    const char *command = dr_command(d, line), *named;
    struct dr_neighbour *n;

    if (!dr_is_address(address.at, address.length) ||
            job->num_neighbours == DR_PLACES_MAX)
        return;
    n = DR_PUSH(d, job->neighbours, job->num_neighbours, job->room_neighbours);
    n->address = dr_copy(d, address.at, address.length);
    n->state = state;
    n->line = line;
    named = dr_scan(command, "%<ip %*n", NULL) || dr_scan(command, "%<arp%*", NULL)
            ? typed_address(d, command)
            : NULL;
    n->asked = named != NULL && strcmp(named, n->address) == 0;
    dr_known(d, line);
}

static struct dr_span last_word(const char *text)
{
    struct dr_span word = { text, 0 }, last = word;
    size_t at = 0;

    while (dr_word(text, &at, &word))
        last = word;
    return last;
}

/* "192.0.2.7 dev eth0 lladdr 00:… REACHABLE", "192.0.2.7 FAILED". */
static bool read_ip_neigh(struct doctor *d, uint32_t line)
{
    static const struct {
        const char *word;
        enum dr_neighbour_state state;
    } states[] = { { "FAILED", DR_NEIGHBOUR_SILENT },
        { "INCOMPLETE", DR_NEIGHBOUR_SILENT }, { "REACHABLE", DR_NEIGHBOUR_ANSWERS },
        { "DELAY", DR_NEIGHBOUR_ANSWERS }, { "STALE", DR_NEIGHBOUR_ANSWERS },
        { "PROBE", DR_NEIGHBOUR_OTHER }, { "PERMANENT", DR_NEIGHBOUR_OTHER },
        { "NOARP", DR_NEIGHBOUR_OTHER } };
    const char *text = d->lines[line].text;
    struct dr_span first, last;
    size_t at = 0;

    if (!isxdigit((unsigned char)*text) || !dr_word(text, &at, &first) ||
            !dr_is_address(first.at, first.length))
        return false;
    last = last_word(text);
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
        if (!dr_span_is(last, states[i].word))
            continue;
        add_neighbour(d, line, first,
                states[i].state == DR_NEIGHBOUR_ANSWERS && !dr_has(text, "lladdr ")
                        ? DR_NEIGHBOUR_OTHER
                        : states[i].state);
        return true;
    }
    return false;
}

static void read_neighbour(struct doctor *d, uint32_t line)
{
    static const struct {
        const char *shape;
        enum dr_neighbour_state state;
    } shapes[] = { { "(%*) at <incomplete>", DR_NEIGHBOUR_SILENT },
        { "(%*) at (incomplete)", DR_NEIGHBOUR_SILENT },
        { "^%w (incomplete)", DR_NEIGHBOUR_SILENT },
        { "(%*) at %x:%x:%x:%x:%x:%x", DR_NEIGHBOUR_ANSWERS },
        { "^%w ether %x:%x:%x:%x:%x:%x", DR_NEIGHBOUR_ANSWERS },
        { "^Unicast reply from %w [", DR_NEIGHBOUR_ANSWERS },
        { "bytes from %x:%x:%x:%x:%x:%x (%*): index=", DR_NEIGHBOUR_ANSWERS } };
    const char *text = d->lines[line].text;
    const size_t count = sizeof(shapes) / sizeof(*shapes);
    struct dr_span got[8];
    uint64_t replies;

    if (read_ip_neigh(d, line))
        return;
    if (!dr_has(text, " at ") && !dr_has(text, "(incomplete)") &&
            !dr_has(text, " ether ") && !dr_has(text, "reply from") &&
            !dr_has(text, "index=") && !dr_begins(text, "Received "))
        return;
    for (size_t i = 0; i < count; i++)
        if (dr_scan(text, shapes[i].shape, got)) {
            add_neighbour(d, line, got[i + 1 == count ? 6 : 0], shapes[i].state);
            return;
        }
    if (dr_scan(text, "^Received %d response", got) && dr_span_u64(got[0], &replies) &&
            replies > 0 && dr_has(dr_command(d, line), "arping")) {
        const char *address = typed_address(d, dr_command(d, line));

        if (address != NULL)
            add_neighbour(d, line, (struct dr_span){ address, strlen(address) },
                    DR_NEIGHBOUR_ANSWERS);
    }
}

/* A command like `ssh 192.0.2.7 hostname` that printed something else than ssh's sorrow. */
static void read_ssh(struct doctor *d, uint32_t line)
{
    const char *command = dr_command(d, line);
    struct dr_reach r = { .how = DR_REACH_SHELL,
        .end = DR_REACH_OK,
        .port = "22",
        .line = line,
        .final = true };

    if (!dr_begins(command, "ssh ") || d->lines[line].command + 1 != line ||
            dr_begins(d->lines[line].text, "ssh:") || d->lines[line].length == 0)
        return;
    r.address = typed_address(d, command);
    if (r.address == NULL)
        r.address = dr_place(d, line);
    if (r.address[0] != 0 && !dr_has(d->lines[line].text, "onnection"))
        add_reach(d, &r);
}

void dr_read_reaches(struct doctor *d)
{
    struct ping p = { NULL, DR_NONE };
    struct dr_reach r;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (d->lines[i].flags & (DR_COMMAND | DR_REMARK))
            continue;
        if (reach_line(d, i, &r))
            add_reach(d, &r);
        else if (d->job->log_of[i] == DR_NONE) {
            read_ping(d, i, &p);
            read_neighbour(d, i);
            read_ssh(d, i);
        }
    }
}
