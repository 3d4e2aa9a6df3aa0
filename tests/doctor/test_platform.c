/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel log and configuration, IOMMU, access control, windows, slots, probe records, ways
 * out: one row of a table a text, with what must and what must not be found in it. */
#include "doctor.h"
#include "platform.h"
#include "typed.h"
#include "ways_out.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coded.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- pieces of captures ---- */

#define RADEON "Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XTX]"
#define GPU(bdf, name)                                    \
    bdf " VGA compatible controller: " name " (rev c8)\n" \
        "\tCapabilities: [64] Express (v2) Legacy Endpoint, MSI 00\n"
#define PAIR GPU("03:00.0", RADEON) "\n" GPU("0a:00.0", RADEON)
#define PORT(bdf, bus, name, type)                                  \
    "\n" bdf " PCI bridge: " name " (prog-if 00 [Normal decode])\n" \
    "\tBus: primary=00, " bus ", sec-latency=0\n"                   \
    "\tCapabilities: [58] Express (v2) " type ", MSI 00\n"
#define ROOT(bdf, bus)                                                               \
    PORT(bdf, bus, "Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge", \
            "Root Port (Slot+)")
#define DOWN(bdf, bus)                                          \
    PORT(bdf, bus, "Broadcom / LSI PEX880xx PCIe Gen 4 Switch", \
            "Downstream Port (Slot+)")
#define ACS(bits)                                                           \
    "\tCapabilities: [2a0 v1] Access Control Services\n"                    \
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+\n" \
    "\t\tACSCtl:\t" bits " UpstreamFwd- EgressCtrl- DirectTrans-\n"
#define ACS_OFF ACS("SrcValid+ TransBlk- ReqRedir- CmpltRedir-")
#define ACS_ON  ACS("SrcValid+ TransBlk- ReqRedir+ CmpltRedir+")
#define LINK(cap, sta)                                              \
    "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x" cap ", ASPM L1\n" \
    "\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x" sta "\n"

/* ---- the IOMMU ---- */

static void test_a_fault_counts_if_its_device_is_a_gpu(void **state)
{
    static const struct row rows[] = {
        { "prefix names the card",
                "[ 9.1] amdgpu 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT "
                "domain=0x001c address=0x7c2e00000 flags=0x0030]\n",
                DR_P2P_IOMMU_FAULT, DR_P2P_IOMMU_TRANSLATED, "0000:03:00.0" },
        { "device= names it",
                PAIR "Mar 12 11:52:20 box kernel: AMD-Vi: Event logged [IO_PAGE_FAULT "
                     "device=0a:00.0 domain=0x0000 address=0xfe flags=0x0010]\n",
                DR_P2P_IOMMU_FAULT, NO_CODE, "0000:0a:00.0" },
        { "Intel",
                PAIR
                "DMAR: [DMA Write NO_PASID] Request device [03:00.0] fault addr 0x1\n",
                DR_P2P_IOMMU_FAULT, NO_CODE, "0000:03:00.0" },
        { "Intel with 0x",
                PAIR
                "DMAR: [DMA Read NO_PASID] Request device [0x03:0x00.0] fault addr\n",
                DR_P2P_IOMMU_FAULT, NO_CODE, "0000:03:00.0" },
        { "Intel of old",
                PAIR "DMAR:[DMA Write] Request device [03:00.0] fault addr f8139000\n",
                DR_P2P_IOMMU_FAULT, NO_CODE, "0000:03:00.0" },
        { "a card that a list names with eight digits",
                "DMAR: [DMA Write] Request device [b3:00.0] fault addr 0x387f40000000\n"
                "0, NVIDIA RTX A6000, 00000000:65:00.0\n"
                "1, NVIDIA RTX A6000, 00000000:B3:00.0\n",
                DR_P2P_IOMMU_FAULT, NO_CODE, "0000:b3:00.0" },
        { "a USB controller",
                PAIR "[ 12.1] xhci_hcd 0000:05:00.3: AMD-Vi: Event logged "
                     "[IO_PAGE_FAULT domain=0x0 address=0xfe flags=0x0010]\n",
                NO_CODE, DR_P2P_IOMMU_FAULT, NULL },
        { "a card's sound function",
                PAIR "[ 12.1] snd_hda_intel 0000:03:00.1: AMD-Vi: Event logged "
                     "[IO_PAGE_FAULT domain=0x0 address=0xfe flags=0x0010]\n",
                NO_CODE, DR_P2P_IOMMU_FAULT, NULL },
        { "a drive", PAIR "DMAR: [DMA Read] Request device [04:00.0] PASID ffffffff\n",
                NO_CODE, DR_P2P_IOMMU_FAULT, NULL },
        { "translated, too",
                PAIR "[ 0.2] iommu: Default domain type: Translated\n"
                     "[ 9.9] amdgpu 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT "
                     "domain=0x1 address=0x7c flags=0x30]\n",
                DR_P2P_IOMMU_TRANSLATED, DR_P2P_IOMMU_OK, NULL },
        { "one card has no peer",
                "[ 0.2] iommu: Default domain type: Translated\n"
                "[ 9.9] amdgpu 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT "
                "domain=0x1 address=0x7c flags=0x30]\n",
                DR_P2P_IOMMU_FAULT, DR_P2P_IOMMU_TRANSLATED, NULL },
    };

    (void)state;
    check(rows, COUNT(rows));
}

