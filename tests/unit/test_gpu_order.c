/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU kernels, built for the host, in long sequences of operations, in which ranks run
 * ahead of each other as far as the kernels let them; and slots that nobody touched for
 * as long as positions last. */
#include "gpu_rig.h"

#include <sched.h>

enum { OPERATIONS = 6000, MOST_WORDS = 150 };

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca6bu;

    h = (h ^ (h >> 15)) * 0xc2b2ae35u;
    return h ^ (h >> 13);
}

/* ---- Sequences -------------------------------------------------------------------- */

typedef enum kind { BROADCAST, GATHER, ALL_REDUCE, MESSAGE, KINDS } kind;

/* Operation number i of the sequence, alike on all ranks. */
typedef struct operation {
    kind kind;
    const char *kernel;
    uint32_t root, peer, words;
    uint32_t late; /* the rank that comes late, or none */
} operation;

static operation operation_of(const rig *g, uint32_t i)
{
    static const char *const kernels[KINDS][3] = {
        { "motet_ll_copy", "motet_stage_copy", "motet_ll_copy" },
        { "motet_ll_copy", "motet_stage_copy", "motet_stage_copy" },
        { "motet_ll_reduce", "motet_stage_reduce", "motet_twoshot_reduce" },
        { "motet_pairs", "motet_pairs", "motet_pairs" },
    };
    uint32_t n = (uint32_t)g->nranks, h = mix(i, 1);
    operation o = { .kind = h % KINDS,
        .root = h / 8 % n,
        .words = 1 + h / 64 % MOST_WORDS,
        .late = mix(i, 2) % (2 * n) };

    o.kernel = kernels[o.kind][h / 16384 % 3];
    o.peer = (o.root + 1 + h / 65536 % (n - 1)) % n;
    return o;
}

typedef struct rank_run {
    const rig *g;
    uint32_t rank;
    pthread_t thread;
    uint32_t wrong; /* operations that gave a wrong word */
    _Alignas(16) uint32_t send[MOST_WORDS];
    _Alignas(16) uint32_t recv[RIG_RANKS * MOST_WORDS];
} rank_run;

static void run_message(rank_run *r, const operation *o, uint32_t i)
{
    motet_gpu_pairs_args a = rig_pairs_args(r->g, (int)r->rank);
    bool receives = r->rank == o->peer;

    a.ticket = 0;
    a.count = 1;
    a.transfer[0] = (motet_gpu_transfer){
        .buffer = (uint8_t *)(receives ? r->recv : r->send),
        .bytes = o->words * 4,
        .peer = (uint16_t)(receives ? o->root : o->peer),
        .receive = receives,
        .blocks = 1,
    };
    if (!receives && r->rank != o->root)
        return;
    motet_gpu_host_find(o->kernel)->run(&a, 0, 1);
    for (uint32_t w = 0; receives && w < o->words; w++)
        if (r->recv[w] != mix(i, o->root * 1000 + w)) {
            r->wrong++;
            return;
        }
}

/* In half of the operations that may, buffers lie in windows: mostly. */
static void offer(const rank_run *r, uint32_t i, motet_gpu_args *a)
{
    a->offers = mix(i, 4) % 2;
    a->send_window = mix(i, 100 + r->rank) % 8 != 0 ? 1 : 0;
    a->recv_window = mix(i, 200 + r->rank) % 8 != 0 ? 2 : 0;
}

static void run_collective(rank_run *r, const operation *o, uint32_t i)
{
    uint32_t n = (uint32_t)r->g->nranks, all = (1u << n) - 1, own = 1u << r->rank;
    bool roots = r->rank == o->root;
    motet_gpu_args a = rig_args(r->g, (int)r->rank);

    a.fingerprint = i + 1;
    a.send = (const uint8_t *)r->send;
    a.recv = (uint8_t *)r->recv;
    a.bytes = o->words * 4;
    a.type = 3; /* uint32 */
    a.send_mask = all & ~own;
    a.recv_mask = all;
    if (o->kind == BROADCAST) {
        a.send_mask = roots ? all & ~own : 0;
        a.recv_mask = 1u << o->root;
    } else if (o->kind == GATHER) {
        a.send_mask = roots ? 0 : 1u << o->root;
        a.recv_mask = roots ? all : 0;
        a.recv_stride = a.bytes;
    }
    offer(r, i, &a);
    motet_gpu_host_find(o->kernel)->run(&a, 0, 1);
    for (uint32_t w = 0; w < o->words * (o->kind == GATHER ? n : 1); w++) {
        uint32_t at = w % o->words, expected = 0;

        if (o->kind == ALL_REDUCE)
            for (uint32_t p = 0; p < n; p++)
                expected += mix(i, p * 1000 + at);
        else
            expected = mix(i, (o->kind == GATHER ? w / o->words : o->root) * 1000 + at);
        if ((roots || o->kind != GATHER) && r->recv[w] != expected) {
            r->wrong++;
            return;
        }
    }
}

