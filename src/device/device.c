/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kind of device a communicator gets. A CPU rank is never made silently where a
 * GPU was meant: among GPU ranks it would only be noticed by its slowness.
 */
#include "device/device.h"

#include "base/log.h"
#include "device/cuda.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const motet_device_ops *const motet_devices[] = { &motet_device_cuda, &motet_device_cpu,
    NULL };

/* The words of MOTET_DEVICE in param.def. */
enum { WORD_AUTO, WORD_CPU, WORD_GPU, WORD_CUDA, WORD_HIP };

static int note_driver(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    static const char *const drivers[] = {
        "libcuda.so",
        "libamdhip64.so",
        "libgalaxyhip.so",
    };
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    const char **found = arg;

    (void)bytes;
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++) {
        if (strncmp(name, drivers[i], strlen(drivers[i])) == 0) {
            *found = drivers[i];
            return 1;
        }
    }
    return 0;
}

/* A GPU runtime that is mapped in this process, or NULL. */
static const char *mapped_driver(void)
{
    const char *found = NULL;

    dl_iterate_phdr(note_driver, &found);
    return found;
}

/* Why the automatic choice may not fall on the CPU, though @p why no GPU can be used. */
static motet_result check_surroundings(const motet_params *params, const char *why)
{
    static const motet_param_id signs[] = {
        MOTET_P_CUDA_VISIBLE_DEVICES,
        MOTET_P_HIP_VISIBLE_DEVICES,
        MOTET_P_ROCR_VISIBLE_DEVICES,
    };

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        const char *text = motet_param_text(params, signs[i]);

        if (text[0] != '\0')
            return motet_fail(MOTET_ERR_DEVICE,
                    "%s is '%.40s' but no GPU can be used (%.500s): unset it, or set "
                    "MOTET_DEVICE=cpu for CPU ranks",
                    motet_param_table[signs[i]].name, text, why);
    }
    return MOTET_OK;
}

/* The automatic choice: a GPU, if there is one; else a CPU rank, if nothing says that a
 * GPU was meant. @p mapped was mapped before we looked, or is NULL. */
static motet_result choose_auto(const motet_params *params, const char *mapped,
        const motet_device_ops **ops_out)
{
    const motet_cuda_standing standing = motet_cuda_look();
    char why[MOTET_ERROR_TRAIL_MAX];

    if (standing == MOTET_CUDA_USABLE) {
        *ops_out = &motet_device_cuda;
        return MOTET_OK;
    }
    snprintf(why, sizeof(why), "%s", motet_error_trail());
    MOTET_TRY(check_surroundings(params, why), "choose a device");
    if (mapped != NULL)
        return motet_fail(MOTET_ERR_DEVICE,
                "%s is loaded in this process but no GPU can be used (%.600s): set "
                "MOTET_DEVICE=cpu for CPU ranks",
                mapped, why);
    if (standing == MOTET_CUDA_BROKEN)
        return motet_fail(MOTET_ERR_DEVICE,
                "no GPU can be used: %.700s; set MOTET_DEVICE=cpu for CPU ranks", why);
    motet_info(MOTET_SUB_INIT, "CPU ranks: %s", why);
    motet_error_clear();
    *ops_out = &motet_device_cpu;
    return MOTET_OK;
}

/* A GPU and nothing else; @p asked says who wants it. */
static motet_result choose_gpu(const char *asked, const motet_device_ops **ops_out)
{
    MOTET_TRY(motet_cuda_open(), "%s but no GPU can be used", asked);
    *ops_out = &motet_device_cuda;
    return MOTET_OK;
}

static motet_result choose_word(const motet_params *params,
        const motet_device_ops **ops_out)
{
    /* First of all: the look for a driver maps one. */
    const char *mapped = mapped_driver();
    char text[32], asked[64];

    motet_param_format(params, MOTET_P_DEVICE, text, sizeof(text));
    snprintf(asked, sizeof(asked), "MOTET_DEVICE is '%s'", text);
    switch (motet_param(params, MOTET_P_DEVICE)) {
    case WORD_CPU: *ops_out = &motet_device_cpu; return MOTET_OK;
    case WORD_GPU:
    case WORD_CUDA: return choose_gpu(asked, ops_out);
    case WORD_HIP:
        return motet_fail(MOTET_ERR_DEVICE,
                "%s but this build has no AMD device, need auto, cpu, gpu or cuda",
                asked);
    default: return choose_auto(params, mapped, ops_out);
    }
}

motet_result motet_device_choose(const motet_params *params, motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    switch (choice) {
    case MOTET_CHOOSE_CPU: *ops_out = &motet_device_cpu; return MOTET_OK;
    case MOTET_CHOOSE_GPU:
        return choose_gpu("a GPU communicator was asked for", ops_out);
    case MOTET_CHOOSE_AUTO: return choose_word(params, ops_out);
    default:
        return motet_fail(MOTET_ERR_ARGUMENT, "device choice is %d, need 0..%d",
                (int)choice, (int)MOTET_CHOOSE_GPU);
    }
}

motet_result motet_device_choose_now(motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    motet_params *params = NULL;
    motet_result result = motet_params_new(&params);

    if (result == MOTET_OK)
        result = motet_device_choose(params, choice, ops_out);
    free(params);
    return result;
}
