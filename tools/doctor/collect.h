/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at this machine. What is found is written down in the form in which people
 * paste it, so that one set of readers serves both, and so that a collected archive can
 * be judged elsewhere. Nothing is run, nothing is launched on a GPU, nothing is changed;
 * only `for_a_guest` lets VFIO open a GPU that waits for a guest, which resets it.
 */
#ifndef MOTET_DOCTOR_COLLECT_H
#define MOTET_DOCTOR_COLLECT_H

#include "doctor.h"

/** What would be one file of a person who collects by hand. */
struct dr_capture {
    const char *name; /* "pci.txt"; also the name of its source */
    const char *text;
    size_t bytes;
};

struct dr_captures {
    struct dr_capture *list;
    uint32_t num, room;
    const char *host; /* the machine's name as it stands in the prompts */
    bool for_a_guest; /* before collecting: VFIO may be asked (collect_vfio.c) */
    bool only_gpus;   /* before collecting: only which GPUs there are, and their way to
                         host memory; asks no runtime */
};

/**
 * Look at the machine whose files lie under @p root: "" is this one; below any other
 * folder only files are looked at. Memory is the doctor's; what could not be read is said
 * in its `unread`, with the reason.
 */
void dr_collect(struct doctor *d, const char *root, struct dr_captures *out);

/** Give the captures to the readers, as sources that are known. */
void dr_add_captures(struct doctor *d, const struct dr_captures *captures);

/** Append a capture whose text is @p text. */
void dr_capture(struct doctor *d, struct dr_captures *captures, const char *name,
        const char *text, size_t bytes);

/** This machine's name, without its domain. */
const char *dr_host_name(struct doctor *d, const char *root);

#endif
