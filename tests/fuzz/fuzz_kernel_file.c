/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of MOTET_KERNEL_PATH, in a block of just their size. What a device
 * takes has the stamp of these sources, and a setting that the code knows nothing of
 * changes nothing.
 */
#include "kernels/images.h"

#include <motet_stamp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_kernel_file: %s\n", what);
    abort();
}

/* A seed has STAMP where the stamp goes: it changes with the sources. */
static char *with_stamp(const uint8_t *data, size_t bytes, size_t *bytes_out)
{
    static const char mark[] = "STAMP", stamp[] = MOTET_STAMP;
    const uint8_t *at = memmem(data, bytes, mark, strlen(mark));
    size_t before = at != NULL ? (size_t)(at - data) : bytes;
    size_t after = at != NULL ? bytes - before - strlen(mark) : 0;
    size_t length = at != NULL ? strlen(stamp) : 0;
    char *out = malloc(before + length + after + (before + length + after == 0));

    check(out != NULL, "no memory");
    memcpy(out, data, before);
    memcpy(out + before, stamp, length);
    memcpy(out + before + length, data + bytes - after, after);
    *bytes_out = before + length + after;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const targets[] = { "gfx1100", "gfx90a:sramecc+:xnack-",
        "gfx928", "" };
    size_t size;
    char *image = with_stamp(data, bytes, &size);

    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
        const char *unfit = motet_image_unfit(image, size, targets[i]);
        char more[64];

        snprintf(more, sizeof(more), "%s:other+", targets[i]);
        if (unfit == NULL) {
            char *stamp = memmem(image, size, MOTET_STAMP, sizeof(MOTET_STAMP));

            check(motet_image_unfit(image, size, more) == NULL, "a setting too many");
            check(stamp != NULL, "taken without a stamp");
        } else {
            check(unfit[0] != '\0', "no reason");
        }
    }
    free(image);
    return 0;
}
