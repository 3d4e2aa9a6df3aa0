/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in driver: memory, and sharing it. The program runs itself once more to be
 * the other process: `test_fakecuda_memory other WHAT`, with a descriptor of exported
 * memory as number 9 or a handle on its standard input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakecuda_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#define GRANULE ((size_t)2 << 20)
#define WORDS   (GRANULE / sizeof(uint32_t))
#define FD      9
#define UNIT    (65536 / sizeof(uint32_t)) /* words that falsified mappings exchange */
#define FROM    ((size_t)1 << 20) /* bytes that are right in the tests with faults */

extern char **environ;

static const CUmemAllocationProp shareable = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};

static CUresult set_access(CUdeviceptr address, int device)
{
    const CUmemAccessDesc access = {
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    return cuMemSetAccess(address, GRANULE, &access, 1);
}

/* Maps @p handle; without access. */
static int map(CUmemGenericAllocationHandle handle, CUdeviceptr *address)
{
    OK(cuMemAddressReserve(address, GRANULE, 0, 0, 0));
    CHECK(*address % GRANULE == 0);
    OK(cuMemMap(*address, GRANULE, 0, handle, 0));
    return 0;
}

/* Two mappings in one reservation: one range of addresses, two blocks of memory. */
static int mapped_memory_has_numbers(const void *arg)
{
    CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES };
    uint64_t found[2][5];
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;

    (void)arg;
    OK(cuInit(0));
    OK(cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        void *values[5];

        for (int v = 0; v < 5; v++)
            values[v] = &found[i][v];
        OK(cuMemCreate(&handle, GRANULE, &shareable, 0));
        OK(cuMemMap(address + (CUdeviceptr)i * GRANULE, GRANULE, 0, handle, 0));
        OK(cuMemRelease(handle));
        OK(cuPointerGetAttributes(5, what, values,
                address + (CUdeviceptr)i * GRANULE + 64));
        CHECK(found[i][0] == address && found[i][1] == 2 * GRANULE);
        CHECK(found[i][4] == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    CHECK(found[0][2] == found[1][2] && found[0][2] != 0);
    CHECK(found[0][3] != found[1][3] && found[0][3] != 0);
    return 0;
}

static int mappings_follow_the_rules(const void *arg)
{
    const CUmemAllocationProp private = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
    };
    CUmemGenericAllocationHandle handle, again, other;
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0, before = 0, after = 0, total;
    int fd = -1;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    OK(cuMemGetInfo_v2(&before, &total));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &shareable, 0));
    OK(cuMemCreate(&handle, GRANULE, &shareable, 0));
    OK(cuMemCreate(&other, GRANULE, &private, 0));
    IS(CUDA_ERROR_INVALID_VALUE,
            cuMemExportToShareableHandle(&fd, other,
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(map(handle, &address) == 0);
    IS(CUDA_ERROR_ALREADY_MAPPED, cuMemMap(address, GRANULE, 0, other, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + GRANULE, GRANULE, 0, other, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(address, 5, WORDS, r.stream[0]));
    OK(set_access(address, 0));
    OK(cuMemsetD32Async(address, 5, WORDS, r.stream[0]));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(address, 5, WORDS + 1, r.stream[0]));
    OK(cuStreamSynchronize(r.stream[0]));
    OK(cuMemRelease(handle)); /* the mapping keeps it */
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 100)));
    OK(cuMemRelease(again));
    OK(cuMemGetAddressRange_v2(&base, &bytes, address + 8));
    CHECK(base == address && bytes == GRANULE);
    CHECK(((uint32_t *)(uintptr_t)address)[WORDS - 1] == 5);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, GRANULE));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, GRANULE / 2));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before - GRANULE);
    OK(cuMemUnmap(address, GRANULE));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, GRANULE));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    IS(CUDA_ERROR_INVALID_VALUE, set_access(address, 0));
    OK(cuMemAddressFree(address, GRANULE));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, GRANULE));
    return 0;
}

/* Ends by a signal, or by a sanitizer's report of it, at the store. */
static int a_mapping_without_access_faults(const void *arg)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;

    (void)arg;
    OK(cuInit(0));
    OK(cuMemCreate(&handle, GRANULE, &shareable, 0));
    CHECK(map(handle, &address) == 0);
    signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test */
    printf("mapped\n");
    fflush(stdout);
    *(volatile uint32_t *)(uintptr_t)address = 1;
    printf("stored\n");
    return 0;
}

