/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of a hypervisor, of a kernel's version, of a search in vain; what the runtime says;
 * and what a device is when no line alone said it. */
#include "pci_read.h"

#include <ctype.h>
#include <string.h>

/* ---- a hypervisor ---- */

/* What `systemd-detect-virt` prints in a machine; containers have words of their own. */
static bool is_vm_word(const char *text)
{
    static const char *const words[] = { "kvm", "qemu", "vmware", "microsoft", "oracle",
        "xen", "amazon", "bochs", "uml", "parallels", "bhyve", "qnx", "acrn", "apple",
        "google", "powervm", "zvm", "sre", "vm-other" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

/* A name that an emulator gives to boards and to the cards on them. */
static bool is_emulated_name(const char *text)
{
    static const char *const names[] = { "QEMU", "Standard PC", "Virtual Machine",
        "VMware Virtual Platform", "VirtualBox" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (dr_has(text, names[i]))
            return true;
    return false;
}

static bool read_guest(struct dr_pci_reading *r)
{
    static const char *const sure[] = { "Hypervisor detected:", "Hypervisor vendor:",
        "Booting paravirtualized kernel on KVM" };
    static const char *const board[] = { "DMI: ", "Subsystem: ", "Product Name: ",
        "Manufacturer: ", "/dmi/id/", "Hardware Model: ", "Hardware Vendor: " };
    struct dr_pci_machine *m = &r->d->pci->machines[r->machine];
    const char *command;
    bool guest = false;

    if (m->line_guest != DR_NONE || (r->d->lines[r->line].flags & DR_COMMAND))
        return false;
    for (size_t i = 0; i < sizeof(sure) / sizeof(*sure); i++)
        guest = guest || dr_has(r->text, sure[i]);
    for (size_t i = 0; i < sizeof(board) / sizeof(*board); i++)
        guest = guest || (dr_has(r->text, board[i]) && is_emulated_name(r->text));
    if (!guest && dr_has_any_case(r->text, "flags"))
        guest = dr_scan(r->text, "flags%*:%*%<hypervisor%>", NULL) ||
                dr_scan(r->text, "Flags:%*%<hypervisor%>", NULL);
    if (!guest && dr_has(r->text, "Virtualization: "))
        guest = is_vm_word(strstr(r->text, "Virtualization: ") + 16);
    command = dr_command(r->d, r->line);
    if (!guest && *command != 0)
        guest = (dr_has(command, "systemd-detect-virt") && is_vm_word(r->text)) ||
                (dr_has(command, "/dmi/id/") && is_emulated_name(r->text)) ||
                (dr_has(command, "dmidecode -s") && is_emulated_name(r->text));
    if (guest)
        m->line_guest = r->line;
    return guest;
}

/* ---- the kernel's version ---- */

static void read_version(struct dr_pci_reading *r)
{
    struct dr_pci_machine *m = &r->d->pci->machines[r->machine];
    struct dr_span part[2];
    uint64_t major, minor;

    if (!dr_scan(r->text, "Linux version %d.%d", part) &&
            !(dr_has(dr_command(r->d, r->line), "uname -") &&
                    (dr_scan(r->text, "^Linux %*%<%d.%d.%d", NULL)
                                    ? dr_scan(r->text, " %d.%d.", part)
                                    : dr_scan(r->text, "^%d.%d.", part))))
        return;
    if (dr_span_u64(part[0], &major) && dr_span_u64(part[1], &minor) && major < 100 &&
            minor < 1000) {
        m->kernel_major = (int)major;
        m->kernel_minor = (int)minor;
        m->line_kernel = r->line;
    }
}

/* ---- a search of the kernel log ---- */

static bool is_search(const char *command)
{
    static const char *const logs[] = { "dmesg", "journalctl", "kern.log", "syslog",
        "/var/log/messages" };

    if (!dr_has_any_case(command, "atomic"))
        return false;
    for (size_t i = 0; i < sizeof(logs) / sizeof(*logs); i++)
        if (dr_has(command, logs[i]))
            return true;
    return false;
}

static void follow_search(struct dr_pci_reading *r)
{
    if (r->d->lines[r->line].flags & DR_COMMAND) {
        if (is_search(r->text))
            r->search = r->line;
        return;
    }
    if (r->search == DR_NONE || r->text[0] == 0)
        return;
    if (r->first_hit == DR_NONE)
        r->first_hit = r->line;
    r->found = r->found ||
            dr_has_any_case(r->text, "PCIE atomic ops is not supported") ||
            dr_has(r->text, "PCI rejects atomics");
}

void dr_pci_end_of_output(struct dr_pci_reading *r)
{
    dr_pci_hex_end(r);
    if (r->search != DR_NONE && !r->found)
        r->d->pci->machines[r->d->lines[r->search].machine].line_searched =
                r->first_hit != DR_NONE ? r->first_hit : r->search;
    r->search = r->first_hit = DR_NONE;
    r->found = false;
    r->device = DR_NONE;
    r->kfd_path[0] = 0;
    r->in_tree = false;
    r->num_typed = 0;
}

bool dr_pci_read_signs(struct dr_pci_reading *r)
{
    follow_search(r);
    read_version(r);
    return read_guest(r);
}

/* ---- the runtime's word ---- */

static int flag_after(const char *at)
{
    at += strcspn(at, "=: \t)");
    at += strspn(at, "=: \t)\"'");
    if (*at == '0' || dr_begins(at, "false") || dr_begins(at, "no"))
        return 0;
    return *at == '1' || dr_begins(at, "true") || dr_begins(at, "yes") ? 1 : -1;
}

bool dr_pci_read_runtime(struct dr_pci_reading *r)
{
    const char *at = strcasestr(r->text, "hostNativeAtomicSupported");
    struct dr_span part;
    char bdf[DR_BDF_MAX];
    struct dr_pci_device *p;
    int value;

    if (at == NULL || (r->d->lines[r->line].flags & DR_COMMAND) ||
            (value = flag_after(at)) < 0 || !dr_scan(r->text, "%b", &part) ||
            !dr_span_bdf(part, bdf))
        return false;
    p = dr_pci_device(r->d, r->machine, bdf, r->line);
    dr_pci_set_ids(p, 0x1002, -1, 0x0380);
    p->hip_atomics = (signed char)value;
    p->line_hip = r->line;
    return true;
}

/* ---- when all is read ---- */

/* Where a tree or a driver's line is all there is, a name or the driver tells a GPU. */
static void guess_class(struct dr_pci_device *p)
{
    static const char *const cards[] = { "Radeon", "Instinct", "GeForce", "Quadro",
        "Tesla", "[RTX", "NVIDIA A", "NVIDIA H", "FirePro", "[L4", "A100", "H100" };

    if (p->class >= 0)
        return;
    if (p->logged && p->vendor == 0x1002)
        p->class = 0x0300;
    if (dr_has(p->name, "Audio") || dr_has(p->name, "USB") ||
            (p->vendor != 0x1002 && p->vendor != 0x10de))
        return;
    for (size_t i = 0; i < sizeof(cards) / sizeof(*cards); i++)
        if (dr_has(p->name, cards[i]))
            p->class = 0x0300;
}

void dr_pci_finish(struct doctor *d)
{
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        struct dr_pci_device *p = &d->pci->devices[i];
        struct dr_pci_machine *m = &d->pci->machines[p->machine];

        guess_class(p);
        if ((p->vendor == 0x1b36 || p->vendor == 0x1af4) && m->line_guest == DR_NONE)
            m->line_guest = p->line;
    }
    for (uint32_t i = 0; i < d->num_machines; i++) {
        struct dr_pci_machine *m = &d->pci->machines[i];
        const uint32_t gpu = dr_only_amd_gpu(d, i, 0);

        if (m->line_refused != DR_NONE && gpu != DR_NONE) {
            d->pci->devices[gpu].line_refused_by_log = m->line_refused;
            m->line_refused = DR_NONE;
        }
    }
}
