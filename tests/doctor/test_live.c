/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a machine, on trees of files made here; archives, also hostile ones.
 */
#include "archive.h"
#include "deadline.h"
#include "facts.h"
#include "gather.h"
#include "input.h"

#include "../tree.h"

#include <elf.h>
#include <fcntl.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- a machine of files ---- */

static void u16(unsigned char *c, size_t at, unsigned value)
{
    c[at] = (unsigned char)value;
    c[at + 1] = (unsigned char)(value >> 8);
}

/* Configuration space with an Express capability of that port type. */
static void put_config(const char *folder, unsigned vendor, unsigned device,
        unsigned class, unsigned type, unsigned cap2, unsigned ctl2, const char *buses)
{
    unsigned char c[4096] = { 0 };
    char path[320];

    u16(c, 0, vendor);
    u16(c, 2, device);
    c[6] = 0x10; /* has capabilities */
    u16(c, 10, class >> 8);
    c[0x0e] = type == DR_ENDPOINT || type == DR_LEGACY_ENDPOINT ? 0 : 1;
    if (c[0x0e] == 1) {
        c[0x19] = (unsigned char)buses[0];
        c[0x1a] = (unsigned char)buses[1];
    }
    c[0x34] = 0x60;
    c[0x60] = 0x10;
    u16(c, 0x62, type << 4 | 2);
    u16(c, 0x60 + 0x24, cap2);
    u16(c, 0x60 + 0x28, ctl2);
    u16(c, 0x100, 3); /* Device Serial Number, the end of the list */
    u16(c, 0x102, 1);
    memset(c + 0x104, 0xaa, 8);
    snprintf(path, sizeof(path), "%s/config", folder);
    put_bytes(path, c, sizeof(c));
}

static void put_device(const char *parent, const char *bdf, unsigned vendor,
        unsigned device, unsigned class, unsigned type, unsigned cap2, unsigned ctl2,
        const char *buses)
{
    char folder[256], path[320], text[64], target[320];

    snprintf(folder, sizeof(folder), "/sys/devices/%s/%s", parent, bdf);
    snprintf(path, sizeof(path), "%s/vendor", folder);
    snprintf(text, sizeof(text), "0x%04x\n", vendor);
    put(path, text);
    snprintf(path, sizeof(path), "%s/device", folder);
    snprintf(text, sizeof(text), "0x%04x\n", device);
    put(path, text);
    snprintf(path, sizeof(path), "%s/class", folder);
    snprintf(text, sizeof(text), "0x%06x\n", class);
    put(path, text);
    put_config(folder, vendor, device, class, type, cap2, ctl2, buses);
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", bdf);
    snprintf(target, sizeof(target), "../../../devices/%s/%s", parent, bdf);
    put_link(path, target);
}

/* A root port that does not complete, and a GPU below it. */
static void put_machine(void)
{
    put_device("pci0000:00", "0000:00:01.0", 0x8086, 0x1901, 0x060400, DR_ROOT_PORT,
            0x0, 0, "\x01\x01");
    put_device("pci0000:00/0000:00:01.0", "0000:01:00.0", 0x1002, 0x744c, 0x030000,
            DR_LEGACY_ENDPOINT, 0, 0, NULL);
    put_link("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/driver",
            "../../../../bus/pci/drivers/amdgpu");
    put("/proc/sys/kernel/hostname", "gadget\n");
    put("/proc/sys/kernel/osrelease", "6.8.0\n");
    put("/proc/sys/kernel/version", "#1 SMP\n");
    put("/proc/cmdline", "root=/dev/sda1 iommu=pt\n");
    put("/sys/bus/pci/slots/PCIEX16_1/address", "0000:01:00\n");
}

