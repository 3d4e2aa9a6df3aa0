/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of virtual machines, the versions of QEMU, and what VFIO says. See vm.h. */
#include "vm.h"

#include "rules.h"

#include <stdlib.h>
#include <string.h>

/* What a hostile text may add: beyond it nothing is looked at any more. */
#define ENTRIES_MAX 1024u

/* ---- definitions ---- */

uint32_t dr_vm_define(struct doctor *d, enum dr_vm_kind kind, const char *id,
        uint32_t line)
{
    struct dr_vm *vm = d->vm;
    struct dr_vm_definition *def;

    if (vm->num_definitions == ENTRIES_MAX)
        return ENTRIES_MAX - 1;
    for (uint32_t i = 0; id[0] != 0 && i < vm->num_definitions; i++)
        if (vm->definitions[i].kind == kind && strcmp(vm->definitions[i].id, id) == 0 &&
                vm->definitions[i].machine == d->lines[line].machine)
            return i;
    def = DR_PUSH(d, vm->definitions, vm->num_definitions, vm->room_definitions);
    def->kind = kind;
    def->id = dr_copy(d, id, strlen(id));
    def->chipset = "";
    def->machine = d->lines[line].machine;
    def->line = line;
    def->line_chipset = DR_NONE;
    dr_known(d, line);
    return vm->num_definitions - 1;
}

static bool same_device(const struct doctor *d, const struct dr_vm_device *device,
        uint32_t definition, const char *label, const char *host, uint32_t line)
{
    if (device->definition != definition || strcmp(device->label, label) != 0)
        return false;
    /* what a session prints later is what holds now */
    return strcmp(device->host, host) == 0 ||
            d->lines[device->line].source == d->lines[line].source;
}

struct dr_vm_device *dr_vm_pass(struct doctor *d, uint32_t definition,
        const char *label, const char *host, uint32_t line)
{
    struct dr_vm *vm = d->vm;
    struct dr_vm_device *device = NULL;
    struct dr_span span[1];

    if (vm->num_devices == ENTRIES_MAX) {
        device = dr_alloc(d, sizeof(*device)); /* belongs to nobody */
        device->why = device->instead = "";
        return device;
    }
    for (uint32_t i = 0; device == NULL && i < vm->num_devices; i++)
        if (same_device(d, &vm->devices[i], definition, label, host, line))
            device = &vm->devices[i];
    if (device == NULL)
        device = DR_PUSH(d, vm->devices, vm->num_devices, vm->room_devices);
    *device = (struct dr_vm_device){ .definition = definition,
        .label = dr_copy(d, label, strlen(label)),
        .host = dr_copy(d, host, strlen(host)),
        .why = "",
        .instead = "",
        .line = line,
        .line_why = line };
    if (dr_scan(dr_printf(d, "%s.0", host), "^%b%e", span) ||
            dr_scan(host, "^%b", span))
        (void)dr_span_bdf(span[0], device->bdf);
    if (device->bdf[0] != 0)
        device->bdf[strlen(device->bdf) - 1] = '0';
    dr_known(d, line);
    return device;
}

void dr_vm_blame(struct doctor *d, struct dr_vm_device *device, unsigned fault,
        const char *why, const char *instead, uint32_t line)
{
    device->fault |= fault;
    if (device->why[0] == 0) {
        device->why = dr_copy(d, why, strlen(why));
        device->line_why = line;
    } else if (!dr_has(device->why, why)) {
        device->why = dr_printf(d, "%s, and %s", device->why, why);
    }
    if (device->instead[0] == 0)
        device->instead = dr_copy(d, instead, strlen(instead));
    else if (!dr_has(device->instead, instead))
        device->instead = dr_printf(d, "%s and %s", device->instead, instead);
}

bool dr_vm_has_pcie(const char *chipset)
{
    return dr_has(chipset, "q35") || dr_begins(chipset, "virt") ||
            dr_has(chipset, "=virt");
}

void dr_vm_set_chipset(struct doctor *d, uint32_t definition, struct dr_span chipset,
        uint32_t line)
{
    struct dr_vm_definition *def = &d->vm->definitions[definition];

    def->chipset = dr_copy(d, chipset.at, chipset.length);
    def->line_chipset = line;
    def->pins_version = dr_scan(def->chipset, "pc-q35-%d", NULL) ||
            dr_scan(def->chipset, "i440fx-%d", NULL);
}

/* ---- versions ---- */