static void test_the_domain_type_decides_not_the_words(void **state)
{
    static const struct row rows[] = {
        { "words of the command line only",
                PAIR "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz iommu=pt\n", NO_CODE,
                DR_P2P_IOMMU_OK, NULL },
        { "a library misses words, and that is all",
                PAIR "h:1:1 [0] init.cc:168 NCCL WARN Missing \"iommu=pt\" from kernel "
                     "command line which can lead to system instablity or hang!\n",
                NO_CODE, DR_P2P_IOMMU_TRANSLATED, NULL },
        { "passthrough by default",
                PAIR "[ 0.6] iommu: Default domain type: Passthrough\n",
                DR_P2P_IOMMU_OK, NO_CODE, NULL },
        { "off", PAIR "[ 0.0] DMAR: IOMMU disabled\n", DR_P2P_IOMMU_OK, NO_CODE, NULL },
        { "groups win over the default",
                PAIR "[ 0.0] iommu: Default domain type: Translated\n"
                     "[ 0.1] pci 0000:03:00.0: Adding to iommu group 14\n"
                     "[ 0.1] pci 0000:0a:00.0: Adding to iommu group 15\n"
                     "/sys/kernel/iommu_groups/1/type:DMA-FQ\n"
                     "/sys/kernel/iommu_groups/14/type:identity\n"
                     "/sys/kernel/iommu_groups/15/type:identity\n",
                DR_P2P_IOMMU_OK, NO_CODE, NULL },
        { "of other devices they say nothing",
                PAIR "[ 0.1] pci 0000:03:00.0: Adding to iommu group 14\n"
                     "/sys/bus/pci/devices/0000:01:00.0/iommu_group/type:identity\n",
                NO_CODE, DR_P2P_IOMMU_OK, NULL },
        { "a loop",
                PAIR "$ for b in 03 0a; do cat "
                     "/sys/bus/pci/devices/0000:$b:00.0/iommu_group/type; done\n"
                     "identity\nidentity\n",
                DR_P2P_IOMMU_OK, NO_CODE, NULL },
        { "counted",
                PAIR "$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n"
                     "     31 identity\n",
                DR_P2P_IOMMU_OK, NO_CODE, NULL },
        { "counted, of two kinds",
                PAIR "$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n"
                     "     30 identity\n      1 DMA\n",
                NO_CODE, DR_P2P_IOMMU_OK, NULL },
        { "no GPU, no matter", "[ 0.6] iommu: Default domain type: Passthrough\n",
                NO_CODE, DR_P2P_IOMMU_OK, NULL },
    };

    (void)state;
    check(rows, COUNT(rows));
}

