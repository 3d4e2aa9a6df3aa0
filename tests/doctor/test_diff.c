/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two captures. */
#include "diff.h"
#include "judged.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_facts_differ_and_moved_lines_do_not(void **state)
{
    struct doctor *a = judged("$ cat /proc/cmdline\nquiet iommu=pt\n"
                              "CONFIG_PCI_P2PDMA=y\n/sys/class/net/eth0/speed:10000\n"
                              "[   12.5] amdgpu: ring 1 at 0x1234\n"),
                  *b = judged("[   99.1] amdgpu: ring 1 at 0x9999\n"
                              "/sys/class/net/eth0/speed:1000\n"
                              "$ cat /proc/cmdline\niommu=off quiet\n"
                              "CONFIG_PCI_P2PDMA=y\n");
    struct dr_diff diff = { 0 };

    (void)state;
    dr_compare(a, b, &diff);
    assert_int_equal(diff.num, 2);
    assert_string_equal(diff.changes[0].what, "/sys/class/net/eth0/speed");
    assert_string_equal(diff.changes[0].before, "10000");
    assert_string_equal(diff.changes[0].after, "1000");
    assert_string_equal(diff.changes[1].what, "kernel command line: iommu");
    assert_string_equal(diff.changes[1].after, "off");
    doctor_free(a);
    doctor_free(b);
}

static void test_a_link_that_runs_slower_differs(void **state)
{
    static const char link[] =
            "03:00.0 VGA compatible controller: AMD [1002:744c]\n"
            "\tCapabilities: [64] Express (v2) Legacy Endpoint, MSI 00\n"
            "\t\tLnkSta:\tSpeed %s, Width x16\n";
    char text[2][256];
    struct doctor *a, *b;
    struct dr_diff diff = { 0 };

    (void)state;
    snprintf(text[0], sizeof(text[0]), link, "16GT/s");
    snprintf(text[1], sizeof(text[1]), link, "8GT/s");
    a = judged(text[0]);
    b = judged(text[1]);
    dr_compare(a, b, &diff);
    assert_true(diff.num > 0);
    assert_string_equal(diff.changes[0].what, "0000:03:00.0 GT/s");
    assert_string_equal(diff.changes[0].before, "16");
    assert_string_equal(diff.changes[0].after, "8");
    doctor_free(a);
    doctor_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts_differ_and_moved_lines_do_not),
        cmocka_unit_test(test_a_link_that_runs_slower_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
