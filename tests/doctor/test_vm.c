/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of virtual machines: the vectors of Proxmox, QEMU and libvirt, the version
 * that runs, and what `--vm` says. */
#include "rules.h"
#include "vm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

#define MULTI  (1u << DR_ATOMICS_VM_MULTIFUNCTION)
#define NOPORT (1u << DR_ATOMICS_VM_NO_ROOT_PORT)
#define OLD    (1u << DR_ATOMICS_VM_QEMU_TOO_OLD)
#define GOOD   (1u << DR_ATOMICS_VM_LAYOUT_OK)

/* The codes of this family fit into a word. */
_Static_assert(DR_ATOMICS_VM_LAYOUT_OK < 32, "");
#define FAMILY (MULTI | NOPORT | OLD | GOOD)

static unsigned family_of(struct doctor *d)
{
    unsigned out = 0;

    for (uint32_t i = 0; i < d->num_findings; i++)
        if (d->findings[i].code < 32)
            out |= (1u << d->findings[i].code) & FAMILY;
    return out;
}

static struct doctor *judged(const char *name, const char *text)
{
    struct doctor *d = doctor_new();

    doctor_add(d, name, text, strlen(text));
    doctor_judge(d);
    return d;
}

#define Q35 "machine: q35\n"
#define LONG_CONF \
    "agent: 1\nbios: ovmf\ncores: 8\nmemory: 8192\nostype: l26\nsockets: 1\n"
#define QEMU "qemu-system-x86_64 -machine q35,accel=kvm "
#define PORT "-device pcie-root-port,id=rp1,bus=pcie.0,chassis=1 "

