/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the cases of one world of the value matrix.
 *
 * A case of one rank has at most two buffers and a bias. Before the call each is
 * filled (inputs from the hash, outputs with poison) and copied; afterwards the copy
 * is turned into what the buffer must be, and the two are compared byte by byte with
 * their guards: so an element written outside its place, a changed input and an
 * output of a rank that has none are all seen. Only all_to_all in place has no
 * defined result; there the guards alone are looked at.
 */
#include "matrix.h"

#include <motet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define HIDE(p, n) ((void)(p), (void)(n))
#define SHOW(p, n) ((void)(p), (void)(n))
#endif

#define GUARD             64 /* bytes before and after each buffer */
#define MAX_BATCH         4  /* cases of one group */
#define MAX_GROUPED_COUNT 4314
#define POISON            0xa5
#define CANARY            0xc3

/** A buffer with its guards, and a copy of all of it. */
struct buffer {
    unsigned char *block, *copy;
    unsigned char *data; /* in block */
    size_t block_bytes, bytes;
};

/** One rank's part in one case. */
struct part {
    const matrix_case *c;
    int rank, nranks, root, type;
    value_op op;
    size_t count, esize;
    uint64_t seed;
    bool in_place;
    struct buffer a, b, bias; /* a: sent from; b: received into, or both in place */
    const void *send;
    void *recv;
    size_t sendcounts[MULTI_MAX_RANKS], sdispls[MULTI_MAX_RANKS];
    size_t recvcounts[MULTI_MAX_RANKS], rdispls[MULTI_MAX_RANKS];
    ncclRedOp_t redop;
    unsigned char scalar[8];
    bool redop_made;
};

/* ---- buffers ---- */

static bool buffer_make(struct buffer *b, const struct part *p, size_t elements)
{
    size_t shift = p->c->v[DIM_SHIFT] ? p->esize : 0;

    b->bytes = elements * p->esize;
    b->block_bytes = (GUARD + shift + b->bytes + GUARD + 63) / 64 * 64;
    b->block = aligned_alloc(64, b->block_bytes);
    if (b->block == NULL)
        return false;
    b->data = b->block + GUARD + shift;
    memset(b->block, CANARY, b->block_bytes);
    memset(b->data, POISON, b->bytes);
    return true;
}

static bool buffer_keep(struct buffer *b)
{
    if (b->block == NULL)
        return true;
    b->copy = malloc(b->block_bytes);
    if (b->copy == NULL)
        return false;
    memcpy(b->copy, b->block, b->block_bytes);
    return true;
}

static void buffer_hide(struct buffer *b)
{
    size_t before = (size_t)(b->data - b->block);

    if (b->block == NULL)
        return;
    HIDE(b->block, before);
    HIDE(b->data + b->bytes, b->block_bytes - before - b->bytes);
}

static void buffer_drop(struct buffer *b)
{
    free(b->block);
    free(b->copy);
    *b = (struct buffer){ .block = NULL };
}

/** Where the copy has what @p at elements into the data must be. */
static unsigned char *copy_at(const struct part *p, const struct buffer *b, size_t at)
{
    return b->copy + (b->data - b->block) + at * p->esize;
}

/* ---- what a case sends ---- */

/** Elements that rank @p from sends to rank @p to in all_to_all_v and the ring. */
static size_t pair_count(const struct part *p, int from, int to)
{
    uint64_t h = value_mix(p->seed ^ (uint64_t)(from * 64 + to));

    if (p->count == 0 || h % 4 == 0)
        return 0;
    return (h >> 8) % (p->count + 1);
}

/** First element, in the sender's stream, of what goes from @p from to @p to. */
static size_t pair_first(int from, int to)
{
    return (size_t)(from * 64 + to) << 24;
}

static void fill(const struct part *p, void *dst, size_t at, int rank, size_t first,
        size_t count)
{
    value_fill((unsigned char *)dst + at * p->esize, p->type, p->op, p->seed, rank,
            first, count);
}

