/* SPDX-License-Identifier: Apache-2.0 */
/* What operations of GPU ranks give the device: grids that its words are enough for, and
 * no events as long as nothing needs them. */
#include "comm_rig.h"

#include "kernels/images.h"

#include <string.h>

/* ---- grids of messages: a table whose launches are looked at, and run nowhere ---- */

static motet_gpu_pairs_args seen;
static int launches;

static motet_result look_at_launch(motet_gpu *gpu, const motet_launch *launch,
        void *stream)
{
    (void)gpu;
    (void)stream;
    assert_int_equal(launch->bytes, sizeof(seen));
    memcpy(&seen, launch->args, sizeof(seen));
    assert_int_equal(launch->blocks, seen.blocks);
    launches++;
    return MOTET_OK;
}

static motet_result idle_stream(motet_gpu *gpu, void *stream, motet_stream_state *out)
{
    (void)gpu;
    (void)stream;
    memset(out, 0, sizeof(*out));
    return MOTET_OK;
}

/* A large message to and from each other rank. */
static void exchange(motet_gpu_engine *g)
{
    motet_transfer transfers[2 * MOTET_GPU_RANKS] = { 0 };
    int count = 0;

    for (int r = 1; r < g->engine->nranks; r++)
        for (int kind = MOTET_SEND; count < 2 * r; kind = MOTET_RECV)
            transfers[count++].op = (motet_op){ .kind = (motet_kind)kind,
                .type = MOTET_UINT8,
                .root = r,
                .count = 1u << 30 };
    launches = 0;
    assert_int_equal(motet_gpu_pairs(g, transfers, count, NULL), MOTET_OK);
    assert_int_equal(launches, 1);
    assert_int_equal(seen.count, count);
}

static void check_grid(motet_gpu_path path, int nranks, uint32_t limit)
{
    static const motet_gpu_ops ops = { .launch = look_at_launch,
        .stream_state = idle_stream };
    static motet_gpu_control control;
    motet_engine engine = { .nranks = nranks };
    motet_gpu_link link = { .ops = &ops, .nranks = nranks, .control = &control };
    motet_gpu_engine *g = calloc(1, sizeof(*g));

    assert_non_null(g);
    g->engine = &engine;
    g->link = &link;
    g->limit = limit;
    g->unrecorded = true;
    motet_gpu_constants_default(nranks, path, &g->constants);
    motet_gpu_layout_of(&g->constants, nranks, &link.layout);
    exchange(g);
    assert_in_range(seen.blocks, 2, link.layout.blocks);
    assert_true(seen.blocks <= limit);
    for (uint32_t i = 0; i < seen.count; i++) {
        const motet_gpu_transfer *t = &seen.transfer[i];

        assert_in_range(t->first + t->blocks, 1, seen.blocks);
    }
    free(g);
}

static void test_grids_of_messages_stay_within_the_layout(void **state)
{
    static const motet_gpu_path paths[] = { MOTET_GPU_PATH_DIRECT,
        MOTET_GPU_PATH_STAGED };
    static const uint32_t limits[] = { 2, 3, 24, MOTET_GPU_BLOCKS };

    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (int n = 2; n <= MOTET_GPU_RANKS; n++)
            for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
                check_grid(paths[p], n, limits[i]);
}

/* ---- events, on the stand-in for CUDA's driver ---- */

static const motet_gpu_ops *real;
static int records;

static motet_result count_record(motet_gpu *gpu, void *event, void *stream,
        bool external)
{
    records++;
    return real->event_record(gpu, event, stream, external);
}

/* One operation on each rank, and its end. @return events that were recorded */
static int run(motet_comm **comm, const motet_gpu_memory *memory, void **stream)
{
    records = 0;
    for (int r = 0; r < 2; r++) {
        motet_op op = { .kind = MOTET_ALL_REDUCE,
            .type = MOTET_INT32,
            .redop = MOTET_SUM,
            .root = -1,
            .send = (void *)(uintptr_t)memory[r].address,
            .recv = (void *)(uintptr_t)memory[r].address,
            .count = 64 };

        assert_int_equal(motet_launch_group(batch_of(comm[r], &op, stream[r])),
                MOTET_OK);
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(real->stream_sync(comm[r]->gpu_device, stream[r]), MOTET_OK);
        assert_int_equal(motet_comm_async(comm[r]), MOTET_OK);
    }
    return records;
}

static void test_no_event_is_recorded_before_a_second_stream(void **state)
{
    motet_comm *comm[2];
    motet_gpu_memory memory[2];
    motet_gpu_ops counting;
    void *first[2], *second[2];

    (void)state;
    if (motet_image_find("nvidia", "sm_90") == NULL)
        skip(); /* built without kernels */
    make_comms_on(MOTET_CHOOSE_CUDA, 2, comm);
    real = comm[0]->device->gpu;
    counting = *real;
    counting.event_record = count_record;
    for (int r = 0; r < 2; r++) {
        motet_gpu *gpu = comm[r]->gpu_device;

        assert_non_null(comm[r]->gpu);
        comm[r]->gpu->link->ops = &counting;
        assert_int_equal(real->alloc(gpu, 4096, &memory[r]), MOTET_OK);
        assert_int_equal(real->stream_create(gpu, false, &first[r]), MOTET_OK);
        assert_int_equal(real->stream_create(gpu, false, &second[r]), MOTET_OK);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(run(comm, memory, first), 0);
    assert_true(run(comm, memory, second) >= 2);
    for (int r = 0; r < 2; r++) {
        motet_gpu *gpu = comm[r]->gpu_device;

        comm[r]->gpu->link->ops = real;
        real->stream_destroy(gpu, first[r]);
        real->stream_destroy(gpu, second[r]);
        real->free(gpu, &memory[r]);
    }
    destroy_comms(2, comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids_of_messages_stay_within_the_layout),
        cmocka_unit_test(test_no_event_is_recorded_before_a_second_stream),
    };

    setenv("MOTET_STATE_DIR", "/dev/null/none", 1); /* nothing is remembered */
    return cmocka_run_group_tests_name("gpu_enqueue", tests, NULL, NULL);
}
