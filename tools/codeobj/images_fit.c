/* SPDX-License-Identifier: Apache-2.0 */
/* Which image a GPU takes. Families: LLVM's AMDGPUUsage, "Generic processor". */
#include "images.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct {
    const char *family, *members[12];
} families[] = {
    { "gfx9-generic",    { "gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c" } },
    { "gfx9-4-generic",  { "gfx940", "gfx941", "gfx942", "gfx950" } },
    { "gfx10-1-generic", { "gfx1010", "gfx1011", "gfx1012", "gfx1013" } },
    { "gfx10-3-generic", { "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034",
                           "gfx1035", "gfx1036" } },
    { "gfx11-generic",   { "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150",
                           "gfx1151", "gfx1152", "gfx1153", "gfx1154" } },
    { "gfx11-7-generic", { "gfx1170", "gfx1171", "gfx1172" } },
    { "gfx12-generic",   { "gfx1200", "gfx1201" } },
    { "gfx12-5-generic", { "gfx1250", "gfx1251" } },
    { "gfx13-generic",   { "gfx1310" } },
};
/* clang-format on */

/* Preferred is the own processor, then features that are named. */
enum { FITS_FAMILY = 1, FITS_PROCESSOR = 8, FITS_SETTING = 1 };

static bool family_has(const char *family, const char *processor)
{
    const size_t rows = sizeof(families) / sizeof(*families);
    const size_t most = sizeof(families[0].members) / sizeof(families[0].members[0]);

    for (size_t i = 0; i < rows; i++)
        for (size_t m = 0; m < most && families[i].members[m] != NULL; m++)
            if (strcmp(families[i].family, family) == 0 &&
                    strcmp(families[i].members[m], processor) == 0)
                return true;
    return false;
}

/* How well code that asks for @p code runs where the feature is @p gpu; −1: not. */
static int setting_fits(enum codeobj_setting code, enum codeobj_setting gpu)
{
    if (code < CODEOBJ_OFF)
        return 0;
    if (gpu < CODEOBJ_OFF)
        return FITS_SETTING;
    return code == gpu ? FITS_SETTING : -1;
}

int image_fits(const struct codeobj_target *target, const struct image_gpu *gpu)
{
    const int xnack = setting_fits(target->xnack, gpu->xnack);
    const int sramecc = setting_fits(target->sramecc, gpu->sramecc);
    int base = 0;

    if (strcmp(target->processor, gpu->processor) == 0)
        base = FITS_PROCESSOR;
    else if (target->generic && family_has(target->processor, gpu->processor))
        base = FITS_FAMILY;
    if (base == 0 || xnack < 0 || sramecc < 0)
        return 0;
    return base + xnack + sramecc;
}

struct image_gpu image_gpu_variant(const struct image_gpu *gpu, unsigned i)
{
    struct image_gpu out = *gpu;

    if (out.sramecc < CODEOBJ_OFF)
        out.sramecc = (i & 1) != 0 ? CODEOBJ_ON : CODEOBJ_OFF;
    if (out.xnack < CODEOBJ_OFF)
        out.xnack = (i & 2) != 0 ? CODEOBJ_ON : CODEOBJ_OFF;
    return out;
}

/* "gfx", a number of the family, and two digits more, of which the last two are
 * hexadecimal. */
static bool is_processor(const char *text, size_t length)
{
    if (length < 6 || length > 8 || strncmp(text, "gfx", 3) != 0)
        return false;
    for (size_t i = 3; i < length; i++)
        if (!(isdigit((unsigned char)text[i]) ||
                    (i >= length - 2 && text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

/* One ":feature+"; where it ends, or NULL. */
static const char *read_setting(const char *text, struct image_gpu *out)
{
    static const char *const names[] = { ":sramecc", ":xnack" };
    enum codeobj_setting *const settings[] = { &out->sramecc, &out->xnack };

    for (size_t i = 0; i < 2; i++) {
        const size_t length = strlen(names[i]);

        if (strncmp(text, names[i], length) != 0 || *settings[i] != CODEOBJ_NOT_THERE)
            continue;
        if (text[length] != '+' && text[length] != '-')
            return NULL;
        *settings[i] = text[length] == '+' ? CODEOBJ_ON : CODEOBJ_OFF;
        return text + length + 1;
    }
    return NULL;
}

bool image_gpu_of(const char *text, struct image_gpu *out)
{
    const char *triple = strstr(text, "--");
    size_t length;

    memset(out, 0, sizeof(*out));
    if (triple != NULL)
        text = triple + 2;
    length = strcspn(text, ":");
    if (!is_processor(text, length))
        return false;
    memcpy(out->processor, text, length);
    text += length;
    while (text != NULL && *text != 0)
        text = read_setting(text, out);
    return text != NULL;
}

bool image_target_of(const char *text, struct codeobj_target *out)
{
    const size_t length = strcspn(text, ":");
    char like[CODEOBJ_TARGET_MAX];
    struct image_gpu gpu;

    memset(out, 0, sizeof(*out));
    out->generic = memmem(text, length, "-generic", 8) != NULL;
    /* A family is no GPU, but has the same features. */
    snprintf(like, sizeof(like), "%s%s", out->generic ? "gfx900" : "",
            out->generic ? text + length : text);
    if (length >= sizeof(out->processor) || !image_gpu_of(like, &gpu))
        return false;
    memcpy(out->processor, text, length);
    snprintf(out->text, sizeof(out->text), "%s", text);
    out->sramecc = gpu.sramecc;
    out->xnack = gpu.xnack;
    return true;
}

const char *image_class_name(enum image_class class)
{
    switch (class) {
    case IMAGE_REAL: return "real";
    case IMAGE_CONSERVATIVE: return "conservative";
    case IMAGE_STRIPPED: return "unknown";
    default: return "none";
    }
}