static const struct dr_capture *capture(const struct dr_captures *c, const char *name)
{
    for (uint32_t i = 0; i < c->num; i++)
        if (strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    return NULL;
}

static void assert_holds(const struct dr_captures *c, const char *name,
        const char *text)
{
    const struct dr_capture *found = capture(c, name);

    if (found == NULL)
        fail_msg("no capture %s", name);
    else if (!dr_has(found->text, text))
        fail_msg("no '%s' in %s:\n%s", text, name, found->text);
}

static void assert_unread(const struct doctor *d, const char *source, const char *why)
{
    for (uint32_t i = 0; i < d->num_unread; i++)
        if (dr_has(d->unread[i].source, source) && dr_has(d->unread[i].why, why))
            return;
    fail_msg("'%s' is not said to be unread because of '%s'", source, why);
}

static void test_a_tree_of_files_is_judged_as_a_pasted_capture(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };
    uint32_t gpu, chain[DR_CHAIN_MAX];

    (void)state;
    put_machine();
    dr_collect(d, tree, &c);
    assert_string_equal(c.host, "gadget");
    assert_holds(&c, "system.txt",
            "gadget$ cat /proc/cmdline\nroot=/dev/sda1 iommu=pt\n");
    assert_holds(&c, "pci.txt",
            "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/vendor:0x1002\n");
    assert_holds(&c, "pci.txt", "/0000:01:00.0/driver:amdgpu\n");
    assert_holds(&c, "config-space.txt",
            "0000:01:00.0 0300: 1002:744c (rev 00)\n00: 02 10");
    assert_holds(&c, "config-space.txt",
            "\n100: 03 00 01 00 00 00 00 00 00 00 00 00 00");
    dr_add_captures(d, &c);
    doctor_judge(d);
    gpu = dr_pci_find(d, 0, "0000:01:00.0");
    assert_int_not_equal(gpu, DR_NONE);
    assert_int_equal(dr_chain(d, gpu, chain), 1);
    assert_string_equal(d->pci->devices[chain[0]].bdf, "0000:00:01.0");
    assert_int_equal(d->pci->devices[chain[0]].complete32, 0);
    assert_true(dr_has_finding(d, DR_ATOMICS_ROOT_PORT_NO_COMPLETER, NULL));
    assert_int_equal(doctor_status(d), 1);
    doctor_free(d);
}

static void test_an_empty_machine_is_nothing_to_complain_of(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };

    (void)state;
    dr_collect(d, tree, &c);
    dr_add_captures(d, &c);
    doctor_judge(d);
    for (uint32_t i = 0; i < d->num_findings; i++)
        assert_true(dr_codes[d->findings[i].code].severity > DR_WARN);
    doctor_free(d);
}

static void test_kfd_is_gathered_with_what_forbids_it(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };

    (void)state;
    put("/sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties",
            "type 2\nnode_from 1\nnode_to 0\nflags 13\n");
    put("/sys/class/kfd/kfd/proc/4711/pasid", "32768\n");
    put("/proc/4711/cgroup", "0::/system.slice/vllm.service\n");
    put("/proc/4711/comm", "python3\n");
    dr_collect(d, tree, &c);
    assert_holds(&c, "kfd.txt",
            "/sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties:flags 13\n");
    assert_holds(&c, "kfd.txt", "4711 vllm.service python3\n");
    doctor_free(d);
}

