/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/gpu.h"

#include <string.h>

const char *const motet_gpu_protocol_names[MOTET_GPU_NUM_PROTOCOLS] = {
    [MOTET_GPU_NOTHING] = "none",
    [MOTET_GPU_LL] = "ll",
    [MOTET_GPU_STAGED] = "staged",
    [MOTET_GPU_TWOSHOT] = "twoshot",
    [MOTET_GPU_PAIRS] = "pairs",
    [MOTET_GPU_COPIES] = "ce",
};

/*
 * Figures by path and size of the communicator. An arena holds, for each rank, all slots
 * of that source: 4 MiB at most from three ranks on, 32 MiB in all for two. Host memory
 * has more room: for large rings, as long as there are few ranks. docs/gpu.md says which
 * figures were measured, and where.
 */
#define RING_BYTES (32u << 20) /* staged: of an arena, at most */

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
                    .pair_block_bytes = 32 << 10,
                    .ring_chunk = 768 << 10,
                    .copies_step = 256 << 10,
                    .copies_reduce_min = MOTET_GPU_NEVER,
                    .copies_other_min = MOTET_GPU_NEVER,
                    .copies_pair_min = MOTET_GPU_NEVER } },
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
                    .pair_block_bytes = 32 << 10,
                    .ring_chunk = 96 << 10,
                    .copies_step = 96 << 10,
                    .copies_reduce_min = MOTET_GPU_NEVER,
                    .copies_other_min = MOTET_GPU_NEVER,
                    .copies_pair_min = MOTET_GPU_NEVER } },
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
                    .pair_block_bytes = 32 << 10,
                    .ring_chunk = 4 << 20,
                    .copies_step = 256 << 10,
                    .copies_reduce_min = 32 << 20,
                    .copies_other_min = 8 << 20,
                    .copies_pair_min = MOTET_GPU_NEVER } },
};

void motet_gpu_constants_default(int nranks, motet_gpu_path path,
        motet_gpu_constants *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].path == path && nranks <= rows[i].nranks_max) {
            *out = rows[i].figures;
            while ((uint64_t)out->ring_chunk * MOTET_RING_SLOTS * (uint64_t)nranks >
                    RING_BYTES)
                out->ring_chunk /= 2;
            return;
        }
    }
}

void motet_gpu_constants_few_calls(motet_gpu_constants *constants)
{
    constants->copies_reduce_min = MOTET_GPU_NEVER;
    constants->copies_other_min = MOTET_GPU_NEVER;
    constants->copies_pair_min = MOTET_GPU_NEVER;
}

void motet_gpu_constants_mix(int nranks, motet_gpu_constants *constants)
{
    motet_gpu_constants direct;

    motet_gpu_constants_default(nranks, MOTET_GPU_PATH_DIRECT, &direct);
    constants->ring_chunk = direct.ring_chunk;
    motet_gpu_constants_few_calls(constants);
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
        .ring_chunk = constants->ring_chunk,
    };
    motet_gpu_layout_fill(out);
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

/* Bytes that a rank sends, or takes; in LL, twice that crosses the link. */
static uint64_t traffic(const motet_op *op, int nranks)
{
    return motet_op_bytes(op) * (uint64_t)(nranks - 1);
}

/* ---- copies ---- */

/*
 * Each step of a copy is a few calls, and a driver's queue holds about a thousand: more
 * would make the caller wait for the device, and so perhaps for a rank that he has still
 * to call.
 */
#define COPIES_CALLS 768
/* Steps that overlap well; not of less than copies_step bytes. */
#define COPIES_STEPS 8

/* Bytes of a step of a piece, or slice, of @p bytes. */
static uint64_t step_of(uint64_t bytes, const motet_gpu_constants *c)
{
    uint64_t step = bytes / COPIES_STEPS;

    if (step < c->copies_step)
        step = c->copies_step;
    step = (step + 255) / 256 * 256;
    return step < c->ring_chunk ? step : c->ring_chunk;
}

static uint64_t steps_of(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step;
}

static uint64_t slice_of(const motet_op *op, int nranks)
{
    uint64_t n = (uint64_t)nranks;

    return ((motet_op_bytes(op) + n - 1) / n + 255) / 256 * 256;
}

static bool copies_serve(const motet_op *op, int nranks, const motet_gpu_constants *c)
{
    bool reduces = motet_kind_table[op->kind].reduces;

    /* A rank's bias or factor is known to its own kernels only. */
    return c->ring_chunk != 0 && nranks > 1 &&
            (c->vetoed & 1u << MOTET_GPU_COPIES) == 0 &&
            !(reduces && (op->bias != NULL || op->redop == MOTET_PREMUL_SUM));
}

