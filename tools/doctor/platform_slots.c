/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the slots of the board; says how a card is attached. */
#include "platform.h"
#include "typed.h"

#include <ctype.h>
#include <string.h>

/* ---- dmidecode -t 9 ---- */

/* Slots of a board that are kept. */
#define SLOTS_MAX 256

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* One line of a record; @p slot is NULL outside of one. */
static struct dr_slot_record *read_slot_line(struct doctor *d, uint32_t i,
        struct dr_slot_record *slot)
{
    struct dr_kernel *k = d->kernel;
    const char *text = skip_blanks(d->lines[i].text);
    struct dr_span found[2];

    if (dr_begins(text, "Handle 0x") || dr_has(text, "Onboard Device"))
        return NULL;
    if (dr_scan(text, "^Designation: %*", found)) {
        if (k->num_slots == SLOTS_MAX)
            return NULL;
        slot = DR_PUSH(d, k->slots, k->num_slots, k->room_slots);
        slot->machine = d->lines[i].machine;
        slot->line = i;
        slot->name = dr_copy(d, found[0].at, found[0].length);
        slot->type = "";
        dr_known(d, i);
    } else if (slot == NULL) {
        return NULL;
    } else if (dr_scan(text, "^Type: %*", found)) {
        slot->type = dr_copy(d, found[0].at, found[0].length);
    } else if (dr_scan(text, "^Current Usage: %*", found)) {
        slot->is_free = dr_span_is(found[0], "Available");
    } else if (dr_scan(text, "^Bus Address: %b", found)) {
        char bdf[DR_BDF_MAX];

        if (dr_span_bdf(found[0], bdf) && !dr_has(bdf, ":ff:1f.7") &&
                !dr_has(bdf, ":00:00.0"))
            memcpy(slot->bdf, bdf, DR_BDF_MAX);
    }
    return slot;
}

void dr_read_slots(struct doctor *d)
{
    struct dr_slot_record *slot = NULL;
    uint32_t source = DR_NONE;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (d->lines[i].source != source)
            slot = NULL;
        source = d->lines[i].source;
        if (!(d->lines[i].flags & DR_COMMAND))
            slot = read_slot_line(d, i, slot);
    }
}

/* ---- links of lspci without the device's line ---- */

/* `for b in 21 e1; do lspci -vv -s $b:00.0 | grep Lnk; done`: a LnkCap begins the next
 * device's lines. */
static void links_of_command(struct doctor *d, uint32_t command)
{
    const uint32_t end = dr_output_end(d, command);
    const char *words[64];
    const uint32_t count = dr_typed_words(d, d->lines[command].text, "-s ", words, 64);
    uint32_t caps = 0, next = 0;
    struct dr_pci_device *device = NULL;
    struct dr_span found[3];
    uint64_t width;
    char bdf[DR_BDF_MAX];

    for (uint32_t i = command + 1; i < end; i++) {
        if (dr_scan(d->lines[i].text, "^%b ", NULL))
            return; /* the devices are named */
        caps += dr_scan(d->lines[i].text, "LnkCap: ", NULL);
    }
    if (caps != count)
        return;
    for (uint32_t i = command + 1; i < end; i++) {
        const bool cap = dr_scan(d->lines[i].text, "LnkCap: ", NULL);

        if (cap) {
            const char *word = words[next++];

            device = dr_span_bdf((struct dr_span){ word, strlen(word) }, bdf)
                    ? dr_pci_device(d, d->lines[i].machine, bdf, i)
                    : NULL;
        }
        if (device == NULL ||
                !dr_scan(d->lines[i].text, "Speed %fGT/s%*Width x%d", found))
            continue;
        if (!dr_span_u64(found[2], &width) || width > 64)
            continue;
        *(cap ? &device->cap_speed : &device->sta_speed) = dr_span_double(found[0]);
        *(cap ? &device->cap_width : &device->sta_width) = (int)width;
        *(cap ? &device->line_link_cap : &device->line_link_sta) = i;
        dr_known(d, i);
    }
}

void dr_read_slot_links(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++)
        if ((d->lines[i].flags & DR_COMMAND) && dr_has(d->lines[i].text, "lspci") &&
                dr_has(d->lines[i].text, "Lnk"))
            links_of_command(d, i);
}

/* ---- how a card is attached ---- */

uint32_t dr_slot_bridge(const struct doctor *d, uint32_t device)
{
    uint32_t chain[DR_CHAIN_MAX];
    const uint32_t top = dr_card_top(d, device);

    return dr_chain(d, top, chain) > 0 ? chain[0] : DR_NONE;
}