static void test_secrets_of_guests_are_left_out(void **state)
{
    static const char process[] =
            "/usr/bin/qemu-system-x86_64\0-object\0secret,id=a,data=topsecret\0"
            "-device\0vfio-pci,host=0000:03:00.0";
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };

    (void)state;
    put("/etc/pve/qemu-server/104.conf",
            "cipassword: hunter2\nhostpci0: 0000:43:00,pcie=1\nmachine: q35\nsshkeys: "
            "abc\n"
            "[old]\nhostpci0: 0000:44:00.0\n");
    put("/etc/pve/mapping/pci.cfg", "cards\n\tmap path=0000:43:00.0\n");
    put("/etc/libvirt/qemu/box.xml", "<domain><graphics passwd='pw'/></domain>\n");
    put("/etc/libvirt/qemu/own.xml",
            "<domain><name>own</name><description>of erika\n</description><metadata>\n"
            "<a:x>erika</a:x></metadata><os firmware='efi'/></domain>\n");
    put("/proc/99/comm", "qemu-system-x86\n");
    put_bytes("/proc/99/cmdline", process, sizeof(process));
    put("/proc/98/comm", "kvm\n");
    put("/proc/98/cmdline",
            "kvm -drive file=iscsi://me%hunter2@10.0.0.1/a -object "
            "{\"qom-type\":\"secret\",\"data\":\"topsecret\"} "
            "-object secret,data=topsecret,,hunter2");
    put("/proc/97/comm", "python3\n");
    put("/proc/97/cmdline", "qemu-system-x86_64 topsecret");
    put_bytes("/proc/99/exe", "\0\0QEMU emulator version 8.0.2 (x)\nrest", 37);
    dr_collect(d, tree, &c);
    assert_holds(&c, "qemu-server-104.conf",
            "qm config 104\nhostpci0: 0000:43:00,pcie=1\n");
    assert_holds(&c, "pci.cfg", "path=0000:43:00.0");
    assert_holds(&c, "libvirt-box.xml", "passwd='**'");
    assert_holds(&c, "qemu-99.txt", "vfio-pci,host=0000:03:00.0\n");
    assert_holds(&c, "libvirt-own.xml", "<os firmware='efi'/>");
    assert_holds(&c, "qemu-98.txt", "10.0.0.1/a");
    assert_holds(&c, "qemu-99.txt", "QEMU emulator version 8.0.2 (x)\n");
    for (uint32_t i = 0; i < c.num; i++) {
        assert_false(dr_has(c.list[i].text, "hunter2"));
        assert_false(dr_has(c.list[i].text, "topsecret"));
        assert_false(dr_has(c.list[i].text, "erika"));
        assert_false(dr_has(c.list[i].text, "0000:44:00.0"));
    }
    doctor_free(d);
}

static void test_a_runtime_is_asked_in_a_process_of_its_own(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };
    struct dr_gathered_gpu gpu = { "0000:01:00.0", 0x10de, "nvidia" };
    struct dr_gather g = { .d = d,
        .captures = &c,
        .root = "",
        .host = "box",
        .gpus = &gpu,
        .num_gpus = 1 };

    (void)state;
    dr_begin_capture(&g);
    dr_gather_runtimes(&g);
    dr_end_capture(&g, "runtimes.txt");
    /* with a driver it answered, without one it says which library is not there */
    if (c.num == 0 && d->num_unread > 0)
        assert_unread(d, "CUDA driver", "libcuda");
    doctor_free(d);
}

/* A shared object that has nothing but .hip_fatbin with those bytes. */
static void put_library(const char *path, const char *bytes, size_t count)
{
    static const char names[] = "\0.hip_fatbin\0.shstrtab";
    unsigned char file[1024] = { 0 };
    Elf64_Ehdr e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
        .e_shoff = 512,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 3,
        .e_shstrndx = 2 };
    const Elf64_Shdr sections[3] = { { 0 },
        { .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_offset = 128, .sh_size = count },
        { .sh_name = 13,
                .sh_type = SHT_STRTAB,
                .sh_offset = 64,
                .sh_size = sizeof(names) } };

    memcpy(file, &e, sizeof(e));
    memcpy(file + 64, names, sizeof(names));
    memcpy(file + 128, bytes, count);
    memcpy(file + 512, sections, sizeof(sections));
    put_bytes(path, file, sizeof(file));
}

static void test_libraries_are_listed_once_with_what_they_declare(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { 0 };
    const struct dr_capture *found;

    (void)state;
    put_library("/opt/rocm-7.1.0/lib/librccl.so.1.0", "CCOB\3\0\1\0", 8);
    put_link("/opt/rocm-7.1.0/lib/librccl.so.1", "librccl.so.1.0");
    put_link("/opt/rocm", "rocm-7.1.0");
    put_library("/usr/lib/x86_64-linux-gnu/librccl.so.1", "nothing known", 13);
    put("/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2", "x");
    dr_collect(d, tree, &c);
    assert_holds(&c, "libraries.txt", " /opt/rocm/lib/librccl.so");
    assert_holds(&c, "libraries.txt",
            "/opt/rocm/lib/librccl.so.1: unknown: offset 128: a packed bundle "
            "(CCOB)");
    assert_holds(&c, "libraries.txt",
            "/usr/lib/x86_64-linux-gnu/librccl.so.1: unknown: offset 128: neither");
    assert_holds(&c, "libraries.txt", "/nvidia/nccl/lib/libnccl.so.2\n");
    found = capture(&c, "libraries.txt");
    assert_null(strstr(found->text, "/opt/rocm-7.1.0/"));
    doctor_free(d);
}