static void test_only_redirect_between_two_cards_is_a_fault(void **state)
{
#define CARD(root, bus, gpu, acs) \
    ROOT(root, "secondary=" bus ", subordinate=" bus) acs "\n" GPU(gpu, RADEON)
#define SWITCH                                                                \
    ROOT("00:01.1", "secondary=01, subordinate=09")                           \
    ACS_ON PORT("01:00.0", "secondary=02, subordinate=09", "PEX880xx Switch", \
            "Upstream Port")
#define LEG(port, bus, gpu, acs) \
    DOWN(port, "secondary=" bus ", subordinate=" bus) acs "\n" GPU(gpu, RADEON)
    static const struct row rows[] = {
        { "validation alone is none",
                CARD("00:01.1", "01", "01:00.0", ACS_OFF)
                        CARD("00:02.1", "02", "02:00.0", ACS_OFF),
                DR_ACS_OK, DR_ACS_REDIRECT, NULL },
        { "one port of two",
                CARD("00:01.1", "01", "01:00.0", ACS_OFF)
                        CARD("00:02.1", "02", "02:00.0", ACS_ON),
                DR_ACS_REDIRECT, DR_ACS_OK, "0000:00:02.1" },
        { "one card", CARD("00:01.1", "01", "01:00.0", ACS_ON), NO_CODE,
                DR_ACS_REDIRECT, NULL },
        { "a root port above the common switch",
                SWITCH LEG("02:00.0", "03", "03:00.0", ACS_OFF)
                        LEG("02:01.0", "04", "04:00.0", ACS_OFF),
                DR_ACS_OK, DR_ACS_REDIRECT, NULL },
        { "signs of all bridges, no names",
                "$ lspci -vvv | grep ACSCtl\n"
                "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-\n"
                "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-\n"
                "$ nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1)\n"
                "GPU 1: NVIDIA L4 (UUID: GPU-2)\n",
                DR_ACS_OK, DR_ACS_REDIRECT, NULL },
        { "the switch's own ports",
                SWITCH LEG("02:00.0", "03", "03:00.0", ACS_ON)
                        LEG("02:01.0", "04", "04:00.0", ACS_ON),
                DR_ACS_REDIRECT, DR_ACS_OK, "0000:02:01.0" },
        { "not shown is not off",
                CARD("00:01.1", "01", "01:00.0", ACS_OFF)
                        CARD("00:02.1", "02", "02:00.0", ""),
                NO_CODE, DR_ACS_OK, NULL },
        { "a part of the processor is no card",
                CARD("00:01.1", "01", "01:00.0", ACS_ON)
                        ROOT("00:08.1", "secondary=0d, subordinate=0d") ACS_ON
                "\n" GPU("0d:00.0", "Advanced Micro Devices, Inc. [AMD/ATI] Raphael"),
                NO_CODE, DR_ACS_REDIRECT, NULL },
        { "registers",
                CARD("00:01.1", "01", "01:00.0", "") CARD("00:02.1", "02", "02:00.0",
                        "") "$ for b in 00:01.1 00:02.1; do setpci -s $b "
                            "ECAP_ACS+6.w; done\n0011\n001d\n",
                DR_ACS_REDIRECT, DR_ACS_OK, "0000:00:02.1" },
        { "the kernel's own words",
                "[ 5.0] nvidia 0000:01:00.0: ACS redirect is set between the client "
                "and "
                "provider (0000:02:00.0)\n[ 5.0] nvidia 0000:01:00.0: to disable ACS "
                "redirect for this path, add the kernel parameter: "
                "pci=disable_acs_redir=0000:00:01.1;0000:00:02.1\n",
                DR_ACS_REDIRECT, NO_CODE, "0000:00:02.1" },
    };

    (void)state;
    check(rows, COUNT(rows));
}

/* ---- windows ---- */

