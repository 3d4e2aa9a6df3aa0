/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about who is who: GPUs, device lists, host names, versions, worlds. */
#include "job.h"
#include "rules.h"

#include <string.h>

/* ---- DUPLICATE_GPU ---- */

static void duplicate(struct doctor *d, const char *host, uint64_t bus, bool bus_known,
        uint32_t a, uint32_t b, uint32_t line)
{
    struct dr_finding *f = bus_known
            ? dr_found(d, DR_DUPLICATE_GPU, "%s on %s", dr_bus_name(d, bus), host)
            : dr_found(d, DR_DUPLICATE_GPU, "%s", host);

    if (f->summary[0] == 0 && bus_known)
        dr_say(d, f, "Rank %u and rank %u of %s use the same GPU, %s (bus id %llx).", a,
                b, host, dr_bus_name(d, bus), (unsigned long long)bus);
    else if (f->summary[0] == 0)
        dr_say(d, f, "Rank %u and rank %u of %s use the same GPU.", a, b, host);
    dr_because(d, f, line);
}

/* The library says so. */
static void duplicates_said(struct doctor *d)
{
    struct dr_job *job = d->job;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *host = "this host";
        struct dr_span got[4];
        uint64_t bus = 0, a = 0, b = 0;
        bool known;

        if (!dr_scan(text,
                    "Duplicate GPU detected : rank %d and rank %d both on %*device %x",
                    got) ||
                !dr_span_u64(got[0], &a) || !dr_span_u64(got[1], &b))
            continue;
        known = dr_span_hex(got[3], &bus);
        if (job->log_of[i] != DR_NONE)
            host = job->hosts[job->workers[job->log[job->log_of[i]].worker].host].name;
        duplicate(d, host, bus, known, (uint32_t)b, (uint32_t)a, i);
    }
}

/* "0x3b", "0000:3b:00" or "0000:3b:00.0" in the list of a test, as a whole address. */
static const char *listed_bus(struct doctor *d, struct dr_span text)
{
    char whole[DR_BDF_MAX];
    uint64_t bus;

    if (text.length < 5 && dr_span_hex(text, &bus))
        return dr_bus_name(d, bus << 12);
    if (dr_span_bdf(text, whole))
        return dr_copy(d, whole, strlen(whole));
    return dr_copy(d, text.at, text.length);
}

/* "#  Rank  1 Group  0 Pid 81002 on n12 device  0 [0x3b] …": the list of a test, in which
 * two ranks of one host have one bus id. */
static void duplicates_listed(struct doctor *d)
{
    struct dr_names places = { 0 };
    uint32_t *lines = NULL, num_lines = 0, room = 0, next = 0;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct dr_span got[5];
        struct dr_finding *f;
        const char *place;
        uint64_t rank;
        uint32_t index;

        if (!dr_scan(d->lines[i].text, "^# Rank %d %*on %w device %d [%*]", got) ||
                !dr_span_u64(got[0], &rank) || rank >= 65536)
            continue;
        if (rank != next) { /* another list */
            places = (struct dr_names){ 0 };
            num_lines = 0;
        }
        next = (uint32_t)rank + 1;
        place = dr_printf(d, "%s on %.*s", listed_bus(d, got[4]), (int)got[2].length,
                got[2].at);
        index = dr_name(d, &places, (struct dr_span){ place, strlen(place) });
        if (index == num_lines) {
            *DR_PUSH(d, lines, num_lines, room) = i;
            continue;
        }
        f = dr_found(d, DR_DUPLICATE_GPU, "%s", place);
        if (f->summary[0] == 0)
            dr_say(d, f, "Two ranks use the same GPU, %s; one of them is rank %u.",
                    place, (unsigned)rank);
        dr_because(d, f, lines[index]);
        dr_because(d, f, i);
    }
}

/* How many ranks of communicators without an id, of this size, are in the text. */
static uint32_t count_unnamed(const struct dr_job *job, uint32_t nranks)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->num_inits && i < 4096; i++)
        count += job->inits[i].comm == DR_NONE && job->inits[i].nranks == nranks;
    return count;
}

