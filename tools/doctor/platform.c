/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs a machine has, however they are named; the rest is in platform_*.c. */
#include "platform.h"

#include "rules.h"

#include <ctype.h>
#include <string.h>

/* Cards looked at together; text with more is no machine. */
#define CARDS_MAX 64

/* ---- GPUs named elsewhere ---- */

static void see_gpu(struct doctor *d, uint32_t line, const char *bdf)
{
    struct dr_kernel *k = d->kernel;
    const uint32_t machine = d->lines[line].machine;
    struct dr_seen_gpu *seen;

    if (k->num_seen >= CARDS_MAX)
        return;
    for (uint32_t i = 0; i < k->num_seen; i++)
        if (k->seen[i].machine == machine && strcmp(k->seen[i].bdf, bdf) == 0)
            return;
    seen = DR_PUSH(d, k->seen, k->num_seen, k->room_seen);
    seen->machine = machine;
    seen->line = line;
    memcpy(seen->bdf, bdf, DR_BDF_MAX);
}

/* "00000000:21:00.0", as nvidia-smi prints it, and "0000:61:00", as nccl-tests do. */
static bool long_address(const char *text, char bdf[DR_BDF_MAX])
{
    struct dr_span part[4];
    uint64_t value[4] = { 0 };

    if (!dr_scan(text, "^%x:%x:%x.%x", part)) {
        if (!dr_scan(text, "^%x:%x:%x]", part))
            return false;
        part[3] = (struct dr_span){ "0", 1 };
    }
    for (int i = 0; i < 4; i++)
        if (!dr_span_hex(part[i], &value[i]))
            return false;
    if (value[0] > 0xffff || value[1] > 0xff || value[2] > 31 || value[3] > 7)
        return false;
    (void)snprintf(bdf, DR_BDF_MAX, "%04x:%02x:%02x.%x", (unsigned)value[0] & 0xffff,
            (unsigned)value[1] & 0xff, (unsigned)value[2] & 31, (unsigned)value[3] & 7);
    return true;
}

/* Lines that name a GPU by its address: the first or the second capture. The needle is
 * looked for first: cheap. */
static const struct gpu_line {
    const char *needle, *text;
} gpu_lines[] = { { "amdgpu ", "amdgpu %b:" }, { "nvidia ", "nvidia %b:" },
    { "nouveau ", "nouveau %b:" }, { "radeon ", "radeon %b:" },
    { "device", "device %d [%b]" }, { "PCI Bus", "PCI Bus: %b" },
    { "BDF: ", "BDF: %b" }, { "HIP device", "HIP device %d %b" },
    { " AMD ", "%b AMD " }, { " NVIDIA ", "%b NVIDIA " }, { " Radeon", "%b Radeon" },
    { " Instinct", "%b Instinct" }, { " Tesla", "%b Tesla" },
    { " GeForce", "%b GeForce" }, { "NVRM: GPU at", "NVRM: GPU at PCI:%b" } };

static void look_for_gpu(struct doctor *d, uint32_t i)
{
    const char *text = d->lines[i].text;
    struct dr_span found[DR_CAPTURES_MAX] = { { "", 0 } };
    char bdf[DR_BDF_MAX];
    uint64_t id;

    for (size_t k = 0; k < sizeof(gpu_lines) / sizeof(*gpu_lines); k++)
        if (dr_has(text, gpu_lines[k].needle) &&
                dr_scan(text, gpu_lines[k].text, found) &&
                (dr_span_bdf(found[0], bdf) || dr_span_bdf(found[1], bdf))) {
            see_gpu(d, i, bdf);
            return;
        }
    if (dr_scan(text, "busId %x", found) && dr_span_hex(found[0], &id) &&
            id < UINT64_C(1) << 36) {
        (void)snprintf(bdf, sizeof(bdf), "%04x:%02x:%02x.%x",
                (unsigned)(id >> 20 & 0xffff), (unsigned)(id >> 12 & 0xff),
                (unsigned)(id >> 4 & 0x1f), (unsigned)(id & 7));
        see_gpu(d, i, bdf);
    } else if (dr_scan(text, "device %d [%x:", found) &&
            long_address(found[1].at, bdf)) {
        see_gpu(d, i, bdf);
    } else if (dr_has(text, "0000:") && dr_scan(text, "%<%x:%x:%x.%x%>", found) &&
            found[0].length == 8 && long_address(found[0].at, bdf)) {
        see_gpu(d, i, bdf);
    }
}

