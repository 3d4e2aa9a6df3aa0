/* SPDX-License-Identifier: Apache-2.0 */
/* PCI devices, their configuration space, slots and KFD's topology, from sysfs. */
#include "gather.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PCI "/sys/bus/pci/devices"
#define KFD "/sys/class/kfd/kfd/topology/nodes"

static const char *const attributes[] = { "vendor", "device", "subsystem_vendor",
    "subsystem_device", "class", "numa_node", "current_link_width",
    "current_link_speed", "max_link_width", "max_link_speed", "secondary_bus_number",
    "subordinate_bus_number", "resource", "boot_vga", "label", "sriov_numvfs",
    "mem_info_vram_total", "mem_info_vis_vram_total", "iommu_group/type" };
static const char *const links[] = { "driver", "iommu_group", "physfn" };

static const char *path_of(struct dr_gather *g, const char *folder, const char *name)
{
    return dr_printf(g->d, "%s/%s", folder, name);
}

/* "/sys/devices/pci0000:00/0000:00:03.1/…" of a device: where its link points to. */
static const char *real_path(struct dr_gather *g, const char *device)
{
    char target[PATH_MAX];
    const ssize_t length = readlink(dr_under(g, device), target, sizeof(target) - 1);
    const char *at;

    if (length <= 0)
        return device;
    target[length] = 0;
    at = strstr(target, "devices/");
    return at == NULL ? device : dr_printf(g->d, "/sys/%s", at);
}

static unsigned hex_of(struct dr_gather *g, const char *device, const char *name)
{
    return (unsigned)strtoul(dr_word_of(g, path_of(g, device, name)), NULL, 16);
}

static bool is_gpu_class(unsigned class)
{
    return class >> 16 == 0x03 || class >> 16 == 0x12 || class >> 8 == 0x0b40;
}

static void note_gpu(struct dr_gather *g, const char *name, const char *device)
{
    const unsigned vendor = hex_of(g, device, "vendor");
    struct dr_gathered_gpu *gpu;

    if (!is_gpu_class(hex_of(g, device, "class")) ||
            (vendor != 0x1002 && vendor != 0x10de && vendor != 0x1d94 &&
                    vendor != 0x1ed5) ||
            strlen(name) >= DR_BDF_MAX)
        return;
    gpu = DR_PUSH(g->d, g->gpus, g->num_gpus, g->room_gpus);
    snprintf(gpu->bdf, sizeof(gpu->bdf), "%s", name);
    gpu->vendor = vendor;
    gpu->driver = dr_link_of(g, path_of(g, device, "driver"));
}

void dr_gather_pci(struct dr_gather *g)
{
    const struct dr_names names = dr_names_of(g, PCI);

    if (names.num == 0) {
        doctor_unread(g->d, PCI, "no PCI device is shown here");
        return;
    }
    dr_prompt(g, "grep -r . /sys/devices/pci*");
    for (uint32_t i = 0; i < names.num; i++) {
        const char *device = path_of(g, PCI, names.name[i]);
        const char *shown = real_path(g, device);

        for (size_t k = 0; k < sizeof(attributes) / sizeof(*attributes); k++)
            (void)dr_write_file_as(g, path_of(g, device, attributes[k]),
                    path_of(g, shown, attributes[k]));
        for (size_t k = 0; k < sizeof(links) / sizeof(*links); k++)
            (void)dr_write_link(g, path_of(g, device, links[k]),
                    path_of(g, shown, links[k]));
        note_gpu(g, names.name[i], device);
    }
}

/* ---- configuration space ---- */

#define ROW            16u
#define EXTENDED       256u
#define CAP_SERIAL     0x0003u
#define CAPABILITY_MAX 64

static unsigned word_at(const unsigned char *c, size_t at)
{
    return (unsigned)c[at] | (unsigned)c[at + 1] << 8;
}

/* A card's serial number says who somebody is, and nothing about what is wrong. */
static void clear_serial(unsigned char *c, size_t bytes)
{
    size_t at = EXTENDED;

    for (int i = 0; i < CAPABILITY_MAX && at >= EXTENDED && at + 12 <= bytes; i++) {
        if (word_at(c, at) == CAP_SERIAL)
            memset(c + at + 4, 0, 8);
        at = word_at(c, at + 2) >> 4 & ~3u;
    }
}

static bool all_zero(const unsigned char *c, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (c[i] != 0)
            return false;
    return true;
}

