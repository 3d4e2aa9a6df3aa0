/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of motet probe: which card is where, under which root port. */
#include "probe_run.h"

#include "doctor_live.h"
#include "facts.h"
#include "host.h"

#include <stdlib.h>
#include <string.h>

static void say_link(const struct dr_pci_device *top, char *buf, size_t bytes)
{
    if (top->sta_speed > 0 && top->sta_width > 0)
        snprintf(buf, bytes, "%.1f GT/s x%d", top->sta_speed, top->sta_width);
}

/* The link that counts is the one to the slot: above a bridge that is on the card. */
static void look_at_card(const struct doctor *d, struct probe_card *card)
{
    static const char *const
            words[] = { [DR_UNSURE] = "unknown", [DR_YES] = "yes", [DR_NO] = "no" };
    uint32_t chain[DR_CHAIN_MAX], length, device = dr_pci_find(d, 0, card->address);
    const struct dr_pci_device *root;

    if (device == DR_NONE)
        return;
    say_link(&d->pci->devices[dr_card_top(d, device)], card->link, sizeof(card->link));
    length = dr_chain(d, device, chain);
    if (length == 0)
        return;
    root = &d->pci->devices[chain[length - 1]];
    snprintf(card->root_port, sizeof(card->root_port), "%s", root->bdf);
    if (d->pci->devices[device].vendor == 0x1002)
        snprintf(card->atomics, sizeof(card->atomics), "%s",
                words[dr_gpu_atomics(d, device, NULL)]);
}

static void look_at_pci(struct probe_report *report)
{
    struct doctor *d = doctor_live_gpus();

    for (int i = 0; i < report->ncards; i++)
        look_at_card(d, &report->cards[i]);
    doctor_free(d);
}

void probe_look_at_cards(struct probe_report *report)
{
    const struct backend_facts *f = &report->place.facts;

    report->ncards = report->nranks;
    for (int i = 0; i < report->ncards; i++) {
        struct probe_card *card = &report->cards[i];

        if (f->devices == 0) {
            (void)host_cpu_name(card->name, sizeof(card->name));
            continue;
        }
        snprintf(card->name, sizeof(card->name), "%s", f->device[i].name);
        snprintf(card->identity, sizeof(card->identity), "%s", f->device[i].identity);
        snprintf(card->target, sizeof(card->target), "%s", f->device[i].target);
        if (f->device[i].bus != 0 || f->device[i].domain != 0 || f->device[i].slot != 0)
            snprintf(card->address, sizeof(card->address), "%04x:%02x:%02x.0",
                    f->device[i].domain & 0xffff, f->device[i].bus & 0xff,
                    f->device[i].slot & 0x1f);
    }
    if (f->devices > 0)
        look_at_pci(report);
}
