/* SPDX-License-Identifier: Apache-2.0 */
/* The table of collectives: see collective.h. */
#include "collective.h"

#include "ranks.h"
#include "text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------ layouts */

/* Elements for each rank: a multiple of 16 bytes, so that every part is aligned. */
static size_t share(size_t elements, size_t element_bytes, int nranks)
{
    size_t unit = 16 / element_bytes;

    return elements / (size_t)nranks / unit * unit;
}

static struct layout layout_same(size_t elements, size_t element_bytes, int nranks)
{
    (void)element_bytes;
    (void)nranks;
    return (struct layout){ elements, elements, elements, 0, 0, elements };
}

static struct layout layout_gathered(size_t elements, size_t element_bytes, int nranks)
{
    size_t base = share(elements, element_bytes, nranks), all = base * (size_t)nranks;

    return (struct layout){ base, all, base, base, 0, all };
}

static struct layout layout_scattered(size_t elements, size_t element_bytes, int nranks)
{
    size_t base = share(elements, element_bytes, nranks), all = base * (size_t)nranks;

    return (struct layout){ all, base, base, 0, base, all };
}

static struct layout layout_exchanged(size_t elements, size_t element_bytes, int nranks)
{
    size_t base = share(elements, element_bytes, nranks), all = base * (size_t)nranks;

    return (struct layout){ all, all, base, 0, 0, all };
}

static struct layout layout_hypercube(size_t elements, size_t element_bytes, int nranks)
{
    struct layout l = layout_gathered(elements, element_bytes, nranks);

    l.moved = l.param * (size_t)(nranks - 1);
    return l;
}

/* all_to_all_v: what rank @p from sends to rank @p to. Parts differ by up to half, the
 * same in both directions, and start at multiples of the largest part. */
static size_t part(size_t base, int from, int to)
{
    return base - base / 8 * (size_t)((from + to) % 5);
}

/* Its bandwidth counts the bytes of the rank that has most. */
static struct layout layout_parts(size_t elements, size_t element_bytes, int nranks)
{
    struct layout l = layout_exchanged(elements, element_bytes, nranks);

    l.moved = 0;
    for (int r = 0; r < nranks; r++) {
        size_t sum = 0;

        for (int peer = 0; peer < nranks; peer++)
            sum += part(l.param, r, peer);
        l.moved = sum > l.moved ? sum : l.moved;
    }
    return l;
}

/* -------------------------------------------------------------------- calls */

static size_t bytes_of(const struct call *c, size_t elements)
{
    return elements * motet_type_table[c->type].bytes;
}

static const char *send_at(const struct call *c, size_t element)
{
    return (const char *)c->send + bytes_of(c, element);
}

static char *recv_at(const struct call *c, size_t element)
{
    return (char *)c->recv + bytes_of(c, element);
}

static ncclResult_t issue_all_reduce(const struct call *c, int step)
{
    (void)step;
    return c->lib->all_reduce(c->send, c->recv, c->param, c->type, c->op, c->comm,
            c->stream);
}

static ncclResult_t issue_reduce(const struct call *c, int step)
{
    (void)step;
    return c->lib->reduce(c->send, c->recv, c->param, c->type, c->op, c->root, c->comm,
            c->stream);
}

static ncclResult_t issue_broadcast(const struct call *c, int step)
{
    (void)step;
    return c->lib->broadcast(c->send, c->recv, c->param, c->type, c->root, c->comm,
            c->stream);
}

static ncclResult_t issue_all_gather(const struct call *c, int step)
{
    (void)step;
    return c->lib->all_gather(c->send, c->recv, c->param, c->type, c->comm, c->stream);
}

static ncclResult_t issue_reduce_scatter(const struct call *c, int step)
{
    (void)step;
    return c->lib->reduce_scatter(c->send, c->recv, c->param, c->type, c->op, c->comm,
            c->stream);
}