/** all_to_all_v: counts, and displacements with gaps. */
static void lay_out_v(struct part *p)
{
    size_t s = 0, r = 0;

    for (int i = 0; i < p->nranks; i++) {
        p->sendcounts[i] = pair_count(p, p->rank, i);
        p->recvcounts[i] = pair_count(p, i, p->rank);
        s += value_mix(p->seed + (unsigned)i) % 4;
        r += value_mix(p->seed ^ (unsigned)i) % 4;
        p->sdispls[i] = s;
        p->rdispls[i] = r;
        s += p->sendcounts[i];
        r += p->recvcounts[i];
    }
    p->sendcounts[p->nranks] = s; /* totals, for the buffers */
    p->recvcounts[p->nranks] = r;
}

/** Sizes of the two buffers in elements, and where in place they overlap. */
struct sizes {
    size_t send, recv;
    size_t send_at, recv_at; /* in place: offsets in the one buffer */
    bool sends, receives;    /* this rank's pointer matters */
};

static struct sizes sizes_of(const struct part *p)
{
    size_t all = p->count * (size_t)p->nranks, own = p->count * (size_t)p->rank;
    bool root = p->rank == p->root;
    struct sizes s = { p->count, p->count, 0, 0, true, true };

    switch (p->c->v[DIM_KIND]) {
    case KIND_REDUCE: s.receives = root; break;
    case KIND_REDUCE_SCATTER:
        s.send = all;
        s.recv_at = own;
        break;
    case KIND_BROADCAST: s.sends = root; break;
    case KIND_ALL_GATHER:
        s.recv = all;
        s.send_at = own;
        break;
    case KIND_ALL_TO_ALL: s.send = s.recv = all; break;
    case KIND_ALL_TO_ALL_V:
        s.send = p->sendcounts[p->nranks];
        s.recv = p->recvcounts[p->nranks];
        break;
    case KIND_GATHER:
        s.recv = all;
        s.send_at = own;
        s.receives = root;
        break;
    case KIND_SCATTER:
        s.send = all;
        s.recv_at = own;
        s.sends = root;
        break;
    case KIND_RING:
        s.send = pair_count(p, p->rank, (p->rank + 1) % p->nranks);
        s.recv = pair_count(p, (p->rank + p->nranks - 1) % p->nranks, p->rank);
        break;
    default: break;
    }
    return s;
}

/** Whether this rank uses one buffer for both. */
static bool overlaps(const struct part *p, const struct sizes *s)
{
    switch (p->c->v[DIM_KIND]) {
    case KIND_BCAST: return true;
    case KIND_ALL_TO_ALL_V:
    case KIND_RING: return false;
    case KIND_REDUCE:
    case KIND_GATHER:
    case KIND_SCATTER: return p->in_place && s->sends && s->receives;
    default: return p->in_place;
    }
}

/** What this rank sends, at @p dst. */
static void fill_input(const struct part *p, void *dst, size_t count)
{
    switch (p->c->v[DIM_KIND]) {
    case KIND_ALL_TO_ALL_V:
        for (int i = 0; i < p->nranks; i++)
            fill(p, dst, p->sdispls[i], p->rank, pair_first(p->rank, i),
                    p->sendcounts[i]);
        break;
    case KIND_BROADCAST:
    case KIND_BCAST:
        if (p->rank == p->root)
            fill(p, dst, 0, p->rank, 0, count);
        break;
    default: fill(p, dst, 0, p->rank, 0, count);
    }
}

/** A rank whose pointer does not matter passes NULL, or memory that must not change. */
static bool give_spare(const struct part *p, int which)
{
    return (value_mix(p->seed + 77 + (unsigned)which) & 1) != 0;
}

static bool make_buffers(struct part *p)
{
    struct sizes s = sizes_of(p);

    if (overlaps(p, &s)) {
        size_t whole = s.send > s.recv ? s.send : s.recv;

        if (!buffer_make(&p->b, p, whole))
            return false;
        p->send = p->b.data + s.send_at * p->esize;
        p->recv = p->b.data + s.recv_at * p->esize;
        fill_input(p, p->b.data + s.send_at * p->esize, s.send);
        return true;
    }
    if (s.sends || give_spare(p, 0)) {
        if (!buffer_make(&p->a, p, s.send))
            return false;
        p->send = p->a.data;
        if (s.sends)
            fill_input(p, p->a.data, s.send);
    }
    if (s.receives || give_spare(p, 1)) {
        if (!buffer_make(&p->b, p, s.recv))
            return false;
        p->recv = p->b.data;
    }
    return true;
}

