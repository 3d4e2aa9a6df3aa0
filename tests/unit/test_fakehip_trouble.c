/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for HIP: what it refuses, what hangs, and cards that stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakehip_rig.h"
#include "kernels/gpu/gpu.h"

/* ---- refusals ---- */

/* Launches of what is refused: which results tell. Nothing of it runs. */
static int refused_at(hipError_t launch, hipError_t sync, hipError_t last)
{
    append_args args;
    uint32_t *list;
    rig r;

    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    args = (append_args){ list, 1 };
    IS(launch, rig_launch(r.calls_host, 1, r.stream[0], &args, sizeof(args)));
    if (last != hipSuccess)
        IS(last, hipPeekAtLastError());
    OK(hipStreamSynchronize(r.stream[1]));
    IS(sync, hipStreamSynchronize(r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    if (last != hipSuccess)
        IS(last, hipGetLastError());
    IS(hipSuccess, hipGetLastError());
    CHECK(list[0] == 0);
    return 0;
}

static int a_hostcall_is_refused_at_launch(const void *arg)
{
    (void)arg;
    return refused_at(hipErrorIllegalState, hipSuccess, hipSuccess);
}

static int a_hostcall_is_refused_at_sync(const void *arg)
{
    (void)arg;
    return refused_at(hipSuccess, hipErrorIllegalState, hipSuccess);
}

static int a_hostcall_is_refused_in_the_last_error(const void *arg)
{
    (void)arg;
    return refused_at(hipSuccess, hipSuccess, hipErrorIllegalState);
}

/* Only what declares a hostcall is refused. */
static int other_kernels_run(const void *arg)
{
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(rig_note(r.append[0], list, 5, r.stream[0]));
    IS(hipErrorIllegalState, rig_note(r.calls_host, list, 6, r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 1 && list[1] == 5);
    return 0;
}

static int a_hostcall_runs_with_atomics(const void *arg)
{
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(rig_note(r.calls_host, list, 6, r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 1 && list[1] == 6);
    return 0;
}

static int every_launch_is_refused(const void *arg)
{
    uint32_t *list, word = 3, back = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    IS(hipErrorIllegalState, rig_note(r.append[0], list, 1, r.stream[0]));
    OK(hipMemcpyAsync(list, &word, 4, hipMemcpyDefault, r.stream[0])); /* copies run */
    OK(hipStreamSynchronize(r.stream[0]));
    OK(hipMemcpy(&back, list, 4, hipMemcpyDefault));
    CHECK(list[0] == 3 && back == 3);
    return 0;
}

/* A captured launch is refused when the graph is launched. */
static int a_graph_with_a_hostcall_is_refused(const void *arg)
{
    hipGraphExec_t exec;
    hipGraph_t graph;
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(hipStreamBeginCapture(r.stream[0], hipStreamCaptureModeRelaxed));
    OK(rig_note(r.calls_host, list, 1, r.stream[0]));
    OK(hipStreamEndCapture(r.stream[0], &graph));
    OK(hipGraphInstantiateWithFlags(&exec, graph, 0));
    IS(hipErrorIllegalState, hipGraphLaunch(exec, r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 0);
    return 0;
}

/* The object that a compiler made, with a kernel of either kind. */
static int the_planted_object_is_refused(const void *arg)
{
    hipFunction_t plain, hostcall;
    hipModule_t module;
    void *image = rig_file(rig_planted, "planted.co"), *word = NULL;
    void *parameters[1] = { &word };

    (void)arg;
    CHECK(image != NULL);
    OK(hipModuleLoadData(&module, image));
    OK(hipModuleGetFunction(&plain, module, "planted_plain"));
    OK(hipModuleGetFunction(&hostcall, module, "planted_hostcall"));
    OK(hipModuleLaunchKernel(plain, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    IS(hipErrorIllegalState,
            hipModuleLaunchKernel(hostcall, 1, 1, 1, 64, 1, 1, 0, NULL, parameters,
                    NULL));
    OK(hipStreamSynchronize(NULL));
    return 0;
}

/* ---- what never ends ---- */

/* Nothing happens on the stream for a while. */
static int stays_busy(hipStream_t stream)
{
    for (int i = 0; i < 20; i++) {
        IS(hipErrorNotReady, hipStreamQuery(stream));
        usleep(5000);
    }
    return 0;
}

static int kernels_hang_by_name(const void *arg)
{
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(rig_note(r.calls_host, list, 1, r.stream[1]));
    OK(rig_note(r.append[0], list, 2, r.stream[0])); /* hangs */
    OK(hipStreamSynchronize(r.stream[1]));
    CHECK(stays_busy(r.stream[0]) == 0);
    CHECK(list[0] == 1 && list[1] == 1);
    return 0;
}

/* A copy among one rank has nothing to do, and would be over at once. */
static int a_kernel_of_ours_hangs_until_aborted(const void *arg)
{
    void *image = rig_file(rig_images, "motet-gfx1100.co");
    motet_gpu_args args = { .nranks = 1, .blocks = 1 };
    motet_gpu_control *control;
    hipFunction_t function;
    hipModule_t module;
    hipStream_t stream;

    (void)arg;
    CHECK(image != NULL);
    OK(hipModuleLoadData(&module, image));
    OK(hipModuleGetFunction(&function, module, "motet_ll_copy"));
    OK(hipStreamCreate(&stream));
    control = (void *)rig_words(sizeof(*control) / 4);
    args.own = (void *)rig_words(1 << 16);
    args.arena[0] = args.inbox[0] = args.inbox[1] = (void *)rig_words(1 << 18);
    args.control = control;
    args.layout = (motet_gpu_layout){ .nranks = 1,
        .blocks = 1,
        .pair_blocks = 1,
        .ll_bytes = 64,
        .chunk = 256,
        .pair_chunk = 256 };
    motet_gpu_layout_fill(&args.layout);
    OK(rig_launch(function, 1, stream, &args, sizeof(args)));
    CHECK(stays_busy(stream) == 0);
    __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE);
    OK(hipStreamSynchronize(stream));
    return 0;
}

static int a_card_stops_and_hangs(const void *arg)
{
    hipStream_t other;
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    for (uint32_t i = 1; i <= 3; i++)
        OK(rig_note(r.append[0], list, i, r.stream[0])); /* the third hangs */
    CHECK(stays_busy(r.stream[0]) == 0);
    CHECK(list[0] == 2);
    OK(hipSetDevice(1)); /* the other card goes on */
    OK(hipStreamCreate(&other));
    list = rig_words(8);
    for (uint32_t i = 1; i <= 3; i++)
        OK(rig_note(r.append[1], list, i, other));
    OK(hipStreamSynchronize(other));
    CHECK(list[0] == 3);
    return 0;
}

static int a_card_stops_with_an_error(const void *arg)
{
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    for (uint32_t i = 1; i <= 2; i++)
        OK(rig_note(r.append[0], list, i, r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    OK(rig_note(r.append[0], list, 3, r.stream[0]));
    IS(hipErrorLaunchFailure, hipStreamSynchronize(r.stream[0]));
    IS(hipErrorLaunchFailure, rig_note(r.append[0], list, 4, r.stream[1]));
    IS(hipErrorLaunchFailure, hipDeviceSynchronize());
    CHECK(list[0] == 2);
    OK(hipSetDevice(1));
    OK(hipDeviceSynchronize());
    return 0;
}

TEST_WITH(a_hostcall_is_refused_at_launch, a_hostcall_is_refused_at_launch,
        "FAKEHIP_ATOMICS=0")
TEST_WITH(a_hostcall_is_refused_at_sync, a_hostcall_is_refused_at_sync,
        "FAKEHIP_ATOMICS=0", "FAKEHIP_REFUSE=sync")
TEST_WITH(a_hostcall_is_refused_in_the_last_error,
        a_hostcall_is_refused_in_the_last_error, "FAKEHIP_ATOMICS=0",
        "FAKEHIP_REFUSE=last")
TEST_WITH(other_kernels_run, other_kernels_run, "FAKEHIP_ATOMICS=0,1")
TEST(a_hostcall_runs_with_atomics)
TEST_WITH(every_launch_is_refused, every_launch_is_refused, "FAKEHIP_LAUNCH=refuse")
TEST_WITH(a_graph_with_a_hostcall_is_refused, a_graph_with_a_hostcall_is_refused,
        "FAKEHIP_ATOMICS=0")
TEST_WITH(kernels_hang_by_name, kernels_hang_by_name,
        "FAKEHIP_HANG=rig_meet,rig_append")
TEST_WITH(a_card_stops_and_hangs, a_card_stops_and_hangs, "FAKEHIP_STOP=2",
        "FAKEHIP_STOP_CARD=0")
TEST_WITH(a_card_stops_with_an_error, a_card_stops_with_an_error, "FAKEHIP_STOP=2",
        "FAKEHIP_STOP_CARD=0", "FAKEHIP_STOP_HOW=error")
TEST_OF_IMAGES(a_kernel_of_ours_hangs_until_aborted, rig_images, "motet-gfx1100.co",
        "FAKEHIP_HANG=motet_ll_copy")
TEST_OF_IMAGES(the_planted_object_is_refused, rig_planted, "planted.co",
        "FAKEHIP_ATOMICS=0")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hostcall_is_refused_at_launch),
        cmocka_unit_test(test_a_hostcall_is_refused_at_sync),
        cmocka_unit_test(test_a_hostcall_is_refused_in_the_last_error),
        cmocka_unit_test(test_other_kernels_run),
        cmocka_unit_test(test_a_hostcall_runs_with_atomics),
        cmocka_unit_test(test_every_launch_is_refused),
        cmocka_unit_test(test_a_graph_with_a_hostcall_is_refused),
        cmocka_unit_test(test_kernels_hang_by_name),
        cmocka_unit_test(test_a_card_stops_and_hangs),
        cmocka_unit_test(test_a_card_stops_with_an_error),
        cmocka_unit_test(test_a_kernel_of_ours_hangs_until_aborted),
        cmocka_unit_test(test_the_planted_object_is_refused),
    };

    rig_find_folders();
    return cmocka_run_group_tests_name("fakehip_trouble", tests, NULL, NULL);
}