/* Sends and receives of one group; the group's own result counts if they went well. */
static ncclResult_t end_group(const struct call *c, ncclResult_t result)
{
    ncclResult_t ended = c->lib->group_end();

    return result != ncclSuccess ? result : ended;
}

static ncclResult_t issue_all_to_all(const struct call *c, int step)
{
    ncclResult_t result;

    (void)step;
    if (c->lib->all_to_all != NULL)
        return c->lib->all_to_all(c->send, c->recv, c->param, c->type, c->comm,
                c->stream);
    result = c->lib->group_start();
    for (int r = 0; r < c->nranks && result == ncclSuccess; r++) {
        size_t at = (size_t)r * c->param;

        result = c->lib->send(send_at(c, at), c->param, c->type, r, c->comm, c->stream);
        if (result == ncclSuccess)
            result = c->lib->recv(recv_at(c, at), c->param, c->type, r, c->comm,
                    c->stream);
    }
    return end_group(c, result);
}

static ncclResult_t issue_all_to_all_v(const struct call *c, int step)
{
    size_t scounts[RANKS_MAX], rcounts[RANKS_MAX], displs[RANKS_MAX];
    ncclResult_t result = ncclSuccess;

    (void)step;
    for (int r = 0; r < c->nranks; r++) {
        scounts[r] = part(c->param, c->rank, r);
        rcounts[r] = part(c->param, r, c->rank);
        displs[r] = (size_t)r * c->param;
    }
    if (c->lib->all_to_all_v != NULL)
        return c->lib->all_to_all_v(c->send, scounts, displs, c->recv, rcounts, displs,
                c->type, c->comm, c->stream);
    result = c->lib->group_start();
    for (int r = 0; r < c->nranks && result == ncclSuccess; r++) {
        result = c->lib->send(send_at(c, displs[r]), scounts[r], c->type, r, c->comm,
                c->stream);
        if (result == ncclSuccess)
            result = c->lib->recv(recv_at(c, displs[r]), rcounts[r], c->type, r,
                    c->comm, c->stream);
    }
    return end_group(c, result);
}

static ncclResult_t issue_gather(const struct call *c, int step)
{
    ncclResult_t result;

    (void)step;
    if (c->lib->gather != NULL)
        return c->lib->gather(c->send, c->recv, c->param, c->type, c->root, c->comm,
                c->stream);
    result = c->lib->group_start();
    if (result == ncclSuccess)
        result = c->lib->send(c->send, c->param, c->type, c->root, c->comm, c->stream);
    for (int r = 0; c->rank == c->root && r < c->nranks && result == ncclSuccess; r++)
        result = c->lib->recv(recv_at(c, (size_t)r * c->param), c->param, c->type, r,
                c->comm, c->stream);
    return end_group(c, result);
}

static ncclResult_t issue_scatter(const struct call *c, int step)
{
    ncclResult_t result;

    (void)step;
    if (c->lib->scatter != NULL)
        return c->lib->scatter(c->send, c->recv, c->param, c->type, c->root, c->comm,
                c->stream);
    result = c->lib->group_start();
    for (int r = 0; c->rank == c->root && r < c->nranks && result == ncclSuccess; r++)
        result = c->lib->send(send_at(c, (size_t)r * c->param), c->param, c->type, r,
                c->comm, c->stream);
    if (result == ncclSuccess)
        result = c->lib->recv(c->recv, c->param, c->type, c->root, c->comm, c->stream);
    return end_group(c, result);
}

static ncclResult_t issue_sendrecv(const struct call *c, int step)
{
    int to = (c->rank + 1) % c->nranks, from = (c->rank + c->nranks - 1) % c->nranks;
    ncclResult_t result = c->lib->group_start();

    (void)step;
    if (result == ncclSuccess)
        result = c->lib->send(c->send, c->param, c->type, to, c->comm, c->stream);
    if (result == ncclSuccess)
        result = c->lib->recv(c->recv, c->param, c->type, from, c->comm, c->stream);
    return end_group(c, result);
}

