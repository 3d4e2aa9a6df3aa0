/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs in NCCL's style, whatever the library calls itself: `host:pid:tid [dev] file:line
 * WORD INFO|WARN|TRACE message`, with anything that a launcher writes before it.
 */
#include "job.h"

#include <ctype.h>
#include <string.h>

/* ---- names ---- */

static uint32_t hash(struct dr_span span)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < span.length; i++)
        h = (h ^ (unsigned char)span.at[i]) * 16777619u;
    return h;
}

/* Its slot: the name's, or the empty one where it would be. */
static uint32_t slot_of(const struct dr_names *names, struct dr_span span)
{
    uint32_t at = hash(span) & (names->num_slots - 1);

    while (names->slots[at] != 0) {
        const struct dr_span s = names->spans[names->slots[at] - 1];

        if (s.length == span.length && memcmp(s.at, span.at, s.length) == 0)
            break;
        at = (at + 1) & (names->num_slots - 1);
    }
    return at;
}

uint32_t dr_name_find(const struct dr_names *names, struct dr_span span)
{
    uint32_t slot;

    if (names->num_slots == 0)
        return DR_NONE;
    slot = slot_of(names, span);
    return names->slots[slot] != 0 ? names->slots[slot] - 1 : DR_NONE;
}

uint32_t dr_name(struct doctor *d, struct dr_names *names, struct dr_span span)
{
    uint32_t slot;

    if (names->count * 2 >= names->num_slots) {
        names->num_slots = names->num_slots == 0 ? 64 : names->num_slots * 2;
        names->slots = dr_alloc(d, names->num_slots * sizeof(*names->slots));
        for (uint32_t i = 0; i < names->count; i++)
            names->slots[slot_of(names, names->spans[i])] = i + 1;
    }
    slot = slot_of(names, span);
    if (names->slots[slot] == 0) {
        span.at = dr_copy(d, span.at, span.length);
        *DR_PUSH(d, names->spans, names->count, names->room) = span;
        names->slots[slot] = names->count;
    }
    return names->slots[slot] - 1;
}

/* ---- one line ---- */

struct parts {
    struct dr_span host;
    uint32_t pid, dev;
    const char *where, *message;
    bool warn;
};

static bool is_host_byte(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

static bool small_number(struct dr_span span, uint32_t *out)
{
    uint64_t value;

    if (!dr_span_u64(span, &value) || value >= DR_NONE)
        return false;
    *out = (uint32_t)value;
    return true;
}

/* "NCCL INFO ": an upper-case word and a level. */
static const char *level(const char *text, bool *warn)
{
    static const char *const levels[] = { " INFO ", " WARN ", " TRACE ", " ABORT " };
    const char *first = NULL;

    for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
        const char *at = strstr(text, levels[i]);

        if (at == NULL || at == text ||
                (!isupper((unsigned char)at[-1]) && !isdigit((unsigned char)at[-1])) ||
                (first != NULL && at > first))
            continue;
        first = at + strlen(levels[i]) - 1;
        *warn = i == 1 || i == 3;
    }
    if (first != NULL)
        first += strspn(first, " ");
    return first;
}

static bool take_apart(const char *text, struct parts *p)
{
    struct dr_span got[3];
    const char *host, *after;
    unsigned tries = 0;

    for (const char *at = strchr(text, ':'); at != NULL && tries < 8;
            at = strchr(at + 1, ':')) {
        if (at == text || !isdigit((unsigned char)at[1]) || !is_host_byte(at[-1]) ||
                !dr_scan(at, "^:%d:%d [%d]", got) || !small_number(got[0], &p->pid) ||
                !small_number(got[2], &p->dev))
            continue;
        for (host = at; host > text && is_host_byte(host[-1]);)
            host--;
        tries++;
        after = got[2].at + got[2].length + 1;
        p->message = level(after, &p->warn);
        if (p->message == NULL)
            continue;
        p->host = (struct dr_span){ host, (size_t)(at - host) };
        p->where = after;
        return true;
    }
    return false;
}

static uint32_t host_of(struct doctor *d, struct dr_span name)
{
    struct dr_job *job = d->job;
    const uint32_t index = dr_name(d, &job->host_names, name);

    if (index == job->num_hosts) {
        struct dr_job_host *h = DR_PUSH(d, job->hosts, job->num_hosts, job->room_hosts);

        h->name = job->host_names.spans[index].at;
    }
    return index;
}

static uint32_t worker_of(struct doctor *d, const struct parts *p)
{
    struct dr_job *job = d->job;
    const uint32_t key[3] = { host_of(d, p->host), p->pid, p->dev };
    const uint32_t index = dr_name(d, &job->worker_names,
            (struct dr_span){ (const char *)key, sizeof(key) });

    if (index == job->num_workers) {
        struct dr_worker *w =
                DR_PUSH(d, job->workers, job->num_workers, job->room_workers);

        w->host = key[0];
        w->pid = p->pid;
        w->dev = p->dev;
        w->rank = -1;
    }
    return index;
}

/* ---- what a message says ---- */

static bool value_after(const char *text, const char *pattern, uint32_t *out)
{
    struct dr_span got[2];

    return dr_scan(text, pattern, got) && small_number(got[0], out);
}

static void read_init(struct doctor *d, const struct dr_log_line *l)
{
    struct dr_job *job = d->job;
    struct dr_worker *w = &job->workers[l->worker];
    struct dr_init init = { .worker = l->worker, .line = l->line, .comm = DR_NONE };
    struct dr_span got[2];
    uint32_t value;

    if (!dr_scan(l->message, "%<rank %d nranks %d", got) ||
            !small_number(got[0], &init.rank) || !small_number(got[1], &init.nranks) ||
            init.rank >= init.nranks)
        return;
    init.device =
            value_after(l->message, "cudaDev %d", &value) ? (int)(value & 0xffff) : -1;
    init.has_bus =
            dr_scan(l->message, "busId %x", got) && dr_span_hex(got[0], &init.bus);
    if (dr_scan(l->message, "commId %x", got))
        init.comm = dr_name(d, &job->comms, got[0]);
    init.complete = dr_has(l->message, "COMPLETE");
    if (!init.complete && !dr_has(l->message, "START"))
        return;
    if (w->rank < 0)
        job->hosts[w->host].ranks++;
    w->rank = (int)init.rank;
    for (uint32_t i = job->num_inits; i > 0 && job->num_inits - i < 64; i--) {
        struct dr_init *old = &job->inits[i - 1];

        if (init.complete && old->worker == init.worker && old->rank == init.rank &&
                old->nranks == init.nranks && old->comm == init.comm &&
                !old->complete) {
            old->complete = true;
            return;
        }
    }
    *DR_PUSH(d, job->inits, job->num_inits, job->room_inits) = init;
}

static void read_channel(struct doctor *d, const struct dr_log_line *l)
{
    static const struct {
        const char *text;
        enum dr_via via;
    } vias[] = { { "P2P", DR_VIA_P2P }, { "SHM", DR_VIA_SHM }, { "NET", DR_VIA_NET },
        { "direct shared memory", DR_VIA_SHM } };
    struct dr_span got[8];
    struct dr_channel *c;
    uint32_t from, to;
    enum dr_via via = DR_VIA_NONE;

    /* "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x…"; the oldest name no devices */
    if (!dr_scan(l->message, ": %d[%x] -> %d[%x] %*via %*", got)) {
        if (!dr_scan(l->message, ": %d -> %d %*via %*", got))
            return;
        got[5] = got[3];
        got[2] = got[1];
    }
    if (!small_number(got[0], &from) || !small_number(got[2], &to))
        return;
    for (size_t i = 0; via == DR_VIA_NONE && i < sizeof(vias) / sizeof(*vias); i++)
        if (dr_begins(got[5].at, vias[i].text))
            via = vias[i].via;
    if (via == DR_VIA_NONE)
        return;
    c = DR_PUSH(d, d->job->channels, d->job->num_channels, d->job->room_channels);
    c->worker = l->worker;
    c->line = l->line;
    c->from = from;
    c->to = to;
    c->via = via;
}

/* "[0]lo:127.0.0.1<0>", also without "[0]", and IPv6 with its scope. */
static void read_use(struct doctor *d, enum dr_use_kind kind, uint32_t host,
        uint32_t line, struct dr_span word)
{
    const char *at = word.at, *end = at + word.length, *colon, *close;
    struct dr_use *u;

    if (*at == '[') {
        at = memchr(at, ']', word.length);
        if (at == NULL)
            return;
        at++;
    }
    colon = memchr(at, ':', (size_t)(end - at));
    if (colon == NULL || colon == at)
        return;
    close = memchr(colon, '<', (size_t)(end - colon));
    if (close == NULL)
        return; /* cut before its end */
    if (!dr_is_address(colon + 1, (size_t)(close - colon) - 1))
        return;
    u = DR_PUSH(d, d->job->uses, d->job->num_uses, d->job->room_uses);
    u->kind = kind;
    u->host = host;
    u->line = line;
    u->interface = dr_copy(d, at, (size_t)(colon - at));
    u->address = dr_copy(d, colon + 1, (size_t)(close - colon) - 1);
}

static void read_uses(struct doctor *d, const struct dr_log_line *l)
{
    const uint32_t host = d->job->workers[l->worker].host;
    enum dr_use_kind kind = DR_USE_SOCKET;
    struct dr_span word;
    size_t at = 0;

    if (dr_scan(l->message, "^Bootstrap : Using %w", NULL) ||
            dr_scan(l->message, "^Bootstrap: Using %w", NULL))
        kind = DR_USE_BOOTSTRAP;
    else if (!dr_scan(l->message, "^NET/%wUsing %w", NULL) &&
            !dr_scan(l->message, "^NET/%w : Using %w", NULL) &&
            !dr_scan(l->message, "^NET : Using interface %w", NULL) &&
            !dr_scan(l->message, "^NET/%w %*Using %w", NULL))
        return;
    while (dr_word(l->message, &at, &word)) {
        if (dr_span_is(word, "OOB"))
            kind = DR_USE_OOB;
        read_use(d, kind, host, l->line, word);
    }
}

static void read_local_ranks(struct doctor *d, const struct dr_log_line *l)
{
    struct dr_job_host *h = &d->job->hosts[d->job->workers[l->worker].host];
    uint32_t value;

    if (value_after(l->message, "localRanks %d", &value) && value > h->local_ranks)
        h->local_ranks = value;
}

/* ---- versions ---- */

/* "NCCL version 2.19.3+cuda12.2", "RCCL version : 2.27.7-HEAD:d47be10". */
static void read_version(struct doctor *d, uint32_t line, const char *text,
        uint32_t worker)
{
    static const char *const shapes[] = { "^%w version : %d.%d%w",
        "^%w version %d.%d%w", "^%w version : %d.%d", "^%w version %d.%d" };
    struct dr_span got[4];
    struct dr_version *v;
    size_t full, number = 0;
    bool found = false;

    for (size_t i = 0; !found && i < sizeof(shapes) / sizeof(*shapes); i++)
        found = dr_scan(text, shapes[i], got);
    if (!found || got[0].length < 4 ||
            memcmp(got[0].at + got[0].length - 3, "CCL", 3) != 0)
        return;
    full = strcspn(got[1].at, " \t,");
    while (isdigit((unsigned char)got[1].at[number]) || got[1].at[number] == '.')
        number++;
    while (number > 0 && got[1].at[number - 1] == '.')
        number--;
    v = DR_PUSH(d, d->job->versions, d->job->num_versions, d->job->room_versions);
    v->number = dr_copy(d, got[1].at, number);
    v->full = dr_copy(d, got[1].at, full);
    v->worker = worker;
    v->host = worker == DR_NONE ? DR_NONE : d->job->workers[worker].host;
    v->line = line;
    dr_known(d, line);
}

/* A version without a host before it is of the only host that the source names. */
static void name_versions(struct doctor *d)
{
    struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_versions; i++) {
        const struct dr_source *s = &d->sources[d->lines[job->versions[i].line].source];
        uint32_t host = DR_NONE;
        bool one = true;

        if (job->versions[i].host != DR_NONE || i > 256)
            continue;
        for (uint32_t n = s->first; one && n < s->first + s->count; n++) {
            uint32_t other;

            if (job->log_of[n] == DR_NONE)
                continue;
            other = job->workers[job->log[job->log_of[n]].worker].host;
            one = host == DR_NONE || host == other;
            host = other;
        }
        job->versions[i].host = one ? host : DR_NONE;
    }
}

/* ---- all lines ---- */

/* Gloo's device: "tcp, pci=…, iface=eth0, speed=1000, addr=[192.0.2.1]". */
static void read_gloo(struct doctor *d, uint32_t line)
{
    struct dr_span got[3];
    struct dr_use *u;
    size_t length;

    if (!dr_scan(d->lines[line].text, "iface=%w%*addr=[%*]", got) ||
            !dr_is_address(got[2].at, got[2].length))
        return;
    length = strcspn(got[0].at, ", \t");
    u = DR_PUSH(d, d->job->uses, d->job->num_uses, d->job->room_uses);
    u->kind = DR_USE_GLOO;
    u->host = DR_NONE;
    u->line = line;
    u->interface = dr_copy(d, got[0].at, length);
    u->address = dr_copy(d, got[2].at, got[2].length);
    dr_known(d, line);
}

static void read_message(struct doctor *d, uint32_t index)
{
    const struct dr_log_line l = d->job->log[index];

    read_init(d, &l);
    read_channel(d, &l);
    read_uses(d, &l);
    read_local_ranks(d, &l);
    read_version(d, l.line, l.message, l.worker);
}

void dr_read_log(struct doctor *d)
{
    struct dr_job *job = d->job;

    job->log_of = dr_alloc(d, (d->num_lines + 1) * sizeof(*job->log_of));
    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct dr_log_line *l;
        struct parts p = { .warn = false };

        job->log_of[i] = DR_NONE;
        if (d->lines[i].flags & DR_COMMAND)
            continue;
        if (!take_apart(d->lines[i].text, &p)) {
            read_version(d, i, d->lines[i].text, DR_NONE);
            read_gloo(d, i);
            continue;
        }
        const uint32_t worker = worker_of(d, &p);

        l = DR_PUSH(d, job->log, job->num_log, job->room_log);
        *l = (struct dr_log_line){ i, worker, p.where, p.message, p.warn };
        job->workers[worker].last = job->num_log - 1;
        job->workers[worker].last_line = i;
        job->log_of[i] = job->num_log - 1;
        dr_known(d, i);
        read_message(d, job->num_log - 1);
    }
    name_versions(d);
}

const char *dr_after_prefix(const char *text)
{
    static const char *const shapes[] = { "^[%d,%d]<%*>:", "^(%w pid=%d)",
        "^(%w pid=%d, ip=%w)", "^[rank%d]:", "^[rank%d]", "^[default%d]:", "^%w | " };
    struct dr_span got[4];
    static const unsigned char last[] = { 2, 1, 2, 0, 0, 0, 0 };
    static const char *const ends[] = { ">:", ")", ")", "]:", "]", "]:", " |" };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if (!dr_scan(text, shapes[i], got))
            continue;
        text = got[last[i]].at + got[last[i]].length + strlen(ends[i]);
        break;
    }
    return text + strspn(text, " \t");
}

/* ---- for sentences ---- */

const char *dr_worker_name(struct doctor *d, uint32_t worker)
{
    const struct dr_worker *w = &d->job->workers[worker];
    const char *host = d->job->hosts[w->host].name;

    return w->rank >= 0 ? dr_printf(d, "rank %d on %s", w->rank, host)
                        : dr_printf(d, "process %u on %s", w->pid, host);
}

const char *dr_bus_name(struct doctor *d, uint64_t bus)
{
    return dr_printf(d, "%04x:%02x:%02x.%x", (unsigned)(bus >> 20 & 0xffff),
            (unsigned)(bus >> 12 & 0xff), (unsigned)(bus >> 4 & 0xff),
            (unsigned)(bus & 0xf));
}

int dr_job_rank(const struct doctor *d, uint32_t line)
{
    static const char *const shapes[] = { "^[rank%d]", "^rank %d%>", "^rank%d%>",
        "^rank=%d%>", "^Rank %d%>", "(VllmWorker rank=%d ", "(Worker_TP%d ",
        "^[rank %d]", "^[Rank %d]", "Rank %d]", "^[1,%d]<", "(rank=%d," };
    const uint32_t log = d->job->log_of[line];
    struct dr_span got[2];
    uint32_t rank;

    if (log != DR_NONE)
        return d->job->workers[d->job->log[log].worker].rank;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(d->lines[line].text, shapes[i], got) &&
                small_number(got[0], &rank) && rank < INT32_MAX)
            return (int)rank;
    return -1;
}
