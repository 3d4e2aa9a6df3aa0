/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for HIP: its libraries, the machine, code objects, launches, graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakehip_rig.h"
#include "kernels/gpu/gpu.h"

#include <dlfcn.h>

/* ---- the machine ---- */

static int every_function_is_there(const void *arg)
{
#define NAME(need, symbol, returns, parameters, since, feature) #symbol,
    static const char *const names[] = { MOTET_HIP_FUNCTIONS(NAME)
                MOTET_HIP_APPLICATION(NAME) };
    void *library = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD);

    (void)arg;
    CHECK(library != NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        fprintf(stderr, "%s\n", names[i]);
        CHECK(dlsym(library, names[i]) != NULL);
    }
    CHECK(dlsym(library, "cuInit") == NULL);
    dlclose(library);
    return 0;
}

typedef struct variant {
    const char *path; /* beside the usual library */
    const char *absent, *present;
    int major;
} variant;

/* Each library says what it is, and has what that one has. */
static int libraries_differ(const void *arg)
{
    static const variant variants[] = {
        { "plain/libamdhip64.so", "cuInit", "hipStreamGetDevice", 6 },
        { "rocm5/libamdhip64.so.5", "hipStreamGetDevice", "hipStreamGetCaptureInfo_v2",
                5 },
        { "rocm7/libamdhip64.so.7", "cuInit", "hipGetDevicePropertiesR0600", 7 },
        { "bare/libamdhip64.so.6", "hipIpcGetMemHandle", "hipModuleLaunchKernel", 6 },
        { "dtk/libgalaxyhip.so.5", "hipGetDevicePropertiesR0600", "hipLaunchHostFunc",
                5 },
    };
    char path[4096];
    Dl_info info;

    (void)arg;
    CHECK(dladdr((void *)(uintptr_t)hipInit, &info) != 0);
    for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        const variant *v = &variants[i];
        hipError_t (*runtime)(int *);
        int version = 0;
        void *library;

        snprintf(path, sizeof(path), "%.*s/%s",
                (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
                v->path);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        CHECK(dlsym(library, v->absent) == NULL && dlsym(library, v->present) != NULL);
        *(void **)&runtime = dlsym(library, "hipRuntimeGetVersion");
        OK(runtime(&version));
        CHECK(version / 10000000 == v->major);
    }
    return 0;
}

static int arch_is(int ordinal, const char *wanted)
{
    char now[HIP_PROP_R0600_BYTES], before[HIP_PROP_R0000_BYTES];

    OK(hipGetDevicePropertiesR0600(now, ordinal));
    OK(hipGetDeviceProperties(before, ordinal));
    CHECK(strcmp(now + HIP_PROP_R0600_ARCH, wanted) == 0);
    CHECK(strcmp(before + HIP_PROP_R0000_ARCH, wanted) == 0);
    return 0;
}

static int attribute(hipDeviceAttribute_t what, int ordinal)
{
    int value = -1;

    return hipDeviceGetAttribute(&value, what, ordinal) == hipSuccess ? value : -1;
}

