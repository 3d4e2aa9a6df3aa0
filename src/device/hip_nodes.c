/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel's amdgpu driver says, without its runtime: whether the device nodes can
 * be opened, and what KFD's topology knows of a GPU. amd-hosts.md §4.6 of the research is
 * the source of the topology's names and flags.
 */
#include "device/hip.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOPOLOGY "/sys/class/kfd/kfd/topology/nodes"
/* Nodes and links of a machine, and the bytes of one file of properties. */
#define NODES_MAX  256
#define FILE_BYTES 4096

/* Of a link: the GPU may send no 32-bit, no 64-bit AtomicOps over it. */
#define NO_ATOMICS (4u | 8u)

/* ---- names of architectures ---- */

void motet_hip_gfx_name(unsigned version, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "gfx%u%x%x", version / 10000, version / 100 % 100,
            version % 100);
}

bool motet_hip_gfx_parse(const char *text, unsigned *version_out)
{
    unsigned major, minor, step;
    int end = 0;

    /* sscanf takes blanks and signs in front of a number */
    if (text[strspn(text, "0123456789.")] != '\0' ||
            sscanf(text, "%2u.%2u.%2u%n", &major, &minor, &step, &end) != 3 ||
            text[end] != '\0')
        return false;
    *version_out = major * 10000 + minor * 100 + step;
    return true;
}

/* ---- topology ---- */

bool motet_hip_kfd_value(const char *text, const char *name, uint64_t *value_out)
{
    const size_t length = strlen(name);

    for (const char *line = text; line != NULL && *line != '\0';
            line = strchr(line, '\n'), line = line != NULL ? line + 1 : NULL) {
        char *end;
        uint64_t value;

        if (strncmp(line, name, length) != 0 || line[length] != ' ' ||
                line[length + 1] < '0' || line[length + 1] > '9')
            continue;
        errno = 0;
        value = strtoull(line + length + 1, &end, 10);
        if (errno != 0 || (*end != '\n' && *end != '\0'))
            return false;
        *value_out = value;
        return true;
    }
    return false;
}

/* The text of ROOT/TOPOLOGY/<node>/<rest>; false if it is not there or not ours to see. */
static bool read_node(const char *root, unsigned node, const char *rest, char *text)
{
    char path[512];
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "%.300s" TOPOLOGY "/%u/%s", root, node, rest);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bytes = read(fd, text, FILE_BYTES - 1);
    (void)close(fd); /* only read from */
    if (bytes <= 0)
        return false;
    text[bytes] = '\0';
    return true;
}

/* The low half of location_id is bus, device and function as in PCI's own numbering. Each
 * partition of a divided GPU has a node; the topmost bits number it. */
static bool is_at(const char *text, unsigned domain, unsigned place)
{
    uint64_t location, in = 0;

    (void)motet_hip_kfd_value(text, "domain", &in); /* old kernels have none: 0 */
    return motet_hip_kfd_value(text, "location_id", &location) &&
            (location & 0xffff) == place && in == domain;
}

static bool is_gpu(const char *text)
{
    uint64_t simds = 0;

    return motet_hip_kfd_value(text, "simd_count", &simds) && simds != 0;
}

/* Of the links that go from the GPU to a CPU: 1 with AtomicOps, 0 without, −1 unknown.
 * Those that come from the CPU say nothing of the path. */
static int read_atomics(const char *root, unsigned node)
{
    char text[FILE_BYTES], rest[64];
    uint64_t to, flags;

    for (unsigned link = 0; link < NODES_MAX; link++) {
        snprintf(rest, sizeof(rest), "io_links/%u/properties", link);
        if (!read_node(root, node, rest, text))
            break;
        if (!motet_hip_kfd_value(text, "node_to", &to) ||
                !motet_hip_kfd_value(text, "flags", &flags) || to >= NODES_MAX)
            continue;
        if (read_node(root, (unsigned)to, "properties", text) && !is_gpu(text))
            return (flags & NO_ATOMICS) == 0;
    }
    return -1;
}