static bool copies_fit(uint64_t bytes, int nranks, const motet_gpu_constants *c)
{
    return steps_of(bytes, step_of(bytes, c)) * (uint64_t)nranks <= COPIES_CALLS;
}

static void cut_copies(const motet_op *op, int nranks, const motet_gpu_constants *c,
        motet_gpu_plan *out)
{
    bool all_reduce = op->kind == MOTET_ALL_REDUCE;
    uint64_t bytes = all_reduce ? slice_of(op, nranks) : out->piece;

    out->phases = all_reduce ? 2 : 1;
    out->slice = bytes;
    out->step = step_of(bytes, c);
    out->steps = (uint32_t)steps_of(bytes, out->step);
    out->blocks = 1;
}

/* ---- choosing ---- */

static const motet_gpu_rule *rule_for(motet_kind kind, uint64_t bytes,
        const motet_gpu_constants *c)
{
    for (int i = 0; i < c->rules; i++)
        if (c->rule[i].kind == (uint8_t)kind && bytes >= c->rule[i].from &&
                bytes < c->rule[i].to)
            return &c->rule[i];
    return NULL;
}

static motet_gpu_protocol large_for(const motet_op *op, const motet_gpu_constants *c)
{
    bool two = op->kind == MOTET_ALL_REDUCE && op->bias == NULL &&
            (c->vetoed & 1u << MOTET_GPU_TWOSHOT) == 0;

    return two ? MOTET_GPU_TWOSHOT : MOTET_GPU_STAGED;
}

/* What is asked for, as far as it serves the operation. */
static motet_gpu_protocol as_forced(motet_gpu_protocol wanted, const motet_op *op,
        int nranks, const motet_gpu_constants *c)
{
    switch (wanted) {
    case MOTET_GPU_LL:
        return (c->vetoed & 1u << MOTET_GPU_LL) == 0 ? MOTET_GPU_LL : large_for(op, c);
    case MOTET_GPU_COPIES:
        return copies_serve(op, nranks, c) ? MOTET_GPU_COPIES : large_for(op, c);
    case MOTET_GPU_TWOSHOT: return large_for(op, c);
    default: return MOTET_GPU_STAGED;
    }
}

/* By size. */
static motet_gpu_protocol by_bytes(const motet_op *op, int nranks,
        const motet_gpu_constants *c, motet_gpu_plan *out)
{
    bool all_reduce = op->kind == MOTET_ALL_REDUCE;
    bool reduces = motet_kind_table[op->kind].reduces;
    uint32_t copies = reduces ? c->copies_reduce_min : c->copies_other_min;
    uint64_t longest = all_reduce ? slice_of(op, nranks) : motet_op_bytes(op);

    out->bytes = traffic(op, nranks);
    out->threshold = copies;
    out->why = MOTET_GPU_WHY_AT_LEAST;
    if (copies != MOTET_GPU_NEVER && out->bytes >= copies &&
            copies_serve(op, nranks, c) && copies_fit(longest, nranks, c))
        return MOTET_GPU_COPIES;
    out->threshold = all_reduce ? c->ll_reduce_max : c->ll_other_max;
    out->why = MOTET_GPU_WHY_AT_MOST;
    if (out->bytes <= out->threshold && (c->vetoed & 1u << MOTET_GPU_LL) == 0)
        return MOTET_GPU_LL;
    out->why = MOTET_GPU_WHY_ABOVE;
    return large_for(op, c);
}

static motet_gpu_protocol choose(const motet_op *op, int nranks,
        const motet_gpu_constants *c, motet_gpu_plan *out)
{
    const motet_gpu_rule *rule = rule_for(op->kind, motet_op_bytes(op), c);

    if (nranks == 1) {
        out->why = MOTET_GPU_WHY_ALONE;
        return MOTET_GPU_LL; /* nothing is sent: a copy or a reduction of one */
    }
    out->bytes = motet_op_bytes(op);
    if (rule != NULL || c->forced != 0) {
        out->why = rule != NULL ? MOTET_GPU_WHY_RULE : MOTET_GPU_WHY_FORCED;
        return as_forced((motet_gpu_protocol)(rule != NULL ? rule->protocol
                                                           : c->forced),
                op, nranks, c);
    }
    out->why = MOTET_GPU_WHY_POLICY;
    if (c->zero && !motet_kind_table[op->kind].reduces && copies_serve(op, nranks, c))
        return MOTET_GPU_COPIES;
    return by_bytes(op, nranks, c, out);
}

