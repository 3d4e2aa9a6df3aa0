/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes behind what a fuzzer does not find by itself: packed as a CCOB of each version
 * or as a kpack archive's image, as the list of such an archive, as the YAML of an old
 * object, and as a target. The first byte says which.
 */
#include "images.h"
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define PAYLOAD_MAX 32768u

struct file {
    uint8_t data[PAYLOAD_MAX + 1024];
    size_t bytes;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_containers_packed: %s\n", what);
    abort();
}

static void put(struct file *f, const void *data, size_t bytes)
{
    check(f->bytes + bytes <= sizeof(f->data), "no room");
    memcpy(f->data + f->bytes, data, bytes);
    f->bytes += bytes;
}

static void put_number(struct file *f, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++, value >>= 8) {
        const uint8_t byte = (uint8_t)value;

        put(f, &byte, 1);
    }
}

/* A zstd frame of one stored block. */
static void put_zstd(struct file *f, const uint8_t *data, size_t bytes)
{
    put_number(f, 0xfd2fb528, 4);
    put_number(f, 0xa0, 1); /* one segment, its size in four bytes */
    put_number(f, bytes, 4);
    put_number(f, bytes << 3 | 1, 3); /* the last block, stored */
    put(f, data, bytes);
}

/* zlib's form, of one stored block. */
static void put_zlib(struct file *f, const uint8_t *data, size_t bytes)
{
    uint32_t a = 1, b = 0;

    put_number(f, 0x0178, 2);
    put_number(f, 1, 1);
    put_number(f, bytes, 2);
    put_number(f, ~bytes, 2);
    put(f, data, bytes);
    for (size_t i = 0; i < bytes; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    for (int shift = 24; shift >= 0; shift -= 8)
        put_number(f, (b << 16 | a) >> shift, 1);
}

static void put_ccob(struct file *f, unsigned version, unsigned method,
        const uint8_t *data, size_t bytes)
{
    const unsigned width = version == 3 ? 8 : 4;
    const size_t header = (version == 1 ? 20 : version == 2 ? 24 : 32);
    const size_t around = method == 0 ? 2 + 5 + 4 : 4 + 5 + 3;

    put(f, "CCOB", 4);
    put_number(f, version, 2);
    put_number(f, method, 2);
    if (version > 1)
        put_number(f, header + around + bytes, width);
    put_number(f, bytes, width);
    put_number(f, 0, 8);
    (method == 0 ? put_zlib : put_zstd)(f, data, bytes);
}

static void put_text(struct file *f, const char *text)
{
    put_number(f, 0xa0 | strlen(text), 1);
    put(f, text, strlen(text));
}

/* A kpack archive of one packed image. */
static void put_kpack(struct file *f, const uint8_t *data, size_t bytes)
{
    static const char *const numbers[] = { "zstd_offset", "zstd_size" };
    const size_t frame = 4 + 5 + 3 + bytes, region = 8 + frame;

    put(f, "KPAK", 4);
    put_number(f, 1, 4);
    put_number(f, 16 + region, 8);
    put_number(f, 1, 4);
    put_number(f, frame, 4);
    put_zstd(f, data, bytes);
    put_number(f, 0x84, 1);
    put_text(f, "compression_scheme");
    put_text(f, "zstd-per-kernel");
    for (size_t i = 0; i < 2; i++) {
        const uint64_t value = i == 0 ? 16 : region;

        put_text(f, numbers[i]);
        put_number(f, 0xcd, 1);
        put_number(f, value >> 8, 1);
        put_number(f, value, 1);
    }
    put_text(f, "toc");
    put_number(f, 0x81, 1);
    put_text(f, "lib.so#0");
    put_number(f, 0x81, 1);
    put_text(f, "gfx1100");
    put_number(f, 0x82, 1);
    put_text(f, "ordinal");
    put_number(f, 0, 1);
    put_text(f, "original_size");
    put_number(f, 0xcd, 1);
    put_number(f, bytes >> 8, 1);
    put_number(f, bytes, 1);
}

/* One whose list is the data. */
static void put_list(struct file *f, const uint8_t *data, size_t bytes)
{
    put(f, "KPAK", 4);
    put_number(f, 1, 4);
    put_number(f, 16, 8);
    put(f, data, bytes);
}

static bool count(const struct image *image, void *arg)
{
    check(image->object != NULL || image->why != NULL, "no reason");
    ++*(uint64_t *)arg;
    return true;
}

static void read_yaml(const uint8_t *data, size_t bytes)
{
    char why[CODEOBJ_WHY_MAX] = "";
    struct codeobj object = { .version = 2 };

    if (codeobj_yaml(data, bytes, 0, &object, why) != 0)
        check(why[0] != 0, "no reason for a document");
    else
        for (size_t i = 0; i < object.num_kernels; i++)
            check(object.kernels[i].name != NULL, "a kernel without a name");
    codeobj_clear(&object);
}

static void read_target(const uint8_t *data, size_t bytes)
{
    char text[CODEOBJ_TARGET_MAX];
    struct codeobj_target target;
    struct image_gpu gpu;

    snprintf(text, sizeof(text), "%.*s", (int)(bytes < 60 ? bytes : 60),
            (const char *)data);
    if (!image_gpu_of(text, &gpu))
        return;
    for (uint32_t flags = 0; flags < 0x1000; flags++) {
        codeobj_target_of(flags, 5, &target);
        check(image_fits(&target, &gpu) == 0 || target.generic ||
                        strcmp(target.processor, gpu.processor) == 0,
                "a stranger fits");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct file file;
    struct images_result result;
    uint64_t images = 0;
    unsigned way;

    if (bytes < 1 || bytes > PAYLOAD_MAX)
        return 0;
    way = *data++ % 10;
    bytes--;
    file.bytes = 0;
    if (way < 6)
        put_ccob(&file, 1 + way % 3, way / 3, data, bytes);
    else if (way == 6)
        put_kpack(&file, data, bytes);
    else if (way == 7)
        put_list(&file, data, bytes);
    else if (way == 8)
        read_yaml(data, bytes);
    else
        read_target(data, bytes);
    if (file.bytes == 0)
        return 0;
    images_read(file.data, file.bytes, NULL, count, &images, &result);
    check(images == result.images && images <= IMAGES_MAX, "a count");
    return 0;
}
