/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, memory, pointers and work of any kind of GPU; a rig is included before. */
#ifndef MOTET_TEST_CONTRACT_DEVICE_H
#define MOTET_TEST_CONTRACT_DEVICE_H

#include "contract_rig.h"

#include <pthread.h>

static inline int a_forked_child_is_told(void)
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

static inline void test_a_forked_child_is_told(void **state)
{
    (void)state;
    rig_run(a_forked_child_is_told, false, 1, NULL);
}

/* All kinds of calls, some of which fail. */
static inline int call_everything(motet_gpu *gpu, void *kernel)
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
    CHECK(rig_store(gpu, kernel, memory.address + 16, 11, RIG_LEGACY) == MOTET_OK);
    CHECK(rig_store(gpu, kernel, memory.address + 24, 13, RIG_PER_THREAD) == MOTET_OK);
    CHECK(ops->event_record(gpu, event, stream, false) == MOTET_OK);
    CHECK(ops->event_wait(gpu, event, NULL, false) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, NULL) == MOTET_OK);
    CHECK(ops->stream_sync(gpu, RIG_PER_THREAD) == MOTET_OK);
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

static inline int the_current_device_is_the_callers(void)
{
    const motet_device_ops *device = rig_device;
    motet_pointer pointer;
    int ordinal = -1;
    void *ptr;

    CHECK(rig_use(1));
    CHECK(ops->current(&ordinal) == MOTET_OK && ordinal == 1);
    CHECK(device->alloc(100, &ptr) == MOTET_OK);
    CHECK(ops->pointer((uint64_t)(uintptr_t)ptr, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE && pointer.ordinal == 1);
    CHECK(device->free(ptr) == MOTET_OK);
    CHECK(device->free(ptr) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("not allocated here, or was freed already");
    CHECK(device->free(NULL) == MOTET_OK);
    return 0;
}

static inline void test_the_current_device_is_the_callers(void **state)
{
    (void)state;
    rig_run(the_current_device_is_the_callers, false, 2, NULL);
}

static inline int memory_is_zeroed_and_aligned(void)
{
    static const size_t sizes[] = { 1, 4, 4095, (size_t)3 << 20 };
    motet_gpu_memory memory;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            const uint64_t unit = rig_alignment(gpu);

            CHECK(ops->alloc(gpu, sizes[i], &memory) == MOTET_OK);
            CHECK(memory.address % unit == 0 && memory.bytes >= sizes[i]);
            CHECK(rig_word(gpu, memory.address) == 0);
            CHECK(rig_word(gpu, memory.address + memory.bytes - 4) == 0);
            CHECK(ops->fill(gpu, memory.address, 0xfedcba98, memory.bytes / 4,
                          RIG_PER_THREAD) == MOTET_OK);
            CHECK(ops->stream_sync(gpu, RIG_PER_THREAD) == MOTET_OK);
            CHECK(rig_word(gpu, memory.address + memory.bytes - 4) == 0xfedcba98);
            ops->free(gpu, &memory);
        }
    }
    CHECK(ops->alloc(gpu, 0, &memory) == MOTET_ERR_ARGUMENT);
    CHECK(ops->alloc(gpu, SIZE_MAX, &memory) == MOTET_ERR_ARGUMENT);
    CHECK(ops->alloc(gpu, (size_t)1 << 46, &memory) == MOTET_ERR_DEVICE);
    CHECK_SAID("allocate 70368744177664 bytes on device 0");
    CHECK_SAID(rig_no_memory);
    CHECK_SAID("no memory left");
    return 0;
}

static inline int host_memory_is_shown_to_devices(void)
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

static inline void test_host_memory_is_shown_to_devices(void **state)
{
    (void)state;
    rig_run(host_memory_is_shown_to_devices, false, 1, NULL);
}

static inline void *register_often(void *page)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    motet_pointer pointer;
    motet_gpu *gpu;
    uint64_t at;

    if (ops->open(0, &gpu) != MOTET_OK)
        return page;
    for (int i = 0; i < 2000; i++) {
        if (ops->register_host(gpu, page, bytes, &at) != MOTET_OK ||
                ops->pointer((uint64_t)(uintptr_t)page, &pointer) != MOTET_OK ||
                pointer.kind != MOTET_POINTER_HOST)
            return page;
        ops->unregister_host(gpu, page);
    }
    return NULL;
}

static inline int threads_register_the_same(void)
{
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    motet_pointer pointer;
    pthread_t thread[4];
    void *failed;

    CHECK(page != MAP_FAILED);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, register_often, page) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], &failed) == 0 && failed == NULL);
    CHECK(ops->pointer((uint64_t)(uintptr_t)page, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_UNKNOWN);
    return 0;
}

static inline void test_threads_register_the_same(void **state)
{
    (void)state;
    rig_run(threads_register_the_same, false, 1, NULL);
}

static inline int registrations_of_the_application_stay(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
            -1, 0);
    motet_pointer pointer;
    motet_gpu *gpu;
    uint64_t at;

    CHECK(page != MAP_FAILED);
    CHECK(rig_use(0) && rig_app_register(page, bytes));
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->register_host(gpu, page, bytes, &at) == MOTET_OK);
    ops->unregister_host(gpu, page);
    CHECK(ops->pointer((uint64_t)(uintptr_t)page, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_HOST);
    CHECK(rig_app_unregister(page));
    return 0;
}

static inline void test_registrations_of_the_application_stay(void **state)
{
    (void)state;
    rig_run(registrations_of_the_application_stay, false, 1, NULL);
}

static inline int pointers_are_told_apart(void)
{
    motet_gpu_memory memory;
    motet_pointer pointer;
    motet_gpu *gpu;
    uint64_t id, at, plain, managed;
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

    CHECK(rig_use(0));
    plain = rig_app_alloc(1000);
    managed = rig_app_managed(4096);
    CHECK(plain != 0 && managed != 0);
    CHECK(ops->pointer(plain + 999, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE && pointer.ordinal == 0);
    CHECK(pointer.base == plain && pointer.bytes >= 1000 && pointer.buffer_id != 0);
    id = pointer.buffer_id;
    CHECK(ops->pointer(managed, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_MANAGED && pointer.buffer_id != id);
    return 0;
}

static inline void test_pointers_are_told_apart(void **state)
{
    (void)state;
    rig_run(pointers_are_told_apart, false, 1, NULL);
}

static inline void count_up(void *arg)
{
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static inline int work_runs_in_order(void)
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

static inline void test_work_runs_in_order(void **state)
{
    (void)state;
    rig_run(work_runs_in_order, false, 1, NULL);
}

static inline void *open_all(void *arg)
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

static inline int threads_open_at_once(void)
{
    pthread_t threads[4];
    void *bad;

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, open_all, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], &bad) == 0 && bad == NULL);
    return 0;
}

static inline void test_threads_open_at_once(void **state)
{
    (void)state;
    rig_run(threads_open_at_once, false, 2, NULL);
}

/* ---- errors ---- */

/* The second launch of a kernel ends the device. @p name: the runtime's for that error */
static inline int a_broken_device_is_a_sentence(const char *name)
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
    CHECK_SAID(name);
    CHECK_SAID("the process must end");
    CHECK_SAID(ops->facts(gpu)->bus_id);
    ops->free(gpu, &memory); /* does not hang or fall over */
    return 0;
}

#endif
