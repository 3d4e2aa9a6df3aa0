/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank variables: torchrun's, which most programs read, made for the ranks of
 * `motet run -n`, or filled in from what another launcher says.
 */
#include "run.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------- our own ranks */

/* A TCP port that was free a moment ago, for the rendezvous that rank 0 opens. */
static int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
        .sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
            getsockname(fd, (struct sockaddr *)&address, &bytes) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

int run_group_make(const struct run_options *o, struct run_group *g)
{
    const char *addr = o->master_addr, *port = o->master_port;
    unsigned char random[8];

    g->nranks = o->n;
    if (addr == NULL)
        addr = getenv("MASTER_ADDR");
    if (port == NULL)
        port = getenv("MASTER_PORT");
    snprintf(g->master_addr, sizeof(g->master_addr), "%s",
            addr != NULL && *addr != 0 ? addr : "127.0.0.1");
    if (port != NULL && *port != 0) {
        snprintf(g->master_port, sizeof(g->master_port), "%s", port);
    } else {
        int chosen = free_port();

        /* without IPv4 nobody can listen there anyway; the number is only a name then */
        snprintf(g->master_port, sizeof(g->master_port), "%d",
                chosen > 0 ? chosen : 29500);
    }
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -1;
    snprintf(g->id, sizeof(g->id), "motet-");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(g->id + 6 + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static int set_number(const char *name, int value, int overwrite)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    return setenv(name, text, overwrite);
}

int run_environment_of_rank(const struct run_group *g, int rank)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        { "RANK", rank },
        { "WORLD_SIZE", g->nranks },
        { "LOCAL_RANK", rank },
        { "LOCAL_WORLD_SIZE", g->nranks },
        { "GROUP_RANK", 0 },
        { "GROUP_WORLD_SIZE", 1 },
        { "NODE_RANK", 0 },
        { "ROLE_RANK", rank },
        { "ROLE_WORLD_SIZE", g->nranks },
        { "TORCHELASTIC_RESTART_COUNT", 0 },
        { "TORCHELASTIC_MAX_RESTARTS", 0 },
    };
    int bad = 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        bad |= set_number(numbers[i].name, numbers[i].value, 1);
    bad |= setenv("ROLE_NAME", "default", 1);
    bad |= setenv("MASTER_ADDR", g->master_addr, 1);
    bad |= setenv("MASTER_PORT", g->master_port, 1);
    bad |= setenv("TORCHELASTIC_RUN_ID", g->id, 1);
    /* rank 0 opens the store itself: no agent of ours does */
    bad |= setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    if (g->nranks > 1)
        bad |= setenv("OMP_NUM_THREADS", "1", 0);
    return bad != 0 ? -1 : 0;
}

/* -------------------------------------------------------- other launchers' ranks */

static int number_of(run_lookup lookup, void *arg, const char *name)
{
    const char *text = lookup(name, arg);
    char *end;
    long value;

    if (text == NULL || !isdigit((unsigned char)*text))
        return -1;
    value = strtol(text, &end, 10);
    return *end == 0 && value <= INT_MAX ? (int)value : -1;
}

bool run_first_host(const char *list, char *buf, size_t bytes)
{
    size_t stem = strcspn(list, "[,"), first;
    const char *range = list + stem + 1, *rest;

    if (list[stem] != '[') {
        snprintf(buf, bytes, "%.*s", (int)stem, list);
        return stem > 0 && stem < bytes;
    }
    first = strcspn(range, "-,]");
    rest = strchr(range, ']');
    if (first == 0 || rest == NULL || stem + first >= bytes)
        return false;
    /* what follows the bracket belongs to the name: a[1-2]-ib */
    snprintf(buf, bytes, "%.*s%.*s%.*s", (int)stem, list, (int)first, range,
            (int)strcspn(rest + 1, ",["), rest + 1);
    return true;
}

int run_tasks_of_node(const char *list, int node)
{
    while (*list != 0) {
        char *end;
        long tasks = strtol(list, &end, 10), times = 1;

        if (end == list || tasks < 1 || tasks > INT_MAX)
            return -1;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (*end != ')' || times < 1)
                return -1;
            end++;
        }
        if (node < times)
            return (int)tasks;
        node -= (int)times;
        if (*end == 0)
            break;
        if (*end != ',')
            return -1;
        list = end + 1;
    }
    return -1;
}

