/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of others, captures and graphs, seen by the CUDA device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_rig.h"
#include "contract_capture.h"
#include "device/stream.h"

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
