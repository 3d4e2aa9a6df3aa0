/* SPDX-License-Identifier: Apache-2.0 */
/* Which image a GPU takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "images.h"

static void test_a_gpu_prefers_its_own_code(void **state)
{
    static const struct {
        const char *gpu;
        uint32_t flags;
        int version, fits;
    } rows[] = {
        { "gfx1100", 0x41, 5, 8 }, { "gfx1101", 0x41, 5, 0 },
        { "gfx1101", 0x01000054, 6, 1 }, { "gfx1201", 0x01000054, 6, 0 },
        { "gfx1201", 0x01000059, 6, 1 }, { "gfx1036", 0x01000053, 6, 1 },
        { "gfx908", 0x01000051, 6, 0 }, { "gfx906", 0x01000051, 6, 1 },
        { "gfx942", 0x0100055f, 6, 1 }, { "gfx90a:xnack-", 0x53f, 5, 8 },
        { "gfx90a:xnack-", 0x63f, 5, 9 }, { "gfx90a:xnack-", 0x73f, 5, 0 },
        { "gfx90a:sramecc+:xnack-", 0xe3f, 5, 10 },
        { "gfx90a:sramecc-:xnack-", 0xe3f, 5, 0 },
        { "gfx90a", 0x73f, 5, 9 }, /* what the GPU is set to is not known */
    };
    struct codeobj_target target;
    struct image_gpu gpu;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_true(image_gpu_of(rows[i].gpu, &gpu));
        codeobj_target_of(rows[i].flags, rows[i].version, &target);
        if (image_fits(&target, &gpu) != rows[i].fits)
            fail_msg("%s on %s: %d, need %d", target.text, rows[i].gpu,
                    image_fits(&target, &gpu), rows[i].fits);
    }
}

static void test_a_gpu_not_known_whole_is_any_of_its_variants(void **state)
{
    struct image_gpu gpu, variant;
    unsigned seen_as = 0;

    (void)state;
    assert_true(image_gpu_of("gfx90a:xnack-", &gpu));
    for (unsigned i = 0; i < IMAGE_GPU_VARIANTS; i++) {
        variant = image_gpu_variant(&gpu, i);
        assert_string_equal(variant.processor, "gfx90a");
        assert_int_equal(variant.xnack, CODEOBJ_OFF);
        seen_as |= 1u << variant.sramecc;
    }
    assert_int_equal(seen_as, 1u << CODEOBJ_OFF | 1u << CODEOBJ_ON);
    assert_true(image_gpu_of("gfx90a", &gpu));
    seen_as = 0;
    for (unsigned i = 0; i < IMAGE_GPU_VARIANTS; i++) {
        variant = image_gpu_variant(&gpu, i);
        seen_as |= 1u << (2 * (variant.sramecc == CODEOBJ_ON) +
                           (variant.xnack == CODEOBJ_ON));
    }
    assert_int_equal(seen_as, 0xf);
}

static void test_targets_of_gpus_are_told_from_other_words(void **state)
{
    static const char *const bad[] = { "", "gfx", "gfx1", "1100", "gfx11-generic",
        "gfx1100:", "gfx1100:xnack", "gfx1100:xnack+:xnack-", "gfx1100:turbo+",
        "gfx1100 ", "gfxabcd", "sm_90", "gfx90a:xnack+x" };
    struct image_gpu gpu;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (image_gpu_of(bad[i], &gpu))
            fail_msg("'%s' is taken for a GPU", bad[i]);
    assert_true(image_gpu_of("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", &gpu));
    assert_string_equal(gpu.processor, "gfx90a");
    assert_int_equal(gpu.sramecc, CODEOBJ_ON);
    assert_int_equal(gpu.xnack, CODEOBJ_OFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gpu_prefers_its_own_code),
        cmocka_unit_test(test_a_gpu_not_known_whole_is_any_of_its_variants),
        cmocka_unit_test(test_targets_of_gpus_are_told_from_other_words),
    };

    return cmocka_run_group_tests_name("images_fit", tests, NULL, NULL);
}
