/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of a path: every protocol moves values that depend on both ranks over every
 * pair in both directions, and the receiver checks them on the host. The kernels are those
 * that operations run. Late is as bad as wrong.
 */
#include "comm/gpu.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of each pair's message; odd sizes would prove nothing more. */
static const size_t sizes[] = { 4, 4 << 10, 1 << 20 };

enum { PROTOCOLS = 3 };
static const uint8_t protocols[PROTOCOLS] = { MOTET_GPU_LL, MOTET_GPU_STAGED,
    MOTET_GPU_TWOSHOT };

typedef struct proof {
    motet_comm *comm;
    motet_gpu_memory
            memory; /* send, then recv: nranks pieces of the largest size each */
    uint32_t *host; /* as large as one of the two                              */
    uint64_t deadline_ns;
} proof;

static uint32_t value(int from, int to, size_t i, uint32_t salt)
{
    uint64_t h = ((uint64_t)(unsigned)from << 40 ^ (uint64_t)(unsigned)to << 24 ^ i) +
            salt * 0x9e3779b97f4a7c15ull;

    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

static uint64_t send_at(const proof *p)
{
    return p->memory.address;
}

static uint64_t recv_at(const proof *p)
{
    return p->memory.address + p->memory.bytes / 2;
}

/* Wait for the kernels; at the deadline they are told to leave. */
static motet_result await(const proof *p)
{
    motet_gpu_link *link = p->comm->gpu->link;
    struct timespec nap = { .tv_nsec = 20000 };
    motet_result result;
    bool late = false;

    while ((result = link->ops->stream_query(link->gpu, link->stream)) ==
            MOTET_IN_PROGRESS) {
        if (!late &&
                (motet_deadline_passed(p->deadline_ns) ||
                        atomic_load(&p->comm->cancel) != 0)) {
            late = true;
            __atomic_store_n(&link->control->abort, 1, __ATOMIC_RELEASE);
        }
        nanosleep(&nap, NULL);
    }
    if (result == MOTET_OK && late)
        return motet_fail(MOTET_ERR_REMOTE, "nothing came within the deadline");
    if (result == MOTET_OK && __atomic_load_n(&link->control->error, __ATOMIC_ACQUIRE))
        return motet_fail(MOTET_ERR_REMOTE, "a kernel saw another rank's words wrong");
    return result;
}

/* All ranks to all, with the protocol that is forced; an all_reduce for the two-shot. */
static motet_result run(proof *p, size_t bytes, uint32_t salt)
{
    motet_gpu_engine *g = p->comm->gpu;
    size_t words = bytes / sizeof(uint32_t);
    bool reduces = g->constants.forced == MOTET_GPU_TWOSHOT;
    motet_op op = {
        .kind = reduces ? MOTET_ALL_REDUCE : MOTET_ALL_TO_ALL,
        .type = MOTET_UINT32,
        .root = -1,
        .send = (const void *)(uintptr_t)send_at(p),
        .recv = (void *)(uintptr_t)recv_at(p),
        .count = words,
    };

    for (int to = 0; to < p->comm->nranks; to++)
        for (size_t i = 0; i < words; i++)
            p->host[(size_t)to * words + i] =
                    value(p->comm->rank, reduces ? 0 : to, i, salt);
    MOTET_TRY(motet_gpu_link_copy(g->link, send_at(p), (uint64_t)(uintptr_t)p->host,
                      bytes * (size_t)p->comm->nranks),
            "fill");
    MOTET_TRY(motet_gpu_collective(g, &op, g->link->stream), "launch");
    return await(p);
}

static bool right(proof *p, size_t bytes, uint32_t salt)
{
    int n = p->comm->nranks;
    bool reduces = p->comm->gpu->constants.forced == MOTET_GPU_TWOSHOT;
    size_t words = bytes / sizeof(uint32_t);

    for (int from = 0; from < (reduces ? 1 : n); from++) {
        for (size_t i = 0; i < words; i++) {
            uint32_t expected = 0;

            for (int r = 0; reduces && r < n; r++)
                expected += value(r, 0, i, salt);
            if (!reduces)
                expected = value(from, p->comm->rank, i, salt);
            if (p->host[(size_t)from * words + i] != expected)
                return false;
        }
    }
    return true;
}

/* One protocol, all sizes. @p wrong_out: what came was wrong. */
static motet_result prove_protocol(proof *p, uint8_t protocol, bool *wrong_out)
{
    size_t n = (size_t)p->comm->nranks;

    p->comm->gpu->constants.forced = protocol;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint32_t salt = (uint32_t)(protocol * 16 + i);

        if (protocol == MOTET_GPU_LL && i == 2)
            continue; /* never used for so much */
        MOTET_TRY(run(p, sizes[i], salt), "%zu bytes by %s", sizes[i],
                motet_gpu_protocol_names[protocol]);
        MOTET_TRY(motet_gpu_link_copy(p->comm->gpu->link, (uint64_t)(uintptr_t)p->host,
                          recv_at(p), sizes[i] * n),
                "look");
        *wrong_out = *wrong_out || !right(p, sizes[i], salt);
    }
    return MOTET_OK;
}

static motet_result prove_all(proof *p, uint8_t *wrong_out)
{
    for (int i = 0; i < PROTOCOLS; i++) {
        bool wrong = false;

        MOTET_TRY(prove_protocol(p, protocols[i], &wrong), "proof");
        if (wrong)
            *wrong_out |= (uint8_t)(1u << protocols[i]);
    }
    return MOTET_OK;
}

motet_result motet_comm_gpu_prove(motet_comm *comm, uint64_t deadline_ns,
        uint8_t *wrong_out)
{
    motet_gpu_link *link = comm->gpu->link;
    size_t half = sizes[2] * (size_t)comm->nranks;
    uint8_t forced = comm->gpu->constants.forced;
    uint64_t seq = comm->engine.seq;
    proof p = { .comm = comm, .deadline_ns = deadline_ns, .host = malloc(half) };
    motet_result result;

    *wrong_out = 0;
    if (p.host == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "proof of %zu bytes", half);
    comm->gpu->unrecorded = true;
    result = link->ops->alloc(link->gpu, 2 * half, &p.memory);
    if (result == MOTET_OK)
        result = prove_all(&p, wrong_out);
    comm->gpu->constants.forced = forced;
    comm->gpu->unrecorded = false;
    comm->engine.seq = seq; /* the proof's calls were nobody's */
    link->ops->free(link->gpu, &p.memory);
    free(p.host);
    return result;
}
