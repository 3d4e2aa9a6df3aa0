/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about virtual machines: from their definitions, and from inside a guest. */
#include "rules.h"
#include "vm.h"

#include <string.h>

/* ---- from the definition ---- */

/* "VM 104", "the VM". */
static const char *vm_name(struct doctor *d, uint32_t definition)
{
    const char *id = d->vm->definitions[definition].id;

    return id[0] != 0 ? dr_printf(d, "VM %s", id) : "the VM";
}

static const char *subject_of(struct doctor *d, const struct dr_vm_device *device)
{
    const char *id = d->vm->definitions[device->definition].id;
    const char *of = id[0] != 0 ? dr_printf(d, " of VM %s", id) : "";

    return device->mapping != NULL
            ? dr_printf(d, "%s (mapping %s)%s", device->label, device->mapping, of)
            : dr_printf(d, "%s%s", device->label, of);
}

static const char *host_of(struct doctor *d, const struct dr_vm_device *device)
{
    return device->host[0] != 0 ? dr_printf(d, "card %s", device->host) : "a card";
}

static void write_instead(struct doctor *d, struct dr_finding *f,
        const struct dr_vm_device *device)
{
    const struct dr_vm_definition *def = &d->vm->definitions[device->definition];

    if (device->instead[0] != 0)
        dr_fix(d, f, "On the hypervisor write `%s`.", device->instead);
    if (def->kind == DR_VM_PROXMOX)
        dr_fix(d, f, "Do the same for every card: `qm config %s | grep hostpci`.",
                def->id[0] != 0 ? def->id : "ID");
    else
        dr_fix(d, f, "Do the same for every card of this VM.");
}

static void stop_and_start(struct doctor *d, struct dr_finding *f)
{
    dr_fix(d, f,
            "Then stop and start the VM: a reboot inside the guest keeps the old "
            "process.");
}

/* What a definition does wrong with a card: "VM 104 VERB card 0b:00 HOW (why), so EFFECT." */
static const struct fault {
    unsigned bit;
    enum dr_code code;
    const char *verb, *how, *effect, *fix;
} faults[] = {
    { DR_VM_MULTIFUNCTION, DR_ATOMICS_VM_MULTIFUNCTION, "passes",
            "as a multifunction device",
            "QEMU leaves the completer bits of its root port clear and the guest gets "
            "no AtomicOps",
            "The HDMI audio function is then not passed. As an entry of its own, on a "
            "root port of its own, it is possible and untested." },
    { DR_VM_NO_ROOT_PORT, DR_ATOMICS_VM_NO_ROOT_PORT, "does not put",
            "as function 0 directly below an emulated root port",
            "nobody in the guest completes AtomicOps",
            "Each card needs a root port of its own. An emulated switch that cards "
            "share, for peer access, costs atomics: one or the other." },
};

static void say_fault(struct doctor *d, const struct dr_vm_device *device,
        const struct fault *fault)
{
    struct dr_finding *f = dr_found(d, fault->code, "%s", subject_of(d, device));

    dr_say(d, f, "%s %s %s %s (%s), so %s.", vm_name(d, device->definition),
            fault->verb, host_of(d, device), fault->how, device->why, fault->effect);
    dr_because(d, f, device->line);
    dr_because(d, f, device->line_why);
    write_instead(d, f, device);
    dr_fix(d, f, "%s", fault->fix);
    stop_and_start(d, f);
}

static void too_old(struct doctor *d, const struct dr_vm_device *device)
{
    static const char *const where[] = { "the machine type that runs",
        "what is installed", "the process that runs" };
    const struct dr_vm_version *v = dr_vm_version_of(d, device->definition);
    struct dr_finding *f;

    if (!dr_vm_too_old(v))
        return;
    f = dr_found(d, DR_ATOMICS_VM_QEMU_TOO_OLD, "QEMU %s", v->text);
    dr_say(d, f,
            "%s runs on QEMU %s (read from %s); only from 8.1 on does QEMU set the "
            "completer bits of a root port above a passed card.",
            vm_name(d, device->definition), v->text, where[v->trust]);
    dr_because(d, f, v->line);
    dr_because(d, f, device->line);
}

