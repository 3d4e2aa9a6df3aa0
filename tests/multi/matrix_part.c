/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part in one case of the value matrix; see matrix_part.h. */
#include "matrix_part.h"

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

#define GUARD  64 /* bytes before and after each buffer */
#define POISON 0xa5
#define CANARY 0xc3

/* ---- buffers ---- */

static bool buffer_make(matrix_buffer *b, const matrix_part *p, size_t elements)
{
    size_t shift = p->c->v[DIM_SHIFT] ? p->esize : 0;

    b->bytes = elements * p->esize;
    b->block_bytes = (GUARD + shift + b->bytes + GUARD + 63) / 64 * 64;
    b->block = aligned_alloc(64, b->block_bytes);
    b->copy = malloc(b->block_bytes);
    if (b->block == NULL || b->copy == NULL)
        return false;
    b->data = b->block + GUARD + shift;
    if (matrix_there != NULL)
        b->there = matrix_there->reserve(p->place.state, p->place.i, b->block_bytes);
    return matrix_there == NULL || b->there != NULL;
}

static void buffer_poison(matrix_buffer *b)
{
    if (b->block == NULL)
        return;
    memset(b->block, CANARY, b->block_bytes);
    memset(b->data, POISON, b->bytes);
}

static void buffer_keep(matrix_buffer *b)
{
    if (b->block != NULL)
        memcpy(b->copy, b->block, b->block_bytes);
}

/** The address that the library is given for @p here, an address in @p b or not. */
static void *address_in(const matrix_buffer *b, const void *here)
{
    const unsigned char *p = here;

    if (b->there == NULL || p < b->block || p > b->block + b->block_bytes)
        return NULL;
    return b->there + (p - b->block);
}

static void buffer_hide(matrix_buffer *b)
{
    size_t before = (size_t)(b->data - b->block);

    if (b->block == NULL || matrix_there != NULL)
        return; /* whole blocks are sent and fetched */
    HIDE(b->block, before);
    HIDE(b->data + b->bytes, b->block_bytes - before - b->bytes);
}

static void buffer_drop(matrix_buffer *b)
{
    free(b->block);
    free(b->copy);
    *b = (matrix_buffer){ .block = NULL };
}

/** Where the copy has what @p at elements into the data must be. */
static unsigned char *copy_at(const matrix_part *p, const matrix_buffer *b, size_t at)
{
    return b->copy + (b->data - b->block) + at * p->esize;
}

/* ---- what a case sends ---- */

/** Elements that rank @p from sends to rank @p to in all_to_all_v and the ring. */
static size_t pair_count(const matrix_part *p, int from, int to)
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

/** Where the elements of this round begin in every rank's stream. */
static size_t round_first(const matrix_part *p)
{
    return (size_t)p->round << 48;
}

static void fill(const matrix_part *p, void *dst, size_t at, int rank, size_t first,
        size_t count)
{
    value_fill((unsigned char *)dst + at * p->esize, p->type, p->op, p->seed, rank,
            round_first(p) + first, count);
}

/** all_to_all_v: counts, and displacements with gaps. */
static void lay_out_v(matrix_part *p)
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

static struct sizes sizes_of(const matrix_part *p)
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
static bool overlaps(const matrix_part *p, const struct sizes *s)
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
static void fill_input(const matrix_part *p, void *dst, size_t count)
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
static bool give_spare(const matrix_part *p, int which)
{
    return (value_mix(p->seed + 77 + (unsigned)which) & 1) != 0;
}

static bool make_buffers(matrix_part *p)
{
    struct sizes s = sizes_of(p);

    if (p->c->v[DIM_KIND] == KIND_ALL_REDUCE_BIAS &&
            !buffer_make(&p->bias, p, p->count))
        return false;
    if (overlaps(p, &s)) {
        size_t whole = s.send > s.recv ? s.send : s.recv;

        if (!buffer_make(&p->b, p, whole))
            return false;
        p->send = p->b.data + s.send_at * p->esize;
        p->recv = p->b.data + s.recv_at * p->esize;
        return true;
    }
    if (s.sends || give_spare(p, 0)) {
        if (!buffer_make(&p->a, p, s.send))
            return false;
        p->send = p->a.data;
    }
    if (s.receives || give_spare(p, 1)) {
        if (!buffer_make(&p->b, p, s.recv))
            return false;
        p->recv = p->b.data;
    }
    return true;
}

