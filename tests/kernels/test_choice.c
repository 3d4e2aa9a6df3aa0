/* SPDX-License-Identifier: Apache-2.0 */
/* Which image a device gets, and what is said when there is none. */
#include "kernels/images.h"

#include <elf.h>
#include <errno.h>
#include <motet_stamp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char ptx[] = { 'p', 't', 'x' };
static const char damaged[] = "\x28\xb5\x2f\xfd and then nothing that zstd wrote";

/* These take the place of the weak, empty tables that motet_objects brings. */
const motet_image motet_images_nvidia[] = {
    { "nvidia", "ptx", ptx, sizeof(ptx), sizeof(ptx) },
    { "nvidia", "sm_75", damaged, sizeof(damaged), 4096 },
    { "nvidia", "sm_80", ptx, 1, 1 },
    { "nvidia", "sm_86", ptx, 1, 1 },
    { "nvidia", "sm_100", ptx, 1, 1 },
    { NULL, NULL, NULL, 0, 0 },
};
const motet_image motet_images_amd[] = {
    { "amd", "gfx90a", ptx, 1, 1 },
    { "amd", "gfx1100", ptx, 1, 1 },
    { NULL, NULL, NULL, 0, 0 },
};

static void test_device_gets_the_image_that_runs_on_it(void **state)
{
    static const struct {
        const char *vendor, *target, *image;
    } cases[] = {
        { "nvidia", "ptx", "ptx" },
        { "nvidia", "sm_75", "sm_75" },
        { "nvidia", "sm_80", "sm_80" },
        { "nvidia", "sm_86", "sm_86" },
        { "nvidia", "sm_89", "sm_86" },  /* the newest that is not newer   */
        { "nvidia", "sm_87a", "sm_86" }, /* letters name variants           */
        { "nvidia", "sm_103", "sm_100" },
        { "nvidia", "sm_90", "ptx" },  /* no cubin of its major number    */
        { "nvidia", "sm_70", "ptx" },  /* sm_75 is of its major, but newer */
        { "nvidia", "sm_110", "ptx" }, /* 11.0, not 1.10                  */
        { "nvidia", "sm_121", "ptx" },
        { "nvidia", "sm_61", NULL }, /* older than the PTX              */
        { "nvidia", "sm_", NULL },
        { "nvidia", "sm_99999999999999999999", NULL },
        { "nvidia", "gfx1100", NULL },
        { "nvidia", "", NULL },
        { "amd", "gfx1100", "gfx1100" },
        { "amd", "gfx90a:sramecc+:xnack-", "gfx90a" },
        { "amd", "gfx90a:sramecc-:xnack+", "gfx90a" },
        { "amd", "gfx1100:", "gfx1100" },
        { "amd", "gfx1101", NULL }, /* no code object runs elsewhere   */
        { "amd", "gfx928", NULL },  /* Hygon's: built where they are   */
        { "amd", "gfx936:sramecc+:xnack-", NULL },
        { "amd", "gfx90", NULL },
        { "amd", "", NULL },
        { "amd", "gfx11", NULL },
        { "amd", "gfx11000", NULL },
        { "amd", "sm_80", NULL },
        { "amd", "ptx", NULL },
        { "intel", "ptx", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const motet_image *found = motet_image_find(cases[i].vendor, cases[i].target);

        if (cases[i].image == NULL
                        ? found != NULL
                        : found == NULL || strcmp(found->target, cases[i].image) != 0 ||
                                strcmp(found->vendor, cases[i].vendor) != 0)
            fail_msg("%s %s gets %s, not %s", cases[i].vendor, cases[i].target,
                    found == NULL ? "nothing" : found->target,
                    cases[i].image == NULL ? "nothing" : cases[i].image);
    }
}

static void test_all_images_are_listed(void **state)
{
    size_t count = 0;

    (void)state;
    while (motet_image_at(count) != NULL)
        count++;
    assert_int_equal(count, 7);
    assert_ptr_equal(motet_image_at(5), &motet_images_amd[0]);
    assert_null(motet_image_at(SIZE_MAX));
}

static void test_text_ends_with_a_nul_that_is_not_counted(void **state)
{
    void *raw = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(motet_image_get("", "nvidia", "sm_90", &raw, &bytes), MOTET_OK);
    assert_int_equal(bytes, 3);
    assert_string_equal(raw, "ptx");
    free(raw);
}

static void test_portable_image_is_text(void **state)
{
    void *raw = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(motet_image_get_portable("nvidia", &raw, &bytes), MOTET_OK);
    assert_string_equal(raw, "ptx");
    free(raw);
    assert_int_equal(motet_image_get_portable("amd", &raw, &bytes), MOTET_ERR_DEVICE);
    assert_int_equal(bytes, 3);
    assert_non_null(strstr(motet_error_trail(), "amd"));
}

/* What a code object is told apart by; the rest is left out. */
static size_t make_object(char *out, size_t room, const char *target, const char *stamp)
{
    Elf64_Ehdr head = { .e_machine = 224,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 1 };
    int length;

    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    length = snprintf(out + sizeof(head), room - sizeof(head),
            "\xad"
            "amdhsa.target\xd9\x20%s%s\xae"
            "amdhsa.version%cmotet kernels %s",
            "amdgcn-amd-amdhsa--", target, 0, stamp);
    assert_in_range(length, 1, room - sizeof(head) - sizeof(Elf64_Shdr) - 1);
    head.e_shoff = sizeof(head) + (size_t)length + 1;
    memcpy(out, &head, sizeof(head));
    memset(out + head.e_shoff, 0, sizeof(Elf64_Shdr));
    return head.e_shoff + sizeof(Elf64_Shdr);
}

static const struct file_case {
    const char *target, *stamp, *device, *unfit; /* NULL: it fits */
} file_cases[] = {
    { "gfx928", MOTET_STAMP, "gfx928", NULL },
    { "gfx928", MOTET_STAMP, "gfx928:sramecc+:xnack-", NULL },
    { "gfx90a:xnack-", MOTET_STAMP, "gfx90a:sramecc+:xnack-", NULL },
    { "gfx90a:sramecc+:xnack-", MOTET_STAMP, "gfx90a:sramecc+:xnack-", NULL },
    { "gfx90a:xnack+", MOTET_STAMP, "gfx90a:sramecc+:xnack-", "another device" },
    { "gfx928", MOTET_STAMP, "gfx92", "another device" },
    { "gfx92", MOTET_STAMP, "gfx928", "another device" },
    { "gfx11-generic", MOTET_STAMP, "gfx11", "another device" },
    { "gfx928", MOTET_STAMP "0", "gfx928", "another motet" },
    { "gfx928", "", "gfx928", "another motet" },
};

static void test_object_in_a_file_must_be_for_the_device_and_of_these_sources(
        void **state)
{
    char object[512];

    (void)state;
    for (size_t i = 0; i < sizeof(file_cases) / sizeof(*file_cases); i++) {
        const struct file_case *c = &file_cases[i];
        size_t bytes = make_object(object, sizeof(object), c->target, c->stamp);
        const char *unfit = motet_image_unfit(object, bytes, c->device);

        if (c->unfit == NULL ? unfit != NULL
                             : unfit == NULL || !strstr(unfit, c->unfit))
            fail_msg("%s of %s for %s: %s", c->target, c->stamp, c->device, unfit);
    }
    size_t bytes = make_object(object, sizeof(object), "gfx928", MOTET_STAMP);
    for (size_t less = 1; less < bytes; less++)
        assert_non_null(motet_image_unfit(object, bytes - less, "gfx928"));
    object[0]++;
    assert_string_equal(motet_image_unfit(object, bytes, "gfx928"),
            "it is no code object for AMD GPUs");
}

/* Tables that end behind the file, or nowhere. */
static void test_object_in_a_file_must_be_whole(void **state)
{
    static const struct {
        uint64_t phoff, shoff;
        uint16_t phnum, shnum;
    } rows[] = {
        { 0, 0, 0, 0 },
        { 0, 0, 0, 1 },
        { 0, 449, 0, 1 },
        { 0, UINT64_MAX, 0, 1 },
        { 0, UINT64_MAX - 63, 0, 1 },
        { 0, 64, 0, UINT16_MAX },
        { 457, 64, 1, 1 },
        { UINT64_MAX - 55, 64, 1, 1 },
        { 64, 64, UINT16_MAX, 1 },
    };
    char object[512] = "";
    Elf64_Ehdr head;

    (void)state;
    (void)make_object(object, sizeof(object), "gfx928", MOTET_STAMP);
    memcpy(&head, object, sizeof(head));
    head.e_phentsize = sizeof(Elf64_Phdr);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *unfit;

        head.e_phoff = rows[i].phoff;
        head.e_phnum = rows[i].phnum;
        head.e_shoff = rows[i].shoff;
        head.e_shnum = rows[i].shnum;
        memcpy(object, &head, sizeof(head));
        unfit = motet_image_unfit(object, sizeof(object), "gfx928");
        if (unfit == NULL || strcmp(unfit, "it is not whole") != 0)
            fail_msg("row %zu: %s", i, unfit == NULL ? "it fits" : unfit);
    }
    head.e_phoff = 456;
    head.e_phnum = 1;
    head.e_shoff = 448;
    head.e_shnum = 1;
    memcpy(object, &head, sizeof(head));
    assert_null(motet_image_unfit(object, sizeof(object), "gfx928"));
}

