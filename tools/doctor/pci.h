/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI devices as lspci, sysfs, the kernel log and KFD show them: one record each, merged
 * by machine and address. What the text does not say is -1, 0 or DR_NONE, as noted.
 */
#ifndef MOTET_DOCTOR_PCI_H
#define MOTET_DOCTOR_PCI_H

#include "doctor.h"
#include "scan.h"

/** Device/port type of the PCI Express capability; the register's numbers. */
enum dr_port {
    DR_PORT_UNKNOWN = -1,
    DR_ENDPOINT = 0,
    DR_LEGACY_ENDPOINT = 1,
    DR_ROOT_PORT = 4,
    DR_UPSTREAM_PORT = 5,
    DR_DOWNSTREAM_PORT = 6,
    DR_PCIE_TO_PCI = 7,
    DR_PCI_TO_PCIE = 8,
    DR_RC_INTEGRATED = 9,
    DR_RC_EVENT_COLLECTOR = 10
};

#define DR_REGIONS_MAX 6

struct dr_region {
    uint64_t address, bytes; /* 0 bytes: not there */
    uint32_t line;
};

struct dr_pci_device {
    uint32_t machine;
    char bdf[DR_BDF_MAX];
    const char *name;   /* "Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 …" or "" */
    int vendor, device; /* -1                                                 */
    int class;          /* 0x0300, -1                                         */
    const char *driver; /* "amdgpu", or NULL: not said                        */
    int secondary, subordinate; /* buses below a bridge, -1                           */
    uint32_t parent; /* index of the bridge above, DR_NONE: not said        */
    enum dr_port port;
    int express_version; /* of the capability, -1                              */
    signed char routing, complete32,
            complete64;                    /* AtomicOpsCap: 0, 1, -1             */
    signed char requester, egress_blocked; /* AtomicOpsCtl: 0, 1, -1             */
    signed char acs_redirect_requests,
            acs_redirect_completions; /* ACSCtl: 0, 1, -1   */
    signed char acs_source_validation;
    bool denied;              /* "Capabilities: <access denied>"                    */
    bool is_virtual_function; /* has a physfn, or says so                           */
    double cap_speed,
            sta_speed;        /* GT/s, 0                                            */
    int cap_width, sta_width; /* lanes, 0                                           */
    struct dr_region regions[DR_REGIONS_MAX];
    int iommu_group, numa_node; /* -1                                                 */
    const char *slot;           /* as the board prints it, or NULL                    */
    uint32_t line;              /* where it is first named, and then the line of …    */
    uint32_t line_port, line_atomics, line_requester, line_bus, line_link_cap,
            line_link_sta, line_acs, line_driver, line_slot;
    signed char hip_atomics; /* hostNativeAtomicSupported: 0, 1, -1                 */
    bool logged;             /* the kernel log shows amdgpu at work on it            */
    uint32_t line_hip, line_denied;
    uint32_t line_refused_by_log; /* "PCIE atomic ops is not supported", DR_NONE     */
};

/** A link of KFD's topology, from the node of a GPU or a processor. */
struct dr_kfd_link {
    uint32_t machine;
    int node, place; /* nodes/<node>/io_links/<place>                     */
    int from, to;    /* nodes                                             */
    int type;        /* 2 PCIe, 11 XGMI, -1                               */
    int64_t flags;   /* -1: not read                                      */
    bool refused;    /* "Operation not permitted"                         */
    uint32_t line;
};

struct dr_kfd_node {
    uint32_t machine;
    int number;
    int device_id;            /* of the chip, 0                               */
    int cpu_cores, simds;     /* -1                                           */
    int64_t gfx_version;      /* 110000; -1                                   */
    int64_t location, domain; /* -1                                          */
    uint32_t device;          /* index of the GPU's record, DR_NONE           */
    uint32_t line;
};

/** What the text says of a machine as a whole; one for each of doctor.machines. */
struct dr_pci_machine {
    uint32_t line_guest; /* a hypervisor shows, DR_NONE                               */
    int kernel_major, kernel_minor; /* of its kernel, -1                              */
    uint32_t line_kernel;
    uint32_t
            line_searched; /* its kernel log was searched for atomics, in vain; DR_NONE */
    uint32_t line_refused; /* "PCIE atomic ops is not supported" of no known device   */
};

struct dr_pci {
    struct dr_pci_device *devices;
    struct dr_kfd_link *links;
    struct dr_kfd_node *nodes;
    struct dr_pci_machine *machines;
    uint32_t num_devices, num_links, num_nodes, room_devices, room_links, room_nodes;
    uint32_t *table; /* of indices, by machine and address */
    uint32_t table_size;
};

/** The record of an address ("0000:03:00.0"); made if it is new and @p line is not DR_NONE. */
struct dr_pci_device *dr_pci_device(struct doctor *d, uint32_t machine, const char *bdf,
        uint32_t line);
/** Its index, or DR_NONE. */
uint32_t dr_pci_find(const struct doctor *d, uint32_t machine, const char *bdf);

/** KFD's node of the GPU @p device, if its target is known; NULL else. */
const struct dr_kfd_node *dr_gpu_node(const struct doctor *d, uint32_t device);
/** Bytes of a target's name. */
#define DR_TARGET_MAX 32
/** "gfx90a" of a node whose version is known: KFD writes 90010, major, minor and step by
 *  hundreds. */
void dr_gfx_name(const struct dr_kfd_node *node, char target[DR_TARGET_MAX]);

/** A GPU or accelerator by class and vendor: 1002, 10de, 1d94, 1ed5. */
bool dr_is_gpu(const struct dr_pci_device *device);

/** Longest way from a device to its root port. */
#define DR_CHAIN_MAX 32
/** Indices of the bridges above @p device, the nearest first; how many. */
uint32_t dr_chain(const struct doctor *d, uint32_t device,
        uint32_t chain[DR_CHAIN_MAX]);
/** The topmost device that is on the card: a Navi's own upstream port, else itself. */
uint32_t dr_card_top(const struct doctor *d, uint32_t device);

/** The name without its vendor and without what lspci puts behind it. */
struct dr_span dr_short_name(const struct dr_pci_device *device);

/** The path of each GPU as a tree, the guilty port marked, for a person. */
void dr_draw_paths(const struct doctor *d, FILE *out, bool colour);

#endif
