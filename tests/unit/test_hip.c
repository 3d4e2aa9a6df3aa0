/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, the caller's state, memory, pointers, kernels and errors of the HIP device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hip_rig.h"
#include "transport/gpu.h"

static const motet_device_ops *const rig_device = &motet_device_hip;
static const char rig_no_memory[] = "hipErrorOutOfMemory";

static inline uint64_t rig_alignment(motet_gpu *gpu)
{
    (void)gpu;
    return 2 << 20;
}

#include "contract_device.h"

/* ---- devices ---- */

static int devices_are_described(void)
{
    const motet_gpu_facts *facts;
    motet_gpu *gpu, *again;
    motet_device_info info;
    int count = 0;

    CHECK(motet_device_hip.count(&count) == MOTET_OK && count == 2);
    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->open(0, &again) == MOTET_OK && again == gpu);
    facts = ops->facts(gpu);
    CHECK(facts->name[0] != '\0');
    CHECK(strncmp(facts->identity, "GPU-", 4) == 0);
    CHECK(strstr(facts->identity, facts->bus_id) != NULL && facts->bus_id[4] == ':');
    CHECK(strcmp(facts->target, "gfx1100") == 0);
    CHECK(facts->major == 11 && facts->minor == 0 && facts->processors == 8);
    CHECK(facts->memory_bytes > 1 << 20 && facts->driver_version == 6030);
    CHECK(facts->legacy_ipc && !facts->share_fd);
    CHECK(!facts->launch_blocks && facts->no_capture[0] == '\0');
    CHECK(facts->host_atomics == 1 && facts->link_atomics == -1);
    CHECK(strstr(facts->queue_hint, "GPU_MAX_HW_QUEUES") != NULL);
    CHECK(strstr(facts->queue_hint, "share 4 hardware queues") != NULL);
    CHECK(motet_device_hip.describe(0, &info) == MOTET_OK);
    CHECK(strncmp(info.identity, facts->identity, sizeof(info.identity) - 1) == 0);
    CHECK(info.memory_bytes == facts->memory_bytes);

    CHECK(ops->open(1, &again) == MOTET_OK && again != gpu);
    CHECK(strcmp(ops->facts(again)->identity, facts->identity) != 0);
    CHECK(ops->open(-1, &again) == MOTET_ERR_ARGUMENT);
    CHECK(ops->open(count, &again) == MOTET_ERR_ARGUMENT);
    CHECK_SAID("need 0..1");
    return 0;
}

static void test_devices_are_described(void **state)
{
    (void)state;
    rig_run(devices_are_described, true, 2, NULL);
}

static int cards_without_numbers_are_told_apart_by_place(void)
{
    motet_gpu *gpu;

    for (int i = 0; i < 2; i++) {
        CHECK(ops->open(i, &gpu) == MOTET_OK);
        CHECK(strcmp(ops->facts(gpu)->identity, ops->facts(gpu)->bus_id) == 0);
    }
    return 0;
}

static void test_cards_without_numbers_are_told_apart_by_place(void **state)
{
    (void)state;
    rig_run(cards_without_numbers_are_told_apart_by_place, true, 2, "FAKEHIP_UUIDS=0");
}

static int the_target_is_what_the_runtime_says(void)
{
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(strcmp(ops->facts(gpu)->target, getenv("RIG_TARGET")) == 0);
    return 0;
}

static void test_the_target_is_what_the_runtime_says(void **state)
{
    static const struct {
        const char *variable, *target;
    } cases[] = {
        { "FAKEHIP_TARGET=gfx1201", "RIG_TARGET=gfx1201" },
        { "FAKEHIP_TARGET=gfx942:sramecc+:xnack-",
                "RIG_TARGET=gfx942:sramecc+:xnack-" },
        { "HSA_OVERRIDE_GFX_VERSION=10.3.0", "RIG_TARGET=gfx1030" },
        { RIG_ROCM5, "RIG_TARGET=gfx1100" }, /* the old layout of the properties */
        { RIG_ROCM7, "RIG_TARGET=gfx1100" },
        { RIG_BARE, "RIG_TARGET=unknown" }, /* and no /sys/class/kfd */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        rig_run_with(the_target_is_what_the_runtime_says, true, 1, cases[i].variable,
                cases[i].target);
}

static int atomics_are_reported(void)
{
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK && ops->facts(gpu)->host_atomics == 0);
    CHECK(ops->open(1, &gpu) == MOTET_OK && ops->facts(gpu)->host_atomics == 1);
    return 0;
}

