/* SPDX-License-Identifier: Apache-2.0 */
/* Our declarations of HIP beside AMD's headers, where they are installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/hip_api.h"

#include "hip_vendor.h"

#ifdef HIP_VENDOR

#define CONSTANT(name) { #name, (long long)(intptr_t)(name) },
#define LAYOUT(what)   { #what, (long long)(what) },

static const hip_fact ours[] = { HIP_CONSTANTS(CONSTANT) HIP_LAYOUTS(LAYOUT) };

static void test_numbers_and_layouts_are_amds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        assert_string_equal(ours[i].name, hip_vendor_facts[i].name);
        if (ours[i].value != hip_vendor_facts[i].value)
            fail_msg("%s: ours %lld, AMD's %lld", ours[i].name, ours[i].value,
                    hip_vendor_facts[i].value);
    }
}

static void test_what_differs_by_version_is_amds(void **state)
{
    const int is_new = hip_vendor_version >= 6000;

    (void)state;
    assert_int_equal(hip_vendor_properties,
            is_new ? HIP_PROP_R0600_BYTES : HIP_PROP_R0000_BYTES);
    assert_int_equal(hip_vendor_architecture,
            is_new ? HIP_PROP_R0600_ARCH : HIP_PROP_R0000_ARCH);
    assert_int_equal(hip_vendor_host,
            is_new ? HIP_MEMORY_R0600_HOST : HIP_MEMORY_R0000_HOST);
    assert_int_equal(hip_vendor_device,
            is_new ? HIP_MEMORY_R0600_DEVICE : HIP_MEMORY_R0000_DEVICE);
    assert_int_equal(hip_vendor_lazy,
            is_new ? hipIpcMemLazyEnablePeerAccess : HIP_IPC_LAZY_R0000);
    if (hip_vendor_uncached >= 0)
        assert_int_equal(hip_vendor_uncached, hipDeviceMallocUncached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_and_layouts_are_amds),
        cmocka_unit_test(test_what_differs_by_version_is_amds),
    };

    return cmocka_run_group_tests_name("hip_headers", tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* no headers of AMD's here */
}

#endif
