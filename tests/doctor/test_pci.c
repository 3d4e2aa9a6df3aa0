/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI records and AtomicOps. Each chain is rendered twice, as `lspci -vv` prints it and as
 * sysfs with configuration space shows it, and must be judged alike.
 */
#include "facts.h"
#include "rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- rendering ---- */

enum kind { END, RP, UP, DN, BRIDGE, EP, RCIEP };

/* One device of a chain, the processor's side first. */
struct part {
    enum kind kind;
    bool routing, complete32, complete64, blocked;
    bool has_memory;  /* a switch port that prints completer bits too */
    bool is_old;      /* Express (v1)                                 */
    bool is_emulated; /* QEMU's                                       */
};

struct chain {
    const char *name;
    struct part parts[6];
    enum dr_answer answer;
    enum dr_code code; /* that is found of the GPU */
};

static const struct {
    const char *name;
    enum dr_port port;
} types[] = {
    [RP] = { "Root Port (Slot+)", DR_ROOT_PORT },
    [UP] = { "Upstream Port", DR_UPSTREAM_PORT },
    [DN] = { "Downstream Port (Slot+)", DR_DOWNSTREAM_PORT },
    [BRIDGE] = { "PCI-Express to PCI/PCI-X Bridge", DR_PCIE_TO_PCI },
    [EP] = { "Legacy Endpoint", DR_LEGACY_ENDPOINT },
    [RCIEP] = { "Root Complex Integrated Endpoint", DR_RC_INTEGRATED },
};

static size_t length(const struct part *parts)
{
    size_t n = 0;

    while (n < 6 && parts[n].kind != END)
        n++;
    return n;
}

/* Address of part @p i of the chain whose buses begin at @p base. */
static const char *address(size_t i, unsigned char base, char out[DR_BDF_MAX])
{
    if (i == 0)
        snprintf(out, DR_BDF_MAX, "0000:00:%02x.1", (base / 16 + 1) & 31);
    else
        snprintf(out, DR_BDF_MAX, "0000:%02x:00.0", (unsigned)(base + i) & 255);
    return out;
}

static bool is_bridge(const struct part *p)
{
    return p->kind != EP && p->kind != RCIEP;
}

static void lspci_atomics(FILE *out, const struct part *p)
{
    const bool is_switch = p->kind == UP || p->kind == DN;

    if (p->is_old || p->kind == BRIDGE)
        return;
    fprintf(out, "\t\tDevCap2: Completion Timeout: Range ABCD, TimeoutDis+\n");
    fprintf(out, "\t\t\t AtomicOpsCap:");
    if (is_bridge(p))
        fprintf(out, " Routing%c", p->routing ? '+' : '-');
    if (!is_switch || p->has_memory)
        fprintf(out, " 32bit%c 64bit%c 128bitCAS-", p->complete32 ? '+' : '-',
                p->complete64 ? '+' : '-');
    fprintf(out, "\n\t\tDevCtl2: Completion Timeout: 50us to 50ms, TimeoutDis-\n");
    fprintf(out, "\t\t\t AtomicOpsCtl:");
    if (!is_switch)
        fprintf(out, " ReqEn-");
    if (is_bridge(p))
        fprintf(out, " EgressBlck%c", p->blocked ? '+' : '-');
    fputc('\n', out);
}

static void render_lspci(FILE *out, const struct part *parts, unsigned char base)
{
    const size_t count = length(parts);
    char bdf[DR_BDF_MAX];

    for (size_t i = 0; i < count; i++) {
        const struct part *p = &parts[i];

        fprintf(out, "%s ", address(i, base, bdf) + 5);
        if (!is_bridge(p))
            fprintf(out,
                    "VGA compatible controller: Advanced Micro Devices, Inc. "
                    "[AMD/ATI] Navi 31 [Radeon RX 7900 XT] (rev cc)\n");
        else if (p->is_emulated)
            fprintf(out, "PCI bridge: Red Hat, Inc. QEMU PCIe Root port\n");
        else
            fprintf(out, "PCI bridge: Broadcom / LSI PEX880xx PCIe Gen 4 Switch\n");
        if (is_bridge(p))
            fprintf(out,
                    "\tBus: primary=%02x, secondary=%02x, subordinate=%02x, "
                    "sec-latency=0\n",
                    i == 0 ? 0 : (unsigned)(base + i), (unsigned)(base + i + 1),
                    (unsigned)(base + count - 1));
        fprintf(out, "\tCapabilities: [58] Express (v%d) %s, MSI 00\n",
                p->is_old ? 1 : 2, types[p->kind].name);
        lspci_atomics(out, p);
        fputc('\n', out);
    }
}

