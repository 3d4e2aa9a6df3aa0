/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a GPU may send AtomicOps to host memory: the kernel's walk from the device to its
 * root port, pci_enable_atomic_ops_to_root(), and what outranks it.
 */
#include "pci_read.h"

#include "platform.h"

#include <string.h>

static void fault(struct dr_walk *walk, uint32_t bridge, enum dr_code code,
        const char *why)
{
    walk->fault[walk->num_faults] = bridge;
    walk->code[walk->num_faults] = code;
    walk->why[walk->num_faults++] = why;
}

/* 1: it lets AtomicOps pass; 0: it does not; -1: the text does not say. */
static int check_switch(struct dr_walk *walk, const struct dr_pci_device *b,
        uint32_t index)
{
    const bool up = b->port == DR_UPSTREAM_PORT;

    if (b->express_version == 1) {
        fault(walk, index, DR_ATOMICS_SWITCH_NO_ROUTING,
                "Express (v1), which has no register to route by");
        return 0;
    }
    if (b->routing == 0) {
        fault(walk, index, DR_ATOMICS_SWITCH_NO_ROUTING, "Routing-");
        return 0;
    }
    if (up && b->egress_blocked == 1) {
        fault(walk, index, DR_ATOMICS_EGRESS_BLOCKED, "EgressBlck+");
        return 0;
    }
    return b->routing == 1 && (!up || b->egress_blocked == 0) ? 1 : -1;
}

static int check_root(struct dr_walk *walk, const struct dr_pci_device *b,
        uint32_t index)
{
    const char *why = NULL;

    if (b->express_version == 1)
        why = "Express (v1), which has no register to complete by";
    else if (b->complete32 == 0 && b->complete64 == 0)
        why = "32bit- 64bit-";
    else if (b->complete32 == 0)
        why = "32bit-";
    else if (b->complete64 == 0)
        why = "64bit-";
    if (why != NULL)
        fault(walk, index, DR_ATOMICS_ROOT_PORT_NO_COMPLETER, why);
    return why != NULL ? 0 : b->complete32 == 1 && b->complete64 == 1 ? 1 : -1;
}

/* From 7.1 on a device without a root port above it is refused; before, nothing stood in
 * its way. What an emulator leaves out is no root complex: the kernel's line says more. */
static enum dr_answer without_root_port(const struct doctor *d,
        const struct dr_pci_device *p)
{
    const struct dr_pci_machine *m = &d->pci->machines[p->machine];

    if (m->kernel_major < 0 || p->line_refused_by_log != DR_NONE ||
            dr_is_guest(d, p->machine))
        return DR_UNSURE;
    return m->kernel_major > 7 || (m->kernel_major == 7 && m->kernel_minor >= 1)
            ? DR_NO
            : DR_YES;
}

/* The bridge is directly above the device, with none between them left out of the text. */
static bool is_next(const struct doctor *d, uint32_t below, uint32_t bridge)
{
    const struct dr_pci_device *p = &d->pci->devices[below];
    const struct dr_pci_device *b = &d->pci->devices[bridge];

    return p->parent == bridge && (b->secondary < 0 || b->secondary == dr_bus_of(p));
}

void dr_walk(const struct doctor *d, uint32_t device, struct dr_walk *walk)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    uint32_t chain[DR_CHAIN_MAX];
    const uint32_t count = dr_chain(d, device, chain);
    bool sure = count > 0, rooted = false;

    memset(walk, 0, sizeof(*walk));
    walk->pci_bridge = DR_NONE;
    walk->complete = true;
    if (p->is_virtual_function)
        return;
    if (p->port == DR_RC_INTEGRATED && count == 0) {
        walk->answer = without_root_port(d, p);
        return;
    }
    for (uint32_t i = 0; i < count && !rooted; i++) {
        const struct dr_pci_device *b = &d->pci->devices[chain[i]];
        int good = -1;

        if (b->port == DR_UPSTREAM_PORT || b->port == DR_DOWNSTREAM_PORT)
            good = check_switch(walk, b, chain[i]);
        else if (b->port == DR_ROOT_PORT)
            good = check_root(walk, b, chain[i]);
        if (b->port == DR_PCIE_TO_PCI || b->port == DR_PCI_TO_PCIE)
            walk->pci_bridge = chain[i];
        walk->complete =
                walk->complete && is_next(d, i == 0 ? device : chain[i - 1], chain[i]);
        sure = sure && good == 1;
        rooted = b->port == DR_ROOT_PORT;
    }
    walk->complete = walk->complete && rooted;
    if (walk->num_faults > 0)
        walk->answer = DR_NO;
    else if (sure && walk->complete)
        walk->answer = DR_YES;
}

/* Only what amdgpu asked for at its start counts; a virtual function never asks, and the
 * driver takes a processor's own GPU on trust. */
static bool requester_tells(const struct dr_pci_device *p)
{
    return p->requester == 1 ||
            (p->requester == 0 && p->driver != NULL &&
                    strcmp(p->driver, "amdgpu") == 0 && !p->is_virtual_function &&
                    !dr_is_integrated(p));
}

enum dr_answer dr_gpu_atomics(const struct doctor *d, uint32_t device, uint32_t *line)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_link *link = dr_kfd_of(d, device);
    uint32_t unused;
    struct dr_walk walk;

    line = line != NULL ? line : &unused;
    *line = DR_NONE;
    if (p->vendor != 0x1002)
        return DR_UNSURE;
    if (p->hip_atomics >= 0) {
        *line = p->line_hip;
        return p->hip_atomics ? DR_YES : DR_NO;
    }
    if (link != NULL && ((link->flags & 12) == 0 || (link->flags & 12) == 12)) {
        *line = link->line;
        return (link->flags & 12) == 0 ? DR_YES : DR_NO;
    }
    if (requester_tells(p)) {
        *line = p->line_requester;
        return p->requester ? DR_YES : DR_NO;
    }
    dr_walk(d, device, &walk);
    if (walk.answer != DR_UNSURE && !dr_is_integrated(p)) {
        *line = walk.num_faults > 0 ? d->pci->devices[walk.fault[0]].line_atomics
                                    : p->line_port;
        return walk.answer;
    }
    if (p->line_refused_by_log != DR_NONE &&
            (p->driver == NULL || strncmp(p->driver, "vfio", 4) != 0)) {
        *line = p->line_refused_by_log;
        return DR_NO;
    }
    return DR_UNSURE;
}
