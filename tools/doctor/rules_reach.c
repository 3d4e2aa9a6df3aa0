/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about peers that cannot be reached: by a port, by a name, by RDMA. */
#include "job.h"
#include "lines.h"
#include "rules.h"

#include <string.h>

/* ---- STALE_RENDEZVOUS ---- */

/* The line that says the meeting point is a file, or DR_NONE. */
static uint32_t file_init(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (dr_has(d->lines[i].text, "file://"))
            return i;
    return DR_NONE;
}

static bool day_of(const char *text, const char *shape, double *day)
{
    struct dr_span got[5];

    if (!dr_scan(text, shape, got) || got[0].length != 4)
        return false;
    *day = (dr_span_double(got[0]) * 12 + dr_span_double(got[1])) * 31 +
            dr_span_double(got[2]);
    return true;
}

/* The day of a file in what `stat` or `ls` prints: "2025-05-01 12:00", "May  1 2024", and
 * "May  1 12:00", which is the last one before the day of the job at the latest. */
static bool file_day_of(const char *text, double job_day, double *day)
{
    static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    const double year = 12 * 31;
    struct dr_span got[3];

    if (day_of(text, "%<%d-%d-%d %d:%d", day))
        return true;
    for (unsigned m = 0; m < sizeof(months) / sizeof(*months); m++) {
        const char *at = strstr(text, months[m]);

        if (at == NULL || !dr_scan(at + 3, "^ %d %d", got))
            continue;
        *day = (m + 1) * 31 + dr_span_double(got[0]);
        if (got[1].length == 4)
            *day += dr_span_double(got[1]) * year;
        else
            while (*day + year <= job_day)
                *day += year;
        return true;
    }
    return false;
}

/* The line where `stat` or `ls` shows the file to be older than the job, or DR_NONE. */
static uint32_t old_file(const struct doctor *d, uint32_t init)
{
    struct dr_span path;
    double job_day = 0, file_day;
    bool known = false;
    char name[512];

    if (init == DR_NONE || !dr_scan(d->lines[init].text, "file://%w", &path))
        return DR_NONE;
    path.length = strcspn(path.at, "\"'), \t;?");
    if (path.length == 0 || path.length >= sizeof(name))
        return DR_NONE;
    memcpy(name, path.at, path.length);
    name[path.length] = 0;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        const char *command = dr_command(d, i);

        if ((!dr_has(command, name) || dr_has(command, "file://")) &&
                (day_of(text, "^%d-%d-%d %d:%d:", &job_day) ||
                        day_of(text, "^[%d-%d-%d %d:%d:", &job_day)))
            known = true;
    }
    for (uint32_t i = 0; known && i < d->num_lines; i++)
        if (!(d->lines[i].flags & DR_COMMAND) &&
                (dr_has(dr_command(d, i), name) || dr_has(d->lines[i].text, name)) &&
                file_day_of(d->lines[i].text, job_day, &file_day) &&
                file_day < job_day && i != init)
            return i;
    return DR_NONE;
}

/* How many hosts show their addresses, and whether one of them is @p address. */
static uint32_t shown_addresses(const struct doctor *d, const char *address,
        bool *is_shown)
{
    const struct dr_job *job = d->job;
    uint32_t count = 0;

    *is_shown = false;
    for (uint32_t i = 0; i < job->num_addresses; i++) {
        *is_shown = *is_shown || strcmp(job->addresses[i].address, address) == 0;
        count += job->addresses[i].interface[0] != 0 &&
                dr_is_global(job->addresses[i].address);
    }
    for (uint32_t i = 0; i < job->num_uses; i++) {
        bool again = false;

        *is_shown = *is_shown || strcmp(job->uses[i].address, address) == 0;
        for (uint32_t k = 0; k < job->num_addresses && !again; k++)
            again = strcmp(job->addresses[k].address, job->uses[i].address) == 0;
        for (uint32_t k = 0; k < i && !again; k++)
            again = job->uses[k].host == job->uses[i].host;
        count += !again && dr_is_global(job->uses[i].address);
    }
    return count;
}

static bool is_stale(struct doctor *d, const struct dr_reach *r, uint32_t init)
{
    const uint32_t old = old_file(d, init);
    bool shown;
    const uint32_t hosts = shown_addresses(d, r->address, &shown);
    struct dr_finding *f;

    if (shown || init == DR_NONE || hosts == 0 ||
            (old == DR_NONE && hosts < 2 && r->end != DR_REACH_REFUSED))
        return false;
    f = dr_found(d, DR_STALE_RENDEZVOUS, "%s", r->address);
    dr_say(d, f,
            "A rank dials %s, which belongs to none of the hosts shown: the meeting "
            "file is "
            "from an earlier run.",
            r->address);
    dr_because(d, f, r->line);
    dr_because(d, f, init);
    dr_because(d, f, old);
    return true;
}