static void set(unsigned char *config, unsigned at, unsigned value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        config[at + i] = (unsigned char)(value >> 8 * i);
}

static void render_hex(FILE *out, const char *bdf, const struct part *p,
        unsigned secondary, unsigned subordinate)
{
    unsigned char config[256] = { 0 };
    const unsigned vendor = !is_bridge(p) ? 0x1002 : p->is_emulated ? 0x1b36 : 0x1000;
    const unsigned class = is_bridge(p) ? 0x0604 : 0x0300;
    const unsigned device = is_bridge(p) ? 0x000c : 0x744c;

    set(config, 0, vendor, 2);
    set(config, 2, device, 2);
    set(config, 0x0a, class, 2);
    config[0x0e] = is_bridge(p);
    config[0x34] = 0x40;
    set(config, 0x40, 0x5001, 2); /* power management, then the one that matters */
    set(config, 0x50, 0x10, 1);
    set(config, 0x52, (unsigned)types[p->kind].port << 4 | (p->is_old ? 1 : 2), 2);
    if (is_bridge(p)) {
        config[0x19] = (unsigned char)secondary;
        config[0x1a] = (unsigned char)subordinate;
    }
    set(config, 0x50 + 0x24,
            (p->routing ? 0x40u : 0) | (p->complete32 ? 0x80u : 0) |
                    (p->complete64 ? 0x100u : 0),
            4);
    set(config, 0x50 + 0x28, p->blocked ? 0x80 : 0, 2);
    fprintf(out, "%s %04x: %04x:%04x\n", bdf, class, vendor, device);
    for (unsigned at = 0; at < sizeof(config); at += 16) {
        fprintf(out, "%02x:", at);
        for (unsigned i = 0; i < 16; i++)
            fprintf(out, " %02x", config[at + i]);
        fputc('\n', out);
    }
    fputc('\n', out);
}

static void render_sysfs(FILE *paths, FILE *hex, const struct part *parts,
        unsigned char base)
{
    char path[256] = "/sys/devices/pci0000:00", bdf[DR_BDF_MAX];
    const size_t count = length(parts);
    int used = (int)strlen(path);

    for (size_t i = 0; i < count; i++) {
        address(i, base, bdf);
        used += snprintf(path + used, sizeof(path) - (size_t)used, "/%s", bdf);
        fprintf(paths, "%s/vendor:%s\n", path,
                !is_bridge(&parts[i])          ? "0x1002"
                        : parts[i].is_emulated ? "0x1b36"
                                               : "0x1000");
        fprintf(paths, "%s/class:%s\n", path,
                is_bridge(&parts[i]) ? "0x060400" : "0x030000");
        render_hex(hex, bdf, &parts[i], (unsigned)(base + i + 1),
                (unsigned)(base + count - 1));
    }
}

static void add_text(struct doctor *d, const char *name, char *text)
{
    doctor_add(d, name, text, strlen(text));
    free(text);
}

static void add_lspci(struct doctor *d, const struct part *parts, unsigned char base)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    render_lspci(out, parts, base);
    fclose(out);
    add_text(d, "lspci.txt", text);
}

static void add_sysfs(struct doctor *d, const struct part *parts, unsigned char base)
{
    char *text, *more;
    size_t bytes, more_bytes;
    FILE *paths = open_memstream(&text, &bytes);
    FILE *hex = open_memstream(&more, &more_bytes);

    render_sysfs(paths, hex, parts, base);
    fclose(paths);
    fclose(hex);
    add_text(d, "sysfs.txt", text);
    add_text(d, "config.txt", more);
}

