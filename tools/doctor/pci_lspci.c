/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that lspci prints, whatever its options; its tree is read in pci_tree.c, its
 * bytes in pci_hex.c. */
#include "pci_read.h"

#include <ctype.h>
#include <string.h>

/* ---- names ---- */

int dr_vendor_of_name(const char *name)
{
    static const struct {
        const char *begins;
        int vendor;
    } vendors[] = {
        { "Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002 },
        { "Advanced Micro Devices, Inc. [AMD] nee ATI", 0x1002 },
        { "Advanced Micro Devices [AMD] nee ATI", 0x1002 },
        { "Advanced Micro Devices [AMD/ATI]", 0x1002 },
        { "ATI Technologies Inc", 0x1002 },
        { "Advanced Micro Devices", 0x1022 },
        { "NVIDIA Corporation", 0x10de },
        { "nVidia Corporation", 0x10de },
        { "Intel Corporation", 0x8086 },
        { "Red Hat, Inc. Virtio", 0x1af4 },
        { "Red Hat, Inc. QEMU", 0x1b36 },
        { "Red Hat, Inc.", 0x1b36 },
        { "Chengdu Haiguang", 0x1d94 },
        { "Moore Threads", 0x1ed5 },
        { "Mellanox Technologies", 0x15b3 },
        { "Broadcom / LSI", 0x1000 },
        { "PLX Technology", 0x10b5 },
        { "Texas Instruments", 0x104c },
        { "ASMedia Technology", 0x1b21 },
        { "ASPEED Technology", 0x1a03 },
    };

    for (size_t i = 0; i < sizeof(vendors) / sizeof(*vendors); i++)
        if (dr_begins(name, vendors[i].begins))
            return vendors[i].vendor;
    return -1;
}

struct dr_span dr_short_name(const struct dr_pci_device *device)
{
    static const char *const vendors[] = { "[AMD/ATI] ", "[AMD] ", "Corporation ",
        "Red Hat, Inc. ", "Broadcom / LSI ", "ATI " };
    static const char *const tails[] = { " (rev ", " (prog-if ", " (VF)" };
    const char *name = device->name;
    size_t length;
    struct dr_span id[2];

    for (size_t i = 0; i < sizeof(vendors) / sizeof(*vendors); i++) {
        const char *at = strstr(name, vendors[i]);

        if (at != NULL) {
            name = at + strlen(vendors[i]);
            break;
        }
    }
    length = strlen(name);
    for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
        const char *at = strstr(name, tails[i]);

        if (at != NULL && (size_t)(at - name) < length)
            length = (size_t)(at - name);
    }
    for (size_t n = 0; n + 1 < length; n++)
        if (name[n] == ' ' && dr_scan(name + n, "^ [%x:%x]", id))
            length = n;
    return (struct dr_span){ name, length };
}

/* The words that lspci has for a class; the longest first where one begins another. */
static const struct class_name {
    const char *words;
    int class;
} class_names[] = {
    { "VGA compatible controller", 0x0300 },
    { "XGA compatible controller", 0x0301 },
    { "3D controller", 0x0302 },
    { "Display controller", 0x0380 },
    { "Processing accelerators", 0x1200 },
    { "Processing accelerator", 0x1200 },
    { "Co-processor", 0x0b40 },
    { "PCI bridge", 0x0604 },
    { "Host bridge", 0x0600 },
    { "ISA bridge", 0x0601 },
    { "Bridge", 0x0680 },
    { "Audio device", 0x0403 },
    { "Multimedia audio controller", 0x0401 },
    { "Multimedia video controller", 0x0400 },
    { "Multimedia controller", 0x0480 },
    { "Ethernet controller", 0x0200 },
    { "Infiniband controller", 0x0207 },
    { "InfiniBand controller", 0x0207 },
    { "Network controller", 0x0280 },
    { "Non-Volatile memory controller", 0x0108 },
    { "SATA controller", 0x0106 },
    { "IDE interface", 0x0101 },
    { "RAID bus controller", 0x0104 },
    { "Serial Attached SCSI controller", 0x0107 },
    { "SCSI storage controller", 0x0100 },
    { "Mass storage controller", 0x0180 },
    { "USB controller", 0x0c03 },
    { "SMBus", 0x0c05 },
    { "Serial bus controller", 0x0c80 },
    { "Serial controller", 0x0700 },
    { "Communication controller", 0x0780 },
    { "System peripheral", 0x0880 },
    { "IOMMU", 0x0806 },
    { "PIC", 0x0800 },
    { "Encryption controller", 0x1080 },
    { "Signal processing controller", 0x1180 },
    { "Non-Essential Instrumentation", 0x1300 },
    { "Unassigned class", 0xff00 },
    { "Unclassified device", 0x0000 },
};

