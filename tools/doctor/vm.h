/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions of virtual machines that are handed a GPU: Proxmox, QEMU, libvirt. Each says
 * how the guest will see the card; whether the guest gets AtomicOps follows from it, from
 * the version of QEMU that runs, and from the path on the host.
 */
#ifndef MOTET_DOCTOR_VM_H
#define MOTET_DOCTOR_VM_H

#include "facts.h"

enum dr_vm_kind { DR_VM_PROXMOX, DR_VM_QEMU, DR_VM_LIBVIRT };

/** How a device is passed; several may be true. */
enum dr_vm_fault {
    DR_VM_MULTIFUNCTION = 1, /* more than function 0                                  */
    DR_VM_NO_ROOT_PORT = 2,  /* not function 0 directly below an emulated root port   */
    DR_VM_UNDECIDED = 4      /* what decides it is not in the text                    */
};

struct dr_vm_device {
    uint32_t definition;
    const char *label;    /* "hostpci0", or the host address                         */
    const char *mapping;  /* name of a Proxmox mapping, or NULL                      */
    const char *host;     /* the address as it is written, "" if it is not           */
    char bdf[DR_BDF_MAX]; /* function 0 of the card on the host, "" if not known     */
    unsigned fault;       /* enum dr_vm_fault                                        */
    const char *why;      /* what of the line does it, a clause; "" if nothing does  */
    const char *instead;  /* the line to write, "" if it is good                     */
    uint32_t line, line_why;
};

struct dr_vm_definition {
    enum dr_vm_kind kind;
    const char *id;      /* "104", a domain's name, or ""                            */
    const char *chipset; /* "q35", "pc-q35-8.1", "" if the text does not say         */
    bool pins_version;   /* the machine type names one                               */
    bool whole;          /* what is not in it has its default                        */
    uint32_t keys;       /* settings that were read                                  */
    uint32_t machine, line, line_chipset;
};

/** How well a text knows the version of QEMU; the best last. */
enum dr_vm_trust { DR_VM_MACHINE_RUNS, DR_VM_INSTALLED, DR_VM_PROCESS };

struct dr_vm_version {
    enum dr_vm_trust trust;
    const char *id;   /* of the VM, or "": of any                                     */
    const char *text; /* "8.0.2"                                                      */
    unsigned major, minor;
    uint32_t machine, line;
};

/** What VFIO says of the host's path: capability 5 of a device. */
struct dr_vm_vfio {
    char bdf[DR_BDF_MAX];
    unsigned widths; /* bits 1, 2 and 4: 32, 64 and 128 bit */
    uint32_t line;
};

struct dr_vm_mapping {
    const char *name, *path;
    uint32_t line;
};

struct dr_vm {
    struct dr_vm_definition *definitions;
    struct dr_vm_device *devices;
    struct dr_vm_version *versions;
    struct dr_vm_vfio *vfio;
    struct dr_vm_mapping *mappings;
    uint32_t num_definitions, num_devices, num_versions, num_vfio, num_mappings,
            room_definitions, room_devices, room_versions, room_vfio, room_mappings;
};

/** Fixed in 8.1: see vfio_pci_enable_rp_atomics() of QEMU. */
#define DR_VM_QEMU_MAJOR 8
#define DR_VM_QEMU_MINOR 1

/** The version that runs @p definition, or NULL: not in the text. */
const struct dr_vm_version *dr_vm_version_of(const struct doctor *d,
        uint32_t definition);
bool dr_vm_too_old(const struct dr_vm_version *version);
/** What VFIO says of the host's path to @p bdf. */
enum dr_answer dr_vm_host_path(const struct doctor *d, const char *bdf, uint32_t *line);
/** Whether a passed device is known to be something that needs no AtomicOps. */
bool dr_vm_is_other(const struct doctor *d, const struct dr_vm_device *device);

/** For each passed GPU (of VM @p id, or of all if NULL): will the guest see AtomicOps,
 *  why, and the line to write instead. */
void dr_write_vm(const struct doctor *d, FILE *out, const char *id);

/* ---- among the readers ---- */

uint32_t dr_vm_define(struct doctor *d, enum dr_vm_kind kind, const char *id,
        uint32_t line);
struct dr_vm_device *dr_vm_pass(struct doctor *d, uint32_t definition,
        const char *label, const char *host, uint32_t line);
/** Note @p fault; the first clause and line to write stay. */
void dr_vm_blame(struct doctor *d, struct dr_vm_device *device, unsigned fault,
        const char *why, const char *instead, uint32_t line);
/** The machine type of a definition; it is no q35: nobody there is below a root port. */
void dr_vm_set_chipset(struct doctor *d, uint32_t definition, struct dr_span chipset,
        uint32_t line);
bool dr_vm_has_pcie(const char *chipset);

void dr_read_vm_proxmox(struct doctor *d);
void dr_read_vm_qemu(struct doctor *d);
void dr_read_vm_libvirt(struct doctor *d);

/** Command lines of QEMU, token by token. */
struct dr_vm_tokens;
struct dr_vm_tokens *dr_vm_tokens_begin(struct doctor *d, enum dr_vm_kind kind,
        const char *id);
void dr_vm_token(struct doctor *d, struct dr_vm_tokens *t, const char *token,
        uint32_t line);
/** The tokens of a line, split as a shell does. */
void dr_vm_token_line(struct doctor *d, struct dr_vm_tokens *t, const char *text,
        uint32_t line);
/** Make devices of what was added. */
void dr_vm_tokens_end(struct doctor *d, struct dr_vm_tokens *t);

#endif
