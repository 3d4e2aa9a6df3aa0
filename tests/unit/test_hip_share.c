/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one device or process in another, on the HIP device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hip_rig.h"
#include "contract_share.h"

#define HANDLE MOTET_GPU_EXPORT_HANDLE

static void test_what_is_shared_arrives_both_ways(void **state)
{
    (void)state;
    run_pair((pair_case){ exporter, importer, .kind = HANDLE });
    /* whose flag has another number */
    run_pair((pair_case){ exporter, importer, .kind = HANDLE, .both = RIG_ROCM5 });
    run_pair((pair_case){ exporter, importer, .kind = HANDLE, .both = RIG_ROCM7 });
}

static void test_the_owners_device_need_not_be_visible(void **state)
{
    (void)state;
    run_pair((pair_case){ exporter, importer, .kind = HANDLE,
            .exports = "HIP_VISIBLE_DEVICES=0", .imports = "HIP_VISIBLE_DEVICES=1" });
    run_pair((pair_case){ exporter, importer, .kind = HANDLE,
            .exports = "ROCR_VISIBLE_DEVICES=1", .imports = "HIP_VISIBLE_DEVICES=0" });
}

static void test_memory_of_the_application_goes_by_handle(void **state)
{
    (void)state;
    run_pair((pair_case){ application, guest, .kind = HANDLE });
}

/* Caches would keep what a peer reads and writes there. */
static int coarse_memory_is_not_shared(void)
{
    motet_gpu_memory memory = { .address = 9 };
    motet_gpu_export export;
    motet_gpu *gpu[2];
    void *coarse = NULL;
    int fd = -1;

    CHECK(ops->open(0, &gpu[0]) == MOTET_OK && ops->open(1, &gpu[1]) == MOTET_OK);
    CHECK(rig_use(0) && app.hipMalloc(&coarse, 8192) == hipSuccess);
    CHECK(ops->export_memory(gpu[0], (uint64_t)(uintptr_t)coarse, &export, &fd) ==
            MOTET_OK);
    CHECK(export.kind == MOTET_GPU_EXPORT_NONE && fd == -1);
    CHECK(ops->import(gpu[1], &export, export.process, -1, &memory) ==
            MOTET_ERR_DEVICE);
    CHECK_SAID("neither uncached nor fine-grained");
    return 0;
}

static void test_coarse_memory_is_not_shared(void **state)
{
    (void)state;
    rig_run(coarse_memory_is_not_shared, true, 2, NULL);
}

static uint32_t exported_as(motet_gpu *gpu, uint64_t address)
{
    motet_gpu_export export = { .kind = 99 };
    int fd = -1;

    return ops->export_memory(gpu, address, &export, &fd) == MOTET_OK && fd == -1
            ? export.kind
            : 99;
}

/* Where the runtime has no pool of the kind it gives coarse memory, and calls it what was
 * asked for: RIG_SHARED says what it has indeed, of memory that is ours, the
 * application's fine-grained, and its uncached. */
static int what_the_runtime_only_calls_fine_is_coarse(void)
{
    const char *shared = getenv("RIG_SHARED");
    motet_gpu_memory own, memory = { .address = 9 };
    motet_gpu_export export;
    void *fine = NULL, *uncached = NULL;
    motet_gpu *gpu[2];
    int fd;

    CHECK(shared != NULL && strlen(shared) == 3 && rig_use(0));
    CHECK(ops->open(0, &gpu[0]) == MOTET_OK && ops->open(1, &gpu[1]) == MOTET_OK);
    CHECK(ops->alloc(gpu[0], 4096, &own) == MOTET_OK);
    CHECK(exported_as(gpu[0], own.address) == (shared[0] == '1' ? HANDLE : 0));
    CHECK(app.hipExtMallocWithFlags(&fine, 4096, hipDeviceMallocFinegrained) ==
            hipSuccess);
    CHECK(exported_as(gpu[0], (uint64_t)(uintptr_t)fine) ==
            (shared[1] == '1' ? HANDLE : 0));
    if (app.hipExtMallocWithFlags(&uncached, 4096, hipDeviceMallocUncached) ==
            hipSuccess)
        CHECK(exported_as(gpu[0], (uint64_t)(uintptr_t)uncached) ==
                (shared[2] == '1' ? HANDLE : 0));
    CHECK(ops->export_memory(gpu[0], own.address, &export, &fd) == MOTET_OK);
    CHECK(ops->import(gpu[1], &export, export.process, -1, &memory) ==
            (shared[0] == '1' ? MOTET_OK : MOTET_ERR_DEVICE));
    if (shared[0] == '0')
        CHECK_SAID("neither uncached nor fine-grained");
    return 0;
}

