/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator would do with an operation, and why, in words. */
#include "comm/comm.h"
#include "comm/gpu.h"

#include <stdio.h>

static motet_result explain_host(const motet_comm *comm, const motet_op *op, char *buf,
        size_t bytes)
{
    const motet_constants *c = &comm->engine.constants;
    bool forced = c->forced[op->kind] != MOTET_ALG_NONE;
    motet_plan plan;

    if (motet_kind_table[op->kind].pairwise || op->kind == MOTET_ALL_TO_ALL_V) {
        snprintf(buf, bytes, "algorithm: %s\nchunk: %u bytes\n",
                motet_algorithm_names[MOTET_ALG_PAIRS], c->pair_chunk);
        return MOTET_OK;
    }
    MOTET_TRY(motet_plan_make(op, comm->nranks, c, &plan), "plan");
    snprintf(buf, bytes,
            "algorithm: %s\nsteps: %zu of %zu elements\nbecause: %s (inline up to %u "
            "bytes, twoshot from %u)\n",
            motet_algorithm_names[plan.algorithm], plan.steps, plan.step_count,
            forced ? "MOTET_ALGO" : "of its bytes", c->inline_bytes,
            c->twoshot_min_bytes);
    return MOTET_OK;
}

motet_result motet_comm_explain(const motet_comm *comm, const motet_op *op, char *buf,
        size_t bytes)
{
    const motet_gpu_engine *g = comm->gpu;
    bool pairwise =
            motet_kind_table[op->kind].pairwise || op->kind == MOTET_ALL_TO_ALL_V;
    int used = snprintf(buf, bytes, "path: %s\n", motet_comm_path_name(comm));
    motet_gpu_plan plan;

    if (used < 0 || (size_t)used >= bytes)
        return MOTET_OK; /* as much as there is room for */
    if (g == NULL)
        return explain_host(comm, op, buf + used, bytes - (size_t)used);
    if (!pairwise)
        motet_gpu_plan_make(op, comm->rank, comm->nranks, &g->constants, g->limit,
                &plan);
    (void)motet_gpu_explain(op, comm->nranks, &g->constants, g->limit,
            pairwise ? NULL : &plan, buf + used, bytes - (size_t)used);
    return MOTET_OK;
}
