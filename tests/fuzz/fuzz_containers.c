/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file with code for GPUs: what is handed over keeps its promises, the sum of
 * what is parsed stays a small multiple of what is there, and who cannot be read says why.
 */
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What a walk of small inputs may come to: images that are parsed count their bytes. */
#define PARSED_MAX(bytes) (4 * (uint64_t)(bytes) + (UINT64_C(1) << 20))

struct seen {
    uint64_t images, unread, plain_bytes;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_containers: %s\n", what);
    abort();
}

static bool is_tame(const char *text)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static bool visit(const struct image *image, void *arg)
{
    struct seen *seen = arg;

    seen->images++;
    seen->unread += image->object == NULL;
    check(image->container != NULL && image->container[0] != 0, "no container");
    check(image->member != NULL && is_tame(image->member), "a member");
    check(strlen(image->target) < sizeof(image->target) && is_tame(image->target),
            "a target");
    check(image->sha256[0] == 0 || strlen(image->sha256) == SHA256_TEXT - 1,
            "a digest");
    if (image->object == NULL) {
        check(image->why != NULL && strncmp(image->why, "offset ", 7) == 0 &&
                        is_tame(image->why),
                "no reason with an offset");
        return true;
    }
    check(image->sha256[0] != 0 && image->bytes > 0, "an object without bytes");
    check((image->class == IMAGE_NO_HOSTCALL) ==
                    (codeobj_count(image->object, CODEOBJ_HOSTCALL_BUFFER) == 0),
            "a class");
    if (strstr(image->container, "zlib") == NULL &&
            strstr(image->container, "zstd") == NULL)
        seen->plain_bytes += image->bytes;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct images_result result;
    struct seen seen = { 0 };

    images_read(data, bytes, NULL, visit, &seen, &result);
    check(seen.images == result.images && seen.unread == result.unread, "a count");
    check(seen.images <= IMAGES_MAX, "too many images");
    check(seen.plain_bytes <= PARSED_MAX(bytes), "parsed too often");
    check(result.why[0] == 0 ||
                    (strncmp(result.why, "offset ", 7) == 0 && is_tame(result.why)),
            "a problem without an offset");
    return 0;
}