static void test_a_window_is_held_against_the_memory(void **state)
{
#define REGION(bdf, name, at, size) \
    GPU(bdf, name)                  \
    "\tRegion 0: Memory at " at " (64-bit, prefetchable) [size=" size "]\n\n"
#define SMI(bus, window)                                                               \
    "GPU 00000000:" bus ":00.0\n    FB Memory Usage\n        Total      : 24564 MiB\n" \
    "    BAR1 Memory Usage\n        Total      : " window " MiB\n"
#define MI210 "Advanced Micro Devices, Inc. [AMD/ATI] Aldebaran/MI200 [Instinct MI210]"
    static const struct row rows[] = {
        { "the driver's line, the card of the line before",
                "[1.0] amdgpu 0000:03:00.0: amdgpu: VRAM: 16368M\n"
                "[1.0] [drm] Detected VRAM RAM=16368M, BAR=16384M\n"
                "[2.0] amdgpu 0000:0a:00.0: amdgpu: VRAM: 16368M\n"
                "[2.0] [drm] Detected VRAM RAM=16368M, BAR=256M\n",
                DR_SMALL_BAR, NO_CODE, "0000:0a:00.0" },
        { "no room for a larger one",
                PAIR
                "[1.0] amdgpu 0000:0a:00.0: BAR 0: no space for [mem size "
                "0x400000000 64bit pref]\n[1.1] amdgpu 0000:0a:00.0: BAR 0: assigned "
                "[mem 0x7fe0000000-0x7fefffffff 64bit pref]\n",
                DR_SMALL_BAR, NO_CODE, "0000:0a:00.0" },
        { "lspci, small", REGION("03:00.0", RADEON, "7fe0000000", "256M"), DR_SMALL_BAR,
                DR_LARGE_BAR_OK, "0000:03:00.0" },
        { "lspci, large", REGION("03:00.0", RADEON, "7fe0000000", "32G"),
                DR_LARGE_BAR_OK, DR_SMALL_BAR, NULL },
        { "a part of the processor needs none",
                REGION("0d:00.0", "Advanced Micro Devices, Inc. [AMD/ATI] Raphael",
                        "7fe0000000", "256M"),
                NO_CODE, DR_SMALL_BAR, NULL },
        { "NVIDIA, and peer access is claimed",
                "$ nvidia-smi -q -d MEMORY\n" SMI("21", "256")
                        SMI("41", "256") "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n "
                                         "GPU0\tX\tOK\t\n",
                DR_SMALL_BAR, DR_LARGE_BAR_OK, "0000:41:00.0" },
        { "NVIDIA, and it is not",
                "$ nvidia-smi -q -d MEMORY\n" SMI("21", "256")
                        SMI("41", "256") "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n "
                                         "GPU0\tX\tCNS\t\n",
                NO_CODE, DR_SMALL_BAR, NULL },
        { "beyond 44 bits",
                REGION("03:00.0", RADEON, "18000000000", "64G")
                        REGION("0a:00.0", RADEON, "2e0000000000", "64G"),
                DR_P2P_BAR_ABOVE_DMA_MASK, NO_CODE, "0000:0a:00.0" },
        { "these address 48",
                REGION("03:00.0", MI210, "18000000000", "64G")
                        REGION("0a:00.0", MI210, "2e0000000000", "64G"),
                NO_CODE, DR_P2P_BAR_ABOVE_DMA_MASK, NULL },
        { "the text says how many",
                "dma_set_mask_and_coherent(adev->dev, DMA_BIT_MASK(47));\n" REGION(
                        "03:00.0", RADEON, "18000000000", "64G")
                        REGION("0a:00.0", RADEON, "2e0000000000", "64G"),
                NO_CODE, DR_P2P_BAR_ABOVE_DMA_MASK, NULL },
        { "one card has no peer", REGION("0a:00.0", RADEON, "2e0000000000", "64G"),
                NO_CODE, DR_P2P_BAR_ABOVE_DMA_MASK, NULL },
        { "a map that is not aligned",
                "x kernel: NVRM: kbusCreateStaticBar1IOMMUMapping_GH100: BAR1 base "
                "0x38 is "
                "not aligned to 0x200\n",
                DR_P2P_BAR1_MAPPING_FAILED, DR_SMALL_BAR, NULL },
    };

    (void)state;
    check(rows, COUNT(rows));
}