/* An all-gather in log2(n) exchanges: after step s, 2^(s+1) neighbours' parts are here.
 * Step 0 is the rank's own copy, made on the stream by a message to itself. */
static int steps_hypercube(int nranks)
{
    int steps = 1;

    for (int mask = 1; mask < nranks; mask <<= 1)
        steps++;
    return steps;
}

static ncclResult_t issue_hypercube(const struct call *c, int step)
{
    int mask = step == 0 ? 0 : 1 << (step - 1);
    int mine = c->rank & ~(mask == 0 ? 0 : mask - 1);
    int theirs = mine ^ mask, peer = c->rank ^ mask;
    size_t count = c->param * (size_t)(mask == 0 ? 1 : mask);
    const char *from = mask == 0 ? c->send : recv_at(c, (size_t)mine * c->param);
    ncclResult_t result;

    if (mask == 0 && from == recv_at(c, (size_t)c->rank * c->param))
        return ncclSuccess;
    result = c->lib->group_start();
    if (result == ncclSuccess)
        result = c->lib->send(from, count, c->type, peer, c->comm, c->stream);
    if (result == ncclSuccess)
        result = c->lib->recv(recv_at(c, (size_t)theirs * c->param), count, c->type,
                peer, c->comm, c->stream);
    return end_group(c, result);
}

/* ------------------------------------------------------------------ results */

static const void *part_at(const struct check *c, const void *recv, size_t element)
{
    return (const char *)recv + element * motet_type_table[c->type].bytes;
}

static size_t wrong_reduced(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    (void)rank;
    (void)root;
    return check_reduced(c, recv, l->recv, 0);
}

static size_t wrong_reduced_at_root(const struct check *c, const struct layout *l,
        int rank, int root, const void *recv)
{
    return rank == root ? check_reduced(c, recv, l->recv, 0) : 0;
}

static size_t wrong_reduced_part(const struct check *c, const struct layout *l,
        int rank, int root, const void *recv)
{
    (void)root;
    return check_reduced(c, recv, l->recv, (uint64_t)rank * l->recv);
}

static size_t wrong_broadcast(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    (void)rank;
    return check_moved(c, recv, l->recv, root, 0);
}

static size_t wrong_gathered(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    size_t wrong = 0;

    (void)rank;
    (void)root;
    for (int r = 0; r < c->nranks; r++)
        wrong += check_moved(c, part_at(c, recv, (size_t)r * l->param), l->param, r, 0);
    return wrong;
}

static size_t wrong_gathered_at_root(const struct check *c, const struct layout *l,
        int rank, int root, const void *recv)
{
    return rank == root ? wrong_gathered(c, l, rank, root, recv) : 0;
}

static size_t wrong_scattered(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    return check_moved(c, recv, l->param, root, (uint64_t)rank * l->param);
}

static size_t wrong_exchanged(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    size_t wrong = 0;

    (void)root;
    for (int r = 0; r < c->nranks; r++)
        wrong += check_moved(c, part_at(c, recv, (size_t)r * l->param), l->param, r,
                (uint64_t)rank * l->param);
    return wrong;
}

static size_t wrong_parts(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    size_t wrong = 0;

    (void)root;
    for (int r = 0; r < c->nranks; r++)
        wrong += check_moved(c, part_at(c, recv, (size_t)r * l->param),
                part(l->param, r, rank), r, (uint64_t)rank * l->param);
    return wrong;
}

static size_t wrong_neighbour(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    (void)root;
    return check_moved(c, recv, l->recv, (rank + c->nranks - 1) % c->nranks, 0);
}

/* ---------------------------------------------------------------- bandwidth */

static double factor_one(int nranks)
{
    (void)nranks;
    return 1;
}

static double factor_others(int nranks)
{
    return (double)(nranks - 1) / nranks;
}