static void add_line(struct doctor *d, const char *name, const char *text)
{
    doctor_add(d, name, text, strlen(text));
}

static uint32_t gpu_at(const struct doctor *d, const char *bdf)
{
    const uint32_t device = dr_pci_find(d, 0, bdf);

    assert_int_not_equal(device, DR_NONE);
    assert_true(dr_is_gpu(&d->pci->devices[device]));
    return device;
}

static bool found(struct doctor *d, enum dr_code code, const char *subject)
{
    return dr_has_finding(d, code, subject);
}

#define GOOD_ROOT { .kind = RP, .complete32 = true, .complete64 = true }
#define GOOD_UP   { .kind = UP, .routing = true }
#define GOOD_DN   { .kind = DN, .routing = true }
#define CARD      { .kind = EP, .complete32 = true, .complete64 = true }

static const struct chain chains[] = {
    { "1: the usual slot", { GOOD_ROOT, CARD }, DR_YES, DR_ATOMICS_OK },
    { "2: a card with its own switch", { GOOD_ROOT, GOOD_UP, GOOD_DN, CARD }, DR_YES,
            DR_ATOMICS_OK },
    { "3: a guest's port that completes nothing",
            { { .kind = RP, .is_emulated = true }, CARD }, DR_NO,
            DR_ATOMICS_ROOT_PORT_NO_COMPLETER },
    { "4: a guest's port that completes",
            { { .kind = RP,
                      .complete32 = true,
                      .complete64 = true,
                      .is_emulated = true },
                    CARD },
            DR_YES, DR_ATOMICS_OK },
    { "5: routing is no completing", { { .kind = RP, .routing = true }, CARD }, DR_NO,
            DR_ATOMICS_ROOT_PORT_NO_COMPLETER },
    { "6: one width is not enough", { { .kind = RP, .complete32 = true }, CARD }, DR_NO,
            DR_ATOMICS_ROOT_PORT_NO_COMPLETER },
    { "7: a chipset's port does not route",
            { GOOD_ROOT, GOOD_UP, { .kind = DN }, GOOD_UP, GOOD_DN, CARD }, DR_NO,
            DR_ATOMICS_SWITCH_NO_ROUTING },
    { "8: an upstream port blocks",
            { GOOD_ROOT, { .kind = UP, .routing = true, .blocked = true }, GOOD_DN,
                    CARD },
            DR_NO, DR_ATOMICS_EGRESS_BLOCKED },
    { "9: a downstream port that blocks is not asked",
            { GOOD_ROOT, GOOD_UP, { .kind = DN, .routing = true, .blocked = true },
                    CARD },
            DR_YES, DR_ATOMICS_OK },
    { "10: an upstream port with memory",
            { GOOD_ROOT, { .kind = UP, .routing = true, .has_memory = true }, GOOD_DN,
                    CARD },
            DR_YES, DR_ATOMICS_OK },
    { "13: a bridge to conventional PCI", { GOOD_ROOT, { .kind = BRIDGE }, CARD },
            DR_UNSURE, DR_ATOMICS_UNKNOWN },
    { "14: a port without the register", { { .kind = RP, .is_old = true }, CARD },
            DR_NO, DR_ATOMICS_ROOT_PORT_NO_COMPLETER },
};

static void check_chain(const struct chain *c, bool as_sysfs)
{
    struct doctor *d = doctor_new();
    char bdf[DR_BDF_MAX];
    uint32_t line;

    if (as_sysfs)
        add_sysfs(d, c->parts, 0);
    else
        add_lspci(d, c->parts, 0);
    doctor_judge(d);
    address(length(c->parts) - 1, 0, bdf);
    if (dr_gpu_atomics(d, gpu_at(d, bdf), &line) != c->answer)
        fail_msg("%s, %s: wrong answer", c->name, as_sysfs ? "sysfs" : "lspci");
    if (!found(d, c->code, bdf))
        fail_msg("%s, %s: no %s", c->name, as_sysfs ? "sysfs" : "lspci",
                dr_codes[c->code].name);
    for (uint32_t i = 0; i < d->num_findings; i++)
        if (dr_codes[d->findings[i].code].severity == DR_ERROR &&
                d->findings[i].code != c->code)
            fail_msg("%s: also %s", c->name, dr_codes[d->findings[i].code].name);
    doctor_free(d);
}

