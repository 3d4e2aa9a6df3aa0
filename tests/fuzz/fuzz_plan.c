/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a MOTET_PLAN. What is refused changes nothing; what is taken has rules that
 * name a kind, a protocol that serves it, and a range; and every plan made by them is one
 * that the engine knows.
 */
#include "plan/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_plan: %s\n", what);
    abort();
}

static void check_rule(const motet_gpu_rule *r, const motet_gpu_constants *c)
{
    motet_gpu_plan plan;
    motet_op op = { .kind = (motet_kind)r->kind, .type = MOTET_UINT8, .root = -1 };

    require(r->kind < MOTET_NUM_KINDS && r->kind != MOTET_RECV, "kind");
    require(r->protocol > MOTET_GPU_NOTHING && r->protocol < MOTET_GPU_NUM_PROTOCOLS &&
                    r->protocol != MOTET_GPU_PAIRS,
            "protocol");
    require(r->from < r->to && r->blocks <= MOTET_GPU_BLOCKS, "range or blocks");
    if (motet_kind_table[r->kind].pairwise)
        return;
    op.root = motet_kind_table[r->kind].rooted ? 0 : -1;
    op.count = r->from == 0 ? 1 : (size_t)r->from;
    motet_gpu_plan_make(&op, 0, 2, c, 8, &plan);
    require(plan.protocol != MOTET_GPU_NOTHING && plan.blocks >= 1 && plan.blocks <= 8,
            "plan");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    motet_gpu_constants c, before;
    char *text = malloc(bytes + 1);

    require(text != NULL, "no memory");
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    motet_gpu_constants_default(2, MOTET_GPU_PATH_STAGED, &c);
    before = c;
    if (motet_gpu_plan_force(text, &c) != MOTET_OK)
        require(memcmp(&c, &before, sizeof(c)) == 0, "a refused text left something");
    require(c.rules <= MOTET_GPU_RULES, "too many rules");
    for (int i = 0; i < c.rules; i++)
        check_rule(&c.rule[i], &c);
    motet_error_clear();
    free(text);
    return 0;
}