static void test_what_the_runtime_only_calls_fine_is_coarse(void **state)
{
    static const char *const cases[][3] = {
        { "FAKEHIP_FINEGRAIN=0", "FAKEHIP_TARGET=gfx1201", "RIG_SHARED=000" },
        { "FAKEHIP_FINEGRAIN=0", "FAKEHIP_TARGET=gfx1200", "RIG_SHARED=000" },
        { "FAKEHIP_FINEGRAIN=1", "FAKEHIP_TARGET=gfx1201", "RIG_SHARED=111" },
        { "FAKEHIP_FINEGRAIN=0", "FAKEHIP_TARGET=gfx1100", "RIG_SHARED=101" },
        { "FAKEHIP_FINEGRAIN=1", "FAKEHIP_TARGET=gfx1100", "RIG_SHARED=111" },
        { "FAKEHIP_FINEGRAIN=0", RIG_ROCM5, "RIG_SHARED=000" },
        { "FAKEHIP_FINEGRAIN=1", RIG_ROCM5, "RIG_SHARED=110" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        rig_run_in(what_the_runtime_only_calls_fine_is_coarse, true, 2,
                (const char *const[]){ cases[i][0], cases[i][1], cases[i][2], NULL });
}

static void test_threads_share_an_import(void **state)
{
    (void)state;
    run_pair((pair_case){ crowded, crowd, .kind = HANDLE });
}

/* ---- refusals ---- */

/* Exports what it can, and waits for the peer's word. */
static int unshared(int sock, uint32_t kind)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, MIB, &memory) == MOTET_OK);
    CHECK(post_export(sock, gpu, memory.address, kind));
    CHECK(fetch_token(sock, 2));
    return 0;
}

static int unshared_peer(int sock)
{
    motet_gpu_memory memory = { .address = 9 };
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(!fetch_import(sock, gpu, &memory) && memory.address == 9);
    CHECK_SAID("cannot be shared with another process");
    CHECK(post_token(sock, 2));
    return 0;
}

static void test_a_runtime_that_gives_no_handles_shares_nothing(void **state)
{
    (void)state;
    run_pair((pair_case){ unshared, unshared_peer, .kind = MOTET_GPU_EXPORT_NONE,
            .exports = "FAKEHIP_IPC=noget" });
}

static int refused_handle(int sock)
{
    motet_gpu_memory memory = { .address = 9 };
    motet_gpu *gpu;
    parcel p;
    int fd;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(fetch(sock, &p, &fd) && fd < 0);
    CHECK(ops->import(gpu, &p.export, ~p.export.process, fd, &memory) ==
            MOTET_ERR_DEVICE);
    CHECK_SAID("hipIpcOpenMemHandle");
    CHECK_SAID(p.export.identity);
    CHECK(memory.address == 9);
    CHECK(app.hipPeekAtLastError() == hipSuccess); /* it was ours */
    CHECK(post_token(sock, 2));
    return 0;
}

static void test_a_handle_that_is_not_opened_is_a_sentence(void **state)
{
    (void)state;
    run_pair((pair_case){ unshared, refused_handle, .kind = HANDLE,
            .imports = "FAKEHIP_IPC=noopen" });
}

