/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver: the machine, contexts, modules, kernels, streams and events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakecuda_rig.h"
#include "kernels/gpu/gpu.h"

#include <dlfcn.h>
#include <pthread.h>

/* ---- the machine ---- */

static int every_function_is_there(const void *arg)
{
#define NAME(need, symbol, parameters, since, feature) #symbol,
    static const char *const names[] = { MOTET_CUDA_FUNCTIONS(NAME)
                MOTET_CUDA_APPLICATION(NAME) };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    (void)arg;
    CHECK(library != NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        fprintf(stderr, "%s\n", names[i]);
        CHECK(dlsym(library, names[i]) != NULL);
    }
    dlclose(library);
    return 0;
}

static int two_devices_are_described(const void *arg)
{
    int count = 0, version = 0, major = 0, processors = 0, vmm = 0, can = 0;
    char bus[2][16], name[32];
    const char *text;
    CUuuid uuid[2];
    size_t bytes;

    (void)arg;
    IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    OK(cuDriverGetVersion(&version));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(version == 13000 && count == 2);
    OK(cuDeviceGetName(name, sizeof(name), 0));
    for (int d = 0; d < 2; d++) {
        OK(cuDeviceGetUuid(&uuid[d], d));
        OK(cuDeviceGetPCIBusId(bus[d], sizeof(bus[d]), d));
    }
    CHECK(memcmp(&uuid[0], &uuid[1], sizeof(uuid[0])) != 0);
    CHECK(strcmp(bus[0], "0000:10:00.0") == 0 && strcmp(bus[1], "0000:11:00.0") == 0);
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
    OK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
    OK(cuDeviceGetAttribute(&vmm,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
    CHECK(major == 7 && processors == 8 && vmm == 1);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK(bytes == (size_t)16 << 30);
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetPCIBusId(bus[0], 16, 2));
    OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    CHECK(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
    OK(cuGetErrorString(CUDA_ERROR_STREAM_CAPTURE_MERGE, &text));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    return 0;
}

static int one_device_is_visible(const void *arg)
{
    CUuuid uuid;
    int count = 0;

    (void)arg;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    OK(cuDeviceGetUuid(&uuid, 0));
    CHECK(count == 1 && uuid.bytes[15] == 3);
    return 0;
}

static int init_says_no_device(const void *arg)
{
    (void)arg;
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    return 0;
}

static int init_says_mismatch(const void *arg)
{
    int version = 0;

    (void)arg;
    IS(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, cuInit(0));
    OK(cuDriverGetVersion(&version));
    CHECK(version == 11040);
    return 0;
}

static int init_refuses_the_environment(const void *arg)
{
    (void)arg;
    IS(CUDA_ERROR_INVALID_VALUE, cuInit(0));
    return 0;
}

static int a_forked_child_has_no_driver(const void *arg)
{
    int status = 0;
    pid_t pid;

    (void)arg;
    OK(cuDriverGetVersion(&status));
    pid = fork(); /* too early to do harm */
    if (pid == 0)
        _exit(cuInit(0) == CUDA_SUCCESS ? 3 : 4);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
            WEXITSTATUS(status) == 3);
    OK(cuInit(0));
    pid = fork();
    if (pid == 0)
        _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 3 : 4);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
            WEXITSTATUS(status) == 3);
    return 0;
}

/* ---- kernels and streams ---- */

static int modules_are_checked(const void *arg)
{
    static const char newer[] = ".version 8.0\n.target sm_80\n";
    static const char wrong[] =
            ".version 6.0\n.target sm_70\n"
            ".entry rig_gate(.param .align 8 .b8 rig_gate_param_0[16]) {}\n";
    static const unsigned char cubin[8] = { 0x7f, 'E', 'L', 'F' };
    static const uint32_t open = 1;
    const uint32_t *word = &open;
    void *parameters[] = { &word };
    CUfunction function;
    CUmodule module;
    int value = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, cubin));
    IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, newer));
    IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, wrong));
    IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "something else"));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, r.module[0], "rig_me"));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, r.module[0], "nowhere"));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, r.meet[0]));
    CHECK(value == 512);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, r.meet[0], 512, 0));
    CHECK(value == 4);
    IS(CUDA_ERROR_INVALID_VALUE, rig_launch(r.gate, 1, r.stream[0], &word, 4));
    IS(CUDA_ERROR_INVALID_VALUE, rig_launch(r.gate, 0, r.stream[0], &word, 8));
    IS(CUDA_ERROR_INVALID_HANDLE,
            rig_launch(r.meet[1], 1, r.stream[0], &(meet_args){ 0 },
                    sizeof(meet_args)));
    OK(cuLaunchKernel(r.gate, 2, 1, 1, 1024, 1, 1, 0, r.stream[0], parameters, NULL));
    OK(cuModuleUnload(r.module[0])); /* waits for it */
    IS(CUDA_ERROR_INVALID_HANDLE, rig_launch(r.gate, 1, r.stream[0], &word, 8));
    return 0;
}