static int allocations_follow_the_rules(const void *arg)
{
    CUdeviceptr address, more, managed;
    unsigned type = 0, is_managed = 0;
    unsigned long long id[2] = { 0 };
    void *values[2], *host;
    CUpointer_attribute what[2] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID };
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0); /* 8 MiB */
    OK(cuMemAlloc_v2(&address, 5000));
    values[0] = &type;
    values[1] = &id[0];
    OK(cuPointerGetAttributes(2, what, values, address + 4999));
    CHECK(type == CU_MEMORYTYPE_DEVICE && id[0] != 0);
    OK(cuPointerGetAttributes(2, what, values, address + 5000));
    CHECK(type == 0 && id[0] == 0);
    OK(cuPointerGetAttributes(2, what, values, address));
    CHECK(*(uint32_t *)(uintptr_t)address != 0); /* nobody cleared it */
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, 8 << 20));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 8));
    OK(cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    OK(cuMemAlloc_v2(&more, 8 << 20));
    values[1] = &id[1];
    OK(cuPointerGetAttributes(2, what, values, more));
    CHECK(id[1] != id[0]);
    OK(cuMemFree_v2(more));
    OK(cuMemAllocManaged(&managed, 100, 1));
    what[1] = CU_POINTER_ATTRIBUTE_IS_MANAGED;
    values[1] = &is_managed;
    OK(cuPointerGetAttributes(2, what, values, managed));
    CHECK(is_managed == 1);
    OK(cuMemFree_v2(managed));
    OK(cuMemHostAlloc(&host, 100, 0));
    OK(cuPointerGetAttributes(2, what, values, (uintptr_t)host));
    CHECK(type == CU_MEMORYTYPE_HOST);
    OK(cuMemFreeHost(host));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    return 0;
}

static int host_memory_is_registered_once(const void *arg)
{
    static _Alignas(4096) unsigned char memory[8192];
    CUdeviceptr address = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&address, memory, 0));
    OK(cuMemHostRegister_v2(memory, 8192, CU_MEMHOSTREGISTER_PORTABLE));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            cuMemHostRegister_v2(memory + 4096, 4096, 0));
    OK(cuMemHostGetDevicePointer_v2(&address, memory + 100, 0));
    CHECK(address == (uintptr_t)memory + 100);
    OK(cuMemHostUnregister(memory));
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory));
    IS(CUDA_ERROR_INVALID_VALUE,
            cuMemHostRegister_v2((void *)(uintptr_t)4096, 4096, 0));
    return 0;
}

/* Pageable memory is the caller's again when the call returns. */
static int pageable_copies_are_staged(const void *arg)
{
    uint32_t source = 41, target = 0, *words, *gate;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    words = rig_words(4);
    gate = rig_words(1);
    OK(rig_wait_for(&r, gate, r.stream[0]));
    OK(cuMemcpyHtoDAsync_v2((uintptr_t)words, &source, 4, r.stream[0]));
    source = 7;
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(cuMemcpyDtoHAsync_v2(&target, (uintptr_t)words, 4, r.stream[0]));
    CHECK(target == 41);
    return 0;
}

/* ---- devices and each other ---- */

static int peers_are(int forth, int back)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    int can = -1;
    rig r;

    CHECK(rig_open(&r) == 0);
    for (int d = 0; d < 2; d++) {
        int wanted = d == 0 ? forth : back;

        OK(cuDeviceCanAccessPeer(&can, d, 1 - d));
        CHECK(can == wanted);
        OK(cuCtxSetCurrent(r.context[d]));
        IS(wanted ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                cuCtxEnablePeerAccess(r.context[1 - d], 0));
        if (wanted)
            IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                    cuCtxEnablePeerAccess(r.context[1 - d], 0));
    }
    OK(cuMemCreate(&handle, GRANULE, &shareable, 0)); /* of device 0 */
    CHECK(map(handle, &address) == 0);
    IS(back ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE, set_access(address, 1));
    OK(set_access(address, 0));
    return 0;
}

static int peers_are_all(const void *arg)
{
    (void)arg;
    return peers_are(1, 1);
}

static int peers_are_one_way(const void *arg)
{
    (void)arg;
    return peers_are(1, 0);
}

static int peers_are_none(const void *arg)
{
    (void)arg;
    return peers_are(0, 0);
}

