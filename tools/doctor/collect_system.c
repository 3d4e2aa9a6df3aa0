/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as a whole: kernel, processor, board, memory nodes, kernel log. */
#include "gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <unistd.h>

#ifdef MOTET_DOCTOR_ZLIB
#include <zlib.h>
#endif

static void write_uname(struct dr_gather *g)
{
    static const char base[] = "/proc/sys/kernel";
    const char *release = dr_word_of(g, dr_printf(g->d, "%s/osrelease", base));
    const char *version = dr_word_of(g, dr_printf(g->d, "%s/version", base));

    if (release[0] == 0)
        return;
    dr_prompt(g, "uname -a");
    fprintf(g->out, "Linux %s %s %s %s GNU/Linux\n", g->host, release, version,
#ifdef __aarch64__
            "aarch64"
#else
            "x86_64"
#endif
    );
}

/* The first processor's model and flags, and how many sockets and memory nodes. */
static void write_processor(struct dr_gather *g)
{
    static const char *const wanted[] = { "vendor_id", "model name", "flags",
        "CPU implementer", "Features" };
    char *text = dr_slurp(g, "/proc/cpuinfo", DR_FILE_MAX, NULL), *save = NULL;
    bool seen[sizeof(wanted) / sizeof(*wanted)] = { false };
    uint64_t sockets = 0;

    if (text == NULL)
        return;
    dr_prompt(g, "cat /proc/cpuinfo");
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        const char *colon = strchr(line, ':');

        for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
            if (!seen[i] && dr_begins(line, wanted[i])) {
                seen[i] = true;
                fprintf(g->out, "%s\n", line);
            }
        if (dr_begins(line, "physical id") && colon != NULL &&
                strtoull(colon + 1, NULL, 10) + 1 > sockets)
            sockets = strtoull(colon + 1, NULL, 10) + 1;
    }
    if (sockets > 0)
        fprintf(g->out, "Socket(s): %llu\n", (unsigned long long)sockets);
}

static void write_memory_nodes(struct dr_gather *g)
{
    static const char base[] = "/sys/devices/system/node";
    const struct dr_names names = dr_names_of(g, base);

    for (uint32_t i = 0; i < names.num; i++) {
        if (!dr_scan(names.name[i], "^node%d%e", NULL))
            continue;
        (void)dr_write_file(g, dr_printf(g->d, "%s/%s/cpulist", base, names.name[i]));
        (void)dr_write_file(g, dr_printf(g->d, "%s/%s/distance", base, names.name[i]));
    }
}

static void write_board(struct dr_gather *g)
{
    static const char *const names[] = { "sys_vendor", "product_name", "board_vendor",
        "board_name", "board_version", "bios_vendor", "bios_version", "bios_date",
        "chassis_type" };

    dr_prompt(g, "grep . /sys/class/dmi/id/*");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        (void)dr_write_file(g, dr_printf(g->d, "/sys/class/dmi/id/%s", names[i]));
    (void)dr_write_file(g, "/sys/hypervisor/type");
}

static void write_iommu(struct dr_gather *g)
{
    static const char base[] = "/sys/kernel/iommu_groups";
    const struct dr_names names = dr_names_of(g, base);

    if (names.num > 0)
        dr_prompt(g, "grep . %s/*/type", base);
    for (uint32_t i = 0; i < names.num; i++)
        (void)dr_write_file(g, dr_printf(g->d, "%s/%s/type", base, names.name[i]));
}

/* ---- kernel configuration ---- */

static const char *const options[] = { "CONFIG_PCI_P2PDMA", "CONFIG_ZONE_DEVICE",
    "CONFIG_DMABUF", "CONFIG_DMA_SHARED_BUFFER", "CONFIG_HSA_AMD", "CONFIG_DRM_AMDGPU",
    "CONFIG_IOMMU", "CONFIG_AMD_IOMMU", "CONFIG_INTEL_IOMMU", "CONFIG_PCIEASPM",
    "CONFIG_PCI_REALLOC", "CONFIG_MEMORY_HOTPLUG", "CONFIG_MEMORY_HOTREMOVE",
    "CONFIG_SPARSEMEM_VMEMMAP", "CONFIG_64BIT", "CONFIG_PCI_MMCONFIG", "CONFIG_VFIO",
    "CONFIG_NUMA_BALANCING", "CONFIG_INFINIBAND", "CONFIG_HMM_MIRROR",
    "CONFIG_DEVICE_PRIVATE", "CONFIG_HUGETLB", "CONFIG_CGROUP_DEVICE" };

