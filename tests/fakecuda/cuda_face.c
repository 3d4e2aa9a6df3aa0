/* SPDX-License-Identifier: Apache-2.0 */
/* What makes libcuda.so.1 of the core: its variables, its UUIDs, its images. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

static void uuid_of(unsigned physical, unsigned char uuid[16])
{
    static const unsigned char pattern[16] = "fakecuda-device";

    memcpy(uuid, pattern, 16);
    uuid[15] = (unsigned char)physical;
}

static void uuid_text(unsigned physical, char text[33])
{
    unsigned char uuid[16];

    uuid_of(physical, uuid);
    for (size_t b = 0; b < 16; b++)
        snprintf(text + 2 * b, 3, "%02x", uuid[b]);
}

static CUresult settings(void)
{
    static const char *const vmm[] = { "1", "0", NULL };
    const fake_number numbers[] = {
        { "DRIVER_VERSION", &fake_set.driver_version, 13000, 1, 99990 },
        { "INIT", &fake_set.init_code, 0, 0, 999 },
        { "STICKY", &fake_set.sticky_after, UINT64_MAX, 0, UINT64_MAX - 1 },
    };
    CUresult code = CUDA_SUCCESS;
    int without;

    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof(numbers) / sizeof(*numbers);
            i++)
        code = fake_load_number(&numbers[i]);
    if (code == CUDA_SUCCESS)
        code = fake_load_word("VMM", vmm, &without);
    if (code != CUDA_SUCCESS)
        return code;
    fake_set.vmm = without == 0;
    fake_visible_filter("CUDA_VISIBLE_DEVICES");
    return CUDA_SUCCESS;
}

const fake_face fake_the_face = {
    .name = "fakecuda",
    .prefix = "FAKECUDA_",
    .settings = settings,
    .uuid = uuid_of,
    .uuid_text = uuid_text,
    .image = fake_ptx_read,
};