static void write_object(const char *path, const char *target)
{
    char object[512];
    size_t bytes = make_object(object, sizeof(object), target, MOTET_STAMP);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(object, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Two folders, of which one has code for another device under the right name. */
static void test_files_come_before_what_is_built_in(void **state)
{
    char base[] = "/tmp/motet-images-XXXXXX", path[5][64], list[300];
    void *raw = NULL;
    size_t bytes = 0;

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(path[0], sizeof(path[0]), "%s/a", base);
    snprintf(path[1], sizeof(path[1]), "%s/motet", base);
    snprintf(path[2], sizeof(path[2]), "%s/motet/kernels", base);
    snprintf(path[3], sizeof(path[3]), "%s/a/motet-gfx1100.co", base);
    snprintf(path[4], sizeof(path[4]), "%s/motet/kernels/motet-gfx1100.co", base);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(path[i], 0700), 0);
    write_object(path[3], "gfx1101");
    write_object(path[4], "gfx1100");

    snprintf(list, sizeof(list), ":%s/none:%s:%s:%s", base, path[3], path[0], path[2]);
    assert_int_equal(motet_image_get(list, "amd", "gfx1100", &raw, &bytes), MOTET_OK);
    assert_in_range(bytes, 100, 512);
    assert_int_equal(((char *)raw)[bytes], 0);
    free(raw);
    /* By name a file may be for another target than its own. */
    assert_true(motet_image_from_files(path[3], "gfx1101", &raw, &bytes));
    free(raw);
    assert_false(motet_image_from_files(path[0], "gfx1101", &raw, &bytes));
    assert_false(motet_image_from_files(list, "gfx90a", &raw, &bytes));
    assert_int_equal(motet_image_get(path[0], "amd", "gfx1100", &raw, &bytes),
            MOTET_OK);
    assert_int_equal(bytes, 1); /* the one that is built in */
    free(raw);

    setenv("XDG_DATA_HOME", base, 1);
    assert_true(motet_image_from_files("", "gfx1100", &raw, &bytes));
    free(raw);
    setenv("XDG_DATA_HOME", path[0], 1);
    assert_false(motet_image_from_files("", "gfx1100", &raw, &bytes));
    for (int i = 4; i >= 0; i--)
        assert_int_equal(remove(path[i]), 0);
    assert_int_equal(remove(base), 0);
}

/* A FIFO that nobody writes to, and a folder where a file should be: neither is waited for
 * nor taken. */
static void test_what_is_no_file_is_passed_over(void **state)
{
    char base[] = "/tmp/motet-images-XXXXXX", path[64];
    void *raw = NULL;
    size_t bytes = 0;

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(path, sizeof(path), "%s/motet-gfx1100.co", base);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10); /* instead of a hang */
    assert_false(motet_image_from_files(path, "gfx1100", &raw, &bytes));
    assert_int_equal(errno, EINVAL);
    assert_false(motet_image_from_files(base, "gfx1100", &raw, &bytes));
    alarm(0);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(motet_image_from_files(base, "gfx1100", &raw, &bytes));
    assert_int_equal(errno, EISDIR);
    assert_null(raw);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(base), 0);
}

