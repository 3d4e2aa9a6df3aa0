/* SPDX-License-Identifier: Apache-2.0 */
/* The ranked ways out. See ways_out.h. */
#include "ways_out.h"

#include "platform.h"

#include <inttypes.h>

/* ---- what applies ---- */

/* Families of findings: a way out answers one or more of them. */
enum {
    GUEST = 1,    /* the hypervisor's configuration is at fault             */
    PATH = 2,     /* a port above the card is; another slot may be better   */
    HOSTCALL = 4, /* the library asks for what the path does not give       */
    PEER = 8,     /* peer access is off, wrong or dangerous                 */
    LANES = 16    /* it works, over few lanes                               */
};

static const struct {
    enum dr_code code;
    unsigned family;
} families[] = {
    { DR_ATOMICS_VM_MULTIFUNCTION, GUEST | HOSTCALL },
    { DR_ATOMICS_VM_NO_ROOT_PORT, GUEST | HOSTCALL },
    { DR_ATOMICS_VM_QEMU_TOO_OLD, GUEST | HOSTCALL },
    { DR_ATOMICS_ROOT_PORT_NO_COMPLETER, PATH | HOSTCALL },
    { DR_ATOMICS_SWITCH_NO_ROUTING, PATH | HOSTCALL },
    { DR_ATOMICS_EGRESS_BLOCKED, PATH | HOSTCALL },
    { DR_ATOMICS_OFF, HOSTCALL },
    { DR_HOSTCALL_REFUSED_NO_ATOMICS, HOSTCALL },
    { DR_P2P_UNSAFE_ON_THIS_FABRIC, PEER },
    { DR_PROBE_DID_NOT_RETURN, PEER },
    { DR_P2P_IOMMU_FAULT, PEER },
    { DR_ACS_REDIRECT, PEER },
    { DR_P2P_IOMMU_TRANSLATED, PEER },
    { DR_P2P_ASYMMETRIC, PEER },
    { DR_P2P_GRANTED_BUT_BROKEN, PEER },
    { DR_P2P_BAR1_MAPPING_FAILED, PEER },
    { DR_P2P_IPC_FAILED, PEER },
    { DR_P2P_BAR_ABOVE_DMA_MASK, PEER },
    { DR_P2P_HOST_BRIDGE_NOT_LISTED, PEER },
    { DR_KERNEL_NO_P2PDMA, PEER },
    { DR_CHIPSET_X4, PATH | LANES },
};

/* The families found, and the cards of them. */
static unsigned found_families(struct doctor *d)
{
    unsigned set = 0;

    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
        if (dr_has_finding(d, families[i].code, NULL))
            set |= families[i].family;
    return set;
}

/* One card alone needs no collective. */
static bool is_single(const struct doctor *d)
{
    uint32_t most = 0;

    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        const uint32_t count = dr_count_gpus(d, m);

        most = count > most ? count : most;
    }
    return most == 1;
}

static bool any_guest(const struct doctor *d)
{
    for (uint32_t m = 0; m < dr_looked_at(d); m++)
        if (dr_is_guest(d, m))
            return true;
    return false;
}

/* ---- the ways, best first ---- */

#define CHECK_ATOMICS                                                               \
    "Before anything else: `lspci -vvs BDF | grep AtomicOpsCtl` prints ReqEn+ for " \
    "the moved card."

static void other_slot(struct doctor *d)
{
    const char *list = "";

    for (uint32_t m = 0; m < dr_looked_at(d) && list[0] == 0; m++)
        list = dr_free_slots(d, m);
    if (dr_has_finding(d, DR_ATOMICS_ROOT_PORT_NO_COMPLETER, NULL) &&
            !dr_has_finding(d, DR_ATOMICS_SWITCH_NO_ROUTING, NULL)) {
        dr_way_out(d,
                dr_printf(d,
                        "Another slot on another root port of the processor, if that "
                        "port "
                        "prints `AtomicOpsCap: … 32bit+ 64bit+`%s%s.",
                        list[0] != 0 ? "; free are " : "", list),
                "The card is moved; no money. On some processors no port completes.",
                CHECK_ATOMICS);
        return;
    }
    dr_way_out(d,
            list[0] != 0
                    ? dr_printf(d, "Move the card to a free CPU-attached slot: %s.",
                              list)
                    : "Move the card to a free CPU-attached slot, or to a CPU-attached "
                      "M.2 "
                      "socket with a riser (M.2 to PCIe, four lanes).",
            "A riser for M.2, and the drive that was to go there. Check the board's "
            "specification page for shared lanes: some sockets switch a slot off.",
            CHECK_ATOMICS
            " Then LnkSta of the card under load: the width that the slot has.");
}

static void other_board(struct doctor *d)
{
    dr_way_out(d,
            "A board that splits the processor's sixteen lanes into x8/x8, both cards "
            "on "
            "the processor.",
            "A board of the same socket, and the work of moving.", CHECK_ATOMICS);
}

static void hypervisor(struct doctor *d)
{
    dr_way_out(d,
            "On the hypervisor, for every card: q35, function 0 alone, on an express "
            "root "
            "port of its own (Proxmox: `hostpciN: 0000:BB:DD.0,pcie=1`), QEMU 8.1 or "
            "newer.",
            "The guest is shut down and started once; the card's sound function stays "
            "outside. No slot and no board needs to change for this.",
            "In the guest, before anything else: `lspci -vvs BDF | grep AtomicOpsCtl` "
            "prints ReqEn+ for every card.");
}