static bool wanted_option(const char *line)
{
    const char *at = strstr(line, "CONFIG_");

    for (size_t i = 0; at != NULL && i < sizeof(options) / sizeof(*options); i++)
        if (dr_begins(at, options[i]))
            return true;
    return false;
}

static void write_options(struct dr_gather *g, const char *path, char *text)
{
    char *save = NULL;

    dr_prompt(g, "%s %s", dr_has(path, ".gz") ? "zcat" : "cat", path);
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save))
        if (wanted_option(line))
            fprintf(g->out, "%s\n", line);
}

/* /proc/config.gz, inflated; NULL if it is not there or cannot be. */
static char *packed_options(struct dr_gather *g)
{
    size_t bytes = 0;
    char *packed = dr_slurp(g, "/proc/config.gz", DR_FILE_MAX, &bytes);

    if (packed == NULL)
        return NULL;
#ifdef MOTET_DOCTOR_ZLIB
    z_stream z = { .next_in = (unsigned char *)packed, .avail_in = (unsigned)bytes };
    char *text = dr_alloc(g->d, DR_FILE_MAX + 1);

    z.next_out = (unsigned char *)text;
    z.avail_out = DR_FILE_MAX;
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return NULL;
    (void)inflate(&z, Z_FINISH);
    (void)inflateEnd(&z);
    return text;
#else
    doctor_unread(g->d, "/proc/config.gz", "this build of motet has no zlib");
    return NULL;
#endif
}

static void write_configuration(struct dr_gather *g)
{
    const char *release = dr_word_of(g, "/proc/sys/kernel/osrelease");
    const char *const paths[] = { dr_printf(g->d, "/boot/config-%s", release),
        dr_printf(g->d, "/lib/modules/%s/config", release),
        dr_printf(g->d, "/usr/lib/modules/%s/config", release) };
    char *text = packed_options(g);

    if (text != NULL) {
        write_options(g, "/proc/config.gz", text);
        return;
    }
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        text = dr_slurp(g, paths[i], DR_FILE_MAX, NULL);
        if (text != NULL) {
            write_options(g, paths[i], text);
            return;
        }
        if (errno != ENOENT)
            doctor_unread(g->d, paths[i], "%s", strerror(errno));
    }
}

void dr_gather_system(struct dr_gather *g)
{
    write_uname(g);
    (void)dr_write_cat(g, "/etc/os-release");
    (void)dr_write_cat(g, "/proc/cmdline");
    (void)dr_write_cat(g, "/proc/sys/kernel/random/boot_id");
    write_processor(g);
    write_memory_nodes(g);
    (void)dr_write_file(g, "/proc/sys/kernel/numa_balancing");
    write_board(g);
    write_iommu(g);
    (void)dr_write_file(g, "/sys/module/amdgpu/version");
    (void)dr_write_file(g, "/sys/module/nvidia/version");
    write_configuration(g);
}

/* ---- kernel log ---- */

enum { READ_ALL = 3, SIZE_BUFFER = 10 };

/* "<6>[    0.0] text" of the kernel as dmesg prints it. */
static void write_log(struct dr_gather *g, const char *text, size_t bytes)
{
    const char *end = text + bytes;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *close =
                text[0] == '<' ? memchr(text, '>', (size_t)(end - text)) : NULL;

        if (close != NULL && close - text <= 4)
            text = close + 1;
        dr_text(g, text, (size_t)((stop != NULL ? stop : end) - text));
        text = stop != NULL ? stop + 1 : end;
    }
}

void dr_gather_kernel_log(struct dr_gather *g)
{
    const char *text;
    char *buf;
    size_t bytes = 0;
    int room, got;

    if (!dr_gather_live(g)) {
        text = dr_slurp(g, "/var/log/dmesg", DR_FILE_MAX, &bytes);
        if (text == NULL)
            return;
        dr_prompt(g, "dmesg");
        dr_text(g, text, bytes);
        return;
    }
    room = klogctl(SIZE_BUFFER, NULL, 0);
    if (room <= 0 || room > (16 << 20))
        room = 16 << 20;
    buf = dr_alloc(g->d, (size_t)room);
    got = klogctl(READ_ALL, buf, room);
    if (got < 0) {
        doctor_unread(g->d, "kernel log",
                "%s; it needs root or kernel.dmesg_restrict=0", strerror(errno));
        return;
    }
    dr_prompt(g, "dmesg");
    write_log(g, buf, (size_t)got);
}