void matrix_part_fill(matrix_part *p)
{
    struct sizes s = sizes_of(p);

    buffer_poison(&p->a);
    buffer_poison(&p->b);
    buffer_poison(&p->bias);
    if (overlaps(p, &s))
        fill_input(p, p->b.data + s.send_at * p->esize, s.send);
    else if (s.sends)
        fill_input(p, p->a.data, s.send);
    if (p->bias.block != NULL)
        fill(p, p->bias.data, 0, VALUE_BIAS_RANK(p->rank), 0, p->count);
    buffer_keep(&p->a);
    buffer_keep(&p->b);
    buffer_keep(&p->bias);
}

bool matrix_part_send(const matrix_part *p)
{
    const matrix_buffer *const all[] = { &p->a, &p->b, &p->bias };
    bool fine = true;

    for (size_t k = 0; k < 3 && fine; k++)
        if (all[k]->block != NULL)
            fine = matrix_there->send(p->place.state, p->place.i, all[k]->there,
                    all[k]->block, all[k]->block_bytes);
    if (fine && p->scalar_there != NULL)
        fine = matrix_there->send(p->place.state, p->place.i, p->scalar_there,
                p->scalar, sizeof(p->scalar));
    return fine;
}

bool matrix_part_fetch(const matrix_part *p)
{
    const matrix_buffer *const all[] = { &p->a, &p->b, &p->bias };
    bool fine = true;

    for (size_t k = 0; k < 3 && fine; k++)
        if (all[k]->block != NULL)
            fine = matrix_there->fetch(p->place.state, p->place.i, all[k]->block,
                    all[k]->there, all[k]->block_bytes);
    return fine;
}

/** What the library is given for a pointer into one of the blocks. */
static void *given(const matrix_part *p, const void *here)
{
    const matrix_buffer *const all[] = { &p->a, &p->b, &p->bias };
    void *there = NULL;

    for (size_t k = 0; k < 3 && there == NULL && here != NULL; k++)
        there = address_in(all[k], here);
    return there == NULL ? (void *)(uintptr_t)here : there;
}

static ncclRedOp_t built_in(value_op op)
{
    static const ncclRedOp_t ops[] = { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };

    return ops[op];
}