static ncclRedOp_t built_in(value_op op)
{
    static const ncclRedOp_t ops[] = { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };

    return ops[op];
}

/** The operator; a device scalar holds something else until the call is made. */
static bool make_redop(multi_rank *rank, struct part *p, ncclComm_t comm)
{
    if (!matrix_reduces(p->c->v[DIM_KIND]))
        return true;
    if (p->op < VALUE_PREMUL_HOST) {
        p->redop = built_in(p->op);
        return true;
    }
    if (p->op == VALUE_PREMUL_HOST)
        value_scalar(p->scalar, p->type, p->seed, p->rank);
    else
        memset(p->scalar, POISON, sizeof(p->scalar));
    if (!multi_ok(rank,
                ncclRedOpCreatePreMulSum(&p->redop, p->scalar, (ncclDataType_t)p->type,
                        p->op == VALUE_PREMUL_HOST ? ncclScalarHostImmediate
                                                   : ncclScalarDevice,
                        comm),
                "ncclRedOpCreatePreMulSum"))
        return false;
    p->redop_made = true;
    if (p->op == VALUE_PREMUL_HOST)
        memset(p->scalar, POISON, sizeof(p->scalar));
    else
        value_scalar(p->scalar, p->type, p->seed, p->rank);
    return true;
}

static bool prepare(multi_rank *rank, struct part *p, const matrix_case *c,
        uint64_t seed, int r, ncclComm_t comm)
{
    *p = (struct part){ .c = c, .rank = r, .nranks = matrix_nranks(c) };
    p->type = c->v[DIM_TYPE];
    p->esize = value_types[p->type].bytes;
    p->op = matrix_reduces(c->v[DIM_KIND]) ? (value_op)c->v[DIM_OP] : VALUE_SUM;
    p->count = matrix_count(c);
    p->seed = value_mix(seed ^ ((uint64_t)c->id << 20));
    p->root = (int)(p->seed % (uint64_t)p->nranks);
    p->in_place = c->v[DIM_PLACE] == 1;
    if (c->v[DIM_KIND] == KIND_ALL_TO_ALL_V)
        lay_out_v(p);
    if (!make_buffers(p))
        return multi_check(rank, false, "no memory for the buffers");
    if (c->v[DIM_KIND] == KIND_ALL_REDUCE_BIAS) {
        if (!buffer_make(&p->bias, p, p->count))
            return multi_check(rank, false, "no memory for the bias");
        fill(p, p->bias.data, 0, VALUE_BIAS_RANK(r), 0, p->count);
    }
    if (!buffer_keep(&p->a) || !buffer_keep(&p->b) || !buffer_keep(&p->bias))
        return multi_check(rank, false, "no memory for the copies");
    buffer_hide(&p->a);
    buffer_hide(&p->b);
    buffer_hide(&p->bias);
    return make_redop(rank, p, comm);
}

/* ---- the call ---- */

/** Messages may name different types of equal bytes at the two ends. */
static ncclResult_t issue_ring(const struct part *p, ncclComm_t comm,
        cudaStream_t stream)
{
    int next = (p->rank + 1) % p->nranks, prev = (p->rank + p->nranks - 1) % p->nranks;
    size_t sent = pair_count(p, p->rank, next), got = pair_count(p, prev, p->rank);
    bool as_bytes = (p->seed >> 9) & 1;
    ncclDataType_t type = (ncclDataType_t)p->type;
    ncclResult_t results[4];

    results[0] = ncclGroupStart();
    results[1] = ncclSend(p->send, sent, type, next, comm, stream);
    results[2] = ncclRecv(p->recv, as_bytes ? got * p->esize : got,
            as_bytes ? ncclUint8 : type, prev, comm, stream);
    results[3] = ncclGroupEnd();
    for (int i = 0; i < 4; i++)
        if (results[i] != ncclSuccess)
            return results[i];
    return ncclSuccess;
}