static const struct vector {
    const char *what, *file, *text;
    unsigned codes;
} vectors[] = {
    { "whole slot", "104.conf", "hostpci0: 0000:0b:00,pcie=1\n" Q35, MULTI },
    { "function 0", "104.conf", "hostpci0: 0000:0b:00.0,pcie=1\n" Q35, GOOD },
    { "without a domain", "104.conf", "hostpci0: 0b:00.0,pcie=1\n" Q35, GOOD },
    { "host= spelt out", "104.conf", "hostpci0: host=0b:00,pcie=1\n" Q35, MULTI },
    { "no pcie=1", "104.conf", "hostpci0: 0000:0b:00.0\n" Q35, NOPORT },
    { "pcie=0", "104.conf", "hostpci0: 0000:0b:00.0,pcie=0\n" Q35, NOPORT },
    { "not q35", "104.conf", "hostpci0: 0000:0b:00.0,pcie=1\nmachine: pc-i440fx-8.1\n",
            NOPORT },
    { "the default machine", "104.conf", "hostpci0: 0000:0b:00.0,pcie=1\n" LONG_CONF,
            NOPORT },
    { "a grep without the machine", "s.txt",
            "root@pve:~# qm config 104 | grep hostpci\nhostpci0: 0000:0b:00.0,pcie=1\n",
            0 },
    { "JSON of pvesh, the machine in it", "s.txt",
            "{\n   \"hostpci0\" : \"0000:0b:00.0,pcie=1\",\n"
            "   \"machine\" : \"pc-i440fx-9.0\",\n}\n",
            NOPORT },
    { "a monitor with a prompt of its own", "s.txt",
            "# qm monitor 104\nqm> info version\n6.1.0pve-qemu-kvm_6.1.0-3\n"
            "# cat /etc/pve/qemu-server/104.conf\nhostpci0: 0b:00.0,pcie=1\n" Q35,
            OLD },
    { "dpkg-query", "s.txt",
            "qemu-system-x86\t1:6.2+dfsg-2ubuntu6.22\n" QEMU PORT
            "-device vfio-pci,host=0b:00.0,bus=rp1\n",
            OLD },
    { "a grep of files", "s.txt",
            "/etc/pve/qemu-server/104.conf:hostpci0: 0000:0b:00,pcie=1\n", MULTI },
    { "several functions", "104.conf", "hostpci0: 0b:00.0;0b:00.1,pcie=1\n" Q35,
            MULTI },
    { "its sound beside it", "104.conf",
            "hostpci0: 0b:00.0,pcie=1\nhostpci1: 0b:00.1,pcie=1\n" Q35, GOOD },
    { "one of two", "104.conf",
            "hostpci0: 0b:00.0,pcie=1\nhostpci1: 0c:00,pcie=1,x-vga=1\n" Q35, MULTI },
    { "a mapping to .0", "all.txt",
            "# cat /etc/pve/mapping/pci.cfg\ngpu0\n\tmap id=1002:744c,node=pve,"
            "path=0000:0b:00.0\n# qm config 104\nhostpci0: mapping=gpu0,pcie=1\n" Q35,
            GOOD },
    { "a mapping to the slot", "all.txt",
            "# cat /etc/pve/mapping/pci.cfg\ngpu0\n\tmap id=1002:744c,iommugroup=3,"
            "path=0000:0b:00,node=pve\n# qm config 104\nhostpci0: "
            "mapping=gpu0,pcie=1\n" Q35,
            MULTI },
    { "a mapping without its path", "104.conf", "hostpci0: mapping=gpu0,pcie=1\n" Q35,
            0 },
    { "a snapshot is not what is", "104.conf",
            "hostpci0: 0b:00.0,pcie=1\n" Q35 "[before]\nhostpci0: 0b:00,pcie=1\n" Q35,
            GOOD },
    { "a mediated device", "104.conf", "hostpci0: 0000:0b:00,mdev=nvidia-259\n" Q35,
            0 },
    { "a line cut in its address", "104.conf", "hostpci0: 0000:0b:0\n" Q35, 0 },
    { "args by hand", "104.conf",
            "args: -device "
            "vfio-pci,host=0b:00.0,bus=ich9-pcie-port-1,multifunction=on\n" Q35,
            MULTI },
    { "a root port", "run.sh", QEMU PORT "-device vfio-pci,host=0b:00.0,bus=rp1\n",
            GOOD },
    { "on several lines", "run.sh",
            "qemu-system-x86_64 \\\n -M q35 \\\n " PORT
            "\\\n -device 'vfio-pci,host=0b:00.0,bus=rp1,addr=0x0' \\\n -m 4096\n",
            GOOD },
    { "another slot", "run.sh",
            QEMU PORT "-device vfio-pci,host=0b:00.0,bus=rp1,addr=01.0\n", NOPORT },
    { "the root bus", "run.sh", QEMU "-device vfio-pci,host=0b:00.0,bus=pcie.0\n",
            NOPORT },
    { "no bus", "run.sh", QEMU "-device vfio-pci,host=0b:00.0\n", NOPORT },
    { "an emulated switch", "run.sh",
            QEMU PORT "-device x3130-upstream,id=up,bus=rp1 "
                      "-device xio3130-downstream,id=dn,bus=up,chassis=2 "
                      "-device vfio-pci,host=0b:00.0,bus=dn\n",
            NOPORT },
    { "multifunction", "run.sh",
            QEMU PORT "-device vfio-pci,host=0b:00.0,bus=rp1,multifunction=on\n",
            MULTI },
    { "multifunction ports", "run.sh",
            QEMU "-device pcie-root-port,id=rp1,multifunction=on,addr=2.0 "
                 "-device vfio-pci,host=0b:00.0,bus=rp1\n",
            GOOD },
    { "a bus that is defined elsewhere", "run.sh",
            QEMU "-device vfio-pci,host=0b:00.0,bus=mine\n", 0 },
    { "JSON, as libvirt writes it", "vm.log",
            "/usr/bin/qemu-system-x86_64 \\\n-machine pc-q35-8.2 \\\n"
            "-device '{\"driver\":\"pcie-root-port\",\"id\":\"pci.5\"}' \\\n"
            "-device '{\"driver\":\"vfio-pci\",\"host\":\"0000:0b:00.0\",\"id\":\"h0\","
            "\"bus\":\"pci.5\",\"multifunction\":true,\"addr\":\"0x0\"}' \\\n",
            MULTI },
    { "i440fx", "run.sh",
            "qemu-system-x86_64 -machine pc -device vfio-pci,host=0b:00.0,bus=pci.0\n",
            NOPORT },
    { "a port that another function shares", "run.sh",
            QEMU PORT "-device vfio-pci,host=0b:00.1,bus=rp1,addr=0.1 "
                      "-device vfio-pci,host=0b:00.0,bus=rp1,addr=0.0\n",
            0 },
    { "an argument a line", "cmdline.txt",
            "/usr/bin/kvm\n-id\n104\n-machine\ntype=q35+pve0\n-device\n"
            "vfio-pci,host=0000:0b:00.0,id=hostpci0,bus=ich9-pcie-port-1,addr=0x0\n",
            GOOD },
};

static void test_vectors_are_judged_as_the_emulator_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        struct doctor *d = judged(vectors[i].file, vectors[i].text);

        if (family_of(d) != vectors[i].codes)
            fail_msg("%s: %#x, not %#x", vectors[i].what, family_of(d),
                    vectors[i].codes);
        doctor_free(d);
    }
}

#define OK_CONF "hostpci0: 0000:0b:00.0,pcie=1\n"

