/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/images.h"
#include "kernels/unpack.h"

#include <stdlib.h>
#include <string.h>

/* The PTX says `.target sm_70`. */
#define OLDEST_FOR_PTX 70

static const motet_image *const tables[] = { motet_images_nvidia, motet_images_amd };

const motet_image *motet_image_at(size_t i)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++) {
        for (const motet_image *image = tables[t]; image->vendor != NULL; image++) {
            if (i-- == 0)
                return image;
        }
    }
    return NULL;
}

/* The first image of @p vendor whose name is the first @p length bytes of @p target. */
static const motet_image *exact(const char *vendor, const char *target, size_t length)
{
    const motet_image *image;

    for (size_t i = 0; (image = motet_image_at(i)) != NULL; i++) {
        if (strcmp(image->vendor, vendor) == 0 && strlen(image->target) == length &&
                memcmp(image->target, target, length) == 0)
            return image;
    }
    return NULL;
}

/* 90 for "sm_90" and "sm_90a", 0 for anything else. */
static unsigned capability(const char *target)
{
    unsigned number = 0;

    if (strncmp(target, "sm_", 3) != 0)
        return 0;
    for (const char *digit = target + 3; *digit >= '0' && *digit <= '9'; digit++) {
        number = number * 10 + (unsigned)(*digit - '0');
        if (number > 9999)
            return 0;
    }
    return number;
}

/* A cubin runs on devices of its major number whose minor number is not smaller. */
static const motet_image *find_nvidia(const char *target)
{
    const motet_image *image, *best = NULL;
    unsigned device = capability(target), found = 0;

    for (size_t i = 0; (image = motet_image_at(i)) != NULL; i++) {
        unsigned built = capability(image->target);

        if (strcmp(image->vendor, "nvidia") == 0 && built / 10 == device / 10 &&
                built <= device && built > found) {
            best = image;
            found = built;
        }
    }
    if (best == NULL && device >= OLDEST_FOR_PTX)
        best = exact("nvidia", "ptx", strlen("ptx"));
    return best;
}

const motet_image *motet_image_find(const char *vendor, const char *target)
{
    const motet_image *image = exact(vendor, target, strcspn(target, ":"));

    if (image == NULL && strcmp(vendor, "nvidia") == 0)
        image = find_nvidia(target);
    return image;
}

bool motet_target_fp8_fnuz(const char *target)
{
    const size_t length = strcspn(target, ":");

    return length == 6 && strncmp(target, "gfx94", 5) == 0 && target[5] >= '0' &&
            target[5] <= '2';
}

static bool unpack(const motet_image *image, void *raw)
{
    if (image->bytes == image->raw_bytes) {
        memcpy(raw, image->data, image->bytes);
        return true;
    }
#ifdef MOTET_ZSTD
    return motet_unpack(raw, image->raw_bytes, image->data, image->bytes);
#else
    return false;
#endif
}

motet_result motet_image_unpack(const motet_image *image, void **raw_out,
        size_t *bytes_out)
{
    char *raw = malloc(image->raw_bytes + 1);

    if (raw == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM,
                "allocate %zu bytes for the device code for %s", image->raw_bytes,
                image->target);
    if (!unpack(image, raw)) {
        free(raw);
        return motet_fail(MOTET_ERR_INTERNAL,
                "the device code for %s that is built in is damaged", image->target);
    }
    raw[image->raw_bytes] = 0;
    *raw_out = raw;
    *bytes_out = image->raw_bytes;
    return MOTET_OK;
}

static motet_result no_image(const char *vendor, const char *target)
{
    unsigned device = capability(target);

    if (strcmp(vendor, "amd") == 0)
        return motet_fail(MOTET_ERR_DEVICE,
                "no device code for %s is built in; `motet kernels build --target "
                "%.*s` "
                "makes it, with clang 19 and lld 19 or, by --cc, a vendor's clang",
                target, (int)strcspn(target, ":"), target);
    if (device > 0 && device < OLDEST_FOR_PTX)
        return motet_fail(MOTET_ERR_DEVICE,
                "no device code runs on %s: NVIDIA GPUs from sm_%d on are supported",
                target, OLDEST_FOR_PTX);
    return motet_fail(MOTET_ERR_DEVICE,
            "no device code for %s is built in; build motet with clang 19 and "
            "-DMOTET_NVIDIA_TARGETS=ptx",
            target);
}

motet_result motet_image_get(const char *list, const char *vendor, const char *target,
        void **raw_out, size_t *bytes_out)
{
    const motet_image *image = motet_image_find(vendor, target);

    if (strcmp(vendor, "amd") == 0 &&
            motet_image_from_files(list, target, raw_out, bytes_out))
        return MOTET_OK;
    if (image == NULL)
        return no_image(vendor, target);
    return motet_image_unpack(image, raw_out, bytes_out);
}

motet_result motet_image_get_portable(const char *vendor, void **raw_out,
        size_t *bytes_out)
{
    const motet_image *image = exact(vendor, "ptx", strlen("ptx"));

    if (image == NULL)
        return motet_fail(MOTET_ERR_DEVICE,
                "no device code that a driver of vendor %s translates is built in",
                vendor);
    return motet_image_unpack(image, raw_out, bytes_out);
}