static void test_atomics_are_reported(void **state)
{
    (void)state;
    rig_run(atomics_are_reported, true, 2, "FAKEHIP_ATOMICS=0,1");
}

static int launches_are_said_to_block(void)
{
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK && ops->facts(gpu)->launch_blocks);
    return 0;
}

static int queues_are_counted(void)
{
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK && !ops->facts(gpu)->launch_blocks);
    CHECK(strstr(ops->facts(gpu)->queue_hint, "share 9 hardware queues") != NULL);
    return 0;
}

static void test_the_runtimes_variables_are_read(void **state)
{
    (void)state;
    rig_run(launches_are_said_to_block, true, 1, "HIP_LAUNCH_BLOCKING=1");
    rig_run(launches_are_said_to_block, true, 1, "AMD_SERIALIZE_KERNEL=3");
    rig_run_with(queues_are_counted, true, 1, "AMD_SERIALIZE_KERNEL=1",
            "GPU_MAX_HW_QUEUES=9");
}

/* ---- the choice ---- */

static int a_gpu_is_chosen(void)
{
    const motet_device_ops *chosen = NULL;

    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_hip);
    CHECK(motet_device_choose_now(MOTET_CHOOSE_GPU, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_hip);
    CHECK(motet_device_choose_now(MOTET_CHOOSE_HIP, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_hip && motet_error_trail()[0] == '\0');
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
    rig_run(a_gpu_is_chosen, true, 1, NULL);
    rig_run(a_gpu_is_chosen, true, 1, "MOTET_DEVICE=gpu");
    rig_run(a_gpu_is_chosen, true, 1, "MOTET_DEVICE=hip");
    rig_run(a_gpu_is_chosen, true, 1, "HIP_VISIBLE_DEVICES=0");
    rig_run(a_gpu_is_chosen, true, 1, RIG_PLAIN);
    rig_run(a_gpu_is_chosen, true, 1, RIG_DTK);
    rig_run(a_cpu_is_chosen, true, 1, "MOTET_DEVICE=cpu");
}

static int two_runtimes_are_refused(void)
{
    const motet_device_ops *chosen = NULL;
    int count = 9;

    CHECK(dlopen(getenv("RIG_SECOND"), RTLD_NOW | RTLD_LOCAL) != NULL);
    CHECK(motet_device_hip.count(&count) == MOTET_ERR_DEVICE && count == 9);
    CHECK_SAID("libamdhip64.so.6");
    CHECK_SAID("rocm7/libamdhip64.so.7");
    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_ERR_DEVICE);
    CHECK_SAID("rocm7/libamdhip64.so.7");
    CHECK(chosen == NULL);
    return 0;
}

/* The second one comes when ours is in use already. */
static int a_second_runtime_is_noticed_later(void)
{
    const motet_device_ops *chosen = NULL;

    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_OK);
    CHECK(chosen == &motet_device_hip);
    chosen = NULL;
    CHECK(dlopen(getenv("RIG_SECOND"), RTLD_NOW | RTLD_LOCAL) != NULL);
    CHECK(motet_device_choose_now(MOTET_CHOOSE_AUTO, &chosen) == MOTET_ERR_DEVICE);
    CHECK_SAID("two runtimes of AMD");
    CHECK_SAID("rocm7/libamdhip64.so.7");
    CHECK(chosen == NULL);
    return 0;
}

static int without_a_rig(const void *arg)
{
    (void)arg;
    return a_second_runtime_is_noticed_later();
}

