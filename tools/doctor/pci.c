/* SPDX-License-Identifier: Apache-2.0 */
/* PCI devices: their records, the bridges above them, and what is asked of them. */
#include "pci_read.h"
#include "rules.h"

#include <string.h>

/* ---- records ---- */

static uint32_t hash(uint32_t machine, const char *bdf)
{
    uint32_t value = 2166136261u ^ machine;

    for (; *bdf != 0; bdf++)
        value = (value ^ (unsigned char)*bdf) * 16777619u;
    return value ^ value >> 15;
}

/* Where the address stands in the table, or the free place for it. */
static uint32_t place(const struct dr_pci *pci, uint32_t machine, const char *bdf)
{
    uint32_t at = hash(machine, bdf) & (pci->table_size - 1);

    while (pci->table[at] != DR_NONE) {
        const struct dr_pci_device *p = &pci->devices[pci->table[at]];

        if (p->machine == machine && strcmp(p->bdf, bdf) == 0)
            break;
        at = (at + 1) & (pci->table_size - 1);
    }
    return at;
}

static void grow_table(struct doctor *d)
{
    struct dr_pci *pci = d->pci;

    pci->table_size = pci->table_size == 0 ? 256 : pci->table_size * 2;
    pci->table = dr_alloc(d, pci->table_size * sizeof(*pci->table));
    memset(pci->table, 0xff, pci->table_size * sizeof(*pci->table));
    for (uint32_t i = 0; i < pci->num_devices; i++)
        pci->table[place(pci, pci->devices[i].machine, pci->devices[i].bdf)] = i;
}

uint32_t dr_pci_find(const struct doctor *d, uint32_t machine, const char *bdf)
{
    return d->pci == NULL || d->pci->table_size == 0
            ? DR_NONE
            : d->pci->table[place(d->pci, machine, bdf)];
}

static void clear(struct dr_pci_device *p, uint32_t line)
{
    *p = (struct dr_pci_device){ .name = "",
        .vendor = -1,
        .device = -1,
        .class = -1,
        .secondary = -1,
        .subordinate = -1,
        .parent = DR_NONE,
        .port = DR_PORT_UNKNOWN,
        .express_version = -1,
        .routing = -1,
        .complete32 = -1,
        .complete64 = -1,
        .requester = -1,
        .egress_blocked = -1,
        .acs_redirect_requests = -1,
        .acs_redirect_completions = -1,
        .acs_source_validation = -1,
        .iommu_group = -1,
        .numa_node = -1,
        .hip_atomics = -1,
        .line = line,
        .line_port = line,
        .line_atomics = line,
        .line_requester = line,
        .line_bus = line,
        .line_link_cap = line,
        .line_link_sta = line,
        .line_acs = line,
        .line_driver = line,
        .line_slot = line,
        .line_hip = line,
        .line_denied = line,
        .line_refused_by_log = DR_NONE };
}

struct dr_pci_device *dr_pci_device(struct doctor *d, uint32_t machine, const char *bdf,
        uint32_t line)
{
    struct dr_pci *pci = d->pci;
    const uint32_t found = dr_pci_find(d, machine, bdf);
    struct dr_pci_device *p;

    if (found != DR_NONE)
        return &pci->devices[found];
    if (line == DR_NONE)
        return NULL;
    if ((pci->num_devices + 1) * 2 > pci->table_size)
        grow_table(d);
    p = DR_PUSH(d, pci->devices, pci->num_devices, pci->room_devices);
    clear(p, line);
    p->machine = machine;
    snprintf(p->bdf, sizeof(p->bdf), "%s", bdf);
    pci->table[place(pci, machine, bdf)] = pci->num_devices - 1;
    return p;
}

int dr_bus_of(const struct dr_pci_device *device)
{
    const struct dr_span digits = { strchr(device->bdf, ':') + 1, 2 };
    uint64_t bus = 0;

    return dr_span_hex(digits, &bus) ? (int)bus : -1;
}

/* ---- what a device is ---- */

bool dr_is_gpu(const struct dr_pci_device *device)
{
    const int base = device->class >= 0 ? device->class >> 8 : -1;

    return (base == 0x03 || base == 0x12 || device->class == 0x0b40) &&
            (device->vendor == 0x1002 || device->vendor == 0x10de ||
                    device->vendor == 0x1d94 || device->vendor == 0x1ed5);
}

uint32_t dr_num_gpus(const struct doctor *d, uint32_t machine, unsigned vendor)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        count += dr_is_gpu(p) && (machine == DR_NONE || p->machine == machine) &&
                (vendor == 0 || p->vendor == (int)vendor);
    }
    return count;
}

uint32_t dr_only_amd_gpu(const struct doctor *d, uint32_t machine, int id)
{
    uint32_t found = DR_NONE;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (p->machine != machine || p->vendor != 0x1002 || !dr_is_gpu(p) ||
                (id > 0 && p->device >= 0 && p->device != id))
            continue;
        if (found != DR_NONE)
            return DR_NONE;
        found = i;
    }
    return found;
}

bool dr_is_guest(const struct doctor *d, uint32_t machine)
{
    return machine < d->num_machines &&
            (d->machines[machine].is_guest_file ||
                    d->pci->machines[machine].line_guest != DR_NONE);
}

/* ---- chains ---- */

