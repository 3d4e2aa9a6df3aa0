/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs that KFD refuses as a whole. */
#include "pci_read.h"
#include "rules.h"

#include <string.h>

/* A GPU that was skipped; the last line of each counts. */
struct skipped {
    uint32_t machine, line;
    uint64_t vendor, device, have, need;
};

/* More kinds of cards than fit in one machine. */
#define SKIPPED_MAX 64

/* "skipped device 1002:67df, PCI rejects atomics 730<0"; false also of a line whose
 * numbers are cut. */
static bool read_line(const char *text, struct skipped *out)
{
    struct dr_span part[4];

    if (!dr_scan(text, "skipped device %x:%x, PCI rejects atomics%*", part) ||
            !dr_span_hex(part[0], &out->vendor) || !dr_span_hex(part[1], &out->device))
        return false;
    out->have = out->need = 0;
    if (!dr_scan(part[2].at, "^ %d", NULL))
        return part[2].length == 0 || dr_scan(part[2].at, "^%e", NULL);
    return dr_scan(part[2].at, "^ %d<%d", part) && dr_span_u64(part[0], &out->have) &&
            dr_span_u64(part[1], &out->need);
}

/* A later boot of the same log that takes the card makes the line history. */
static bool was_taken_later(const struct doctor *d, const struct skipped *s)
{
    const struct dr_line *from = &d->lines[s->line];
    const struct dr_source *source = &d->sources[from->source];
    struct dr_span part[2];
    uint64_t vendor, device;
    bool rebooted = false;

    for (uint32_t i = s->line + 1; i < source->first + source->count; i++) {
        const char *text = d->lines[i].text;

        rebooted = rebooted || dr_has(text, "Linux version ");
        if (rebooted && dr_scan(text, "added device %x:%x", part) &&
                dr_span_hex(part[0], &vendor) && dr_span_hex(part[1], &device) &&
                vendor == s->vendor && device == s->device)
            return true;
    }
    return false;
}

static void report(struct doctor *d, const struct skipped *s)
{
    const enum dr_code code =
            s->need > 0 ? DR_KFD_SKIPPED_OLD_FIRMWARE : DR_KFD_SKIPPED_NO_ATOMICS;
    const uint32_t device = dr_only_amd_gpu(d, s->machine, (int)(s->device & 0xffff));
    const char *id = dr_printf(d, "%04x:%04x", (unsigned)s->vendor & 0xffff,
            (unsigned)s->device & 0xffff);
    const char *bdf = device != DR_NONE ? d->pci->devices[device].bdf : NULL;
    struct dr_finding *f = dr_found(d, code, "%s", bdf != NULL ? bdf : id);

    dr_because(d, f, s->line);
    if (s->need > 0) {
        dr_say(d, f,
                "KFD skips GPU %s (%s): its path has no AtomicOps, and its MEC "
                "firmware %llu "
                "is older than %llu, from which on it does without them.",
                bdf != NULL ? bdf : id, id, (unsigned long long)s->have,
                (unsigned long long)s->need);
        dr_fix(d, f,
                "Install GPU firmware whose MEC version is at least %llu (the "
                "linux-firmware "
                "package of a newer release), rebuild the initramfs, reboot.",
                (unsigned long long)s->need);
    } else {
        dr_say(d, f,
                "KFD skips GPU %s (%s): this chip cannot compute without AtomicOps, "
                "its path "
                "has none, and no firmware changes that.",
                bdf != NULL ? bdf : id, id);
        if (dr_is_guest(d, s->machine))
            dr_fix(d, f,
                    "This is a guest: on the hypervisor, every hostpci line must name "
                    "function .0 (`qm config ID | grep hostpci`), each card on a root "
                    "port "
                    "of its own, QEMU 8.1 or newer; then the physical path on the "
                    "host.");
        else
            dr_fix(d, f, "Another slot, another board, or another GPU.");
        dr_will_not_help(d, f,
                "Any other version of ROCm: the device is missing below it.");
    }
    if (device != DR_NONE)
        dr_consequence(d, f, d->pci->devices[device].line_refused_by_log);
}

void dr_rule_kfd_skipped(struct doctor *d)
{
    struct skipped all[SKIPPED_MAX];
    uint32_t count = 0, k;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct skipped s = { .machine = d->lines[i].machine, .line = i };

        if (!dr_has(d->lines[i].text, "PCI rejects atomics"))
            continue;
        if ((d->lines[i].flags & DR_COMMAND) != 0)
            continue;
        if (!read_line(d->lines[i].text, &s)) {
            if (dr_has(d->lines[i].text, "skipped device"))
                dr_trouble(d, i);
            continue;
        }
        for (k = 0; k < count; k++)
            if (all[k].machine == s.machine && all[k].vendor == s.vendor &&
                    all[k].device == s.device)
                break;
        if (k < SKIPPED_MAX) {
            all[k] = s;
            count += k == count;
        }
    }
    for (k = 0; k < count; k++)
        if (!was_taken_later(d, &all[k]))
            report(d, &all[k]);
}