static void chains_are_judged_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(chains); i++) {
        check_chain(&chains[i], false);
        check_chain(&chains[i], true);
    }
}

/* 11: part of the root complex; what the kernel does there depends on its version. */
static void without_a_root_port(void **state)
{
    static const struct {
        const char *kernel;
        enum dr_answer answer;
    } kernels[] = {
        { "[    0.000000] Linux version 6.8.0-45-generic (buildd@host)", DR_YES },
        { "[    0.000000] Linux version 7.1.10-1-default (geeko@host)", DR_NO },
        { "$ uname -r\n6.12.38-amd64", DR_YES },
        { "no kernel", DR_UNSURE },
    };
    static const struct part alone[] = {
        { .kind = RCIEP, .complete32 = true, .complete64 = true }, { .kind = END }
    };

    (void)state;
    for (size_t i = 0; i < COUNT(kernels); i++)
        for (int as_sysfs = 0; as_sysfs < 2; as_sysfs++) {
            struct doctor *d = doctor_new();
            uint32_t line;

            if (as_sysfs)
                add_sysfs(d, alone, 0);
            else
                add_lspci(d, alone, 0);
            add_line(d, "kernel.txt", kernels[i].kernel);
            doctor_judge(d);
            assert_int_equal(dr_gpu_atomics(d, gpu_at(d, "0000:00:01.1"), &line),
                    kernels[i].answer);
            assert_true(found(d, DR_ATOMICS_UNKNOWN, "0000:00:01.1") ==
                    (kernels[i].answer == DR_UNSURE));
            doctor_free(d);
        }
}

/* 12: a virtual function is not judged by its path, only by what its driver was told. */
static void a_virtual_function(void **state)
{
    static const struct part good[] = { GOOD_ROOT, CARD, { .kind = END } };
    struct doctor *d = doctor_new();
    uint32_t line;

    (void)state;
    add_sysfs(d, good, 0);
    add_line(d, "more.txt",
            "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/physfn:0000:01:00.1\n"
            "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/driver:amdgpu\n");
    doctor_judge(d);
    assert_int_equal(dr_gpu_atomics(d, gpu_at(d, "0000:01:00.0"), &line), DR_UNSURE);
    assert_true(found(d, DR_ATOMICS_UNKNOWN, "0000:01:00.0"));
    assert_false(found(d, DR_ATOMICS_OFF, NULL));
    doctor_free(d);

    d = doctor_new();
    add_sysfs(d, good, 0);
    add_line(d, "more.txt",
            "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/physfn:0000:01:00.1\n");
    add_line(d, "dmesg.txt",
            "[    3.1] amdgpu 0000:01:00.0: amdgpu: PCIE atomic ops is not "
            "supported\n");
    doctor_judge(d);
    assert_true(found(d, DR_ATOMICS_OFF, "0000:01:00.0"));
    doctor_free(d);
}

/* 15: two GPUs in one box, one verdict each. */
static void two_gpus(void **state)
{
    (void)state;
    for (int as_sysfs = 0; as_sysfs < 2; as_sysfs++) {
        struct doctor *d = doctor_new();

        if (as_sysfs) {
            add_sysfs(d, chains[1].parts, 0);
            add_sysfs(d, chains[6].parts, 0x10);
        } else {
            add_lspci(d, chains[1].parts, 0);
            add_lspci(d, chains[6].parts, 0x10);
        }
        doctor_judge(d);
        assert_true(found(d, DR_ATOMICS_OK, "0000:03:00.0"));
        assert_true(found(d, DR_ATOMICS_SWITCH_NO_ROUTING, "0000:15:00.0"));
        assert_false(found(d, DR_ATOMICS_OK, "0000:15:00.0"));
        assert_int_equal(dr_num_gpus(d, DR_NONE, 0x1002), 2);
        doctor_free(d);
    }
}