static void test_two_runtimes_are_refused(void **state)
{
    const char *const environment[] = { RIG_SECOND_ROCM7,
        "MOTET_HIP_LIB=" FAKEHIP_DIR "/libamdhip64.so.6", NULL };
    child_result child;

    (void)state;
    rig_run(two_runtimes_are_refused, true, 1, RIG_SECOND_ROCM7);
    child = child_run(without_a_rig, NULL, environment);
    if (child.status != 0)
        fail_msg("status %d\n%s%s", child.status, child.out, child.err);
}

/* ---- the caller's state ---- */

static int is_current(int ordinal)
{
    int now = -1;

    return app.hipGetDevice(&now) == hipSuccess && now == ordinal;
}

static int the_callers_device_comes_back(void)
{
    motet_gpu *gpu;
    void *kernel;
    int ordinal = -1;

    for (int mine = 1; mine >= 0; mine--) {
        CHECK(rig_use(mine));
        for (int i = 0; i < 2; i++) {
            CHECK(ops->open(i, &gpu) == MOTET_OK && is_current(mine));
            CHECK(ops->current(&ordinal) == MOTET_OK && ordinal == mine);
            kernel = rig_store_kernel(gpu);
            CHECK(kernel != NULL && is_current(mine));
            CHECK(call_everything(gpu, kernel) == 0 && is_current(mine));
        }
    }
    return 0;
}

static void test_the_callers_device_comes_back(void **state)
{
    (void)state;
    rig_run(the_callers_device_comes_back, true, 2, NULL);
}

/* Failures of ours, on a device that is not the application's. */
static int fail_everywhere(motet_gpu *gpu)
{
    motet_gpu_memory memory = { .address = 0 };
    motet_stream_state doing;
    motet_pointer pointer;
    const rig_image image = rig_store_image();
    void *function, *module;
    int local = 0;

    CHECK(ops->alloc(gpu, (size_t)1 << 46, &memory) == MOTET_ERR_DEVICE);
    CHECK(ops->pointer((uint64_t)(uintptr_t)&local, &pointer) == MOTET_OK);
    CHECK(ops->load(gpu, image.bytes, image.used, &module) == MOTET_OK);
    CHECK(ops->function(gpu, module, "nowhere", &function) == MOTET_ERR_DEVICE);
    CHECK(ops->stream_state(gpu, &local, &doing) == MOTET_ERR_ARGUMENT);
    CHECK(ops->graph_hold(gpu, NULL, NULL, NULL) == MOTET_ERR_DEVICE);
    return 0;
}

static int our_errors_stay_with_us(void)
{
    void *nothing = NULL;
    motet_gpu *gpu;

    CHECK(rig_use(1) && ops->open(0, &gpu) == MOTET_OK);
    CHECK(app.hipGetLastError() == hipSuccess);
    CHECK(fail_everywhere(gpu) == 0);
    CHECK(app.hipGetLastError() == hipSuccess && is_current(1));
    /* its own error is the application's to find, where the runtime lets it be */
    CHECK(app.hipMalloc(&nothing, (size_t)1 << 50) == hipErrorOutOfMemory);
    CHECK(ops->health(gpu) == MOTET_OK);
    if (getenv("RIG_KEEPS") != NULL)
        CHECK(app.hipGetLastError() == hipErrorOutOfMemory);
    return 0;
}

static void test_our_errors_stay_with_us(void **state)
{
    (void)state;
    rig_run(our_errors_stay_with_us, true, 2, NULL);
    rig_run(our_errors_stay_with_us, true, 2, RIG_ROCM5);
    rig_run_with(our_errors_stay_with_us, true, 2, RIG_ROCM7, "RIG_KEEPS=1");
}

/* ---- memory ---- */

static void test_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    rig_run(memory_is_zeroed_and_aligned, true, 1, NULL);
    rig_run(memory_is_zeroed_and_aligned, true, 1, RIG_ROCM5); /* fine-grained */
}

