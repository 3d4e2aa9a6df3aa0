/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, memory, pointers, kernels and errors of the CUDA device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_rig.h"

#include <ctype.h>
#include <pthread.h>

/* ---- devices ---- */

static int devices_are_described(void)
{
    const motet_gpu_facts *facts;
    motet_gpu *gpu, *again;
    motet_device_info info;
    int count = 0;

    CHECK(motet_device_cuda.count(&count) == MOTET_OK && count > 0);
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->open(0, &again) == MOTET_OK && again == gpu);
    facts = ops->facts(gpu);
    CHECK(facts->name[0] != '\0');
    CHECK(strncmp(facts->identity, "GPU-", 4) == 0 ||
            strncmp(facts->identity, "MIG-", 4) == 0);
    CHECK(strlen(facts->identity) == 40 + 1 + strlen(facts->bus_id));
    CHECK(strstr(facts->identity, facts->bus_id) != NULL && facts->bus_id[4] == ':');
    CHECK(strncmp(facts->target, "sm_", 3) == 0 && isdigit(facts->target[3]));
    CHECK(facts->major >= 1 && facts->processors > 0);
    CHECK(facts->memory_bytes > 1 << 20 && facts->driver_version >= 11000);
    CHECK(!facts->launch_blocks && facts->no_capture[0] == '\0');
    CHECK(motet_device_cuda.describe(0, &info) == MOTET_OK);
    CHECK(strcmp(info.identity, facts->identity) == 0);
    CHECK(info.memory_bytes == facts->memory_bytes);

    CHECK(ops->open(-1, &again) == MOTET_ERR_ARGUMENT && again == gpu);
    CHECK(ops->open(count, &again) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("need 0..");
    CHECK(ops->open(1 << 20, &again) == MOTET_ERR_ARGUMENT);
    return 0;
}

static void test_devices_are_described(void **state)
{
    (void)state;
    rig_run(devices_are_described, false, 1, NULL);
}

static int launches_are_said_to_block(void)
{
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->facts(gpu)->launch_blocks);
    return 0;
}

static void test_launches_are_said_to_block(void **state)
{
    (void)state;
    rig_run(launches_are_said_to_block, false, 1, "CUDA_LAUNCH_BLOCKING=1");
}

static int a_gpu_is_chosen(void)
{
    const motet_device_ops *chosen = NULL;

    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_cuda);
    CHECK(motet_device_choose_now(MOTET_CHOOSE_GPU, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_cuda);
    CHECK(motet_device_choose_now(MOTET_CHOOSE_CPU, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_cpu);
    return 0;
}

static int a_cpu_is_chosen(void)
{
    const motet_device_ops *chosen = NULL;

    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_cpu);
    return 0;
}

static void test_the_choice_falls_on_a_gpu_that_is_there(void **state)
{
    (void)state;
    rig_run(a_gpu_is_chosen, false, 1, NULL);
    rig_run(a_gpu_is_chosen, false, 1, "MOTET_DEVICE=gpu");
    rig_run(a_gpu_is_chosen, false, 1, "MOTET_DEVICE=cuda");
    rig_run(a_gpu_is_chosen, false, 1, "CUDA_VISIBLE_DEVICES=0");
    rig_run(a_cpu_is_chosen, false, 1, "MOTET_DEVICE=cpu");
}

static int a_forked_child_is_told(void)
{
    const motet_device_ops *chosen;
    motet_gpu *gpu;
    int status;
    pid_t pid;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_ERR_DEVICE &&
                                ops->open(0, &gpu) == MOTET_ERR_DEVICE &&
                                strstr(motet_error_trail(),
                                        "before this process was forked")
                        ? 0
                        : 1);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    return 0;
}

static void test_a_forked_child_is_told(void **state)
{
    (void)state;
    rig_run(a_forked_child_is_told, false, 1, NULL);
}

/* ---- contexts ---- */

static int is_current(CUcontext context)
{
    CUcontext now = (CUcontext)(uintptr_t)1;

    return app.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context;
}

