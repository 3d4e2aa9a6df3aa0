/* SPDX-License-Identifier: Apache-2.0 */
/* What makes libamdhip64.so of the core: its variables, its UUIDs, its images. */
#include "hip.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hip_settings hip_set;

/* HIP's UUID is the text that stands behind "GPU-": 16 digits, or "XX". */
static void uuid_of(unsigned physical, unsigned char uuid[16])
{
    char text[17];

    memset(uuid, 0, 16);
    if (!hip_set.uuids) {
        memcpy(uuid, "XX", 2);
        return;
    }
    snprintf(text, sizeof(text), "fa4e0000000000%02x", physical);
    memcpy(uuid, text, 16);
}

static void uuid_text(unsigned physical, char text[33])
{
    unsigned char uuid[16];

    uuid_of(physical, uuid);
    memcpy(text, uuid, 16);
    text[16] = '\0';
}

const char *hip_target(unsigned physical)
{
    return hip_set.target[physical];
}

void hip_target_numbers(const char *target, unsigned numbers[3])
{
    char name[16] = "";
    char *end = name;
    size_t length = strcspn(target, ":");

    memcpy(name, target, length < sizeof(name) ? length : sizeof(name) - 1);
    length = strlen(name);
    for (unsigned i = 2; i >= 1; i--) { /* the last two are one digit each */
        end = name + --length;
        numbers[i] = (unsigned)strtoul(end, NULL, 16);
        *end = '\0';
    }
    numbers[0] = (unsigned)strtoul(name + 3, NULL, 10);
}

static bool target_valid(const char *target)
{
    size_t digits = strspn(target + 3, "0123456789abcdef");

    return memcmp(target, "gfx", 3) == 0 && digits >= 3 && digits <= 5 &&
            (target[3 + digits] == '\0' || target[3 + digits] == ':');
}

/* Features that real cards of the target say they have. */
static void add_features(char target[64])
{
    static const char *const with_ecc[] = { "gfx906", "gfx908", "gfx90a", "gfx942",
        "gfx950" };

    for (size_t i = 0; i < sizeof(with_ecc) / sizeof(*with_ecc); i++)
        if (strcmp(target, with_ecc[i]) == 0)
            snprintf(target, 64, "%s:sramecc+:xnack-", with_ecc[i]);
    if (strcmp(target, "gfx900") == 0)
        snprintf(target, 64, "gfx900:xnack-");
}

/* Entry @p index of a list, or its last one. */
static void entry_of(const char *list, unsigned index, char *out, size_t bytes)
{
    size_t length = strcspn(list, ",");

    while (index-- > 0 && list[length] == ',') {
        list += length + 1;
        length = strcspn(list, ",");
    }
    snprintf(out, bytes, "%.*s", (int)length, list);
}

static CUresult load_targets(void)
{
    const char *override = getenv("HSA_OVERRIDE_GFX_VERSION");
    char name[64];
    const char *list = fake_load_text("TARGET", name);
    unsigned x, y, z;

    for (unsigned d = 0; d < FAKE_DEVICES; d++) {
        char *target = hip_set.target[d];

        entry_of(list != NULL ? list : "gfx1100", d, target, sizeof(hip_set.target[d]));
        if (!target_valid(target))
            return fake_load_refuse("TARGET", list, "gfxNNN[:feature±],…");
        if (override != NULL && *override != '\0') {
            if (sscanf(override, "%u.%u.%u", &x, &y, &z) != 3 || x > 99 || y > 15 ||
                    z > 15) {
                fprintf(stderr, "fakehip: HSA_OVERRIDE_GFX_VERSION is '%s'\n",
                        override);
                return CUDA_ERROR_INVALID_VALUE;
            }
            snprintf(target, sizeof(hip_set.target[d]), "gfx%u%x%x", x, y, z);
        }
        add_features(target);
    }
    return CUDA_SUCCESS;
}

