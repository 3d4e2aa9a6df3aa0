/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about slots: how wide, how attached. */
#include "platform.h"
#include "rules.h"

#include <string.h>

#define CARDS_MAX 64

/* ---- lanes; of a network port what its rate tells is in rates_network.c ---- */

static bool is_nic(const struct dr_pci_device *p)
{
    return p->class >= 0 && p->class >> 8 == 0x02;
}

/* Where a slot link is, by its upper end: the sentence's end. */
static const char *place(struct doctor *d, uint32_t device)
{
    uint32_t line = DR_NONE;
    const char *slot = dr_slot_name(d, device, &line);

    return slot != NULL ? dr_printf(d, " in slot %s", slot) : "";
}

static void degraded(struct doctor *d, uint32_t device)
{
    const uint32_t bridge = dr_slot_bridge(d, device);
    const struct dr_pci_device *top = &d->pci->devices[dr_card_top(d, device)];
    const struct dr_pci_device *card = &d->pci->devices[device], *above;
    struct dr_finding *f;
    int could, does;

    if (bridge == DR_NONE || dr_is_guest(d, card->machine))
        return; /* an emulated port's lanes are none */
    above = &d->pci->devices[bridge];
    could = top->cap_width < above->cap_width ? top->cap_width : above->cap_width;
    does = top->sta_width > 0 ? top->sta_width : above->sta_width;
    if (could <= 0 || does <= 0 || does >= could)
        return;
    f = dr_found(d, DR_LINK_DEGRADED, "%s", card->bdf);
    dr_say(d, f,
            "The link of %s%s runs with %d lanes; the card and the port %s offer %d.",
            card->bdf, place(d, device), does, above->bdf, could);
    dr_because(d, f, top->sta_width > 0 ? top->line_link_sta : above->line_link_sta);
    dr_because(d, f, top->line_link_cap);
    dr_because(d, f, above->line_link_cap);
}

/* ---- processor or chipset ---- */

static void few_lanes(struct doctor *d, uint32_t device)
{
    const uint32_t bridge = dr_slot_bridge(d, device);
    const struct dr_pci_device *top = &d->pci->devices[dr_card_top(d, device)];
    const struct dr_pci_device *card = &d->pci->devices[device], *above;
    struct dr_finding *f;

    if (bridge == DR_NONE)
        return;
    above = &d->pci->devices[bridge];
    if (above->cap_width <= 0 || above->cap_width > 4 ||
            top->cap_width <= above->cap_width)
        return;
    f = dr_found(d, DR_CHIPSET_X4, "%s", card->bdf);
    dr_say(d, f,
            "GPU %s%s has %d lane%s of the chipset where the card offers %d, and "
            "shares "
            "the chipset's link to the processor with all else behind it.",
            card->bdf, place(d, device), above->cap_width,
            above->cap_width == 1 ? "" : "s", top->cap_width);
    dr_because(d, f, above->line_link_cap);
    dr_because(d, f, top->line_link_cap);
}

static const char *attached(struct doctor *d, const uint32_t *cards, uint32_t count)
{
    const char *list = "";

    for (uint32_t i = 0; i < count; i++) {
        uint32_t chain[DR_CHAIN_MAX];

        if (dr_chipset_port(d, cards[i]) == DR_NONE && dr_chain(d, cards[i], chain) > 0)
            list = dr_printf(d, "%s%s%s%s", list, list[0] != 0 ? ", " : "",
                    d->pci->devices[cards[i]].bdf, place(d, cards[i]));
    }
    return list;
}

const char *dr_free_slots(struct doctor *d, uint32_t machine)
{
    const char *list = "";

    for (uint32_t i = 0; i < d->kernel->num_slots; i++) {
        const struct dr_slot_record *s = &d->kernel->slots[i];

        if (s->machine == machine && dr_is_free_cpu_slot(d, s))
            list = dr_printf(d, "%s%s%s%s%s%s", list, list[0] != 0 ? ", " : "", s->name,
                    s->type[0] != 0 ? " (" : "", s->type, s->type[0] != 0 ? ")" : "");
    }
    return list;
}

static void behind_chipset(struct doctor *d, uint32_t device, const char *others,
        const char *free_slots)
{
    const uint32_t port = dr_chipset_port(d, device),
                   bridge = dr_slot_bridge(d, device);
    const struct dr_pci_device *card = &d->pci->devices[device];
    struct dr_finding *f;
    uint32_t line = DR_NONE;
    const char *slot = dr_slot_name(d, device, &line);
    const char *where = "";

    if (slot != NULL)
        where = dr_printf(d, " in slot %s", slot);
    else if (bridge != DR_NONE)
        where = dr_printf(d,
                " below bridge %s (its slot's name: `dmidecode -t 9`, which needs "
                "root)",
                d->pci->devices[bridge].bdf);
    f = dr_found(d, DR_GPU_BEHIND_CHIPSET, "%s", card->bdf);
    dr_say(d, f, "GPU %s%s is chipset-attached, through %s.%s%s%s%s%s%s", card->bdf,
            where, d->pci->devices[port].bdf, others[0] != 0 ? " CPU-attached: " : "",
            others, others[0] != 0 ? "." : "",
            free_slots[0] != 0 ? " Free CPU-attached slots: " : "", free_slots,
            free_slots[0] != 0 ? "." : "");
    dr_because(d, f, d->pci->devices[port].line);
    dr_because(d, f, line);
}

void dr_rule_slots(struct doctor *d)
{
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        uint32_t cards[CARDS_MAX];
        const uint32_t count = dr_cards(d, m, cards, CARDS_MAX);
        const char *others = attached(d, cards, count);
        const char *free_slots = dr_free_slots(d, m);

        for (uint32_t i = 0; i < count; i++) {
            degraded(d, cards[i]);
            if (dr_chipset_port(d, cards[i]) == DR_NONE)
                continue;
            few_lanes(d, cards[i]);
            behind_chipset(d, cards[i], others, free_slots);
        }
    }
    for (uint32_t i = 0; i < d->pci->num_devices; i++)
        if (is_nic(&d->pci->devices[i]))
            degraded(d, i);
}
