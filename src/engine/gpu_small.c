/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an LL operation goes through the kernels for small exchanges. What crosses the
 * links is the same, so each rank decides by itself, by how its buffers are aligned.
 */
#include "engine/gpu.h"

#include <string.h>

enum { SMALL_COPY, SMALL_F32, SMALL_F16, SMALL_BF16 };
static const char *const names[MOTET_GPU_NUM_SMALL] = {
    [SMALL_COPY] = "motet_small_copy",
    [SMALL_F32] = "motet_small_f32",
    [SMALL_F16] = "motet_small_f16",
    [SMALL_BF16] = "motet_small_bf16",
};

motet_result motet_gpu_small_find(motet_gpu_engine *g, void *module)
{
    for (int i = 0; i < MOTET_GPU_NUM_SMALL; i++)
        MOTET_TRY(g->link->ops->function(g->link->gpu, module, names[i], &g->small[i]),
                "find the kernels");
    return MOTET_OK;
}

/* The kernel that serves @p op, or −1. */
static int kernel_of(const motet_op *op, const motet_gpu_plan *plan)
{
    if (!plan->reduce)
        return SMALL_COPY;
    if ((op->redop != MOTET_SUM && op->redop != MOTET_AVG) || op->bias != NULL)
        return -1;
    switch (op->type) {
    case MOTET_FLOAT32: return SMALL_F32;
    case MOTET_FLOAT16: return SMALL_F16;
    case MOTET_BFLOAT16: return SMALL_BF16;
    default: return -1;
    }
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 8 == 0;
}

/* Bytes of a block's part of a piece: as the kernels of ll.c cut it. */
static uint64_t part_of(const motet_gpu_plan *plan)
{
    uint64_t each = (plan->piece + plan->blocks - 1) / plan->blocks;

    return plan->blocks == 1 ? plan->piece : (each + 15) / 16 * 16;
}

static uint32_t threads_for(uint64_t each)
{
    uint64_t packs = (each / 8 + 31) / 32 * 32;

    return packs < 32                   ? 32
            : packs > MOTET_GPU_THREADS ? MOTET_GPU_THREADS
                                        : (uint32_t)packs;
}

static uint8_t *at(uint64_t address)
{
    return (uint8_t *)(uintptr_t)address;
}

static void fill(const motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, uint32_t ticket,
        motet_gpu_small_args *out)
{
    const motet_gpu_link *link = g->link;
    const motet_gpu_layout *l = &link->layout;
    uint32_t rank = (uint32_t)link->rank;
    bool needs_own = plan->send_mask != 0 || (plan->recv_mask >> rank & 1) != 0;

    *out = (motet_gpu_small_args){
        .state = (uint8_t *)(uintptr_t)link->own.address,
        .send = op->send,
        .recv = op->recv,
        .control = (motet_gpu_control *)(uintptr_t)link->control_device,
        .rank = rank,
        .nranks = (uint32_t)link->nranks,
        .bytes = (uint32_t)plan->piece,
        .each = (uint32_t)part_of(plan),
        .send_mask = plan->send_mask,
        .recv_mask = plan->recv_mask,
        .send_stride = (uint32_t)plan->send_stride,
        .recv_stride = (uint32_t)plan->recv_stride,
        .own_offset = needs_own ? rank * (uint32_t)plan->send_stride : MOTET_GPU_NO_OWN,
        .slot_stride = l->nranks * 2 * l->ll_bytes,
        .source_stride = 2 * l->ll_bytes,
        .line_stride = l->nranks * (uint32_t)sizeof(motet_gpu_line),
        .fingerprint = fingerprint,
        .redop = (uint32_t)op->redop,
        .ticket = ticket,
        .hosted = link->hosted,
    };
    for (int i = 0; i < MOTET_GPU_INBOXES; i++) {
        out->lines[i] = at(link->inbox[i] + motet_gpu_line_offset(l, 0, 0));
        out->slots[i] = at(link->inbox[i] + motet_gpu_ll_offset(l, 0, 0, 0));
    }
    for (int p = 0; p < link->nranks; p++) {
        out->to[p] = at(link->at[p] + motet_gpu_ll_offset(l, 0, 0, rank));
        out->word[p] = at(link->at[p] + motet_gpu_line_offset(l, 0, rank));
    }
}

bool motet_gpu_small_fits(const motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan)
{
    bool sends = plan->send_mask != 0;

    return plan->protocol == MOTET_GPU_LL && g->link->nranks > 1 &&
            g->link->nranks <= MOTET_GPU_SMALL_RANKS && kernel_of(op, plan) >= 0 &&
            plan->piece % 8 == 0 && part_of(plan) <= g->constants.ll_bytes &&
            (!sends || aligned(op->send)) &&
            (plan->recv_mask == 0 || aligned(op->recv)) &&
            ((plan->recv_mask >> g->link->rank & 1) == 0 || aligned(op->send));
}

motet_result motet_gpu_small(motet_gpu_engine *g, const motet_op *op,
        const motet_gpu_plan *plan, uint32_t fingerprint, void *stream,
        const motet_stream_state *state)
{
    motet_gpu_small_args args;
    motet_launch launch = {
        .function = g->small[kernel_of(op, plan)],
        .blocks = plan->blocks,
        .threads = threads_for(part_of(plan)),
        .args = &args,
        .bytes = sizeof(args),
    };

    fill(g, op, plan, fingerprint, motet_gpu_next_ticket(g, state, plan->blocks),
            &args);
    return motet_gpu_enqueue(g, &launch, stream, state);
}
