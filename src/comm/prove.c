/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of paths: every protocol moves values that depend on both ranks over every
 * pair in both directions, and the receiver checks them on the host. The kernels are those
 * that operations run. Late is as bad as wrong.
 *
 * Ranks go from exchange to exchange together, so that whoever is late is late in the
 * same one. Whose fault it is: a value tells its source; of a kernel that waits, the host
 * sees for whom and at which step. A rank may wait for one that itself waits for a third,
 * but then at a later step: of all that wait, those at the earliest step are right.
 */
#include "comm/gpu.h"
#include "comm/paths.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of each pair's message; odd sizes would prove nothing more. */
static const size_t sizes[] = { 4, 4 << 10, 1 << 20 };

enum { PROTOCOLS = 5 };
static const uint8_t protocols[PROTOCOLS] = { MOTET_GPU_LL, MOTET_GPU_STAGED,
    MOTET_GPU_TWOSHOT, MOTET_GPU_PAIRS, MOTET_GPU_COPIES };

/** Looks at a kernel that is late: it waits for several peers by turns. */
#define SAMPLES 100
/** After it was told to leave: a kernel that is still there then never leaves. */
#define LEAVE_S 20

/* Of one exchange, as one rank saw it: goes over the wire. Masks by peer. */
typedef struct outcome {
    uint32_t failed;  /* something else than a peer: nothing can follow               */
    uint32_t late;    /* for whom it waited in vain: nothing can follow               */
    int32_t late_at;  /* at which step; a step is a position from the operation's on  */
    uint32_t wrong;   /* what they sent was wrong                                     */
    uint32_t results; /* two-shot: what they had reduced was wrong when it came here  */
} outcome;

/* Where kernels were seen waiting. */
typedef struct sighting {
    bool seen;
    uint32_t position;
} sighting;

typedef struct proof {
    motet_comm *comm;
    motet_gpu_memory
            memory; /* send, then recv: nranks pieces of the largest size each */
    uint32_t *host; /* as large as one of the two                              */
    uint64_t deadline_ns, say_deadline_ns;
    uint8_t protocol;
    sighting seen[MOTET_GPU_BLOCKS][MOTET_GPU_RANKS];
} proof;

