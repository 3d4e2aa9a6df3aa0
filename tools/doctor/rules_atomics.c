/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about AtomicOps to host memory: whether each GPU has them, and where the path
 * breaks. */
#include "pci_read.h"
#include "platform.h"
#include "rules.h"

#include <string.h>

/* ---- words ---- */

static bool is_amd_gpu(const struct dr_pci_device *p)
{
    return p->vendor == 0x1002 && dr_is_gpu(p);
}

/* "0000:21:04.0 (Matisse PCIe GPP Bridge)" */
static const char *with_name(struct doctor *d, const struct dr_pci_device *p)
{
    const struct dr_span name = dr_short_name(p);

    return name.length > 0
            ? dr_printf(d, "%s (%.*s)", p->bdf, (int)name.length, name.at)
            : dr_copy(d, p->bdf, strlen(p->bdf));
}

static bool is_passed_on(const struct dr_pci_device *p)
{
    return p->driver != NULL && dr_begins(p->driver, "vfio");
}

/* ---- yes ---- */

static void say_yes(struct doctor *d, uint32_t device, uint32_t line)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_link *link = dr_kfd_of(d, device);
    struct dr_finding *f = dr_found(d, DR_ATOMICS_OK, "%s", p->bdf);
    const char *gpu = with_name(d, p);
    struct dr_walk walk;

    dr_because(d, f, line);
    if (line == p->line_hip && p->hip_atomics == 1) {
        dr_say(d, f, "GPU %s has AtomicOps to host memory: the runtime says so.", gpu);
    } else if (link != NULL && line == link->line) {
        dr_say(d, f,
                "GPU %s has AtomicOps to host memory: KFD's link from node %d to the "
                "processor's node %d has flags %lld, without the bits 4 and 8.",
                gpu, link->from, link->to, (long long)link->flags);
    } else if (p->requester == 1 && line == p->line_requester) {
        dr_say(d, f,
                "GPU %s has AtomicOps to host memory: the kernel enabled its requester "
                "(ReqEn+).",
                gpu);
    } else {
        uint32_t chain[DR_CHAIN_MAX];
        const uint32_t count = dr_chain(d, device, chain);

        dr_walk(d, device, &walk);
        dr_say(d, f, "GPU %s %s AtomicOps to host memory: %s.", gpu,
                is_passed_on(p) ? "could send" : "may send",
                count == 0 ? "no bridge stands between it and the root complex"
                           : "every switch port above it routes them and its root port "
                             "completes them");
        for (uint32_t i = 0; i < count; i++)
            dr_because(d, f, d->pci->devices[chain[i]].line_atomics);
    }
}

/* ---- no, and why ---- */

static void fix_in_guest(struct doctor *d, struct dr_finding *f)
{
    dr_fix(d, f,
            "On the hypervisor, every hostpci line must name function .0 "
            "(`qm config ID | grep hostpci`): `hostpciN: 0000:BB:DD.0,pcie=1`; libvirt "
            "and "
            "QEMU: no multifunction=on on the passed GPU.");
    dr_fix(d, f,
            "There too: machine q35, each card directly on a root port of its own, "
            "QEMU 8.1 "
            "or newer; then stop and start the VM.");
    dr_fix(d, f,
            "Then the physical path on the host: `lspci -vv` there as root, or `motet "
            "doctor` there.");
}

/* Free slots of the processor on this machine, "PCIEX16_2, M.2_1", or "". */
static const char *free_slots(struct doctor *d, uint32_t machine)
{
    const char *out = "";

    for (uint32_t i = 0; i < d->kernel->num_slots; i++) {
        const struct dr_slot_record *s = &d->kernel->slots[i];

        if (s->machine == machine && dr_is_free_cpu_slot(d, s))
            out = dr_printf(d, "%s%s%s", out, *out != 0 ? ", " : "", s->name);
    }
    return out;
}