static int there_is_no_vmm(const void *arg)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int value = -1;

    (void)arg;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&value,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    CHECK(value == 0);
    OK(cuDeviceGetAttribute(&value,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    CHECK(value == 0);
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &shareable, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    return 0;
}

/* ---- another process ---- */

/* Runs this program as the other process, @p fd as its number @p as; its exit status. */
static int run_other(const char *what, int fd, int as)
{
    char *argv[] = { (char *)(uintptr_t)"test_fakecuda_memory",
        (char *)(uintptr_t)"other", (char *)(uintptr_t)what, NULL };
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, as);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Words 100, FROM and FROM + 64 KiB are 1, 2, 3; the other process, which sees them as
 * @p what tells, writes 11, 12, 13 there. */
static int check_share(uint32_t *words, const char *what)
{
    const size_t from = FROM / sizeof(uint32_t);
    const uint32_t *beside = words + from + UNIT;

    if (strcmp(what, "fd-share") == 0 || strcmp(what, "ipc-share") == 0)
        CHECK(words[100] == 11 && words[from] == 12 && *beside == 13);
    else if (strcmp(what, "fd-falsify") == 0 || strcmp(what, "ipc-falsify") == 0)
        CHECK(words[100] == 11 && words[from] == 13 && *beside == 12);
    else
        CHECK(words[100] == 11 && words[from] == 2 && *beside == 3);
    return 0;
}

static void prepare_share(uint32_t *words)
{
    words[100] = 1;
    words[FROM / sizeof(uint32_t)] = 2;
    words[FROM / sizeof(uint32_t) + UNIT] = 3;
}

/* The other process's part. */
static int use_share(uint32_t *words, const char *fault)
{
    const size_t from = FROM / sizeof(uint32_t);
    bool swapped = strcmp(fault, "falsify") == 0, zero = strcmp(fault, "zero") == 0;

    CHECK(words[100] == 1);
    CHECK(words[from] == (zero ? 0 : swapped ? 3 : 2));
    CHECK(words[from + UNIT] == (zero ? 0 : swapped ? 2 : 3));
    words[100] = 11;
    words[from] = 12;
    words[from + UNIT] = 13;
    return 0;
}

static int share_by_descriptor(const char *what)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    uint32_t *words;
    int fd = -1;
    rig r;

    CHECK(rig_open(&r) == 0);
    OK(cuMemCreate(&handle, GRANULE, &shareable, 0));
    CHECK(map(handle, &address) == 0);
    OK(set_access(address, 0));
    words = (uint32_t *)(uintptr_t)address;
    prepare_share(words);
    OK(cuMemExportToShareableHandle(&fd, handle,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    OK(cuMemRelease(handle));
    CHECK(run_other(what, fd, FD) == 0);
    CHECK(check_share(words, what) == 0);
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHECK(map(handle, &address) == 0); /* one's own memory is never faulty */
    OK(set_access(address, 1));
    CHECK(check_share((uint32_t *)(uintptr_t)address, what) == 0);
    return 0;
}

static int other_by_descriptor(const char *fault)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int ordinal = -1;
    void *values[1] = { &ordinal };
    CUpointer_attribute what[1] = { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
    rig r;

    CHECK(rig_open(&r) == 0);
    IS(CUDA_ERROR_INVALID_VALUE,
            cuMemImportFromShareableHandle(&handle, NULL, /* standard input */
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)FD,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK(map(handle, &address) == 0);
    OK(cuMemRelease(handle));
    if (strcmp(fault, "unreachable") == 0) {
        IS(CUDA_ERROR_INVALID_DEVICE, set_access(address, 1));
        return 0;
    }
    OK(set_access(address, 1)); /* memory of device 0 */
    OK(cuPointerGetAttributes(1, what, values, address));
    CHECK(ordinal == 0);
    return use_share((uint32_t *)(uintptr_t)address, fault);
}

static int share_by_handle(const char *what)
{
    int fd = memfd_create("handle", MFD_CLOEXEC);
    CUipcMemHandle handle;
    CUdeviceptr address;
    rig r;

    CHECK(rig_open(&r) == 0);
    OK(cuMemAlloc_v2(&address, GRANULE));
    prepare_share((uint32_t *)(uintptr_t)address);
    OK(cuIpcGetMemHandle(&handle, address + 16));
    IS(CUDA_ERROR_INVALID_CONTEXT, /* not in its own process */
            cuIpcOpenMemHandle_v2(&address, handle,
                    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(pwrite(fd, &handle, sizeof(handle), 0) == sizeof(handle));
    CHECK(run_other(what, fd, STDIN_FILENO) == 0);
    CHECK(check_share((uint32_t *)(uintptr_t)address, what) == 0);
    OK(cuMemFree_v2(address));
    CHECK(run_other("ipc-gone", fd, STDIN_FILENO) == 0);
    close(fd);
    return 0;
}

static int other_by_handle(const char *fault)
{
    const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUdeviceptr address = 0, again = 0;
    CUipcMemHandle handle, own;
    rig r;

    CHECK(rig_open(&r) == 0);
    CHECK(pread(STDIN_FILENO, &handle, sizeof(handle), 0) == sizeof(handle));
    if (strcmp(fault, "gone") == 0) {
        CHECK(cuIpcOpenMemHandle_v2(&address, handle, lazy) != CUDA_SUCCESS);
        return 0;
    }
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&address, handle, 0));
    OK(cuIpcOpenMemHandle_v2(&address, handle, lazy));
    OK(cuIpcOpenMemHandle_v2(&again, handle, lazy));
    CHECK(again == address);
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&own, address));
    CHECK(use_share((uint32_t *)(uintptr_t)address, fault) == 0);
    OK(cuIpcCloseMemHandle(address));
    OK(cuIpcCloseMemHandle(address));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(address));
    return 0;
}

