/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the ranks of a run: transports, loud lines that mean nothing, peers that left. */
#include "job.h"
#include "rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVLS_BIND_HANG ---- */

static void nvls_bind(struct doctor *d)
{
    const struct dr_job *job = d->job;
    struct dr_finding *f;
    uint32_t stalled = DR_NONE, count = 0;

    if (!dr_stalled(d, &stalled))
        return;
    for (uint32_t i = 0; i < job->num_workers; i++) {
        const struct dr_worker *w = &job->workers[i];

        if (!dr_begins(job->log[w->last].message, "NVLS Bind mem"))
            continue;
        count++;
        f = dr_found(d, DR_NVLS_BIND_HANG, "%s", job->hosts[w->host].name);
        dr_say(d, f,
                "The last words of %u rank%s of %s are about binding multicast memory: "
                "init "
                "stops there.",
                count, count == 1 ? "" : "s", job->hosts[w->host].name);
        dr_because(d, f, w->last_line);
    }
}

/* ---- P2P_ASYMMETRIC ---- */

/* Which device may reach which, of one output. */
#define PEERS_MAX 64

struct peers {
    signed char can[PEERS_MAX][PEERS_MAX]; /* -1: not said */
    uint32_t line[PEERS_MAX][PEERS_MAX];
};

static void clear(struct peers *p)
{
    memset(p->can, -1, sizeof(p->can));
}

static void note(struct peers *p, struct dr_span from, struct dr_span to, bool can,
        uint32_t line)
{
    uint64_t a, b;

    if (!dr_span_u64(from, &a) || !dr_span_u64(to, &b) || a >= PEERS_MAX ||
            b >= PEERS_MAX)
        return;
    p->can[a][b] = can;
    p->line[a][b] = line;
}

static bool read_peer(struct doctor *d, struct peers *p, uint32_t line)
{
    static const char *const calls[] = { "CanAccessPeer(%d, %d)%*%d%e",
        "CanAccessPeer(%d,%d)%*%d%e" };
    const char *text = d->lines[line].text;
    struct dr_span got[6];

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        if (dr_scan(text, calls[i], got) && got[3].length == 1 &&
                strspn(got[2].at, "=:-> ") >= got[2].length &&
                (got[3].at[0] == '0' || got[3].at[0] == '1')) {
            note(p, got[0], got[1], got[3].at[0] == '1', line);
            return true;
        }
    if (dr_scan(text, "Device=%d CAN Access Peer Device=%d", got)) {
        note(p, got[0], got[1], true, line);
    } else if (dr_scan(text, "Device=%d CANNOT Access Peer Device=%d", got)) {
        note(p, got[0], got[1], false, line);
    } else if (dr_scan(text, "eer access from %*(GPU%d) -> %*(GPU%d) : Yes", got)) {
        note(p, got[1], got[3], true, line);
    } else if (dr_scan(text, "eer access from %*(GPU%d) -> %*(GPU%d) : No", got)) {
        note(p, got[1], got[3], false, line);
    } else {
        return false;
    }
    return true;
}

/* The rows below "P2P Connectivity Matrix": "     0     1     0", after a heading of columns.
 * True while the matrix goes on. */
static bool read_matrix(struct doctor *d, struct peers *p, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span row, cell;
    size_t at = 0;
    uint32_t column = 0;

    if (dr_has(text, "D\\D"))
        return true;
    if (!dr_word(text, &at, &row) || strspn(row.at, "0123456789") < row.length)
        return false;
    while (column < PEERS_MAX && dr_word(text, &at, &cell) && cell.length == 1) {
        char name[8];
        const int length = snprintf(name, sizeof(name), "%u", column++);

        note(p, row, (struct dr_span){ name, (size_t)length }, cell.at[0] == '1', line);
    }
    return column > 0;
}