/* motet's own are there, and take what the table says. */
static int kernels_of_motet_are_found(const void *arg)
{
    char text[4096] = ".version 6.0\n.target sm_70\n";
    size_t used = strlen(text);
    CUfunction function;
    CUmodule module;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
#define KERNEL_ROW(name, args_type)                                             \
    used += (size_t)snprintf(text + used, sizeof(text) - used,                  \
            ".visible .entry " #name "(.param .align 8 .b8 p[%zu]) { ret; }\n", \
            sizeof(args_type));
#include "kernels/gpu/kernels.def"
#undef KERNEL_ROW
    CHECK(used < sizeof(text));
    OK(cuModuleLoadData(&module, text));
#define KERNEL_ROW(name, args_type) OK(cuModuleGetFunction(&function, module, #name));
#include "kernels/gpu/kernels.def"
#undef KERNEL_ROW
    return 0;
}

static int kernels_of_two_streams_meet(const void *arg)
{
    CUstream stream[2];
    uint32_t *words;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    words = rig_words(64);
    for (int d = 0; d < 2; d++) {
        const meet_args args = { words + 32 * d, words + 32 * (1 - d), 1000 };

        OK(cuCtxPushCurrent_v2(r.context[d]));
        OK(cuStreamCreate(&stream[d], CU_STREAM_NON_BLOCKING));
        OK(rig_launch(r.meet[d], 4, stream[d], &args, sizeof(args)));
        OK(cuCtxPopCurrent_v2(NULL));
    }
    for (int d = 0; d < 2; d++)
        OK(cuStreamSynchronize(stream[d]));
    CHECK(words[0] == 1000 && words[32] == 1000);
    return 0;
}

static int as_many_blocks_meet_as_fit(const void *arg)
{
    crowd_args args;
    uint32_t *words, *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0); /* 3 processors of 4 blocks */
    words = rig_words(2 * RIG_BLOCKS);
    list = rig_words(64);
    args = (crowd_args){ words, words + RIG_BLOCKS };
    OK(rig_launch(r.crowd, 12, r.stream[0], &args, sizeof(args)));
    OK(cuStreamSynchronize(r.stream[0]));
    for (int b = 0; b < 12; b++)
        CHECK(args.met[b] == 12);
    for (int i = 0; i < 3; i++) /* more than fit, of several streams: they take turns */
        OK(rig_launch(r.append, 40, r.stream[i], &(append_args){ list + 16 * i, 5 },
                sizeof(append_args)));
    OK(cuCtxSynchronize());
    for (int i = 0; i < 3; i++)
        CHECK(list[16 * i] == 1 && list[16 * i + 1] == 5);
    return 0;
}

static int default_streams_order_what_they_should(const void *arg)
{
    uint32_t *list, *gate;
    CUstream blocking;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(16);
    gate = rig_words(2);
    OK(cuStreamCreate(&blocking, 0));
    OK(rig_wait_for(&r, gate, blocking));
    OK(rig_note(&r, list, 1, blocking));
    OK(rig_note(&r, list, 2, NULL)); /* after every blocking stream's work so far */
    OK(rig_note(&r, list, 3, CU_STREAM_PER_THREAD)); /* after the legacy stream's */
    OK(cuMemsetD32Async((uintptr_t)(gate + 1), 1, 1, r.stream[0]));
    OK(cuStreamSynchronize(r.stream[0])); /* non-blocking: does not care */
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    CHECK(gate[1] == 1);
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(
            CU_STREAM_LEGACY)); /* the per-thread stream is one of them */
    CHECK(list[0] == 3 && list[1] == 1 && list[2] == 2 && list[3] == 3);
    OK(cuStreamQuery(blocking));
    OK(cuStreamDestroy_v2(blocking));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(blocking));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(blocking));
    return 0;
}

