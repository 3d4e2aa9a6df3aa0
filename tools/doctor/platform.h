/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel, the firmware and the tools of the vendors say of a machine beyond its
 * PCI records: IOMMU domains, faults, memory windows, kernel configuration, slots.
 */
#ifndef MOTET_DOCTOR_PLATFORM_H
#define MOTET_DOCTOR_PLATFORM_H

#include "facts.h"

/** Machines, and records of each kind, that are looked at; text with more is no capture. */
#define DR_MACHINES_LOOKED_AT 64
#define DR_RECORDS_MAX        2048

/** A kernel line that a rule stands on. */
enum dr_kernel_kind {
    DR_K_DOMAIN_TRANSLATED, /* iommu: Default domain type: Translated             */
    DR_K_DOMAIN_PASSTHROUGH,
    DR_K_IOMMU_OFF,
    DR_K_BAD_IOMMU_WORD,     /* amd_iommu=pt: no option of the kernel               */
    DR_K_IOMMU_FAULT,        /* bdf                                                 */
    DR_K_ACS_REDIRECT,       /* bdf of the client, peer                             */
    DR_K_ACS_PARAMETER,      /* text: the bridges of disable_acs_redir=             */
    DR_K_BRIDGE_NOT_LISTED,  /* text: VVVV:DDDD                                    */
    DR_K_PEER_NOT_SUPPORTED, /* bdf, peer                                         */
    DR_K_BAR1_MAP,           /* text: "GPU2 and GPU3", or ""                        */
    DR_K_NO_SPACE,           /* BAR 0 of bdf                                        */
    DR_K_DMA_MASK,           /* value: bits                                         */
    DR_K_NO_KERNEL_CONF,     /* Could not open kernel conf file                     */
    DR_K_ACS_CONTROL,        /* text: the signs of a bridge, whichever it is        */
    DR_K_GROUP               /* bdf, value: its IOMMU group                         */
};

struct dr_kernel_line {
    enum dr_kernel_kind kind;
    uint32_t machine, line;
    char bdf[DR_BDF_MAX], peer[DR_BDF_MAX];
    const char *text;
    uint64_t value;
};

/** The type of the IOMMU domain of a device or a group, as sysfs prints it. */
struct dr_domain {
    uint32_t machine, line;
    char bdf[DR_BDF_MAX]; /* "": by its group                         */
    int64_t group;        /* -1: not said                             */
    bool translated;
};

/** A card's memory and the window that it shows of it, MiB; 0: not said. */
struct dr_window {
    uint32_t machine, line_memory, line_window;
    char bdf[DR_BDF_MAX]; /* "": not said                             */
    bool nvidia;
    uint64_t memory, window;
};

struct dr_slot_record {
    uint32_t machine, line;
    const char *name, *type; /* "PCIEX16_1", "x16 PCI Express 4 x16" or ""  */
    bool is_free;
    char bdf[DR_BDF_MAX]; /* "": not said; from sysfs always function 0    */
};

/** A line of a kernel's configuration. */
struct dr_config_line {
    uint32_t machine, line;
    const char *name;    /* "CONFIG_PCI_P2PDMA"                            */
    const char *version; /* of the kernel it is of; "" is the one that runs;
                            NULL: not said                                 */
    bool set;            /* y or m                                         */
};

/** A search in a configuration that printed nothing for a name. */
struct dr_config_search {
    uint32_t machine, line;
    const char *version; /* as above                                       */
    const char *name;
};

/** A GPU that is named by its address outside of the PCI records. */
struct dr_seen_gpu {
    uint32_t machine, line;
    char bdf[DR_BDF_MAX];
};

/** A record that a probe leaves before it touches the hardware. */
struct dr_probe_record {
    uint32_t machine, line;
    const char *probe, *boot_id;
    char pair[2][DR_BDF_MAX];
    bool started; /* else finished */
};

struct dr_kernel {
    struct dr_kernel_line *lines;
    struct dr_domain *domains;
    struct dr_window *windows;
    struct dr_slot_record *slots;
    struct dr_config_line *config;
    struct dr_config_search *searches;
    struct dr_seen_gpu *seen;
    struct dr_probe_record *probes;
    uint32_t num_lines, num_domains, num_windows, num_slots, num_config, num_searches,
            num_seen, num_probes;
    uint32_t room_lines, room_domains, room_windows, room_slots, room_config,
            room_searches, room_seen, room_probes;
    uint32_t per_kind[DR_K_GROUP + 1];
    struct dr_running {             /* by machine: what runs there now */
        const char *version, *boot; /* NULL: not said */
        uint32_t version_line, boot_line;
    } running[DR_MACHINES_LOOKED_AT];
    uint32_t most_gpus; /* "GPU3" or "GPU[3]" is 4; for rows without addresses */
    uint32_t amd_line, nvidia_line; /* where the vendor's name shows, DR_NONE   */
};

/* Parts of the reader, each over all lines. */
void dr_read_kernel_log(struct doctor *d);
void dr_read_domains(struct doctor *d);
void dr_read_windows(struct doctor *d);
void dr_read_slots(struct doctor *d);
void dr_read_config(struct doctor *d);
void dr_read_probe_records(struct doctor *d);
void dr_read_acs_registers(struct doctor *d);
void dr_read_slot_links(struct doctor *d);

/** A part of a processor: its window and its bus are no matter of slots. */
bool dr_is_integrated(const struct dr_pci_device *device);
/** Indices of the GPUs on cards of @p machine; at most @p room, how many. */
uint32_t dr_cards(const struct doctor *d, uint32_t machine, uint32_t *out,
        uint32_t room);
/** GPUs of @p machine, by records, by other lines, or by the tools' counts. */
uint32_t dr_count_gpus(const struct doctor *d, uint32_t machine);
/** Whether @p bdf is a GPU, in a record or elsewhere. */
bool dr_is_gpu_address(const struct doctor *d, uint32_t machine, const char *bdf);
/** What runs on @p machine now; never NULL. */
const struct dr_running *dr_running(const struct doctor *d, uint32_t machine);
/** Machines that rules look at, the first of the text's. */
uint32_t dr_looked_at(const struct doctor *d);

/** The bridge at the other end of the slot link of @p device, or DR_NONE. */
uint32_t dr_slot_bridge(const struct doctor *d, uint32_t device);
/** The bridge by which @p device hangs on a chipset, or DR_NONE. */
uint32_t dr_chipset_port(const struct doctor *d, uint32_t device);
/** Name of the slot of @p device, or NULL. */
const char *dr_slot_name(const struct doctor *d, uint32_t device, uint32_t *line);
/** Whether this slot is free and attached to the processor, as far as the text says. */
bool dr_is_free_cpu_slot(const struct doctor *d, const struct dr_slot_record *slot);
/** "M.2_1 (x4 M.2 Socket 3), …": what is free and attached to the processor, or "". */
const char *dr_free_slots(struct doctor *d, uint32_t machine);

/** P2P_IOMMU_TRANSLATED and _OK; after the peer tests, whose findings they ask for. */
void dr_rule_domains(struct doctor *d);

#endif
