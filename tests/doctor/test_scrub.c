/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudonyms: what is hidden, and what has to stay. */
#include "scan.h"
#include "scrub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const char *scrubbed(struct dr_scrub *s, const char *text)
{
    size_t bytes = 0;

    return dr_scrub_text(s, text, strlen(text), &bytes);
}

static void test_identifiers_become_pseudonyms_and_the_rest_stays(void **state)
{
    static const char *const kept[] = { "0000:03:00.0 VGA", "00: 02 10 4c 74",
        "10.0.0.7", "192.168.1.20/24", "172.16.0.1", "192.0.2.44", "198.51.100.93",
        "203.0.113.5", "127.0.0.1", "169.254.3.4", "2001:db8::7", "::1", "RCCL 2.27.7",
        "6.8.12-4-pve", "12:34:56", "gadgets", "00:00:00:00:00:00", "NVIDIA 535.183.01",
        "/sys/devices/pci0000:00/0000:00:01.0/vendor:0x1002", "driver:amdgpu" };
    static const char *const hidden[] = { "gadget", "gadget$ uname", "user@gadget:~",
        "8.8.4.4", "connect to 8.8.4.4<4711>", "a8:a1:59:12:34:56",
        "address:a8:a1:59:12:34:56", "GPU-5c1c2f33-1234-5678-9abc-def012345678",
        "2a02:8070:1::5", "fe80::aaa1:59ff:fe12:3456", "Serial Number: 123ABC",
        "unique_id 17293822569102704640", "/home/erika/x", "SerialNumber: 4C53000" };
    struct doctor *d = doctor_new();
    struct dr_scrub s = { .d = d };

    (void)state;
    dr_scrub_name(&s, "host", "gadget");
    dr_scrub_name(&s, "user", "erika");
    dr_scrub_name(&s, "host", "pve");
    for (size_t i = 0; i < COUNT(kept); i++)
        assert_string_equal(scrubbed(&s, kept[i]), kept[i]);
    for (size_t i = 0; i < COUNT(hidden); i++) {
        const char *once = scrubbed(&s, hidden[i]);

        assert_string_not_equal(once, hidden[i]);
        assert_string_equal(once, scrubbed(&s, hidden[i]));
        assert_null(strstr(once, "gadget"));
        assert_null(strstr(once, "8.8.4.4"));
        assert_null(strstr(once, "59:12:34"));
        assert_null(strstr(once, "erika"));
    }
    assert_true(dr_scan(scrubbed(&s, "boot 1b7e4d90-27c4-4a83-b0b5-90f2d6a81e77"),
            "^boot %x-%x-%x-%x-%x%e", NULL));
    doctor_free(d);
}

static void test_identifiers_of_hardware_and_guests_are_hidden(void **state)
{
    static const char *const hidden[] = {
        "[ufw] IN=eth0 MAC=12:ab:cd:ef:99:88:22:ab:cd:ef:99:88:08:00 SRC=10.0.0.1",
        "-drive file=a,serial=99:88:X", "<serial>9988</serial>",
        "<entry name='serial'>9988 A</entry>", "{\"serial\":\"9988\",\"id\":\"a\"}",
        "node_guid:0002:c903:00ab:9988",
        "link/infiniband 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:ab:99:88"
    };
    struct doctor *d = doctor_new();
    struct dr_scrub s = { .d = d };
    struct dr_captures c = { 0 };
    static const char proxmox[] = "box$ qm config 104\nmachine: q35\nname: secretbox\n",
                      virsh[] = "<domain type='kvm'><name>secretbox</name></domain>\n",
                      qemu[] = "kvm -name guest=secretbox,debug-threads=on -m 1\n";

    (void)state;
    for (size_t i = 0; i < COUNT(hidden); i++) {
        const char *once = scrubbed(&s, hidden[i]);

        assert_null(strstr(once, "9988"));
        assert_null(strstr(once, "99:88"));
    }
    assert_string_equal(scrubbed(&s, hidden[2]), "<serial>serial-hidden</serial>");
    assert_non_null(strstr(scrubbed(&s, hidden[0]), ":08:00 SRC=10.0.0.1"));
    assert_non_null(strstr(scrubbed(&s, hidden[4]), "\"id\":\"a\"}"));
    dr_capture(d, &c, "qemu-server-104.conf", proxmox, sizeof(proxmox) - 1);
    dr_capture(d, &c, "libvirt-secretbox.xml", virsh, sizeof(virsh) - 1);
    dr_capture(d, &c, "qemu-99.txt", qemu, sizeof(qemu) - 1);
    dr_scrub_captures(&s, &c);
    for (uint32_t i = 0; i < c.num; i++) {
        assert_null(strstr(c.list[i].name, "secretbox"));
        assert_null(strstr(c.list[i].text, "secretbox"));
        assert_non_null(strstr(c.list[i].text, "guest-"));
    }
    assert_non_null(strstr(c.list[0].text, "machine: q35\n"));
    doctor_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identifiers_become_pseudonyms_and_the_rest_stays),
        cmocka_unit_test(test_identifiers_of_hardware_and_guests_are_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
