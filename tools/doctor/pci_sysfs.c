/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sysfs as text: PATH:VALUE of `grep -r .`, links of `ls -l`, answers of `readlink`. A path
 * below /sys/devices names every bridge above a device, and needs no privilege.
 */
#include "pci_read.h"

#include <string.h>

#define PCI_ROOT "devices/pci"
/* IORESOURCE_MEM of the kernel. */
#define RESOURCE_MEMORY 0x200u

/* The component at @p at is an address: "0000:03:00.0". */
static bool component(const char *at, size_t length, char bdf[DR_BDF_MAX])
{
    return length >= 12 && dr_span_bdf((struct dr_span){ at, length }, bdf);
}

/* The devices of "…devices/pci0000:00/0000:00:03.1/0000:0a:00.0…", each below the one
 * before; the last of them and what follows it. */
static uint32_t path_devices(struct dr_pci_reading *r, const char *at,
        const char **rest)
{
    uint32_t above = DR_NONE;
    char bdf[DR_BDF_MAX];

    at += strcspn(at, "/");
    while (*at == '/') {
        struct dr_pci_device *p;
        size_t used = strspn(at + 1, "0123456789abcdefABCDEF:.");

        /* "0000:0a:00.0:" of PATH:VALUE ends before its last colon */
        if (used > 0 && at[used] == ':')
            used--;
        if (!component(at + 1, used, bdf))
            break;
        p = dr_pci_device(r->d, r->machine, bdf, r->line);
        if (above != DR_NONE)
            p->parent = above;
        above = dr_pci_find(r->d, r->machine, bdf);
        at += 1 + used;
    }
    *rest = at;
    return above;
}

/* ---- attributes ---- */

static int small_hex(const char *value)
{
    struct dr_span digits;
    uint64_t number;

    return dr_scan(value, "^%x", &digits) && dr_span_hex(digits, &number) &&
                    number <= 0xffff
            ? (int)number
            : -1;
}

static int small_number(const char *value)
{
    struct dr_span digits;
    uint64_t number;

    return dr_scan(value, "^%d", &digits) && dr_span_u64(digits, &number) &&
                    number <= 0xffff
            ? (int)number
            : -1;
}

/* The last component of the target of a link, or the word itself. */
static const char *last_part(const char *value)
{
    const char *slash = strrchr(value, '/');

    return slash != NULL ? slash + 1 : value;
}

static void set_vendor(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    (void)r;
    p->vendor = small_hex(v);
}

static void set_device(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    (void)r;
    p->device = small_hex(v);
}

static void set_class(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    uint64_t class;

    (void)r;
    if (dr_span_hex((struct dr_span){ v, strcspn(v, " ") }, &class))
        p->class = (int)(class >> 8 & 0xffff);
}

static void set_numa(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    (void)r;
    p->numa_node = small_number(v);
}

static void set_driver(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    p->driver = last_part(v);
    p->line_driver = r->line;
}

static void set_group(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    (void)r;
    p->iommu_group = small_number(last_part(v));
}

static void set_physical(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    (void)r, (void)v;
    p->is_virtual_function = true;
}

static void set_speed(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v,
        bool cap)
{
    struct dr_span number;

    if (!dr_scan(v, "^%f", &number))
        return; /* "Unknown" */
    *(cap ? &p->cap_speed : &p->sta_speed) = dr_span_double(number);
    *(cap ? &p->line_link_cap : &p->line_link_sta) = r->line;
}

static void set_width(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v,
        bool cap)
{
    const int lanes = small_number(v);

    if (lanes < 0 || lanes > 64)
        return; /* 255: there is no link */
    *(cap ? &p->cap_width : &p->sta_width) = lanes;
    *(cap ? &p->line_link_cap : &p->line_link_sta) = r->line;
}

static void set_max_speed(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    set_speed(r, p, v, true);
}

static void set_speed_now(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    set_speed(r, p, v, false);
}

static void set_max_width(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    set_width(r, p, v, true);
}

static void set_width_now(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    set_width(r, p, v, false);
}

static void set_secondary(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    const int bus = small_number(v);

    if (bus > 0 && bus < 256) {
        p->secondary = bus;
        p->line_bus = r->line;
    }
}

static void set_subordinate(struct dr_pci_reading *r, struct dr_pci_device *p,
        const char *v)
{
    const int bus = small_number(v);

    if (bus > 0 && bus < 256) {
        p->subordinate = bus;
        p->line_bus = r->line;
    }
}