/* ---- the kernel ---- */

static void test_the_configuration_is_that_of_the_running_kernel(void **state)
{
    static const struct row rows[] = {
        { "of another kernel",
                PAIR "$ uname -r\n6.12.0\n$ grep P2PDMA /boot/config-6.1.0-37-amd64\n"
                     "# CONFIG_PCI_P2PDMA is not set\n",
                NO_CODE, DR_KERNEL_NO_P2PDMA, NULL },
        { "by itself",
                PAIR "$ zcat /proc/config.gz | grep P2P\n"
                     "# CONFIG_PCI_P2PDMA is not set\n",
                DR_KERNEL_NO_P2PDMA, NO_CODE, "CONFIG_PCI_P2PDMA" },
        { "searched and not there",
                PAIR "$ uname -a\nLinux box 6.1.0-37-amd64 #1 SMP Debian x86_64\n"
                     "$ grep -E 'P2PDMA|HSA_AMD_P2P' /boot/config-6.1.0-37-amd64\n"
                     "CONFIG_PCI_P2PDMA=y\n",
                DR_KERNEL_NO_P2PDMA, NO_CODE, "CONFIG_HSA_AMD_P2P" },
        { "not searched",
                PAIR "$ zgrep PCI_P2PDMA /proc/config.gz\n"
                     "CONFIG_PCI_P2PDMA=y\n",
                NO_CODE, DR_KERNEL_NO_P2PDMA, NULL },
        { "no file",
                PAIR "$ zgrep P2P /proc/config.gz\n"
                     "gzip: /proc/config.gz: No such file or directory\n",
                NO_CODE, DR_KERNEL_NO_P2PDMA, NULL },
        { "both there",
                PAIR "$ zgrep -E P2P /proc/config.gz\nCONFIG_PCI_P2PDMA=y\n"
                     "CONFIG_HSA_AMD_P2P=y\n",
                NO_CODE, DR_KERNEL_NO_P2PDMA, NULL },
        { "no GPU, no matter",
                "$ zgrep P2P /proc/config.gz\n# CONFIG_PCI_P2PDMA is not set\n",
                NO_CODE, DR_KERNEL_NO_P2PDMA, NULL },
        { "the library could not look",
                "[rank0]: h:12:34 [0] NCCL INFO Could not open kernel conf file\n",
                DR_DMABUF_KERNEL_CONF_MISSING, DR_KERNEL_NO_P2PDMA, NULL },
        { "a bridge that is not listed",
                "[5.9] pci 0000:00:00.0: Host bridge not in P2PDMA whitelist: "
                "8086:a704\n",
                DR_P2P_HOST_BRIDGE_NOT_LISTED, DR_KERNEL_NO_P2PDMA, "8086:a704" },
    };

    (void)state;
    check(rows, COUNT(rows));
}

/* ---- probes and frozen hosts ---- */