static uint32_t value(int from, int to, size_t i, uint32_t salt)
{
    uint64_t h = ((uint64_t)(unsigned)from << 40 ^ (uint64_t)(unsigned)to << 24 ^ i) +
            salt * 0x9e3779b97f4a7c15ull;

    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

/* Of a sum, each rank has its own bits, so that it tells who was wrong. */
static uint32_t bits_of(const proof *p, int rank)
{
    uint32_t width = 32 / (uint32_t)p->comm->nranks;

    return (width == 32 ? ~0u : (1u << width) - 1) << width * (uint32_t)rank;
}

static bool reduces(const proof *p)
{
    return p->protocol == MOTET_GPU_TWOSHOT;
}

static uint32_t sent(const proof *p, int from, int to, size_t i, uint32_t salt)
{
    return reduces(p) ? value(from, 0, i, salt) & bits_of(p, from)
                      : value(from, to, i, salt);
}

static uint64_t send_at(const proof *p)
{
    return p->memory.address;
}

static uint64_t recv_at(const proof *p)
{
    return p->memory.address + p->memory.bytes / 2;
}

static uint32_t others(const proof *p)
{
    return ((1u << p->comm->nranks) - 1) & ~(1u << p->comm->rank);
}

/* ---- waiting ---- */

static void look_at_waits(proof *p)
{
    motet_gpu_control *c = p->comm->gpu->link->control;

    for (int b = 0; b < MOTET_GPU_BLOCKS; b++) {
        uint32_t peer = __atomic_load_n(&c->waiting[b].peer_plus_1, __ATOMIC_ACQUIRE);
        uint32_t at = __atomic_load_n(&c->waiting[b].position, __ATOMIC_ACQUIRE);

        if (peer != 0 && peer <= (uint32_t)p->comm->nranks)
            p->seen[b][peer - 1] = (sighting){ true, at };
    }
}

/* Where positions of block @p b count from: those of pairs from the reset on, all others
 * from the operation on, whose flags between copies are block 0 at two places. */
static uint32_t base_of(const proof *p, const motet_gpu_state *state, size_t b)
{
    return p->protocol == MOTET_GPU_PAIRS     ? 0
            : p->protocol == MOTET_GPU_COPIES ? state[0].position
                                              : state[b].position;
}

/* For whom the kernel waited at its earliest step. Its device is idle. */
static motet_result find_late(proof *p, outcome *out)
{
    motet_gpu_link *link = p->comm->gpu->link;
    motet_gpu_state state[MOTET_GPU_BLOCKS];
    size_t blocks = link->layout.blocks;

    MOTET_TRY(motet_gpu_link_copy(link, (uint64_t)(uintptr_t)state, link->own.address,
                      blocks * sizeof(*state)),
            "look at the own words");
    out->late = 0;
    for (size_t b = 0; b < blocks; b++) {
        for (int r = 0; r < p->comm->nranks; r++) {
            int32_t at = (int32_t)(p->seen[b][r].position - base_of(p, state, b));

            if (!p->seen[b][r].seen || (out->late != 0 && at > out->late_at))
                continue;
            out->late = (at < out->late_at || out->late == 0 ? 0 : out->late) | 1u << r;
            out->late_at = at;
        }
    }
    if (out->late == 0) { /* it has not even begun */
        out->late = others(p);
        out->late_at = 0;
    }
    return MOTET_OK;
}

/* Kernels were told to leave. */
static motet_result await_leaving(const proof *p)
{
    motet_gpu_engine *g = p->comm->gpu;
    motet_gpu_link *link = g->link;
    void *const stream[] = { link->stream, g->copies.lane[MOTET_LANE_FILL],
        g->copies.lane[MOTET_LANE_READ] };
    uint64_t deadline_ns = motet_deadline_after_s(LEAVE_S);
    motet_result first = MOTET_OK;

    for (size_t i = 0; i < sizeof(stream) / sizeof(*stream); i++) {
        motet_result result =
                motet_gpu_await(link->ops, link->gpu, stream[i], deadline_ns);

        if (result == MOTET_IN_PROGRESS) {
            link->stuck = true;
            motet_gpu_give_up(link->ops, link->gpu);
            return motet_fail(MOTET_ERR_DEVICE,
                    "a kernel did not leave in %d s after it was told to", LEAVE_S);
        }
        first = first == MOTET_OK ? result : first;
    }
    return first;
}

static motet_result make_leave(const proof *p)
{
    __atomic_store_n(&p->comm->gpu->link->control->abort, 1, __ATOMIC_RELEASE);
    return await_leaving(p);
}

/* Wait for the kernels; at the deadline they are told to leave. */
static motet_result await(proof *p, outcome *out)
{
    motet_gpu_link *link = p->comm->gpu->link;
    struct timespec nap = { .tv_nsec = 20000 }, apart = { .tv_nsec = 500000 };
    motet_result result;

    while ((result = link->ops->stream_query(link->gpu, link->stream)) ==
                    MOTET_IN_PROGRESS &&
            !motet_deadline_passed(p->deadline_ns) &&
            atomic_load(&p->comm->cancel) == 0)
        nanosleep(&nap, NULL);
    if (result == MOTET_IN_PROGRESS) {
        memset(p->seen, 0, sizeof(p->seen));
        for (int i = 0; i < SAMPLES; i++) {
            look_at_waits(p);
            nanosleep(&apart, NULL);
        }
        MOTET_TRY(make_leave(p), "wait");
        return find_late(p, out);
    }
    if (result == MOTET_OK && __atomic_load_n(&link->control->error, __ATOMIC_ACQUIRE))
        return motet_fail(MOTET_ERR_REMOTE, "a kernel saw another rank's words wrong");
    return result;
}

/* ---- one exchange ---- */

/* A message to and one from each other rank, beside this rank's own piece. */
static motet_result launch_pairs(proof *p, size_t words)
{
    motet_transfer transfer[2 * MOTET_GPU_RANKS] = { 0 };
    motet_gpu_engine *g = p->comm->gpu;
    int count = 0, rank = p->comm->rank;
    size_t bytes = words * sizeof(uint32_t);

    MOTET_TRY(motet_gpu_link_copy(g->link, recv_at(p) + (size_t)rank * bytes,
                      send_at(p) + (size_t)rank * bytes, bytes),
            "fill");
    for (int r = 0; r < p->comm->nranks; r++) {
        size_t at = (size_t)r * bytes;

        if (r == rank)
            continue;
        transfer[count++].op = (motet_op){ .kind = MOTET_SEND,
            .type = MOTET_UINT32,
            .root = r,
            .send = (const void *)(uintptr_t)(send_at(p) + at),
            .count = words };
        transfer[count++].op = (motet_op){ .kind = MOTET_RECV,
            .type = MOTET_UINT32,
            .root = r,
            .recv = (void *)(uintptr_t)(recv_at(p) + at),
            .count = words };
    }
    return motet_gpu_pairs(g, transfer, count, g->link->stream);
}

static motet_result launch(proof *p, size_t words)
{
    motet_op op = {
        .kind = reduces(p) ? MOTET_ALL_REDUCE : MOTET_ALL_TO_ALL,
        .type = MOTET_UINT32,
        .root = -1,
        .send = (const void *)(uintptr_t)send_at(p),
        .recv = (void *)(uintptr_t)recv_at(p),
        .count = words,
    };

    return p->protocol == MOTET_GPU_PAIRS
            ? launch_pairs(p, words)
            : motet_gpu_collective(p->comm->gpu, &op, p->comm->gpu->link->stream);
}

/* All ranks to all, with the protocol that is forced; an all_reduce for the two-shot. */
static motet_result run(proof *p, size_t bytes, uint32_t salt, outcome *out)
{
    motet_gpu_engine *g = p->comm->gpu;
    size_t words = bytes / sizeof(uint32_t);
    motet_result result;

    for (int to = 0; to < p->comm->nranks; to++)
        for (size_t i = 0; i < words; i++)
            p->host[(size_t)to * words + i] = sent(p, p->comm->rank, to, i, salt);
    MOTET_TRY(motet_gpu_link_copy(g->link, send_at(p), (uint64_t)(uintptr_t)p->host,
                      bytes * (size_t)p->comm->nranks),
            "fill");
    MOTET_TRY(g->link->ops->fill(g->link->gpu, recv_at(p), ~0u,
                      words * (size_t)p->comm->nranks, g->link->stream),
            "fill");
    result = launch(p, words);
    if (result == MOTET_OK)
        return await(p, out);
    /* Parts of it may wait for peers, over memory that is unmapped next. */
    MOTET_TRY(make_leave(p), "launch");
    return motet_error_wrap(result, "launch");
}

/* Of pieces: each has its source. */
static void check_pieces(const proof *p, size_t words, uint32_t salt, outcome *out)
{
    for (int from = 0; from < p->comm->nranks; from++)
        for (size_t i = 0; i < words; i++)
            if (p->host[(size_t)from * words + i] !=
                    sent(p, from, p->comm->rank, i, salt))
                out->wrong |= 1u << from;
}

/* Of a sum: slices of a multiple of 16 bytes, each reduced by its owner (twoshot.c). In
 * this rank's own, bits tell whose share was wrong. */
static void check_sum(const proof *p, size_t words, uint32_t salt, outcome *out)
{
    size_t n = (size_t)p->comm->nranks, each = ((words + n - 1) / n + 3) / 4 * 4;

    for (size_t i = 0; i < words; i++) {
        size_t owner = i / each;
        uint32_t wrong = p->host[i];

        for (int r = 0; r < p->comm->nranks; r++)
            wrong ^= sent(p, r, 0, i, salt);
        if (wrong != 0 && owner != (size_t)p->comm->rank)
            out->results |= 1u << owner;
        for (int r = 0; wrong != 0 && r < p->comm->nranks; r++)
            if (owner == (size_t)p->comm->rank && (wrong & bits_of(p, r)) != 0)
                out->wrong |= 1u << r;
    }
}

static motet_result look(proof *p, size_t bytes, uint32_t salt, outcome *out)
{
    size_t words = bytes / sizeof(uint32_t);

    MOTET_TRY(motet_gpu_link_copy(p->comm->gpu->link, (uint64_t)(uintptr_t)p->host,
                      recv_at(p), bytes * (size_t)p->comm->nranks),
            "look");
    if (reduces(p))
        check_sum(p, words, salt, out);
    else
        check_pieces(p, words, salt, out);
    return MOTET_OK;
}

/* ---- whose fault it was ---- */

static void blame(const proof *p, uint32_t mask, motet_pair_fate why,
        motet_pair_findings *out)
{
    for (int r = 0; r < p->comm->nranks; r++)
        if ((mask >> r & 1) != 0 && r != p->comm->rank) {
            out->why[r] = (uint8_t)why;
            out->protocols[r] |= (uint8_t)(1u << p->protocol);
        }
}

/* @retval false nothing can follow */
static bool judge(const proof *p, const outcome *all, motet_pair_findings *out)
{
    const outcome *mine = &all[p->comm->rank];
    uint32_t results = mine->results;
    int32_t first = INT32_MAX;
    bool stops = false;

    for (int r = 0; r < p->comm->nranks; r++) {
        if (all[r].late != 0 && all[r].late_at < first)
            first = all[r].late_at;
        if (all[r].wrong != 0) /* it was given a wrong share */
            results &= ~(1u << r);
        stops = stops || all[r].late != 0 || all[r].failed;
    }
    if ((mine->wrong >> p->comm->rank & 1) != 0) /* not even its own share was right */
        results = others(p);
    blame(p, mine->wrong | results, MOTET_PAIR_WRONG, out);
    if (mine->late != 0 && mine->late_at == first)
        blame(p, mine->late, MOTET_PAIR_LATE, out);
    return !stops;
}

/* The end of a step of all ranks, which went as @p result says here, and @p mine. */
static motet_result compare(const proof *p, motet_result result, outcome *mine,
        motet_pair_findings *out, bool *goes_on_out)
{
    outcome all[MOTET_GPU_RANKS];

    if (result != MOTET_OK) {
        mine->failed = 1;
        motet_pair_findings_fail(out, others(p), motet_error_trail());
        motet_error_clear();
    }
    MOTET_TRY(motet_comm_say(p->comm, mine, sizeof(*mine), all, p->say_deadline_ns,
                      &p->comm->cancel),
            "compare what came");
    *goes_on_out = judge(p, all, out);
    return MOTET_OK;
}

/* Exchange number @p size of a protocol. @p goes_on_out: another may follow. */
static motet_result prove_size(proof *p, size_t size, motet_pair_findings *out,
        bool *goes_on_out)
{
    uint32_t salt = (uint32_t)(p->protocol * 16u + size);
    outcome mine = { 0 };
    motet_result result = run(p, sizes[size], salt, &mine);

    if (result == MOTET_OK && mine.late == 0)
        result = look(p, sizes[size], salt, &mine);
    return compare(p, result, &mine, out, goes_on_out);
}

static motet_result make_memory(proof *p, motet_pair_findings *out, bool *goes_on_out)
{
    motet_gpu_link *link = p->comm->gpu->link;
    size_t half = sizes[2] * (size_t)p->comm->nranks;
    outcome mine = { 0 };
    motet_result result = link->ops->alloc(link->gpu, 2 * half, &p->memory);

    p->host = malloc(half);
    if (result == MOTET_OK && p->host == NULL)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "proof of %zu bytes", half);
    return compare(p, result, &mine, out, goes_on_out);
}

