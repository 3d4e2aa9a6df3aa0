/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver: captures and graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakecuda_rig.h"

#include <pthread.h>

/* End the capture of @p stream, which must be sound, and instantiate it. */
static int finish(CUstream stream, CUgraph *graph, CUgraphExec *exec)
{
    OK(cuStreamEndCapture(stream, graph));
    CHECK(*graph != NULL);
    OK(cuGraphInstantiateWithFlags(exec, *graph, 0));
    return 0;
}

static void add_100(void *arg)
{
    uint32_t *word = arg;
    CUcontext context;

    *word += cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED ? 100 : 1;
}

static int replays_kernels_copies_fills_and_host_functions(const void *arg)
{
    uint32_t *list, *copy;
    CUgraphExec exec;
    CUgraph graph;
    size_t nodes = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(64);
    copy = rig_words(64);
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(rig_note(&r, list, 7, r.stream[0]));
    OK(cuMemcpyAsync((uintptr_t)copy, (uintptr_t)list, 16, r.stream[0]));
    OK(cuMemsetD32Async((uintptr_t)(copy + 4), 9, 3, r.stream[0]));
    OK(cuLaunchHostFunc(r.stream[0], add_100, copy + 4));
    CHECK(finish(r.stream[0], &graph, &exec) == 0);
    CHECK(list[0] == 0 && copy[4] == 0); /* nothing has run */
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 4);
    OK(cuGraphDestroy(graph));
    for (uint32_t i = 1; i <= 5; i++) {
        OK(cuGraphLaunch(exec, r.stream[i % 3]));
        OK(cuStreamSynchronize(r.stream[i % 3]));
        CHECK(list[0] == i && list[i] == 7 && copy[0] == i && copy[1] == 7);
        CHECK(copy[4] == 109 && copy[5] == 9 && copy[6] == 9 && copy[7] == 0);
    }
    for (int i = 0; i < 10; i++) /* one after the other, whatever the stream */
        OK(cuGraphLaunch(exec, r.stream[i % 3]));
    OK(cuGraphExecDestroy(exec)); /* while they run */
    OK(cuCtxSynchronize());
    CHECK(list[0] == 15);
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, r.stream[0]));
    return 0;
}

static int forks_and_joins_run_at_the_same_time(const void *arg)
{
    uint32_t *words, *list;
    CUevent fork, join;
    CUgraphExec exec;
    CUgraph graph;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    words = rig_words(2);
    list = rig_words(16);
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async((uintptr_t)words, 0, 2, r.stream[0]));
    OK(cuEventRecord(fork, r.stream[0]));
    OK(cuStreamWaitEvent(r.stream[1], fork, 0));
    for (int s = 0; s < 2; s++) {
        const meet_args args = { words + s, words + 1 - s, 50 };

        OK(rig_launch(r.meet[0], 1, r.stream[s], &args, sizeof(args)));
    }
    OK(cuEventRecord(join, r.stream[1]));
    OK(cuStreamWaitEvent(r.stream[0], join, 0));
    OK(rig_note(&r, list, 1, r.stream[0]));
    CHECK(finish(r.stream[0], &graph, &exec) == 0);
    IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
    for (uint32_t i = 1; i <= 3; i++) {
        OK(cuGraphLaunch(exec, r.stream[2]));
        OK(cuStreamSynchronize(r.stream[2]));
        CHECK(words[0] == 50 && words[1] == 50 && list[0] == i);
    }
    return 0;
}

static int external_events_order_replays_with_eager_work(const void *arg)
{
    uint32_t *list, *gate;
    CUevent event;
    CUgraphExec exec;
    CUgraph graph;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(64);
    gate = rig_words(1);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    IS(CUDA_ERROR_INVALID_VALUE,
            cuEventRecordWithFlags(event, r.stream[0], CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamWaitEvent(r.stream[0], event, CU_EVENT_WAIT_EXTERNAL));
    OK(rig_note(&r, list, 2, r.stream[0]));
    OK(cuEventRecordWithFlags(event, r.stream[0], CU_EVENT_RECORD_EXTERNAL));
    CHECK(finish(r.stream[0], &graph, &exec) == 0);
    OK(cuEventQuery(event)); /* not recorded in the capture */
    for (uint32_t i = 0; i < 3; i++) {
        __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
        OK(rig_wait_for(&r, gate, r.stream[1]));
        OK(rig_note(&r, list, 1, r.stream[1]));
        OK(cuEventRecord(event, r.stream[1]));
        OK(cuGraphLaunch(exec, r.stream[0]));
        OK(cuStreamWaitEvent(r.stream[2], event, 0)); /* what the graph will record */
        OK(rig_note(&r, list, 3, r.stream[2]));
        IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
        IS(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream[0]));
        __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
        OK(cuStreamSynchronize(r.stream[2]));
        OK(cuEventQuery(event));
        CHECK(list[0] == 3 * i + 3 && list[3 * i + 1] == 1 && list[3 * i + 2] == 2 &&
                list[3 * i + 3] == 3);
    }
    OK(cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, r.stream[0]));
    return 0;
}

