/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA device says when the driver is missing, old, broken or shows nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "device/device.h"

#include <dlfcn.h>

/* Folders of the variants' libcuda.so.1 are below this one; given by the build. */
static const char *folder(void)
{
    return getenv("MOTET_TEST_FAULT_CUDA");
}

typedef struct fault_case {
    const char *variant; /* folder; NULL: no driver                   */
    bool mapped;         /* by the application, before we look        */
    const char *environment[3];
    motet_device_choice choice;
    motet_result result;
    const char *kind;    /* what is chosen, if something is           */
    const char *said[4]; /* in the failure                            */
} fault_case;

static const motet_gpu_ops *const ops = &motet_gpu_cuda;

/* The driver is opened under its path: what LD_LIBRARY_PATH would do, but in one process
 * for many variants. To be found, it must be mapped. */
static int choose(const void *arg)
{
    const fault_case *c = arg;
    const motet_device_ops *chosen = NULL;
    motet_result result;

    if (c->variant != NULL && c->mapped && dlopen(c->variant, RTLD_NOW) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    result = motet_device_choose_now(c->choice, &chosen);
    fprintf(stderr, "%s", motet_error_trail());
    if (chosen != NULL)
        printf("%s", chosen->name);
    return (int)result;
}

static void check_case(size_t number, const fault_case *given)
{
    fault_case c = *given;
    child_result child;
    char path[1024];

    if (c.variant != NULL) {
        snprintf(path, sizeof(path), "%s/%s/libcuda.so.1", folder(), c.variant);
        c.variant = path;
    }
    child = child_run(choose, &c, c.environment);
    if (child.status != (int)c.result)
        fail_msg("case %zu: status %d: %s", number, child.status, child.err);
    if (c.kind != NULL)
        assert_string_equal(child.out, c.kind);
    for (size_t i = 0; i < 4 && c.said[i] != NULL; i++)
        if (strstr(child.err, c.said[i]) == NULL)
            fail_msg("case %zu: no '%s' in: %s", number, c.said[i], child.err);
}

static void test_what_is_wrong_is_a_sentence(void **state)
{
    static const fault_case cases[] = {
        /* a driver that works, for comparison */
        { "good", true, { NULL }, MOTET_CHOOSE_AUTO, MOTET_OK, "cuda", { NULL } },
        { "good", true, { "MOTET_DEVICE=cpu" }, MOTET_CHOOSE_AUTO, MOTET_OK, "cpu",
                { NULL } },
        /* older than the oldest that will do */
        { "old", true, { "FAULT_VERSION=10020" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                NULL,
                { "/old/libcuda.so.1 (CUDA 10.2) has no cuDevicePrimaryCtxRelease_v2",
                        "need the driver of CUDA 11.0 (450.36) or newer",
                        "set MOTET_DEVICE=cpu for CPU ranks" } },
        { "old", true, { "FAULT_VERSION=10020" }, MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE,
                NULL,
                { "a GPU communicator was asked for but no GPU can be used",
                        "CUDA 11.0 (450.36)" } },
        { "old", true, { "FAULT_VERSION=10020" }, MOTET_CHOOSE_CPU, MOTET_OK, "cpu",
                { NULL } },
        { "mute", true, { NULL }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "is no NVIDIA driver: it does not say its version" } },
        /* failures of cuInit() */
        { "good", true, { "FAULT_INIT=100" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "libcuda.so is loaded in this process but no GPU can be used",
                        "no GPU is there, or CUDA_VISIBLE_DEVICES hides it" } },
        { "good", true, { "FAULT_INIT=803" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "cuInit: CUDA_ERROR_NUMBER_803 (as the driver says it)",
                        "are of different versions: reboot" } },
        { "good", true, { "FAULT_INIT=999" }, MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE, NULL,
                { "CUDA 13.0", "nvidia-modprobe" } },
        { "good", true, { "FAULT_INIT=802" }, MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE, NULL,
                { "start nvidia-fabricmanager" } },
        { "good", true, { "FAULT_INIT=34", "MOTET_DEVICE=cuda" }, MOTET_CHOOSE_AUTO,
                MOTET_ERR_DEVICE, NULL,
                { "MOTET_DEVICE is 'cuda' but no GPU can be used",
                        "this is the library to link against" } },
        { "good", true, { "FAULT_INIT=12345" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                NULL, { "cuInit failed with error 12345, which the driver does not" } },
        { "good", true, { "FAULT_DEVICES=0" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                NULL, { "no GPU is there" } },
        { "good", true, { "FAULT_INIT=999", "MOTET_DEVICE=cpu" }, MOTET_CHOOSE_AUTO,
                MOTET_OK, "cpu", { NULL } },
        { "good", true, { "FAULT_INIT=100", "CUDA_VISIBLE_DEVICES=7" },
                MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "CUDA_VISIBLE_DEVICES is '7' but no GPU can be used",
                        "unset it, or set MOTET_DEVICE=cpu" } },
    };

    (void)state;
    if (folder() == NULL)
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_case(i, &cases[i]);
}

/* The loader finds the driver that shows no device; nobody else has asked for it. */
static void test_a_driver_without_devices_is_no_sign_of_a_gpu(void **state)
{
    static const fault_case cases[] = {
        { NULL, false, { "FAULT_INIT=100" }, MOTET_CHOOSE_AUTO, MOTET_OK, "cpu",
                { NULL } },
        { NULL, false, { "FAULT_DEVICES=0" }, MOTET_CHOOSE_AUTO, MOTET_OK, "cpu",
                { NULL } },
        { NULL, false, { "FAULT_INIT=999" }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "no GPU can be used: ", "set MOTET_DEVICE=cpu" } },
        { NULL, false, { NULL }, MOTET_CHOOSE_AUTO, MOTET_OK, "cuda", { NULL } },
    };

    (void)state;
    if (folder() == NULL)
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_case(i, &cases[i]);
}

/* A driver of the time before captures could be asked about is good for the rest. */
static int open_without_capture(const void *arg)
{
    motet_gpu_memory memory;
    motet_stream_state doing;
    motet_gpu *gpu;

    (void)arg;
    if (ops->open(0, &gpu) != MOTET_OK) {
        fprintf(stderr, "%s", motet_error_trail());
        return 1;
    }
    printf("%s\n%s", ops->facts(gpu)->no_capture, ops->facts(gpu)->bus_id);
    if (ops->stream_state(gpu, NULL, &doing) != MOTET_OK || doing.capturing)
        return 2;
    if (ops->graph_hold(gpu, &memory, NULL, NULL) != MOTET_ERR_DEVICE)
        return 3;
    fprintf(stderr, "%s", motet_error_trail());
    return 0;
}

static int open_variant(const void *arg)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s", (const char *)arg);
    return dlopen(path, RTLD_NOW) == NULL ? 99 : open_without_capture(NULL);
}

