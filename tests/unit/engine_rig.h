/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines of a few ranks on arenas in one process, without communicators: each rank has
 * its own arena writable and the others' mapped read-only, as processes would, and runs
 * on a thread of its own. Windows are made of segments that every rank maps.
 *
 * ThreadSanitizer knows addresses, not memory: with it all ranks share one mapping of each
 * segment, or it would see each end of an exchange alone and no order to check.
 */
#ifndef MOTET_TEST_ENGINE_RIG_H
#define MOTET_TEST_ENGINE_RIG_H

#include "base/clock.h"
#include "base/segment.h"
#include "engine/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define RIG_ONE_MAPPING true
#else
#define RIG_ONE_MAPPING false
#endif

#define RIG_RANKS  4
#define RIG_NONCE  99
#define RIG_PID(r) (10000 + (r))

typedef struct rig {
    int n;
    motet_arena arena[RIG_RANKS][RIG_RANKS]; /* [who sees it][whose it is] */
    motet_peer peer[RIG_RANKS];
    motet_pair_state pair[RIG_RANKS][RIG_RANKS];
    motet_recorder recorder[RIG_RANKS];
    motet_engine engine[RIG_RANKS];
} rig;

typedef struct rig_options {
    int n;
    uint64_t epoch;
    uint32_t board_chunk; /* 0 = default */
    const char *algo;     /* as MOTET_ALGO, NULL none */
    uint64_t timeout_ms;
    bool oversubscribed;
} rig_options;

static inline void rig_open_recorder(rig *g, int rank)
{
    motet_recorder_args args = { .rank = rank, .nranks = g->n, .device = -1 };
    motet_params *params = malloc(sizeof(*params));

    setenv("MOTET_TRACE_DIR", "/nonexistent", 1); /* memory only */
    assert_non_null(params);
    assert_int_equal(motet_params_from_environment(params), MOTET_OK);
    assert_int_equal(motet_recorder_create(params, &args, &g->recorder[rank]),
            MOTET_OK);
    free(params);
}

static inline void rig_map(rig *g, const motet_arena_shape *shape)
{
    for (int owner = 0; owner < g->n; owner++) {
        int fd;

        assert_int_equal(motet_arena_create(shape, owner, RIG_NONCE,
                                 &g->arena[owner][owner], &fd),
                MOTET_OK);
        for (int r = 0; r < g->n; r++)
            if (RIG_ONE_MAPPING)
                g->arena[r][owner] = g->arena[owner][owner];
            else if (r != owner)
                assert_int_equal(motet_arena_map(shape, owner, RIG_NONCE, fd,
                                         &g->arena[r][owner]),
                        MOTET_OK);
        close(fd);
    }
}

static inline rig *rig_make(const rig_options *options)
{
    rig *g = calloc(1, sizeof(*g));
    motet_constants constants;
    motet_arena_shape shape;

    assert_non_null(g);
    g->n = options->n;
    motet_constants_default(g->n, &constants);
    if (options->board_chunk != 0)
        constants.board_chunk = options->board_chunk;
    constants.epoch_start = options->epoch;
    if (options->algo != NULL)
        assert_int_equal(motet_plan_force(options->algo, &constants), MOTET_OK);
    shape = (motet_arena_shape){ g->n, constants.board_chunk, constants.pair_chunk };
    rig_map(g, &shape);
    for (int r = 0; r < g->n; r++) {
        motet_engine *engine = &g->engine[r];

        g->peer[r].pid = RIG_PID(r);
        rig_open_recorder(g, r);
        engine->rank = r;
        engine->nranks = g->n;
        engine->arena = g->arena[r];
        engine->peer = g->peer;
        engine->pair = g->pair[r];
        engine->recorder = &g->recorder[r];
        engine->constants = constants;
        engine->oversubscribed = options->oversubscribed;
        engine->warn_after_ns = 3600 * MOTET_NS_PER_S;
        atomic_store(&engine->timeout_ns,
                (options->timeout_ms != 0 ? options->timeout_ms : 60000) *
                        MOTET_NS_PER_MS);
        motet_engine_init(engine);
        atomic_store(&g->arena[r][r].head->life, MOTET_LIFE_READY);
    }
    return g;
}