static void test_only_what_concerns_gpus_can_be_collected(void **state)
{
    struct doctor *d = doctor_new();
    struct dr_captures c = { .only_gpus = true };

    (void)state;
    put_machine();
    put("/sys/class/kfd/kfd/topology/nodes/1/properties",
            "simd_count 192\ngfx_target_version 90010\nlocation_id 256\ndomain 0\n");
    put_library("/opt/rocm-7.1.0/lib/librccl.so.1.0", "CCOB\3\0\1\0", 8);
    dr_collect(d, tree, &c);
    assert_null(capture(&c, "libraries.txt"));
    assert_null(capture(&c, "network.txt"));
    dr_add_captures(d, &c);
    doctor_judge(d);
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_kfd_node *node = dr_gpu_node(d, i);
        char target[DR_TARGET_MAX];

        if (!dr_is_gpu(&d->pci->devices[i])) {
            assert_null(node);
            continue;
        }
        assert_string_equal(d->pci->devices[i].bdf, "0000:01:00.0");
        assert_int_equal(dr_gpu_atomics(d, i, NULL), DR_NO);
        assert_non_null(node);
        dr_gfx_name(node, target);
        assert_string_equal(target, "gfx90a");
    }
    assert_int_equal(dr_num_gpus(d, DR_NONE, 0), 1);
    doctor_free(d);
}

static void test_slots_of_smbios_in_dmidecodes_shape(void **state)
{
    static const unsigned char table[] = { /* a slot, then the end */
        9, 0x11, 0x21, 0, 1, 0xb6, 0x0d, 4, 4, 1, 0, 0, 0, 0, 0, 0x03, 0x08, 'P', 'C',
        'I', 'E', '1', 0, 0, 127, 4, 0x22, 0, 0, 0
    };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out;

    (void)state;
    /* also cut at every length: nothing is read behind its end */
    for (size_t length = 0; length <= sizeof(table); length++) {
        unsigned char *copy = malloc(length + 1);

        memcpy(copy, table, length);
        out = open_memstream(&text, &bytes);
        dr_write_smbios_slots(out, copy, length);
        fclose(out);
        if (length == sizeof(table)) {
            assert_true(dr_has(text, "\tDesignation: PCIE1\n"));
            assert_true(dr_has(text, "\tType: x16 PCI Express 3 x16\n"));
            assert_true(dr_has(text, "\tCurrent Usage: In Use\n"));
            assert_true(dr_has(text, "\tBus Address: 0000:03:01.0\n"));
        }
        free(text);
        free(copy);
    }
}

static void test_vfio_is_asked_for_a_guest_and_with_flr_only(void **state)
{
    static const struct {
        bool for_a_guest;
        const char *reset_method;
        bool asked;
    } rows[] = { { false, "flr", false }, { false, "", false }, { true, "flr", true },
        { true, "flr bus", true }, { true, "", false }, { true, "bus", false },
        { true, "pm bus", false }, { true, "bus flr", false },
        { true, "device_specific", false }, { true, "flrx", false } };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(dr_why_not_vfio(rows[i].for_a_guest, rows[i].reset_method) ==
                        NULL,
                rows[i].asked);
}

static void never_answer(FILE *out, const void *about)
{
    fprintf(out, "%s\n", (const char *)about);
    fflush(out);
    for (;;)
        pause();
}

static void say(FILE *out, const void *about)
{
    fputs(about, out);
}

static void test_a_question_has_a_deadline(void **state)
{
    struct doctor *d = doctor_new();
    bool in_time = false;

    (void)state;
    assert_string_equal(dr_ask_in_child(d, 20000, say, "yes", &in_time), "yes");
    assert_true(in_time);
    assert_string_equal(dr_ask_in_child(d, 200, never_answer, "half", &in_time),
            "half\n");
    assert_false(in_time);
    doctor_free(d);
}