static ncclResult_t issue_self(const struct part *p, ncclComm_t comm,
        cudaStream_t stream)
{
    ncclDataType_t type = (ncclDataType_t)p->type;
    ncclResult_t results[4];

    results[0] = ncclGroupStart();
    results[1] = ncclSend(p->send, p->count, type, p->rank, comm, stream);
    results[2] = ncclRecv(p->recv, p->count, type, p->rank, comm, stream);
    results[3] = ncclGroupEnd();
    for (int i = 0; i < 4; i++)
        if (results[i] != ncclSuccess)
            return results[i];
    return ncclSuccess;
}

static ncclResult_t issue(const struct part *p, ncclComm_t comm, cudaStream_t stream)
{
    ncclDataType_t t = (ncclDataType_t)p->type;
    const void *s = p->send;
    void *r = p->recv;
    size_t n = p->count;

    switch (p->c->v[DIM_KIND]) {
    case KIND_ALL_REDUCE: return ncclAllReduce(s, r, n, t, p->redop, comm, stream);
    case KIND_ALL_REDUCE_BIAS:
        return ncclAllReduceWithBias(s, r, n, t, p->redop, comm, stream, p->bias.data);
    case KIND_REDUCE: return ncclReduce(s, r, n, t, p->redop, p->root, comm, stream);
    case KIND_REDUCE_SCATTER:
        return ncclReduceScatter(s, r, n, t, p->redop, comm, stream);
    case KIND_BROADCAST: return ncclBroadcast(s, r, n, t, p->root, comm, stream);
    case KIND_BCAST: return ncclBcast(r, n, t, p->root, comm, stream);
    case KIND_ALL_GATHER: return ncclAllGather(s, r, n, t, comm, stream);
    case KIND_ALL_TO_ALL:
        return (p->seed >> 5) & 1 ? ncclAlltoAll(s, r, n, t, comm, stream)
                                  : ncclAllToAll(s, r, n, t, comm, stream);
    case KIND_ALL_TO_ALL_V:
        return ((p->seed >> 5) & 1 ? ncclAlltoAllv : ncclAllToAllv)(s, p->sendcounts,
                p->sdispls, r, p->recvcounts, p->rdispls, t, comm, stream);
    case KIND_GATHER: return ncclGather(s, r, n, t, p->root, comm, stream);
    case KIND_SCATTER: return ncclScatter(s, r, n, t, p->root, comm, stream);
    case KIND_RING: return issue_ring(p, comm, stream);
    default: return issue_self(p, comm, stream);
    }
}

/* ---- what must have come out ---- */

/** Expect, @p at elements into b, elements of @p rank's stream. */
static void expect(const struct part *p, size_t at, int rank, size_t first,
        size_t count)
{
    value_fill(copy_at(p, &p->b, at), p->type, p->op, p->seed, rank, first, count);
}

static void expect_moved(const struct part *p)
{
    size_t n = p->count;
    int prev = (p->rank + p->nranks - 1) % p->nranks;

    switch (p->c->v[DIM_KIND]) {
    case KIND_BROADCAST:
    case KIND_BCAST: expect(p, 0, p->root, 0, n); break;
    case KIND_GATHER:
        if (p->rank != p->root)
            break;
        /* fall through */
    case KIND_ALL_GATHER:
        for (int i = 0; i < p->nranks; i++)
            expect(p, (size_t)i * n, i, 0, n);
        break;
    case KIND_ALL_TO_ALL:
        for (int i = 0; i < p->nranks; i++)
            expect(p, (size_t)i * n, i, (size_t)p->rank * n, n);
        break;
    case KIND_ALL_TO_ALL_V:
        for (int i = 0; i < p->nranks; i++)
            expect(p, p->rdispls[i], i, pair_first(i, p->rank), p->recvcounts[i]);
        break;
    case KIND_SCATTER:
        expect(p, (size_t)((unsigned char *)p->recv - p->b.data) / p->esize, p->root,
                (size_t)p->rank * n, n);
        break;
    case KIND_RING: expect(p, 0, prev, 0, pair_count(p, prev, p->rank)); break;
    default: expect(p, 0, p->rank, 0, n);
    }
}