static int senseless_exports_are_refused(void)
{
    motet_gpu_export good = { .kind = HANDLE,
        .process = 5,
        .address = 1 << 20,
        .bytes = 4096,
        .identity = "GPU-somewhere" };
    motet_gpu_memory memory = { .address = 9 };
    motet_gpu_export bad = good;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    bad.kind = MOTET_GPU_EXPORT_NONE;
    CHECK(ops->import(gpu, &bad, 6, -1, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("cannot be shared with another process");
    bad.kind = MOTET_GPU_EXPORT_FD;
    CHECK(ops->import(gpu, &bad, 6, STDIN_FILENO, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("cannot map memory by descriptor");
    bad = good;
    bad.offset = 4096;
    CHECK(ops->import(gpu, &bad, 6, -1, &memory) == MOTET_ERR_REMOTE);
    CHECK_SAID("makes no sense");
    /* a handle of nothing */
    CHECK(ops->import(gpu, &good, 6, -1, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("memory of GPU-somewhere on device 0");
    CHECK(memory.address == 9);
    return 0;
}

static void test_senseless_exports_are_refused(void **state)
{
    (void)state;
    rig_run(senseless_exports_are_refused, true, 1, NULL);
}

/* ---- peers in one process ---- */

/* They are opened as a whole and both ways: to open them again is an error. */
static int peers_are_open_both_ways(void)
{
    CHECK(peers_write_to_each_other() == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(rig_use(i));
        CHECK(app.hipDeviceEnablePeerAccess(!i, 0) == hipErrorPeerAccessAlreadyEnabled);
    }
    return 0;
}

static void test_peers_write_to_each_other(void **state)
{
    (void)state;
    rig_run(peers_are_open_both_ways, true, 2, NULL);
}

static void test_a_missing_way_is_a_sentence(void **state)
{
    (void)state;
    rig_run(a_missing_way_is_a_sentence, true, 2, "FAKEHIP_PEER=none");
}

/* One that is open in one direction only counts as none. */
static int one_way_is_none(void)
{
    motet_gpu_memory memory = { .address = 9 }, own;
    motet_gpu_export export;
    motet_gpu *gpu[2];
    int fd;

    for (int i = 0; i < 2; i++) {
        CHECK(ops->open(0, &gpu[0]) == MOTET_OK && ops->open(1, &gpu[1]) == MOTET_OK);
        CHECK(ops->alloc(gpu[i], 4096, &own) == MOTET_OK);
        CHECK(ops->export_memory(gpu[i], own.address, &export, &fd) == MOTET_OK);
        CHECK(ops->import(gpu[!i], &export, export.process, fd, &memory) ==
                MOTET_ERR_DEVICE);
        CHECK_SAID("has no peer access to");
        CHECK(memory.address == 9);
    }
    return 0;
}

static void test_one_way_is_none(void **state)
{
    (void)state;
    rig_run(one_way_is_none, true, 2, "FAKEHIP_PEER=oneway");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shared_arrives_both_ways),
        cmocka_unit_test(test_the_owners_device_need_not_be_visible),
        cmocka_unit_test(test_memory_of_the_application_goes_by_handle),
        cmocka_unit_test(test_what_is_no_device_memory_is_not_exported),
        cmocka_unit_test(test_coarse_memory_is_not_shared),
        cmocka_unit_test(test_what_the_runtime_only_calls_fine_is_coarse),
        cmocka_unit_test(test_threads_share_an_import),
        cmocka_unit_test(test_a_runtime_that_gives_no_handles_shares_nothing),
        cmocka_unit_test(test_a_handle_that_is_not_opened_is_a_sentence),
        cmocka_unit_test(test_senseless_exports_are_refused),
        cmocka_unit_test(test_peers_write_to_each_other),
        cmocka_unit_test(test_a_missing_way_is_a_sentence),
        cmocka_unit_test(test_one_way_is_none),
    };

    return cmocka_run_group_tests_name("hip_share", tests, NULL, NULL);
}