/* Two ranks of one communicator on one host with one bus id. */
static void duplicates_seen(struct doctor *d)
{
    struct dr_job *job = d->job;
    struct dr_names seen = { 0 };
    uint32_t *first = dr_alloc(d, (job->num_inits + 1) * sizeof(*first));

    for (uint32_t i = 0; i < job->num_inits; i++) {
        const struct dr_init *init = &job->inits[i];
        const uint32_t host = job->workers[init->worker].host;
        const uint32_t key[5] = { host, init->comm, (uint32_t)init->bus,
            (uint32_t)(init->bus >> 32), init->nranks };
        uint32_t index;

        /* old libraries name no communicator: then there must be one only */
        if (!init->has_bus ||
                (init->comm == DR_NONE &&
                        (i >= 4096 || count_unnamed(job, init->nranks) > init->nranks)))
            continue;
        index = dr_name(d, &seen, (struct dr_span){ (const char *)key, sizeof(key) });
        if (index + 1 == seen.count && first[index] == 0) {
            first[index] = i + 1;
        } else if (job->inits[first[index] - 1].rank != init->rank &&
                (init->comm != DR_NONE ||
                        job->inits[first[index] - 1].worker != init->worker)) {
            const struct dr_init *other = &job->inits[first[index] - 1];

            duplicate(d, job->hosts[host].name, init->bus, true, other->rank,
                    init->rank, other->line);
            dr_because(d,
                    dr_found(d, DR_DUPLICATE_GPU, "%s on %s", dr_bus_name(d, init->bus),
                            job->hosts[host].name),
                    init->line);
        }
    }
}

/* ---- VISIBLE_DEVICES_ASYMMETRIC ---- */

/* What a rank says of its device list, or of one of its devices. */
struct view {
    uint32_t rank, line;
    struct dr_span what, value; /* "HIP_VISIBLE_DEVICES", or the ordinal; its value */
};

#define VIEWS_MAX 512

struct views {
    struct view all[VIEWS_MAX];
    uint32_t count;
};

static void add_view(struct views *v, int rank, uint32_t line, struct dr_span what,
        struct dr_span value)
{
    if (rank >= 0 && v->count < VIEWS_MAX)
        v->all[v->count++] = (struct view){ (uint32_t)rank, line, what, value };
}

/* "rank 1 HIP_VISIBLE_DEVICES=3", "[rank1]: CUDA_VISIBLE_DEVICES: 3". */
static void read_lists(struct views *v, const char *text, int rank, uint32_t line)
{
    static const char suffix[] = "_VISIBLE_DEVICES";

    for (const char *at = strstr(text, suffix); at != NULL;
            at = strstr(at + 1, suffix)) {
        const char *from = at, *value = at + sizeof(suffix) - 1;
        size_t length, size;

        while (from > text && from[-1] >= 'A' && from[-1] <= 'Z')
            from--;
        if (*value != '=' && *value != ':')
            continue;
        size = (size_t)(value - from);
        value += 1 + strspn(value + 1, " \"'");
        length = strspn(value, "0123456789,-abcdefABCDEFGPUMIgu");
        add_view(v, rank, line, (struct dr_span){ from, size },
                (struct dr_span){ value, length });
    }
}

/* The only rank whose log is in the same file, or -1. */
static int rank_of_source(const struct doctor *d, uint32_t line)
{
    const struct dr_job *job = d->job;
    int rank = -1;

    for (uint32_t i = 0; i < job->num_inits && i < 1024; i++) {
        if (d->lines[job->inits[i].line].source != d->lines[line].source)
            continue;
        if (rank >= 0 && rank != (int)job->inits[i].rank)
            return -1;
        rank = (int)job->inits[i].rank;
    }
    return rank;
}

