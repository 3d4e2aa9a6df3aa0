/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of data and flag on real devices, tried out: all ranks exchange slots of words
 * that differ in every round, publish them, and look at what comes (motet_litmus).
 *
 *   litmus [--ranks N] [--rounds N] [--bytes N] [--blocks N] [--path direct|staged]
 *
 * One process, a rank a device, or several on one if there are too few. The positions begin
 * shortly before 2^32. Exit status: 0 all words came right, 1 not, 77 no device here.
 */
#include "base/clock.h"
#include "comm/gpu.h"
#include "device/device.h"
#include "engine/gpu.h"
#include "transport/gpu.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANKS = 8,
    ROUNDS_A_LAUNCH = 100000,
    DEADLINE_S = 300,
    START = -1000,
    TOKEN = 7
};

typedef struct options {
    long ranks, rounds, bytes, blocks;
    motet_gpu_path path;
} options;

typedef struct player {
    const motet_gpu_ops *ops;
    motet_gpu *gpu;
    motet_gpu_link *link;
    void *function;
    motet_gpu_memory seen; /* two words a block: how many were wrong, how many rounds */
} player;

static motet_result join(player *p, int rank, const options *o)
{
    motet_gpu_layout layout = { .nranks = (uint32_t)o->ranks,
        .blocks = (uint32_t)o->blocks,
        .pair_blocks = 1,
        .ll_bytes = 64,
        .chunk = (uint32_t)(o->bytes + 255) / 256 * 256,
        .pair_chunk = 256,
        .ring_chunk = 256 };
    motet_gpu_path path[MOTET_GPU_RANKS];
    void *module;

    for (int r = 0; r < MOTET_GPU_RANKS; r++)
        path[r] = o->path;
    motet_gpu_layout_fill(&layout);
    MOTET_TRY(motet_comm_gpu_load(p->ops, p->gpu, "", &module), "load");
    MOTET_TRY(p->ops->function(p->gpu, module, "motet_litmus", &p->function), "load");
    MOTET_TRY(p->ops->alloc(p->gpu, 8 * (size_t)o->blocks, &p->seen), "rank %d", rank);
    MOTET_TRY(motet_gpu_link_make(p->ops, p->gpu, rank, (int)o->ranks, &p->link),
            "make");
    MOTET_TRY(motet_gpu_link_begin(p->link, &layout, path), "rank %d", rank);
    return motet_gpu_link_make_arena(p->link, o->path);
}

/* Everybody maps what rank @p owner offers. */
static motet_result hand_on(player *all, int owner, const options *o)
{
    motet_result result = MOTET_OK;
    motet_gpu_offer offer;
    int fd = -1;

    MOTET_TRY(motet_gpu_link_offer(all[owner].link, o->path, TOKEN, 1 + (uint64_t)owner,
                      &offer, &fd),
            "offer");
    for (int r = 0; r < o->ranks && result == MOTET_OK; r++)
        if (r != owner)
            result = motet_gpu_link_map(all[r].link, owner, &offer, TOKEN, fd);
    if (fd >= 0)
        (void)close(fd);
    return result;
}

static motet_result set_up(player *all, const motet_gpu_ops *ops, int devices,
        const options *o)
{
    for (int r = 0; r < o->ranks; r++) {
        all[r].ops = ops;
        MOTET_TRY(ops->open(r % devices, &all[r].gpu), "device %d", r % devices);
        MOTET_TRY(join(&all[r], r, o), "rank %d", r);
    }
    for (int r = 0; r < o->ranks; r++)
        MOTET_TRY(hand_on(all, r, o), "the arena of rank %d", r);
    for (int r = 0; r < o->ranks; r++)
        MOTET_TRY(motet_gpu_link_reset(all[r].link, (uint32_t)START), "rank %d", r);
    return MOTET_OK;
}

static motet_result start(player *p, const options *o, long rounds)
{
    motet_gpu_engine engine = { .link = p->link };
    motet_gpu_args args;
    motet_launch launch = { .function = p->function,
        .blocks = (uint32_t)o->blocks,
        .threads = MOTET_GPU_THREADS,
        .args = &args,
        .bytes = sizeof(args) };

    motet_gpu_fill_common(&engine, &args);
    args.blocks = (uint32_t)o->blocks;
    args.fingerprint = 1;
    args.send_mask = args.recv_mask = ((1u << o->ranks) - 1) & ~(1u << p->link->rank);
    args.bytes = (uint64_t)rounds;
    args.send_stride = (uint64_t)o->bytes;
    args.recv = (uint8_t *)(uintptr_t)p->seen.address;
    return p->ops->launch(p->gpu, &launch, p->link->stream);
}

