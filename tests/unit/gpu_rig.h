/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with two arenas each in this process, and kernels built for the host between
 * them: each block of each rank is a thread. A run that does not end in time is aborted, as a
 * communicator would be, and fails the test.
 */
#ifndef MOTET_TESTS_GPU_RIG_H
#define MOTET_TESTS_GPU_RIG_H

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/host.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RIG_RANKS = 4, RIG_BLOCKS = 8, RIG_DEADLINE_S = 60 };

typedef struct rig {
    int nranks;
    uint32_t blocks; /* of the next grid */
    motet_gpu_layout layout;
    uint8_t *arena[RIG_RANKS][MOTET_GPU_INBOXES], *own[RIG_RANKS];
    motet_gpu_control *control[RIG_RANKS];
    uint32_t operations;
} rig;

/* Slots so small that little takes many steps. */
static const motet_gpu_layout small = { .ll_bytes = 64,
    .chunk = 256,
    .pair_chunk = 256 };

static void *rig_memory(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);

    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

/* Which of its two arenas a rank has for another one, both ways: neighbours meet in the
 * second. */
static uint32_t rig_inbox(int rank, int other)
{
    return (uint32_t)(rank + other) % MOTET_GPU_INBOXES;
}

static motet_gpu_line *rig_line(const rig *g, int rank, uint32_t block, int writer)
{
    return (motet_gpu_line *)(void *)(g->arena[rank][rig_inbox(rank, writer)] +
            motet_gpu_line_offset(&g->layout, block, (uint32_t)writer));
}

static motet_gpu_state *rig_state(const rig *g, int rank, uint32_t block)
{
    return (motet_gpu_state *)(void *)motet_gpu_state_at(g->own[rank], block);
}

/* Arenas as they are after a history that ended at @p start, in which no LL slot was
 * touched since one held @p tag. */
static void rig_reset(rig *g, uint32_t start, uint32_t tag)
{
    const motet_gpu_layout *l = &g->layout;

    for (int r = 0; r < g->nranks; r++) {
        memset(g->own[r], 0, l->own_bytes);
        memset(g->control[r], 0, sizeof(*g->control[r]));
        for (int i = 0; i < MOTET_GPU_INBOXES; i++) {
            memset(g->arena[r][i], 0, l->arena_bytes);
            for (uint64_t at = l->ll; at < l->stage; at += 4)
                memcpy(g->arena[r][i] + at, &tag, sizeof(tag));
        }
        for (uint32_t b = 0; b < l->blocks; b++) {
            rig_state(g, r, b)->position = start;
            rig_state(g, r, b)->cleared = ((start >> 29) - 1) % 8 * 0x0101u;
            for (int w = 0; w < g->nranks; w++) {
                rig_line(g, r, b, w)->progress = start;
                rig_line(g, r, b, w)->published = tag;
            }
        }
    }
}

static void rig_init(rig *g, int nranks, uint32_t blocks, motet_gpu_layout sizes,
        uint32_t start)
{
    memset(g, 0, sizeof(*g));
    g->nranks = nranks;
    g->blocks = blocks;
    g->layout = sizes;
    g->layout.nranks = (uint32_t)nranks;
    g->layout.blocks = g->layout.pair_blocks = RIG_BLOCKS;
    motet_gpu_layout_fill(&g->layout);
    for (int r = 0; r < nranks; r++) {
        for (int i = 0; i < MOTET_GPU_INBOXES; i++)
            g->arena[r][i] = rig_memory(g->layout.arena_bytes);
        g->own[r] = rig_memory(g->layout.own_bytes);
        g->control[r] = rig_memory(sizeof(*g->control[r]));
    }
    rig_reset(g, start, 5);
}

static void rig_release(rig *g)
{
    for (int r = 0; r < g->nranks; r++) {
        for (int i = 0; i < MOTET_GPU_INBOXES; i++)
            free(g->arena[r][i]);
        free(g->own[r]);
        free(g->control[r]);
    }
}