static void judge_peers(struct doctor *d, const struct peers *p)
{
    for (uint32_t a = 0; a < PEERS_MAX; a++)
        for (uint32_t b = 0; b < PEERS_MAX; b++) {
            struct dr_finding *f;

            if (p->can[a][b] != 1 || p->can[b][a] != 0)
                continue;
            f = dr_found(d, DR_P2P_ASYMMETRIC, "devices %u and %u", a < b ? a : b,
                    a < b ? b : a);
            dr_say(d, f,
                    "Device %u may access device %u, but device %u may not access "
                    "device %u: "
                    "peer access exists in one direction only.",
                    a, b, b, a);
            dr_because(d, f, p->line[a][b]);
            dr_because(d, f, p->line[b][a]);
        }
}

static void asymmetric_queries(struct doctor *d)
{
    struct peers *p = dr_alloc(d, sizeof(*p));
    uint32_t command = DR_NONE, source = DR_NONE;
    bool any = false, matrix = false;

    clear(p);
    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (any && (d->lines[i].command != command || d->lines[i].source != source)) {
            judge_peers(d, p);
            clear(p);
            any = matrix = false;
        }
        command = d->lines[i].command;
        source = d->lines[i].source;
        matrix = matrix && read_matrix(d, p, i);
        if (matrix)
            any = true;
        else if (dr_has(d->lines[i].text, "P2P Connectivity Matrix"))
            matrix = true;
        if (!(d->lines[i].flags & DR_COMMAND) && dr_has(d->lines[i].text, "eer") &&
                read_peer(d, p, i)) {
            dr_known(d, i);
            any = true;
        }
    }
    if (any)
        judge_peers(d, p);
}

static int compare_channels(const void *a, const void *b)
{
    const struct dr_channel *const *x = a, *const *y = b;
    const uint32_t xs[3] = { (*x)->from < (*x)->to ? (*x)->from : (*x)->to,
        (*x)->from < (*x)->to ? (*x)->to : (*x)->from, (*x)->line };
    const uint32_t ys[3] = { (*y)->from < (*y)->to ? (*y)->from : (*y)->to,
        (*y)->from < (*y)->to ? (*y)->to : (*y)->from, (*y)->line };

    for (int i = 0; i < 3; i++)
        if (xs[i] != ys[i])
            return xs[i] < ys[i] ? -1 : 1;
    return 0;
}

/* Both directions of one pair, channels[0..count): one always P2P, the other always SHM. */
static void judge_pair(struct doctor *d, const struct dr_channel **channels,
        uint32_t count)
{
    const struct dr_channel *p2p = NULL, *shm = NULL;
    struct dr_finding *f;

    for (uint32_t i = 0; i < count; i++) {
        const struct dr_channel *c = channels[i];

        if (d->lines[c->line].source != d->lines[channels[0]->line].source ||
                d->lines[c->line].command != d->lines[channels[0]->line].command ||
                d->job->workers[c->worker].host !=
                        d->job->workers[channels[0]->worker].host)
            return;
        if (c->via == DR_VIA_P2P)
            p2p = p2p == NULL ? c : p2p;
        else if (c->via == DR_VIA_SHM)
            shm = shm == NULL ? c : shm;
    }
    if (p2p == NULL || shm == NULL)
        return;
    for (uint32_t i = 0; i < count; i++)
        if ((channels[i]->via == DR_VIA_P2P) != (channels[i]->from == p2p->from) ||
                shm->from == p2p->from)
            return;
    f = dr_found(d, DR_P2P_ASYMMETRIC, "ranks %u and %u",
            p2p->from < p2p->to ? p2p->from : p2p->to,
            p2p->from < p2p->to ? p2p->to : p2p->from);
    dr_say(d, f,
            "Rank %u goes to rank %u by P2P, rank %u to rank %u by shared memory: the "
            "two ends "
            "of one pair chose different transports.",
            p2p->from, p2p->to, shm->from, shm->to);
    dr_because(d, f, p2p->line);
    dr_because(d, f, shm->line);
}

static bool same_pair(const struct dr_channel *a, const struct dr_channel *b)
{
    return (a->from == b->from && a->to == b->to) ||
            (a->from == b->to && a->to == b->from);
}