void motet_gpu_plan_make(const motet_op *op, int rank, int nranks,
        const motet_gpu_constants *constants, uint32_t limit, motet_gpu_plan *out)
{
    const struct shape *shape = &shapes[op->kind];
    const motet_gpu_rule *rule = rule_for(op->kind, motet_op_bytes(op), constants);
    int other = op->root >= 0 && op->root != rank;
    uint64_t bytes = motet_op_bytes(op);
    uint32_t most = limit < constants->blocks ? limit : constants->blocks;

    *out = (motet_gpu_plan){ .protocol = MOTET_GPU_NOTHING };
    if (op->count == 0)
        return;
    if (rule != NULL && rule->blocks != 0 && rule->blocks < most)
        most = rule->blocks;
    out->protocol = choose(op, nranks, constants, out);
    out->send_mask = mask_of(shape->sends_to[other], rank, op->root, nranks);
    out->recv_mask = mask_of(shape->takes_from[other], rank, op->root, nranks);
    out->reduce = motet_kind_table[op->kind].reduces;
    out->for_all = shape->sends_to[0] == OTHERS && !shape->send_pieces;
    out->piece = bytes;
    out->send_stride = shape->send_pieces ? bytes : 0;
    out->recv_stride = shape->recv_pieces ? bytes : 0;
    out->blocks = blocks_for(bytes,
            out->protocol == MOTET_GPU_LL ? constants->ll_block_bytes
                                          : constants->block_bytes,
            most);
    if (out->protocol == MOTET_GPU_COPIES)
        cut_copies(op, nranks, constants, out);
}

/*
 * Does a message move by copies, and why not? Only if that is asked for, and not by
 * CTA policy ZERO: docs/gpu.md says what such messages cannot. Copies of several pairs
 * would need streams of their own for each pair, or one that waits would hold up another:
 * with two ranks there is only one pair.
 */
static motet_gpu_why choose_pair(uint64_t bytes, int nranks,
        const motet_gpu_constants *c, const motet_gpu_rule *rule, bool *copies_out)
{
    const motet_gpu_why asked = rule != NULL ? MOTET_GPU_WHY_RULE
            : c->forced != 0                 ? MOTET_GPU_WHY_FORCED
                                             : MOTET_GPU_WHY_AT_LEAST;

    *copies_out = false;
    if (nranks == 1 || bytes == 0)
        return MOTET_GPU_WHY_ALONE;
    if (asked != MOTET_GPU_WHY_AT_LEAST &&
            (rule != NULL ? rule->protocol : c->forced) != MOTET_GPU_COPIES)
        return asked;
    if (asked == MOTET_GPU_WHY_AT_LEAST && c->copies_pair_min == MOTET_GPU_NEVER)
        return MOTET_GPU_WHY_NEVER;
    if (asked == MOTET_GPU_WHY_AT_LEAST && bytes < c->copies_pair_min)
        return MOTET_GPU_WHY_AT_MOST;
    if (nranks != 2)
        return MOTET_GPU_WHY_RANKS;
    if ((c->vetoed & 1u << MOTET_GPU_COPIES) != 0)
        return MOTET_GPU_WHY_VETOED;
    if (asked == MOTET_GPU_WHY_AT_LEAST && !copies_fit(bytes, nranks, c))
        return MOTET_GPU_WHY_CALLS;
    *copies_out = true;
    return asked;
}

void motet_gpu_pair_plan_make(uint64_t bytes, int nranks, const motet_gpu_constants *c,
        uint32_t limit, motet_gpu_pair_plan *out)
{
    const motet_gpu_rule *rule = rule_for(MOTET_SEND, bytes, c);
    uint32_t most = limit < c->pair_blocks ? limit : c->pair_blocks;

    if (rule != NULL && rule->blocks != 0 && rule->blocks < most)
        most = rule->blocks;
    *out = (motet_gpu_pair_plan){ .threshold = c->copies_pair_min };
    out->why = choose_pair(bytes, nranks, c, rule, &out->copies);
    out->blocks = blocks_for(bytes, c->pair_block_bytes, most);
    if (!out->copies)
        return;
    out->step = step_of(bytes, c);
    out->steps = steps_of(bytes, out->step);
}