static void fix_on_board(struct doctor *d, struct dr_finding *f, uint32_t device)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const char *slots = free_slots(d, p->machine);
    const bool root = f->code == DR_ATOMICS_ROOT_PORT_NO_COMPLETER;

    if (f->code == DR_ATOMICS_EGRESS_BLOCKED) {
        dr_fix(d, f,
                "Switch off AtomicOp egress blocking of that port in the firmware of "
                "the "
                "board or of the switch.");
        return;
    }
    dr_fix(d, f,
            root ? "Move the card to a slot that sits on another root port%s%s, and "
                   "verify "
                   "ReqEn+ on it before anything else."
                 : "Move the card to a slot that is attached to the processor%s%s, and "
                   "verify ReqEn+ on it before anything else.",
            *slots != 0 ? "; free: " : "", slots);
    dr_fix(d, f,
            root ? "If no root port of this machine completes them: another processor "
                   "or "
                   "board, or a collective library whose kernels declare no hostcall "
                   "(`motet hostcall FILE`)."
                 : "Without such a slot: a collective library whose kernels declare no "
                   "hostcall (`motet hostcall FILE`).");
}

/* What the log and the GPU itself say of it follows from the break. */
static void fold_signs(struct doctor *d, struct dr_finding *f, uint32_t device)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_link *link = dr_kfd_of(d, device);

    dr_consequence(d, f, p->line_refused_by_log);
    if (p->requester == 0 && !is_passed_on(p))
        dr_consequence(d, f, p->line_requester);
    if (link != NULL && (link->flags & 12) != 0)
        dr_consequence(d, f, link->line);
}

static uint32_t line_of_fault(const struct dr_pci_device *b, enum dr_code code)
{
    if (b->express_version == 1)
        return b->line_port;
    return code == DR_ATOMICS_EGRESS_BLOCKED ? b->line_requester : b->line_atomics;
}

/* All breaks of one kind on the way of one GPU are one finding. */
static void say_fault(struct doctor *d, uint32_t device, const struct dr_walk *walk,
        enum dr_code code)
{
    static const struct {
        enum dr_code code;
        const char *one, *many;
    } words[] = {
        { DR_ATOMICS_ROOT_PORT_NO_COMPLETER,
                "root port above it does not complete 32 and 64 bit AtomicOps", "" },
        { DR_ATOMICS_SWITCH_NO_ROUTING, "switch port above it does not route AtomicOps",
                "switch ports above it do not route AtomicOps" },
        { DR_ATOMICS_EGRESS_BLOCKED,
                "upstream port above it blocks AtomicOps on their way up",
                "upstream ports above it block AtomicOps on their way up" },
    };
    const struct dr_pci_device *p = &d->pci->devices[device];
    const bool guest = dr_is_guest(d, p->machine);
    const char *ports = "", *what = "";
    struct dr_finding *f = dr_found(d, code, "%s", p->bdf);
    uint32_t count = 0;

    for (uint32_t i = 0; i < walk->num_faults; i++) {
        const struct dr_pci_device *b = &d->pci->devices[walk->fault[i]];

        if (walk->code[i] != code)
            continue;
        ports = dr_printf(d, "%s%s%s (%s)", ports, count++ > 0 ? ", " : "",
                with_name(d, b), walk->why[i]);
        dr_because(d, f, b->line);
        dr_because(d, f, line_of_fault(b, code));
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (words[i].code == code)
            what = count == 1 ? words[i].one : words[i].many;
    dr_say(d, f, "GPU %s has no AtomicOps to host memory: the %s%s: %s.",
            with_name(d, p), guest ? "emulated " : "", what, ports);
    if (guest && code != DR_ATOMICS_EGRESS_BLOCKED)
        fix_in_guest(d, f);
    else
        fix_on_board(d, f, device);
    fold_signs(d, f, device);
}

static void say_off(struct doctor *d, uint32_t device, uint32_t line)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_link *link = dr_kfd_of(d, device);
    struct dr_finding *f = dr_found(d, DR_ATOMICS_OFF, "%s", p->bdf);
    const char *how = "the kernel refused them", *gpu = with_name(d, p);

