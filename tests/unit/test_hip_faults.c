/* SPDX-License-Identifier: Apache-2.0 */
/* What the HIP device says when the runtime is missing, old, another's or shows nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "device/device.h"
#include "device/hip_api.h"

#include <dlfcn.h>

/* Folders of the variants' libamdhip64.so.6 are below FAULT_HIP_DIR; LD_LIBRARY_PATH leads
 * to a driver of NVIDIA's, which has no device if FAULT_DEVICES says so. */
#define NO_CUDA          "FAULT_DEVICES=0"
#define LIBRARY(variant) "MOTET_HIP_LIB=" FAULT_HIP_DIR "/" variant "/libamdhip64.so.6"

typedef struct fault_case {
    const char *environment[5];
    motet_device_choice choice;
    motet_result result;
    const char *kind;    /* what is chosen, if something is */
    const char *said[4]; /* in the failure                  */
} fault_case;

static int choose(const void *arg)
{
    const fault_case *c = arg;
    const motet_device_ops *chosen = NULL;
    motet_result result = motet_device_choose_now(c->choice, &chosen);

    fprintf(stderr, "%s", motet_error_trail());
    if (chosen != NULL)
        printf("%s", chosen->name);
    return (int)result;
}

static void check_case(size_t number, const fault_case *c)
{
    const child_result child = child_run(choose, c, c->environment);

    if (child.status != (int)c->result ||
            strcmp(child.out, c->kind != NULL ? c->kind : "") != 0)
        fail_msg("case %zu: status %d, '%s'; %s", number, child.status, child.out,
                child.err);
    for (size_t i = 0; i < 4 && c->said[i] != NULL; i++)
        if (strstr(child.err, c->said[i]) == NULL)
            fail_msg("case %zu: no '%s' in: %s", number, c->said[i], child.err);
}

