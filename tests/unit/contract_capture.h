/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs, as any kind of GPU sees them; a rig is included before. */
#ifndef MOTET_TEST_CONTRACT_CAPTURE_H
#define MOTET_TEST_CONTRACT_CAPTURE_H

#include "contract_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEADLINE_MS 20000

typedef struct rig {
    motet_gpu *gpu;
    void *stream; /* the application's */
    void *kernel;
    motet_gpu_memory memory;
} rig;

static inline int set_up(rig *r)
{
    CHECK(rig_use(0));
    r->stream = rig_app_stream();
    CHECK(r->stream != NULL);
    CHECK(ops->open(0, &r->gpu) == MOTET_OK);
    CHECK(ops->alloc(r->gpu, 4096, &r->memory) == MOTET_OK);
    r->kernel = rig_store_kernel(r->gpu);
    CHECK(r->kernel != NULL);
    return 0;
}

static inline int an_open_device_is_named(void)
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

static inline void test_an_open_device_is_named(void **state)
{
    (void)state;
    rig_run(an_open_device_is_named, false, 2, NULL);
}

/* Three operations in a capture: the order event is recorded by one node, behind the
 * last of them, and by nothing before. */
static inline int one_node_records_behind_the_last(void)
{
    motet_stream_state doing;
    void *event, *leaf = NULL, *first;
    size_t count = 0;
    void *graph, *exec;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(rig_capture_begin(r.stream, RIG_GLOBAL));
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
        CHECK(doing.capturing && doing.capture != 0 && doing.graph != NULL);
        CHECK(ops->event_wait(r.gpu, event, r.stream, true) == MOTET_OK);
        CHECK(rig_store(r.gpu, r.kernel, r.memory.address + (uint64_t)i * 8, 10 * i,
                      r.stream) == MOTET_OK);
        first = leaf;
        CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
        CHECK(leaf != NULL && (i == 0 || leaf == first));
        CHECK(rig_node_edges(leaf, &count));
        CHECK(count == 1);
        /* twice at the same place: nothing changes */
        CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    }
    CHECK(rig_capture_end(r.stream, &graph));
    CHECK(rig_graph_nodes(graph, &count));
    CHECK(count == 3 + 3 + 1); /* waits, kernels, one record */
    CHECK(rig_graph_make(graph, &exec));
    CHECK(rig_word(r.gpu, r.memory.address) == 0); /* nothing ran yet */
    for (int i = 0; i < 2; i++) {
        CHECK(ops->fill(r.gpu, r.memory.address, 0, 8, r.stream) == MOTET_OK);
        CHECK(rig_graph_run(exec, r.stream));
        CHECK(ops->stream_sync(r.gpu, r.stream) == MOTET_OK);
        CHECK(ops->event_query(r.gpu, event) == MOTET_OK);
        CHECK(rig_word(r.gpu, r.memory.address + 4) == 1);
        CHECK(rig_word(r.gpu, r.memory.address + 20) == 21);
    }
    CHECK(rig_graph_drop(NULL, exec));
    CHECK(rig_graph_drop(graph, NULL));
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.capturing);
    return 0;
}

static inline void test_one_node_records_behind_the_last(void **state)
{
    (void)state;
    rig_run(one_node_records_behind_the_last, false, 1, NULL);
}

/* Also where the work of an operation forked: the node waits for all of it. */
static inline int the_node_waits_for_all_branches(void)
{
    motet_stream_state doing;
    void *event, *fork_event, *join, *side, *leaf = NULL;
    size_t count = 0;
    void *graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->event_create(r.gpu, &fork_event) == MOTET_OK);
    CHECK(ops->event_create(r.gpu, &join) == MOTET_OK);
    CHECK(ops->stream_create(r.gpu, false, &side) == MOTET_OK);
    CHECK(rig_capture_begin(r.stream, RIG_THREAD_LOCAL));
    CHECK(ops->event_record(r.gpu, fork_event, r.stream, false) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, fork_event, side, false) == MOTET_OK);
    CHECK(ops->stream_state(r.gpu, side, &doing) == MOTET_OK && doing.capturing);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address + 64, 1, side) == MOTET_OK);
    CHECK(ops->event_record(r.gpu, join, side, false) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, join, r.stream, false) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    CHECK(rig_node_edges(leaf, &count));
    CHECK(count == 2);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    CHECK(rig_node_edges(leaf, &count));
    CHECK(count == 1);
    CHECK(rig_capture_end(r.stream, &graph));
    CHECK(rig_graph_drop(graph, NULL));

    /* outside the capture there is nothing to record in */
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_ERR_USAGE);
    return 0;
}

static inline void test_the_node_waits_for_all_branches(void **state)
{
    (void)state;
    rig_run(the_node_waits_for_all_branches, false, 1, NULL);
}