static const struct version_vector {
    const char *what, *text;
    unsigned codes;
    const char *subject; /* of OLD */
} versions[] = {
    { "the process",
            "# qm config 7\n" OK_CONF Q35
            "# qm status 7 --verbose\nrunning-qemu: 8.0.2\n",
            OLD, "QEMU 8.0.2" },
    { "an old process on a new package",
            "# qm config 7\n" OK_CONF Q35 "# pveversion -v\npve-qemu-kvm: 9.0.2-1\n"
            "# qm status 7 --verbose\nrunning-qemu: 7.2.0\n",
            OLD, "QEMU 7.2.0" },
    { "a new process",
            "# qm config 7\n" OK_CONF "machine: pc-q35-6.2\n"
            "# qm status 7 --verbose\nrunning-qemu: 8.1.0\n",
            GOOD, NULL },
    { "the process of another VM",
            "# qm config 7\n" OK_CONF Q35
            "# qm status 8 --verbose\nrunning-qemu: 7.2.0\n",
            GOOD, NULL },
    { "its birth is no version",
            "# qm config 7\n" OK_CONF Q35 "meta: creation-qemu=6.2.0,ctime=1\n", GOOD,
            NULL },
    { "a pinned machine is no version",
            "# qm config 7\n" OK_CONF "machine: pc-q35-6.2\n", GOOD, NULL },
    { "what is installed",
            "# qm config 7\n" OK_CONF Q35 "# pveversion -v\npve-qemu-kvm: 7.2.0-8\n",
            OLD, "QEMU 7.2.0" },
    { "the machine that runs, unpinned",
            "# qm config 7\n" OK_CONF Q35
            "# qm status 7 --verbose\nrunning-machine: pc-q35-8.0+pve0\n",
            OLD, "QEMU 8.0" },
    { "the machine that runs, pinned",
            "# qm config 7\n" OK_CONF "machine: pc-q35-8.0\n"
            "# qm status 7 --verbose\nrunning-machine: pc-q35-8.0+pve0\n",
            GOOD, NULL },
    { "query-version",
            "# cat run.sh\n" QEMU PORT "-device vfio-pci,host=0b:00.0,bus=rp1\n"
            "# virsh qemu-monitor-command vm '{\"execute\":\"query-version\"}'\n"
            "{\"return\":{\"qemu\":{\"micro\":1,\"minor\":2,\"major\":7},\"package\":"
            "\"\"}}\n",
            OLD, "QEMU 7.2" },
    { "no GPU is passed",
            "# qemu-system-x86_64 --version\nQEMU emulator version 6.2.0\n", 0, NULL },
    { "ten is more than eight",
            "# qm config 7\n" OK_CONF Q35 "# pveversion -v\npve-qemu-kvm: 10.0.2-4\n",
            GOOD, NULL },
};

static void test_only_the_version_that_runs_is_too_old(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(versions); i++) {
        struct doctor *d = judged("s.txt", versions[i].text);

        if (family_of(d) != versions[i].codes)
            fail_msg("%s: %#x", versions[i].what, family_of(d));
        if (versions[i].subject != NULL &&
                !dr_has_finding(d, DR_ATOMICS_VM_QEMU_TOO_OLD, versions[i].subject))
            fail_msg("%s: another subject", versions[i].what);
        doctor_free(d);
    }
}

/* ---- libvirt ---- */

static char *domain(const char *model, const char *address, const char *machine)
{
    char *text = NULL;

    assert_true(
            asprintf(&text,
                    "<domain type='kvm'>\n  <name>win</name>\n  <os>\n    <type "
                    "arch='x86_64' machine='%s'>hvm</type>\n  </os>\n  <devices>\n"
                    "    <controller type='pci' index='0' model='pcie-root'/>\n"
                    "    <controller type='pci' index='5' model='%s'>\n"
                    "      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' "
                    "function='0x0' multifunction='on'/>\n    </controller>\n"
                    "    <hostdev mode='subsystem' type='pci' managed='yes'>\n"
                    "      <source>\n        <address domain='0x0000' bus='0x0b' "
                    "slot='0x00' function='0x0'/>\n      </source>\n"
                    "      <address type='pci' domain='0x0000' %s/>\n"
                    "    </hostdev>\n  </devices>\n</domain>\n",
                    machine, model, address) > 0);
    return text;
}

static const struct libvirt_vector {
    const char *model, *address, *machine;
    unsigned codes;
} libvirt_vectors[] = {
    { "pcie-root-port", "bus='0x05' slot='0x00' function='0x0'", "pc-q35-8.2", GOOD },
    { "pcie-root-port", "bus='0x05' slot='0x00' function='0x0' multifunction='on'",
            "q35", MULTI },
    { "pcie-to-pci-bridge", "bus='0x05' slot='0x01' function='0x0'", "q35", NOPORT },
    { "pcie-switch-downstream-port", "bus='0x05' slot='0x00' function='0x0'", "q35",
            NOPORT },
    { "pcie-root-port", "bus='0x00' slot='0x04' function='0x0'", "q35", NOPORT },
    { "pcie-root-port", "bus='0x05' slot='0x00' function='0x0'", "pc-i440fx-6.2",
            NOPORT },
    { "pcie-root-port", "bus='0x09' slot='0x00' function='0x0'", "q35", 0 },
};