static void asymmetric_channels(struct doctor *d)
{
    const struct dr_job *job = d->job;
    const struct dr_channel **sorted =
            dr_alloc(d, (job->num_channels + 1) * sizeof(const struct dr_channel *));
    uint32_t first = 0;

    for (uint32_t i = 0; i < job->num_channels; i++)
        sorted[i] = &job->channels[i];
    if (job->num_channels > 0)
        qsort(sorted, job->num_channels, sizeof(*sorted), compare_channels);
    for (uint32_t i = 1; i <= job->num_channels; i++)
        if (i == job->num_channels || !same_pair(sorted[first], sorted[i])) {
            judge_pair(d, sorted + first, i - first);
            first = i;
        }
}

/* What fails after it is fall-out. */
static void fold_into_asymmetric(struct doctor *d)
{
    struct dr_finding *f = dr_finding_of(d, DR_P2P_ASYMMETRIC);

    for (uint32_t i = 0; f != NULL && i < d->job->num_failures; i++)
        dr_consequence(d, f, d->job->failures[i].line);
}

/* ---- P2P_IPC_FAILED ---- */

static void ipc_failed(struct doctor *d)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const struct dr_failure *x = &job->failures[i];
        struct dr_finding *f;

        if (x->kind != DR_FAILED_IPC || dr_is_fall_out(d, x) ||
                (dr_has_any_case(d->lines[x->line].text, "invalid device") &&
                        dr_has(d->lines[x->line].text, "Open")))
            continue;
        f = x->rank >= 0
                ? dr_found(d, DR_P2P_IPC_FAILED, "rank %d", x->rank)
                : dr_found(d, DR_P2P_IPC_FAILED, "%s",
                          x->worker != DR_NONE ? dr_worker_name(d, x->worker) : "");
        dr_because(d, f, x->line);
        if (f->summary[0] != 0)
            continue;
        dr_say(d, f,
                "%s cannot %s a handle for its device memory, so its peers cannot map "
                "it.",
                f->subject[0] != 0 ? f->subject : "A rank",
                dr_has(d->lines[x->line].text, "Open") ? "open" : "make");
        for (uint32_t k = 0; k < job->num_failures; k++)
            if (job->failures[k].kind != DR_FAILED_IPC)
                dr_consequence(d, f, job->failures[k].line);
    }
}

void dr_rule_transport(struct doctor *d)
{
    nvls_bind(d);
    asymmetric_queries(d);
    asymmetric_channels(d);
    fold_into_asymmetric(d);
    ipc_failed(d);
}

/* ---- WARN_BENIGN ---- */

/* Pass-through, as the kernel or an IOMMU group says it; never what only looks like it. */
static bool is_passthrough(struct doctor *d)
{
    bool identity = false;

    if (dr_has_finding(d, DR_P2P_IOMMU_TRANSLATED, NULL))
        return false;
    if (dr_has_finding(d, DR_P2P_IOMMU_OK, NULL))
        return true;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, "Default domain type: Translated") ||
                (dr_has(dr_command(d, i), "iommu_group") && dr_begins(text, "DMA")))
            return false;
        identity = identity || dr_has(text, "Default domain type: Passthrough") ||
                (dr_has(dr_command(d, i), "iommu_group") &&
                        strcmp(text, "identity") == 0);
    }
    return identity;
}

static bool is_new_rccl(const struct doctor *d)
{
    const char *version = dr_run_version(d, NULL);
    struct dr_span got[3];
    uint64_t major, minor;

    return version != NULL && dr_scan(version, "^%d.%d", got) &&
            dr_span_u64(got[0], &major) && dr_span_u64(got[1], &minor) &&
            (major > 2 || (major == 2 && minor >= 17));
}

static bool one_host(struct doctor *d)
{
    return dr_num_hosts(d) == 1;
}

static bool fine_grain_is_past(struct doctor *d)
{
    return is_new_rccl(d) || dr_direct_links(d, DR_NONE, NULL) == DR_YES;
}