/* All kinds of calls, some of which fail. */
static int call_everything(motet_gpu *gpu, void *kernel)
{
    motet_gpu_memory memory = { .address = 0 };
    motet_stream_state doing;
    motet_gpu_export export;
    motet_pointer pointer;
    void *stream, *event;
    uint32_t blocks;
    int fd;

    CHECK(ops->alloc(gpu, (size_t)1 << 46, &memory) == MOTET_ERR_DEVICE);
    CHECK(ops->alloc(gpu, 4096, &memory) == MOTET_OK);
    CHECK(ops->export_memory(gpu, memory.address, &export, &fd) == MOTET_OK);
    if (fd >= 0)
        close(fd);
    CHECK(ops->export_memory(gpu, 4096, &export, &fd) == MOTET_ERR_ARGUMENT);
    CHECK(ops->pointer(memory.address, &pointer) == MOTET_OK);
    CHECK(ops->resident_blocks(gpu, kernel, 64, &blocks) == MOTET_OK && blocks > 0);
    CHECK(ops->stream_create(gpu, true, &stream) == MOTET_OK);
    CHECK(ops->event_create(gpu, &event) == MOTET_OK);
    CHECK(ops->stream_state(gpu, stream, &doing) == MOTET_OK && !doing.capturing);
    CHECK(rig_store(gpu, kernel, memory.address, 7, stream) == MOTET_OK);
    CHECK(rig_store(gpu, kernel, memory.address + 8, 9, NULL) == MOTET_OK);
    CHECK(rig_store(gpu, kernel, memory.address + 16, 11, CU_STREAM_LEGACY) ==
            MOTET_OK);
    CHECK(rig_store(gpu, kernel, memory.address + 24, 13, CU_STREAM_PER_THREAD) ==
            MOTET_OK);
    CHECK(ops->event_record(gpu, event, stream, false) == MOTET_OK);
    CHECK(ops->event_wait(gpu, event, NULL, false) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, CU_STREAM_PER_THREAD) == MOTET_OK);
    CHECK(ops->event_query(gpu, event) == MOTET_OK);
    CHECK(ops->stream_query(gpu, stream) == MOTET_OK);
    CHECK(rig_word(gpu, memory.address) == 7 && rig_word(gpu, memory.address + 4) == 8);
    CHECK(rig_word(gpu, memory.address + 8) == 9);
    CHECK(rig_word(gpu, memory.address + 16) == 11);
    CHECK(rig_word(gpu, memory.address + 28) == 14);
    CHECK(ops->health(gpu) == MOTET_OK);
    ops->event_destroy(gpu, event);
    ops->stream_destroy(gpu, stream);
    ops->free(gpu, &memory);
    CHECK(memory.address == 0);
    ops->free(gpu, &memory);
    return 0;
}

static int the_callers_context_comes_back(void)
{
    CUcontext foreign, top;
    motet_gpu *gpu;
    void *kernel;
    int ordinal = -1;

    CHECK(is_current(NULL));
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(is_current(NULL));
    CHECK(ops->current(&ordinal) == MOTET_OK && ordinal == 0);
    kernel = rig_store_kernel(gpu);
    CHECK(kernel != NULL && is_current(NULL));
    CHECK(call_everything(gpu, kernel) == 0 && is_current(NULL));

    CHECK(app.cuCtxCreate_v2(&foreign, 0, 0) == CUDA_SUCCESS && is_current(foreign));
    CHECK(call_everything(gpu, kernel) == 0 && is_current(foreign));
    CHECK(app.cuCtxPopCurrent_v2(&top) == CUDA_SUCCESS && top == foreign);
    CHECK(is_current(NULL)); /* nothing of ours was left on the stack */
    CHECK(app.cuDevicePrimaryCtxRetain(&top, 0) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(top) == CUDA_SUCCESS);
    CHECK(call_everything(gpu, kernel) == 0 && is_current(top));
    return 0;
}

static void test_the_callers_context_comes_back(void **state)
{
    (void)state;
    rig_run(the_callers_context_comes_back, false, 1, NULL);
}