/** The operator; a device scalar holds something else until the call is made. */
static bool make_redop(multi_rank *rank, matrix_part *p, ncclComm_t comm)
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
    if (p->op == VALUE_PREMUL_DEVICE && matrix_there != NULL) {
        p->scalar_there = matrix_there->reserve(p->place.state, p->place.i, 16);
        if (!multi_check(rank, p->scalar_there != NULL, "no memory for the scalar"))
            return false;
    }
    if (!multi_ok(rank,
                ncclRedOpCreatePreMulSum(&p->redop,
                        p->scalar_there != NULL ? p->scalar_there : p->scalar,
                        (ncclDataType_t)p->type,
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

bool matrix_part_prepare(multi_rank *rank, matrix_part *p, const matrix_case *c,
        uint64_t seed, int r, matrix_place place, ncclComm_t comm)
{
    *p = (matrix_part){ .c = c, .place = place, .rank = r, .nranks = matrix_nranks(c) };
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
    matrix_part_fill(p);
    buffer_hide(&p->a);
    buffer_hide(&p->b);
    buffer_hide(&p->bias);
    return make_redop(rank, p, comm);
}

/* ---- the call ---- */

/** Messages may name different types of equal bytes at the two ends. */
static ncclResult_t issue_ring(const matrix_part *p, ncclComm_t comm,
        cudaStream_t stream)
{
    int next = (p->rank + 1) % p->nranks, prev = (p->rank + p->nranks - 1) % p->nranks;
    size_t sent = pair_count(p, p->rank, next), got = pair_count(p, prev, p->rank);
    bool as_bytes = (p->seed >> 9) & 1;
    ncclDataType_t type = (ncclDataType_t)p->type;
    ncclResult_t results[4];

    results[0] = ncclGroupStart();
    results[1] = ncclSend(given(p, p->send), sent, type, next, comm, stream);
    results[2] = ncclRecv(given(p, p->recv), as_bytes ? got * p->esize : got,
            as_bytes ? ncclUint8 : type, prev, comm, stream);
    results[3] = ncclGroupEnd();
    for (int i = 0; i < 4; i++)
        if (results[i] != ncclSuccess)
            return results[i];
    return ncclSuccess;
}

static ncclResult_t issue_self(const matrix_part *p, ncclComm_t comm,
        cudaStream_t stream)
{
    ncclDataType_t type = (ncclDataType_t)p->type;
    ncclResult_t results[4];

    results[0] = ncclGroupStart();
    results[1] = ncclSend(given(p, p->send), p->count, type, p->rank, comm, stream);
    results[2] = ncclRecv(given(p, p->recv), p->count, type, p->rank, comm, stream);
    results[3] = ncclGroupEnd();
    for (int i = 0; i < 4; i++)
        if (results[i] != ncclSuccess)
            return results[i];
    return ncclSuccess;
}

ncclResult_t matrix_part_issue(const matrix_part *p, ncclComm_t comm,
        cudaStream_t stream)
{
    ncclDataType_t t = (ncclDataType_t)p->type;
    const void *s = given(p, p->send);
    void *r = given(p, p->recv);
    size_t n = p->count;

    switch (p->c->v[DIM_KIND]) {
    case KIND_ALL_REDUCE: return ncclAllReduce(s, r, n, t, p->redop, comm, stream);
    case KIND_ALL_REDUCE_BIAS:
        return ncclAllReduceWithBias(s, r, n, t, p->redop, comm, stream,
                given(p, p->bias.data));
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
static void expect(const matrix_part *p, size_t at, int rank, size_t first,
        size_t count)
{
    value_fill(copy_at(p, &p->b, at), p->type, p->op, p->seed, rank,
            round_first(p) + first, count);
}

static void expect_moved(const matrix_part *p)
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
static bool expect_reduced(multi_rank *rank, const matrix_part *p, const char *name,
        bool look)
{
    bool has = p->c->v[DIM_KIND] != KIND_REDUCE || p->rank == p->root;
    value_reduction want = { .type = p->type,
        .op = p->op,
        .seed = p->seed,
        .nranks = p->nranks,
        .first = round_first(p),
        .count = p->count };
    char why[256];

    if (!has || p->count == 0)
        return true;
    if (p->c->v[DIM_KIND] == KIND_REDUCE_SCATTER)
        want.first += (size_t)p->rank * p->count;
    want.bias = p->c->v[DIM_KIND] == KIND_ALL_REDUCE_BIAS;
    want.bias_rank = p->rank;
    if (look && !value_check(p->recv, &want, why, sizeof(why)))
        return multi_check(rank, false, "%s: rank %d: %s", name, p->rank, why);
    memcpy(p->b.copy + ((unsigned char *)p->recv - p->b.block), p->recv,
            p->count * p->esize);
    return true;
}

static bool same(multi_rank *rank, const matrix_part *p, const matrix_buffer *b,
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

static void show(matrix_buffer *b)
{
    if (b->block != NULL)
        SHOW(b->block, b->block_bytes);
}

void matrix_part_drop(matrix_part *p)
{
    buffer_drop(&p->a);
    buffer_drop(&p->b);
    buffer_drop(&p->bias);
}

bool matrix_part_check(multi_rank *rank, matrix_part *p, const char *name,
        uint64_t *hash)
{
    unsigned kind = p->c->v[DIM_KIND];
    /* Where all ranks must agree, one is compared with the reference, all by their hash. */
    bool alike = matrix_same_everywhere(p->c);
    bool look = !alike ||
            (int)(((p->seed >> 32) + p->round) % (uint64_t)p->nranks) == p->rank;
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
        *hash = value_mix(*hash ^ value_hash(p->b.data, p->b.bytes));
    return fine;
}
