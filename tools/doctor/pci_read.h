/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of PCI text share; see pci.h for what they make. */
#ifndef MOTET_DOCTOR_PCI_READ_H
#define MOTET_DOCTOR_PCI_READ_H

#include "facts.h"

/** Bytes of a configuration space. */
#define DR_CONFIG_BYTES 4096
/** Widest line of a tree of `lspci -t`. */
#define DR_TREE_COLUMNS 512

/** Devices that one command may name. */
#define DR_TYPED_MAX 16

/** Where reading stands: the line, and what those before it were about. */
struct dr_pci_reading {
    struct doctor *d;
    uint32_t line, machine, source;
    const char *text;

    uint32_t device;    /* whose block of lspci this is, DR_NONE                      */
    uint32_t last_gpu;  /* that the kernel log spoke of, DR_NONE                      */
    uint32_t boot;      /* where this log's boot begins, DR_NONE                      */
    uint32_t search;    /* the command that looks for atomics in the log, DR_NONE     */
    uint32_t first_hit; /* what it printed first, DR_NONE                             */
    bool found;         /* the line that it looked for was there                      */
    char typed[DR_TYPED_MAX][DR_BDF_MAX]; /* that the command names */
    uint32_t num_typed, next_typed;
    char kfd_path[128]; /* of the file whose lines follow, "" if none                 */

    unsigned char config[DR_CONFIG_BYTES]; /* of `device`                             */
    unsigned config_bytes;
    uint32_t config_line;

    uint32_t resource_of, resource_source; /* whose `resource` is read, line by line  */
    unsigned resource_index;

    struct { /* by column: the bus that the branch there lists; see pci_tree.c        */
        uint32_t bridge;
        int bus;
        char domain[8];
        bool set;
    } tree[DR_TREE_COLUMNS];
    bool in_tree;
};

/* Each is asked in turn; true: it understood the line. */
bool dr_pci_read_path(struct dr_pci_reading *r);
bool dr_pci_read_kfd(struct dr_pci_reading *r);
bool dr_pci_read_lspci(struct dr_pci_reading *r);
bool dr_pci_read_tree(struct dr_pci_reading *r);
bool dr_pci_read_log(struct dr_pci_reading *r);
bool dr_pci_read_runtime(struct dr_pci_reading *r);

/** What a command of lspci says of the lines that follow. */
void dr_pci_read_command(struct dr_pci_reading *r);
/** The device of a line without a header before it. */
void dr_pci_typed_device(struct dr_pci_reading *r);

/** Of every line, understood or not: signs of what machine this is; true: one. */
bool dr_pci_read_signs(struct dr_pci_reading *r);

/** A command or another file begins: what the lines before it were about is over. */
void dr_pci_end_of_output(struct dr_pci_reading *r);
/** When everything was read: what one line alone did not say. */
void dr_pci_finish(struct doctor *d);
void dr_pci_finish_kfd(struct doctor *d);

/** One row of `lspci -x`; true if it is one. */
bool dr_pci_hex_line(struct dr_pci_reading *r);
/** Decode what was collected of the current device. */
void dr_pci_hex_end(struct dr_pci_reading *r);

/** The only GPU of AMD's on a machine, of this kind of chip unless @p id is 0; DR_NONE if
 *  there is none or more than one. */
uint32_t dr_only_amd_gpu(const struct doctor *d, uint32_t machine, int id);
int dr_bus_of(const struct dr_pci_device *device);
/** Vendor by the name that lspci prints, -1. */
int dr_vendor_of_name(const char *name);
/** Fill what is not known yet. */
void dr_pci_set_ids(struct dr_pci_device *p, int vendor, int device, int class);

/** What the kernel's walk from the device to its root port gives. */
struct dr_walk {
    enum dr_answer answer;
    bool complete;                   /* no bridge is missing in the text  */
    uint32_t fault[DR_CHAIN_MAX];    /* bridges that break it             */
    const char *why[DR_CHAIN_MAX];   /* "Routing-", "32bit-", …           */
    enum dr_code code[DR_CHAIN_MAX]; /* what such a break is called       */
    uint32_t num_faults;
    uint32_t pci_bridge; /* a conventional bridge in it, DR_NONE */
};
void dr_walk(const struct doctor *d, uint32_t device, struct dr_walk *walk);

/** KFD's link from this GPU to a processor, or NULL. */
const struct dr_kfd_link *dr_kfd_of(const struct doctor *d, uint32_t device);
/** The link is one of a GPU to a processor over PCIe. */
bool dr_is_host_link(const struct doctor *d, const struct dr_kfd_link *link);
/** A grep for the flags alone leaves out where the link goes; a link from a GPU has the bits
 *  only where the GPU has no AtomicOps, wherever it goes. */
bool dr_is_bare_no(const struct dr_kfd_link *link);
const struct dr_kfd_node *dr_kfd_node(const struct doctor *d, uint32_t machine,
        int number);

#endif
