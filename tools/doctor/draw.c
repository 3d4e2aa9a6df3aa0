/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of the GPUs as trees, one for each root port, for a person. */
#include "pci_read.h"
#include "platform.h"

#include <string.h>

/* Devices of one machine that are drawn; more are no help to anybody. */
#define DRAWN_MAX 256

struct drawing {
    const struct doctor *d;
    FILE *out;
    bool colour;
    uint32_t shown[DRAWN_MAX];
    uint32_t count;
};

static void paint(const struct drawing *g, const char *code, const char *text)
{
    if (g->colour)
        fprintf(g->out, "\033[%sm%s\033[0m", code, text);
    else
        fputs(text, g->out);
}

static void add(struct drawing *g, uint32_t device)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (g->shown[i] == device)
            return;
    if (g->count < DRAWN_MAX)
        g->shown[g->count++] = device;
}

static bool is_shown(const struct drawing *g, uint32_t device)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (g->shown[i] == device)
            return true;
    return false;
}

/* ---- one device ---- */

static const char *kind(const struct dr_pci_device *p)
{
    switch (p->port) {
    case DR_ROOT_PORT: return "root port";
    case DR_UPSTREAM_PORT: return "upstream port";
    case DR_DOWNSTREAM_PORT: return "downstream port";
    case DR_PCIE_TO_PCI:
    case DR_PCI_TO_PCIE: return "bridge to conventional PCI";
    case DR_PORT_UNKNOWN:
    case DR_ENDPOINT:
    case DR_LEGACY_ENDPOINT:
    case DR_RC_INTEGRATED:
    case DR_RC_EVENT_COLLECTOR:
    default: break;
    }
    return dr_is_gpu(p) ? "GPU" : "bridge";
}

/* ", x4 of x16 at 16 GT/s" */
static void draw_link(const struct drawing *g, const struct dr_pci_device *p)
{
    const double speed = p->sta_speed > 0 ? p->sta_speed : p->cap_speed;

    if (p->sta_width > 0)
        fprintf(g->out, ", x%d", p->sta_width);
    else if (p->cap_width > 0)
        fprintf(g->out, ", up to x%d", p->cap_width);
    else
        return;
    if (p->sta_width > 0 && p->cap_width > p->sta_width)
        fprintf(g->out, " of x%d", p->cap_width);
    if (speed > 0)
        fprintf(g->out, " at %g GT/s", speed);
    if (p->sta_speed > 0 && p->cap_speed > p->sta_speed)
        fprintf(g->out, " of %g", p->cap_speed);
}

/* What a GPU's path would break on here. */
static void draw_faults(const struct drawing *g, uint32_t device)
{
    const struct dr_pci_device *p = &g->d->pci->devices[device];
    struct dr_walk walk;

    for (uint32_t i = 0; i < g->count; i++) {
        if (!dr_is_gpu(&g->d->pci->devices[g->shown[i]]) ||
                g->d->pci->devices[g->shown[i]].vendor != 0x1002 ||
                dr_gpu_atomics(g->d, g->shown[i], NULL) != DR_NO)
            continue;
        dr_walk(g->d, g->shown[i], &walk);
        for (uint32_t k = 0; k < walk.num_faults; k++)
            if (walk.fault[k] == device) {
                fputs("  ", g->out);
                paint(g, "1;31", "<== AtomicOps end here: ");
                paint(g, "1;31", walk.why[k]);
                return;
            }
    }
    if (p->acs_redirect_requests == 1 || p->acs_redirect_completions == 1) {
        fputs("  ", g->out);
        paint(g, "1;33", "<-- sends peer traffic up (ACS)");
    }
}

static void draw_gpu(const struct drawing *g, uint32_t device)
{
    static const char *const words[] = { [DR_UNSURE] = "AtomicOps not known",
        [DR_YES] = "AtomicOps yes",
        [DR_NO] = "AtomicOps no" };
    const struct doctor *d = g->d;
    const struct dr_pci_device *p = &d->pci->devices[device];
    struct dr_walk walk;
    uint32_t line;
    const char *slot = dr_slot_name(d, device, &line);

    dr_walk(d, device, &walk);
    if (p->vendor == 0x1002) {
        const enum dr_answer answer = dr_gpu_atomics(d, device, NULL);

        fputs(", ", g->out);
        paint(g,
                answer == DR_NO            ? "1;31"
                        : answer == DR_YES ? "1;32"
                                           : "1;35",
                words[answer]);
    }
    if (dr_is_guest(d, p->machine))
        fputs(", in a guest", g->out);
    else if (dr_chipset_port(d, device) != DR_NONE)
        fputs(", chipset-attached", g->out);
    else if (walk.complete && p->parent != DR_NONE)
        fputs(", CPU-attached", g->out);
    if (slot != NULL && !dr_is_guest(d, p->machine))
        fprintf(g->out, ", slot %s", slot);
}

static void draw_device(const struct drawing *g, uint32_t device, unsigned depth)
{
    const struct dr_pci_device *p = &g->d->pci->devices[device];
    const struct dr_span name = dr_short_name(p);

    fputs("    ", g->out);
    if (depth > 0)
        fprintf(g->out, "%*s\\- ", (int)(depth - 1) * 3, "");
    fprintf(g->out, "%s ", p->bdf);
    if (name.length > 0)
        fprintf(g->out, "%.*s, ", (int)name.length, name.at);
    fputs(kind(p), g->out);
    draw_link(g, p);
    if (dr_is_gpu(p))
        draw_gpu(g, device);
    else
        draw_faults(g, device);
    fputc('\n', g->out);
}

/* ---- all of them ---- */

static void draw_below(const struct drawing *g, uint32_t device, unsigned depth)
{
    draw_device(g, device, depth);
    for (uint32_t i = 0; depth < DR_CHAIN_MAX && i < g->count; i++)
        if (g->d->pci->devices[g->shown[i]].parent == device)
            draw_below(g, g->shown[i], depth + 1);
}

static void draw_machine(struct drawing *g, uint32_t machine)
{
    const struct doctor *d = g->d;
    bool any = false;

    g->count = 0;
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        uint32_t chain[DR_CHAIN_MAX], count;

        if (d->pci->devices[i].machine != machine || !dr_is_gpu(&d->pci->devices[i]))
            continue;
        count = dr_chain(d, i, chain);
        any = any || count > 0;
        for (uint32_t k = count; k-- > 0;)
            add(g, chain[k]);
        add(g, i);
    }
    if (!any)
        return; /* lone addresses are no tree */
    fputc('\n', g->out);
    paint(g, "1", "Paths of the GPUs");
    if (d->machines[machine].name[0] != 0)
        fprintf(g->out, " of %s", d->machines[machine].name);
    else if (dr_is_guest(d, machine))
        fputs(" of the guest", g->out);
    else if (d->machines[machine].is_host_file)
        fputs(" of the host", g->out);
    fputc('\n', g->out);
    for (uint32_t i = 0; i < g->count; i++) {
        const uint32_t parent = d->pci->devices[g->shown[i]].parent;

        if (parent == DR_NONE || !is_shown(g, parent))
            draw_below(g, g->shown[i], 0);
    }
}

void dr_draw_paths(const struct doctor *d, FILE *out, bool colour)
{
    struct drawing g = { .d = d, .out = out, .colour = colour };

    for (uint32_t i = 0; i < d->num_machines; i++)
        draw_machine(&g, i);
}