static void test_fp8_is_fnuz_on_gfx942(void **state)
{
    (void)state;
    assert_true(motet_target_fp8_fnuz("gfx942"));
    assert_true(motet_target_fp8_fnuz("gfx942:sramecc+:xnack-"));
    assert_true(motet_target_fp8_fnuz("gfx940"));
    assert_false(motet_target_fp8_fnuz("gfx950"));
    assert_false(motet_target_fp8_fnuz("gfx9420"));
    assert_false(motet_target_fp8_fnuz("gfx1201"));
    assert_false(motet_target_fp8_fnuz("sm_90"));
    assert_false(motet_target_fp8_fnuz(""));
}

static void test_missing_image_names_target_and_remedy(void **state)
{
    static const struct {
        const char *vendor, *target, *says, *too;
    } cases[] = {
        { "amd", "gfx1010:xnack-", "gfx1010:xnack-",
                "kernels build --target gfx1010`" },
        { "nvidia", "sm_61", "sm_61", "from sm_70 on" },
        { "nvidia", "vega", "vega", "MOTET_NVIDIA_TARGETS" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        void *raw = &raw;
        size_t bytes = 42;

        assert_int_equal(motet_image_get("/nowhere", cases[i].vendor, cases[i].target,
                                 &raw, &bytes),
                MOTET_ERR_DEVICE);
        assert_ptr_equal(raw, &raw);
        assert_int_equal(bytes, 42);
        assert_non_null(strstr(motet_error_trail(), cases[i].says));
        assert_non_null(strstr(motet_error_trail(), cases[i].too));
    }
}

static void test_damaged_image_is_refused(void **state)
{
    void *raw = NULL;
    size_t bytes = 42;

    (void)state;
    assert_int_equal(motet_image_get("", "nvidia", "sm_75", &raw, &bytes),
            MOTET_ERR_INTERNAL);
    assert_null(raw);
    assert_int_equal(bytes, 42);
    assert_non_null(strstr(motet_error_trail(), "sm_75"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_gets_the_image_that_runs_on_it),
        cmocka_unit_test(test_all_images_are_listed),
        cmocka_unit_test(test_text_ends_with_a_nul_that_is_not_counted),
        cmocka_unit_test(test_portable_image_is_text),
        cmocka_unit_test(
                test_object_in_a_file_must_be_for_the_device_and_of_these_sources),
        cmocka_unit_test(test_object_in_a_file_must_be_whole),
        cmocka_unit_test(test_files_come_before_what_is_built_in),
        cmocka_unit_test(test_what_is_no_file_is_passed_over),
        cmocka_unit_test(test_fp8_is_fnuz_on_gfx942),
        cmocka_unit_test(test_missing_image_names_target_and_remedy),
        cmocka_unit_test(test_damaged_image_is_refused),
    };

    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