static motet_result prove_all(proof *p, motet_pair_findings *out)
{
    motet_gpu_constants *constants = &p->comm->gpu->constants;
    bool goes_on = false;

    MOTET_TRY(make_memory(p, out, &goes_on), "proof");
    for (int i = 0; i < PROTOCOLS && goes_on; i++) {
        p->protocol = protocols[i];
        if ((constants->vetoed >> p->protocol & 1) != 0)
            continue;
        constants->forced = p->protocol;
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes) && goes_on; k++)
            if (p->protocol != MOTET_GPU_LL || k < 2) /* never used for so much */
                MOTET_TRY(prove_size(p, k, out, &goes_on), "%zu bytes by %s", sizes[k],
                        motet_gpu_protocol_names[p->protocol]);
    }
    if (p->comm->gpu->link->stuck)
        return motet_fail(MOTET_ERR_DEVICE, "a kernel does not leave the device");
    return MOTET_OK;
}

/* Its streams are idle: the first operation has nothing to wait for. */
static void forget_proof(motet_gpu_engine *g)
{
    g->unrecorded = false;
    g->used = g->events = false;
    g->stream = NULL;
}

motet_result motet_comm_gpu_prove(motet_comm *comm, uint64_t deadline_ns,
        uint64_t say_deadline_ns, motet_pair_findings *out)
{
    motet_gpu_link *link = comm->gpu->link;
    uint8_t forced = comm->gpu->constants.forced, rules = comm->gpu->constants.rules;
    uint64_t seq = comm->engine.seq;
    proof *p = calloc(1, sizeof(*p));
    motet_result result;

    if (p == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "proof");
    p->comm = comm;
    p->deadline_ns = deadline_ns;
    p->say_deadline_ns = say_deadline_ns;
    comm->gpu->unrecorded = true;
    comm->gpu->constants.rules = 0;
    result = prove_all(p, out);
    comm->gpu->constants.forced = forced;
    comm->gpu->constants.rules = rules;
    forget_proof(comm->gpu);
    comm->engine.seq = seq; /* the proof's calls were nobody's */
    if (!link->stuck)
        link->ops->free(link->gpu, &p->memory);
    free(p->host);
    free(p);
    return result;
}