static void test_a_name_in_smbios_does_nothing_to_a_terminal(void **state)
{
    static const unsigned char table[] = { 9, 0x11, 0x21, 0, 1, 0xb6, 0x0d, 4, 4, 1, 0,
        0, 0, 0, 0, 0x03, 0x08, 'P', 27, 'c', 0x9b, 0, 0, 127, 4, 0x22, 0, 0, 0 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    dr_write_smbios_slots(out, table, sizeof(table));
    fclose(out);
    assert_true(dr_has(text, "\tDesignation: P.c.\n"));
    free(text);
}

/* ---- archives ---- */

/* One entry by hand: what no honest writer makes. */
static void write_raw(FILE *out, const char *name, char type, const char *size,
        const char *text)
{
    unsigned char h[512] = { 0 };
    unsigned sum = 0;
    const size_t bytes = strlen(text);
    static const char zeros[512];

    snprintf((char *)h, 100, "%s", name);
    memcpy(h + 100, "0000644", 7);
    memcpy(h + 124, size, 11);
    h[156] = (unsigned char)type;
    memcpy(h + 257,
            "ustar\0"
            "00",
            8);
    memset(h + 148, ' ', 8);
    for (size_t i = 0; i < sizeof(h); i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    fwrite(h, 1, sizeof(h), out);
    fwrite(text, 1, bytes, out);
    fwrite(zeros, 1, (512 - bytes % 512) % 512, out);
}

static struct doctor *read_bytes(const char *name, const char *bytes, size_t count)
{
    struct doctor *d = doctor_new();
    FILE *in = fmemopen((void *)(uintptr_t)bytes, count, "r");

    assert_non_null(in);
    assert_true(dr_add_file(d, name, in));
    fclose(in);
    return d;
}

static void test_what_was_written_is_read_and_always_the_same(void **state)
{
    struct doctor *d = doctor_new(), *back;
    struct dr_captures c = { 0 };
    char *bytes[2] = { NULL, NULL };
    size_t count[2] = { 0, 0 };

    (void)state;
    dr_capture(d, &c, "one.txt", "first\nsecond\n", 13);
    dr_capture(d, &c, DR_UNREAD_NAME, "kernel log\tdenied\n", 18);
    for (int i = 0; i < 2; i++) {
        FILE *out = open_memstream(&bytes[i], &count[i]);

        assert_true(dr_write_archive(out, &c));
        fclose(out);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(bytes[0], bytes[1], count[0]);
    back = read_bytes("a.tar", bytes[0], count[0]);
    assert_int_equal(back->num_sources, 1);
    assert_string_equal(back->sources[0].name, "a.tar:motet-doctor/one.txt");
    assert_string_equal(back->lines[1].text, "second");
    assert_unread(back, "kernel log", "denied");
    doctor_free(back);
    doctor_free(d);
    free(bytes[0]);
    free(bytes[1]);
}

static struct doctor *read_many_reasons(void)
{
    char *bytes = NULL, text[4001] = "", size[12];
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    struct doctor *d;

    for (size_t i = 0; i < 1000; i++)
        memcpy(text + 4 * i, "a\tb\n", 4);
    snprintf(size, sizeof(size), "%011o", 4000);
    write_raw(out, "motet-doctor/" DR_UNREAD_NAME, '0', size, text);
    fclose(out);
    d = read_bytes("many.tar", bytes, count);
    free(bytes);
    return d;
}

static void test_hostile_archives_are_answered_with_a_sentence(void **state)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    struct doctor *d;

    (void)state;
    write_raw(out, "link", '2', "00000000000", "");
    write_raw(out, "hard", '1', "00000000005", "");
    write_raw(out, "/etc/passwd", '0', "00000000002", "x\n");
    write_raw(out, "a/../../b", '0', "00000000002", "x\n");
    write_raw(out, "device", '3', "00000000000", "");
    write_raw(out, "x", 'x', "00000000020", "16 path=..\\bad\n\n");
    write_raw(out, "good", '0', "00000000003", "ok\n");
    write_raw(out, "vast", '0', "77777777777", "x\n");
    fclose(out);
    d = read_bytes("h.tar", bytes, count);
    assert_unread(d, "h.tar:link", "a link");
    assert_unread(d, "h.tar:hard", "a link");
    assert_unread(d, "h.tar:/etc/passwd", "begins at the root");
    assert_unread(d, "h.tar:a/../../b", "leads outside");
    assert_unread(d, "h.tar:device", "no plain file");
    assert_unread(d, "h.tar", "in the middle of vast");
    assert_string_equal(d->lines[0].text, "ok");
    doctor_free(d);
    d = read_many_reasons();
    assert_int_equal(d->num_unread, 256);
    doctor_free(d);
    /* cut anywhere, or with any byte changed: no crash and no hang */
    for (size_t i = 1; i < count; i += 37) {
        char *copy = malloc(count);

        doctor_free(read_bytes("cut.tar", bytes, i));
        memcpy(copy, bytes, count);
        copy[i] = (char)(copy[i] ^ 0x55);
        doctor_free(read_bytes("bad.tar", copy, count));
        free(copy);
    }
    free(bytes);
}

static void test_other_packings_are_named(void **state)
{
    static const struct {
        const char *bytes;
        const char *why;
    } rows[] = { { "\x28\xb5\x2f\xfd....", "zstd" },
        { "\xfd"
          "7zXZ....",
                "xz" },
        { "PK\x03\x04....", "zip" }, { "\x1f\x8b\x08....", "gzip" } };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = read_bytes("x", rows[i].bytes, strlen(rows[i].bytes));

        assert_unread(d, "x", rows[i].why);
        doctor_free(d);
    }
}

static void test_folders_are_walked_without_following_links(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    put("/in/guest-a.txt", "one\n");
    put("/in/deep/b.txt", "two\n");
    put("/outside.txt", "three\n");
    put_link("/in/link.txt", "../outside.txt");
    {
        char path[128];

        snprintf(path, sizeof(path), "%s/in", tree);
        dr_read_path(d, path);
        snprintf(path, sizeof(path), "%s/none", tree);
        dr_read_path(d, path);
    }
    assert_int_equal(d->num_sources, 2);
    assert_string_equal(d->sources[0].name, "deep/b.txt");
    assert_string_equal(d->sources[1].name, "guest-a.txt");
    assert_unread(d, "link.txt", "a link");
    assert_unread(d, "none", "No such file");
    doctor_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
                test_a_tree_of_files_is_judged_as_a_pasted_capture, tree_begin,
                tree_end),
        cmocka_unit_test_setup_teardown(test_an_empty_machine_is_nothing_to_complain_of,
                tree_begin, tree_end),
        cmocka_unit_test_setup_teardown(test_kfd_is_gathered_with_what_forbids_it,
                tree_begin, tree_end),
        cmocka_unit_test_setup_teardown(test_secrets_of_guests_are_left_out, tree_begin,
                tree_end),
        cmocka_unit_test_setup_teardown(
                test_libraries_are_listed_once_with_what_they_declare, tree_begin,
                tree_end),
        cmocka_unit_test_setup_teardown(test_only_what_concerns_gpus_can_be_collected,
                tree_begin, tree_end),
        cmocka_unit_test(test_a_runtime_is_asked_in_a_process_of_its_own),
        cmocka_unit_test(test_vfio_is_asked_for_a_guest_and_with_flr_only),
        cmocka_unit_test(test_a_question_has_a_deadline),
        cmocka_unit_test(test_slots_of_smbios_in_dmidecodes_shape),
        cmocka_unit_test(test_a_name_in_smbios_does_nothing_to_a_terminal),
        cmocka_unit_test(test_what_was_written_is_read_and_always_the_same),
        cmocka_unit_test(test_hostile_archives_are_answered_with_a_sentence),
        cmocka_unit_test(test_other_packings_are_named),
        cmocka_unit_test_setup_teardown(test_folders_are_walked_without_following_links,
                tree_begin, tree_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