/* ---- which source wins ---- */

/* The path is bad, yet the better sources say yes; and the other way round. */
static void order_of_trust(void **state)
{
#define NODES "/sys/class/kfd/kfd/topology/nodes/"
    static const char kfd[] = NODES "0/properties:cpu_cores_count 16\n" NODES
                                    "1/properties:simd_count 192\n" NODES
                                    "1/properties:location_id 256\n" NODES
                                    "1/io_links/0/properties:type 2\n" NODES
                                    "1/io_links/0/properties:node_to 0\n" NODES
                                    "1/io_links/0/properties:flags ";
    static const struct {
        int chain;         /* index into chains */
        const char *flags; /* of KFD's link, NULL: not in the text */
        const char *hip;   /* the attribute */
        enum dr_answer answer;
    } rows[] = {
        { 4, "1", NULL, DR_YES },
        { 0, "13", NULL, DR_NO },
        { 0, "13", "1", DR_YES },
        { 0, "1", "0", DR_NO },
        { 4, "5", NULL, DR_NO }, /* one bit only: KFD does not say */
        { 4, NULL, "1", DR_YES },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = doctor_new();
        char text[2048];

        add_lspci(d, chains[rows[i].chain].parts, 0);
        if (rows[i].flags != NULL) {
            snprintf(text, sizeof(text), "%s%s\n", kfd, rows[i].flags);
            add_line(d, "kfd.txt", text);
        }
        if (rows[i].hip != NULL) {
            snprintf(text, sizeof(text),
                    "HIP device 0 0000:01:00.0 hostNativeAtomicSupported %s\n",
                    rows[i].hip);
            add_line(d, "hip.txt", text);
        }
        doctor_judge(d);
        assert_int_equal(dr_gpu_atomics(d, gpu_at(d, "0000:01:00.0"), NULL),
                rows[i].answer);
        assert_true(
                found(d, DR_ATOMICS_OK, "0000:01:00.0") == (rows[i].answer == DR_YES));
        if (rows[i].answer == DR_YES)
            assert_false(found(d, DR_ATOMICS_ROOT_PORT_NO_COMPLETER, NULL));
        doctor_free(d);
    }
}

/* ---- the shapes of text ---- */

static void configuration_space_of_a_user(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    add_line(d, "config.txt",
            "$ lspci -Dnxxxx\n"
            "0000:03:00.0 0300: 1002:744c (rev c8)\n"
            "00: 02 10 4c 74 07 04 10 00 c8 00 00 03 10 00 80 00\n"
            "10: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
            "20: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
            "30: 00 00 00 00 40 00 00 00 00 00 00 00 ff 01 00 00\n");
    doctor_judge(d);
    assert_true(d->pci->devices[gpu_at(d, "0000:03:00.0")].denied);
    assert_true(found(d, DR_ATOMICS_UNKNOWN, "0000:03:00.0"));
    doctor_free(d);
}

#define AMD "Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT]"

static void trees(void **state)
{
    struct doctor *d = doctor_new();
    uint32_t chain[DR_CHAIN_MAX], gpu;

    (void)state;
    add_line(d, "tree.txt",
            "-+-[0000:40]-+-00.0  Root\n"
            " |           \\-03.1-[41-43]----00.0-[42-43]----00.0-[43]--+-00.0  " AMD
            "\n"
            " |                                                        \\-00.1  Audio\n"
            " \\-[0000:00]-+-00.0  Root\n"
            "             +-01.1-[01]----00.0  Sandisk Corp WD Black SN850\n"
            "             \\-01.2-[02]--+-00.0  NVIDIA Corporation [GeForce RTX 4070]\n"
            "                          \\-00.1  NVIDIA Corporation Device 22bc\n");
    dr_read_pci(d);
    gpu = gpu_at(d, "0000:43:00.0");
    assert_int_equal(dr_chain(d, gpu, chain), 3);
    assert_string_equal(d->pci->devices[chain[0]].bdf, "0000:42:00.0");
    assert_string_equal(d->pci->devices[chain[2]].bdf, "0000:40:03.1");
    gpu = gpu_at(d, "0000:02:00.0");
    assert_int_equal(dr_chain(d, gpu, chain), 1);
    assert_string_equal(d->pci->devices[chain[0]].bdf, "0000:00:01.2");
    assert_int_equal(dr_num_gpus(d, DR_NONE, 0), 2);
    doctor_free(d);
}

