/* SPDX-License-Identifier: Apache-2.0 */
/* On how many machines the ranks are: what logs, launchers and tables say of it. */
#include "job.h"
#include "lines.h"

/* What is known of one communicator. */
struct group {
    uint32_t nranks, seen, first_host, hosts;
};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Ranks of a host that channels inside a machine show, though they log nothing. */
static uint32_t local_by_channels(const struct dr_job *job, uint32_t nranks)
{
    bool seen[1024] = { false };
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->num_channels; i++) {
        const struct dr_channel *c = &job->channels[i];

        if (c->via == DR_VIA_NET || c->from >= nranks || c->to >= nranks ||
                nranks > sizeof(seen))
            continue;
        count += !seen[c->from];
        seen[c->from] = true;
        count += !seen[c->to];
        seen[c->to] = true;
    }
    return count;
}

/* Whether ranks that log nothing are of the one host that does: the communicator was set up
 * over loopback, or it has no more ranks than a machine has GPUs and every channel stays
 * inside of the machine. */
static bool is_one_box(const struct dr_job *job, uint32_t comm, uint32_t host)
{
    bool complete = false, loopback = false;
    uint32_t nranks = 0;

    for (uint32_t i = 0; i < job->num_inits; i++)
        if (job->inits[i].comm == comm) {
            complete = complete || job->inits[i].complete;
            nranks = max_u32(nranks, job->inits[i].nranks);
        }
    for (uint32_t i = 0; i < job->num_uses; i++)
        if (job->uses[i].kind == DR_USE_BOOTSTRAP && job->uses[i].host == host)
            loopback = dr_is_loopback(job->uses[i].address);
    for (uint32_t i = 0; i < job->num_channels; i++)
        if (job->channels[i].via == DR_VIA_NET)
            return false;
    return complete && (loopback || (nranks <= 8 && job->num_channels > 0));
}

/* Hosts of the communicators: the same rank twice (another run) counts once a host. */
static uint32_t by_communicators(struct doctor *d)
{
    struct dr_job *job = d->job;
    struct group *groups = dr_alloc(d, (job->comms.count + 1) * sizeof(*groups));
    struct dr_names ranks = { 0 }, places = { 0 };
    uint32_t most = 0, looked = 0;

    for (uint32_t i = 0; i < job->num_inits; i++) {
        const struct dr_init *init = &job->inits[i];
        struct group *g =
                &groups[init->comm == DR_NONE ? job->comms.count : init->comm];
        const uint32_t host = job->workers[init->worker].host;
        const uint32_t rank_key[2] = { init->comm, init->rank };
        const uint32_t place_key[2] = { init->comm, host };
        uint32_t known = ranks.count;

        g->nranks = max_u32(g->nranks, init->nranks);
        g->first_host = host;
        (void)dr_name(d, &ranks,
                (struct dr_span){ (const char *)rank_key, sizeof(rank_key) });
        g->seen += ranks.count - known;
        known = places.count;
        (void)dr_name(d, &places,
                (struct dr_span){ (const char *)place_key, sizeof(place_key) });
        g->hosts += places.count - known;
    }
    for (uint32_t i = 0; i <= job->comms.count; i++) {
        const struct group *g = &groups[i];
        uint32_t said, local, hosts = g->hosts;

        if (g->nranks == 0)
            continue;
        said = job->hosts[g->first_host].local_ranks;
        local = max_u32(g->seen, said);
        if (hosts == 1 && local < g->nranks && looked++ < 64)
            local = said == 0 &&
                            is_one_box(job, i < job->comms.count ? i : DR_NONE,
                                    g->first_host)
                    ? g->nranks
                    : max_u32(local, local_by_channels(job, g->nranks));
        if (hosts == 1 && local < g->nranks)
            hosts = 2;
        most = max_u32(most, hosts);
    }
    return most;
}

/* Sentences outside of the logs that name a rank's machine, or their number. */
static uint32_t by_other_lines(struct doctor *d)
{
    static const char *const places[] = { "pid=%d, ip=%w)", " Pid %d on %w device ",
        "local=[%w]:" };
    static const char *const numbers[] = { "nnodes %d", "nnodes=%d", "nNodes %d",
        "nodes=%d", "num_nodes %d", " nodes %d%e", "srun -N%d", "srun -N %d" };
    struct dr_names names = { 0 };
    struct dr_span got[4];
    uint64_t said = 0, value;
    bool one = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *l = &d->lines[i];
        const bool launch = (l->flags & DR_COMMAND) && dr_has(l->text, "torchrun");

        for (size_t n = 0; n < sizeof(places) / sizeof(*places); n++)
            if (dr_scan(l->text, places[n], got) &&
                    (n < 2 || dr_is_address(got[0].at, got[0].length)) &&
                    !(n == 2 && got[0].length > 3 && dr_begins(got[0].at, "127.")))
                (void)dr_name(d, &names, got[n < 2 ? 1 : 0]);
        for (size_t n = 0; n < sizeof(numbers) / sizeof(*numbers); n++)
            if (dr_scan(l->text, numbers[n], got) && dr_span_u64(got[0], &value) &&
                    value < 100000 && value > said)
                said = value;
        one = one || (launch && !dr_has(l->text, "nnodes") && !dr_has(l->text, "rdzv"));
    }
    return max_u32(max_u32(names.count, (uint32_t)said), one ? 1 : 0);
}

void dr_read_hosts(struct doctor *d)
{
    struct dr_job *job = d->job;
    const uint32_t groups = by_communicators(d), others = by_other_lines(d);
    uint32_t most = max_u32(groups, others);

    /* logs of several hosts without a communicator: they never got that far */
    if (groups == 0)
        most = max_u32(most, job->num_hosts);
    else if (groups > 1)
        most = max_u32(most, job->num_hosts);
    for (uint32_t i = 0; i < job->num_channels; i++)
        if (job->channels[i].via == DR_VIA_NET)
            most = max_u32(most, 2);
    job->num_machines = most;
}