static void test_what_is_wrong_with_a_runtime_is_said(void **state)
{
    static const fault_case cases[] = {
        { { LIBRARY("good"), NO_CUDA }, MOTET_CHOOSE_AUTO, MOTET_OK, "hip", { NULL } },
        { { LIBRARY("good") }, MOTET_CHOOSE_HIP, MOTET_OK, "hip", { NULL } },
        { { LIBRARY("missing") }, MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE, NULL,
                { "a HIP communicator was asked for but no GPU can be used: ",
                        "/missing/libamdhip64.so.6" } },
        { { LIBRARY("mute") }, MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE, NULL,
                { "/mute/libamdhip64.so.6 is no HIP runtime",
                        "it has no hipRuntimeGetVersion" } },
        { { LIBRARY("old"), "FAULT_HIP_VERSION=40500000", NO_CUDA }, MOTET_CHOOSE_AUTO,
                MOTET_ERR_DEVICE, NULL,
                { "/old/libamdhip64.so.6 (HIP 4.5) has no "
                  "hipThreadExchangeStreamCaptureMode",
                        "need the runtime of ROCm 5.0 or newer",
                        "set MOTET_DEVICE=cpu" } },
        { { LIBRARY("good"), "FAULT_HIP_VERSION=12040" }, MOTET_CHOOSE_HIP,
                MOTET_ERR_DEVICE, NULL,
                { "says that it is version 12040", "another vendor's driver",
                        "MOTET_DEVICE=cuda" } },
        { { LIBRARY("good"), "FAULT_HIP_VERSION=0" }, MOTET_CHOOSE_HIP,
                MOTET_ERR_DEVICE, NULL,
                { "shows 1 devices and does not say its version" } },
        { { LIBRARY("missing"), "NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/dev/stderr" },
                MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE, NULL,
                { "HIP runtime: ", "/missing/libamdhip64.so.6 (override): absent" } },
        { { LIBRARY("good"), "FAULT_HIP_DEVICES=0" }, MOTET_CHOOSE_HIP,
                MOTET_ERR_DEVICE, NULL, { "(HIP 6.3): ", "HIP_VISIBLE_DEVICES" } },
        { { LIBRARY("good"), "FAULT_HIP_INIT=100" }, MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE,
                NULL, { "hipErrorNumber100", "no GPU is there that HIP takes" } },
        /* what Debian's says without a card */
        { { LIBRARY("good"), "FAULT_HIP_INIT=101", "FAULT_HIP_COUNT=100" },
                MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE, NULL,
                { "hipErrorNumber100", "no GPU is there that HIP takes" } },
        { { LIBRARY("good"), "FAULT_HIP_INIT=999", NO_CUDA }, MOTET_CHOOSE_AUTO,
                MOTET_ERR_DEVICE, NULL,
                { "hipErrorNumber999", "set MOTET_DEVICE=cpu" } },
        { { LIBRARY("good"), "FAULT_HIP_INIT=35" }, MOTET_CHOOSE_HIP, MOTET_ERR_DEVICE,
                NULL, { "the kernel's amdgpu driver is older" } },
        { { LIBRARY("good"), "MOTET_DEVICE=cpu", NO_CUDA }, MOTET_CHOOSE_AUTO, MOTET_OK,
                "cpu", { NULL } },
        { { LIBRARY("good"), "FAULT_HIP_DEVICES=0", "HIP_VISIBLE_DEVICES=3", NO_CUDA },
                MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                { "HIP_VISIBLE_DEVICES is '3'" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_case(i, &cases[i]);
}

/* ---- both vendors at once ---- */

static const char both_driver[] = FAULT_CUDA_DIR "/good/libcuda.so.1";
static const char both_runtime[] = FAULT_HIP_DIR "/good/libamdhip64.so.6";

typedef struct both_case {
    bool cuda, hip; /* mapped by the application */
    fault_case then;
} both_case;

static int choose_with_both(const void *arg)
{
    const both_case *c = arg;

    if ((c->cuda && dlopen(both_driver, RTLD_NOW | RTLD_LOCAL) == NULL) ||
            (c->hip && dlopen(both_runtime, RTLD_NOW | RTLD_LOCAL) == NULL)) {
        fprintf(stderr, "%s", dlerror());
        return 99;
    }
    return choose(&c->then);
}

/* libcuda.so.1 is found by LD_LIBRARY_PATH, which the build sets. */
static void test_the_mapped_runtime_decides(void **state)
{
    static const both_case cases[] = {
        { true, false, { .kind = "cuda" } },
        { false, true, { .kind = "hip" } },
        { false, true, { .choice = MOTET_CHOOSE_GPU, .kind = "hip" } },
        { true, false, { .choice = MOTET_CHOOSE_GPU, .kind = "cuda" } },
        { false, false, { { LIBRARY("good") }, .kind = "cuda" } },
        { false, false, { { LIBRARY("good"), "MOTET_DEVICE=hip" }, .kind = "hip" } },
        { false, false,
                { { LIBRARY("good") }, MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE, NULL,
                        { "GPUs of NVIDIA and of AMD can be used",
                                "set MOTET_DEVICE to cuda or hip" } } },
        { true, true,
                { { NULL }, MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, NULL,
                        { "set MOTET_DEVICE to cuda or hip" } } },
        { true, true, { { "MOTET_DEVICE=hip" }, .kind = "hip" } },
        { true, true, { { "MOTET_DEVICE=cuda" }, .kind = "cuda" } },
        { true, true, { { NULL }, .choice = MOTET_CHOOSE_HIP, .kind = "hip" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const fault_case *c = &cases[i].then;
        const child_result child =
                child_run(choose_with_both, &cases[i], c->environment);

        if (child.status != (int)c->result ||
                strcmp(child.out, c->kind != NULL ? c->kind : "") != 0)
            fail_msg("case %zu: status %d, '%s'; %s", i, child.status, child.out,
                    child.err);
        for (size_t k = 0; k < 4 && c->said[k] != NULL; k++)
            if (strstr(child.err, c->said[k]) == NULL)
                fail_msg("case %zu: no '%s' in: %s", i, c->said[k], child.err);
    }
}

/* ---- a runtime that AMD made ---- */

static const char *const required[] = {
#define NAME_REQUIRED(symbol) #symbol,
#define NAME_OPTIONAL(symbol)
#define NAME(need, symbol, returns, parameters, since, feature) NAME_##need(symbol)
    MOTET_HIP_FUNCTIONS(NAME)
#undef NAME
};

static int use_debians(const void *arg)
{
    void *runtime = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    int count = -1, lacks = 0;

    (void)arg;
    if (runtime == NULL || dlsym(runtime, "fakehip_kernel_add") != NULL)
        return 77;
    for (size_t i = 0; i < sizeof(required) / sizeof(*required); i++) {
        if (dlsym(runtime, required[i]) == NULL) {
            fprintf(stderr, "no %s\n", required[i]);
            lacks++;
        }
    }
    if (lacks != 0)
        return 1;
    if (motet_device_hip.count(&count) == MOTET_OK)
        return count > 0 ? 77 : 2; /* there is a card */
    fprintf(stderr, "%s", motet_error_trail());
    return count == -1 ? 3 : 4;
}

static void test_debians_runtime_has_all_that_is_required(void **state)
{
    /* It falls over where there is no variable at all. */
    const char *const environment[] = { "HOME=/", NULL };
    const child_result child = child_run(use_debians, NULL, environment);

    (void)state;
    if (child.status == 77)
        skip();
    if (child.status != 3)
        fail_msg("status %d\n%s", child.status, child.err);
    assert_non_null(strstr(child.err, "libamdhip64.so.5"));
    assert_non_null(strstr(child.err, "(HIP 5.2): "));
    assert_non_null(strstr(child.err, "hipErrorNoDevice"));
    if (access("/dev/kfd", F_OK) != 0)
        assert_non_null(strstr(child.err, "/dev/kfd is not there"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_with_a_runtime_is_said),
        cmocka_unit_test(test_the_mapped_runtime_decides),
        cmocka_unit_test(test_debians_runtime_has_all_that_is_required),
    };

    return cmocka_run_group_tests_name("hip_faults", tests, NULL, NULL);
}