static inline int eager_and_captured_use_are_ordered(void)
{
    motet_stream_state doing;
    void *event, *leaf = NULL, *eager;
    void *graph, *exec;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->stream_create(r.gpu, true, &eager) == MOTET_OK);
    CHECK(rig_capture_begin(r.stream, RIG_GLOBAL));
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, event, r.stream, true) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 500, r.stream) == MOTET_OK);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_OK);
    CHECK(rig_capture_end(r.stream, &graph));
    CHECK(rig_graph_make(graph, &exec));
    for (uint32_t i = 1; i <= 20; i++) {
        CHECK(rig_graph_run(exec, r.stream));
        CHECK(ops->event_wait(r.gpu, event, eager, false) == MOTET_OK);
        CHECK(rig_store(r.gpu, r.kernel, r.memory.address, i, eager) == MOTET_OK);
        CHECK(ops->event_record(r.gpu, event, eager, false) == MOTET_OK);
        CHECK(ops->stream_sync(r.gpu, eager) == MOTET_OK);
        CHECK(rig_word(r.gpu, r.memory.address) == i); /* the graph's 500 came before */
    }
    return 0;
}

static inline void test_eager_and_captured_use_are_ordered(void **state)
{
    (void)state;
    rig_run(eager_and_captured_use_are_ordered, false, 1, NULL);
}

/* ---- what a graph holds ---- */

static inline void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static inline bool reaches(_Atomic int *counter, int value)
{
    for (int ms = 0; ms < DEADLINE_MS && atomic_load(counter) != value; ms++)
        usleep(1000);
    return atomic_load(counter) == value;
}

static inline int a_graph_holds_until_it_is_gone(void)
{
    static _Atomic int released;
    motet_stream_state doing;
    void *graph, *exec;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(rig_capture_begin(r.stream, RIG_RELAXED));
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(ops->graph_hold(r.gpu, doing.graph, count_up, &released) == MOTET_OK);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(rig_capture_end(r.stream, &graph));
    CHECK(rig_graph_make(graph, &exec));
    CHECK(rig_graph_drop(graph, NULL));
    CHECK(rig_graph_run(exec, r.stream));
    CHECK(ops->stream_sync(r.gpu, r.stream) == MOTET_OK);
    CHECK(atomic_load(&released) == 0);
    CHECK(rig_graph_drop(NULL, exec));
    CHECK(reaches(&released, 1));
    return 0;
}

static inline void test_a_graph_holds_until_it_is_gone(void **state)
{
    (void)state;
    rig_run(a_graph_holds_until_it_is_gone, false, 1, NULL);
}

static inline int a_failed_hold_is_not_released(void)
{
    static _Atomic int released;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->graph_hold(r.gpu, NULL, count_up, &released) == MOTET_ERR_DEVICE);
    usleep(50000); /* in which a release that comes after all would come */
    CHECK(atomic_load(&released) == 0);
    return 0;
}

static inline void test_a_failed_hold_is_not_released(void **state)
{
    (void)state;
    rig_run(a_failed_hold_is_not_released, true, 1, NULL);
}

/* ---- somebody else captures ---- */

static inline void *set_up_beside(void *arg)
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

static inline int a_capture_survives_what_we_do_beside(void)
{
    motet_stream_state doing;
    pthread_t thread;
    void *graph;
    void *bad;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(rig_capture_begin(r.stream, RIG_GLOBAL));
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 1, r.stream) == MOTET_OK);
    CHECK(pthread_create(&thread, NULL, set_up_beside, r.gpu) == 0);
    CHECK(pthread_join(thread, &bad) == 0 && bad == NULL);
    /* and on the capturing thread itself */
    CHECK(set_up_beside(r.gpu) == NULL);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(doing.capturing && !doing.invalidated);
    CHECK(rig_capture_end(r.stream, &graph) && graph != NULL);
    /* the thread's mode is what it was */
    CHECK(rig_capture_mode() == RIG_GLOBAL);
    return 0;
}

static inline void test_a_capture_survives_what_we_do_beside(void **state)
{
    (void)state;
    rig_run(a_capture_survives_what_we_do_beside, false, 1, NULL);
}

static inline int a_failed_capture_shows(void)
{
    motet_stream_state doing;
    void *graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(rig_capture_begin(r.stream, RIG_GLOBAL));
    CHECK(!rig_app_sync(r.stream)); /* forbidden: ends it */
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(!doing.capturing && doing.invalidated && doing.graph == NULL);
    CHECK(!rig_capture_end(r.stream, &graph));
    CHECK(rig_app_alloc(64) != 0);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.invalidated);
    return 0;
}

static inline void test_a_failed_capture_shows(void **state)
{
    (void)state;
    rig_run(a_failed_capture_shows, false, 1, NULL);
}

#endif