static const struct benign {
    const char *shape;
    bool (*holds)(struct doctor *d);
    const char *name, *why;
} benigns[] = {
    { "Missing \"iommu=pt\"", is_passthrough, "iommu=pt",
            "The library misses \"iommu=pt\" on the command line; pass-through is in "
            "force "
            "all the same." },
    { "Missing \"amd_iommu=on\"", is_passthrough, "amd_iommu=on",
            "The library misses \"amd_iommu=on\" on the command line; pass-through is "
            "in force "
            "all the same." },
    { "Missing \"HSA_FORCE_FINE_GRAIN_PCIE=1\"", fine_grain_is_past,
            "HSA_FORCE_FINE_GRAIN_PCIE",
            "The library misses HSA_FORCE_FINE_GRAIN_PCIE=1, which this version or "
            "these links "
            "do not need." },
    { "librccl-net.so", one_host, "librccl-net.so",
            "A network plugin is not there; the ranks of one host need none." },
    { "libnccl-net.so", one_host, "libnccl-net.so",
            "A network plugin is not there; the ranks of one host need none." },
    { "Failed to open libibverbs.so", one_host, "libibverbs",
            "libibverbs is not there; the ranks of one host need no RDMA." },
    { "Unable to resolve hostname to a (local) address", one_host, "hostname",
            "The host's name is not resolved and loopback is taken: all ranks are on "
            "this "
            "host." },
};

void dr_rule_benign(struct doctor *d)
{
    for (size_t n = 0; n < sizeof(benigns) / sizeof(*benigns); n++) {
        const struct benign *b = &benigns[n];
        bool asked = false;

        for (uint32_t i = 0; i < d->num_lines; i++) {
            struct dr_finding *f;

            if ((d->lines[i].flags & DR_COMMAND) ||
                    !dr_has(d->lines[i].text, b->shape) ||
                    (n > 2 && n < 6 && d->job->log_of[i] == DR_NONE))
                continue;
            if (!asked && !b->holds(d))
                break;
            asked = true;
            f = dr_found(d, DR_WARN_BENIGN, "%s", b->name);
            dr_say(d, f, "%s", b->why);
            if (f->because.count < 4)
                dr_because(d, f, i);
        }
    }
}

/* ---- PEER_EXITED ---- */

/* Words with which a program, a shell or a launcher says that a process ended. */
static bool is_end(const char *text)
{
    static const char *const shapes[] = { "%<exit %d%e", "exit status %f",
        "exit status: %f", "exit code %f", "exit code: %f", "exitcode: %f",
        "exitcode %f", "exited with", "xited normally", "killed by signal",
        "%<Killed%e", "%<Killed process %d", "egmentation fault", "%<Terminated%e",
        "with code %f", "%<returned %f%e", "%<signal %d%>", "%<finished%>",
        "%<exiting%>", "%<leaving%>", "%<shutting down%>", "Destroy COMPLETE",
        "%<all done%>" };

    if (dr_has(text, "onnection") || dr_has(text, "closing signal"))
        return false;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(text, shapes[i], NULL))
            return true;
    return false;
}

/* Who the peer is: its address, host name and rank, as far as the text joins them. */
struct peer {
    const char *address, *host;
    int rank; /* -1 */
};

/* "rank 2  node-c 192.0.2.35", "rank 2 of 4 on 192.0.2.35": not what others report of it. */
static int rank_on(const struct doctor *d, const char *address)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *at = strstr(text, address);
        struct dr_span got[1];
        uint64_t rank;

        if (at == NULL || dr_has(text, "onnection") || dr_has(text, "rror") ||
                isalnum((unsigned char)at[strlen(address)]))
            continue;
        if (dr_scan(text, "%<rank %d%>", got) && dr_span_u64(got[0], &rank) &&
                rank < INT32_MAX)
            return (int)rank;
    }
    return -1;
}

static struct peer peer_named(struct doctor *d, const char *address)
{
    struct peer p = { address, dr_host_with(d, address), rank_on(d, address) };
    const struct dr_job *job = d->job;

    if (p.host == NULL && !dr_is_address(address, strlen(address))) {
        /* "n01.cluster": the log's host may be the short name */
        char *name = dr_printf(d, "%s", address);

        name[strcspn(name, ".")] = 0;
        p.host = name;
    }
    for (uint32_t i = 0; p.rank < 0 && p.host != NULL && i < job->num_workers; i++)
        if (strcmp(job->hosts[job->workers[i].host].name, p.host) == 0 &&
                job->hosts[job->workers[i].host].ranks == 1)
            p.rank = job->workers[i].rank;
    return p;
}