static void links_of_sysfs(void **state)
{
    static const char *const texts[] = {
        "$ readlink -f /sys/bus/pci/devices/0000:03:00.0\n"
        "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0\n",
        "lrwxrwxrwx 1 root root 0 Jan  1 00:00 0000:03:00.0 -> "
        "../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/"
        "0000:03:00.0\n",
        "renderD128 -> ../../devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/"
        "0000:03:00.0/drm/renderD128\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct doctor *d = doctor_new();
        uint32_t chain[DR_CHAIN_MAX];

        add_line(d, "links.txt", texts[i]);
        dr_read_pci(d);
        assert_int_equal(dr_chain(d, dr_pci_find(d, 0, "0000:03:00.0"), chain), 3);
        assert_string_equal(d->pci->devices[chain[2]].bdf, "0000:00:01.1");
        doctor_free(d);
    }
}

/* Only the command says whose bits these are. */
static void devices_of_a_command(void **state)
{
    struct doctor *d = doctor_new();

    (void)state;
    add_line(d, "session.txt",
            "$ for d in 03:00.0 07:00.0; do sudo lspci -vvv -s $d | grep Atomic; done\n"
            "\t\t\t AtomicOpsCap: 32bit+ 64bit+ 128bitCAS-\n"
            "\t\t\t AtomicOpsCtl: ReqEn+\n"
            "\t\t\t AtomicOpsCap: 32bit+ 64bit+ 128bitCAS-\n"
            "\t\t\t AtomicOpsCtl: ReqEn-\n");
    dr_read_pci(d);
    assert_int_equal(d->pci->devices[dr_pci_find(d, 0, "0000:03:00.0")].requester, 1);
    assert_int_equal(d->pci->devices[dr_pci_find(d, 0, "0000:07:00.0")].requester, 0);
    doctor_free(d);
}

static void hypervisors(void **state)
{
    static const struct {
        const char *text;
        bool guest;
    } rows[] = {
        { "[    0.000000] Hypervisor detected: KVM\n", true },
        { "$ systemd-detect-virt\nkvm\n", true },
        { "$ systemd-detect-virt\ndocker\n", false },
        { "flags\t\t: fpu vme hypervisor lahf_lm\n", true },
        { "Hypervisor vendor:     KVM\n", true },
        { "Virtualization:        AMD-V\n", false },
        { "00:1c.0 PCI bridge: Red Hat, Inc. QEMU PCIe Root port\n", true },
        { "[    0.0] DMI: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 4.2 01/01/2025\n",
                true },
        { "/sys/class/dmi/id/product_name:Standard PC (Q35 + ICH9, 2009)\n", true },
        { "pve-qemu-kvm: 9.2.0-5\n", false },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = doctor_new();

        add_line(d, "text.txt", rows[i].text);
        dr_read_pci(d);
        if (dr_is_guest(d, 0) != rows[i].guest)
            fail_msg("wrong: %s", rows[i].text);
        doctor_free(d);
    }
}