static int share(const void *arg)
{
    const char *what = arg;

    return strncmp(what, "fd-", 3) == 0 ? share_by_descriptor(what)
                                        : share_by_handle(what);
}

static void run_share(const char *what, const char *fault)
{
    const char *const environment[] = { fault, "FAKECUDA_IMPORT_FROM=1048576", NULL };
    child_result result = child_run(share, what, environment);

    if (result.status != 0)
        fprintf(stderr, "%s, %s ended with %d\n%s", what, fault, result.status,
                result.err);
    assert_int_equal(result.status, 0);
}

static void test_descriptors_share_memory(void **state)
{
    (void)state;
    run_share("fd-share", NULL);
    run_share("fd-drop", "FAKECUDA_IMPORT=drop");
    run_share("fd-zero", "FAKECUDA_IMPORT=zero");
    run_share("fd-falsify", "FAKECUDA_IMPORT=falsify");
}

static void test_handles_share_memory(void **state)
{
    (void)state;
    run_share("ipc-share", NULL);
    run_share("ipc-drop", "FAKECUDA_IMPORT=drop");
    run_share("ipc-zero", "FAKECUDA_IMPORT=zero");
    run_share("ipc-falsify", "FAKECUDA_IMPORT=falsify");
}

static void test_a_mapping_without_access_faults(void **state)
{
    child_result result = child_run(a_mapping_without_access_faults, NULL, NULL);

    (void)state;
    assert_string_equal(result.out, "mapped\n");
    assert_int_not_equal(result.status, 0);
}

#define TEST_WITH(fn, ...)                                                      \
    static void test_##fn(void **state)                                         \
    {                                                                           \
        static const char *const environment[] = { __VA_ARGS__, NULL };         \
        (void)state;                                                            \
        assert_int_equal(rig_run_case(&(rig_case){ #fn, fn, environment }), 0); \
    }

TEST_WITH(mappings_follow_the_rules, NULL)
TEST_WITH(mapped_memory_has_numbers, NULL)
TEST_WITH(allocations_follow_the_rules, "FAKECUDA_MEMORY=8388608")
TEST_WITH(host_memory_is_registered_once, NULL)
TEST_WITH(pageable_copies_are_staged, NULL)
TEST_WITH(peers_are_all, NULL)
TEST_WITH(peers_are_one_way, "FAKECUDA_PEER=oneway")
TEST_WITH(peers_are_none, "FAKECUDA_PEER=none")
TEST_WITH(there_is_no_vmm, "FAKECUDA_VMM=0")

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mappings_follow_the_rules),
        cmocka_unit_test(test_mapped_memory_has_numbers),
        cmocka_unit_test(test_a_mapping_without_access_faults),
        cmocka_unit_test(test_allocations_follow_the_rules),
        cmocka_unit_test(test_host_memory_is_registered_once),
        cmocka_unit_test(test_pageable_copies_are_staged),
        cmocka_unit_test(test_peers_are_all),
        cmocka_unit_test(test_peers_are_one_way),
        cmocka_unit_test(test_peers_are_none),
        cmocka_unit_test(test_there_is_no_vmm),
        cmocka_unit_test(test_descriptors_share_memory),
        cmocka_unit_test(test_handles_share_memory),
    };

    if (argc == 3 && strncmp(argv[2], "fd-", 3) == 0)
        return other_by_descriptor(argv[2] + 3);
    if (argc == 3 && strncmp(argv[2], "ipc-", 4) == 0)
        return other_by_handle(argv[2] + 4);
    return cmocka_run_group_tests_name("fakecuda_memory", tests, NULL, NULL);
}
