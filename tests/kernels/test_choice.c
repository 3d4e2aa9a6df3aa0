/* SPDX-License-Identifier: Apache-2.0 */
/* Which image a device gets, and what is said when there is none. */
#include "kernels/images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
        { "amd", "gfx1101", NULL }, /* no code object runs elsewhere   */
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
    assert_int_equal(motet_image_get("nvidia", "sm_90", &raw, &bytes), MOTET_OK);
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

static void test_missing_image_names_target_and_remedy(void **state)
{
    static const struct {
        const char *vendor, *target, *says, *too;
    } cases[] = {
        { "amd", "gfx1010:xnack-", "gfx1010:xnack-", "MOTET_AMDGPU_TARGETS=gfx1010," },
        { "nvidia", "sm_61", "sm_61", "from sm_70 on" },
        { "nvidia", "vega", "vega", "MOTET_NVIDIA_TARGETS" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        void *raw = &raw;
        size_t bytes = 42;

        assert_int_equal(motet_image_get(cases[i].vendor, cases[i].target, &raw,
                                 &bytes),
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
    assert_int_equal(motet_image_get("nvidia", "sm_75", &raw, &bytes),
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
        cmocka_unit_test(test_missing_image_names_target_and_remedy),
        cmocka_unit_test(test_damaged_image_is_refused),
    };

    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