static void read_at(const char *root, unsigned domain, unsigned place,
        motet_hip_kfd *out)
{
    char text[FILE_BYTES];
    uint64_t version;

    *out = (motet_hip_kfd){ .atomics = -1 };
    for (unsigned node = 0; node < NODES_MAX; node++) {
        /* Those that a container may not see fail, and others follow. */
        if (!read_node(root, node, "properties", text) || !is_gpu(text) ||
                !is_at(text, domain, place) ||
                !motet_hip_kfd_value(text, "gfx_target_version", &version))
            continue;
        out->known = true;
        out->gfx_version = (unsigned)version;
        out->atomics = read_atomics(root, node);
        return;
    }
}

void motet_hip_kfd_read(const char *root, const char *bus_id, motet_hip_kfd *out)
{
    unsigned domain, bus, device, function, place;

    *out = (motet_hip_kfd){ .atomics = -1 };
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return;
    place = bus << 8 | device << 3;
    read_at(root, domain, place | function, out);
    /* The runtime may call a partition by a function that the bus does not have. */
    if (!out->known && function != 0)
        read_at(root, domain, place, out);
}

/* ---- nodes ---- */

/* "render", or the number of a group that has no name here. */
static void group_name(gid_t gid, char *buf, size_t bytes)
{
    struct group group, *found = NULL;
    char space[1024];

    if (getgrgid_r(gid, &group, space, sizeof(space), &found) == 0 && found != NULL)
        snprintf(buf, bytes, "%.40s", group.gr_name);
    else
        snprintf(buf, bytes, "%u", (unsigned)gid);
}

/* USABLE, NO_DEVICE or BROKEN with the sentence. */
static motet_gpu_standing try_node(const char *path, char *buf, size_t bytes)
{
    struct stat st;
    char group[48];
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        (void)close(fd); /* nothing was written */
        return MOTET_GPU_USABLE;
    }
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) {
        snprintf(buf, bytes,
                "%s is not there: the kernel's amdgpu driver is not loaded, or the "
                "container was started without --device=/dev/kfd --device=/dev/dri",
                path);
        return MOTET_GPU_NO_DEVICE;
    }
    if (errno == EACCES && stat(path, &st) == 0) {
        group_name(st.st_gid, group, sizeof(group));
        snprintf(buf, bytes,
                "%s (mode %04o, group %s) may not be opened by user %u: add the user "
                "to "
                "that group, or start the container with --group-add %s",
                path, (unsigned)st.st_mode & 07777u, group, (unsigned)geteuid(), group);
    } else {
        snprintf(buf, bytes,
                "%s cannot be opened: %s: a container needs --device=/dev/kfd "
                "--device=/dev/dri",
                path, strerror(errno));
    }
    return MOTET_GPU_BROKEN;
}

motet_gpu_standing motet_hip_nodes(const char *root, char *buf, size_t bytes)
{
    motet_gpu_standing standing;
    char path[512];
    glob_t found = { .gl_pathc = 0 };

    snprintf(path, sizeof(path), "%.300s/dev/dxg", root);
    if (access(path, F_OK) == 0)
        return MOTET_GPU_USABLE; /* Windows' host has the driver, and no such nodes */
    snprintf(path, sizeof(path), "%.300s/dev/kfd", root);
    standing = try_node(path, buf, bytes);
    if (standing != MOTET_GPU_USABLE)
        return standing;
    snprintf(path, sizeof(path), "%.300s/dev/dri/renderD*", root);
    if (glob(path, 0, NULL, &found) != 0) {
        snprintf(buf, bytes,
                "there is no %s: the container was started without --device=/dev/dri",
                path);
        standing = MOTET_GPU_NO_DEVICE;
    }
    /* Other vendors' nodes may be closed to us: one that opens is enough. */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        standing = try_node(found.gl_pathv[i], buf, bytes);
        if (standing == MOTET_GPU_USABLE)
            break;
    }
    globfree(&found);
    return standing;
}