/* Adds to @p wrong what this launch found. */
static motet_result finish(player *p, const options *o, long rounds, uint64_t *wrong)
{
    uint32_t seen[2 * MOTET_GPU_BLOCKS];

    MOTET_TRY(motet_gpu_await(p->ops, p->gpu, p->link->stream,
                      motet_deadline_after_s(DEADLINE_S)),
            "rank %d", p->link->rank);
    MOTET_TRY(motet_gpu_link_copy(p->link, (uint64_t)(uintptr_t)seen, p->seen.address,
                      8 * (size_t)o->blocks),
            "rank %d", p->link->rank);
    for (long b = 0; b < o->blocks; b++) {
        *wrong += seen[2 * b];
        if (seen[2 * b + 1] != (uint32_t)rounds)
            return motet_fail(MOTET_ERR_INTERNAL,
                    "rank %d, block %ld: %u of %ld rounds, error %u", p->link->rank, b,
                    seen[2 * b + 1], rounds, p->link->control->error);
    }
    return MOTET_OK;
}

static motet_result play(player *all, const options *o, uint64_t *wrong)
{
    for (long done = 0; done < o->rounds;) {
        long rounds =
                o->rounds - done < ROUNDS_A_LAUNCH ? o->rounds - done : ROUNDS_A_LAUNCH;

        for (int r = 0; r < o->ranks; r++)
            MOTET_TRY(start(&all[r], o, rounds), "rank %d", r);
        for (int r = 0; r < o->ranks; r++)
            MOTET_TRY(finish(&all[r], o, rounds, wrong), "after %ld rounds", done);
        done += rounds;
    }
    return MOTET_OK;
}

/* Not after a failure: a kernel may still wait for its peer. */
static void tear_down(player *all, const options *o)
{
    for (int r = 0; r < o->ranks; r++)
        motet_gpu_link_release(all[r].link);
    for (int r = 0; r < o->ranks; r++) {
        motet_gpu_link_sweep(all[r].gpu);
        all[r].ops->free(all[r].gpu, &all[r].seen);
    }
}

/* ---- the command ---- */

static const struct row {
    const char *name;
    size_t at; /* in the options */
    long least, most;
} rows[] = {
    { "--ranks", offsetof(options, ranks), 2, RANKS },
    { "--rounds", offsetof(options, rounds), 1, 1000000000 },
    { "--bytes", offsetof(options, bytes), 4, 1 << 20 },
    { "--blocks", offsetof(options, blocks), 1, MOTET_GPU_BLOCKS },
};

static bool take_number(const char *name, const char *value, options *o)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].name, name) == 0) {
            long *to = (long *)(void *)((char *)o + rows[i].at);
            char *end;

            *to = strtol(value, &end, 10);
            return *value != '\0' && *end == '\0' && *to >= rows[i].least &&
                    *to <= rows[i].most;
        }
    return false;
}

static bool take_path(const char *name, const char *value, options *o)
{
    o->path = strcmp(value, "staged") == 0 ? MOTET_GPU_PATH_STAGED
                                           : MOTET_GPU_PATH_DIRECT;
    return strcmp(name, "--path") == 0 &&
            strcmp(value, motet_gpu_path_names[o->path]) == 0;
}

static bool parse(int argc, char **argv, options *o)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!take_number(argv[i], argv[i + 1], o) &&
                !take_path(argv[i], argv[i + 1], o))
            return false;
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    options o = { .ranks = 2,
        .rounds = 1000,
        .bytes = 1024,
        .blocks = 2,
        .path = MOTET_GPU_PATH_DIRECT };
    player all[RANKS] = { 0 };
    const motet_device_ops *device = NULL;
    int devices = 0;
    uint64_t wrong = 0, begin;

    if (!parse(argc, argv, &o)) {
        (void)fprintf(stderr,
                "usage: litmus [--ranks N] [--rounds N] [--bytes N] [--blocks N] "
                "[--path direct|staged]\n");
        return 64;
    }
    if (motet_device_choose_now(MOTET_CHOOSE_GPU, &device) != MOTET_OK ||
            device->count(&devices) != MOTET_OK || devices == 0) {
        (void)printf("SKIPPED  no GPU here: %s\n", motet_error_trail());
        return 77;
    }
    begin = motet_now_ns();
    if (set_up(all, device->gpu, devices, &o) != MOTET_OK ||
            play(all, &o, &wrong) != MOTET_OK) {
        (void)fprintf(stderr, "litmus: %s\n", motet_error_trail());
        return 1;
    }
    (void)printf("litmus: %ld ranks on %d devices (%s), %s path, %ld rounds of %ld "
                 "bytes in %ld blocks: %llu words wrong, %.1f s\n",
            o.ranks, devices, all[0].ops->facts(all[0].gpu)->name,
            motet_gpu_path_names[o.path], o.rounds, o.bytes, o.blocks,
            (unsigned long long)wrong, (double)(motet_now_ns() - begin) / 1e9);
    tear_down(all, &o);
    return wrong == 0 ? 0 : 1;
}