static void read_views(struct doctor *d, struct views *v)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        struct dr_span got[4];
        int rank;

        if ((d->lines[i].flags & DR_COMMAND) || d->job->log_of[i] != DR_NONE)
            continue;
        rank = dr_job_rank(d, i);
        if (rank < 0 && dr_has(text, "_VISIBLE_DEVICES"))
            rank = rank_of_source(d, i);
        if (rank < 0)
            continue;
        read_lists(v, text, rank, i);
        if (dr_scan(text, "ordinal %d -> %b", got) ||
                dr_scan(text, "device %d -> %b", got) ||
                dr_scan(text, "cuda:%d -> %b", got) ||
                dr_scan(text, "device %d: %b", got))
            add_view(v, rank, i, got[0], got[1]);
    }
    for (uint32_t i = 0; i < d->job->num_inits; i++) {
        const struct dr_init *init = &d->job->inits[i];
        struct dr_span got[1], bus[1];

        if (init->device >= 0 && dr_num_hosts(d) == 1 &&
                dr_scan(d->lines[init->line].text, "cudaDev %d", got) &&
                dr_scan(d->lines[init->line].text, "busId %x", bus))
            add_view(v, (int)init->rank, init->line, got[0], bus[0]);
    }
}

static bool same_span(struct dr_span a, struct dr_span b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* A query or an opening of a peer's device that failed for an invalid device. */
static uint32_t failed_peer(const struct doctor *d)
{
    static const char *const calls[] = { "CanAccessPeer", "annot open peer",
        "IpcOpenMemHandle", "EnablePeerAccess", "peer access" };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        bool call = false;

        for (size_t n = 0; n < sizeof(calls) / sizeof(*calls); n++)
            call = call || dr_has(text, calls[n]);
        if (call &&
                (dr_has_any_case(text, "invalid device") ||
                        dr_has_any_case(text, "InvalidDevice") ||
                        dr_has(text, "annot open peer")))
            return i;
    }
    return DR_NONE;
}

static void visible_devices(struct doctor *d)
{
    const uint32_t failed = failed_peer(d);
    struct views *v;

    if (failed == DR_NONE)
        return;
    v = dr_alloc(d, sizeof(*v));
    read_views(d, v);
    for (uint32_t i = 1; i < v->count; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct view *a = &v->all[k], *b = &v->all[i];
            struct dr_finding *f;

            if (a->rank == b->rank || !same_span(a->what, b->what) ||
                    same_span(a->value, b->value))
                continue;
            f = dr_found(d, DR_VISIBLE_DEVICES_ASYMMETRIC, "rank %u", b->rank);
            if (f->summary[0] == 0)
                dr_say(d, f,
                        "Rank %u and rank %u of one host see different device lists: "
                        "%.*s %.*s for rank %u, %.*s for rank %u. The same number "
                        "means "
                        "two GPUs.",
                        a->rank, b->rank, (int)a->what.length, a->what.at,
                        (int)a->value.length, a->value.at, a->rank,
                        (int)b->value.length, b->value.at, b->rank);
            dr_because(d, f, a->line);
            dr_because(d, f, b->line);
            dr_because(d, f, failed);
            return;
        }
}

/* ---- HOSTNAME_NOT_UNIQUE ---- */

static bool same_family(const char *a, const char *b)
{
    return (strchr(a, ':') == NULL) == (strchr(b, ':') == NULL);
}

static void two_addresses(struct doctor *d)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 1; i < job->num_uses && i < 2048; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct dr_use *a = &job->uses[k], *b = &job->uses[i];
            struct dr_finding *f;

            if (a->kind != DR_USE_BOOTSTRAP || b->kind != DR_USE_BOOTSTRAP ||
                    a->host != b->host || strcmp(a->interface, b->interface) != 0 ||
                    strcmp(a->address, b->address) == 0 ||
                    !same_family(a->address, b->address))
                continue;
            f = dr_found(d, DR_HOSTNAME_NOT_UNIQUE, "%s", job->hosts[a->host].name);
            if (f->summary[0] == 0)
                dr_say(d, f,
                        "Two machines call themselves %s: %s has the address %s on one "
                        "and %s on the other.",
                        job->hosts[a->host].name, a->interface, a->address, b->address);
            dr_because(d, f, a->line);
            dr_because(d, f, b->line);
            break;
        }
}

static bool is_boot_id(const char *text)
{
    static const unsigned char dashes[] = { 8, 13, 18, 23 };

    if (strlen(text) != 36 || strspn(text, "0123456789abcdef-") != 36)
        return false;
    for (size_t i = 0; i < sizeof(dashes); i++)
        if (text[dashes[i]] != '-')
            return false;
    return true;
}