/* A leaf beside the stream, as motet records the end of its last operation. */
static int a_capture_can_be_extended_by_its_graph(const void *arg)
{
    CUstreamCaptureStatus status;
    CUgraphNode leaf, other;
    const CUgraphNode *front;
    CUevent event, second;
    CUgraph graph, ended;
    CUgraphExec exec;
    uint64_t id = 0, again = 0;
    size_t count = 0;
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(16);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(rig_note(&r, list, 1, r.stream[0]));
    OK(cuStreamGetCaptureInfo_v2(r.stream[0], &status, &id, &graph, &front, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && count == 1);
    OK(cuGraphAddEventRecordNode(&leaf, graph, front, count, event));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(leaf));
    other = *front;
    OK(cuGraphRemoveDependencies(graph, &other, &leaf, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &other, &leaf, 1));
    OK(rig_note(&r, list, 2, r.stream[0]));
    OK(cuStreamGetCaptureInfo_v3(r.stream[0], &status, &again, &graph, &front, NULL,
            &count));
    CHECK(again == id && count == 1 && *front != other);
    other = *front;
    OK(cuGraphAddDependencies(graph, &other, &leaf, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &other, &leaf, 1));
    count = 0;
    OK(cuGraphNodeGetDependencies(leaf, NULL, &count));
    CHECK(count == 1);
    OK(cuGraphEventRecordNodeSetEvent(leaf, second));
    OK(cuStreamUpdateCaptureDependencies(r.stream[0], NULL, 0, 1));
    OK(cuStreamUpdateCaptureDependencies(r.stream[0], &other, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph)); /* the capture's */
    CHECK(finish(r.stream[0], &ended, &exec) == 0);
    CHECK(ended == graph);
    OK(cuGraphLaunch(exec, r.stream[0]));
    OK(cuEventSynchronize(second));
    CHECK(list[0] == 2);
    OK(cuGraphDestroyNode(leaf)); /* the capture is over */
    count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 2);
    return 0;
}

static int gone;

static void count_gone(void *arg)
{
    CUcontext context;

    if (cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED)
        __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELEASE);
}

static int goes_within_a_minute(int wanted)
{
    time_t begin = time(NULL);

    while (__atomic_load_n(&gone, __ATOMIC_ACQUIRE) < wanted)
        if (rig_expired(begin))
            return 0;
    return 1;
}