static CUresult load_atomics(void)
{
    char name[64], entry[4];
    const char *list = fake_load_text("ATOMICS", name);

    for (unsigned d = 0; d < FAKE_DEVICES; d++) {
        entry_of(list != NULL ? list : "1", d, entry, sizeof(entry));
        if (strcmp(entry, "0") != 0 && strcmp(entry, "1") != 0)
            return fake_load_refuse("ATOMICS", list, "0|1,…");
        hip_set.atomics[d] = entry[0] == '1';
    }
    return CUDA_SUCCESS;
}

static CUresult load_numbers(void)
{
    uint64_t major;
    const fake_number numbers[] = {
        { "VERSION", &major, hip_variant_major, 5, 7 },
        { "INIT", &fake_set.init_code, 0, 0, 2000 },
        { "ALLOCATIONS", &hip_set.allocations, UINT64_MAX, 0, UINT64_MAX - 1 },
        { "STOP", &hip_set.stop_after, UINT64_MAX, 0, UINT64_MAX - 1 },
        { "STOP_CARD", &hip_set.stop_card, UINT64_MAX, 0, FAKE_DEVICES },
    };
    CUresult code = CUDA_SUCCESS;

    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof(numbers) / sizeof(*numbers);
            i++)
        code = fake_load_number(&numbers[i]);
    hip_set.major = (unsigned)major;
    fake_set.driver_version = major;
    return code;
}

static CUresult load_words(void)
{
    static const char *const refusals[] = { "launch", "sync", "last", "never", NULL };
    static const char *const ipcs[] = { "all", "noget", "noopen", NULL };
    static const char *const launches[] = { "run", "refuse", NULL };
    static const char *const stops[] = { "hang", "error", NULL };
    static const char *const yes_no[] = { "1", "0", NULL };
    int refusal, ipc, launch, stop, uuid, grain;
    const struct {
        const char *name;
        const char *const *words;
        int *out;
    } words[] = {
        { "REFUSE", refusals, &refusal },
        { "IPC", ipcs, &ipc },
        { "LAUNCH", launches, &launch },
        { "STOP_HOW", stops, &stop },
        { "UUIDS", yes_no, &uuid },
        { "FINEGRAIN", yes_no, &grain },
    };
    CUresult code = CUDA_SUCCESS;

    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof(words) / sizeof(*words); i++)
        code = fake_load_word(words[i].name, words[i].words, words[i].out);
    if (code != CUDA_SUCCESS)
        return code;
    hip_set.refusal = (enum hip_refusal)refusal;
    hip_set.ipc = (enum hip_ipc)ipc;
    hip_set.refuse_all = launch == 1;
    hip_set.stop_hangs = stop == 0;
    hip_set.uuids = uuid == 0;
    hip_set.fine_grained = grain == 0;
    return CUDA_SUCCESS;
}

static CUresult settings(void)
{
    char name[64];
    const char *hang = fake_load_text("HANG", name);
    CUresult code = load_numbers();

    if (code == CUDA_SUCCESS)
        code = load_words();
    if (code == CUDA_SUCCESS)
        code = load_targets();
    if (code == CUDA_SUCCESS)
        code = load_atomics();
    snprintf(hip_set.hang, sizeof(hip_set.hang), "%s", hang != NULL ? hang : "");
    fake_visible_filter("ROCR_VISIBLE_DEVICES");
    fake_visible_filter(getenv("HIP_VISIBLE_DEVICES") != NULL ? "HIP_VISIBLE_DEVICES"
                                                              : "CUDA_VISIBLE_DEVICES");
    return code;
}

const fake_face fake_the_face = {
    .name = "fakehip",
    .prefix = "FAKEHIP_",
    .settings = settings,
    .uuid = uuid_of,
    .uuid_text = uuid_text,
    .image = hip_image_read,
    .kernel = hip_kernel_find,
    .before_grid = hip_before_grid,
    .before_block = hip_before_block,
};
