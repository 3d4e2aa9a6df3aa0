/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one device or process in another: exports, imports, peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_rig.h"
#include "contract_share.h"

static void test_what_is_shared_arrives_both_ways(void **state)
{
    (void)state;
    run_pair((pair_case){ exporter, importer, .kind = MOTET_GPU_EXPORT_FD });
}

static void test_what_is_shared_by_handle_arrives_too(void **state)
{
    (void)state;
    run_pair((pair_case){ exporter, importer, .fake = true,
            .kind = MOTET_GPU_EXPORT_HANDLE, .both = "FAKECUDA_VMM=0" });
}

static void test_the_owners_device_need_not_be_visible(void **state)
{
    (void)state;
    run_pair((pair_case){ exporter, importer, .fake = true, .kind = MOTET_GPU_EXPORT_FD,
            .exports = "CUDA_VISIBLE_DEVICES=0", .imports = "CUDA_VISIBLE_DEVICES=1" });
    run_pair((pair_case){ exporter, importer, .fake = true,
            .kind = MOTET_GPU_EXPORT_HANDLE, .both = "FAKECUDA_VMM=0",
            .exports = "CUDA_VISIBLE_DEVICES=0", .imports = "CUDA_VISIBLE_DEVICES=1" });
}

/* ---- memory of the application ---- */

static void test_memory_of_the_application_goes_by_handle(void **state)
{
    (void)state;
    run_pair((pair_case){ application, guest, .kind = MOTET_GPU_EXPORT_HANDLE });
}

static int senseless_exports_are_refused(void)
{
    motet_gpu_export good = { .kind = MOTET_GPU_EXPORT_FD,
        .process = 5,
        .address = 1 << 20,
        .bytes = 4096,
        .identity = "GPU-somewhere" };
    motet_gpu_memory memory = { .address = 9 };
    motet_gpu_export bad = good;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->import(gpu, &good, 6, -1, &memory) == MOTET_ERR_INTERNAL);
    CHECK_SAID("GPU-somewhere came without its descriptor");
    bad.kind = MOTET_GPU_EXPORT_NONE;
    CHECK(ops->import(gpu, &bad, 6, -1, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("cannot be shared with another process");
    bad = good;
    bad.offset = 4096;
    CHECK(ops->import(gpu, &bad, 6, 0, &memory) == MOTET_ERR_REMOTE);
    bad.offset = (1 << 20) + 1;
    bad.bytes = 1 << 21;
    CHECK(ops->import(gpu, &bad, 6, 0, &memory) == MOTET_ERR_REMOTE);
    /* a descriptor of something else */
    CHECK(ops->import(gpu, &good, 6, STDIN_FILENO, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("memory of GPU-somewhere on device 0");
    CHECK(memory.address == 9);
    return 0;
}

static void test_senseless_exports_are_refused(void **state)
{
    (void)state;
    rig_run(senseless_exports_are_refused, false, 1, NULL);
}

/* ---- peers in one process ---- */

/* Plain memory is opened as a whole and both ways: to open it again is an error. */
static int peers_are_open_both_ways(void)
{
    CUcontext context[2];

    CHECK(peers_write_to_each_other() == 0);
    for (int i = 0; i < 2; i++)
        CHECK(app.cuDevicePrimaryCtxRetain(&context[i], i) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        CHECK(app.cuCtxSetCurrent(context[i]) == CUDA_SUCCESS);
        CHECK(app.cuCtxEnablePeerAccess(context[!i], 0) ==
                CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    return 0;
}

static void test_peers_write_to_each_other(void **state)
{
    (void)state;
    rig_run(peers_write_to_each_other, false, 2, NULL);
    rig_run(peers_are_open_both_ways, true, 2, "FAKECUDA_VMM=0");
}

static void test_a_missing_way_is_a_sentence(void **state)
{
    (void)state;
    rig_run(a_missing_way_is_a_sentence, true, 2, "FAKECUDA_PEER=none");
}

/* ---- several threads import the same ---- */

static void test_threads_share_an_import(void **state)
{
    (void)state;
    run_pair((pair_case){ crowded, crowd, .kind = MOTET_GPU_EXPORT_FD });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shared_arrives_both_ways),
        cmocka_unit_test(test_what_is_shared_by_handle_arrives_too),
        cmocka_unit_test(test_the_owners_device_need_not_be_visible),
        cmocka_unit_test(test_memory_of_the_application_goes_by_handle),
        cmocka_unit_test(test_what_is_no_device_memory_is_not_exported),
        cmocka_unit_test(test_senseless_exports_are_refused),
        cmocka_unit_test(test_peers_write_to_each_other),
        cmocka_unit_test(test_a_missing_way_is_a_sentence),
        cmocka_unit_test(test_threads_share_an_import),
    };

    return cmocka_run_group_tests_name("cuda_share", tests, NULL, NULL);
}