static int a_user_object_lives_as_long_as_its_graphs(const void *arg)
{
    CUuserObject object;
    uint32_t *list, *gate;
    CUstreamCaptureStatus status;
    CUgraphExec exec;
    CUgraph graph;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(4);
    gate = rig_words(1);
    IS(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&object, &gone, count_gone, 1, 0));
    OK(cuUserObjectCreate(&object, &gone, count_gone, 1,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamGetCaptureInfo_v2(r.stream[0], &status, NULL, &graph, NULL, NULL));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    IS(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 2));
    OK(rig_wait_for(&r, gate, r.stream[0]));
    OK(rig_note(&r, list, 1, r.stream[0]));
    CHECK(finish(r.stream[0], &graph, &exec) == 0);
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, r.stream[0]));
    OK(cuGraphExecDestroy(exec));
    CHECK(__atomic_load_n(&gone, __ATOMIC_ACQUIRE) == 0); /* it still runs */
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    CHECK(goes_within_a_minute(1));
    OK(cuStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 1);
    IS(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));

    OK(cuUserObjectCreate(&object, &gone, count_gone, 1,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuStreamBeginCapture_v2(r.stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamGetCaptureInfo_v2(r.stream[0], &status, NULL, &graph, NULL, NULL));
    OK(cuGraphRetainUserObject(graph, object, 2, 0));
    OK(cuGraphReleaseUserObject(graph, object, 1));
    OK(cuUserObjectRelease(object, 1));
    OK(cuStreamEndCapture(r.stream[0], &graph));
    CHECK(__atomic_load_n(&gone, __ATOMIC_ACQUIRE) == 1);
    OK(cuGraphDestroy(graph));
    CHECK(goes_within_a_minute(2));
    return 0;
}

/* ---- what ends a capture ---- */

typedef struct offence {
    const char *name;
    CUresult code;
    CUstreamCaptureMode mode, thread; /* of the capture; of the offender */
    CUresult (*commit)(const rig *r);
    CUresult end; /* of the capture */
} offence;

static CUresult allocate(const rig *r)
{
    CUdeviceptr address;

    (void)r;
    return cuMemAlloc_v2(&address, 4096);
}

static CUresult reserve(const rig *r)
{
    CUdeviceptr address;

    (void)r;
    return cuMemAddressReserve(&address, 2 << 20, 0, 0, 0);
}

static CUresult load(const rig *r)
{
    CUmodule module;

    (void)r;
    return cuModuleLoadDataEx(&module, rig_ptx, 0, NULL, NULL);
}

static CUresult synchronize(const rig *r)
{
    return cuStreamSynchronize(r->stream[0]);
}

static CUresult synchronize_other(const rig *r)
{
    return cuStreamSynchronize(r->stream[1]);
}

static CUresult query(const rig *r)
{
    return cuStreamQuery(r->stream[0]);
}

static CUresult synchronize_all(const rig *r)
{
    (void)r;
    return cuCtxSynchronize();
}

static CUresult wait_for_outsider(const rig *r)
{
    CUevent event;
    CUresult code = cuEventCreate(&event, 0);

    if (code == CUDA_SUCCESS)
        code = cuEventRecord(event, r->stream[1]);
    return code == CUDA_SUCCESS ? cuStreamWaitEvent(r->stream[0], event, 0) : code;
}

static CUresult fork_without_join(const rig *r)
{
    static uint32_t list[4];
    CUevent event;
    CUresult code = cuEventCreate(&event, 0);

    if (code == CUDA_SUCCESS)
        code = cuEventRecord(event, r->stream[0]);
    if (code == CUDA_SUCCESS)
        code = cuStreamWaitEvent(r->stream[1], event, 0);
    return code == CUDA_SUCCESS ? rig_note(r, list, 1, r->stream[1]) : code;
}

static CUresult query_captured_event(const rig *r)
{
    CUevent event;
    CUresult code = cuEventCreate(&event, 0);

    if (code == CUDA_SUCCESS)
        code = cuEventRecord(event, r->stream[0]);
    return code == CUDA_SUCCESS ? cuEventQuery(event) : code;
}

static CUresult end_elsewhere(const rig *r)
{
    CUgraph graph;
    CUresult code = fork_without_join(r);

    return code == CUDA_SUCCESS ? cuStreamEndCapture(r->stream[1], &graph) : code;
}

/* clang-format off */
#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED
#define BROKEN  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
static const offence offences[] = {
    { "allocation", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, GLOBAL, GLOBAL, allocate, BROKEN },
    { "allocation, local", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, LOCAL, GLOBAL, allocate, BROKEN },
    { "allocation, relaxed", CUDA_SUCCESS, RELAXED, GLOBAL, allocate, CUDA_SUCCESS },
    { "allocation by a relaxed thread", CUDA_SUCCESS, GLOBAL, RELAXED, allocate, CUDA_SUCCESS },
    { "reservation", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, GLOBAL, GLOBAL, reserve, BROKEN },
    { "module", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, GLOBAL, GLOBAL, load, BROKEN },
    { "synchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, RELAXED, RELAXED, synchronize, BROKEN },
    { "synchronize another", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, GLOBAL, GLOBAL, synchronize_other, BROKEN },
    { "synchronize another, relaxed", CUDA_SUCCESS, GLOBAL, RELAXED, synchronize_other, CUDA_SUCCESS },
    { "query", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, RELAXED, RELAXED, query, BROKEN },
    { "context", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, RELAXED, RELAXED, synchronize_all, BROKEN },
    { "outsider", CUDA_ERROR_STREAM_CAPTURE_ISOLATION, GLOBAL, GLOBAL, wait_for_outsider, BROKEN },
    { "captured event", CUDA_ERROR_CAPTURED_EVENT, RELAXED, RELAXED, query_captured_event, BROKEN },
    { "unjoined", CUDA_SUCCESS, GLOBAL, GLOBAL, fork_without_join, CUDA_ERROR_STREAM_CAPTURE_UNJOINED },
    { "unmatched", CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, GLOBAL, GLOBAL, end_elsewhere, BROKEN },
};
/* clang-format on */

static int commit(const rig *r, const offence *o, uint32_t *list)
{
    CUstreamCaptureMode mode = o->thread;
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;

    fprintf(stderr, "%s:\n", o->name);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture_v2(r->stream[0], o->mode));
    OK(rig_note(r, list, 1, r->stream[0]));
    IS(o->code, o->commit(r));
    OK(cuStreamIsCapturing(r->stream[0], &status));
    CHECK((status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) == (o->end == BROKEN));
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        IS(BROKEN, rig_note(r, list, 1, r->stream[0]));
    IS(o->end, cuStreamEndCapture(r->stream[0], &graph));
    CHECK((graph == NULL) == (o->end != CUDA_SUCCESS));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    for (int s = 0; s < 2; s++) /* the streams are themselves again */
        OK(cuStreamSynchronize(r->stream[s]));
    return 0;
}

static int offences_end_captures(const void *arg)
{
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(64);
    for (size_t i = 0; i < sizeof(offences) / sizeof(*offences); i++)
        CHECK(commit(&r, &offences[i], list) == 0);
    return 0;
}

static int the_legacy_stream_does_not_mix_with_captures(const void *arg)
{
    CUstreamCaptureStatus status;
    CUstream blocking;
    CUgraph graph;
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(cuStreamCreate(&blocking, 0));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, GLOBAL));
    OK(cuStreamBeginCapture_v2(r.stream[0], GLOBAL));
    OK(rig_note(&r, list, 1, NULL)); /* a non-blocking stream's capture: no harm */
    OK(cuStreamEndCapture(r.stream[0], &graph));
    OK(cuStreamBeginCapture_v2(blocking, GLOBAL));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamIsCapturing(blocking, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking is harmless */
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, rig_note(&r, list, 1, CU_STREAM_LEGACY));
    IS(BROKEN, cuStreamEndCapture(blocking, &graph));
    OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED));
    OK(rig_note(&r, list, 1, CU_STREAM_PER_THREAD));
    OK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    return 0;
}