/* A line that tells a version: two numbers, the first at that capture. */
static const struct version_text {
    const char *pattern;
    unsigned capture;
    enum dr_vm_trust trust;
    const char *command; /* must have been typed, or NULL */
} version_texts[] = {
    { "running-qemu: %d.%d", 0, DR_VM_PROCESS, NULL },
    { "\"running-qemu\":\"%d.%d", 0, DR_VM_PROCESS, NULL },
    { "\"running-qemu\" : \"%d.%d", 0, DR_VM_PROCESS, NULL },
    { "running-qemu %w %d.%d", 1, DR_VM_PROCESS, NULL },
    { "^%d.%d.%d", 0, DR_VM_PROCESS, "info version" },
    { "QEMU emulator version %d.%d", 0, DR_VM_PROCESS, "/proc/" },
    { "^QEMU %d.%d.%d monitor", 0, DR_VM_PROCESS, NULL },
    { "qemu version: %d.%d", 0, DR_VM_PROCESS, NULL },
    { "QEMU emulator version %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "Running hypervisor: QEMU %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "pve-qemu-kvm: %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^ii pve-qemu-kvm %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^qemu-system-x86 %d:%d.%d", 1, DR_VM_INSTALLED, NULL },
    { "^qemu-base %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^qemu-full %d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^ii qemu-system-x86 %d:%d.%d", 1, DR_VM_INSTALLED, NULL },
    { "^ii qemu-system-x86:amd64 %d:%d.%d", 1, DR_VM_INSTALLED, NULL },
    { "^qemu-kvm-core-%d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^qemu-kvm-%d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^qemu-system-x86-core-%d.%d", 0, DR_VM_INSTALLED, NULL },
    { "^qemu-system-x86-%d.%d", 0, DR_VM_INSTALLED, NULL },
    { "running-machine: pc-q35-%d.%d", 0, DR_VM_MACHINE_RUNS, NULL },
    { "running-machine: pc-i440fx-%d.%d", 0, DR_VM_MACHINE_RUNS, NULL },
};

/* The VM that a command asks about: "qm status 104 --verbose". */
static const char *asked_id(struct doctor *d, uint32_t line)
{
    static const char *const patterns[] = { "qm status %w", "qm config %w",
        "qm monitor %w", "qm showcmd %w", "qm pending %w", "qemu-server/%d/status",
        "qemu/%d/status", "qemu-monitor-command --domain %w", "qemu-monitor-command %w",
        "qemu-server/%d.conf", "virsh dumpxml %w" };
    const char *typed = dr_command(d, line);
    struct dr_span out[1];

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (dr_scan(typed, patterns[i], out) && out[0].at[0] != '-')
            return dr_copy(d, out[0].at, out[0].length);
    return "";
}

static void add_version(struct doctor *d, enum dr_vm_trust trust, struct dr_span major,
        struct dr_span minor, uint32_t line)
{
    struct dr_vm *vm = d->vm;
    struct dr_vm_version *v;
    uint64_t first, second;
    size_t length = strspn(major.at, "0123456789.");

    if (!dr_span_u64(major, &first) || !dr_span_u64(minor, &second) || first > 1000 ||
            second > 100000 || vm->num_versions == ENTRIES_MAX)
        return;
    while (length > 0 && major.at[length - 1] == '.')
        length--;
    if (minor.at != major.at + major.length + 1) /* not in a row: from JSON */
        length = 0;
    v = DR_PUSH(d, vm->versions, vm->num_versions, vm->room_versions);
    v->trust = trust;
    v->id = asked_id(d, line);
    v->text = length > 0 ? dr_copy(d, major.at, length)
                         : dr_printf(d, "%u.%u", (unsigned)first, (unsigned)second);
    v->major = (unsigned)first;
    v->minor = (unsigned)second;
    v->machine = d->lines[line].machine;
    v->line = line;
    dr_known(d, line);
}

/* The answer of query-version, on one line or over several. */
static void read_query(struct doctor *d, uint32_t line)
{
    const struct dr_source *s = &d->sources[d->lines[line].source];
    const uint32_t end = s->first + s->count;
    struct dr_span major = { NULL, 0 }, minor = { NULL, 0 };

    for (uint32_t i = line; i < end && i < line + 6; i++) {
        struct dr_span out[1];

        if (major.at == NULL &&
                (dr_scan(d->lines[i].text, "\"major\":%d", out) ||
                        dr_scan(d->lines[i].text, "\"major\": %d", out)))
            major = out[0];
        if (minor.at == NULL &&
                (dr_scan(d->lines[i].text, "\"minor\":%d", out) ||
                        dr_scan(d->lines[i].text, "\"minor\": %d", out)))
            minor = out[0];
    }
    if (major.at != NULL && minor.at != NULL)
        add_version(d, DR_VM_PROCESS, major, minor, line);
}

/* What was asked: of a shell, or of a monitor with a prompt of its own ("qm> "). */
static const char *asked(const struct doctor *d, uint32_t line)
{
    const bool first = line == 0 || d->lines[line - 1].source != d->lines[line].source;

    return !first && dr_scan(d->lines[line - 1].text, "> info version%e", NULL)
            ? d->lines[line - 1].text
            : !first && dr_scan(d->lines[line - 1].text, "(qemu) info version%e", NULL)
            ? d->lines[line - 1].text
            : dr_command(d, line);
}