/** Compare the reduced elements, then take them over, so that the rest can be compared. */
static bool expect_reduced(multi_rank *rank, const struct part *p, const char *name,
        bool look)
{
    bool has = p->c->v[DIM_KIND] != KIND_REDUCE || p->rank == p->root;
    value_reduction want = { .type = p->type,
        .op = p->op,
        .seed = p->seed,
        .nranks = p->nranks,
        .count = p->count };
    char why[256];

    if (!has || p->count == 0)
        return true;
    if (p->c->v[DIM_KIND] == KIND_REDUCE_SCATTER)
        want.first = (size_t)p->rank * p->count;
    want.bias = p->c->v[DIM_KIND] == KIND_ALL_REDUCE_BIAS;
    want.bias_rank = p->rank;
    if (look && !value_check(p->recv, &want, why, sizeof(why)))
        return multi_check(rank, false, "%s: rank %d: %s", name, p->rank, why);
    memcpy(p->b.copy + ((unsigned char *)p->recv - p->b.block), p->recv,
            p->count * p->esize);
    return true;
}

static bool same(multi_rank *rank, const struct part *p, const struct buffer *b,
        const char *name, const char *what)
{
    if (b->block == NULL || memcmp(b->block, b->copy, b->block_bytes) == 0)
        return true;
    for (size_t i = 0; i < b->block_bytes; i++)
        if (b->block[i] != b->copy[i])
            return multi_check(rank, false,
                    "%s: rank %d: byte %td of the %s (%zu bytes) is 0x%02x, expected "
                    "0x%02x",
                    name, p->rank, (ptrdiff_t)i - (b->data - b->block), what, b->bytes,
                    b->block[i], b->copy[i]);
    return true;
}

static void show(struct buffer *b)
{
    if (b->block != NULL)
        SHOW(b->block, b->block_bytes);
}

/** Compare everything, leave this rank's hash, free. */
static bool check(multi_rank *rank, struct part *p, const char *name, uint64_t *hash)
{
    unsigned kind = p->c->v[DIM_KIND];
    /* Where all ranks must agree, one is compared with the reference, all by their hash. */
    bool alike = matrix_same_everywhere(p->c);
    bool look = !alike || (int)((p->seed >> 32) % (uint64_t)p->nranks) == p->rank;
    bool fine;

    show(&p->a);
    show(&p->b);
    show(&p->bias);
    if (kind == KIND_ALL_TO_ALL && p->in_place)
        memcpy(copy_at(p, &p->b, 0), p->b.data, p->b.bytes);
    else if (!matrix_reduces(kind) && look && p->recv != NULL)
        expect_moved(p);
    else if (!matrix_reduces(kind) && p->recv != NULL)
        memcpy(copy_at(p, &p->b, 0), p->b.data, p->b.bytes);
    fine = !matrix_reduces(kind) || expect_reduced(rank, p, name, look);
    fine = fine && same(rank, p, &p->a, name, "send buffer") &&
            same(rank, p, &p->b, name, "receive buffer") &&
            same(rank, p, &p->bias, name, "bias");
    if (alike)
        *hash = value_hash(p->b.data, p->b.bytes);
    buffer_drop(&p->a);
    buffer_drop(&p->b);
    buffer_drop(&p->bias);
    return fine;
}

/* ---- a world ---- */

struct worker {
    multi_rank *rank;
    const matrix_world *world;
    int first, ranks; /* ranks that this thread drives */
    cudaStream_t stream[MULTI_MAX_RANKS];
    struct part part[MAX_BATCH][MULTI_MAX_RANKS];
};

/** Cases from @p at on that form one group. */
static size_t batch_size(const matrix_world *w, size_t at)
{
    size_t n = 1;

    if (!w->cases[at].v[DIM_GROUP] || matrix_count(&w->cases[at]) > MAX_GROUPED_COUNT)
        return 1;
    while (n < MAX_BATCH && at + n < w->count && w->cases[at + n].v[DIM_GROUP] &&
            matrix_count(&w->cases[at + n]) <= MAX_GROUPED_COUNT)
        n++;
    return n;
}

