/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU kernels, built for the host: every kind of exchange, type and operator against
 * reduce_reference.h, bit by bit. */
#include "gpu_trial.h"

/* ---- The matrix ------------------------------------------------------------------- */

static const uint32_t starts[] = { 0x7ffffffd, 0xfffffffd, 17 };
static const char *const protocols[] = { "ll", "stage", "twoshot" };
static const size_t counts[] = { 1, 2, 3, 7, 16, 31, 65, 331, 1200 };

static bool fits(const char *protocol, int kind)
{
    return strcmp(protocol, "twoshot") != 0 || kind == ALL_REDUCE;
}

static void test_every_type_and_operator_gives_the_reference_s_bits(void **state)
{
    uint64_t random = 7;
    rig g;

    (void)state;
    rig_init(&g, 3, 2, small, starts[0]);
    for (size_t p = 0; p < 3; p++)
        for (int type = 0; type < MOTET_NUM_TYPES; type++)
            for (int op = 0; op < MOTET_NUM_REDOPS; op++)
                for (int v = 0; v < 4; v++)
                    run_trial(&g,
                            &(trial){ .protocol = protocols[p],
                                    .type = type,
                                    .redop = op,
                                    .count = v == 0 ? 203 : 61,
                                    .misaligned = v == 1,
                                    .in_place = v == 2,
                                    .bias = v == 3 },
                            &random);
    rig_release(&g);
}

static void test_every_kind_moves_every_size(void **state)
{
    static const int types[] = { MOTET_INT8, MOTET_BFLOAT16, MOTET_FLOAT32,
        MOTET_FLOAT64 };
    uint64_t random = 11;
    rig g;

    (void)state;
    for (int n = 2; n <= RIG_RANKS; n++) {
        rig_init(&g, n, 1, small, starts[n % 3]);
        for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
            for (int kind = 0; kind < SHAPES; kind++)
                for (size_t p = 0; p < 3; p++) {
                    g.blocks = 1 + (uint32_t)(next_random(&random) % 3);
                    trial t = { .protocol = protocols[p],
                        .kind = kind,
                        .type = types[next_random(&random) % 4],
                        .count = counts[i],
                        .root = (int)(next_random(&random) % (uint64_t)n),
                        .in_place = next_random(&random) % 2 && kind != ALL_TO_ALL,
                        .misaligned = next_random(&random) % 3 == 0 };
                    if (fits(protocols[p], kind))
                        run_trial(&g, &t, &random);
                }
        rig_release(&g);
    }
}

static void test_operations_of_many_steps_pass_the_end_of_the_circle(void **state)
{
    uint64_t random = 23;
    rig g;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig_init(&g, 2, 2, small, starts[i] - 20);
        for (size_t p = 0; p < 3; p++)
            for (int kind = 0; kind < SHAPES; kind++)
                if (fits(protocols[p], kind))
                    run_trial(&g,
                            &(trial){ .protocol = protocols[p],
                                    .kind = kind,
                                    .type = MOTET_FLOAT32,
                                    .redop = MOTET_PREMUL_SUM,
                                    .count = 1500,
                                    .root = kind % 2 },
                            &random);
        rig_release(&g);
    }
}

/* ---- Windows ---------------------------------------------------------------------- */

static trial random_offers(int nranks, uint64_t *random)
{
    bool all_reduce = next_random(random) % 2 == 0;
    trial t = { .protocol = all_reduce ? "twoshot" : "stage",
        .kind = all_reduce ? ALL_REDUCE : (int)(next_random(random) % SHAPES),
        .type = (int)(next_random(random) % MOTET_NUM_TYPES),
        .redop = (int)(next_random(random) % MOTET_NUM_REDOPS),
        .root = (int)(next_random(random) % (uint64_t)nranks),
        .count = counts[next_random(random) % 9],
        .misaligned = next_random(random) % 5 == 0,
        .offers = true,
        .in_windows = (uint32_t)next_random(random) };

    t.in_place = next_random(random) % 2 && t.kind != ALL_TO_ALL;
    if (next_random(random) % 2)
        t.in_windows = 0xff;
    return t;
}

/* Must the trial use no slot? */
static bool needs_no_slot(const trial *t)
{
    bool whole = t->count * motet_type_table[t->type].bytes % 16 == 0;

    return t->in_windows == 0xff && whole && !t->misaligned &&
            (t->protocol[0] == 't' || !shapes[t->kind].reduces);
}

static void fill_slots(const rig *g)
{
    for (int r = 0; r < g->nranks; r++)
        for (int i = 0; i < MOTET_GPU_INBOXES; i++)
            memset(g->arena[r][i] + g->layout.stage, POISON,
                    g->layout.pair_stage - g->layout.stage);
}

static void check_slots(const rig *g)
{
    for (int r = 0; r < g->nranks; r++)
        for (int i = 0; i < MOTET_GPU_INBOXES; i++)
            for (uint64_t at = g->layout.stage; at < g->layout.pair_stage; at++)
                assert_int_equal(g->arena[r][i][at], POISON);
}

static void test_windows_change_where_bytes_go_and_not_which(void **state)
{
    uint64_t random = 31;
    rig g;

    (void)state;
    for (int n = 2; n <= RIG_RANKS; n++) {
        int direct = 0;

        rig_init(&g, n, 1, small, starts[n % 3]);
        for (int i = 0; i < 300; i++) {
            trial t = random_offers(n, &random);

            g.blocks = 1 + (uint32_t)(next_random(&random) % 3);
            fill_slots(&g);
            run_trial(&g, &t, &random);
            if (needs_no_slot(&t))
                check_slots(&g);
            direct += needs_no_slot(&t);
        }
        assert_in_range(direct, 5, 300);
        rig_release(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operator_gives_the_reference_s_bits),
        cmocka_unit_test(test_every_kind_moves_every_size),
        cmocka_unit_test(test_operations_of_many_steps_pass_the_end_of_the_circle),
        cmocka_unit_test(test_windows_change_where_bytes_go_and_not_which),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
