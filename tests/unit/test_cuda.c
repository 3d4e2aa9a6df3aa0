/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, memory, pointers, kernels and errors of the CUDA device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_rig.h"

#include <ctype.h>

static const motet_device_ops *const rig_device = &motet_device_cuda;
static const char rig_no_memory[] = "CUDA_ERROR_OUT_OF_MEMORY";

static inline uint64_t rig_alignment(motet_gpu *gpu)
{
    return ops->facts(gpu)->share_fd ? 2 << 20 : 256;
}

#include "contract_device.h"

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

/* ---- contexts ---- */

static int is_current(CUcontext context)
{
    CUcontext now = (CUcontext)(uintptr_t)1;

    return app.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context;
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

/* ---- memory ---- */

static void test_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    rig_run(memory_is_zeroed_and_aligned, false, 1, NULL);
    rig_run(memory_is_zeroed_and_aligned, true, 1, "FAKECUDA_VMM=0");
}

/* ---- pointers ---- */

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

/* ---- errors ---- */

static int a_sticky_error_is_a_sentence(void)
{
    return a_broken_device_is_a_sentence("CUDA_ERROR_ILLEGAL_ADDRESS");
}

static void test_a_sticky_error_is_a_sentence(void **state)
{
    (void)state;
    rig_run(a_sticky_error_is_a_sentence, true, 1, "FAKECUDA_STICKY=1");
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
        cmocka_unit_test(test_threads_register_the_same),
        cmocka_unit_test(test_pointers_are_told_apart),
        cmocka_unit_test(test_wrong_code_is_refused),
        cmocka_unit_test(test_work_runs_in_order),
        cmocka_unit_test(test_a_sticky_error_is_a_sentence),
        cmocka_unit_test(test_threads_open_at_once),
    };

    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
