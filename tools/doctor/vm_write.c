/* SPDX-License-Identifier: Apache-2.0 */
/* For each passed GPU: will the guest see AtomicOps, why, and what to write instead. */
#include "vm.h"

#include <string.h>

static const char *const kinds[] = { "Proxmox", "QEMU", "libvirt" };

static void write_place(const struct doctor *d, FILE *out, uint32_t line)
{
    if (line != DR_NONE)
        fprintf(out, " (%s:%u)", d->sources[d->lines[line].source].name,
                d->lines[line].number);
}

/* One reason, where it stands. */
static void write_reason(const struct doctor *d, FILE *out, const char *reason,
        uint32_t line)
{
    fprintf(out, "    because %s", reason);
    write_place(d, out, line);
    fputs(".\n", out);
}

static void write_version(const struct doctor *d, FILE *out,
        const struct dr_vm_version *v)
{
    if (!dr_vm_too_old(v))
        return;
    fprintf(out, "    because QEMU %s runs, older than %d.%d", v->text,
            DR_VM_QEMU_MAJOR, DR_VM_QEMU_MINOR);
    write_place(d, out, v->line);
    fputs(".\n    Upgrade QEMU on the hypervisor, then stop and start the VM.\n", out);
}

static void write_device(const struct doctor *d, FILE *out,
        const struct dr_vm_device *device)
{
    const unsigned wrong = device->fault & ~(unsigned)DR_VM_UNDECIDED;
    const struct dr_vm_version *v = dr_vm_version_of(d, device->definition);
    uint32_t host_line = DR_NONE;
    const enum dr_answer host = dr_vm_host_path(d, device->bdf, &host_line);
    const char *answer = "will see AtomicOps.";

    if (wrong != 0 || dr_vm_too_old(v) || host == DR_NO)
        answer = "will not see AtomicOps";
    else if (device->fault != 0)
        answer = "may or may not see AtomicOps";
    else if (host == DR_UNSURE)
        answer = "will see AtomicOps if the host's path to the card has them";
    fprintf(out, "  %s", device->label);
    if (device->mapping != NULL)
        fprintf(out, ", mapping %s", device->mapping);
    if (device->host[0] != 0 && strcmp(device->host, device->label) != 0)
        fprintf(out, ", card %s", device->host);
    fprintf(out, ": the guest %s%s\n", answer, strchr(answer, '.') != NULL ? "" : ".");
    if (device->fault != 0 && device->why[0] != 0)
        write_reason(d, out, device->why, device->line_why);
    else if (device->fault != 0)
        write_reason(d, out, "the machine type is not in the text", DR_NONE);
    write_version(d, out, v);
    if (wrong != 0 && device->instead[0] != 0)
        fprintf(out, "    Write instead: %s\n", device->instead);
    if (host == DR_NO)
        write_reason(d, out, "the host's own path to the card has none", host_line);
    else if (host == DR_YES)
        write_reason(d, out, "the host's path to the card has them", host_line);
    else if (wrong == 0)
        fputs("    The host's path is not in the text: run this as root on the "
              "hypervisor.\n",
                out);
}

static bool has_gpu(const struct doctor *d, uint32_t definition)
{
    for (uint32_t i = 0; i < d->vm->num_devices; i++)
        if (d->vm->devices[i].definition == definition &&
                !dr_vm_is_other(d, &d->vm->devices[i]))
            return true;
    return false;
}

void dr_write_vm(const struct doctor *d, FILE *out, const char *id)
{
    const struct dr_vm *vm = d->vm;
    bool any = false;

    for (uint32_t k = 0; k < vm->num_definitions; k++) {
        const struct dr_vm_definition *def = &vm->definitions[k];

        if ((id != NULL && strcmp(def->id, id) != 0) || !has_gpu(d, k))
            continue;
        fprintf(out, "%s%s, %s", def->id[0] != 0 ? "VM " : "A VM", def->id,
                kinds[def->kind]);
        write_place(d, out, def->line);
        fputc('\n', out);
        for (uint32_t i = 0; i < vm->num_devices; i++)
            if (vm->devices[i].definition == k && !dr_vm_is_other(d, &vm->devices[i]))
                write_device(d, out, &vm->devices[i]);
        any = true;
    }
    if (!any && id != NULL)
        fprintf(out, "VM %s: no definition with a passed GPU was found.\n", id);
    else if (!any)
        fputs("No definition of a virtual machine with a passed GPU was found.\n", out);
}