/* A mapping that is not in the text hides what is passed, unless a guest shows it. */
static void undecided(struct doctor *d, const struct dr_vm_device *device)
{
    struct dr_finding *f;
    uint32_t line = DR_NONE;

    if (device->mapping == NULL || device->host[0] != 0)
        return;
    for (uint32_t i = 0; i < d->pci->num_devices; i++)
        if (dr_is_gpu(&d->pci->devices[i]) && dr_gpu_atomics(d, i, &line) != DR_UNSURE)
            return;
    f = dr_found(d, DR_ATOMICS_UNKNOWN, "%s", subject_of(d, device));
    dr_say(d, f,
            "%s passes a card by the mapping %s, and the text does not show whether "
            "its path names one function or the whole slot.",
            vm_name(d, device->definition), device->mapping);
    dr_because(d, f, device->line);
    dr_fix(d, f,
            "Add /etc/pve/mapping/pci.cfg of the hypervisor (`cat "
            "/etc/pve/mapping/pci.cfg`) and look at `path=` of %s.",
            device->mapping);
}

static bool is_gpu(const struct doctor *d, const struct dr_vm_device *device)
{
    return !dr_vm_is_other(d, device);
}

static bool all_good(const struct doctor *d, uint32_t definition)
{
    const struct dr_vm *vm = d->vm;
    bool any = false;

    for (uint32_t i = 0; i < vm->num_devices; i++) {
        if (!is_gpu(d, &vm->devices[i]))
            continue;
        if ((vm->devices[i].fault & ~(unsigned)DR_VM_UNDECIDED) != 0 ||
                (vm->devices[i].definition == definition && vm->devices[i].fault != 0))
            return false;
        any = any || vm->devices[i].definition == definition;
    }
    return any && !dr_vm_too_old(dr_vm_version_of(d, definition));
}

static void layout_ok(struct doctor *d, uint32_t definition)
{
    const struct dr_vm_version *v = dr_vm_version_of(d, definition);
    struct dr_finding *f = dr_found(d, DR_ATOMICS_VM_LAYOUT_OK, "%s",
            d->vm->definitions[definition].id);

    dr_say(d, f,
            "%s passes each card as function 0 alone, directly below a root port of "
            "its own%s%s: the guest sees the completers that the host's path has.",
            d->vm->definitions[definition].id[0] != 0 ? vm_name(d, definition)
                                                      : "The VM",
            v != NULL ? ", on QEMU " : "", v != NULL ? v->text : "");
    for (uint32_t i = 0; i < d->vm->num_devices; i++)
        if (d->vm->devices[i].definition == definition)
            dr_because(d, f, d->vm->devices[i].line);
    dr_because(d, f, d->vm->definitions[definition].line_chipset);
    if (v != NULL)
        dr_because(d, f, v->line);
}

/* ---- from inside ---- */

/* Another function in the slot of @p gpu, of the same vendor, or DR_NONE. */
static uint32_t second_function(const struct doctor *d, const struct dr_pci_device *gpu)
{
    const size_t slot = strlen(gpu->bdf) - 1;

    for (char function = '0'; function < '8'; function++) {
        char bdf[DR_BDF_MAX];
        uint32_t other;

        memcpy(bdf, gpu->bdf, sizeof(bdf));
        bdf[slot] = function;
        other = function != gpu->bdf[slot] ? dr_pci_find(d, gpu->machine, bdf)
                                           : DR_NONE;
        if (other != DR_NONE &&
                (d->pci->devices[other].vendor == gpu->vendor ||
                        d->pci->devices[other].vendor < 0))
            return other;
    }
    return DR_NONE;
}

static bool is_emulated(const struct doctor *d, const struct dr_pci_device *port)
{
    return (port->vendor == 0x1b36 && port->device == 0x000c) ||
            (port->port == DR_ROOT_PORT && dr_is_guest(d, port->machine));
}