static void test_pointers_are_told_apart_by_version(void **state)
{
    (void)state;
    rig_run(pointers_are_told_apart, true, 1, NULL);
    rig_run(pointers_are_told_apart, true, 1, RIG_ROCM5);
    rig_run(pointers_are_told_apart, true, 1, RIG_ROCM7);
}

/* ---- code ---- */

static int wrong_code_is_refused(void)
{
    static const char nonsense[128] = "this is no code";
    const rig_kernel kernel = { "motet_test_store", sizeof(store_args), false };
    const rig_image other = rig_object(RIG_GFX942, &kernel, 1);
    void *module = NULL;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->load(gpu, nonsense, sizeof(nonsense), &module) == MOTET_ERR_DEVICE);
    CHECK_SAID("128 bytes for device 0 are no code object");
    CHECK(ops->load(gpu, other.bytes, 5, &module) == MOTET_ERR_DEVICE);
    CHECK(ops->load(gpu, other.bytes, 0, &module) == MOTET_ERR_DEVICE);
    CHECK(ops->load(gpu, other.bytes, other.used, &module) == MOTET_ERR_DEVICE);
    CHECK_SAID("on device 0");
    CHECK_SAID("not built for this GPU");
    CHECK(module == NULL);
    return 0;
}

static void test_wrong_code_is_refused(void **state)
{
    (void)state;
    rig_run(wrong_code_is_refused, true, 1, NULL);
}

/* ---- errors ---- */

/* A kernel that declares a hostcall, where the host takes no AtomicOps: wherever the
 * runtime says so, it is said, and nothing is left behind. */
static int a_refused_kernel_is_a_sentence(void)
{
    const rig_kernel kernel = { "motet_test_store", sizeof(store_args), true };
    const rig_image image = rig_object(RIG_GFX1100, &kernel, 1);
    motet_gpu_memory memory;
    void *module, *function;
    motet_result result;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, 4096, &memory) == MOTET_OK);
    CHECK(ops->load(gpu, image.bytes, image.used, &module) == MOTET_OK);
    CHECK(ops->function(gpu, module, "motet_test_store", &function) == MOTET_OK);
    result = rig_store(gpu, function, memory.address, 7, NULL);
    if (result == MOTET_OK)
        result = ops->stream_sync(gpu, NULL);
    CHECK(result == MOTET_ERR_DEVICE);
    CHECK_SAID("hipErrorIllegalState");
    CHECK_SAID("PCIe AtomicOps");
    CHECK(app.hipGetLastError() == hipSuccess);
    CHECK(rig_word(gpu, memory.address) == 0);
    return 0;
}

static void test_a_refused_kernel_is_a_sentence(void **state)
{
    static const char *const how[] = { "FAKEHIP_REFUSE=launch", "FAKEHIP_REFUSE=sync",
        "FAKEHIP_REFUSE=last" };

    (void)state;
    for (size_t i = 0; i < sizeof(how) / sizeof(*how); i++)
        rig_run_with(a_refused_kernel_is_a_sentence, true, 1, "FAKEHIP_ATOMICS=0",
                how[i]);
}

/* A refusal that only the last error shows is found behind one like it that the
 * application has not read yet. */
static int a_refusal_shows_behind_one_of_the_applications(void)
{
    const rig_kernel kernel = { "motet_test_store", sizeof(store_args), true };
    const rig_image image = rig_object(RIG_GFX1100, &kernel, 1);
    store_args args = { .at = 0 };
    size_t bytes = sizeof(args);
    void *extra[] = { HIP_LAUNCH_PARAM_BUFFER_POINTER, &args,
        HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END };
    motet_gpu_memory memory;
    void *module, *function;
    motet_gpu *gpu;

    CHECK(ops->open(0, &gpu) == MOTET_OK && rig_use(0));
    CHECK(ops->alloc(gpu, 4096, &memory) == MOTET_OK);
    CHECK(ops->load(gpu, image.bytes, image.used, &module) == MOTET_OK);
    CHECK(ops->function(gpu, module, "motet_test_store", &function) == MOTET_OK);
    CHECK(app.hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL,
                  extra) == hipSuccess);
    CHECK(app.hipPeekAtLastError() == hipErrorIllegalState);
    CHECK(rig_store(gpu, function, memory.address, 7, NULL) == MOTET_ERR_DEVICE);
    CHECK_SAID("hipErrorIllegalState");
    CHECK(app.hipPeekAtLastError() == hipSuccess);
    return 0;
}

