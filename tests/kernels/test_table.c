/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_images_table FILE...: the library holds the images that the build made, each
 * FILE under .../VENDOR/TARGET.EXT (AMD: motet-TARGET.co) and no other, and hands out
 * their very bytes.
 */
#include "kernels/images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char **files;
static size_t nfiles;

static void split(const char *path, char vendor[32], char target[32])
{
    const char *name = strrchr(path, '/'), *folder = name;

    assert_non_null(name);
    while (folder > path && folder[-1] != '/')
        folder--;
    (void)snprintf(vendor, 32, "%.*s", (int)(name - folder), folder);
    name += strncmp(name, "/motet-", 7) == 0 ? 7 : 1;
    (void)snprintf(target, 32, "%.*s", (int)strcspn(name, "."), name);
}

static void compare_with_file(const char *path, const char *raw, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    char *built = malloc(bytes + 1);

    if (file == NULL || built == NULL)
        fail_msg("cannot read %s", path);
    assert_int_equal(fread(built, 1, bytes + 1, file), bytes);
    assert_memory_equal(built, raw, bytes);
    assert_int_equal(raw[bytes], 0);
    (void)fclose(file);
    free(built);
}

static void test_images_are_the_files_of_the_build(void **state)
{
    char vendor[32], target[32];

    (void)state;
    for (size_t i = 0; i < nfiles; i++) {
        const motet_image *image;
        void *raw = NULL;
        size_t bytes = 0;

        split(files[i], vendor, target);
        image = motet_image_find(vendor, target);
        if (image == NULL || strcmp(image->target, target) != 0)
            fail_msg("%s for %s is not in the library", target, vendor);
        assert_int_equal(motet_image_get("/", vendor, target, &raw, &bytes), MOTET_OK);
        assert_int_equal(bytes, image->raw_bytes);
        assert_true(image->bytes <= bytes);
        compare_with_file(files[i], raw, bytes);
        /* As a file of MOTET_KERNEL_PATH the same code would be taken, too. */
        if (strcmp(vendor, "amd") == 0)
            assert_null(motet_image_unfit(raw, bytes, target));
        free(raw);
    }
}

static void test_there_are_no_others(void **state)
{
    size_t count = 0;

    (void)state;
    while (motet_image_at(count) != NULL)
        count++;
    assert_int_equal(count, nfiles);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_are_the_files_of_the_build),
        cmocka_unit_test(test_there_are_no_others),
    };

    files = argv + 1;
    nfiles = (size_t)argc - 1;
    return cmocka_run_group_tests_name("images of the build", tests, NULL, NULL);
}