    if (line == p->line_hip && p->hip_atomics == 0)
        how = "the runtime says so (hostNativeAtomicSupported 0)";
    else if (link != NULL && line == link->line)
        how = dr_printf(d,
                "KFD's link from node %d to the processor's node %d has flags %lld, "
                "with "
                "the bits 4 and 8 for no 32 and no 64 bit AtomicOps",
                link->from, link->to, (long long)link->flags);
    else if (p->requester == 0 && line == p->line_requester)
        how = "amdgpu has the GPU and its requester is off (ReqEn-)";
    else if (line != p->line_refused_by_log)
        how = "no root port is above it, and this kernel asks for one";
    dr_because(d, f, line);
    dr_because(d, f, p->line_refused_by_log);
    dr_say(d, f,
            "GPU %s has no AtomicOps to host memory: %s. Where the path breaks is not "
            "in "
            "the text.",
            gpu, how);
    if (p->is_virtual_function) {
        dr_fix(d, f,
                "It is a virtual function: only the driver of the host can change it. "
                "Here, use a collective library whose kernels declare no hostcall "
                "(`motet "
                "hostcall FILE`).");
    } else if (dr_is_guest(d, p->machine)) {
        dr_fix(d, f,
                "This is a guest: look at the lines of the hypervisor that pass the "
                "card "
                "first (`qm config ID | grep hostpci`, or the hostdev of `virsh "
                "dumpxml`).");
        fix_in_guest(d, f);
    }
}

static bool is_skipped(struct doctor *d, const struct dr_pci_device *p)
{
    return dr_has_finding(d, DR_KFD_SKIPPED_NO_ATOMICS, p->bdf) ||
            dr_has_finding(d, DR_KFD_SKIPPED_OLD_FIRMWARE, p->bdf);
}

static void say_no(struct doctor *d, uint32_t device, uint32_t line)
{
    static const enum dr_code order[] = { DR_ATOMICS_ROOT_PORT_NO_COMPLETER,
        DR_ATOMICS_SWITCH_NO_ROUTING, DR_ATOMICS_EGRESS_BLOCKED };
    struct dr_walk walk;

    dr_walk(d, device, &walk);
    if (dr_is_integrated(&d->pci->devices[device]))
        walk.num_faults = 0; /* its path is not asked */
    for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
        for (uint32_t k = 0; k < walk.num_faults; k++)
            if (walk.code[k] == order[i]) {
                say_fault(d, device, &walk, order[i]);
                break;
            }
    if (walk.num_faults == 0 && !is_skipped(d, &d->pci->devices[device]))
        say_off(d, device, line);
}

/* ---- not decided ---- */

static const struct dr_kfd_link *refused_link(const struct doctor *d, uint32_t device)
{
    for (uint32_t i = 0; i < d->pci->num_links; i++) {
        const struct dr_kfd_link *l = &d->pci->links[i];
        const struct dr_kfd_node *n = dr_kfd_node(d, l->machine, l->node);

        if (l->refused && n != NULL && n->device == device)
            return l;
    }
    return NULL;
}

static void unknown(struct doctor *d, const char *subject, const char *why,
        uint32_t line)
{
    struct dr_finding *f = dr_found(d, DR_ATOMICS_UNKNOWN, "%s", subject);

    dr_say(d, f, "Whether %s%s has AtomicOps to host memory is not decided: %s.",
            *subject == 0                       ? "the GPU"
                    : dr_begins(subject, "KFD") ? "the GPU of "
                                                : "GPU ",
            subject, why);
    dr_because(d, f, line);
    if (strstr(why, "KFD") != NULL)
        return;
    dr_fix(d, f,
            "Read KFD's link flags, which needs no privilege for your own GPUs: `grep "
            ". "
            "/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties`.");
    dr_fix(d, f, "Or run `lspci -vv` as root, on the host and not in a container.");
}