static const struct class_name *class_of(const char *text)
{
    for (size_t i = 0; i < sizeof(class_names) / sizeof(*class_names); i++)
        if (dr_begins(text, class_names[i].words))
            return &class_names[i];
    return NULL;
}

void dr_pci_set_ids(struct dr_pci_device *p, int vendor, int device, int class)
{
    if (p->vendor < 0)
        p->vendor = vendor;
    if (p->device < 0)
        p->device = device;
    if (p->class < 0)
        p->class = class;
}

static int hex16(struct dr_span span)
{
    uint64_t value;

    return span.length == 4 && dr_span_hex(span, &value) ? (int)value : -1;
}

/* "[1002:744c]", the last of the name, or "Device 744c" of one that has no name. */
static void ids_of_name(struct dr_pci_device *p, const char *name)
{
    struct dr_span id[2];
    int vendor = dr_vendor_of_name(name), device = -1;

    for (const char *at = name; (at = strchr(at, '[')) != NULL; at++)
        if (dr_scan(at, "^[%x:%x]", id) && hex16(id[0]) >= 0 && hex16(id[1]) >= 0) {
            vendor = hex16(id[0]);
            device = hex16(id[1]);
        }
    if (device < 0 && dr_scan(name, " Device %x%>", id))
        device = hex16(id[0]);
    dr_pci_set_ids(p, vendor, device, -1);
}

/* ---- the first line of a block ---- */

/* What follows the address: class and name in words, in numbers, or in both. */
static bool header(struct dr_pci_reading *r, const char *bdf, const char *rest)
{
    const struct class_name *class = class_of(rest);
    struct dr_pci_device *p;
    struct dr_span id[3];
    int code = -1;
    const char *name = strstr(rest, ": ");

    if (dr_scan(rest, "^%x: %x:%x%>", id) && hex16(id[0]) >= 0) {
        p = dr_pci_device(r->d, r->machine, bdf, r->line);
        dr_pci_set_ids(p, hex16(id[1]), hex16(id[2]), hex16(id[0]));
        r->device = dr_pci_find(r->d, r->machine, bdf);
        return true;
    }
    if (dr_scan(rest, "^Class %x: ", id) || dr_scan(rest, "[%x]: ", id))
        code = hex16(id[0]);
    if (name == NULL || (class == NULL && code < 0))
        return false;
    name += 2;
    p = dr_pci_device(r->d, r->machine, bdf, r->line);
    dr_pci_set_ids(p, -1, -1, code >= 0 ? code : class->class);
    ids_of_name(p, name);
    if (p->name[0] == 0)
        p->name = name;
    p->is_virtual_function |=
            dr_has(name, "Virtual Function") || dr_scan(name, "%<VF%>", NULL);
    p->line = r->line;
    r->device = dr_pci_find(r->d, r->machine, bdf);
    return true;
}

/* lspci -mm: 03:00.0 "VGA compatible controller" "Advanced Micro …" "Navi 31 …" … */
static bool quoted_header(struct dr_pci_reading *r, const char *bdf, const char *rest)
{
    struct dr_span part[3], id;
    struct dr_pci_device *p;
    const struct class_name *class;
    char *name;
    int code = -1;

    if (!dr_scan(rest, "^\"%*\" \"%*\" \"%*\"", part))
        return false;
    class = class_of(part[0].at);
    if (dr_scan(dr_copy(r->d, part[0].at, part[0].length), "[%x]", &id))
        code = hex16(id);
    if (class == NULL && code < 0)
        return false;
    name = dr_printf(r->d, "%.*s %.*s", (int)part[1].length, part[1].at,
            (int)part[2].length, part[2].at);
    p = dr_pci_device(r->d, r->machine, bdf, r->line);
    dr_pci_set_ids(p, -1, -1, code >= 0 ? code : class->class);
    dr_pci_set_ids(p, dr_vendor_of_name(name), -1, -1);
    if (p->name[0] == 0)
        p->name = name;
    r->device = dr_pci_find(r->d, r->machine, bdf);
    return true;
}