/* Gives how many bytes of it are shown. */
static size_t write_config(struct dr_gather *g, const char *name, const char *device)
{
    size_t bytes = 0, end;
    unsigned char *c =
            (unsigned char *)dr_slurp(g, path_of(g, device, "config"), 4096, &bytes);

    if (c == NULL || bytes < 64)
        return 0;
    clear_serial(c, bytes);
    fprintf(g->out, "%s %04x: %04x:%04x (rev %02x)\n", name, word_at(c, 10),
            word_at(c, 0), word_at(c, 2), c[8]);
    end = bytes & ~(size_t)(ROW - 1);
    /* The zeros at the end of the extended space say nothing, but its first row does. */
    while (end > EXTENDED + ROW && all_zero(c + end - ROW, ROW))
        end -= ROW;
    for (size_t at = 0; at < end; at += ROW) {
        fprintf(g->out, "%02zx:", at);
        for (size_t i = 0; i < ROW; i++)
            fprintf(g->out, " %02x", c[at + i]);
        fputc('\n', g->out);
    }
    fputc('\n', g->out);
    return bytes;
}

/* What a path between GPUs and network cards may lead over. */
static bool worth_its_space(unsigned class)
{
    return is_gpu_class(class) || class >> 8 == 0x0604 || class >> 16 == 0x02;
}

void dr_gather_config_space(struct dr_gather *g)
{
    const struct dr_names names = dr_names_of(g, PCI);
    bool short_one = false;

    for (uint32_t i = 0; i < names.num; i++) {
        const char *device = path_of(g, PCI, names.name[i]);

        if (!worth_its_space(hex_of(g, device, "class")))
            continue;
        if (ftell(g->out) <= 0)
            dr_prompt(g, "lspci -Dnxxxx");
        if (write_config(g, names.name[i], device) == 64)
            short_one = true;
    }
    if (short_one && g->num_gpus > 0)
        doctor_unread(g->d, "PCI configuration space",
                "only its first 64 bytes are shown without root: AtomicOps and ACS "
                "bits are not in them; run it once as root");
}

/* ---- slots ---- */

void dr_gather_slots(struct dr_gather *g)
{
    static const char slots[] = "/sys/bus/pci/slots",
                      table[] = "/sys/firmware/dmi/tables/DMI";
    const struct dr_names names = dr_names_of(g, slots);
    size_t bytes = 0;
    const char *dmi = dr_slurp(g, table, DR_FILE_MAX, &bytes);

    if (dmi == NULL && errno != ENOENT && g->num_gpus > 0)
        doctor_unread(g->d, "SMBIOS slot names", "%s: %s; it needs root", table,
                strerror(errno));
    if (names.num > 0)
        dr_prompt(g, "grep . %s/*/*", slots);
    for (uint32_t i = 0; i < names.num; i++)
        for (size_t k = 0; k < 3; k++)
            (void)dr_write_file(g,
                    dr_printf(g->d, "%s/%s/%s", slots, names.name[i],
                            (const char *const[]){ "address", "max_bus_speed",
                                    "cur_bus_speed" }[k]));
    if (dmi != NULL) {
        dr_prompt(g, "dmidecode -t 9");
        dr_write_smbios_slots(g->out, (const unsigned char *)dmi, bytes);
    }
}

/* ---- KFD ---- */

static void write_links(struct dr_gather *g, const char *node, const char *kind)
{
    const char *folder = path_of(g, node, kind);
    const struct dr_names names = dr_names_of(g, folder);

    for (uint32_t i = 0; i < names.num; i++)
        (void)dr_write_file(g,
                dr_printf(g->d, "%s/%s/properties", folder, names.name[i]));
}

/* Who holds the GPUs now: the process, and the unit that would have to be stopped. */
static void write_users(struct dr_gather *g)
{
    const struct dr_names pids = dr_names_of(g, "/sys/class/kfd/kfd/proc");

    if (pids.num == 0)
        return;
    dr_prompt(g, "ps -o pid,unit,comm");
    fputs("    PID UNIT COMMAND\n", g->out);
    for (uint32_t i = 0; i < pids.num; i++) {
        const char *pid = pids.name[i];
        const char *group = dr_word_of(g, dr_printf(g->d, "/proc/%s/cgroup", pid));
        const char *unit = strrchr(group, '/');
        const char *name = dr_word_of(g, dr_printf(g->d, "/proc/%s/comm", pid));

        fprintf(g->out, "%7s %s %s\n", pid,
                unit != NULL && unit[1] != 0 ? unit + 1 : "-", name[0] ? name : "-");
    }
}

void dr_gather_kfd(struct dr_gather *g)
{
    const struct dr_names names = dr_names_of(g, KFD);

    if (names.num > 0)
        dr_prompt(g, "grep -r . %s", KFD);
    for (uint32_t i = 0; i < names.num; i++) {
        const char *node = path_of(g, KFD, names.name[i]);

        (void)dr_write_file(g, path_of(g, node, "gpu_id"));
        (void)dr_write_file(g, path_of(g, node, "name"));
        (void)dr_write_file(g, path_of(g, node, "properties"));
        write_links(g, node, "io_links");
        write_links(g, node, "p2p_links");
    }
    write_users(g);
}