/* Its lines are the regions in their order, one PATH:VALUE each. */
static void set_region(struct dr_pci_reading *r, struct dr_pci_device *p, const char *v)
{
    const uint32_t device = (uint32_t)(p - r->d->pci->devices);
    struct dr_span part[3];
    uint64_t first, last, flags;

    if (!dr_scan(v, "^%x %x %x", part) || !dr_span_hex(part[0], &first) ||
            !dr_span_hex(part[1], &last) || !dr_span_hex(part[2], &flags))
        return;
    if (r->resource_of != device || r->resource_source != r->source)
        r->resource_index = 0;
    r->resource_of = device;
    r->resource_source = r->source;
    if (r->resource_index < DR_REGIONS_MAX && last > first &&
            (flags & RESOURCE_MEMORY) != 0)
        p->regions[r->resource_index] =
                (struct dr_region){ first, last - first + 1, r->line };
    r->resource_index++;
}

static const struct attribute {
    const char *name;
    void (*set)(struct dr_pci_reading *r, struct dr_pci_device *p, const char *value);
} attributes[] = {
    { "vendor", set_vendor },
    { "device", set_device },
    { "class", set_class },
    { "numa_node", set_numa },
    { "driver", set_driver },
    { "iommu_group", set_group },
    { "physfn", set_physical },
    { "max_link_speed", set_max_speed },
    { "current_link_speed", set_speed_now },
    { "max_link_width", set_max_width },
    { "current_link_width", set_width_now },
    { "secondary_bus_number", set_secondary },
    { "subordinate_bus_number", set_subordinate },
    { "resource", set_region },
};

/* /sys/bus/pci/slots/NAME/address:0000:0a:00 */
static bool read_slot(struct dr_pci_reading *r)
{
    struct dr_span part[2];
    char bdf[DR_BDF_MAX];
    char text[DR_BDF_MAX];

    if (!dr_scan(r->text, "/bus/pci/slots/%*/address:%w", part) ||
            part[1].length + 3 > sizeof(text))
        return false;
    memcpy(text, part[1].at, part[1].length);
    memcpy(text + part[1].length, ".0", 3);
    if (dr_span_bdf((struct dr_span){ text, part[1].length + 2 }, bdf)) {
        struct dr_pci_device *p = dr_pci_device(r->d, r->machine, bdf, r->line);

        p->slot = dr_copy(r->d, part[0].at, part[0].length);
        p->line_slot = r->line;
    }
    return true;
}

/* What follows the address: "/vendor:0x1002", "/driver -> ../bus/pci/drivers/amdgpu", or a
 * path alone whose content is the next line. */
static void read_attribute(struct dr_pci_reading *r, uint32_t device, const char *rest)
{
    struct dr_pci_device *p = &r->d->pci->devices[device];
    struct dr_span name;
    const char *value;

    if (*rest != '/')
        return;
    name = (struct dr_span){ rest + 1, strcspn(rest + 1, "/: \t") };
    value = name.at + name.length;
    if (dr_begins(value, " -> "))
        value += 4;
    else if (*value == ':')
        value++;
    else
        return;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
        if (dr_span_is(name, attributes[i].name))
            attributes[i].set(r, p, value);
}

/* The target of a link at the end of "NAME -> TARGET" says more than NAME. */
static bool from_devices(struct dr_pci_reading *r, const char *at)
{
    const char *rest;
    const uint32_t device = path_devices(r, at + strlen(PCI_ROOT), &rest);

    if (device != DR_NONE)
        read_attribute(r, device, rest);
    return device != DR_NONE;
}

bool dr_pci_read_path(struct dr_pci_reading *r)
{
    const char *at;
    struct dr_span name;
    char bdf[DR_BDF_MAX];

    if (strchr(r->text, '/') == NULL || (r->d->lines[r->line].flags & DR_COMMAND))
        return false;
    if (dr_has(r->text, "/slots/") && read_slot(r))
        return true;
    at = strstr(r->text, PCI_ROOT);
    if (at != NULL)
        return from_devices(r, at);
    if (dr_scan(r->text, "/bus/pci/devices/%w", &name)) {
        const size_t length = strspn(name.at, "0123456789abcdefABCDEF:.");

        /* "0000:0a:00.0:" of PATH:VALUE ends before its last colon */
        if (length >= 12 &&
                component(name.at, length - (name.at[length - 1] == ':'), bdf)) {
            (void)dr_pci_device(r->d, r->machine, bdf, r->line);
            read_attribute(r, dr_pci_find(r->d, r->machine, bdf), name.at + length);
            return true;
        }
    }
    return false;
}