static void test_a_refusal_shows_behind_one_of_the_applications(void **state)
{
    (void)state;
    rig_run_with(a_refusal_shows_behind_one_of_the_applications, true, 1,
            "FAKEHIP_ATOMICS=0", "FAKEHIP_REFUSE=last");
}

static int a_lost_card_is_a_sentence(void)
{
    return a_broken_device_is_a_sentence("hipErrorLaunchFailure");
}

static void test_a_lost_card_is_a_sentence(void **state)
{
    (void)state;
    rig_run_with(a_lost_card_is_a_sentence, true, 1, "FAKEHIP_STOP=1",
            "FAKEHIP_STOP_HOW=error");
}

/* What would wait for a kernel that never leaves is left where it is. */
static int a_card_that_was_given_up_is_not_waited_for(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = aligned_alloc(bytes, bytes);
    motet_gpu_memory memory[2];
    motet_pointer pointer;
    uint64_t at, address;
    motet_gpu *gpu;
    void *kernel;

    CHECK(page != NULL && ops->open(0, &gpu) == MOTET_OK);
    CHECK(ops->alloc(gpu, 4096, &memory[0]) == MOTET_OK);
    CHECK(ops->alloc(gpu, 4096, &memory[1]) == MOTET_OK);
    CHECK(ops->register_host(gpu, page, bytes, &at) == MOTET_OK);
    kernel = rig_store_kernel(gpu);
    CHECK(kernel != NULL);
    CHECK(rig_store(gpu, kernel, memory[0].address, 1, NULL) == MOTET_OK);
    motet_gpu_give_up(ops, gpu);
    motet_gpu_give_up(ops, gpu);
    address = memory[1].address;
    ops->free(gpu, &memory[1]);
    CHECK(memory[1].address == 0);
    CHECK(ops->pointer(address, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_DEVICE);
    ops->unregister_host(gpu, page);
    CHECK(ops->pointer((uint64_t)(uintptr_t)page, &pointer) == MOTET_OK);
    CHECK(pointer.kind == MOTET_POINTER_HOST);
    return 0;
}

static void test_a_card_that_was_given_up_is_not_waited_for(void **state)
{
    (void)state;
    rig_run_with(a_card_that_was_given_up_is_not_waited_for, true, 1, "FAKEHIP_STOP=0",
            "FAKEHIP_STOP_HOW=hang");
}

/* A device's dead links are not freed for another's sake: that would wait for its kernels,
 * which may wait for what the thread launches next. */
static int links_of_other_cards_are_left(void)
{
    motet_gpu_link *link[2];
    motet_gpu_memory memory;
    motet_pointer pointer;
    uint64_t page[2];
    motet_gpu *gpu[2];
    void *kernel;

    for (int i = 0; i < 2; i++) {
        CHECK(ops->open(i, &gpu[i]) == MOTET_OK);
        CHECK(motet_gpu_link_make(ops, gpu[i], i, 2, &link[i]) == MOTET_OK);
        page[i] = (uint64_t)(uintptr_t)link[i]->control;
    }
    CHECK(ops->alloc(gpu[0], 4096, &memory) == MOTET_OK);
    kernel = rig_store_kernel(gpu[0]);
    CHECK(kernel != NULL);
    CHECK(rig_store(gpu[0], kernel, memory.address, 1, NULL) == MOTET_OK);
    for (int i = 0; i < 2; i++)
        motet_gpu_link_release(link[i]);
    motet_gpu_link_sweep(gpu[1]);
    for (int i = 0; i < 2; i++) {
        CHECK(ops->pointer(page[i], &pointer) == MOTET_OK);
        CHECK(pointer.kind == (i == 0 ? MOTET_POINTER_HOST : MOTET_POINTER_UNKNOWN));
    }
    return 0;
}

static void test_links_of_other_cards_are_left(void **state)
{
    (void)state;
    rig_run_with(links_of_other_cards_are_left, true, 2, "FAKEHIP_STOP=0",
            "FAKEHIP_STOP_CARD=0");
}

/* ---- events of threads ---- */

static motet_gpu *event_gpu;
static void *thread_event;
static pthread_barrier_t both;

static void *record_in_own_stream(void *unused)
{
    motet_result result = ops->event_record(event_gpu, thread_event,
            (void *)(uintptr_t)hipStreamPerThread, false);

    (void)unused;
    if (result == MOTET_OK)
        result = ops->stream_sync(event_gpu, (void *)(uintptr_t)hipStreamPerThread);
    if (result == MOTET_OK)
        result = ops->event_query(event_gpu, thread_event);
    pthread_barrier_wait(&both); /* recorded */
    pthread_barrier_wait(&both); /* looked at */
    return result == MOTET_OK ? NULL : &both;
}

static int a_threads_event_is_its_own(void)
{
    motet_result looked = MOTET_IN_PROGRESS;
    pthread_t thread;
    void *failed;

    CHECK(ops->open(0, &event_gpu) == MOTET_OK);
    CHECK(ops->event_create(event_gpu, &thread_event) == MOTET_OK);
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, record_in_own_stream, NULL) == 0);
    pthread_barrier_wait(&both);
    CHECK(ops->event_query(event_gpu, thread_event) == MOTET_ERR_DEVICE);
    CHECK_SAID("only that thread can look at it");
    pthread_barrier_wait(&both);
    CHECK(pthread_join(thread, &failed) == 0 && failed == NULL);
    /* it has ended, which the kernel may show a moment later */
    for (int ms = 0; ms < 5000 && looked != MOTET_OK; ms++) {
        looked = ops->event_query(event_gpu, thread_event);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    CHECK(looked == MOTET_OK);
    ops->event_destroy(event_gpu, thread_event);
    return 0;
}