/* An uplink or a port of a chipset. */
static bool is_chipset(const struct dr_pci_device *bridge)
{
    static const char *const names[] = { "Matisse Switch Upstream",
        "Matisse PCIe GPP Bridge", "Chipset Switch Upstream",
        "Chipset Switch Downstream", "Series Chipset PCIe" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (dr_has_any_case(bridge->name, names[i]))
            return true;
    if (bridge->vendor == 0x1022 && bridge->device >= 0)
        return (bridge->device & 0xff00) == 0x4300 || bridge->device == 0x57ad;
    return dr_scan(bridge->name, "[AMD] Device 43%x", NULL) ||
            dr_scan(bridge->name, "[AMD] Device 57ad", NULL);
}

/* Intel's hub is part of the root complex to software: its ports are root ports. */
static bool is_pch_port(const struct dr_pci_device *port)
{
    const char *name = port->name;

    if (!dr_has_any_case(name, "Root Port") || port->device == 0x3420)
        return false;
    return dr_has_any_case(name, "PCH PCI") || dr_has_any_case(name, "PCH Root") ||
            (dr_has_any_case(name, "eries") && dr_has_any_case(name, "hipset"));
}

uint32_t dr_chipset_port(const struct doctor *d, uint32_t device)
{
    uint32_t chain[DR_CHAIN_MAX];
    const uint32_t count = dr_chain(d, device, chain);
    uint32_t port = DR_NONE;

    if (dr_is_guest(d, d->pci->devices[device].machine))
        return DR_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (is_chipset(&d->pci->devices[chain[i]]) ||
                (i + 1 == count && is_pch_port(&d->pci->devices[chain[i]])))
            port = chain[i]; /* the topmost */
    return port;
}

/* The device, the ports of its card and the bridge above: what a slot may be named by. */
const char *dr_slot_name(const struct doctor *d, uint32_t device, uint32_t *line)
{
    const uint32_t top = dr_card_top(d, device), bridge = dr_slot_bridge(d, device);
    uint32_t chain[DR_CHAIN_MAX], names[DR_CHAIN_MAX + 2], count = 0;
    const uint32_t above = dr_chain(d, device, chain);

    names[count++] = device;
    for (uint32_t i = 0; top != device && i < above; i++) {
        names[count++] = chain[i];
        if (chain[i] == top)
            break;
    }
    if (bridge != DR_NONE)
        names[count++] = bridge;
    for (uint32_t n = 0; n < count; n++) {
        const struct dr_pci_device *p = &d->pci->devices[names[n]];

        for (uint32_t i = 0; i < d->kernel->num_slots; i++)
            if (d->kernel->slots[i].machine == p->machine &&
                    strcmp(d->kernel->slots[i].bdf, p->bdf) == 0) {
                *line = d->kernel->slots[i].line;
                return d->kernel->slots[i].name;
            }
    }
    for (uint32_t n = 0; n < count; n++)
        if (d->pci->devices[names[n]].slot != NULL && names[n] != bridge) {
            *line = d->pci->devices[names[n]].line_slot;
            return d->pci->devices[names[n]].slot;
        }
    return NULL;
}

/* Only what can be told: a slot on the chipset's buses, or one that no record places, is
 * none of the processor's. */
bool dr_is_free_cpu_slot(const struct doctor *d, const struct dr_slot_record *slot)
{
    const uint32_t index = dr_pci_find(d, slot->machine, slot->bdf);
    struct dr_span found[4];
    uint64_t bus, number;
    bool below = false;

    if (!slot->is_free || slot->bdf[0] == 0 ||
            !dr_scan(slot->bdf, "^%x:%x:%x.%d", found) ||
            !dr_span_hex(found[1], &bus) || !dr_span_hex(found[2], &number))
        return false;
    if (index != DR_NONE &&
            (is_chipset(&d->pci->devices[index]) ||
                    is_pch_port(&d->pci->devices[index])))
        return false;
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (p->machine != slot->machine || p->secondary < 0 ||
                (int)bus < p->secondary || (int)bus > p->subordinate)
            continue;
        if (is_chipset(p) || is_pch_port(p))
            return false;
        below = true;
    }
    if (below)
        return true;
    /* on the root bus: Intel's hub has its ports at the high numbers */
    return number < 0x1a;
}

double dr_slot_rate(const struct doctor *d, uint32_t device)
{
    static const struct {
        double speed, per_lane;
    } rates[] = { { 64, 7.88 }, { 32, 3.94 }, { 16, 1.97 }, { 8, 0.985 }, { 5, 0.5 },
        { 2.5, 0.25 } };
    const struct dr_pci_device *top, *above;
    const uint32_t bridge = dr_slot_bridge(d, device);
    double speed;
    int width;

    if (device >= d->pci->num_devices)
        return 0;
    top = &d->pci->devices[dr_card_top(d, device)];
    above = bridge == DR_NONE ? NULL : &d->pci->devices[bridge];
    width = top->cap_width;
    speed = top->cap_speed;
    if (above != NULL && above->cap_width > 0) {
        width = width == 0 || above->cap_width < width ? above->cap_width : width;
        speed = speed <= 0 || above->cap_speed < speed ? above->cap_speed : speed;
    } else if (top->sta_width > 0 && (width == 0 || top->sta_width < width)) {
        width = top->sta_width; /* what the slot has is not in the text */
    }
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
        if (speed >= rates[i].speed)
            return rates[i].per_lane * width;
    return 0;
}