uint32_t dr_chain(const struct doctor *d, uint32_t device, uint32_t chain[DR_CHAIN_MAX])
{
    uint32_t count = 0;

    for (uint32_t up = d->pci->devices[device].parent;
            up != DR_NONE && count < DR_CHAIN_MAX; up = d->pci->devices[up].parent) {
        if (up == device)
            break;
        for (uint32_t i = 0; i < count; i++)
            if (chain[i] == up)
                return count; /* a loop: the text contradicts itself */
        chain[count++] = up;
    }
    return count;
}

/* A switch that AMD solders beside its chip: Navi's and Vega's. */
static bool is_on_card(const struct dr_pci_device *p, int upstream)
{
    static const struct {
        int vendor, up, down;
        const char *up_name, *down_name;
    } switches[] = {
        { 0x1002, 0x1478, 0x1479, "Navi 10 XL Upstream Port",
                "Navi 10 XL Downstream Port" },
        { 0x1022, 0x1470, 0x1471, "Vega 10 PCIe Bridge", "Vega 10 PCIe Bridge" },
    };

    for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++) {
        const int id = upstream ? switches[i].up : switches[i].down;

        if ((p->vendor == switches[i].vendor && p->device == id) ||
                (p->device == -1 &&
                        dr_has(p->name,
                                upstream ? switches[i].up_name
                                         : switches[i].down_name)))
            return true;
    }
    return false;
}

uint32_t dr_card_top(const struct doctor *d, uint32_t device)
{
    uint32_t chain[DR_CHAIN_MAX];
    const uint32_t count = dr_chain(d, device, chain);

    if (count >= 2 && is_on_card(&d->pci->devices[chain[0]], 0) &&
            is_on_card(&d->pci->devices[chain[1]], 1))
        return chain[1];
    return count >= 1 && is_on_card(&d->pci->devices[chain[0]], 1) ? chain[0] : device;
}

static bool same_domain(const struct dr_pci_device *a, const struct dr_pci_device *b)
{
    const size_t length = (size_t)(strchr(a->bdf, ':') - a->bdf) + 1;

    return a->machine == b->machine && strncmp(a->bdf, b->bdf, length) == 0;
}

/* Bridges of one machine that a device may hang under; more than this is no machine. */
#define BRIDGES_MAX 4096

/* The bridge whose buses hold the device's, the narrowest; a path of sysfs said it already
 * where there was one. */
static void find_parents(struct doctor *d)
{
    struct dr_pci *pci = d->pci;
    uint32_t *bridges = dr_alloc(d, BRIDGES_MAX * sizeof(*bridges)), count = 0;

    for (uint32_t i = 0; i < pci->num_devices && count < BRIDGES_MAX; i++)
        if (pci->devices[i].secondary > 0)
            bridges[count++] = i;
    for (uint32_t i = 0; i < pci->num_devices && i < BRIDGES_MAX; i++) {
        struct dr_pci_device *p = &pci->devices[i];
        const int bus = dr_bus_of(p);
        int best = -1;

        if (p->parent != DR_NONE)
            continue;
        for (uint32_t k = 0; k < count; k++) {
            const struct dr_pci_device *b = &pci->devices[bridges[k]];

            if (b->secondary > best && b->secondary <= bus && bus <= b->subordinate &&
                    bridges[k] != i && same_domain(p, b)) {
                best = b->secondary;
                p->parent = bridges[k];
            }
        }
    }
}

/* ---- reading ---- */

static void read_machines(struct doctor *d)
{
    d->pci->machines = dr_alloc(d, d->num_machines * sizeof(*d->pci->machines));
    for (uint32_t i = 0; i < d->num_machines; i++)
        d->pci->machines[i] = (struct dr_pci_machine){ .line_guest = DR_NONE,
            .kernel_major = -1,
            .kernel_minor = -1,
            .line_kernel = DR_NONE,
            .line_searched = DR_NONE,
            .line_refused = DR_NONE };
}

void dr_read_pci(struct doctor *d)
{
    static bool (*const readers[])(struct dr_pci_reading *r) = { dr_pci_read_path,
        dr_pci_read_kfd, dr_pci_read_lspci, dr_pci_read_tree, dr_pci_read_log,
        dr_pci_read_runtime };
    struct dr_pci_reading r = { .d = d,
        .source = DR_NONE,
        .device = DR_NONE,
        .last_gpu = DR_NONE,
        .boot = DR_NONE,
        .search = DR_NONE,
        .first_hit = DR_NONE };

    d->pci = dr_alloc(d, sizeof(*d->pci));
    read_machines(d);
    for (uint32_t i = 0; i < d->num_lines; i++) {
        r.line = i;
        r.text = d->lines[i].text;
        r.machine = d->lines[i].machine;
        if (d->lines[i].source != r.source || (d->lines[i].flags & DR_COMMAND)) {
            dr_pci_end_of_output(&r);
            if (d->lines[i].source != r.source)
                r.last_gpu = r.boot = DR_NONE;
            r.source = d->lines[i].source;
        }
        if (dr_pci_read_signs(&r))
            dr_known(d, i);
        for (size_t k = 0; k < sizeof(readers) / sizeof(*readers); k++)
            if (readers[k](&r)) {
                dr_known(d, i);
                break;
            }
    }
    dr_pci_end_of_output(&r);
    dr_pci_finish(d);
    find_parents(d);
    dr_pci_finish_kfd(d);
}