static int two_cards_are_described(const void *arg)
{
    int count = 0, version = 0, can = 0, ordinal = -1;
    char bus_id[16], name[32];
    hipUUID uuid;
    size_t bytes = 0;

    (void)arg;
    OK(hipGetDeviceCount(&count)); /* the first call initialises */
    OK(hipRuntimeGetVersion(&version));
    CHECK(count == 2 && version == 60342134);
    OK(hipGetDevice(&ordinal));
    CHECK(ordinal == 0);
    OK(hipDeviceGetPCIBusId(bus_id, sizeof(bus_id), 1));
    CHECK(strcmp(bus_id, "0000:43:00.0") == 0);
    OK(hipDeviceGetUuid(&uuid, 1));
    CHECK(memcmp(uuid.bytes, "fa4e000000000001", 16) == 0);
    OK(hipDeviceGetName(name, sizeof(name), 0));
    OK(hipDeviceTotalMem(&bytes, 0));
    CHECK(bytes == (size_t)16 << 30);
    CHECK(arch_is(0, "gfx1100") == 0 && arch_is(1, "gfx942:sramecc+:xnack-") == 0);
    CHECK(attribute(hipDeviceAttributeComputeCapabilityMajor, 0) == 11);
    CHECK(attribute(hipDeviceAttributeComputeCapabilityMinor, 1) == 4);
    CHECK(attribute(hipDeviceAttributeWarpSize, 0) == 32);
    CHECK(attribute(hipDeviceAttributeWarpSize, 1) == 64);
    CHECK(attribute(hipDeviceAttributeHostNativeAtomicSupported, 0) == 1);
    CHECK(attribute(hipDeviceAttributeHostNativeAtomicSupported, 1) == 0);
    CHECK(attribute(hipDeviceAttributeMultiprocessorCount, 1) == 8);
    OK(hipDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    IS(hipErrorInvalidDevice, hipSetDevice(2));
    CHECK(strcmp(hipGetErrorName(hipErrorIllegalState), "hipErrorIllegalState") == 0);
    CHECK(strcmp(hipGetErrorString(hipErrorIllegalState),
                  "the operation cannot be performed in the present state") == 0);
    return 0;
}

/* Of four cards the last is visible. */
static int one_card_is_visible(const void *arg)
{
    char bus_id[16];
    int count = 0;

    (void)arg;
    OK(hipGetDeviceCount(&count));
    OK(hipDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
    CHECK(count == 1 && strcmp(bus_id, "0000:49:00.0") == 0);
    return 0;
}

static int no_card_is_visible(const void *arg)
{
    int count = -1;

    (void)arg;
    IS(hipErrorNoDevice, hipGetDeviceCount(&count));
    IS(hipErrorNoDevice, hipInit(0));
    CHECK(count == 0);
    return 0;
}

static int cards_have_no_numbers(const void *arg)
{
    hipUUID uuid;

    (void)arg;
    OK(hipDeviceGetUuid(&uuid, 1));
    CHECK(strcmp(uuid.bytes, "XX") == 0);
    return 0;
}

static int init_says_999(const void *arg)
{
    int count = 0;

    (void)arg;
    IS(hipErrorUnknown, hipInit(0));
    IS(hipErrorUnknown, hipGetDeviceCount(&count));
    return 0;
}

static int the_environment_is_refused(const void *arg)
{
    int count = 0;

    (void)arg;
    IS(hipErrorInvalidValue, hipGetDeviceCount(&count));
    return 0;
}

/* ---- code objects ---- */

static int load(int ordinal, const rig_image *image)
{
    hipModule_t module;

    if (hipSetDevice(ordinal) != hipSuccess)
        return -1;
    return (int)hipModuleLoadData(&module, image->bytes);
}

static int targets_are_checked(const void *arg)
{
    rig_image image = rig_kernels_for(RIG_GFX942);

    (void)arg;
    CHECK(rig_add_kernels() == 0);
    CHECK(load(0, &image) == hipErrorNoBinaryForGpu); /* gfx1100 */
    CHECK(load(1, &image) == hipSuccess);             /* gfx942:sramecc+:xnack- */
    image = rig_kernels_for(RIG_GFX942 | 0x200 | 0xc00);
    CHECK(load(1, &image) == hipSuccess);
    image = rig_kernels_for(RIG_GFX942 | 0x300); /* xnack+ */
    CHECK(load(1, &image) == hipErrorNoBinaryForGpu);
    image = rig_kernels_for(RIG_GFX942 | 0x800); /* sramecc- */
    CHECK(load(1, &image) == hipErrorNoBinaryForGpu);
    image.bytes[EI_CLASS] = ELFCLASS32;
    CHECK(load(1, &image) == hipErrorNoBinaryForGpu);
    image.bytes[0] = 'x';
    CHECK(load(1, &image) == hipErrorInvalidImage);
    return 0;
}

/* The card is gfx1103, and its owner says that it is to be taken for a gfx1100. */
static int an_override_is_honoured(const void *arg)
{
    rig_image image = rig_kernels_for(RIG_GFX1100);

    (void)arg;
    CHECK(rig_add_kernels() == 0);
    CHECK(load(0, &image) == hipSuccess);
    return arch_is(0, "gfx1100");
}

/* Cut off anywhere, and with any byte of the metadata another: no crash, no endless loop. */
static int broken_metadata_is_refused(const void *arg)
{
    const rig_image whole = rig_kernels_for(RIG_GFX1100);
    const size_t begin = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 20;

    (void)arg;
    CHECK(rig_add_kernels() == 0);
    CHECK(load(0, &whole) == hipSuccess);
    for (size_t at = begin; at < whole.used; at++) {
        rig_image image = whole;
        uint32_t bytes = (uint32_t)(at - begin);

        memcpy(image.bytes + begin - 16, &bytes, sizeof(bytes));
        CHECK(load(0, &image) == hipErrorInvalidImage);
    }
    for (size_t at = begin; at < whole.used; at++)
        for (unsigned change = 1; change < 256; change *= 2) {
            rig_image image = whole;

            image.bytes[at] ^= (unsigned char)change;
            load(0, &image);
        }
    return 0;
}

static int functions_are_checked(const void *arg)
{
    const rig_kernel longer = { "rig_gate", 16, false };
    rig_image image = rig_object(RIG_GFX1100, &longer, 1);
    hipFunction_t function;
    int blocks = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    CHECK(load(0, &image) == hipErrorInvalidKernelFile); /* the host's takes 8 bytes */
    IS(hipErrorNotFound, hipModuleGetFunction(&function, r.module[0], "absent"));
    IS(hipErrorInvalidDevice, hipModuleGetFunction(&function, r.module[1], "rig_gate"));
    IS(hipErrorInvalidHandle,
            hipModuleGetFunction(&function, (hipModule_t)(void *)&r, "rig_gate"));
    OK(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, r.crowd, 512, 0));
    CHECK(blocks == 4);
    OK(hipModuleGetFunction(&function, r.module[0], "nowhere")); /* runs nothing */
    IS(hipErrorInvalidValue, rig_launch(function, 1, r.stream[0], &r, 8));
    OK(rig_launch(function, 1, r.stream[0], &r, 24));
    OK(hipStreamSynchronize(r.stream[0]));
    return 0;
}

/* What the build made for the cards that the environment says are there. */
static int the_builds_code_objects_are_read(const void *arg)
{
#define KERNEL_ROW(name, args_type) #name,
    static const char *const kernels[] = {
#include "kernels/gpu/kernels.def"
    };
#undef KERNEL_ROW
    static const char *const names[] = { "motet-gfx1100.co", "motet-gfx1201.co",
        "motet-gfx942.co" };
    hipFunction_t function;
    hipModule_t module;

    (void)arg;
    for (int d = 0; d < 3; d++) {
        void *image = rig_file(rig_images, names[d]);

        if (image == NULL)
            continue;
        OK(hipSetDevice(d));
        OK(hipModuleLoadData(&module, image));
        for (size_t k = 0; k < sizeof(kernels) / sizeof(*kernels); k++)
            OK(hipModuleGetFunction(&function, module, kernels[k]));
        free(image);
    }
    return 0;
}

/* ---- launches ---- */

static int kernels_of_two_cards_meet(const void *arg)
{
    uint32_t *words[2], *crowd;
    meet_args args[2];
    crowd_args all;
    void *parameters[1] = { &args[1] };
    hipStream_t other;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    for (int d = 0; d < 2; d++)
        words[d] = rig_words(32);
    crowd = rig_words(2 * RIG_BLOCKS);
    for (int d = 0; d < 2; d++)
        args[d] = (meet_args){ words[d], words[1 - d], 100 };
    OK(rig_launch(r.meet[0], 2, r.stream[0], &args[0], sizeof(args[0])));
    OK(hipSetDevice(1));
    OK(hipStreamCreate(&other));
    OK(hipModuleLaunchKernel(r.meet[1], 2, 1, 1, 64, 1, 1, 0, other, parameters, NULL));
    OK(hipStreamSynchronize(other));
    OK(hipSetDevice(0));
    OK(hipStreamSynchronize(r.stream[0]));
    CHECK(*words[0] == 100 && *words[1] == 100);
    all = (crowd_args){ crowd, crowd + RIG_BLOCKS };
    OK(rig_launch(r.crowd, 32, r.stream[1], &all, sizeof(all)));
    OK(hipStreamSynchronize(r.stream[1]));
    CHECK(crowd[RIG_BLOCKS + 31] == 32);
    IS(hipErrorInvalidHandle, /* a function of the other card */
            rig_launch(r.meet[1], 1, r.stream[0], &args[0], sizeof(args[0])));
    return 0;
}

static int handles_go_stale(const void *arg)
{
    hipEvent_t event;
    unsigned flags = 9;
    int device = -1;
    hipStream_t gone;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    gone = r.stream[2];
    OK(hipStreamGetFlags(gone, &flags));
    CHECK(flags == hipStreamNonBlocking);
    IS(hipErrorInvalidValue, hipStreamGetFlags(NULL, &flags));
    OK(hipStreamGetDevice(gone, &device));
    CHECK(device == 0 && hipGetStreamDeviceId(gone) == 0);
    OK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    OK(hipStreamDestroy(gone));
    IS(hipErrorContextIsDestroyed, hipStreamSynchronize(gone));
    IS(hipErrorContextIsDestroyed, hipStreamQuery(gone));
    IS(hipErrorContextIsDestroyed, hipStreamDestroy(gone));
    IS(hipErrorContextIsDestroyed, hipEventRecord(event, gone));
    CHECK(hipGetStreamDeviceId(gone) == -1);
    OK(hipStreamSynchronize(NULL));
    OK(hipStreamSynchronize(hipStreamLegacy));
    OK(hipStreamSynchronize(hipStreamPerThread));
    return 0;
}

static int a_call_that_goes_well_forgets_the_error(const void *arg)
{
    int count;

    (void)arg;
    IS(hipErrorInvalidDevice, hipSetDevice(7));
    IS(hipErrorInvalidDevice, hipPeekAtLastError());
    OK(hipGetDeviceCount(&count));
    OK(hipGetLastError());
    IS(hipErrorInvalidDevice, hipSetDevice(7));
    IS(hipErrorInvalidDevice, hipGetLastError());
    OK(hipGetLastError());
    return 0;
}

static int the_error_stays_until_it_is_asked_for(const void *arg)
{
    int count;

    (void)arg;
    IS(hipErrorInvalidDevice, hipSetDevice(7));
    OK(hipGetDeviceCount(&count));
    IS(hipErrorInvalidDevice, hipGetLastError());
    OK(hipGetLastError());
    return 0;
}

/* ---- captures ---- */

static int graphs_are_replayed(const void *arg)
{
    const hipGraphNode_t *front;
    hipStreamCaptureStatus status;
    hipGraphNode_t waits, records;
    unsigned long long id = 0;
    hipEvent_t before, after;
    hipGraphExec_t exec;
    hipGraph_t graph;
    uint32_t *list, *gate;
    size_t count = 0;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    list = rig_words(64);
    gate = rig_words(1);
    OK(hipEventCreateWithFlags(&before, hipEventDisableTiming));
    OK(hipEventCreateWithFlags(&after, hipEventDisableTiming));
    OK(hipStreamBeginCapture(r.stream[0], hipStreamCaptureModeGlobal));
    OK(hipStreamGetCaptureInfo_v2(r.stream[0], &status, &id, &graph, &front, &count));
    CHECK(status == hipStreamCaptureStatusActive && id != 0 && count == 0);
    OK(hipGraphAddEventWaitNode(&waits, graph, front, count, before));
    OK(hipStreamUpdateCaptureDependencies(r.stream[0], &waits, 1,
            hipStreamSetCaptureDependencies));
    OK(rig_note(r.append[0], list, 7, r.stream[0]));
    OK(hipStreamGetCaptureInfo_v2(r.stream[0], &status, &id, &graph, &front, &count));
    OK(hipGraphAddEventRecordNode(&records, graph, front, count, after));
    OK(hipStreamEndCapture(r.stream[0], &graph));
    OK(hipGraphInstantiateWithFlags(&exec, graph, 0));
    OK(rig_wait_for(&r, gate, r.stream[1])); /* eager work that the graph comes after */
    OK(rig_note(r.append[0], list, 3, r.stream[1]));
    OK(hipEventRecord(before, r.stream[1]));
    OK(hipGraphLaunch(exec, r.stream[0]));
    OK(hipStreamWaitEvent(r.stream[2], after, 0)); /* and that comes after the graph */
    OK(rig_note(r.append[0], list, 9, r.stream[2]));
    IS(hipErrorNotReady, hipStreamQuery(r.stream[2]));
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(hipStreamSynchronize(r.stream[2]));
    CHECK(list[0] == 3 && list[1] == 3 && list[2] == 7 && list[3] == 9);
    for (int i = 0; i < 10; i++)
        OK(hipGraphLaunch(exec, r.stream[0]));
    OK(hipStreamSynchronize(r.stream[0]));
    CHECK(list[0] == 13);
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    return 0;
}

static int unsafe_calls_spoil_a_capture(const void *arg)
{
    hipStreamCaptureStatus status;
    hipGraph_t graph;
    void *memory;
    rig r;

    (void)arg;
    CHECK(rig_open(&r) == 0);
    OK(hipStreamBeginCapture(r.stream[0], hipStreamCaptureModeGlobal));
    IS(hipErrorStreamCaptureUnsupported, hipMalloc(&memory, 100));
    OK(hipStreamIsCapturing(r.stream[0], &status));
    CHECK(status == hipStreamCaptureStatusInvalidated);
    IS(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(r.stream[0], &graph));
    return 0;
}

TEST(every_function_is_there)
TEST(libraries_differ)
TEST_WITH(two_cards_are_described, two_cards_are_described,
        "FAKEHIP_TARGET=gfx1100,gfx942", "FAKEHIP_ATOMICS=1,0")
TEST_WITH(one_card_is_visible, both_variables_choose, "FAKEHIP_DEVICES=4",
        "ROCR_VISIBLE_DEVICES=1,3", "HIP_VISIBLE_DEVICES=1")
TEST_WITH(one_card_is_visible, a_uuid_makes_visible, "FAKEHIP_DEVICES=4",
        "HIP_VISIBLE_DEVICES=GPU-fa4e000000000003")
TEST_WITH(no_card_is_visible, no_card_there, "FAKEHIP_DEVICES=0")
TEST_WITH(no_card_is_visible, no_card_visible, "HIP_VISIBLE_DEVICES=-1")
TEST_WITH(cards_have_no_numbers, cards_have_no_numbers, "FAKEHIP_UUIDS=0")
TEST_WITH(init_says_999, init_says_999, "FAKEHIP_INIT=999")
TEST_WITH(the_environment_is_refused, a_bad_number_is_refused, "FAKEHIP_DEVICES=17")
TEST_WITH(the_environment_is_refused, a_bad_word_is_refused, "FAKEHIP_REFUSE=sometimes")
TEST_WITH(the_environment_is_refused, a_bad_target_is_refused,
        "FAKEHIP_TARGET=gfx1100,sm_90")
TEST_WITH(targets_are_checked, targets_are_checked, "FAKEHIP_TARGET=gfx1100,gfx942")
TEST_WITH(an_override_is_honoured, an_override_is_honoured, "FAKEHIP_TARGET=gfx1103",
        "HSA_OVERRIDE_GFX_VERSION=11.0.0")
TEST(broken_metadata_is_refused)
TEST(functions_are_checked)
TEST(kernels_of_two_cards_meet)
TEST(handles_go_stale)
TEST(a_call_that_goes_well_forgets_the_error)
TEST_WITH(the_error_stays_until_it_is_asked_for, the_error_stays_until_it_is_asked_for,
        "FAKEHIP_VERSION=7")
TEST(graphs_are_replayed)
TEST(unsafe_calls_spoil_a_capture)

TEST_OF_IMAGES(the_builds_code_objects_are_read, rig_images, "motet-gfx1100.co",
        "FAKEHIP_TARGET=gfx1100,gfx1201,gfx942", "FAKEHIP_DEVICES=3")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function_is_there),
        cmocka_unit_test(test_libraries_differ),
        cmocka_unit_test(test_two_cards_are_described),
        cmocka_unit_test(test_both_variables_choose),
        cmocka_unit_test(test_a_uuid_makes_visible),
        cmocka_unit_test(test_no_card_there),
        cmocka_unit_test(test_no_card_visible),
        cmocka_unit_test(test_cards_have_no_numbers),
        cmocka_unit_test(test_init_says_999),
        cmocka_unit_test(test_a_bad_number_is_refused),
        cmocka_unit_test(test_a_bad_word_is_refused),
        cmocka_unit_test(test_a_bad_target_is_refused),
        cmocka_unit_test(test_targets_are_checked),
        cmocka_unit_test(test_an_override_is_honoured),
        cmocka_unit_test(test_broken_metadata_is_refused),
        cmocka_unit_test(test_functions_are_checked),
        cmocka_unit_test(test_the_builds_code_objects_are_read),
        cmocka_unit_test(test_kernels_of_two_cards_meet),
        cmocka_unit_test(test_handles_go_stale),
        cmocka_unit_test(test_a_call_that_goes_well_forgets_the_error),
        cmocka_unit_test(test_the_error_stays_until_it_is_asked_for),
        cmocka_unit_test(test_graphs_are_replayed),
        cmocka_unit_test(test_unsafe_calls_spoil_a_capture),
    };

    rig_find_folders();
    return cmocka_run_group_tests_name("fakehip", tests, NULL, NULL);
}