static void read_version(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span out[DR_CAPTURES_MAX];

    if (d->machines[d->lines[line].machine].is_guest_file ||
            (!dr_has(text, "qemu") && !dr_has(text, "QEMU") &&
                    !dr_has(text, "running-machine") &&
                    !dr_has(asked(d, line), "info version")))
        return;
    if (dr_has(text, "\"qemu\": {") || dr_has(text, "\"qemu\":{"))
        read_query(d, line);
    for (size_t i = 0; i < sizeof(version_texts) / sizeof(*version_texts); i++) {
        const struct version_text *v = &version_texts[i];

        if (v->command != NULL && !dr_has(asked(d, line), v->command))
            continue;
        if (dr_scan(text, v->pattern, out)) {
            add_version(d, v->trust, out[v->capture], out[v->capture + 1], line);
            return;
        }
    }
}

static bool speaks_of(const struct dr_vm_version *v, const struct dr_vm_definition *def)
{
    if (v->id[0] != 0 && def->id[0] != 0 && strcmp(v->id, def->id) != 0)
        return false;
    return v->trust != DR_VM_MACHINE_RUNS ||
            (!def->pins_version && (def->chipset[0] != 0 || def->whole));
}

static int nearness(const struct dr_vm_version *v, const struct dr_vm_definition *def)
{
    return (v->id[0] != 0 && strcmp(v->id, def->id) == 0 ? 2 : 0) +
            (v->machine == def->machine);
}

const struct dr_vm_version *dr_vm_version_of(const struct doctor *d,
        uint32_t definition)
{
    const struct dr_vm *vm = d->vm;
    const struct dr_vm_definition *def = &vm->definitions[definition];
    const struct dr_vm_version *best = NULL;

    for (uint32_t i = 0; i < vm->num_versions; i++) {
        const struct dr_vm_version *v = &vm->versions[i];

        if (!speaks_of(v, def))
            continue;
        if (best == NULL || v->trust > best->trust ||
                (v->trust == best->trust && nearness(v, def) >= nearness(best, def)))
            best = v;
    }
    return best;
}

bool dr_vm_too_old(const struct dr_vm_version *version)
{
    return version != NULL &&
            (version->major < DR_VM_QEMU_MAJOR ||
                    (version->major == DR_VM_QEMU_MAJOR &&
                            version->minor < DR_VM_QEMU_MINOR));
}

/* ---- the host ---- */

/* "vfio 0000:43:00.0 atomics: 32 64 128": what the VFIO driver answers. */
static void read_vfio(struct doctor *d, uint32_t line)
{
    struct dr_vm *vm = d->vm;
    struct dr_vm_vfio *v;
    struct dr_span out[2];
    char bdf[DR_BDF_MAX];

    if (!dr_scan(d->lines[line].text, "^vfio %b atomics:%*", out) ||
            !dr_span_bdf(out[0], bdf) || vm->num_vfio == ENTRIES_MAX)
        return;
    v = DR_PUSH(d, vm->vfio, vm->num_vfio, vm->room_vfio);
    memcpy(v->bdf, bdf, sizeof(bdf));
    v->widths = (dr_scan(out[1].at, " 32%>", NULL) ? 1u : 0) |
            (dr_scan(out[1].at, " 64%>", NULL) ? 2u : 0) |
            (dr_scan(out[1].at, " 128%>", NULL) ? 4u : 0);
    v->line = line;
    dr_known(d, line);
}

/* The record of a passed device on its host, DR_NONE: not in the text. */
static uint32_t vm_host_device(const struct doctor *d, const char *bdf)
{
    uint32_t found = DR_NONE;

    for (uint32_t m = 0; bdf[0] != 0 && m < d->num_machines; m++) {
        const uint32_t device = dr_is_guest(d, m) ? DR_NONE : dr_pci_find(d, m, bdf);

        if (device != DR_NONE)
            found = device;
    }
    return found;
}

enum dr_answer dr_vm_host_path(const struct doctor *d, const char *bdf, uint32_t *line)
{
    const struct dr_vm *vm = d->vm;
    uint32_t device;

    for (uint32_t i = 0; i < vm->num_vfio; i++)
        if (strcmp(vm->vfio[i].bdf, bdf) == 0) {
            *line = vm->vfio[i].line;
            return (vm->vfio[i].widths & 3) == 3 ? DR_YES : DR_NO;
        }
    device = vm_host_device(d, bdf);
    return device != DR_NONE ? dr_gpu_atomics(d, device, line) : DR_UNSURE;
}

bool dr_vm_is_other(const struct doctor *d, const struct dr_vm_device *device)
{
    const uint32_t index = vm_host_device(d, device->bdf);
    const struct dr_pci_device *p;

    if (index == DR_NONE)
        return false;
    p = &d->pci->devices[index];
    return p->vendor == 0x10de || (p->class >= 0 && p->vendor >= 0 && !dr_is_gpu(p));
}

/* ---- all of them ---- */

void dr_read_vm(struct doctor *d)
{
    d->vm = dr_alloc(d, sizeof(*d->vm));
    for (uint32_t i = 0; i < d->num_lines; i++) {
        read_version(d, i);
        read_vfio(d, i);
    }
    dr_read_vm_proxmox(d);
    dr_read_vm_qemu(d);
    dr_read_vm_libvirt(d);
}
