/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kind of device a communicator gets. A CPU rank is never made silently where a
 * GPU was meant: among GPU ranks it would only be noticed by its slowness.
 */
#include "device/device.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

const motet_device_ops *const motet_devices[] = { &motet_device_cpu, NULL };

/* The words of MOTET_DEVICE in param.def. */
enum { WORD_AUTO, WORD_CPU };

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

static motet_result check_surroundings(const motet_params *params)
{
    static const motet_param_id signs[] = {
        MOTET_P_CUDA_VISIBLE_DEVICES,
        MOTET_P_HIP_VISIBLE_DEVICES,
        MOTET_P_ROCR_VISIBLE_DEVICES,
    };
    const char *driver = mapped_driver();

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        const char *text = motet_param_text(params, signs[i]);

        if (text[0] != '\0')
            return motet_fail(MOTET_ERR_DEVICE,
                    "%s is '%.40s' but this build has no GPU device: "
                    "unset it, or set MOTET_DEVICE=cpu for CPU ranks",
                    motet_param_table[signs[i]].name, text);
    }
    if (driver != NULL)
        return motet_fail(MOTET_ERR_DEVICE,
                "%s is loaded in this process but this build has no GPU device: "
                "set MOTET_DEVICE=cpu for CPU ranks",
                driver);
    return MOTET_OK;
}

motet_result motet_device_choose(const motet_params *params, motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    const int64_t word = motet_param(params, MOTET_P_DEVICE);
    char text[32];

    switch (choice) {
    case MOTET_CHOOSE_CPU: break;
    case MOTET_CHOOSE_GPU:
        return motet_fail(MOTET_ERR_DEVICE,
                "a GPU communicator was asked for but this build has no GPU device");
    case MOTET_CHOOSE_AUTO:
        if (word == WORD_CPU)
            break;
        if (word != WORD_AUTO) {
            motet_param_format(params, MOTET_P_DEVICE, text, sizeof(text));
            return motet_fail(MOTET_ERR_DEVICE,
                    "MOTET_DEVICE is '%s' but this build has no GPU device, need auto "
                    "or cpu",
                    text);
        }
        MOTET_TRY(check_surroundings(params), "choose a device");
        break;
    default:
        return motet_fail(MOTET_ERR_ARGUMENT, "device choice is %d, need 0..%d",
                (int)choice, (int)MOTET_CHOOSE_GPU);
    }
    *ops_out = &motet_device_cpu;
    return MOTET_OK;
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