static void test_a_threads_event_is_its_own(void **state)
{
    (void)state;
    rig_run(a_threads_event_is_its_own, true, 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_described),
        cmocka_unit_test(test_cards_without_numbers_are_told_apart_by_place),
        cmocka_unit_test(test_the_target_is_what_the_runtime_says),
        cmocka_unit_test(test_atomics_are_reported),
        cmocka_unit_test(test_the_runtimes_variables_are_read),
        cmocka_unit_test(test_the_choice_falls_on_a_gpu_that_is_there),
        cmocka_unit_test(test_two_runtimes_are_refused),
        cmocka_unit_test(test_a_forked_child_is_told),
        cmocka_unit_test(test_the_callers_device_comes_back),
        cmocka_unit_test(test_the_current_device_is_the_callers),
        cmocka_unit_test(test_our_errors_stay_with_us),
        cmocka_unit_test(test_memory_is_zeroed_and_aligned),
        cmocka_unit_test(test_host_memory_is_shown_to_devices),
        cmocka_unit_test(test_registrations_of_the_application_stay),
        cmocka_unit_test(test_threads_register_the_same),
        cmocka_unit_test(test_pointers_are_told_apart_by_version),
        cmocka_unit_test(test_wrong_code_is_refused),
        cmocka_unit_test(test_work_runs_in_order),
        cmocka_unit_test(test_a_refused_kernel_is_a_sentence),
        cmocka_unit_test(test_a_refusal_shows_behind_one_of_the_applications),
        cmocka_unit_test(test_a_lost_card_is_a_sentence),
        cmocka_unit_test(test_a_card_that_was_given_up_is_not_waited_for),
        cmocka_unit_test(test_links_of_other_cards_are_left),
        cmocka_unit_test(test_a_threads_event_is_its_own),
        cmocka_unit_test(test_threads_open_at_once),
    };

    return cmocka_run_group_tests_name("hip", tests, NULL, NULL);
}