static ncclComm_t comm_of(const struct worker *w, int i)
{
    return w->rank->comms[w->ranks == 1 ? 0 : i];
}

static bool issue_all(struct worker *w, size_t batch, bool grouped)
{
    bool fine = !grouped || multi_ok(w->rank, ncclGroupStart(), "ncclGroupStart");

    for (int i = 0; i < w->ranks && fine; i++)
        for (size_t k = 0; k < batch && fine; k++) {
            struct part *p = &w->part[k][i];

            fine = multi_ok(w->rank,
                    issue(p, comm_of(w, i), p->c->v[DIM_STREAM] ? w->stream[i] : NULL),
                    "the call");
            /* As frameworks do: the operator goes before the operation has run. */
            if (fine && p->redop_made)
                fine = multi_ok(w->rank, ncclRedOpDestroy(p->redop, comm_of(w, i)),
                        "ncclRedOpDestroy");
        }
    return fine && (!grouped || multi_ok(w->rank, ncclGroupEnd(), "ncclGroupEnd"));
}

static bool sync_streams(struct worker *w, size_t batch)
{
    bool used = false;

    for (size_t k = 0; k < batch; k++)
        used = used || w->part[k][0].c->v[DIM_STREAM];
    for (int i = 0; used && i < w->ranks; i++)
        if (!multi_ok(w->rank, motet_stream_synchronize(w->stream[i]),
                    "motet_stream_synchronize"))
            return false;
    return true;
}

/** False only if the communicator is of no use any more. */
static bool run_batch(struct worker *w, size_t at, size_t batch)
{
    const matrix_case *c = &w->world->cases[at];
    uint64_t *hashes = w->rank->shared;
    char name[256];

    matrix_name(c, name, sizeof(name));
    multi_doing(w->rank, "%s%s", name, batch > 1 ? " and its group" : "");
    for (size_t k = 0; k < batch; k++)
        for (int i = 0; i < w->ranks; i++)
            if (!prepare(w->rank, &w->part[k][i], c + k, w->world->seed, w->first + i,
                        comm_of(w, i)))
                return false;
    if (!issue_all(w, batch, batch > 1 || w->ranks > 1 || c->v[DIM_GROUP]) ||
            !sync_streams(w, batch)) {
        multi_fail(w->rank, "in %s", name);
        return false;
    }
    for (size_t k = 0; k < batch; k++) {
        matrix_name(c + k, name, sizeof(name));
        for (int i = 0; i < w->ranks; i++)
            (void)check(w->rank, &w->part[k][i], name,
                    &hashes[(at + k) * (size_t)w->rank->nranks +
                            (size_t)(w->first + i)]);
    }
    return true;
}

static bool make_streams(struct worker *w)
{
    for (int i = 0; i < w->ranks; i++)
        if (!multi_ok(w->rank, motet_stream_create(&w->stream[i]),
                    "motet_stream_create"))
            return false;
    return true;
}

void matrix_body(multi_rank *rank)
{
    const matrix_world *world = rank->arg;
    bool one_thread =
            world->count > 0 && world->cases[0].v[DIM_LAYOUT] == MULTI_ONE_THREAD;
    struct worker *w = calloc(1, sizeof(*w));
    size_t batch = 1;

    if (!multi_check(rank, w != NULL, "no memory"))
        return;
    w->rank = rank;
    w->world = world;
    w->first = rank->rank;
    w->ranks = one_thread ? rank->nranks : 1;
    if (make_streams(w))
        for (size_t at = 0; at < world->count; at += batch) {
            batch = batch_size(world, at);
            if (!run_batch(w, at, batch))
                break;
        }
    for (int i = 0; i < w->ranks; i++)
        if (w->stream[i] != NULL)
            (void)multi_ok(rank, motet_stream_destroy(w->stream[i]),
                    "motet_stream_destroy");
    free(w);
}