static inline void rig_free(rig *g)
{
    for (int r = 0; r < g->n; r++) {
        motet_engine_release(&g->engine[r]);
        motet_recorder_destroy(&g->recorder[r], true);
        for (int owner = 0; owner < g->n; owner++)
            if (!RIG_ONE_MAPPING || owner == r)
                motet_arena_release(&g->arena[r][owner]);
    }
    free(g);
}

/* One rank of a run. */
typedef struct rig_rank {
    rig *g;
    motet_engine *engine;
    int rank;
    void *arg;
    void (*body)(struct rig_rank *rank);
    pthread_t thread;
    motet_result result; /* for the body to fill */
    char text[MOTET_ERROR_TRAIL_MAX];
    uint64_t took_ms;
} rig_rank;

/* Keep @p result and its sentence for the caller of rig_run(): cmocka's assertions are for
 * the main thread only. The first failure stays. */
static inline bool rig_keep(rig_rank *rank, motet_result result)
{
    if (rank->result == MOTET_OK && result != MOTET_OK) {
        rank->result = result;
        (void)snprintf(rank->text, sizeof(rank->text), "%s", motet_error_trail());
    }
    return result == MOTET_OK;
}

/* A failure of the test itself. */
__attribute__((format(printf, 2, 3))) static inline void rig_wrong(rig_rank *rank,
        const char *fmt, ...)
{
    va_list args;

    if (rank->result != MOTET_OK)
        return;
    rank->result = MOTET_ERR_INTERNAL;
    va_start(args, fmt);
    (void)vsnprintf(rank->text, sizeof(rank->text), fmt, args);
    va_end(args);
}

static inline void *rig_thread(void *arg)
{
    rig_rank *rank = arg;
    uint64_t start = motet_now_ns();

    rank->body(rank);
    rank->took_ms = (motet_now_ns() - start) / MOTET_NS_PER_MS;
    return NULL;
}