static bool header_at(struct dr_pci_reading *r, struct dr_span bdf, const char *rest)
{
    char address[DR_BDF_MAX];

    dr_pci_hex_end(r);
    r->device = DR_NONE;
    return dr_span_bdf(bdf, address) &&
            (header(r, address, rest) || quoted_header(r, address, rest));
}

/* "145:03:00.0 VGA …" of grep -n, "lspci.txt:03:00.0 VGA …" of grep -H. */
static bool read_prefixed_header(struct dr_pci_reading *r, const char *text)
{
    static const ptrdiff_t lengths[] = { 12, 7 }; /* with a domain, and without */
    struct dr_span part[2];

    for (const char *at = text; (at = strchr(at, '.')) != NULL;) {
        const char *end = ++at + 1;

        if (*at < '0' || *at > '7' || *end != ' ')
            continue;
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            const char *start = end - lengths[i];

            if (end - text > lengths[i] && (start[-1] == ':' || start[-1] == '-') &&
                    dr_scan(start, "^%b %*", part) &&
                    part[0].at + part[0].length == end)
                return header_at(r, part[0], part[1].at);
        }
    }
    return false;
}

static bool read_header(struct dr_pci_reading *r, const char *text)
{
    struct dr_span part[2];

    if (isxdigit((unsigned char)text[0]) && dr_scan(text, "^%b %*", part))
        return header_at(r, part[0], part[1].at);
    return read_prefixed_header(r, text);
}

/* ---- the lines below it ---- */

static signed char sign(const char *text, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) &&
                (at[length] == '+' || at[length] == '-'))
            return at[length] == '+';
    return -1;
}

static void set_sign(signed char *out, const char *text, const char *word)
{
    const signed char value = sign(text, word);

    if (value >= 0)
        *out = value;
}

static void read_express(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    static const struct {
        const char *words;
        enum dr_port port;
    } ports[] = {
        { "Root Port", DR_ROOT_PORT },
        { "Upstream Port", DR_UPSTREAM_PORT },
        { "Downstream Port", DR_DOWNSTREAM_PORT },
        { "Legacy Endpoint", DR_LEGACY_ENDPOINT },
        { "Root Complex Integrated Endpoint", DR_RC_INTEGRATED },
        { "Root Complex Event Collector", DR_RC_EVENT_COLLECTOR },
        { "Endpoint", DR_ENDPOINT },
        { "PCI-Express to PCI/PCI-X Bridge", DR_PCIE_TO_PCI },
        { "PCI/PCI-X to PCI-Express Bridge", DR_PCI_TO_PCIE },
        { "PCIe to PCI/PCI-X bridge", DR_PCIE_TO_PCI },
        { "PCI Express to PCI/PCI-X Bridge", DR_PCIE_TO_PCI },
    };
    struct dr_span part[2];
    uint64_t version;

    if (dr_scan(text, "Express (v%d) %*", part)) {
        if (dr_span_u64(part[0], &version) && version < 16)
            p->express_version = (int)version;
    } else if (!dr_scan(text, "Express %*", part + 1)) {
        return; /* pciutils before 3.0 shows no version */
    }
    for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++)
        if (dr_has_any_case(part[1].at, ports[i].words)) {
            p->port = ports[i].port;
            p->line_port = r->line;
            return;
        }
}

static uint64_t size_of(struct dr_span number, struct dr_span unit)
{
    static const char units[] = "KMGT";
    const char *at = unit.length > 0 ? strchr(units, unit.at[0]) : NULL;
    uint64_t bytes = 0;

    if (!dr_span_u64(number, &bytes) || bytes > UINT32_MAX)
        return 0;
    return at != NULL ? bytes << 10 * (at - units + 1) : bytes;
}

static void read_region(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part[2], size[2];
    uint64_t number, address;

    if (dr_scan(text, "Region %d: Memory at %x ", part) &&
            dr_scan(text, "[size=%d%*]", size) && dr_span_u64(part[0], &number) &&
            number < DR_REGIONS_MAX && dr_span_hex(part[1], &address))
        p->regions[number] =
                (struct dr_region){ address, size_of(size[0], size[1]), r->line };
}