/* ---- GLOO_HOSTNAME_LOOPBACK ---- */

static void gloo_loopback(struct doctor *d)
{
    const struct dr_job *job = d->job;
    struct dr_finding *f = NULL;
    uint32_t warning = DR_NONE;
    const char *address = NULL;

    if (dr_num_hosts(d) < 2)
        return;
    for (uint32_t i = 0; i < d->num_lines && warning == DR_NONE; i++)
        if (dr_has(d->lines[i].text, "Unable to resolve hostname to a (local) address"))
            warning = i;
    for (uint32_t i = 0; i < job->num_reaches && address == NULL; i++)
        if (job->reaches[i].gloo && dr_is_loopback(job->reaches[i].address))
            address = job->reaches[i].address;
    if (warning == DR_NONE && address == NULL)
        return;
    f = dr_found(d, DR_GLOO_HOSTNAME_LOOPBACK, "%s",
            address != NULL ? address : "loopback");
    dr_say(d, f,
            "Gloo tells the other hosts to dial %s, its own loopback: the host's name "
            "resolves "
            "to it.",
            address != NULL ? address : "127.0.0.1");
    dr_because(d, f, warning);
    for (uint32_t i = 0; i < job->num_reaches && f->because.count < 8; i++)
        if (job->reaches[i].gloo && dr_is_loopback(job->reaches[i].address))
            dr_because(d, f, job->reaches[i].line);
    for (uint32_t i = 0; i < job->num_failures; i++)
        if (job->failures[i].kind == DR_FAILED_FALL_OUT)
            dr_consequence(d, f, job->failures[i].line);
}

/* ---- FIREWALL_OR_ROUTE ---- */

/* Whether the address is one that ranks dial or listen on. */
static bool is_participant(struct doctor *d, const char *address)
{
    static const char *const variables[] = { "MASTER_ADDR", "PET_RDZV_ENDPOINT" };
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (job->reaches[i].how == DR_REACH_RANK &&
                strcmp(job->reaches[i].address, address) == 0)
            return true;
    for (uint32_t i = 0; i < job->num_uses; i++)
        if (strcmp(job->uses[i].address, address) == 0)
            return true;
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *value = dr_variable(d, variables[i], NULL);

        if (value != NULL && dr_begins(value, address))
            return true;
    }
    return false;
}

static bool is_unreachable(enum dr_reach_end end)
{
    return end == DR_REACH_NO_ROUTE || end == DR_REACH_TIMEOUT || end == DR_REACH_ABORT;
}

static const struct dr_failure *failure_at(const struct doctor *d, uint32_t line)
{
    for (uint32_t i = 0; i < d->job->num_failures; i++)
        if (d->job->failures[i].line == line)
            return &d->job->failures[i];
    return NULL;
}

/* Whether an address that Gloo dials is of the network of the hosts that are shown, two or
 * more, and of none of them: whoever had it before, it is no host of this run. */
static bool is_strange(const struct doctor *d, const struct dr_reach *r)
{
    bool shown, near = false;
    const uint32_t hosts = shown_addresses(d, r->address, &shown);

    for (uint32_t i = 0; !near && i < d->job->num_uses; i++)
        near = dr_same_network(d->job->uses[i].address, r->address, 24);
    return r->gloo && !shown && hosts >= 2 && near;
}

/* A dial that is tried again and again is as good as ended when it never succeeds. */
static bool never_succeeds(const struct doctor *d, const struct dr_reach *r)
{
    const struct dr_job *job = d->job;
    const uint32_t log = job->log_of[r->line];
    uint32_t tries = 0;

    for (uint32_t i = 0; i < job->num_reaches; i++)
        tries += strcmp(job->reaches[i].address, r->address) == 0 &&
                job->reaches[i].end == r->end;
    for (uint32_t i = 0; log != DR_NONE && i < job->num_inits; i++)
        if (job->inits[i].complete && job->inits[i].worker == job->log[log].worker)
            return false;
    return tries >= 3 && dr_stalled(d, NULL);
}

