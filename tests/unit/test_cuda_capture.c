/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of others, captures and graphs, seen by the CUDA device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_rig.h"
#include "device/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEADLINE_MS 20000

typedef struct rig {
    motet_gpu *gpu;
    CUcontext context;
    CUstream stream; /* the application's, of the primary context */
    void *kernel;
    motet_gpu_memory memory;
} rig;

static int set_up(rig *r)
{
    CHECK(app.cuDevicePrimaryCtxRetain(&r->context, 0) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(r->context) == CUDA_SUCCESS);
    CHECK(app.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(ops->open(0, &r->gpu) == MOTET_OK);
    CHECK(ops->alloc(r->gpu, 4096, &r->memory) == MOTET_OK);
    r->kernel = rig_store_kernel(r->gpu);
    CHECK(r->kernel != NULL);
    return 0;
}

/* ---- whose stream it is ---- */

static int strangers_streams_are_refused(void)
{
    motet_stream_state doing = { .capture = 99 };
    motet_host_stream *host;
    CUcontext foreign, second;
    CUstream theirs, others;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(!doing.capturing && !doing.invalidated && doing.capture == 0);
    CHECK(motet_device_cuda.stream_check(r.stream) == MOTET_OK);
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        CHECK(ops->stream_state(r.gpu, (void *)handle, &doing) == MOTET_OK);
        CHECK(motet_device_cuda.stream_check((void *)handle) == MOTET_OK);
        CHECK(!motet_device_cuda.stream_blocks((void *)handle));
    }
    CHECK(motet_host_stream_create(&host) == MOTET_OK);
    CHECK(motet_device_cuda.stream_check(host) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("host stream");

    CHECK(app.cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(second) == CUDA_SUCCESS);
    CHECK(app.cuStreamCreate(&others, 0) == CUDA_SUCCESS);
    /* the default streams of a communicator's device, whichever device is current */
    CHECK(ops->stream_state(r.gpu, NULL, &doing) == MOTET_OK);
    doing.capture = 99;
    CHECK(ops->stream_state(r.gpu, others, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("belongs to another device");
    CHECK(motet_device_cuda.stream_check(others) == MOTET_OK);

    CHECK(app.cuCtxCreate_v2(&foreign, 0, 0) == CUDA_SUCCESS);
    CHECK(app.cuStreamCreate(&theirs, 0) == CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, theirs, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("a context that somebody created");
    CHECK(motet_device_cuda.stream_check(theirs) == MOTET_ERR_ARGUMENT);
    CHECK(ops->stream_state(r.gpu, NULL, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("a context that somebody created");
    CHECK(ops->stream_state(r.gpu, CU_STREAM_PER_THREAD, &doing) == MOTET_ERR_ARGUMENT);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(doing.capture == 0);
    return 0;
}

static void test_strangers_streams_are_refused(void **state)
{
    (void)state;
    rig_run(strangers_streams_are_refused, false, 2, NULL);
}

static int an_open_device_is_named(void)
{
    motet_stream_state doing;
    void *stream;
    motet_gpu *second;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->open(1, &second) == MOTET_OK);
    CHECK(ops->stream_create(second, false, &stream) == MOTET_OK);
    CHECK(ops->stream_state(r.gpu, stream, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("belongs to device 1, the communicator to device 0");
    CHECK(ops->stream_state(second, stream, &doing) == MOTET_OK);
    return 0;
}

static void test_an_open_device_is_named(void **state)
{
    (void)state;
    rig_run(an_open_device_is_named, false, 2, NULL);
}

static int green_streams_are_refused(void)
{
    motet_stream_state doing;
    CUcontext green, top;
    CUstream stream;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(app.green_context(&green, 0) == CUDA_SUCCESS);
    CHECK(app.cuCtxPushCurrent_v2(green) == CUDA_SUCCESS);
    CHECK(app.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(app.cuCtxPopCurrent_v2(&top) == CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, stream, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("belongs to a green context");
    return 0;
}

static void test_green_streams_are_refused(void **state)
{
    (void)state;
    rig_run(green_streams_are_refused, true, 1, NULL);
}

/* ---- captures ---- */

static int count_nodes(CUgraph graph, size_t *out)
{
    CHECK(app.cuGraphGetNodes(graph, NULL, out) == CUDA_SUCCESS);
    return 0;
}

/* Three operations in a capture: the order event is recorded by one node, behind the
 * last of them, and by nothing before. */
static int one_node_records_behind_the_last(void)
{
    CUgraphNode before[8];
    motet_stream_state doing;
    void *event, *leaf = NULL, *first;
    size_t count = 0;
    CUgraph graph;
    CUgraphExec exec;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
        CHECK(doing.capturing && doing.capture != 0 && doing.graph != NULL);
        CHECK(ops->event_wait(r.gpu, event, r.stream, true) == MOTET_OK);
        CHECK(rig_store(r.gpu, r.kernel, r.memory.address + (uint64_t)i * 8, 10 * i,
                      r.stream) == MOTET_OK);
        first = leaf;
        CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
        CHECK(leaf != NULL && (i == 0 || leaf == first));
        count = 8;
        CHECK(app.cuGraphNodeGetDependencies(leaf, before, &count) == CUDA_SUCCESS);
        CHECK(count == 1);
        /* twice at the same place: nothing changes */
        CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    }
    CHECK(app.cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS);
    CHECK(count_nodes(graph, &count) == 0);
    CHECK(count == 3 + 3 + 1); /* waits, kernels, one record */
    CHECK(app.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    CHECK(rig_word(r.gpu, r.memory.address) == 0); /* nothing ran yet */
    for (int i = 0; i < 2; i++) {
        CHECK(ops->fill(r.gpu, r.memory.address, 0, 8, r.stream) == MOTET_OK);
        CHECK(app.cuGraphLaunch(exec, r.stream) == CUDA_SUCCESS);
        CHECK(ops->stream_sync(r.gpu, r.stream) == MOTET_OK);
        CHECK(ops->event_query(r.gpu, event) == MOTET_OK);
        CHECK(rig_word(r.gpu, r.memory.address + 4) == 1);
        CHECK(rig_word(r.gpu, r.memory.address + 20) == 21);
    }
    CHECK(app.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHECK(app.cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.capturing);
    return 0;
}

static void test_one_node_records_behind_the_last(void **state)
{
    (void)state;
    rig_run(one_node_records_behind_the_last, false, 1, NULL);
}

/* Also where the work of an operation forked: the node waits for all of it. */
static int the_node_waits_for_all_branches(void)
{
    CUgraphNode before[8];
    motet_stream_state doing;
    void *event, *fork_event, *join, *side, *leaf = NULL;
    size_t count = 8;
    CUgraph graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->event_create(r.gpu, &fork_event) == MOTET_OK);
    CHECK(ops->event_create(r.gpu, &join) == MOTET_OK);
    CHECK(ops->stream_create(r.gpu, false, &side) == MOTET_OK);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
            CUDA_SUCCESS);
    CHECK(ops->event_record(r.gpu, fork_event, r.stream, false) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, fork_event, side, false) == MOTET_OK);
    CHECK(ops->stream_state(r.gpu, side, &doing) == MOTET_OK && doing.capturing);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address + 64, 1, side) == MOTET_OK);
    CHECK(ops->event_record(r.gpu, join, side, false) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, join, r.stream, false) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    CHECK(app.cuGraphNodeGetDependencies(leaf, before, &count) == CUDA_SUCCESS);
    CHECK(count == 2);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    count = 8;
    CHECK(app.cuGraphNodeGetDependencies(leaf, before, &count) == CUDA_SUCCESS);
    CHECK(count == 1);
    CHECK(app.cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS);
    CHECK(app.cuGraphDestroy(graph) == CUDA_SUCCESS);

    /* outside the capture there is nothing to record in */
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_ERR_USAGE);
    return 0;
}

static void test_the_node_waits_for_all_branches(void **state)
{
    (void)state;
    rig_run(the_node_waits_for_all_branches, false, 1, NULL);
}

static int eager_and_captured_use_are_ordered(void)
{
    motet_stream_state doing;
    void *event, *leaf = NULL, *eager;
    CUgraph graph;
    CUgraphExec exec;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->stream_create(r.gpu, true, &eager) == MOTET_OK);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, event, r.stream, true) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 500, r.stream) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    CHECK(app.cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS);
    CHECK(app.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    for (uint32_t i = 1; i <= 20; i++) {
        CHECK(app.cuGraphLaunch(exec, r.stream) == CUDA_SUCCESS);
        CHECK(ops->event_wait(r.gpu, event, eager, false) == MOTET_OK);
        CHECK(rig_store(r.gpu, r.kernel, r.memory.address, i, eager) == MOTET_OK);
        CHECK(ops->event_record(r.gpu, event, eager, false) == MOTET_OK);
        CHECK(ops->stream_sync(r.gpu, eager) == MOTET_OK);
        CHECK(rig_word(r.gpu, r.memory.address) == i); /* the graph's 500 came before */
    }
    return 0;
}

static void test_eager_and_captured_use_are_ordered(void **state)
{
    (void)state;
    rig_run(eager_and_captured_use_are_ordered, false, 1, NULL);
}

/* ---- what a graph holds ---- */

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static bool reaches(_Atomic int *counter, int value)
{
    for (int ms = 0; ms < DEADLINE_MS && atomic_load(counter) != value; ms++)
        usleep(1000);
    return atomic_load(counter) == value;
}

static int a_graph_holds_until_it_is_gone(void)
{
    static _Atomic int released;
    motet_stream_state doing;
    CUgraphExec exec;
    CUgraph graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_RELAXED) ==
            CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(ops->graph_hold(r.gpu, doing.graph, count_up, &released) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(app.cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS);
    CHECK(app.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    CHECK(app.cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(app.cuGraphLaunch(exec, r.stream) == CUDA_SUCCESS);
    CHECK(ops->stream_sync(r.gpu, r.stream) == MOTET_OK);
    CHECK(atomic_load(&released) == 0);
    CHECK(app.cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHECK(reaches(&released, 1));
    return 0;
}

static void test_a_graph_holds_until_it_is_gone(void **state)
{
    (void)state;
    rig_run(a_graph_holds_until_it_is_gone, false, 1, NULL);
}

static int a_failed_hold_is_not_released(void)
{
    static _Atomic int released;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->graph_hold(r.gpu, NULL, count_up, &released) == MOTET_ERR_DEVICE);
    usleep(50000); /* in which a release that comes after all would come */
    CHECK(atomic_load(&released) == 0);
    return 0;
}

static void test_a_failed_hold_is_not_released(void **state)
{
    (void)state;
    rig_run(a_failed_hold_is_not_released, true, 1, NULL);
}

/* ---- somebody else captures ---- */

static void *set_up_beside(void *arg)
{
    motet_gpu *gpu = arg;
    void *page = aligned_alloc(4096, 4096), *stream = NULL, *event = NULL;
    motet_gpu_memory memory = { .address = 0 };
    motet_gpu_export export;
    uintptr_t bad = page == NULL;
    uint64_t at;
    int fd = -1;

    bad += rig_store_kernel(gpu) == NULL;
    bad += ops->alloc(gpu, 4096, &memory) != MOTET_OK;
    bad += ops->export_memory(gpu, memory.address, &export, &fd) != MOTET_OK;
    bad += ops->register_host(gpu, page, 4096, &at) != MOTET_OK;
    ops->unregister_host(gpu, page);
    bad += ops->stream_create(gpu, true, &stream) != MOTET_OK;
    bad += ops->event_create(gpu, &event) != MOTET_OK;
    bad += ops->fill(gpu, memory.address, 1, 8, stream) != MOTET_OK;
    bad += ops->event_record(gpu, event, stream, false) != MOTET_OK;
    bad += ops->stream_sync(gpu, stream) != MOTET_OK;
    bad += ops->stream_query(gpu, stream) != MOTET_OK;
    bad += ops->event_query(gpu, event) != MOTET_OK;
    bad += ops->health(gpu) != MOTET_OK;
    ops->event_destroy(gpu, event);
    ops->stream_destroy(gpu, stream);
    ops->free(gpu, &memory);
    if (fd >= 0)
        close(fd);
    free(page);
    return (void *)bad;
}

static int a_capture_survives_what_we_do_beside(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    motet_stream_state doing;
    pthread_t thread;
    CUgraph graph;
    void *bad;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(pthread_create(&thread, NULL, set_up_beside, r.gpu) == 0);
    CHECK(pthread_join(thread, &bad) == 0 && bad == NULL);
    /* and on the capturing thread itself */
    CHECK(set_up_beside(r.gpu) == NULL);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(doing.capturing && !doing.invalidated);
    CHECK(app.cuStreamEndCapture(r.stream, &graph) == CUDA_SUCCESS && graph != NULL);
    /* the thread's mode is what it was */
    CHECK(app.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    return 0;
}

static void test_a_capture_survives_what_we_do_beside(void **state)
{
    (void)state;
    rig_run(a_capture_survives_what_we_do_beside, false, 1, NULL);
}

static int a_failed_capture_shows(void)
{
    motet_stream_state doing;
    CUdeviceptr plain;
    CUgraph graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(app.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CHECK(app.cuStreamSynchronize(r.stream) != CUDA_SUCCESS); /* forbidden: ends it */
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(!doing.capturing && doing.invalidated && doing.graph == NULL);
    CHECK(app.cuStreamEndCapture(r.stream, &graph) != CUDA_SUCCESS);
    CHECK(app.cuMemAlloc_v2(&plain, 64) == CUDA_SUCCESS);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.invalidated);
    return 0;
}

static void test_a_failed_capture_shows(void **state)
{
    (void)state;
    rig_run(a_failed_capture_shows, false, 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers_streams_are_refused),
        cmocka_unit_test(test_an_open_device_is_named),
        cmocka_unit_test(test_green_streams_are_refused),
        cmocka_unit_test(test_one_node_records_behind_the_last),
        cmocka_unit_test(test_the_node_waits_for_all_branches),
        cmocka_unit_test(test_eager_and_captured_use_are_ordered),
        cmocka_unit_test(test_a_graph_holds_until_it_is_gone),
        cmocka_unit_test(test_a_failed_hold_is_not_released),
        cmocka_unit_test(test_a_capture_survives_what_we_do_beside),
        cmocka_unit_test(test_a_failed_capture_shows),
    };

    return cmocka_run_group_tests_name("cuda_capture", tests, NULL, NULL);
}