/* Numbers of GPUs in rows and lists, and the vendor's name wherever it shows. */
static void count_rows(struct doctor *d, uint32_t i)
{
    static const char *const amd[] = { "amdgpu", "ROCm", "rocm-smi", "AMD Instinct",
        "AMD Radeon", "Radeon RX", "RCCL", "hipDevice" };
    static const char *const nvidia[] = { "NVIDIA", "nvidia-smi", "NVRM" };
    struct dr_kernel *k = d->kernel;
    const char *text = d->lines[i].text;
    struct dr_span n[2];
    uint64_t number;

    if ((dr_scan(text, "^GPU%d ", n) || dr_scan(text, "^ GPU%d ", n) ||
                dr_scan(text, "^GPU[%d]", n) ||
                dr_scan(text, "^GPU %d: %*(UUID: ", n)) &&
            dr_span_u64(n[0], &number) && number < 128 && number >= k->most_gpus)
        k->most_gpus = (uint32_t)number + 1;
    if (dr_has(text, "D\\D ")) /* the heading of p2pBandwidthLatencyTest's matrices */
        for (number = k->most_gpus;
                number < 128 && dr_has(text, dr_printf(d, " %u", (unsigned)number));
                number++)
            k->most_gpus = (uint32_t)number + 1;
    for (size_t a = 0; k->amd_line == DR_NONE && a < sizeof(amd) / sizeof(*amd); a++)
        if (dr_has(text, amd[a]))
            k->amd_line = i;
    for (size_t a = 0;
            k->nvidia_line == DR_NONE && a < sizeof(nvidia) / sizeof(*nvidia); a++)
        if (dr_has(text, nvidia[a]))
            k->nvidia_line = i;
}

void dr_read_platform(struct doctor *d)
{
    d->kernel = dr_alloc(d, sizeof(*d->kernel));
    d->kernel->amd_line = d->kernel->nvidia_line = DR_NONE;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (d->lines[i].flags & DR_COMMAND)
            continue;
        look_for_gpu(d, i);
        count_rows(d, i);
    }
    dr_read_kernel_log(d);
    dr_read_domains(d);
    dr_read_windows(d);
    dr_read_slots(d);
    dr_read_config(d);
    dr_read_probe_records(d);
    dr_read_acs_registers(d);
    dr_read_slot_links(d);
}

/* ---- questions ---- */

uint32_t dr_looked_at(const struct doctor *d)
{
    return d->num_machines < DR_MACHINES_LOOKED_AT ? d->num_machines
                                                   : DR_MACHINES_LOOKED_AT;
}

const struct dr_running *dr_running(const struct doctor *d, uint32_t machine)
{
    static const struct dr_running nothing = { NULL, NULL, DR_NONE, DR_NONE };

    return machine < DR_MACHINES_LOOKED_AT ? &d->kernel->running[machine] : &nothing;
}

bool dr_is_integrated(const struct dr_pci_device *device)
{
    static const int ids[] = { 0x1309, 0x1506, 0x150e, 0x15bf, 0x15c8, 0x15d8, 0x15dd,
        0x15e7, 0x1586, 0x1435, 0x163f, 0x1636, 0x1638, 0x164c, 0x164d, 0x164e, 0x164f,
        0x1681, 0x13c0, 0x1900, 0x1901, 0x1114, 0x1902 };
    static const char *const names[] = { "Raphael", "Granite Ridge", "Cezanne",
        "Renoir", "Lucienne", "Barcelo", "Rembrandt", "Phoenix", "HawkPoint",
        "Hawk Point", "Raven Ridge", "Picasso", "Mendocino", "VanGogh", "Strix",
        "Krackan" };

    if (device->vendor != 0x1002 &&
            !(device->vendor == -1 && dr_has(device->name, "AMD")))
        return false;
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
        if (device->device == ids[i])
            return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (dr_has(device->name, names[i]))
            return true;
    return false;
}

/* `lspci -t` prints no class: there a card is known by what it is sold as. */
static bool is_card_by_name(const struct dr_pci_device *device)
{
    static const char *const names[] = { "[GeForce", "[RTX", "[Radeon", "[Instinct",
        "[Tesla", "[Quadro", "[NVIDIA ", "[A100", "[H100", "[H200", "[L40", "[TITAN" };

    if (device->class != -1 || dr_has_any_case(device->name, "audio"))
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (dr_has(device->name, names[i]))
            return true;
    return false;
}

uint32_t dr_cards(const struct doctor *d, uint32_t machine, uint32_t *out,
        uint32_t room)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->pci->num_devices && count < room; i++) {
        const struct dr_pci_device *device = &d->pci->devices[i];

        if (device->machine == machine &&
                (dr_is_gpu(device) || is_card_by_name(device)) &&
                !dr_is_integrated(device))
            out[count++] = i;
    }
    return count;
}

uint32_t dr_count_gpus(const struct doctor *d, uint32_t machine)
{
    const struct dr_kernel *k = d->kernel;
    uint32_t cards[CARDS_MAX], count = dr_cards(d, machine, cards, CARDS_MAX);

    for (uint32_t i = 0; i < k->num_seen; i++) {
        const uint32_t index = dr_pci_find(d, machine, k->seen[i].bdf);

        count += k->seen[i].machine == machine &&
                (index == DR_NONE || !dr_is_gpu(&d->pci->devices[index]));
    }
    return count > k->most_gpus ? count : k->most_gpus;
}

bool dr_is_gpu_address(const struct doctor *d, uint32_t machine, const char *bdf)
{
    const struct dr_kernel *k = d->kernel;
    const uint32_t index = dr_pci_find(d, machine, bdf);

    if (index != DR_NONE && dr_is_gpu(&d->pci->devices[index]))
        return true;
    for (uint32_t i = 0; i < k->num_seen; i++)
        if (k->seen[i].machine == machine && strcmp(k->seen[i].bdf, bdf) == 0)
            return true;
    return false;
}