/* Searching the log in vain decides nothing; not searching it says nothing. */
static void a_search_in_vain(void **state)
{
    static const char gpu[] =
            "03:00.0 VGA compatible controller: Advanced Micro Devices, "
            "Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT] (rev cc)\n";
    static const struct {
        const char *text;
        bool unknown;
    } rows[] = {
        { "$ dmesg | grep -i atomic\n[    0.1] DMA: preallocated 4096 KiB pool for "
          "atomic "
          "allocations\n",
                true },
        { "$ sudo dmesg | grep -iE 'atomic|kfd'\n$ id\n", true },
        { "$ dmesg | grep -i atomic\ndmesg: read kernel buffer failed: Operation not "
          "permitted\n",
                true },
        { "$ dmesg | grep -i iommu\n[    0.1] iommu: Default domain type: Translated\n",
                false },
        { "[    0.1] DMA: preallocated 4096 KiB pool for atomic allocations\n", false },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = doctor_new();

        add_line(d, "lspci.txt", gpu);
        add_line(d, "session.txt", rows[i].text);
        doctor_judge(d);
        if (found(d, DR_ATOMICS_UNKNOWN, "0000:03:00.0") != rows[i].unknown)
            fail_msg("wrong: %s", rows[i].text);
        assert_false(found(d, DR_ATOMICS_OFF, NULL));
        assert_false(found(d, DR_ATOMICS_OK, NULL));
        doctor_free(d);
    }
}

static void skipped_by_kfd(void **state)
{
    static const struct {
        const char *text;
        enum dr_code code; /* DR_NUM_CODES: none */
    } rows[] = {
        { "kfd kfd: skipped device 1002:67df, PCI rejects atomics",
                DR_KFD_SKIPPED_NO_ATOMICS },
        { "Jan 01 00:00:01 box kernel: kfd kfd: amdgpu: skipped device 1002:67df, PCI "
          "rejects atomics 730<0",
                DR_KFD_SKIPPED_NO_ATOMICS },
        { "[    3.1] kfd kfd: amdgpu: skipped device 1002:73df, PCI rejects atomics "
          "71<92",
                DR_KFD_SKIPPED_OLD_FIRMWARE },
        { "[    3.1] kfd kfd: amdgpu: skipped device 1002:73df, PCI rejects atomics "
          "71<",
                DR_NUM_CODES },
        { "[    0.0] Linux version 6.1\n[    3.1] kfd kfd: amdgpu: skipped device "
          "1002:73df, PCI rejects atomics 71<92\n[    0.0] Linux version 6.1\n[    "
          "3.1] "
          "kfd kfd: amdgpu: added device 1002:73df",
                DR_NUM_CODES },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = doctor_new();

        add_line(d, "dmesg.txt", rows[i].text);
        doctor_judge(d);
        for (int code = DR_KFD_SKIPPED_NO_ATOMICS; code <= DR_KFD_SKIPPED_OLD_FIRMWARE;
                code++)
            if (found(d, (enum dr_code)code, NULL) != (code == (int)rows[i].code))
                fail_msg("wrong: %s", rows[i].text);
        doctor_free(d);
    }
}

/* The port that breaks the path is marked, and no terminal is needed to see it. */
static void drawing(void **state)
{
    struct doctor *d = doctor_new();
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    add_lspci(d, chains[6].parts, 0);
    doctor_judge(d);
    dr_draw_paths(d, out, false);
    fclose(out);
    assert_non_null(strstr(text, "0000:02:00.0"));
    assert_non_null(strstr(text, "AtomicOps end here: Routing-"));
    assert_non_null(strstr(text, "AtomicOps no"));
    assert_null(strchr(text, '\033'));
    free(text);
    doctor_free(d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_judged_alike),
        cmocka_unit_test(without_a_root_port),
        cmocka_unit_test(a_virtual_function),
        cmocka_unit_test(two_gpus),
        cmocka_unit_test(order_of_trust),
        cmocka_unit_test(configuration_space_of_a_user),
        cmocka_unit_test(trees),
        cmocka_unit_test(links_of_sysfs),
        cmocka_unit_test(devices_of_a_command),
        cmocka_unit_test(hypervisors),
        cmocka_unit_test(a_search_in_vain),
        cmocka_unit_test(skipped_by_kfd),
        cmocka_unit_test(drawing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