static void unreachable(struct doctor *d, const struct dr_reach *r)
{
    const struct dr_job *job = d->job;
    const struct dr_failure *failure = failure_at(d, r->line);
    const char *host = dr_host_with(d, r->address);
    const uint32_t log = job->log_of[r->line];
    struct dr_finding *f;

    if (failure != NULL && dr_is_fall_out(d, failure))
        return;
    f = dr_found(d, DR_FIREWALL_OR_ROUTE, "%s", r->address);
    dr_because(d, f, r->line);
    if (f->summary[0] != 0)
        return;
    dr_say(d, f, "%s does not reach %s%s%s%s%s: %s.",
            log != DR_NONE ? dr_worker_name(d, job->log[log].worker) : "This host",
            r->address, r->port[0] != 0 ? " port " : "", r->port,
            host != NULL ? " of " : "", host != NULL ? host : "",
            r->end == DR_REACH_NO_ROUTE ? "no route to host, or a firewall rejects it"
                    : r->end == DR_REACH_ABORT ? "the connection was aborted on the way"
                                               : "the connection timed out");
    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (job->reaches[i].line != r->line &&
                strcmp(job->reaches[i].address, r->address) == 0 &&
                job->reaches[i].end != DR_REACH_OK)
            dr_because(d, f, job->reaches[i].line);
    for (uint32_t i = 0; i < job->num_failures; i++)
        if (job->failures[i].kind == DR_FAILED_FALL_OUT ||
                job->failures[i].kind == DR_FAILED_CLOSED)
            dr_consequence(d, f, job->failures[i].line);
}

void dr_rule_reach(struct doctor *d)
{
    const struct dr_job *job = d->job;
    const uint32_t init = file_init(d);

    gloo_loopback(d);
    for (uint32_t i = 0; i < job->num_reaches && i < 512; i++) {
        const struct dr_reach *r = &job->reaches[i];
        const bool named = !dr_is_address(r->address, strlen(r->address));

        if (r->end == DR_REACH_OK || (!dr_is_global(r->address) && !named) ||
                strcmp(r->address, "localhost") == 0)
            continue;
        if (r->how == DR_REACH_RANK && r->final && !named && is_stale(d, r, init))
            continue;
        if (!is_unreachable(r->end) || (!r->final && !never_succeeds(d, r)) ||
                r->how == DR_REACH_PING ||
                (r->how == DR_REACH_SHELL && !is_participant(d, r->address)) ||
                is_strange(d, r) || dr_has_finding(d, DR_STALE_RENDEZVOUS, r->address))
            continue;
        unreachable(d, r);
    }
}

/* ---- RDMA ---- */

/* The local adapter of a completion, else the peer. */
static const char *rdma_subject(struct doctor *d, const char *text)
{
    static const char *const shapes[] = { "%<hca %w", "exceeded on %*:%d",
        "from peer %*<%d>", "peer %*<%d>" };
    struct dr_span got[3];

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(text, shapes[i], got) && got[0].length < 128)
            return dr_copy(d, got[0].at, got[0].length);
    return "";
}

/* Whether a line is a completion with status 12, however the number is written. */
static bool is_retry_exceeded(const char *text)
{
    static const char *const shapes[] = { "status=12%>", "error 12%>", "status 12%>",
        "status: 12%>", "RETRY_EXC_ERR", "etry count exceeded",
        "etry counter exceeded" };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(text, shapes[i], NULL))
            return !dr_has(text, "RNR_RETRY");
    return false;
}

static void rdma_unreachable(struct doctor *d)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const struct dr_failure *x = &job->failures[i];
        const char *text = d->lines[x->line].text, *subject;
        struct dr_span peer[2];
        struct dr_finding *f;
        bool known;

        if (x->kind != DR_FAILED_RDMA || !is_retry_exceeded(text) ||
                dr_is_fall_out(d, x))
            continue;
        subject = rdma_subject(d, text);
        f = dr_found(d, DR_RDMA_UNREACHABLE, "%s", subject);
        dr_because(d, f, x->line);
        if (f->summary[0] != 0)
            continue;
        known = dr_scan(text, "peer %*<%d>", peer);
        dr_say(d, f, "RDMA%s%s%s%.*s%s%s ends with the retry limit (status 12).",
                x->worker != DR_NONE ? " of " : "",
                x->worker != DR_NONE ? dr_worker_name(d, x->worker) : "",
                known ? " to " : "", known ? (int)peer[0].length : 0,
                known ? peer[0].at : "", subject[0] != 0 && !known ? " over " : "",
                subject[0] != 0 && !known ? subject : "");
        for (uint32_t k = 0; k < job->num_failures; k++)
            if (job->failures[k].kind == DR_FAILED_FALL_OUT ||
                    job->failures[k].kind == DR_FAILED_CLOSED)
                dr_consequence(d, f, job->failures[k].line);
    }
}

/* The errno that the text shows for an adapter's node, or DR_NONE. */
static uint32_t uverbs_errno(const struct doctor *d, struct dr_span *node)
{
    static const char *const errors[] = { "EACCES", "EPERM", "Permission denied",
        "Operation not permitted" };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if ((d->lines[i].flags & DR_COMMAND) ||
                !dr_scan(text, "/dev/infiniband/uverbs%d", node))
            continue;
        for (size_t n = 0; n < sizeof(errors) / sizeof(*errors); n++)
            if (dr_has(text, errors[n]))
                return i;
    }
    return DR_NONE;
}