static void test_an_open_record_of_an_earlier_boot(void **state)
{
#define RECORD(what)                                                                   \
    "{\"state\":\"" what "\", \"boot_id\": \"F3C09A5E-8d07-4f6e-9d12-62a0e7b1c358\", " \
    "\"pair\":[\"03:00.0\",\"0000:0b:00.0\"],\"probe\":\"peer-access\"}\n"
#define BOOT_NOW                              \
    "$ cat /proc/sys/kernel/random/boot_id\n" \
    "1b7e4d90-27c4-4a83-b0b5-90f2d6a81e77\n"
#define BOOT_THEN \
    "/proc/sys/kernel/random/boot_id:f3c09a5e-8d07-4f6e-9d12-62a0e7b1c358\n"
    static const struct row rows[] = {
        { "open", RECORD("started") BOOT_NOW, DR_PROBE_DID_NOT_RETURN, NO_CODE,
                "0000:0b:00.0" },
        { "closed", RECORD("started") RECORD("finished") BOOT_NOW, DR_NO_FINDING,
                DR_PROBE_DID_NOT_RETURN, NULL },
        { "of this boot", RECORD("started") BOOT_THEN, DR_NO_FINDING,
                DR_PROBE_DID_NOT_RETURN, NULL },
        { "which boot is this", RECORD("started"), DR_UNDETERMINED,
                DR_PROBE_DID_NOT_RETURN, NULL },
        { "cut",
                "{\"probe\":\"peer-access\",\"pair\":[\"03:00.0\",\"0b:00.0\"],"
                "\"bo\n" BOOT_NOW,
                NO_CODE, DR_PROBE_DID_NOT_RETURN, NULL },
        { "the journal's list of boots",
                RECORD("started") "$ journalctl --list-boots\n"
                                  " -1 f3c09a5e8d074f6e9d1262a0e7b1c358 Sat\n"
                                  "  0 1b7e4d9027c44a83b0b590f2d6a81e77 Sun\n",
                DR_PROBE_DID_NOT_RETURN, NO_CODE, "0000:03:00.0" },
        { "a host that froze, and a control",
                "With custom all-reduce on the whole host hard-locks, no ping, needs a "
                "power cycle.\nWith --disable-custom-all-reduce it is stable for 3 "
                "days.\n",
                DR_P2P_UNSAFE_ON_THIS_FABRIC, DR_UNDETERMINED, NULL },
        { "no control",
                "With custom all-reduce on the whole host hard-locks: power cycle.\n",
                DR_UNDETERMINED, DR_P2P_UNSAFE_ON_THIS_FABRIC, NULL },
        { "a story in prose",
                "As soon as the custom all-reduce starts the entire system locks up, "
                "IPMI "
                "console black.\nWith --disable-custom-all-reduce it has been serving "
                "for two weeks without a problem.\n",
                DR_P2P_UNSAFE_ON_THIS_FABRIC, DR_UNDETERMINED, NULL },
        { "cause and cure in one line",
                "hipMemcpyPeer 0 to 1: the PC reboots by itself; NCCL_P2P_DISABLE=1 -> "
                "rock "
                "solid for a month\n",
                DR_P2P_UNSAFE_ON_THIS_FABRIC, DR_UNDETERMINED, NULL },
        { "switched on and off by the same variable",
                "NCCL_P2P_DISABLE=0  -> system hard hangs, IPMI reset required\n"
                "NCCL_P2P_DISABLE=1  -> OK (48 h)\n",
                DR_P2P_UNSAFE_ON_THIS_FABRIC, DR_UNDETERMINED, NULL },
        { "it froze without peer writes too",
                "machine froze under load twice, with P2P on and also with "
                "NCCL_P2P_DISABLE=1, no ping, power cycle.\n",
                DR_UNDETERMINED, DR_P2P_UNSAFE_ON_THIS_FABRIC, NULL },
        { "a server that is a process",
                "The API server crashed with custom all-reduce, the server process was "
                "dead.\nWith --disable-custom-all-reduce it runs for days.\n",
                NO_CODE, DR_P2P_UNSAFE_ON_THIS_FABRIC, NULL },
        { "the control froze, too",
                "With custom all-reduce the whole host hard-locks, no ping.\n"
                "With NCCL_P2P_DISABLE=1 it works an hour, then power cycle again.\n",
                NO_CODE, DR_P2P_UNSAFE_ON_THIS_FABRIC, NULL },
    };

    (void)state;
    check(rows, COUNT(rows));
}

/* ---- slots ---- */

#define B550                                                                         \
    ROOT("00:02.1", "secondary=02, subordinate=09")                                  \
    LINK("4", "4")                                                                   \
    PORT("02:00.2", "secondary=03, subordinate=09",                                  \
            "Advanced Micro Devices, Inc. [AMD] 500 Series Chipset Switch Upstream " \
            "Port",                                                                  \
            "Upstream Port")                                                         \
    LINK("4", "4")                                                                   \
    PORT("03:00.0", "secondary=04, subordinate=04",                                  \
            "Advanced Micro Devices, Inc. [AMD] Device 43ea",                        \
            "Downstream Port (Slot+)")                                               \
    LINK("4", "4")