static void other_library(struct doctor *d)
{
    dr_way_out(d,
            "A collective library whose kernels declare no hostcall (RCCL of ROCm "
            "7.2.0 or "
            "7.1.1, or a build without the declaration).",
            "An older or an own build; no hardware. What newer releases repaired is "
            "missing in it.",
            "`motet hostcall PATH` counts 0 kernels that declare it for your GPU's "
            "target.");
}

static void staged(struct doctor *d)
{
    dr_way_out(d,
            "motet's staged path: the cards exchange through host memory; it needs "
            "neither "
            "AtomicOps nor peer access.",
            "Each transfer passes the processor's memory: the rate is that of the "
            "narrower "
            "card's link, at best.",
            "Stop and mask the serving unit first (`systemctl stop U && systemctl mask "
            "U`), then run the same collective with motet and compare the results.");
}

static void split(struct doctor *d)
{
    dr_way_out(d,
            "Layer split instead of tensor split (llama.cpp, `--split-mode layer`): no "
            "collective is called at all.",
            "A GGUF conversion; no paged attention, no continuous batching, no "
            "speculative decoding; one card works while the other waits.",
            "The program starts on both cards and its log shows layers on each.");
}

static void replicas(struct doctor *d)
{
    dr_way_out(d,
            "Two replicas, one card each, behind a router that spreads the requests.",
            "The model must fit into one card; throughput grows, one request is no "
            "faster.",
            "Each replica answers alone, with the other one stopped.");
}

void dr_ways_out(struct doctor *d)
{
    const unsigned set = found_families(d);
    /* in a guest a slot is no answer, whatever its ports print */
    const bool guest = (set & GUEST) != 0 || any_guest(d);

    if (set == 0 || is_single(d))
        return;
    if (guest && (set & HOSTCALL))
        hypervisor(d);
    if (!guest && (set & PATH)) {
        other_slot(d);
        other_board(d);
    }
    if (set & HOSTCALL)
        other_library(d);
    if (set & (HOSTCALL | PEER))
        staged(d);
    split(d);
    replicas(d);
}

/* ---- what a model asks of the link ---- */

static const struct {
    const char *name;
    double rate; /* GB/s one way, of what the lanes could carry */
} links[] = {
    { "PCIe 3.0 x1", 0.985 },
    { "PCIe 4.0 x1", 1.97 },
    { "PCIe 3.0 x4", 3.94 },
    { "PCIe 4.0 x4 or 3.0 x8", 7.88 },
    { "PCIe 4.0 x8, 5.0 x4 or 3.0 x16", 15.8 },
    { "PCIe 4.0 x16 or 5.0 x8", 31.5 },
    { "PCIe 5.0 x16", 63.0 },
};

/* Of these a transfer reaches about this part. */
#define USEFUL 0.73

/* A card reads its share of the weights once a token step. Twelve hidden² a layer is what a
 * plain transformer has; half a byte each and a fast memory make this time short, so that
 * a link that passes would pass with other weights too. */
#define WEIGHTS_PER_LAYER 12.0
#define WEIGHT_BYTES      0.5
#define MEMORY_GBS        1000.0

static double milliseconds(double bytes, double gbs)
{
    return bytes / (gbs * 1e9) * 1e3;
}

static void write_slots(const struct doctor *d, FILE *out, double narrowest)
{
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        uint32_t cards[16];
        const uint32_t count = dr_cards(d, m, cards, 16);

        for (uint32_t i = 0; i < count; i++) {
            const double rate = dr_slot_rate(d, cards[i]);

            if (rate > 0)
                fprintf(out, "  The slot of %s carries %.1f GB/s: %s.\n",
                        d->pci->devices[cards[i]].bdf, rate,
                        rate >= narrowest - 0.1 ? "not the limit" : "the limit");
        }
    }
}

void dr_write_model(const struct doctor *d, FILE *out)
{
    const struct dr_model *m = &d->model;
    const double call = (double)m->hidden * (double)m->batch * (double)m->dtype_bytes;
    const double calls = 2.0 * (double)m->layers, bytes = call * calls;
    const double weights = WEIGHTS_PER_LAYER * (double)m->hidden * (double)m->hidden *
            (double)m->layers * WEIGHT_BYTES / 2;
    const double compute = milliseconds(weights, MEMORY_GBS);
    double narrowest = 0;

    if (m->hidden == 0 || m->layers == 0 || m->batch == 0 || m->dtype_bytes == 0)
        return;
    fprintf(out,
            "A token step of this model, split over two cards:\n"
            "  %.0f all_reduce calls (two a layer) of %.0f bytes (hidden %" PRIu64
            " x batch %" PRIu64 " x %" PRIu64 " bytes): %.2f MB each way.\n"
            "  A card with %.0f GB/s reads its half of 4-bit weights in about %.2f "
            "ms.\n",
            calls, call, m->hidden, m->batch, m->dtype_bytes, bytes / 1e6, MEMORY_GBS,
            compute);
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        const double time = milliseconds(bytes, links[i].rate * USEFUL);

        fprintf(out, "  %-32s %8.2f ms\n", links[i].name, time);
        if (narrowest <= 0 && time <= compute) {
            narrowest = links[i].rate;
            fprintf(out, "    ^ the narrowest link that would not be the limit\n");
        }
    }
    if (narrowest <= 0) {
        fprintf(out,
                "  On each of these links the transfer takes longer than the "
                "weights.\n");
        narrowest = 1e9;
    }
    fprintf(out,
            "  To this comes the time to start %.0f calls: at 15 us each, %.1f ms.\n",
            calls, calls * 15e-3);
    write_slots(d, out, narrowest);
}
