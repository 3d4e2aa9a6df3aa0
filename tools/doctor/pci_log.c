/* SPDX-License-Identifier: Apache-2.0 */
/* PCI devices as the kernel log shows them. */
#include "pci_read.h"

#include <string.h>

/* ---- the kernel log ---- */

static void set_port(struct dr_pci_device *p, const char *text, uint32_t line)
{
    static const struct {
        const char *words;
        enum dr_port port;
    } ports[] = {
        { "PCIe Root Port", DR_ROOT_PORT },
        { "PCIe Switch Upstream Port", DR_UPSTREAM_PORT },
        { "PCIe Switch Downstream Port", DR_DOWNSTREAM_PORT },
        { "PCIe Legacy Endpoint", DR_LEGACY_ENDPOINT },
        { "PCIe Endpoint", DR_ENDPOINT },
        { "PCIe Root Complex Integrated Endpoint", DR_RC_INTEGRATED },
        { "PCIe to PCI/PCI-X bridge", DR_PCIE_TO_PCI },
        { "PCI/PCI-X to PCIe bridge", DR_PCI_TO_PCIE },
    };

    for (size_t i = 0; p->port == DR_PORT_UNKNOWN && i < sizeof(ports) / sizeof(*ports);
            i++)
        if (dr_has(text, ports[i].words)) {
            p->port = ports[i].port;
            p->line_port = line;
        }
}

/* "pci 0000:01:00.0: [1002:744c] type 00 class 0x030000 PCIe Legacy Endpoint" */
static void read_found(struct dr_pci_reading *r, struct dr_pci_device *p)
{
    struct dr_span part[4];
    uint64_t vendor, device, class;

    if (!dr_scan(r->text, ": [%x:%x] type %x class %x", part) ||
            !dr_span_hex(part[0], &vendor) || !dr_span_hex(part[1], &device) ||
            !dr_span_hex(part[3], &class) || vendor > 0xffff || device > 0xffff)
        return;
    dr_pci_set_ids(p, (int)vendor, (int)device, (int)(class >> 8 & 0xffff));
    set_port(p, r->text, r->line);
}

/* "pci 0000:00:01.1: PCI bridge to [bus 02-04]" */
static void read_bridge(struct dr_pci_reading *r, struct dr_pci_device *p)
{
    struct dr_span part[2];
    uint64_t first, last;
    const bool range = dr_scan(r->text, "PCI bridge to [bus %x-%x]", part);

    if (!range && !dr_scan(r->text, "PCI bridge to [bus %x]", part))
        return;
    if (dr_span_hex(part[0], &first) && dr_span_hex(part[range], &last) && first > 0 &&
            first <= last && last < 256 && p->secondary < 0) {
        p->secondary = (int)first;
        p->subordinate = (int)last;
        p->line_bus = r->line;
        dr_pci_set_ids(p, -1, -1, 0x0604);
    }
}

static void read_group(struct dr_pci_reading *r, struct dr_pci_device *p)
{
    struct dr_span part;
    uint64_t number;

    if (!dr_scan(r->text, "Adding to iommu group %d", &part))
        return;
    if (p->iommu_group < 0 && dr_span_u64(part, &number) && number < INT32_MAX)
        p->iommu_group = (int)number;
}

/* A driver that speaks of a device in the kernel log. */
static const struct {
    const char *name, *pattern;
    int vendor;
} drivers[] = {
    { "amdgpu ", "%<amdgpu %b:", 0x1002 },
    { "nvidia ", "%<nvidia %b:", 0x10de },
};

static void read_driver_line(struct dr_pci_reading *r)
{
    struct dr_span part;
    char bdf[DR_BDF_MAX];

    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++) {
        struct dr_pci_device *p;

        if (!dr_has(r->text, drivers[i].name) ||
                !dr_scan(r->text, drivers[i].pattern, &part) || !dr_span_bdf(part, bdf))
            continue;
        p = dr_pci_device(r->d, r->machine, bdf, r->line);
        if (p->vendor < 0)
            p->vendor = drivers[i].vendor;
        p->logged |= p->vendor == 0x1002;
        if (r->boot != DR_NONE && p->line_refused_by_log < r->boot &&
                r->d->lines[p->line_refused_by_log].source == r->source)
            p->line_refused_by_log = DR_NONE; /* of a boot before this one */
        if (p->vendor == 0x1002)
            r->last_gpu = dr_pci_find(r->d, r->machine, bdf);
    }
}

/* "[drm] initializing kernel modesetting (NAVI10 0x1002:0x731F 0x1458:0x2313 0xC1)." */
static void read_modesetting(struct dr_pci_reading *r)
{
    struct dr_span part[4];
    uint64_t vendor, device;

    if (dr_scan(r->text, "kernel modesetting (", NULL) &&
            dr_scan(r->text, " %x:%x %x:%x", part) && dr_span_hex(part[0], &vendor) &&
            dr_span_hex(part[1], &device) && vendor <= 0xffff && device <= 0xffff)
        dr_pci_set_ids(&r->d->pci->devices[r->last_gpu], (int)vendor, (int)device, -1);
}

/* The old line names no device: it follows those of the one that it is about. */
static void read_refusal(struct dr_pci_reading *r)
{
    if (r->last_gpu != DR_NONE)
        r->d->pci->devices[r->last_gpu].line_refused_by_log = r->line;
    else
        r->d->pci->machines[r->machine].line_refused = r->line;
}

/* What the kernel says of a device, by the words that tell the lines apart. */
static const struct {
    const char *words;
    void (*read)(struct dr_pci_reading *r, struct dr_pci_device *p);
} log_lines[] = {
    { "] type ", read_found },
    { "PCI bridge to [bus", read_bridge },
    { "Adding to iommu group", read_group },
};

bool dr_pci_read_log(struct dr_pci_reading *r)
{
    struct dr_span part;
    char bdf[DR_BDF_MAX];

    if (r->d->lines[r->line].flags & DR_COMMAND)
        return false;
    if (dr_has(r->text, "Linux version ")) {
        r->last_gpu = DR_NONE;
        r->boot = r->line;
    }
    read_driver_line(r);
    if (r->last_gpu != DR_NONE)
        read_modesetting(r);
    if (dr_has_any_case(r->text, "PCIE atomic ops is not supported")) {
        read_refusal(r);
        return true;
    }
    for (size_t i = 0; i < sizeof(log_lines) / sizeof(*log_lines); i++)
        if (dr_has(r->text, log_lines[i].words) && dr_scan(r->text, " %b: ", &part) &&
                dr_span_bdf(part, bdf)) {
            log_lines[i].read(r, dr_pci_device(r->d, r->machine, bdf, r->line));
            return true;
        }
    return false;
}