static void *rank_main(void *arg)
{
    rank_run *r = arg;

    for (uint32_t i = 0; i < OPERATIONS; i++) {
        operation o = operation_of(r->g, i);

        if (__atomic_load_n(&r->g->control[r->rank]->abort, __ATOMIC_ACQUIRE) != 0)
            break;
        for (uint32_t k = 0; o.late == r->rank && k < mix(i, 3) % 64; k++)
            sched_yield();
        for (uint32_t w = 0; w < o.words; w++)
            r->send[w] = mix(i, r->rank * 1000 + w);
        memset(r->recv, 0x5c, sizeof(r->recv));
        if (o.kind == MESSAGE)
            run_message(r, &o, i);
        else
            run_collective(r, &o, i);
    }
    return NULL;
}

static void run_sequence(rig *g)
{
    static rank_run run[RIG_RANKS];
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += RIG_DEADLINE_S;
    for (int o = 0; o < g->nranks; o++) {
        for (int r = 0; r < g->nranks; r++) {
            uint32_t *base[] = { run[r].send, run[r].recv };

            for (uint32_t w = 1; w <= 2; w++)
                memcpy(motet_gpu_window_at(g->own[o], &g->layout, w, (uint32_t)r),
                        &base[w - 1], sizeof(base[0]));
        }
    }
    for (int r = 0; r < g->nranks; r++) {
        run[r] = (rank_run){ .g = g, .rank = (uint32_t)r };
        assert_int_equal(pthread_create(&run[r].thread, NULL, rank_main, &run[r]), 0);
    }
    for (int r = 0; r < g->nranks; r++) {
        bool late = pthread_timedjoin_np(run[r].thread, NULL, &deadline) != 0;

        for (int i = 0; late && i < g->nranks; i++)
            __atomic_store_n(&g->control[i]->abort, 1, __ATOMIC_RELEASE);
        if (late)
            pthread_join(run[r].thread, NULL);
        assert_false(late);
        assert_int_equal(run[r].wrong, 0);
        assert_int_equal(g->control[r]->error, MOTET_GPU_OK);
        assert_int_equal(rig_state(g, r, 0)->position, rig_state(g, 0, 0)->position);
    }
}

static void test_ranks_that_run_ahead_overwrite_nothing(void **state)
{
    rig g;

    (void)state;
    for (int n = 2; n <= RIG_RANKS; n++) {
        rig_init(&g, n, 1, small, n == 3 ? 0x7ffffc00 : 0xfffffc00);
        run_sequence(&g);
        rig_release(&g);
    }
}

/* ---- Tags ------------------------------------------------------------------------- */

/* How many words of rank 0's LL slots hold @p tag where a tag belongs, in both arenas. */
static int tags_left(const rig *g, uint32_t tag)
{
    const motet_gpu_layout *l = &g->layout;
    uint64_t block_bytes = (uint64_t)MOTET_LL_SLOTS * l->nranks * 2 * l->ll_bytes;
    int left = 0;

    for (int i = 0; i < MOTET_GPU_INBOXES; i++) {
        for (uint64_t at = l->ll; at < l->ll + block_bytes; at += 8) {
            uint32_t word;

            memcpy(&word, g->arena[0][i] + at + 4, sizeof(word));
            left += word == tag;
        }
    }
    return left;
}

static void run_smallest(rig *g, const char *kernel)
{
    uint32_t word[RIG_RANKS] = { 1, 2, 3, 4 };
    motet_gpu_args args[RIG_RANKS];

    for (int r = 0; r < g->nranks; r++) {
        args[r] = rig_args(g, r);
        args[r].send_mask = ((1u << g->nranks) - 1) & ~(1u << r);
        args[r].recv_mask = (1u << g->nranks) - 1;
        args[r].type = 3;
        args[r].bytes = 4;
        args[r].send = args[r].recv = (uint8_t *)&word[r];
    }
    rig_run(g, kernel, args);
    rig_assert_in_step(g);
}

static void test_no_tag_outlives_an_eighth_of_the_circle(void **state)
{
    static const char *const kernels[] = { "motet_ll_reduce", "motet_stage_reduce",
        "motet_twoshot_reduce" };

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        rig g;

        rig_init(&g, 3, 1, small, 0xfffffffd);
        assert_int_not_equal(tags_left(&g, 5), 0);
        for (int i = 0; (int32_t)rig_state(&g, 0, 0)->position < 4; i++) {
            assert_true(i < 8);
            run_smallest(&g, kernels[k]);
        }
        assert_int_equal(tags_left(&g, 5), 0);
        assert_int_equal(rig_state(&g, 0, 0)->cleared & 0xffff, 0);
        assert_int_equal(rig_state(&g, 0, 0)->cleared >> 16, 1);
        rig_release(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_run_ahead_overwrite_nothing),
        cmocka_unit_test(test_no_tag_outlives_an_eighth_of_the_circle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