static int the_current_device_is_the_callers(void)
{
    motet_pointer pointer;
    CUcontext second;
    int ordinal = -1;
    void *ptr;

    CHECK(app.cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(second) == CUDA_SUCCESS);
    CHECK(ops->current(&ordinal) == MOTET_OK && ordinal == 1);
    CHECK(motet_device_cuda.alloc(100, &ptr) == MOTET_OK);
    CHECK(ops->pointer((uint64_t)(uintptr_t)ptr, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE && pointer.ordinal == 1);
    CHECK(motet_device_cuda.free(ptr) == MOTET_OK);
    CHECK(motet_device_cuda.free(ptr) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("not allocated here, or was freed already");
    CHECK(motet_device_cuda.free(NULL) == MOTET_OK);
    return 0;
}

static void test_the_current_device_is_the_callers(void **state)
{
    (void)state;
    rig_run(the_current_device_is_the_callers, false, 2, NULL);
}

/* ---- memory ---- */

static int memory_is_zeroed_and_aligned(void)
{
    static const size_t sizes[] = { 1, 4, 4095, (size_t)3 << 20 };
    motet_gpu_memory memory;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            const uint64_t unit = ops->facts(gpu)->share_fd ? 2 << 20 : 256;

            CHECK(ops->alloc(gpu, sizes[i], &memory) == MOTET_OK);
            CHECK(memory.address % unit == 0 && memory.bytes >= sizes[i]);
            CHECK(rig_word(gpu, memory.address) == 0);
            CHECK(rig_word(gpu, memory.address + memory.bytes - 4) == 0);
            CHECK(ops->fill(gpu, memory.address, 0xfedcba98, memory.bytes / 4,
                          CU_STREAM_PER_THREAD) == MOTET_OK);
            CHECK(ops->stream_sync(gpu, CU_STREAM_PER_THREAD) == MOTET_OK);
            CHECK(rig_word(gpu, memory.address + memory.bytes - 4) == 0xfedcba98);
            ops->free(gpu, &memory);
        }
    }
    CHECK(ops->alloc(gpu, 0, &memory) == MOTET_ERR_ARGUMENT);
    CHECK(ops->alloc(gpu, SIZE_MAX, &memory) == MOTET_ERR_ARGUMENT);
    CHECK(ops->alloc(gpu, (size_t)1 << 46, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("allocate 70368744177664 bytes on device 0");
    CHECK_SAID("CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_SAID("no memory left");
    return 0;
}

static void test_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    rig_run(memory_is_zeroed_and_aligned, false, 1, NULL);
    rig_run(memory_is_zeroed_and_aligned, true, 1, "FAKECUDA_VMM=0");
}

static int host_memory_is_shown_to_devices(void)
{
    const size_t bytes = 2 * (size_t)sysconf(_SC_PAGESIZE);
    uint32_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t at = 0, again = 0;
    motet_pointer pointer;
    motet_gpu *gpu;
    void *kernel;

    CHECK(words != MAP_FAILED);
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    kernel = rig_store_kernel(gpu);
    CHECK(kernel != NULL);
    CHECK(ops->register_host(gpu, words, bytes, &at) == MOTET_OK && at != 0);
    CHECK(rig_store(gpu, kernel, at + 4, 100, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(words[0] == 0 && words[1] == 100 && words[2] == 101 && words[3] == 0);
    CHECK(ops->pointer((uint64_t)(uintptr_t)&words[1], &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_HOST && pointer.ordinal == -1);

    /* twice, and once given back: still there */
    CHECK(ops->register_host(gpu, words, bytes, &again) == MOTET_OK && again == at);
    ops->unregister_host(gpu, words);
    CHECK(ops->pointer((uint64_t)(uintptr_t)words, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_HOST);
    ops->unregister_host(gpu, words);
    CHECK(ops->pointer((uint64_t)(uintptr_t)words, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_UNKNOWN);
    ops->unregister_host(gpu, words); /* of nothing: nothing happens */
    return 0;
}

static void test_host_memory_is_shown_to_devices(void **state)
{
    (void)state;
    rig_run(host_memory_is_shown_to_devices, false, 1, NULL);
}

static int registrations_of_the_application_stay(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
            -1, 0);
    motet_pointer pointer;
    CUcontext context;
    motet_gpu *gpu;
    uint64_t at;

    CHECK(page != MAP_FAILED);
    CHECK(app.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(app.cuMemHostRegister_v2(page, bytes,
                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS);
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->register_host(gpu, page, bytes, &at) == MOTET_OK);
    ops->unregister_host(gpu, page);
    CHECK(ops->pointer((uint64_t)(uintptr_t)page, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_HOST);
    CHECK(app.cuMemHostUnregister(page) == CUDA_SUCCESS);
    return 0;
}

static void test_registrations_of_the_application_stay(void **state)
{
    (void)state;
    rig_run(registrations_of_the_application_stay, false, 1, NULL);
}

/* ---- pointers ---- */

static int pointers_are_told_apart(void)
{
    motet_gpu_memory memory;
    motet_pointer pointer;
    CUdeviceptr plain, managed;
    CUcontext context;
    motet_gpu *gpu;
    uint64_t id, at;
    int local = 0;

    CHECK(ops->pointer((uint64_t)(uintptr_t)&local, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_UNKNOWN && pointer.ordinal == -1);
    CHECK(ops->pointer(0, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_UNKNOWN);
    CHECK(ops->open(0, &gpu) == MOTET_OK);

    CHECK(ops->alloc(gpu, 5 << 20, &memory) == MOTET_OK);
    CHECK(ops->pointer(memory.address + 12345, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE && pointer.ordinal == 0);
    CHECK(pointer.base == memory.address && pointer.bytes == memory.bytes);
    CHECK(pointer.buffer_id != 0);
    id = pointer.buffer_id;
    at = memory.address;
    ops->free(gpu, &memory);
    CHECK(ops->pointer(at, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_UNKNOWN);
    CHECK(ops->alloc(gpu, 5 << 20, &memory) == MOTET_OK);
    CHECK(ops->pointer(memory.address, &pointer) == MOTET_OK);
    CHECK(pointer.buffer_id != 0 && pointer.buffer_id != id);
    ops->free(gpu, &memory);

    CHECK(app.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(app.cuMemAlloc_v2(&plain, 1000) == CUDA_SUCCESS);
    CHECK(app.cuMemAllocManaged(&managed, 4096, 1) == CUDA_SUCCESS);
    CHECK(app.cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    CHECK(ops->pointer(plain + 999, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE && pointer.ordinal == 0);
    CHECK(pointer.base == plain && pointer.bytes >= 1000 && pointer.buffer_id != 0);
    id = pointer.buffer_id;
    CHECK(ops->pointer(managed, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_MANAGED && pointer.buffer_id != id);
    return 0;
}

static void test_pointers_are_told_apart(void **state)
{
    (void)state;
    rig_run(pointers_are_told_apart, false, 1, NULL);
}

/* ---- code ---- */

static int wrong_code_is_refused(void)
{
    static const char nonsense[] = "this is no code";
    void *module = NULL, *function = NULL;
    char *unended;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->load(gpu, nonsense, sizeof(nonsense), &module) == MOTET_ERR_DEVICE);
    CHECK_SAID("load an image of 16 bytes on device 0");
    CHECK(ops->load(gpu, nonsense, 0, &module) == MOTET_ERR_ARGUMENT && module == NULL);
    CHECK(rig_store_kernel(gpu) != NULL);
    /* the same text without its NUL, at the end of what may be read */
    unended = malloc(sizeof(store_ptx) - 1);
    CHECK(unended != NULL);
    memcpy(unended, store_ptx, sizeof(store_ptx) - 1);
    CHECK(ops->load(gpu, unended, sizeof(store_ptx) - 1, &module) == MOTET_OK);
    free(unended);
    CHECK(ops->function(gpu, module, "motet_test_other", &function) ==
            MOTET_ERR_DEVICE);
    CHECK_SAID("kernel motet_test_other");
    CHECK_SAID("CUDA_ERROR_NOT_FOUND");
    CHECK(ops->function(gpu, module, "motet_test_store", &function) == MOTET_OK);
    return 0;
}

static void test_wrong_code_is_refused(void **state)
{
    (void)state;
    rig_run(wrong_code_is_refused, false, 1, NULL);
}

/* ---- work of the host and of engines ---- */

static void count_up(void *arg)
{
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static int work_runs_in_order(void)
{
    motet_gpu_memory memory;
    uint32_t words[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
    motet_gpu *gpu;
    void *stream;
    int calls = 0;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->stream_create(gpu, true, &stream) == MOTET_OK);
    CHECK(ops->alloc(gpu, 4096, &memory) == MOTET_OK);
    CHECK(ops->copy(gpu, memory.address, (uint64_t)(uintptr_t)words, 16, stream) ==
            MOTET_OK);
    CHECK(ops->fill(gpu, memory.address + 4, 77, 2, stream) == MOTET_OK);
    CHECK(ops->copy(gpu, (uint64_t)(uintptr_t)back, memory.address, 16, stream) ==
            MOTET_OK);
    CHECK(ops->copy(gpu, memory.address, memory.address + 8, 0, stream) == MOTET_OK);
    CHECK(ops->fill(gpu, memory.address, 5, 0, stream) == MOTET_OK);
    CHECK(ops->call_host(gpu, count_up, &calls, stream) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, stream) == MOTET_OK);
    CHECK(calls == 1);
    CHECK(back[0] == 1 && back[1] == 77 && back[2] == 77 && back[3] == 4);
    ops->stream_destroy(gpu, stream);
    ops->free(gpu, &memory);
    return 0;
}

static void test_work_runs_in_order(void **state)
{
    (void)state;
    rig_run(work_runs_in_order, false, 1, NULL);
}

/* ---- errors ---- */

static int a_sticky_error_is_a_sentence(void)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;
    void *kernel;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, 4096, &memory) == MOTET_OK);
    kernel = rig_store_kernel(gpu);
    CHECK(kernel != NULL && ops->health(gpu) == MOTET_OK);
    CHECK(rig_store(gpu, kernel, memory.address, 1, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    (void)rig_store(gpu, kernel, memory.address, 2, NULL); /* the one that breaks it */
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_ERR_DEVICE);
    CHECK(ops->health(gpu) == MOTET_ERR_DEVICE);
    CHECK_SAID("CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK_SAID("the process must end");
    CHECK_SAID(ops->facts(gpu)->bus_id);
    ops->free(gpu, &memory); /* does not hang or fall over */
    return 0;
}

static void test_a_sticky_error_is_a_sentence(void **state)
{
    (void)state;
    rig_run(a_sticky_error_is_a_sentence, true, 1, "FAKECUDA_STICKY=1");
}

static void *open_all(void *arg)
{
    motet_gpu_memory memory;
    motet_gpu *gpu, *again;
    uintptr_t bad = 0;

    (void)arg;
    for (int i = 0; i < 20; i++) {
        bad += ops->open(i % 2, &gpu) != MOTET_OK;
        bad += ops->open(i % 2, &again) != MOTET_OK || again != gpu;
        bad += ops->alloc(gpu, 4096, &memory) != MOTET_OK;
        ops->free(gpu, &memory);
    }
    return (void *)bad;
}

static int threads_open_at_once(void)
{
    pthread_t threads[4];
    void *bad;

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, open_all, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], &bad) == 0 && bad == NULL);
    return 0;
}

static void test_threads_open_at_once(void **state)
{
    (void)state;
    rig_run(threads_open_at_once, false, 2, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_described),
        cmocka_unit_test(test_launches_are_said_to_block),
        cmocka_unit_test(test_the_choice_falls_on_a_gpu_that_is_there),
        cmocka_unit_test(test_a_forked_child_is_told),
        cmocka_unit_test(test_the_callers_context_comes_back),
        cmocka_unit_test(test_the_current_device_is_the_callers),
        cmocka_unit_test(test_memory_is_zeroed_and_aligned),
        cmocka_unit_test(test_host_memory_is_shown_to_devices),
        cmocka_unit_test(test_registrations_of_the_application_stay),
        cmocka_unit_test(test_pointers_are_told_apart),
        cmocka_unit_test(test_wrong_code_is_refused),
        cmocka_unit_test(test_work_runs_in_order),
        cmocka_unit_test(test_a_sticky_error_is_a_sentence),
        cmocka_unit_test(test_threads_open_at_once),
    };

    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