static double factor_twice(int nranks)
{
    return 2.0 * (nranks - 1) / nranks;
}

/* ---------------------------------------------------------------- the table */

const struct collective collectives[] = {
    { .name = "all_reduce",
            .reduces = true,
            .checks_in_place = true,
            .layout = layout_same,
            .issue = issue_all_reduce,
            .wrong = wrong_reduced,
            .bus_factor = factor_twice,
            .same_everywhere = true },
    { .name = "all_gather",
            .checks_in_place = true,
            .layout = layout_gathered,
            .issue = issue_all_gather,
            .wrong = wrong_gathered,
            .bus_factor = factor_others,
            .same_everywhere = true },
    { .name = "reduce_scatter",
            .reduces = true,
            .checks_in_place = true,
            .layout = layout_scattered,
            .issue = issue_reduce_scatter,
            .wrong = wrong_reduced_part,
            .bus_factor = factor_others },
    { .name = "broadcast",
            .rooted = true,
            .checks_in_place = true,
            .layout = layout_same,
            .issue = issue_broadcast,
            .wrong = wrong_broadcast,
            .bus_factor = factor_one,
            .same_everywhere = true },
    { .name = "reduce",
            .reduces = true,
            .rooted = true,
            .checks_in_place = true,
            .layout = layout_same,
            .issue = issue_reduce,
            .wrong = wrong_reduced_at_root,
            .bus_factor = factor_one },
    { .name = "alltoall",
            .layout = layout_exchanged,
            .issue = issue_all_to_all,
            .wrong = wrong_exchanged,
            .bus_factor = factor_others },
    { .name = "alltoallv",
            .layout = layout_parts,
            .issue = issue_all_to_all_v,
            .wrong = wrong_parts,
            .bus_factor = factor_others },
    { .name = "gather",
            .rooted = true,
            .checks_in_place = true,
            .layout = layout_gathered,
            .issue = issue_gather,
            .wrong = wrong_gathered_at_root,
            .bus_factor = factor_others },
    { .name = "scatter",
            .rooted = true,
            .checks_in_place = true,
            .layout = layout_scattered,
            .issue = issue_scatter,
            .wrong = wrong_scattered,
            .bus_factor = factor_others },
    { .name = "sendrecv",
            .layout = layout_same,
            .issue = issue_sendrecv,
            .wrong = wrong_neighbour,
            .bus_factor = factor_one },
    { .name = "hypercube",
            .checks_in_place = true,
            .power_of_two = true,
            .layout = layout_hypercube,
            .steps = steps_hypercube,
            .issue = issue_hypercube,
            .wrong = wrong_gathered,
            .bus_factor = factor_one,
            .same_everywhere = true },
};

const size_t ncollectives = sizeof(collectives) / sizeof(*collectives);

/* Lower case without '_' and without the tests' suffix: "allreduce". */
static void normalise(const char *name, char *out, size_t bytes)
{
    size_t n = 0, length = strlen(name);

    if (length > 5 && strcasecmp(name + length - 5, "_perf") == 0)
        length -= 5;
    for (size_t i = 0; i < length && n + 1 < bytes; i++)
        if (name[i] != '_')
            out[n++] = (char)tolower((unsigned char)name[i]);
    out[n] = 0;
}

const struct collective *collective_find(const char *name)
{
    char typed[64], known[64];

    normalise(name, typed, sizeof(typed));
    for (size_t i = 0; i < ncollectives; i++) {
        normalise(collectives[i].name, known, sizeof(known));
        if (strcmp(typed, known) == 0)
            return &collectives[i];
    }
    return NULL;
}

static const char *name_at(size_t i, void *arg)
{
    (void)arg;
    return collectives[i].name;
}

const char *collective_nearest(const char *name)
{
    return text_nearest(name, name_at, NULL, ncollectives);
}

int collective_steps(const struct collective *collective, int nranks)
{
    return collective->steps == NULL ? 1 : collective->steps(nranks);
}