static void read_bus(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part[3];
    uint64_t first, last;

    if (dr_scan(text, "Bus: primary=%x, secondary=%x, subordinate=%x", part) &&
            dr_span_hex(part[1], &first) && dr_span_hex(part[2], &last) &&
            first < 256 && last < 256) {
        p->secondary = (int)first;
        p->subordinate = (int)last;
        p->line_bus = r->line;
    }
}

static void read_link(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    const bool cap = dr_has(text, "LnkCap:");
    struct dr_span part[2];
    uint64_t width = 0;
    double speed;

    if (!dr_scan(text, "Speed %fGT/s", part))
        return;
    speed = dr_span_double(part[0]);
    if (dr_scan(text, "Width x%d", part))
        (void)dr_span_u64(part[0], &width);
    if (width > 64)
        return;
    *(cap ? &p->cap_speed : &p->sta_speed) = speed;
    *(cap ? &p->cap_width : &p->sta_width) = (int)width;
    *(cap ? &p->line_link_cap : &p->line_link_sta) = r->line;
}

static void read_atomics(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    if (dr_has(text, "AtomicOpsCap:")) {
        set_sign(&p->routing, text, "Routing");
        set_sign(&p->complete32, text, "32bit");
        set_sign(&p->complete64, text, "64bit");
        p->line_atomics = r->line;
    } else {
        set_sign(&p->requester, text, "ReqEn");
        set_sign(&p->egress_blocked, text, "EgressBlck");
        p->line_requester = r->line;
    }
}

static void read_acs(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    set_sign(&p->acs_source_validation, text, "SrcValid");
    set_sign(&p->acs_redirect_requests, text, "ReqRedir");
    set_sign(&p->acs_redirect_completions, text, "CmpltRedir");
    p->line_acs = r->line;
}

static void read_denied(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    (void)text;
    p->denied = true;
    p->line_denied = r->line;
}

static void read_driver(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part;

    if (dr_scan(text, "driver in use: %w", &part)) {
        p->driver = dr_copy(r->d, part.at, part.length);
        p->line_driver = r->line;
    }
}

static void read_group(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part;
    uint64_t number;

    (void)r;
    if (dr_scan(text, "IOMMU group: %d", &part) && dr_span_u64(part, &number) &&
            number < INT32_MAX)
        p->iommu_group = (int)number;
}

static void read_numa(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part;
    uint64_t number;

    (void)r;
    if (dr_scan(text, "NUMA node: %d", &part) && dr_span_u64(part, &number) &&
            number < 4096)
        p->numa_node = (int)number;
}

static void read_slot(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    struct dr_span part;

    if (p->slot == NULL && dr_scan(text, "Physical Slot: %*", &part)) {
        p->slot = part.at;
        p->line_slot = r->line;
    }
}

static void read_physical(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *text)
{
    (void)r, (void)text;
    p->is_virtual_function = true;
}

/* What a line below the first is known by. */
static const struct detail {
    const char *words;
    void (*read)(struct dr_pci_reading *r, struct dr_pci_device *p, const char *text);
} details[] = {
    { "AtomicOpsCap:", read_atomics },
    { "AtomicOpsCtl:", read_atomics },
    { "Bus: primary=", read_bus },
    { "LnkCap:", read_link },
    { "LnkSta:", read_link },
    { "ACSCtl:", read_acs },
    { "driver in use:", read_driver },
    { "Capabilities: <access denied>", read_denied },
    { "Express (v", read_express },
    { "] Express ", read_express },
    { "Region ", read_region },
    { "IOMMU group:", read_group },
    { "NUMA node:", read_numa },
    { "Physical Slot:", read_slot },
    { "Virtual channel/function of ", read_physical },
};

bool dr_pci_read_lspci(struct dr_pci_reading *r)
{
    const char *text = r->text;

    while (*text == ' ' || *text == '\t' || *text == '>' || *text == '|')
        text++;
    if (r->d->lines[r->line].flags & DR_COMMAND) {
        dr_pci_read_command(r);
        return false;
    }
    if (read_header(r, text))
        return true;
    dr_pci_typed_device(r);
    if (r->device == DR_NONE)
        return false;
    if (dr_pci_hex_line(r))
        return true;
    for (size_t i = 0; i < sizeof(details) / sizeof(*details); i++)
        if (dr_has(text, details[i].words)) {
            details[i].read(r, &r->d->pci->devices[r->device], text);
            return true;
        }
    return false;
}
