/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process may reach and is refused: device nodes, shared memory, NUMA calls,
 * launches of kernels that declare a hostcall buffer; and the images of libraries that
 * hold such kernels.
 */
#ifndef MOTET_DOCTOR_ACCESS_H
#define MOTET_DOCTOR_ACCESS_H

#include "facts.h"

enum dr_access_what {
    DR_SHM_SPACE,    /* no room for a segment                                */
    DR_SHM_REGISTER, /* the segment is there, the GPU's runtime refuses it   */
    DR_NODE_ABSENT,  /* ENOENT, EACCES, EPERM, EINVAL of opening a node      */
    DR_NODE_DENIED,
    DR_NODE_FORBIDDEN,
    DR_NODE_INVALID,
    DR_NUMA_BLOCKED,
    DR_NOT_SUPPORTED, /* CUDA's 801 in a communicator's init                  */
    DR_VGPU,          /* a name or a mode of a time-sliced profile            */
    DR_NUM_ACCESS
};

struct dr_access_event {
    enum dr_access_what what;
    const char *name; /* "/dev/kfd", "/dev/shm/nccl-…", "mbind", a profile    */
    uint64_t bytes;   /* of a segment, 0                                      */
    uint32_t line, line_before;
};

/** A launch that the runtime refused. */
struct dr_refusal {
    const char *kernel; /* NULL: not in the text                             */
    int64_t process;    /* -1: not in the text                               */
    const char *device; /* "device 1 (0000:0b:00.0)", "" if not in the text  */
    uint32_t line, line_kernel;
    bool by_library; /* a WARN of the collective library, not of the runtime */
};

/** Device code of a library for one target. */
struct dr_image {
    bool unreadable;    /* compressed, packed away, or elsewhere            */
    bool collective;    /* of a collective library                          */
    const char *path;   /* as the text names it, "" if it does not            */
    const char *target; /* "gfx1100", "" if not in the text                   */
    const char *names;  /* of kernels that declare a hostcall, ", " between   */
    uint64_t kernels, declaring;
    uint32_t line;
};

struct dr_access {
    struct dr_access_event *events;
    struct dr_refusal *refusals;
    struct dr_image *images;
    uint32_t num_events, num_refusals, num_images, room_events, room_refusals,
            room_images;
    uint32_t counts[DR_NUM_ACCESS]; /* events of a kind                          */
    uint32_t asked_hostcall; /* a line that looks for hostcall, DR_NONE          */
    const char *targets;     /* of the machine's GPUs: " gfx1100 gfx1201 "       */
    uint32_t targets_line;   /* of the first, DR_NONE                            */
    uint32_t rocm;           /* a line of a ROCm tool that found a driver, DR_NONE */
};

/* ---- among the readers ---- */

void dr_read_launches(struct doctor *d);
void dr_read_images(struct doctor *d);

/** Whether one of the machine's GPUs runs code for @p target, "gfx1100" or "gfx11-generic";
 *  DR_UNSURE if the text names none. */
enum dr_answer dr_has_target(const struct doctor *d, const char *target);
/** How well the GPU @p gpu runs code for @p target, 0 not at all: see image_fits(). */
int dr_target_fits(const char *target, const char *gpu);

#endif