/* A boot id, the host name it was read with, and how the machine was reached. */
struct boot {
    const char *name, *id, *place;
    uint32_t line;
};

#define BOOTS_MAX 256

/* `hostname; cat …/boot_id`, at a prompt or through ssh. */
static uint32_t read_boots(struct doctor *d, struct boot boots[BOOTS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 1; i < d->num_lines && count < BOOTS_MAX; i++) {
        const struct dr_line *before = &d->lines[i - 1];
        struct boot b = { NULL, d->lines[i].text, "", i };

        if (!is_boot_id(b.id) || d->lines[i].command == DR_NONE ||
                !dr_has(dr_command(d, i), "boot_id"))
            continue;
        b.place = dr_place(d, i);
        b.name = (before->flags & DR_COMMAND) || strchr(before->text, ' ') != NULL
                ? b.place
                : before->text;
        if (b.name[0] != 0 && !is_boot_id(b.name))
            boots[count++] = b;
    }
    return count;
}

/* Two ids of one name are two machines if they were read in one go or by two addresses,
 * or if ranks log under the name; else the machine may have been started again. */
static bool two_machines(const struct doctor *d, const struct boot *a,
        const struct boot *b)
{
    const struct dr_job *job = d->job;
    const uint32_t host = dr_name_find(&job->host_names,
            (struct dr_span){ a->name, strlen(a->name) });

    if (strcmp(a->name, b->name) != 0 || strcmp(a->id, b->id) == 0)
        return false;
    if (d->lines[a->line].command == d->lines[b->line].command ||
            strcmp(a->place, b->place) != 0)
        return true;
    return host != DR_NONE && job->hosts[host].ranks > 1 &&
            d->lines[a->line].source != d->lines[b->line].source;
}

static void two_boots(struct doctor *d)
{
    struct boot boots[BOOTS_MAX];
    const uint32_t count = read_boots(d, boots);

    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++) {
            struct dr_finding *f;

            if (!two_machines(d, &boots[k], &boots[i]))
                continue;
            f = dr_found(d, DR_HOSTNAME_NOT_UNIQUE, "%s", boots[i].name);
            if (f->summary[0] == 0)
                dr_say(d, f, "Two machines call themselves %s: their boot ids differ.",
                        boots[i].name);
            dr_because(d, f, boots[k].line);
            dr_because(d, f, boots[i].line);
            break;
        }
}

/* ---- VERSION_MISMATCH_ACROSS_RANKS ---- */

/* Whether two places have ranks in one communicator, or none of one is known; a place is a
 * process that logged its version, or the whole host of a version without a process. */
static bool is_at(const struct dr_job *job, const struct dr_init *init,
        const struct dr_version *v, bool by_worker)
{
    return init->comm != DR_NONE &&
            (by_worker ? init->worker == v->worker
                       : job->workers[init->worker].host == v->host);
}

static bool one_run(const struct dr_job *job, const struct dr_version *a,
        const struct dr_version *b)
{
    const bool by_worker = a->host == b->host;
    bool known_a = false, known_b = false;

    if (by_worker &&
            (a->worker == DR_NONE || b->worker == DR_NONE || a->worker == b->worker))
        return false;
    for (uint32_t i = 0; i < job->num_inits && i < 1024; i++) {
        known_b = known_b || is_at(job, &job->inits[i], b, by_worker);
        if (!is_at(job, &job->inits[i], a, by_worker))
            continue;
        known_a = true;
        for (uint32_t k = 0; k < job->num_inits && k < 1024; k++)
            if (is_at(job, &job->inits[k], b, by_worker) &&
                    job->inits[k].comm == job->inits[i].comm)
                return true;
    }
    return !by_worker && (!known_a || !known_b);
}

/* On how many hosts a version runs. */
static uint32_t hosts_with(const struct dr_job *job, const char *number)
{
    uint32_t count = 0, last = DR_NONE;

    for (uint32_t i = 0; i < job->num_versions; i++) {
        const struct dr_version *v = &job->versions[i];

        if (v->host == DR_NONE || v->host == last || strcmp(v->number, number) != 0)
            continue;
        last = v->host;
        count++;
    }
    return count;
}