/* A port that all tasks of a job derive alike, away from the ephemeral range. */
static void port_from(const char *seed, char *buf, size_t bytes)
{
    uint32_t h = 2166136261u;

    for (const char *p = seed; *p != 0; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    snprintf(buf, bytes, "%u", 20000 + h % 10000);
}

static void from_slurm(run_lookup lookup, void *arg, struct run_launcher *l)
{
    const char *step = lookup("SLURM_STEP_ID", arg);
    const char *job = lookup("SLURM_JOB_ID", arg);
    const char *hosts = lookup("SLURM_STEP_NODELIST", arg);
    const char *tasks = lookup("SLURM_STEP_TASKS_PER_NODE", arg);

    l->name = "Slurm";
    if (step == NULL)
        step = lookup("SLURM_STEPID", arg);
    if (step == NULL || job == NULL) {
        snprintf(l->why_not, sizeof(l->why_not),
                "this is a Slurm batch script, not a task: use srun motet run …");
        return;
    }
    l->size = number_of(lookup, arg, "SLURM_STEP_NUM_TASKS");
    if (l->size < 0)
        l->size = number_of(lookup, arg, "SLURM_NTASKS");
    l->local_rank = number_of(lookup, arg, "SLURM_LOCALID");
    l->node = number_of(lookup, arg, "SLURM_NODEID");
    l->nodes = number_of(lookup, arg, "SLURM_STEP_NUM_NODES");
    if (tasks != NULL && l->node >= 0)
        l->local_size = run_tasks_of_node(tasks, l->node);
    if (hosts == NULL || !run_first_host(hosts, l->master_addr, sizeof(l->master_addr)))
        l->master_addr[0] = 0;
    snprintf(l->id, sizeof(l->id), "slurm-%.24s.%.24s", job, step);
    port_from(l->id, l->master_port, sizeof(l->master_port));
}

/* Open MPI, MPICH and bare PMIx: ranks of one node can meet on the loopback address. */
static void from_mpi(run_lookup lookup, void *arg, struct run_launcher *l,
        const char *const names[4])
{
    const char *space = lookup("PMIX_NAMESPACE", arg);

    l->size = number_of(lookup, arg, names[1]);
    l->local_rank = number_of(lookup, arg, names[2]);
    l->local_size = number_of(lookup, arg, names[3]);
    if (l->size > 0 && l->local_size == l->size) {
        l->node = 0;
        l->nodes = 1;
        snprintf(l->master_addr, sizeof(l->master_addr), "127.0.0.1");
    }
    /* without a job's name: the process that started all ranks of this node */
    if (space != NULL)
        snprintf(l->id, sizeof(l->id), "%.60s", space);
    else
        snprintf(l->id, sizeof(l->id), "%s-%d", l->name, (int)getppid());
    port_from(l->id, l->master_port, sizeof(l->master_port));
    if (l->size < 0)
        snprintf(l->why_not, sizeof(l->why_not),
                "%s gives a rank (%s) but no number of ranks; set WORLD_SIZE", l->name,
                names[0]);
}

void run_launcher_find(run_lookup lookup, void *arg, struct run_launcher *out)
{
    /* rank, size, local rank, local size: the most specific launcher first */
    static const struct {
        const char *name;
        const char *variable[4];
    } known[] = {
        { "torchrun", { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" } },
        { "Open MPI",
                { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" } },
        { "MPICH", { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" } },
        { "Slurm", { "SLURM_PROCID", NULL, NULL, NULL } },
        { "PMIx", { "PMIX_RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" } },
    };

    *out = (struct run_launcher){ .rank = -1,
        .size = -1,
        .local_rank = -1,
        .local_size = -1,
        .node = -1,
        .nodes = -1 };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        out->rank = number_of(lookup, arg, known[i].variable[0]);
        if (out->rank < 0)
            continue;
        out->name = known[i].name;
        if (known[i].variable[1] == NULL)
            from_slurm(lookup, arg, out);
        else
            from_mpi(lookup, arg, out, known[i].variable);
        if (i == 0) /* torchrun has set what there is to set */
            out->master_addr[0] = out->master_port[0] = out->id[0] = 0;
        if (out->why_not[0] == 0 && (out->size < 1 || out->rank >= out->size))
            snprintf(out->why_not, sizeof(out->why_not),
                    "%s says rank %d of %d, which cannot be", out->name, out->rank,
                    out->size);
        return;
    }
}

int run_environment_of_launcher(const struct run_launcher *l)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        { "RANK", l->rank },
        { "WORLD_SIZE", l->size },
        { "LOCAL_RANK", l->local_rank },
        { "LOCAL_WORLD_SIZE", l->local_size },
        { "GROUP_RANK", l->node },
        { "NODE_RANK", l->node },
        { "GROUP_WORLD_SIZE", l->nodes },
        { "ROLE_RANK", l->rank },
        { "ROLE_WORLD_SIZE", l->size },
    };
    int bad = 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (numbers[i].value >= 0)
            bad |= set_number(numbers[i].name, numbers[i].value, 0);
    if (l->master_addr[0] != 0)
        bad |= setenv("MASTER_ADDR", l->master_addr, 0);
    if (l->master_port[0] != 0)
        bad |= setenv("MASTER_PORT", l->master_port, 0);
    if (l->id[0] != 0)
        bad |= setenv("TORCHELASTIC_RUN_ID", l->id, 0);
    return bad != 0 ? -1 : 0;
}