static void test_lanes_and_what_they_hang_on(void **state)
{
#define ON_ROOT(gpu, cap, sta, port_cap, port_sta)  \
    ROOT("00:01.1", "secondary=01, subordinate=01") \
    LINK(port_cap, port_sta) "\n" gpu LINK(cap, sta)
    static const struct row rows[] = {
        { "at rest", ON_ROOT(GPU("01:00.0", RADEON), "16", "16", "16", "16"), NO_CODE,
                DR_LINK_DEGRADED, NULL },
        { "lost lanes", ON_ROOT(GPU("01:00.0", RADEON), "16", "8", "16", "8"),
                DR_LINK_DEGRADED, DR_CHIPSET_X4, "0000:01:00.0" },
        { "as wired", ON_ROOT(GPU("01:00.0", RADEON), "16", "8", "8", "8"), NO_CODE,
                DR_LINK_DEGRADED, NULL },
        { "the other end is not shown", GPU("01:00.0", RADEON) LINK("16", "8"), NO_CODE,
                DR_LINK_DEGRADED, NULL },
        { "a network card",
                ON_ROOT("01:00.0 Infiniband controller: Mellanox MT28908 "
                        "[ConnectX-6]\n",
                        "16", "4", "16", "4"),
                DR_LINK_DEGRADED, NO_CODE, "0000:01:00.0" },
        { "a chipset's slot", B550 "\n" GPU("04:00.0", RADEON) LINK("16", "4"),
                DR_CHIPSET_X4, DR_LINK_DEGRADED, "0000:04:00.0" },
        { "its name",
                B550 "\n" GPU("04:00.0", RADEON)
                        LINK("16", "4") "/sys/bus/pci/slots/7/address:0000:04:00\n",
                DR_GPU_BEHIND_CHIPSET, NO_CODE, "slot 7" },
        { "drives on a chipset",
                B550
                "\n04:00.0 Non-Volatile memory controller: Samsung\n" LINK("4", "4"),
                NO_CODE, DR_GPU_BEHIND_CHIPSET, NULL },
        { "Intel's hub",
                PORT("00:1b.0", "secondary=01, subordinate=01",
                        "Intel Corporation Cannon Lake PCH PCI Express Root Port #17",
                        "Root Port (Slot+)") LINK("4", "4") "\n" GPU("01:00.0", RADEON)
                        LINK("16", "4"),
                DR_CHIPSET_X4, DR_LINK_DEGRADED, "0000:01:00.0" },
        { "Intel's processor",
                PORT("00:01.0", "secondary=01, subordinate=01",
                        "Intel Corporation 12th Gen Core Processor PCI Express x16 "
                        "Controller #1",
                        "Root Port (Slot+)")
                        LINK("16", "16") "\n" GPU("01:00.0", RADEON) LINK("16", "16"),
                NO_CODE, DR_GPU_BEHIND_CHIPSET, NULL },
        { "symbols are lost",
                "$ ethtool --show-fec eth0\nFEC parameters for eth0:\n"
                "Active FEC encoding: None\n$ ethtool -S eth0 | grep symbol\n"
                "     rx_symbol_err_phy: 48211\n",
                DR_LINK_DEGRADED, NO_CODE, "eth0" },
        { "none is lost",
                "$ ethtool --show-fec eth0\nFEC parameters for eth0:\n"
                "Active FEC encoding: None\n$ ethtool -S eth0 | grep symbol\n"
                "     rx_symbol_err_phy: 0\n",
                NO_CODE, DR_LINK_DEGRADED, NULL },
    };

    (void)state;
    check(rows, COUNT(rows));
}

/* ---- typed words ---- */