/* Run @p body on all ranks at once; @p ranks has room for all. */
static inline void rig_run(rig *g, void (*body)(rig_rank *), void *arg, rig_rank *ranks)
{
    for (int r = 0; r < g->n; r++) {
        ranks[r] = (rig_rank){ .g = g,
            .engine = &g->engine[r],
            .rank = r,
            .arg = arg,
            .body = body };
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rig_thread, &ranks[r]),
                0);
    }
    for (int r = 0; r < g->n; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* Run @p body and expect all ranks to end well. */
static inline void rig_run_well(rig *g, void (*body)(rig_rank *), void *arg)
{
    rig_rank ranks[RIG_RANKS];

    rig_run(g, body, arg, ranks);
    for (int r = 0; r < g->n; r++)
        if (ranks[r].result != MOTET_OK)
            fail_msg("rank %d of %d: result %d: %s", r, g->n, (int)ranks[r].result,
                    ranks[r].text);
}

static inline void rig_sleep_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

/* ---- collectives of int32, with values that tell rank, element and call apart ---- */

static inline int32_t rig_value(int rank, size_t i, unsigned salt)
{
    return (int32_t)((uint32_t)rank * 1000003u + (uint32_t)i * 7919u + salt * 104729u);
}

/* How many times op->count the two buffers of a kind hold. */
static inline size_t rig_slices(motet_kind kind, int n, bool send)
{
    bool many = send ? kind == MOTET_REDUCE_SCATTER || kind == MOTET_ALL_TO_ALL ||
                    kind == MOTET_SCATTER
                     : kind == MOTET_ALL_GATHER || kind == MOTET_ALL_TO_ALL ||
                    kind == MOTET_GATHER;

    return many ? (size_t)n : 1;
}

/* Does this rank get a result? */
static inline bool rig_receives(motet_kind kind, int rank, int root)
{
    return (kind != MOTET_REDUCE && kind != MOTET_GATHER) || rank == root;
}

/* Element i of what @p rank must have after @p op of @p n ranks. */
static inline int32_t rig_expected(const motet_op *op, int n, int rank, size_t i,
        unsigned salt)
{
    size_t count = op->count;
    uint32_t sum = 0;

    switch (op->kind) {
    case MOTET_BROADCAST: return rig_value(op->root, i, salt);
    case MOTET_SCATTER: return rig_value(op->root, (size_t)rank * count + i, salt);
    case MOTET_ALL_GATHER:
    case MOTET_GATHER: return rig_value((int)(i / count), i % count, salt);
    case MOTET_ALL_TO_ALL:
        return rig_value((int)(i / count), (size_t)rank * count + i % count, salt);
    case MOTET_REDUCE_SCATTER: i += (size_t)rank * count; break;
    default: break;
    }
    for (int r = 0; r < n; r++)
        sum += (uint32_t)rig_value(r, i, salt);
    return (int32_t)sum;
}

/* Run @p op, whose buffers are set, on this rank, and check what comes out. */
static inline void rig_collective(rig_rank *rank, const motet_op *op, unsigned salt)
{
    int n = rank->g->n;
    size_t sent = op->count * rig_slices(op->kind, n, true);
    size_t got = op->count * rig_slices(op->kind, n, false);
    bool in_place = op->send == op->recv;
    int32_t *send = (int32_t *)(uintptr_t)op->send, *recv = op->recv;

    if (rank->result != MOTET_OK)
        return;
    for (size_t i = 0; !in_place && i < got; i++)
        recv[i] = -1;
    for (size_t i = 0; i < sent; i++)
        send[i] = rig_value(rank->rank, i, salt);
    if (!rig_keep(rank, motet_engine_collective(rank->engine, op)))
        return;
    /* What was sent may be overwritten at once. */
    for (size_t i = 0; !in_place && i < sent; i++)
        send[i] = -2;
    for (size_t i = 0; rig_receives(op->kind, rank->rank, op->root) && i < got; i++) {
        int32_t want = rig_expected(op, n, rank->rank, i, salt);

        if (recv[i] == want)
            continue;
        rig_wrong(rank, "%s of %zu: element %zu is %d, expected %d",
                motet_kind_table[op->kind].name, op->count, i, recv[i], want);
        return;
    }
}

/* ---- windows ---- */

/* A segment of @p bytes for each rank, mapped by all as window @p number. */
static inline void rig_window(rig *g, uint32_t number, int entry, size_t bytes,
        uint8_t **base_out)
{
    motet_window_part *part[RIG_RANKS];

    for (int r = 0; r < g->n; r++) {
        part[r] = calloc((size_t)g->n, sizeof(*part[r]));
        assert_non_null(part[r]);
    }
    for (int owner = 0; owner < g->n; owner++) {
        void *map;
        int fd;

        assert_int_equal(motet_segment_create("window", bytes, &map, &fd), MOTET_OK);
        base_out[owner] = map;
        for (int r = 0; r < g->n; r++) {
            part[r][owner] = (motet_window_part){ .base = map, .bytes = bytes };
            if (r == owner || RIG_ONE_MAPPING)
                continue;
            assert_int_equal(motet_segment_map(fd, bytes, false, &part[r][owner].map),
                    MOTET_OK);
            part[r][owner].base = part[r][owner].map;
            part[r][owner].map_bytes = bytes;
        }
        close(fd);
    }
    for (int r = 0; r < g->n; r++) {
        g->engine[r].window[entry].part = part[r];
        atomic_store(&g->engine[r].window[entry].number, number);
    }
}

static inline void rig_window_free(rig *g, int entry)
{
    for (int r = 0; r < g->n; r++) {
        motet_window *window = &g->engine[r].window[entry];

        atomic_store(&window->number, 0);
        for (int owner = 0; owner < g->n; owner++)
            motet_segment_unmap(owner == r ? (void *)window->part[owner].base
                                           : window->part[owner].map,
                    window->part[owner].bytes);
        free(window->part);
        window->part = NULL;
    }
}

#endif