static void say_unknown(struct doctor *d, uint32_t device)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_pci_machine *m = &d->pci->machines[p->machine];
    const struct dr_kfd_link *link = refused_link(d, device);
    const bool guest = dr_is_guest(d, p->machine);
    struct dr_walk walk;

    if (dr_is_integrated(p) && p->port != DR_RC_INTEGRATED)
        return; /* the driver asks nobody */
    dr_walk(d, device, &walk);
    if (p->denied)
        unknown(d, p->bdf, "its capabilities are hidden from this user",
                p->line_denied);
    else if (link != NULL)
        unknown(d, p->bdf, "KFD does not show its link to this user", link->line);
    else if (walk.pci_bridge != DR_NONE)
        unknown(d, p->bdf,
                dr_printf(d, "a bridge to conventional PCI, %s, is on its way",
                        d->pci->devices[walk.pci_bridge].bdf),
                d->pci->devices[walk.pci_bridge].line_port);
    else if (p->port == DR_RC_INTEGRATED && !guest && m->kernel_major < 0)
        unknown(d, p->bdf,
                "it is part of the root complex, where older kernels say yes and newer "
                "ones no, and the kernel's version is not in the text",
                p->line_port);
    else if (p->is_virtual_function && p->port != DR_PORT_UNKNOWN)
        unknown(d, p->bdf,
                "it is a virtual function, for which the driver of the host decides",
                p->line_port);
    else if (m->line_searched != DR_NONE)
        unknown(d, p->bdf,
                "the kernel log was searched and says nothing of it, which is neither "
                "a "
                "yes nor a no",
                m->line_searched);
}

/* ---- what has no record ---- */

/* Nodes of KFD's whose address is not in the text. */
static void judge_nodes(struct doctor *d)
{
    for (uint32_t i = 0; i < d->pci->num_links; i++) {
        const struct dr_kfd_link *l = &d->pci->links[i];
        const struct dr_kfd_node *n = dr_kfd_node(d, l->machine, l->node);
        const char *subject = dr_printf(d, "KFD node %d", l->node);
        const bool asked = l->flags >= 0 && dr_is_host_link(d, l);
        const bool no = n != NULL &&
                ((asked && (l->flags & 12) == 12) ||
                        (n->simds > 0 && dr_is_bare_no(l)));
        struct dr_finding *f;

        if (n == NULL || n->device != DR_NONE || n->cpu_cores > 0)
            continue;
        if (l->refused)
            unknown(d, subject, "KFD does not show its link to this user", l->line);
        if (!no && !(asked && (l->flags & 12) == 0))
            continue;
        f = dr_found(d, no ? DR_ATOMICS_OFF : DR_ATOMICS_OK, "%s", subject);
        dr_say(d, f,
                "The GPU of KFD node %d has %sAtomicOps to host memory: its link to "
                "the "
                "processor has flags %lld.",
                l->node, no ? "no " : "", (long long)l->flags);
        dr_because(d, f, l->line);
    }
}

static void judge_machine(struct doctor *d, uint32_t machine)
{
    const struct dr_pci_machine *m = &d->pci->machines[machine];
    bool any = false, decided = false;
    struct dr_finding *f;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        if (d->pci->devices[i].machine != machine || !is_amd_gpu(&d->pci->devices[i]))
            continue;
        any = true;
        decided = decided || dr_gpu_atomics(d, i, NULL) != DR_UNSURE;
    }
    if (m->line_refused != DR_NONE && !decided) {
        f = dr_found(d, DR_ATOMICS_OFF, "amdgpu");
        dr_say(d, f,
                "An AMD GPU has no AtomicOps to host memory: the kernel refused them. "
                "Its "
                "line names no device.");
        dr_because(d, f, m->line_refused);
    } else if (!any && m->line_searched != DR_NONE && d->kernel->amd_line != DR_NONE &&
            d->lines[d->kernel->amd_line].machine == machine) {
        unknown(d, "",
                "the kernel log was searched and says nothing of it, which is neither "
                "a "
                "yes nor a no",
                m->line_searched);
    }
}

void dr_rule_atomics(struct doctor *d)
{
    dr_rule_kfd_skipped(d);
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        uint32_t line;

        if (!is_amd_gpu(&d->pci->devices[i]))
            continue;
        switch (dr_gpu_atomics(d, i, &line)) {
        case DR_YES: say_yes(d, i, line); break;
        case DR_NO: say_no(d, i, line); break;
        case DR_UNSURE: say_unknown(d, i); break;
        }
    }
    judge_nodes(d);
    for (uint32_t i = 0; i < d->num_machines; i++)
        judge_machine(d, i);
}