/* Whether a line speaks of the peer: by its rank, address, host, or where it was read. */
static bool is_of(struct doctor *d, uint32_t line, const struct peer *p)
{
    static const char *const ranks[] = { "rank %d%>", "rank: %d%>", "rank%d%>",
        "Rank %d%>" };
    const char *text = d->lines[line].text, *place;
    struct dr_span got[1];
    uint64_t rank;

    if (p->rank >= 0 && dr_job_rank(d, line) == p->rank)
        return true;
    for (size_t i = 0; p->rank >= 0 && i < sizeof(ranks) / sizeof(*ranks); i++)
        if (dr_scan(text, ranks[i], got))
            return dr_span_u64(got[0], &rank) && rank == (uint64_t)p->rank;
    if (dr_has(text, p->address) || (p->host != NULL && dr_has(text, p->host)))
        return true;
    place = dr_place(d, line);
    return place[0] != 0 &&
            ((p->host != NULL && strcmp(place, p->host) == 0) ||
                    strcmp(place, p->address) == 0);
}

#define ENDS_MAX 256

/* Lines with which something ended. */
struct ends {
    uint32_t lines[ENDS_MAX], count;
};

static void read_ends(const struct doctor *d, struct ends *e)
{
    for (uint32_t i = 0; i < d->num_lines && e->count < ENDS_MAX; i++)
        if (!(d->lines[i].flags & (DR_COMMAND | DR_REMARK)) && is_end(d->lines[i].text))
            e->lines[e->count++] = i;
}

/* The line that shows how the peer ended, not after it was missed, or DR_NONE. */
static uint32_t end_of(struct doctor *d, const struct ends *e, const struct peer *p,
        double missed)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const double when = dr_line_time(d->lines[e->lines[i]].text);

        if ((when < 0 || missed < 0 || when <= missed + 1) && is_of(d, e->lines[i], p))
            return e->lines[i];
    }
    return DR_NONE;
}

static bool any_cause(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->job->num_failures; i++)
        if (d->job->failures[i].kind < DR_FAILED_CLOSED)
            return true;
    return false;
}

static void peer_left(struct doctor *d, const struct peer *p, uint32_t end)
{
    const struct dr_job *job = d->job;
    struct dr_finding *f = p->rank >= 0
            ? dr_found(d, DR_PEER_EXITED, "rank %d, %s", p->rank, p->address)
            : dr_found(d, DR_PEER_EXITED, "%s", p->address);

    dr_say(d, f, "%s (%s) had left while others still needed it.",
            p->rank >= 0              ? dr_printf(d, "Rank %d", p->rank)
                    : p->host != NULL ? p->host
                                      : "The peer",
            p->rank >= 0 && p->host != NULL
                    ? dr_printf(d, "%s, %s", p->host, p->address)
                    : p->address);
    dr_because(d, f, end);
    for (uint32_t i = 0; i < job->num_failures; i++)
        if (strcmp(job->failures[i].address, p->address) == 0)
            dr_because(d, f, job->failures[i].line);
        else if (job->failures[i].kind >= DR_FAILED_CLOSED)
            dr_consequence(d, f, job->failures[i].line);
}

void dr_rule_peer_exited(struct doctor *d)
{
    struct dr_job *job = d->job;
    struct ends ends = { .count = 0 };
    bool done = false;

    if (job->num_failures == 0 || any_cause(d))
        return;
    read_ends(d, &ends);
    for (uint32_t i = 0; i < job->num_failures && i < 64 && !done; i++) {
        const struct dr_failure *x = &job->failures[i];
        struct peer p;
        uint32_t end;

        if (x->kind != DR_FAILED_CLOSED || x->address[0] == 0)
            continue;
        p = peer_named(d, x->address);
        end = end_of(d, &ends, &p, x->when);
        done = end != DR_NONE;
        if (done)
            peer_left(d, &p, end);
        else if (job->missing_peer == NULL)
            job->missing_peer = p.rank >= 0
                    ? dr_printf(d, "rank %d (%s)", p.rank, p.address)
                    : p.address;
    }
    if (done)
        job->missing_peer = NULL;
}

const char *dr_missing_peer(const struct doctor *d)
{
    return d->job->missing_peer;
}