static void slot_inside(struct doctor *d, uint32_t index)
{
    const struct dr_pci_device *gpu = &d->pci->devices[index], *port;
    uint32_t chain[DR_CHAIN_MAX], other;
    struct dr_finding *f;

    if (dr_chain(d, index, chain) == 0)
        return;
    port = &d->pci->devices[chain[0]];
    other = second_function(d, gpu);
    if (other == DR_NONE || !is_emulated(d, port) ||
            (port->complete32 != 0 && port->complete64 != 0))
        return;
    f = dr_found(d, DR_ATOMICS_VM_MULTIFUNCTION, "%s", gpu->bdf);
    dr_say(d, f,
            "%s came into this guest together with %s of the same card, below the "
            "emulated root port %s without completer bits: the hypervisor passes the "
            "whole slot.",
            gpu->bdf, d->pci->devices[other].bdf, port->bdf);
    dr_because(d, f, port->line_atomics);
    dr_because(d, f, d->pci->devices[other].line);
    dr_because(d, f, gpu->line);
}

/* The machines whose text shows QEMU under them, and no other hypervisor. */
static bool *qemu_machines(struct doctor *d)
{
    static const char *const signs[] = { "QEMU", "KVM", "1b36:", "1af4:", "kvm" };
    static const char *const others[] = { "Hyper-V", "VMware, Inc", "Xen HVM" };
    bool *out = dr_alloc(d, d->num_machines * sizeof(*out));

    for (uint32_t i = 0; i < d->num_lines; i++)
        for (size_t k = 0; k < sizeof(signs) / sizeof(*signs); k++)
            out[d->lines[i].machine] =
                    out[d->lines[i].machine] || dr_has(d->lines[i].text, signs[k]);
    for (uint32_t i = 0; i < d->num_lines; i++)
        for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
            if (dr_has(d->lines[i].text, others[k]))
                out[d->lines[i].machine] = false;
    return out;
}

static void root_bus_inside(struct doctor *d, uint32_t index, const bool *qemu)
{
    const struct dr_pci_device *gpu = &d->pci->devices[index];
    struct dr_finding *f;

    if (gpu->port != DR_RC_INTEGRATED || !dr_is_guest(d, gpu->machine) ||
            !qemu[gpu->machine])
        return;
    f = dr_found(d, DR_ATOMICS_VM_NO_ROOT_PORT, "%s", gpu->bdf);
    dr_say(d, f,
            "%s sits on the root bus of this guest (Root Complex Integrated Endpoint): "
            "there is no emulated root port above it that could complete AtomicOps.",
            gpu->bdf);
    dr_because(d, f, gpu->line_port != DR_NONE ? gpu->line_port : gpu->line);
    dr_fix(d, f,
            "On the hypervisor give each card a `-device pcie-root-port` of its own "
            "and attach it there (Proxmox: `machine: q35` and `pcie=1`).");
    stop_and_start(d, f);
}

static void from_inside(struct doctor *d)
{
    const bool *qemu = d->pci->num_devices > 0 ? qemu_machines(d) : NULL;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *gpu = &d->pci->devices[i];

        if (!dr_is_gpu(gpu) || gpu->vendor == 0x10de)
            continue;
        slot_inside(d, i);
        root_bus_inside(d, i, qemu);
    }
}

void dr_rule_vm(struct doctor *d)
{
    const struct dr_vm *vm = d->vm;
    bool any = false;

    for (uint32_t i = 0; i < vm->num_devices; i++) {
        const struct dr_vm_device *device = &vm->devices[i];

        if (!is_gpu(d, device))
            continue;
        for (size_t k = 0; k < sizeof(faults) / sizeof(*faults); k++)
            if (device->fault & faults[k].bit)
                say_fault(d, device, &faults[k]);
        too_old(d, device);
        undecided(d, device);
        any = any || (device->fault & ~(unsigned)DR_VM_UNDECIDED) != 0;
    }
    for (uint32_t i = 0; i < vm->num_definitions; i++)
        if (all_good(d, i))
            layout_ok(d, i);
    if (!any)
        from_inside(d);
}
