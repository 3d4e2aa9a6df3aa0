/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/gpu.h"

#include <string.h>
#include <strings.h>

const char *const motet_gpu_protocol_names[MOTET_GPU_NUM_PROTOCOLS] = {
    [MOTET_GPU_NOTHING] = "none",
    [MOTET_GPU_LL] = "ll",
    [MOTET_GPU_STAGED] = "staged",
    [MOTET_GPU_TWOSHOT] = "twoshot",
};

/*
 * Figures by path and size of the communicator. An arena holds, for each rank, all slots
 * of that source: 4 MiB at most from three ranks on, 32 MiB in all for two. docs/gpu.md
 * says which figures were measured, and where.
 */
static const struct row {
    motet_gpu_path path;
    int nranks_max;
    motet_gpu_constants figures;
} rows[] = {
    { MOTET_GPU_PATH_DIRECT, 2,
            { .blocks = 64,
                    .pair_blocks = 32,
                    .ll_bytes = 8 << 10,
                    .chunk = 32 << 10,
                    .pair_chunk = 32 << 10,
                    .ll_reduce_max = 256 << 10,
                    .ll_other_max = 64 << 10,
                    .ll_block_bytes = 4 << 10,
                    .block_bytes = 16 << 10,
                    .pair_block_bytes = 32 << 10 } },
    { MOTET_GPU_PATH_DIRECT, MOTET_GPU_RANKS,
            { .blocks = 64,
                    .pair_blocks = 16,
                    .ll_bytes = 4 << 10,
                    .chunk = 8 << 10,
                    .pair_chunk = 16 << 10,
                    .ll_reduce_max = 64 << 10,
                    .ll_other_max = 64 << 10,
                    .ll_block_bytes = 4 << 10,
                    .block_bytes = 16 << 10,
                    .pair_block_bytes = 32 << 10 } },
    { MOTET_GPU_PATH_STAGED, MOTET_GPU_RANKS,
            { .blocks = 32,
                    .pair_blocks = 16,
                    .ll_bytes = 4 << 10,
                    .chunk = 16 << 10,
                    .pair_chunk = 16 << 10,
                    .ll_reduce_max = 32 << 10,
                    .ll_other_max = 32 << 10,
                    .ll_block_bytes = 4 << 10,
                    .block_bytes = 16 << 10,
                    .pair_block_bytes = 32 << 10 } },
};

void motet_gpu_constants_default(int nranks, motet_gpu_path path,
        motet_gpu_constants *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].path == path && nranks <= rows[i].nranks_max) {
            *out = rows[i].figures;
            return;
        }
    }
}

void motet_gpu_layout_of(const motet_gpu_constants *constants, int nranks,
        motet_gpu_layout *out)
{
    *out = (motet_gpu_layout){
        .nranks = (uint32_t)nranks,
        .blocks = constants->blocks,
        .pair_blocks = constants->pair_blocks,
        .ll_bytes = constants->ll_bytes,
        .chunk = constants->chunk,
        .pair_chunk = constants->pair_chunk,
    };
    motet_gpu_layout_fill(out);
}

/* Our words and NCCL's: its LL128 and Simple are both served by chunks. */
static const struct {
    const char *word;
    motet_gpu_protocol protocol;
} words[] = {
    { "ll", MOTET_GPU_LL },
    { "staged", MOTET_GPU_STAGED },
    { "twoshot", MOTET_GPU_TWOSHOT },
    { "simple", MOTET_GPU_STAGED },
    { "ll128", MOTET_GPU_STAGED },
};

motet_result motet_gpu_force(const char *text, motet_gpu_constants *constants)
{
    if (text[0] == '\0')
        return MOTET_OK;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcasecmp(text, words[i].word) == 0) {
            constants->forced = (uint8_t)words[i].protocol;
            return MOTET_OK;
        }
    }
    return motet_fail(MOTET_ERR_ARGUMENT,
            "'%s' is no protocol, need LL, LL128 or Simple, staged or twoshot", text);
}

static uint32_t blocks_for(uint64_t bytes, uint32_t block_bytes, uint32_t most)
{
    uint64_t wanted = (bytes + block_bytes - 1) / block_bytes;

    return wanted == 0 ? 1 : wanted < most ? (uint32_t)wanted : most;
}

