/* SPDX-License-Identifier: Apache-2.0 */
/* What `motet doctor` does on the machine itself. */
#ifndef MOTET_TOOLS_DOCTOR_LIVE_H
#define MOTET_TOOLS_DOCTOR_LIVE_H

#include "collect.h"
#include "doctor.h"

/** Look at this machine and give what is found to the readers; @p for_a_guest: VFIO may
 *  open a GPU that waits for a guest. */
void doctor_live(struct doctor *d, bool for_a_guest);

/** Look only at which GPUs there are, and their way to the processor, and judge; for
 *  doctor_free(). Below MOTET_HOST_ROOT where that is set, which is for tests. */
struct doctor *doctor_live_gpus(void);

/** What there is, in a few lines: kernel, board, GPUs, network. */
void doctor_live_summary(const struct doctor *d, FILE *out);

/** Look at this machine and write an archive, "-" to standard output; the exit status. */
int doctor_live_collect(struct doctor *d, const char *path, bool keep_names);

/** The two halves of it, for an archive that holds more: look; and write, with pseudonyms
 *  unless @p keep_names, as @p command. */
void doctor_live_gather(struct doctor *d, struct dr_captures *out);
int doctor_live_write(const char *command, struct doctor *d,
        struct dr_captures *captures, const char *path, bool keep_names);

#endif
