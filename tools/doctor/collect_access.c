/* SPDX-License-Identifier: Apache-2.0 */
/* Device nodes and what keeps a process from opening them; limits, memory, containers. */
#include "deadline.h"
#include "gather.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define GROUPS_MAX 256
#define OPEN_MS    5000

static void write_id(struct dr_gather *g)
{
    gid_t groups[GROUPS_MAX];
    const int count = getgroups(GROUPS_MAX, groups);

    dr_prompt(g, "id");
    fprintf(g->out, "uid=%u gid=%u groups=%u", (unsigned)geteuid(), (unsigned)getegid(),
            (unsigned)getegid());
    for (int i = 0; i < count; i++)
        if (groups[i] != getegid())
            fprintf(g->out, ",%u", (unsigned)groups[i]);
    fputc('\n', g->out);
}

/* In a child: a driver that hangs may never let go of whoever opens its node. */
static void open_it(FILE *out, const void *about)
{
    const int fd = open(about, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    fprintf(out, "%d", fd < 0 ? errno : 0);
}

/* Open for reading and writing, as a runtime does, and close at once. */
static void try_to_open(struct dr_gather *g, const char *path)
{
    bool in_time;
    const char *answer =
            dr_ask_in_child(g->d, OPEN_MS, open_it, dr_under(g, path), &in_time);
    const int failed = (int)strtol(answer, NULL, 10);

    if (!in_time)
        doctor_unread(g->d, path, "opening it did not return within %d s",
                OPEN_MS / 1000);
    if (!in_time || failed == 0)
        return;
    /* Reading a good /dev/kfd ends with EINVAL too: say that opening it did. */
    if (strcmp(path, "/dev/kfd") == 0) {
        dr_prompt(g, ": <>%s", path);
        fprintf(g->out, "Unable to open %s read-write: %s\n", path, strerror(failed));
        return;
    }
    dr_prompt(g, "cat %s", path);
    fprintf(g->out, "cat: %s: %s\n", path, strerror(failed));
}

/* Nodes of a folder whose names begin with @p stem; those of @p driver, unless it is
 * NULL, are opened. */
static void write_nodes(struct dr_gather *g, const char *folder, const char *stem,
        const char *driver)
{
    const struct dr_names names = dr_names_of(g, folder);
    bool some = false;

    for (uint32_t i = 0; i < names.num; i++) {
        if (!dr_begins(names.name[i], stem))
            continue;
        if (!some)
            dr_prompt(g, "ls -ln %s/%s*", folder, stem);
        some = true;
        dr_write_ls(g, dr_printf(g->d, "%s/%s", folder, names.name[i]));
    }
    for (uint32_t i = 0; driver != NULL && i < names.num; i++)
        if (dr_begins(names.name[i], stem) &&
                strcmp(dr_link_of(g,
                               dr_printf(g->d, "/sys/class/drm/%s/device/driver",
                                       names.name[i])),
                        driver) == 0)
            try_to_open(g, dr_printf(g->d, "%s/%s", folder, names.name[i]));
}

static void write_amd_nodes(struct dr_gather *g)
{
    /* Without a GPU that the driver has, a missing node is nothing to speak of. */
    if (!dr_is_there(g, "/sys/class/kfd/kfd") && !dr_gathered(g, 0x1002, "amdgpu"))
        return;
    dr_prompt(g, "ls -ln /dev/kfd");
    dr_write_ls(g, "/dev/kfd");
    if (dr_gather_live(g) && dr_is_there(g, "/dev/kfd"))
        try_to_open(g, "/dev/kfd");
    write_nodes(g, "/dev/dri", "renderD", dr_gather_live(g) ? "amdgpu" : NULL);
}

static void write_nvidia_nodes(struct dr_gather *g)
{
    /* Opening a GPU's own node wakes it; the control node answers the same question. */
    write_nodes(g, "/dev", "nvidia", NULL);
    if (dr_gather_live(g) && dr_is_there(g, "/dev/nvidiactl"))
        try_to_open(g, "/dev/nvidiactl");
}

static const char *human(struct dr_gather *g, double bytes)
{
    static const char units[] = " KMGTP";
    size_t unit = 0;

    while (bytes >= 1024 && units[unit + 1] != 0) {
        bytes /= 1024;
        unit++;
    }
    if (unit == 0)
        return dr_printf(g->d, "%.0f", bytes);
    return dr_printf(g->d, bytes < 10 ? "%.1f%c" : "%.0f%c", bytes, units[unit]);
}

static void write_shared_memory(struct dr_gather *g)
{
    struct statvfs fs;
    double size, left, used;

    if (statvfs("/dev/shm", &fs) != 0)
        return;
    size = (double)fs.f_blocks * (double)fs.f_frsize;
    left = (double)fs.f_bavail * (double)fs.f_frsize;
    used = size - (double)fs.f_bfree * (double)fs.f_frsize;
    dr_prompt(g, "df -h /dev/shm");
    fprintf(g->out,
            "Filesystem Size Used Avail Use%% Mounted on\nshm %s %s %s %.0f%% "
            "/dev/shm\n",
            human(g, size), human(g, used), human(g, left),
            size > 0 ? 100 * used / size : 0);
}

static void write_limit(struct dr_gather *g, const char *command, int which,
        rlim_t unit)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        return;
    dr_prompt(g, "%s", command);
    if (limit.rlim_cur == RLIM_INFINITY)
        fputs("unlimited\n", g->out);
    else
        fprintf(g->out, "%llu\n", (unsigned long long)(limit.rlim_cur / unit));
}

static void write_container(struct dr_gather *g)
{
    static const char *const spaces[] = { "cgroup", "ipc", "mnt", "net", "pid",
        "user" };
    const char *kind = dr_is_there(g, "/.dockerenv") ? "docker"
            : dr_is_there(g, "/run/.containerenv")
            ? "podman"
            : dr_word_of(g, "/run/systemd/container");

    if (kind[0] != 0) {
        dr_prompt(g, "systemd-detect-virt --container");
        fprintf(g->out, "%s\n", kind);
    }
    (void)dr_write_cat(g, "/proc/self/cgroup");
    (void)dr_write_cat(g, "/proc/self/uid_map");
    for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++) {
        const char *path = dr_printf(g->d, "/proc/self/ns/%s", spaces[i]);

        (void)dr_write_link(g, path, path);
    }
}

void dr_gather_access(struct dr_gather *g)
{
    if (dr_gather_live(g))
        write_id(g);
    write_amd_nodes(g);
    write_nvidia_nodes(g);
    if (dr_is_there(g, "/dev/infiniband"))
        write_nodes(g, "/dev/infiniband", "uverbs", NULL);
    write_container(g);
    if (!dr_gather_live(g))
        return;
    write_shared_memory(g);
    write_limit(g, "ulimit -l", RLIMIT_MEMLOCK, 1024);
    write_limit(g, "ulimit -n", RLIMIT_NOFILE, 1);
}
