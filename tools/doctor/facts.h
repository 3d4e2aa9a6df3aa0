/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts that more than one family of rules asks for, each answered by the family that
 * reads it. An answer names the line it stands on, where @p line is not NULL.
 */
#ifndef MOTET_DOCTOR_FACTS_H
#define MOTET_DOCTOR_FACTS_H

#include "doctor.h"
#include "pci.h"

enum dr_answer { DR_UNSURE, DR_YES, DR_NO };

/* ---- pci.c ---- */

/** Whether a hypervisor runs under this machine. */
bool dr_is_guest(const struct doctor *d, uint32_t machine);
/** Whether the GPU sends AtomicOps to host memory: best source first, see amd-hosts.md. */
enum dr_answer dr_gpu_atomics(const struct doctor *d, uint32_t device, uint32_t *line);
/** GPUs of @p machine (DR_NONE: of all); AMD's only if @p vendor is 0x1002, 0 is any. */
uint32_t dr_num_gpus(const struct doctor *d, uint32_t machine, unsigned vendor);

/* ---- platform.c ---- */

/** GB/s that the slot of this GPU can carry one way, 0 if its link is not in the text. */
double dr_slot_rate(const struct doctor *d, uint32_t device);
/** Whether the IOMMU translates what the GPUs of @p machine send to each other. */
enum dr_answer dr_iommu_translates(const struct doctor *d, uint32_t machine,
        uint32_t *line);

/* ---- job.c ---- */

/** Machines that the ranks are on; 0 if no ranks are in the text. */
uint32_t dr_num_hosts(const struct doctor *d);
/** Whether the run stands still: its last library line is one of connecting, or of an announced collective, and nothing follows; and where that shows. */
bool dr_stalled(const struct doctor *d, uint32_t *line);
enum dr_via { DR_VIA_NONE, DR_VIA_P2P, DR_VIA_SHM, DR_VIA_NET, DR_VIA_MIXED };
/** How the run's channels go, all of them. */
enum dr_via dr_channels(const struct doctor *d, uint32_t *line);
/** The version line of the library that ran, "2.27.7", or NULL. */
const char *dr_run_version(const struct doctor *d, uint32_t *line);
/** The value of a variable in the text ("NCCL_PROTO set by environment to Simple", or
 *  NAME=value in a command), or NULL. */
const char *dr_variable(struct doctor *d, const char *name, uint32_t *line);

/** The peer that left and whose last words are not in the text, or NULL (rules_job.c). */
const char *dr_missing_peer(const struct doctor *d);

/* ---- measure.c ---- */

/** Whether XGMI or NVLink joins the GPUs of a machine (DR_NONE: of any). */
enum dr_answer dr_direct_links(const struct doctor *d, uint32_t machine,
        uint32_t *line);
/** Largest bus bandwidth among the three largest sizes of the first table, GB/s; 0: none. */
double dr_plateau(const struct doctor *d, uint32_t *line);

#endif