static int events_order_streams(const void *arg)
{
    uint32_t *list, *gate;
    CUevent event;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(16);
    gate = rig_words(1);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(rig_wait_for(&r, gate, r.stream[0]));
    OK(rig_note(&r, list, 1, r.stream[0]));
    OK(cuEventRecord(event, r.stream[0]));
    OK(cuStreamWaitEvent(r.stream[1], event, 0));
    OK(rig_note(&r, list, 2, r.stream[1]));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream[1]));
    OK(cuStreamDestroy_v2(r.stream[0])); /* its work goes on */
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(event));
    CHECK(list[1] == 1);
    OK(cuStreamSynchronize(r.stream[1]));
    CHECK(list[0] == 2 && list[2] == 2);
    OK(cuCtxSetCurrent(r.context[1]));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL)); /* another context */
    OK(cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    return 0;
}

static int contexts_are_told_apart(const void *arg)
{
    CUcontext own, green, found = NULL;
    CUgreenCtx is_green = NULL;
    CUstream stream;
    CUdevice device = 7;
    unsigned flags;
    int active = 0;
    rig r;

    (void)arg;
    OK(cuInit(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 0);
    CHECK(rig_open(&r) == 0);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1);
    OK(cuCtxCreate_v2(&own, 0, 1));
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamGetCtx(stream, &found));
    CHECK(found == own && own != r.context[1]);
    OK(cuStreamGetGreenCtx(stream, &is_green));
    CHECK(is_green == NULL);
    OK(cuCtxDestroy_v2(own));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxPushCurrent_v2(own));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    OK(cuCtxGetCurrent(&found));
    CHECK(found == r.context[0]);
    OK(fakecuda_green_context(&green, 0));
    OK(cuCtxPushCurrent_v2(green));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxPopCurrent_v2(&found));
    CHECK(found == green);
    OK(cuStreamGetGreenCtx(stream, &is_green));
    CHECK(is_green != NULL);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(1));
    return 0;
}

/* ---- many threads ---- */

#define WORKERS 4
#define ROUNDS  100

typedef struct worker {
    const rig *rig;
    uint32_t *words; /* [0]: sum of its kernels, [1]: its host functions' calls */
    CUevent *events; /* of all workers */
    int number;
} worker;

static void add_one(void *arg)
{
    ++*(uint32_t *)arg;
}

/* Two streams hand a word to and fro; whose turn it is, events say. */
static int work(const worker *w)
{
    CUstream stream[2];
    CUevent turn;

    OK(cuCtxSetCurrent(w->rig->context[0]));
    OK(cuEventCreate(&turn, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&stream[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream now = stream[i % 2];

        OK(cuStreamWaitEvent(now, turn, 0));
        OK(cuMemsetD32Async((uintptr_t)(w->words + 8), 0, 1, now));
        OK(rig_note(w->rig, w->words + 8, (uint32_t)i, now));
        OK(cuMemcpyAsync((uintptr_t)w->words, (uintptr_t)(w->words + 9), 4, now));
        OK(cuLaunchHostFunc(now, add_one, w->words + 1));
        OK(cuEventRecord(turn, now));
        OK(cuEventRecord(w->events[w->number], now));
        OK(cuStreamWaitEvent(now, w->events[i % WORKERS], 0));
    }
    OK(cuStreamDestroy_v2(stream[0]));
    OK(cuEventSynchronize(turn));
    CHECK(w->words[0] == ROUNDS - 1 && w->words[1] == ROUNDS);
    OK(cuStreamSynchronize(stream[1]));
    OK(cuEventDestroy_v2(turn));
    return 0;
}

static void *work_main(void *arg)
{
    return (void *)(intptr_t)work(arg);
}

static int threads_share_a_device(const void *arg)
{
    CUevent events[WORKERS];
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    uint32_t *words;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    words = rig_words(WORKERS * 32);
    for (int i = 0; i < WORKERS; i++)
        OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){ &r, words + 32 * i, events, i };
        CHECK(pthread_create(&threads[i], NULL, work_main, &workers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        void *failed;

        CHECK(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    OK(cuCtxSynchronize());
    return 0;
}

/* ---- faults that need no other process ---- */

static int a_sticky_error_stays(const void *arg)
{
    CUcontext context;
    CUevent event;
    uint32_t *list;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(8);
    OK(cuEventCreate(&event, 0));
    for (uint32_t i = 1; i <= 3; i++)
        OK(rig_note(&r, list, i, r.stream[0])); /* the third does not come back */
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 2);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, rig_note(&r, list, 4, r.stream[1]));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2((uintptr_t)list));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuCtxPopCurrent_v2(&context));
    OK(cuCtxSetCurrent(r.context[1])); /* the other device is well */
    OK(cuCtxSynchronize());
    return 0;
}