/* Who sends what to whom: a row for each kind. */
enum { NOBODY, ROOT, OTHERS, EVERYBODY };
static const struct shape {
    uint8_t sends_to[2];   /* of the root (or anybody, if there is none), of another */
    uint8_t takes_from[2]; /* the same                                               */
    bool send_pieces;      /* each peer gets its own piece                           */
    bool recv_pieces;      /* each source has its own place                          */
} shapes[MOTET_NUM_KINDS] = {
    [MOTET_ALL_REDUCE] = { { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, false, false },
    [MOTET_REDUCE] = { { NOBODY, ROOT }, { EVERYBODY, NOBODY }, false, false },
    [MOTET_BROADCAST] = { { OTHERS, NOBODY }, { ROOT, ROOT }, false, false },
    [MOTET_ALL_GATHER] = { { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, false, true },
    [MOTET_REDUCE_SCATTER] = { { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, true,
            false },
    [MOTET_ALL_TO_ALL] = { { OTHERS, OTHERS }, { EVERYBODY, EVERYBODY }, true, true },
    [MOTET_GATHER] = { { NOBODY, ROOT }, { EVERYBODY, NOBODY }, false, true },
    [MOTET_SCATTER] = { { OTHERS, NOBODY }, { ROOT, ROOT }, true, false },
};

static uint32_t mask_of(int who, int rank, int root, int nranks)
{
    uint32_t all = (1u << nranks) - 1;

    switch (who) {
    case ROOT: return 1u << root;
    case OTHERS: return all & ~(1u << rank);
    case EVERYBODY: return all;
    default: return 0;
    }
}

/* Bytes that a rank sends, or takes, in LL: twice that crosses the link. */
static uint64_t traffic(const motet_op *op, int nranks)
{
    return motet_op_bytes(op) * (uint64_t)(nranks - 1);
}

static motet_gpu_protocol choose(const motet_op *op, int nranks,
        const motet_gpu_constants *c)
{
    bool all_reduce = op->kind == MOTET_ALL_REDUCE;
    motet_gpu_protocol large =
            all_reduce && op->bias == NULL ? MOTET_GPU_TWOSHOT : MOTET_GPU_STAGED;
    motet_gpu_protocol chosen =
            traffic(op, nranks) <= (all_reduce ? c->ll_reduce_max : c->ll_other_max)
            ? MOTET_GPU_LL
            : large;

    if (nranks == 1)
        return MOTET_GPU_LL; /* nothing is sent: a copy or a reduction of one */
    if (c->forced == MOTET_GPU_LL)
        chosen = MOTET_GPU_LL;
    else if (c->forced != 0)
        chosen = c->forced == MOTET_GPU_TWOSHOT ? large : MOTET_GPU_STAGED;
    if (chosen == MOTET_GPU_LL && (c->vetoed & 1u << MOTET_GPU_LL) != 0)
        chosen = large;
    return chosen;
}

void motet_gpu_plan_make(const motet_op *op, int rank, int nranks,
        const motet_gpu_constants *constants, uint32_t limit, motet_gpu_plan *out)
{
    const struct shape *shape = &shapes[op->kind];
    int other = op->root >= 0 && op->root != rank;
    uint64_t bytes = motet_op_bytes(op);
    uint32_t most = limit < constants->blocks ? limit : constants->blocks;

    *out = (motet_gpu_plan){ .protocol = MOTET_GPU_NOTHING };
    if (op->count == 0)
        return;
    out->protocol = choose(op, nranks, constants);
    out->send_mask = mask_of(shape->sends_to[other], rank, op->root, nranks);
    out->recv_mask = mask_of(shape->takes_from[other], rank, op->root, nranks);
    out->reduce = motet_kind_table[op->kind].reduces;
    out->piece = bytes;
    out->send_stride = shape->send_pieces ? bytes : 0;
    out->recv_stride = shape->recv_pieces ? bytes : 0;
    out->blocks = blocks_for(bytes,
            out->protocol == MOTET_GPU_LL ? constants->ll_block_bytes
                                          : constants->block_bytes,
            most);
}

uint32_t motet_gpu_pair_blocks(uint64_t bytes, const motet_gpu_constants *constants,
        uint32_t limit)
{
    uint32_t most = limit < constants->pair_blocks ? limit : constants->pair_blocks;

    return blocks_for(bytes, constants->pair_block_bytes, most);
}