static void *end_on_thread(void *arg)
{
    const rig *r = arg;
    CUgraph graph;
    CUdeviceptr address;
    CUresult code = cuCtxSetCurrent(r->context[0]);

    if (code == CUDA_SUCCESS)
        code = cuStreamEndCapture(r->stream[0], &graph);
    if (code == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        code = cuMemAlloc_v2(&address, 4096); /* forbidden here, too */
    return (void *)(uintptr_t)code;
}

static int captures_know_their_thread(const void *arg)
{
    pthread_t thread;
    CUgraph graph;
    void *code;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    OK(cuStreamBeginCapture_v2(r.stream[0], GLOBAL));
    CHECK(pthread_create(&thread, NULL, end_on_thread, &r) == 0);
    CHECK(pthread_join(thread, &code) == 0);
    CHECK((uintptr_t)code == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(BROKEN, cuStreamEndCapture(r.stream[0], &graph));
    return 0;
}

static int two_captures_do_not_merge(const void *arg)
{
    CUgraph graph;
    CUevent event;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    OK(cuEventCreate(&event, 0));
    OK(cuStreamBeginCapture_v2(r.stream[0], RELAXED));
    OK(cuStreamBeginCapture_v2(r.stream[1], RELAXED));
    OK(cuEventRecord(event, r.stream[0]));
    IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(r.stream[1], event, 0));
    IS(BROKEN, cuStreamEndCapture(r.stream[0], &graph));
    IS(BROKEN, cuStreamEndCapture(r.stream[1], &graph));
    return 0;
}

#define TEST(fn)                                                         \
    static void test_##fn(void **state)                                  \
    {                                                                    \
        (void)state;                                                     \
        assert_int_equal(rig_run_case(&(rig_case){ #fn, fn, NULL }), 0); \
    }

TEST(replays_kernels_copies_fills_and_host_functions)
TEST(forks_and_joins_run_at_the_same_time)
TEST(external_events_order_replays_with_eager_work)
TEST(a_capture_can_be_extended_by_its_graph)
TEST(a_user_object_lives_as_long_as_its_graphs)
TEST(offences_end_captures)
TEST(the_legacy_stream_does_not_mix_with_captures)
TEST(captures_know_their_thread)
TEST(two_captures_do_not_merge)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays_kernels_copies_fills_and_host_functions),
        cmocka_unit_test(test_forks_and_joins_run_at_the_same_time),
        cmocka_unit_test(test_external_events_order_replays_with_eager_work),
        cmocka_unit_test(test_a_capture_can_be_extended_by_its_graph),
        cmocka_unit_test(test_a_user_object_lives_as_long_as_its_graphs),
        cmocka_unit_test(test_offences_end_captures),
        cmocka_unit_test(test_the_legacy_stream_does_not_mix_with_captures),
        cmocka_unit_test(test_captures_know_their_thread),
        cmocka_unit_test(test_two_captures_do_not_merge),
    };

    return cmocka_run_group_tests_name("fakecuda_graph", tests, NULL, NULL);
}