static struct dr_finding *versions_differ(struct doctor *d)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 1; i < job->num_versions && i < 128; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct dr_version *a = &job->versions[k], *b = &job->versions[i];
            const struct dr_version *odd = b;
            struct dr_finding *f;

            if (a->host == DR_NONE || b->host == DR_NONE ||
                    strcmp(a->number, b->number) == 0 || !one_run(job, a, b))
                continue;
            if (hosts_with(job, a->number) < hosts_with(job, b->number))
                odd = a;
            f = dr_found(d, DR_VERSION_MISMATCH_ACROSS_RANKS, "%s",
                    job->hosts[odd->host].name);
            if (f->summary[0] == 0)
                dr_say(d, f,
                        "Ranks run different library versions: %s on %s, %s on %s.",
                        a->full, job->hosts[a->host].name, b->full,
                        job->hosts[b->host].name);
            dr_because(d, f, a->line);
            dr_because(d, f, b->line);
            return f;
        }
    return NULL;
}

static void versions(struct doctor *d)
{
    const struct dr_job *job = d->job;
    struct dr_finding *f = versions_differ(d);

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const struct dr_failure *x = &job->failures[i];
        struct dr_span got[2];

        if (x->kind == DR_FAILED_CLOSED && f != NULL)
            dr_consequence(d, f, x->line);
        if (x->kind != DR_FAILED_TRUNCATED ||
                !dr_scan(d->lines[x->line].text,
                        "essage truncated : received %d bytes instead of %d", got))
            continue;
        if (f == NULL) {
            f = dr_found(d, DR_VERSION_MISMATCH_ACROSS_RANKS, "%s",
                    x->worker != DR_NONE ? dr_worker_name(d, x->worker) : "");
            dr_say(d, f,
                    "The first messages of two ranks differ in size (%.*s bytes "
                    "instead of "
                    "%.*s): they run different library versions or builds.",
                    (int)got[0].length, got[0].at, (int)got[1].length, got[1].at);
        }
        dr_because(d, f, x->line);
    }
}

/* ---- LAUNCHER_WORLD_SIZE_1 ---- */

/* Whether the process has a larger communicator too, so that this one is a subgroup. */
static bool has_larger(const struct dr_job *job, const struct dr_init *init)
{
    for (uint32_t i = 0; i < job->num_inits && i < 4096; i++)
        if (job->inits[i].nranks > 1 &&
                job->workers[job->inits[i].worker].pid ==
                        job->workers[init->worker].pid &&
                job->workers[job->inits[i].worker].host ==
                        job->workers[init->worker].host)
            return true;
    return false;
}

static void worlds_of_one(struct doctor *d)
{
    const struct dr_job *job = d->job;
    const struct dr_init *first = NULL;

    for (uint32_t i = 0; i < job->num_inits && i < 1024; i++) {
        const struct dr_init *init = &job->inits[i];
        struct dr_finding *f;

        if (init->nranks != 1 || init->comm == DR_NONE || has_larger(job, init))
            continue;
        if (first == NULL) {
            first = init;
            continue;
        }
        if (init->comm == first->comm || init->worker == first->worker ||
                (d->lines[init->line].source == d->lines[first->line].source &&
                        d->lines[init->line].command != d->lines[first->line].command))
            continue;
        f = dr_found(d, DR_LAUNCHER_WORLD_SIZE_1, "%s",
                job->hosts[job->workers[first->worker].host].name);
        if (f->summary[0] == 0)
            dr_say(d, f,
                    "Process %u of %s and process %u of %s are each rank 0 of a world "
                    "of one, "
                    "with communicators of their own: the launcher gave out no ranks.",
                    job->workers[first->worker].pid,
                    job->hosts[job->workers[first->worker].host].name,
                    job->workers[init->worker].pid,
                    job->hosts[job->workers[init->worker].host].name);
        dr_because(d, f, first->line);
        dr_because(d, f, init->line);
    }
}

void dr_rule_identity(struct doctor *d)
{
    duplicates_said(d);
    duplicates_listed(d);
    duplicates_seen(d);
    visible_devices(d);
    two_addresses(d);
    two_boots(d);
    versions(d);
    worlds_of_one(d);
}
