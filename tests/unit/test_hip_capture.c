/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of others, captures and graphs, seen by the HIP device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hip_rig.h"
#include "contract_capture.h"
#include "device/stream.h"

/* ---- whose stream it is ---- */

static int strangers_streams_are_refused(void)
{
    motet_stream_state doing = { .capture = 99 };
    motet_host_stream *host;
    void *gone, *others;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK);
    CHECK(!doing.capturing && !doing.invalidated && doing.capture == 0);
    CHECK(motet_device_hip.stream_check(r.stream) == MOTET_OK);
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        CHECK(ops->stream_state(r.gpu, (void *)handle, &doing) == MOTET_OK);
        CHECK(motet_device_hip.stream_check((void *)handle) == MOTET_OK);
        CHECK(!motet_device_hip.stream_blocks((void *)handle));
    }
    CHECK(motet_host_stream_create(&host) == MOTET_OK);
    CHECK(motet_device_hip.stream_check(host) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("host stream");

    CHECK(rig_use(1));
    others = rig_app_stream();
    CHECK(others != NULL);
    /* the default streams of a communicator's device, whichever device is current */
    CHECK(ops->stream_state(r.gpu, NULL, &doing) == MOTET_OK);
    doing.capture = 99;
    CHECK(ops->stream_state(r.gpu, others, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("belongs to device 1, the communicator to device 0");

    CHECK(rig_use(0));
    gone = rig_app_stream();
    CHECK(gone != NULL && app.hipStreamDestroy(gone) == hipSuccess);
    CHECK(ops->stream_state(r.gpu, gone, &doing) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("is none, or was destroyed");
    CHECK(app.hipPeekAtLastError() == hipSuccess);
    CHECK(doing.capture == 99);
    return 0;
}

static void test_strangers_streams_are_refused(void **state)
{
    (void)state;
    rig_run(strangers_streams_are_refused, true, 2, NULL);
}

/* The second name of the legacy stream, which older runtimes do not know. */
static int the_legacy_stream_has_two_names(void)
{
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(rig_store(r.gpu, r.kernel, r.memory.address, 5, RIG_LEGACY) == MOTET_OK);
    CHECK(ops->stream_sync(r.gpu, RIG_LEGACY) == MOTET_OK);
    CHECK(rig_word(r.gpu, r.memory.address) == 5);
    return 0;
}

static void test_the_legacy_stream_has_two_names(void **state)
{
    (void)state;
    rig_run(the_legacy_stream_has_two_names, true, 1, NULL);
    rig_run(the_legacy_stream_has_two_names, true, 1, RIG_ROCM5);
}

/* ---- events whose stream is another's business ---- */

static int an_event_outlives_its_stream(void)
{
    void *event;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->event_query(r.gpu, event) == MOTET_OK); /* never recorded */
    CHECK(ops->event_record(r.gpu, event, r.stream, false) == MOTET_OK);
    CHECK(app.hipStreamDestroy(r.stream) == hipSuccess);
    CHECK(ops->event_query(r.gpu, event) == MOTET_OK);
    CHECK(ops->event_wait(r.gpu, event, NULL, false) == MOTET_OK);
    CHECK(ops->event_record(r.gpu, event, NULL, false) == MOTET_OK);
    CHECK(ops->stream_sync(r.gpu, NULL) == MOTET_OK);
    CHECK(ops->event_query(r.gpu, event) == MOTET_OK);
    CHECK(app.hipPeekAtLastError() == hipSuccess);
    ops->event_destroy(r.gpu, event);
    return 0;
}

static void test_an_event_outlives_its_stream(void **state)
{
    (void)state;
    rig_run(an_event_outlives_its_stream, true, 1, NULL);
}

/* To ask about an event would fail a capture that its stream is in. */
static int a_look_at_an_event_spares_a_capture(void)
{
    void *event, *graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(ops->event_record(r.gpu, event, r.stream, false) == MOTET_OK);
    CHECK(rig_capture_begin(r.stream, RIG_RELAXED));
    CHECK(ops->event_query(r.gpu, event) == MOTET_ERR_DEVICE);
    CHECK_SAID("is being captured");
    CHECK(rig_capture_end(r.stream, &graph) && graph != NULL);
    CHECK(ops->stream_sync(r.gpu, r.stream) == MOTET_OK);
    CHECK(ops->event_query(r.gpu, event) == MOTET_OK);
    return 0;
}

static void test_a_look_at_an_event_spares_a_capture(void **state)
{
    (void)state;
    rig_run(a_look_at_an_event_spares_a_capture, true, 1, NULL);
}

/* ---- runtimes without what captures need ---- */

static int captured_streams_are_refused(void)
{
    motet_stream_state doing = { .capture = 99 };
    void *event, *leaf = NULL, *graph;
    rig r;

    CHECK(set_up(&r) == 0);
    CHECK(ops->event_create(r.gpu, &event) == MOTET_OK);
    CHECK(strstr(ops->facts(r.gpu)->no_capture, getenv("RIG_LACKS")) != NULL);
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.capturing);
    CHECK(rig_capture_begin(r.stream, RIG_RELAXED));
    doing.capture = 99;
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_ERR_DEVICE);
    CHECK_SAID("is captured: ");
    CHECK_SAID(getenv("RIG_LACKS"));
    CHECK_SAID("or newer");
    CHECK(doing.capture == 99);
    CHECK(ops->event_wait(r.gpu, event, r.stream, true) == MOTET_ERR_DEVICE);
    CHECK(ops->graph_record(r.gpu, &doing, event, r.stream, &leaf) == MOTET_ERR_DEVICE);
    CHECK(ops->graph_hold(r.gpu, NULL, NULL, NULL) == MOTET_ERR_DEVICE && leaf == NULL);
    CHECK(rig_capture_end(r.stream, &graph));
    CHECK(ops->stream_state(r.gpu, r.stream, &doing) == MOTET_OK && !doing.capturing);
    return 0;
}

static void test_captured_streams_are_refused(void **state)
{
    (void)state;
    rig_run_with(captured_streams_are_refused, true, 1, RIG_ROCM5,
            "RIG_LACKS=hipUserObjectCreate");
    rig_run_with(captured_streams_are_refused, true, 1, RIG_BARE,
            "RIG_LACKS=hipStreamGetCaptureInfo_v2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers_streams_are_refused),
        cmocka_unit_test(test_an_open_device_is_named),
        cmocka_unit_test(test_the_legacy_stream_has_two_names),
        cmocka_unit_test(test_an_event_outlives_its_stream),
        cmocka_unit_test(test_a_look_at_an_event_spares_a_capture),
        cmocka_unit_test(test_captured_streams_are_refused),
        cmocka_unit_test(test_one_node_records_behind_the_last),
        cmocka_unit_test(test_the_node_waits_for_all_branches),
        cmocka_unit_test(test_eager_and_captured_use_are_ordered),
        cmocka_unit_test(test_a_graph_holds_until_it_is_gone),
        cmocka_unit_test(test_a_failed_hold_is_not_released),
        cmocka_unit_test(test_a_capture_survives_what_we_do_beside),
        cmocka_unit_test(test_a_failed_capture_shows),
    };

    return cmocka_run_group_tests_name("hip_capture", tests, NULL, NULL);
}