static void test_domains_are_judged_by_their_controllers(void **state)
{
    (void)state;
#ifndef MOTET_DOCTOR_XML
    skip();
#endif
    for (size_t i = 0; i < COUNT(libvirt_vectors); i++) {
        const struct libvirt_vector *v = &libvirt_vectors[i];
        char *text = domain(v->model, v->address, v->machine);
        struct doctor *d = judged("win.xml", text);

        if (family_of(d) != v->codes)
            fail_msg("%zu: %#x, not %#x", i, family_of(d), v->codes);
        free(text);
        doctor_free(d);
    }
}

static void test_pieces_of_a_domain_are_put_together(void **state)
{
    static const char hostdev[] =
            "    <hostdev mode='subsystem' type='pci' managed='yes'>\n"
            "      <source>\n        <address domain='0x0000' bus='0x0b' slot='0x00' "
            "function='0x0'/>\n      </source>\n      <address type='pci' "
            "domain='0x0000' bus='0x05' slot='0x00' function='0x0'/>\n    </hostdev>\n";
    static const struct {
        const char *controller, *again;
        unsigned codes;
    } cases[] = { { "pcie-root-port", "one", GOOD },
        { "pcie-to-pci-bridge", "one", NOPORT }, { "pcie-to-pci-bridge", "two", 0 } };

    (void)state;
#ifndef MOTET_DOCTOR_XML
    skip();
#endif
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct doctor *d;
        char *text = NULL;

        assert_true(
                asprintf(&text,
                        "$ virsh dumpxml one | grep pcie\n    <controller type='pci' "
                        "index='5' model='%s'>\n$ virsh dumpxml %s | grep -A9 "
                        "hostdev\n%s",
                        cases[i].controller, cases[i].again, hostdev) > 0);
        d = judged("s.txt", text);
        if (family_of(d) != cases[i].codes)
            fail_msg("%zu: %#x", i, family_of(d));
        free(text);
        doctor_free(d);
    }
}

static void test_hostile_xml_is_a_sentence(void **state)
{
    static const char *const texts[] = {
        "<domain type='kvm'>\n<devices>\n<hostdev type='pci'",
        "<!DOCTYPE domain [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>\n"
        "<domain type='kvm'><name>&a;</name></domain>\n",
        "<domain type='kvm'>\n</devices></domain>\n"
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct doctor *d = judged("evil.xml", texts[i]);

        assert_int_equal(family_of(d), 0);
        doctor_free(d);
    }
}

/* ---- --vm ---- */

static char *written(struct doctor *d, const char *id)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    dr_write_vm(d, out, id);
    (void)fclose(out);
    return text;
}

static void test_the_line_to_write_instead_is_printed(void **state)
{
    struct doctor *d = judged("104.conf", "hostpci1: 43:00,pcie=1,x-vga=1\n" Q35);
    char *text = written(d, "104");

    (void)state;
    assert_non_null(strstr(text, "will not see AtomicOps"));
    assert_non_null(
            strstr(text, "Write instead: hostpci1: 0000:43:00.0,pcie=1,x-vga=1"));
    free(text);
    text = written(d, "105");
    assert_non_null(strstr(text, "no definition"));
    free(text);
    doctor_free(d);
}

static void test_the_host_path_has_the_last_word(void **state)
{
    static const struct {
        const char *vfio, *answer;
    } cases[] = { { "vfio 0000:0b:00.0 atomics: none\n", "will not see AtomicOps" },
        { "vfio 0000:0b:00.0 atomics: 32\n", "will not see AtomicOps" },
        { "vfio 0000:0b:00.0 atomics: 32 64 128\n", "will see AtomicOps." },
        { "", "will see AtomicOps if the host's path" } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct doctor *d = doctor_new();
        char *text;

        doctor_add(d, "104.conf", OK_CONF Q35, strlen(OK_CONF Q35));
        doctor_add(d, "vfio.txt", cases[i].vfio, strlen(cases[i].vfio));
        doctor_judge(d);
        text = written(d, NULL);
        if (strstr(text, cases[i].answer) == NULL)
            fail_msg("%s: %s", cases[i].vfio, text);
        free(text);
        doctor_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_are_judged_as_the_emulator_does),
        cmocka_unit_test(test_only_the_version_that_runs_is_too_old),
        cmocka_unit_test(test_domains_are_judged_by_their_controllers),
        cmocka_unit_test(test_pieces_of_a_domain_are_put_together),
        cmocka_unit_test(test_hostile_xml_is_a_sentence),
        cmocka_unit_test(test_the_line_to_write_instead_is_printed),
        cmocka_unit_test(test_the_host_path_has_the_last_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