static void test_loops_and_braces_are_played(void **state)
{
    static const struct {
        const char *command, *before, *words[4];
    } rows[] = {
        { "$ setpci -s 40:03.1 X; setpci -s c0:01.1 X", "-s ",
                { "40:03.1", "c0:01.1" } },
        { "$ for b in 21 e1; do lspci -s $b:00.0 | grep Lnk; done", "-s ",
                { "21:00.0", "e1:00.0" } },
        { "$ for b in 21; do lspci -s ${b}:00.0; done", "-s ", { "21:00.0" } },
        { "$ cat /sys/g/{14,15}/type", "/sys/",
                { "/sys/g/14/type", "/sys/g/15/type" } },
        { "$ cat /sys/g/*/type", "/sys/", { NULL } },
        { "$ for b in $(ls); do lspci -s $b; done", "-s ", { NULL } },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = doctor_new();
        const char *words[8];
        const uint32_t count =
                dr_typed_words(d, rows[i].command, rows[i].before, words, 8);

        for (uint32_t w = 0; w < 4; w++) {
            assert_int_equal(w < count, rows[i].words[w] != NULL);
            if (w < count)
                assert_string_equal(words[w], rows[i].words[w]);
        }
        doctor_free(d);
    }
}

/* ---- ways out ---- */

static bool offers(const struct doctor *d, const char *words)
{
    for (uint32_t i = 0; i < d->num_ways_out; i++)
        if (strstr(d->ways_out[i].what, words) != NULL)
            return true;
    return false;
}

static void test_only_ways_that_apply_are_offered(void **state)
{
    struct doctor *d = judged(B550 "\n" GPU("04:00.0", RADEON) LINK("16",
            "4") ROOT("00:03.1", "secondary=0a, subordinate=0a") LINK("16",
            "16") "\n" GPU("0a:00.0", RADEON) LINK("16",
            "16") "System Slot Information\n\tDesignation: M.2_1\n"
                  "\tType: x4 M.2 Socket 3\n\tCurrent Usage: Available\n"
                  "\tBus Address: 0000:00:01.1\n");

    (void)state;
    d->num_ways_out = 0;
    dr_ways_out(d);
    assert_true(d->num_ways_out >= 4);
    assert_non_null(strstr(d->ways_out[0].what, "M.2_1"));
    assert_non_null(strstr(d->ways_out[0].verify, "ReqEn+"));
    assert_true(offers(d, "x8/x8"));
    assert_true(offers(d, "Layer split"));
    assert_false(offers(d, "hypervisor"));
    doctor_free(d);

    d = judged(PAIR "[ 0.6] iommu: Default domain type: Passthrough\n");
    d->num_ways_out = 0;
    dr_ways_out(d);
    assert_int_equal(d->num_ways_out, 0);
    doctor_free(d);
}

static void test_a_model_is_bytes_and_a_link(void **state)
{
    struct doctor *d = doctor_new();
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    assert_non_null(out);
    doctor_judge(d);
    dr_write_model(d, out);
    fflush(out);
    assert_int_equal(size, 0);
    d->model = (struct dr_model){ 5120, 64, 4, 2 };
    dr_write_model(d, out);
    fclose(out);
    assert_non_null(strstr(text, "128 all_reduce calls"));
    assert_non_null(strstr(text, "5.24 MB"));
    assert_non_null(strstr(text, "the narrowest link"));
    free(text);
    doctor_free(d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fault_counts_if_its_device_is_a_gpu),
        cmocka_unit_test(test_the_domain_type_decides_not_the_words),
        cmocka_unit_test(test_only_redirect_between_two_cards_is_a_fault),
        cmocka_unit_test(test_a_window_is_held_against_the_memory),
        cmocka_unit_test(test_the_configuration_is_that_of_the_running_kernel),
        cmocka_unit_test(test_an_open_record_of_an_earlier_boot),
        cmocka_unit_test(test_lanes_and_what_they_hang_on),
        cmocka_unit_test(test_loops_and_braces_are_played),
        cmocka_unit_test(test_only_ways_that_apply_are_offered),
        cmocka_unit_test(test_a_model_is_bytes_and_a_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