static void rdma_not_openable(struct doctor *d)
{
    struct dr_span node, got[1];
    const uint32_t denied = uverbs_errno(d, &node);
    const char *error = denied == DR_NONE ? NULL
            : dr_has(d->lines[denied].text, "EPERM") ||
                    dr_has(d->lines[denied].text, "Operation not")
            ? "EPERM, operation not permitted"
            : "EACCES, permission denied";
    bool found = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct dr_finding *f;

        if (!dr_scan(d->lines[i].text, "NET/IB : Unable to open device %w", got) &&
                !dr_scan(d->lines[i].text, "NET/IB: Unable to open device %w", got))
            continue;
        f = dr_found(d, DR_RDMA_DEVICE_NOT_OPENABLE, "%.*s", (int)got[0].length,
                got[0].at);
        dr_say(d, f, "The RDMA device %.*s may not be opened%s%s.", (int)got[0].length,
                got[0].at, error != NULL ? ": " : "", error != NULL ? error : "");
        dr_because(d, f, i);
        dr_because(d, f, denied);
        found = true;
    }
    if (denied != DR_NONE && !found) {
        struct dr_finding *f = dr_found(d, DR_RDMA_DEVICE_NOT_OPENABLE,
                "/dev/infiniband/uverbs%.*s", (int)node.length, node.at);

        dr_say(d, f, "/dev/infiniband/uverbs%.*s may not be opened: %s.",
                (int)node.length, node.at, error);
        dr_because(d, f, denied);
    }
}

/* ---- NET_PLUGIN_NOT_LOADED ---- */

/* A line that shows an RDMA or EFA adapter, or DR_NONE. */
static uint32_t fast_hardware(const struct doctor *d)
{
    static const char *const shapes[] = { "Elastic Fabric Adapter", "provider: efa",
        "provider: cxi", "InfiniBand controller", "Infiniband controller", "^CA '%w'",
        "^hca_id: %w", "/dev/infiniband/uverbs%d", "link/infiniband", " ==> %w (Up)",
        "^link %w/%d state ACTIVE", "%<uverbs%d%e", "/sys/class/infiniband/%w",
        "ConnectX%*", "^ConnectX%*" };
    /* drivers' names of adapters, as `ibv_devices` lists them beside a GUID */
    static const char *const names[] = { "mlx", "rdmap", "roce", "rocep", "ibp", "bnxt",
        "irdma", "ionic", "efa", "hns", "mana", "erdma", "qedr", "hfi1" };
    struct dr_span got[2];

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if ((d->lines[i].flags & (DR_COMMAND | DR_REMARK)) ||
                dr_has(text, "No such file") || d->job->log_of[i] != DR_NONE)
            continue;
        for (size_t n = 0; n < sizeof(shapes) / sizeof(*shapes); n++)
            if (dr_scan(text, shapes[n], NULL))
                return i;
        if (!dr_scan(text, "^ %w %x%e", got) || got[1].length != 16)
            continue;
        for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++)
            if (dr_begins(got[0].at, names[n]))
                return i;
    }
    return DR_NONE;
}

/* Every port that the text shows is down. */
static bool all_down(const struct doctor *d)
{
    bool down = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, "PORT_ACTIVE") || dr_has(text, "State: Active") ||
                (dr_has(text, "==> ") && dr_has(text, "(Up)")))
            return false;
        down = down || dr_has(text, "PORT_DOWN") || dr_has(text, "State: Down") ||
                dr_has(text, "(Down)");
    }
    return down;
}

static void plugin_not_loaded(struct doctor *d)
{
    const struct dr_job *job = d->job;
    const uint32_t hardware = dr_num_hosts(d) < 2 ? DR_NONE : fast_hardware(d);
    struct dr_finding *f;
    uint32_t variable = DR_NONE;

    if (hardware == DR_NONE || all_down(d))
        return;
    for (uint32_t i = 0; i < job->num_log; i++) {
        const char *message = job->log[i].message;

        if (!dr_scan(message, "^Using network Socket%e", NULL))
            continue;
        f = dr_found(d, DR_NET_PLUGIN_NOT_LOADED, "%s",
                job->hosts[job->workers[job->log[i].worker].host].name);
        if (f->summary[0] == 0) {
            const char *off = dr_variable(d, "NCCL_IB_DISABLE", &variable);

            dr_say(d, f,
                    "%s talks to other hosts over plain sockets although RDMA hardware "
                    "is "
                    "there.",
                    f->subject);
            if (off != NULL && strcmp(off, "1") == 0) {
                dr_because(d, f, variable);
                dr_fix(d, f, "Take NCCL_IB_DISABLE=1 away: it turns RDMA off.");
            }
        }
        dr_because(d, f, job->log[i].line);
        dr_because(d, f, hardware);
        break;
    }
}

void dr_rule_rdma(struct doctor *d)
{
    rdma_unreachable(d);
    rdma_not_openable(d);
    plugin_not_loaded(d);
}