/* What is the same for every operation of rank @p rank. */
static motet_gpu_args rig_args(const rig *g, int rank)
{
    motet_gpu_args args = {
        .own = g->own[rank],
        .control = g->control[rank],
        .layout = g->layout,
        .rank = (uint32_t)rank,
        .nranks = (uint32_t)g->nranks,
        .blocks = g->blocks,
        .fingerprint = 0x1000u + g->operations,
        .ticket = g->operations + 1,
    };

    memcpy(args.inbox, g->arena[rank], sizeof(args.inbox));
    for (int r = 0; r < g->nranks; r++) {
        args.arena[r] = g->arena[r][rig_inbox(rank, r)];
        args.hosted |= rig_inbox(rank, r) << r;
    }
    return args;
}

/* The same for its transfers, of which there is none yet. */
static inline motet_gpu_pairs_args rig_pairs_args(const rig *g, int rank)
{
    motet_gpu_args base = rig_args(g, rank);
    motet_gpu_pairs_args args = {
        .own = base.own,
        .control = base.control,
        .layout = base.layout,
        .rank = base.rank,
        .nranks = base.nranks,
        .blocks = g->blocks,
        .hosted = base.hosted,
        .ticket = base.ticket,
    };

    memcpy(args.inbox, base.inbox, sizeof(args.inbox));
    memcpy(args.arena, base.arena, sizeof(args.arena));
    return args;
}

/* ---- Running ---------------------------------------------------------------------- */

typedef struct rig_block {
    pthread_t thread;
    motet_gpu_host_fn run;
    const void *args;
    uint32_t block, blocks;
} rig_block;

typedef struct rig_grid {
    rig_block block[RIG_BLOCKS];
    uint32_t blocks;
} rig_grid;

static void *rig_block_main(void *arg)
{
    rig_block *b = arg;

    b->run(b->args, b->block, b->blocks);
    return NULL;
}

static void rig_launch(rig_grid *grid, const char *kernel, const void *args,
        uint32_t blocks)
{
    const motet_gpu_host_kernel *k = motet_gpu_host_find(kernel);

    assert_non_null(k);
    grid->blocks = blocks;
    for (uint32_t b = 0; b < blocks; b++) {
        grid->block[b] = (rig_block){ .run = k->run,
            .args = args,
            .block = b,
            .blocks = blocks };
        assert_int_equal(pthread_create(&grid->block[b].thread, NULL, rig_block_main,
                                 &grid->block[b]),
                0);
    }
}

/* @retval false it was late, and had to be aborted */
static bool rig_join(const rig *g, rig_grid *grid)
{
    struct timespec deadline;
    bool in_time = true;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += RIG_DEADLINE_S;
    for (uint32_t b = 0; b < grid->blocks; b++) {
        if (pthread_timedjoin_np(grid->block[b].thread, NULL, &deadline) == 0)
            continue;
        in_time = false;
        for (int r = 0; r < g->nranks; r++)
            __atomic_store_n(&g->control[r]->abort, 1, __ATOMIC_RELEASE);
        pthread_join(grid->block[b].thread, NULL);
    }
    return in_time;
}

/* One operation on all ranks. args: one for each. */
static void rig_run(rig *g, const char *kernel, const motet_gpu_args *args)
{
    rig_grid grid[RIG_RANKS];
    bool in_time = true;

    for (int r = 0; r < g->nranks; r++)
        rig_launch(&grid[r], kernel, &args[r], g->blocks);
    for (int r = 0; r < g->nranks; r++)
        in_time = rig_join(g, &grid[r]) && in_time;
    if (!in_time)
        fail_msg("%s did not end in %d s", kernel, RIG_DEADLINE_S);
    g->operations++;
}

/* No error anywhere, tickets given back, and all ranks at the same positions. */
static void rig_assert_in_step(const rig *g)
{
    for (int r = 0; r < g->nranks; r++) {
        assert_int_equal(g->control[r]->error, MOTET_GPU_OK);
        for (uint32_t b = 0; b < g->blocks; b++) {
            assert_int_equal(g->control[r]->done[b], g->operations);
            assert_int_equal(g->control[r]->waiting[b].peer_plus_1, 0);
            assert_int_equal(rig_state(g, r, b)->position,
                    rig_state(g, 0, b)->position);
            assert_int_equal(rig_state(g, r, b)->cleared, rig_state(g, 0, b)->cleared);
        }
    }
}

#endif