static void test_a_missing_feature_names_the_driver_that_has_it(void **state)
{
    static const char *const environment[] = { "FAULT_VERSION=11020", NULL };
    const char *lacks = "has no cuGraphRetainUserObject, need the driver of CUDA 11.3 "
                        "(465.19) or newer";
    child_result child;
    char path[1024];

    (void)state;
    if (folder() == NULL)
        skip();
    snprintf(path, sizeof(path), "%s/uncaptured/libcuda.so.1", folder());
    child = child_run(open_variant, path, environment);
    if (child.status != 0)
        fail_msg("status %d: %s", child.status, child.err);
    assert_non_null(strstr(child.out, lacks));
    assert_non_null(strstr(child.out, "\n0000:a0:00.0"));
    assert_non_null(strstr(child.err, lacks));
}

static int open_with_failing_context(const void *arg)
{
    motet_gpu *gpu = NULL;

    if (dlopen(arg, RTLD_NOW) == NULL)
        return 99;
    if (ops->open(0, &gpu) != MOTET_ERR_DEVICE || gpu != NULL)
        return 1;
    fprintf(stderr, "%s", motet_error_trail());
    return 0;
}

static void test_a_gpu_that_somebody_has_for_himself_is_said(void **state)
{
    static const char *const environment[] = { "FAULT_CONTEXT=46", NULL };
    child_result child;
    char path[1024];

    (void)state;
    if (folder() == NULL)
        skip();
    snprintf(path, sizeof(path), "%s/good/libcuda.so.1", folder());
    child = child_run(open_with_failing_context, path, environment);
    assert_int_equal(child.status, 0);
    assert_non_null(strstr(child.err, "context of device 0"));
    assert_non_null(strstr(child.err, "another process has the GPU for itself"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_is_a_sentence),
        cmocka_unit_test(test_a_driver_without_devices_is_no_sign_of_a_gpu),
        cmocka_unit_test(test_a_missing_feature_names_the_driver_that_has_it),
        cmocka_unit_test(test_a_gpu_that_somebody_has_for_himself_is_said),
    };

    return cmocka_run_group_tests_name("cuda_faults", tests, NULL, NULL);
}