static int kernels_start_late(const void *arg)
{
    CUevent begin, end;
    uint32_t *list;
    float ms = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(4);
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, r.stream[0]));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, begin, end));
    for (uint32_t i = 0; i < 3; i++)
        OK(rig_note(&r, list, i, r.stream[0]));
    OK(cuEventRecord(end, r.stream[0]));
    IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, begin, end));
    OK(cuStreamSynchronize(r.stream[0]));
    OK(cuEventElapsedTime(&ms, begin, end));
    CHECK(ms > 149);
    return 0;
}

#define TEST_WITH(fn, name, ...)                                                  \
    static void test_##name(void **state)                                         \
    {                                                                             \
        static const char *const environment[] = { __VA_ARGS__ };                 \
        (void)state;                                                              \
        assert_int_equal(rig_run_case(&(rig_case){ #name, fn, environment }), 0); \
    }
#define TEST(fn) TEST_WITH(fn, fn, NULL)

TEST(every_function_is_there)
TEST(two_devices_are_described)
TEST_WITH(one_device_is_visible, one_device_is_visible, "FAKECUDA_DEVICES=4",
        "CUDA_VISIBLE_DEVICES=3,-1,0", NULL)
TEST_WITH(one_device_is_visible, a_uuid_makes_visible, "FAKECUDA_DEVICES=4",
        "CUDA_VISIBLE_DEVICES=GPU-66616b65-6375-6461-2d64-657669636503", NULL)
TEST_WITH(init_says_no_device, no_device_there, "FAKECUDA_DEVICES=0", NULL)
TEST_WITH(init_says_no_device, no_device_visible, "CUDA_VISIBLE_DEVICES=", NULL)
TEST_WITH(init_says_mismatch, init_says_mismatch, "FAKECUDA_INIT=803",
        "FAKECUDA_DRIVER_VERSION=11040", NULL)
TEST_WITH(init_refuses_the_environment, a_bad_number_is_refused, "FAKECUDA_DEVICES=17",
        NULL)
TEST_WITH(init_refuses_the_environment, a_bad_word_is_refused, "FAKECUDA_PEER=some",
        NULL)
TEST(a_forked_child_has_no_driver)
TEST(modules_are_checked)
TEST(kernels_of_motet_are_found)
TEST(kernels_of_two_streams_meet)
TEST_WITH(as_many_blocks_meet_as_fit, as_many_blocks_meet_as_fit,
        "FAKECUDA_PROCESSORS=3", NULL)
TEST(default_streams_order_what_they_should)
TEST(events_order_streams)
TEST(contexts_are_told_apart)
TEST(threads_share_a_device)
TEST_WITH(a_sticky_error_stays, a_sticky_error_stays, "FAKECUDA_STICKY=2", NULL)
TEST_WITH(kernels_start_late, kernels_start_late, "FAKECUDA_SLOW_US=50000", NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function_is_there),
        cmocka_unit_test(test_two_devices_are_described),
        cmocka_unit_test(test_one_device_is_visible),
        cmocka_unit_test(test_a_uuid_makes_visible),
        cmocka_unit_test(test_no_device_there),
        cmocka_unit_test(test_no_device_visible),
        cmocka_unit_test(test_init_says_mismatch),
        cmocka_unit_test(test_a_bad_number_is_refused),
        cmocka_unit_test(test_a_bad_word_is_refused),
        cmocka_unit_test(test_a_forked_child_has_no_driver),
        cmocka_unit_test(test_modules_are_checked),
        cmocka_unit_test(test_kernels_of_motet_are_found),
        cmocka_unit_test(test_kernels_of_two_streams_meet),
        cmocka_unit_test(test_as_many_blocks_meet_as_fit),
        cmocka_unit_test(test_default_streams_order_what_they_should),
        cmocka_unit_test(test_events_order_streams),
        cmocka_unit_test(test_contexts_are_told_apart),
        cmocka_unit_test(test_threads_share_a_device),
        cmocka_unit_test(test_a_sticky_error_stays),
        cmocka_unit_test(test_kernels_start_late),
    };

    return cmocka_run_group_tests_name("fakecuda", tests, NULL, NULL);
}
