/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What VFIO says of a GPU that waits for a guest: capability 5, whether the path above it
 * completes AtomicOps. A device has to be opened for that, which resets it, as the start
 * of its guest would: so it is only done when the user asks for a guest (--vm), only to a
 * device that no guest has, and only if its first reset is its own (FLR). Without one the
 * kernel resets the whole slot or bus, and some cards do not come back from that.
 */
#include "deadline.h"
#include "gather.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <string.h>
#include <sys/ioctl.h>

/* VFIO_DEVICE_INFO_CAP_PCI_ATOMIC_COMP; newer than some headers. */
#define CAP_ATOMIC_COMP 5
#define INFO_BYTES      4096u
#define DEADLINE_MS     10000

struct atomic_cap {
    struct vfio_info_cap_header header;
    uint32_t flags; /* 32, 64 and 128 bit */
};

/* The capability's flags; false if the kernel has none for this device. */
static bool find_flags(const unsigned char *info, size_t bytes, uint32_t *flags)
{
    struct vfio_device_info head;
    struct atomic_cap cap;
    uint32_t at = 0;

    memcpy(&head, info, sizeof(head));
    if (!(head.flags & VFIO_DEVICE_FLAGS_CAPS))
        return false;
    memcpy(&at, info + offsetof(struct vfio_device_info, cap_offset), sizeof(at));
    for (int i = 0; i < 64 && at != 0 && at + sizeof(cap) <= bytes; i++) {
        memcpy(&cap, info + at, sizeof(cap));
        if (cap.header.id == CAP_ATOMIC_COMP) {
            *flags = cap.flags;
            return true;
        }
        at = cap.header.next;
    }
    return false;
}

struct question {
    const char *bdf, *group;
};

/* An answer, or why there is none behind a '!'. */
static void write_answer(FILE *out, const char *bdf, int device)
{
    _Alignas(struct vfio_device_info) unsigned char info[INFO_BYTES] = { 0 };
    struct vfio_device_info *head = (struct vfio_device_info *)(void *)info;
    uint32_t flags = 0;

    head->argsz = sizeof(info);
    if (ioctl(device, VFIO_DEVICE_GET_INFO, info) != 0)
        fprintf(out, "!%s\n", strerror(errno));
    /* Without the capability the kernel is too old to say, or there is no completer. */
    else if (!find_flags(info, sizeof(info), &flags))
        fprintf(out, "!the kernel says nothing of AtomicOps\n");
    else
        fprintf(out, "vfio %s atomics:%s%s%s\n", bdf, flags & 1 ? " 32" : "",
                flags & 2 ? " 64" : "", flags & 4 ? " 128" : "");
}

/* In a child: whatever it opens is closed when it ends. */
static void ask_group(FILE *out, const void *about)
{
    const struct question *q = about;
    struct vfio_group_status status = { .argsz = sizeof(status) };
    char path[64];
    int container, fd, device;

    snprintf(path, sizeof(path), "/dev/vfio/%s", q->group);
    container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
    fd = container < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fprintf(out, "!%s\n", errno == EBUSY ? "a guest has it" : strerror(errno));
    else if (ioctl(fd, VFIO_GROUP_GET_STATUS, &status) != 0 ||
            !(status.flags & VFIO_GROUP_FLAGS_VIABLE))
        fprintf(out, "!not every device of its IOMMU group is given to VFIO\n");
    else if (ioctl(fd, VFIO_GROUP_SET_CONTAINER, &container) != 0 ||
            ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0 ||
            (device = ioctl(fd, VFIO_GROUP_GET_DEVICE_FD, q->bdf)) < 0)
        fprintf(out, "!%s\n", strerror(errno));
    else
        write_answer(out, q->bdf, device);
}

static void ask(struct dr_gather *g, const struct question *q)
{
    const char *what = dr_printf(g->d, "VFIO of %s", q->bdf);
    bool in_time;
    char *text = dr_ask_in_child(g->d, DEADLINE_MS, ask_group, q, &in_time);

    if (!in_time)
        doctor_unread(g->d, what, "it did not answer within %d s", DEADLINE_MS / 1000);
    else if (text[0] == '!')
        doctor_unread(g->d, what, "%.*s", (int)strcspn(text + 1, "\n"), text + 1);
    else
        fputs(text, g->out);
}

const char *dr_why_not_vfio(bool for_a_guest, const char *reset_method)
{
    if (!for_a_guest)
        return "asking it resets the card: it is done with --vm ID only";
    if (!dr_scan(reset_method, "^flr", NULL) ||
            (reset_method[3] != 0 && reset_method[3] != ' '))
        return "not asked: the kernel shows no reset of its own for it "
               "(reset_method does not begin with flr), so its whole slot would be "
               "reset";
    return NULL;
}

void dr_gather_vfio(struct dr_gather *g)
{
    for (uint32_t i = 0; dr_gather_live(g) && i < g->num_gpus; i++) {
        const char *bdf = g->gpus[i].bdf,
                   *folder = dr_printf(g->d, "/sys/bus/pci/devices/%s", bdf);
        const struct question q = { bdf,
            dr_link_of(g, dr_printf(g->d, "%s/iommu_group", folder)) };
        const char *why;

        if (strcmp(g->gpus[i].driver, "vfio-pci") != 0 || q.group[0] == 0)
            continue;
        why = dr_why_not_vfio(g->captures->for_a_guest,
                dr_word_of(g, dr_printf(g->d, "%s/reset_method", folder)));
        if (why != NULL)
            doctor_unread(g->d, dr_printf(g->d, "VFIO of %s", bdf), "%s", why);
        else
            ask(g, &q);
    }
}
