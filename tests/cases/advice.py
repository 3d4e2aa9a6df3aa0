#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Advice that is often given, and wrong: advice.py MOTET.

Where it would be given, no step of the report and no way out says it, and, where a
person is likely to have read it, it stands under what will not help.
"""

import os
import re
import sys

from run import Broken, inputs, judge

SETTINGS = r"NCCL_(P2P|SHM)_DISABLE|NCCL_PROTO"
HARDWARE = r"(another|other|free|different) (PCIe )?(slot|board|mainboard|processor|CPU)|M\.2"
# (claim, case, code, what no step says, what stands under "what will not help")
ROWS = (
    ("settings of the library cure a refused hostcall", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", SETTINGS, SETTINGS),
    ("iommu=pt cures a refused hostcall", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", r"iommu", r"iommu=pt"),
    ("fine-grained PCIe memory cures a refused hostcall", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", r"HSA_FORCE_FINE_GRAIN", r"HSA_FORCE_FINE_GRAIN_PCIE"),
    ("-mprintf-kind=buffered removes the declaration", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", r"mprintf", r"-mprintf-kind=buffered"),
    ("an NDEBUG build is the fix", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", r"NDEBUG", r"NDEBUG"),
    ("the requester bit is set with setpci", "amdlog-first-allreduce",
     "HOSTCALL_REFUSED_NO_ATOMICS", r"setpci", r"setpci"),
    ("a build is chosen by its version", "librccl-readelf-notes",
     "RCCL_NEEDS_HOSTCALL", r"(?i)downgrade|RCCL 2\.\d+\.\d+|ROCm [67]", r"version"),
    ("-mprintf-kind=buffered removes the declaration", "librccl-readelf-notes",
     "RCCL_NEEDS_HOSTCALL", r"mprintf", r"-mprintf-kind=buffered"),
    ("a count of strings clears a packed image", "rocm-wheel-kpack",
     "RCCL_HOSTCALL_UNKNOWN", r"`strings", r"strings"),
    ("all functions of a card are passed", "proxmox-whole-slot",
     "ATOMICS_VM_MULTIFUNCTION", r"(?i)\btick\b|turn .?all functions.? on", None),
    ("a guest needs another slot or board", "proxmox-whole-slot",
     "ATOMICS_VM_MULTIFUNCTION", HARDWARE, r"(?i)hardware|board"),
    ("a guest needs another slot or board", "card-came-with-its-audio",
     "ATOMICS_VM_MULTIFUNCTION", HARDWARE, r"(?i)hardware|board"),
    ("a guest needs another slot or board", "lone-function-no-bits",
     "ATOMICS_ROOT_PORT_NO_COMPLETER", HARDWARE, r"setpci"),
    ("a guest needs another slot or board", "qemu-root-bus",
     "ATOMICS_VM_NO_ROOT_PORT", HARDWARE, None),
    ("the completer bits are set with setpci", "card-came-with-its-audio",
     "ATOMICS_VM_MULTIFUNCTION", r"setpci", r"setpci"),
    ("a virtual machine needs a newer machine type", "first-release-of-the-eight",
     "ATOMICS_VM_QEMU_TOO_OLD", r"pc-q35", r"machine type"),
    ("Routing- of a root port is the fault", "proxmox-function-zero", None, r"Routing", None),
    ("32bit- on some port is the fault", "navi-three-hops", None, r"32bit|setpci", None),
    ("a chipset's port is taught to route", "bottom-slot-x570",
     "ATOMICS_SWITCH_NO_ROUTING", r"setpci|" + SETTINGS, r"setpci"),
    ("ROCm is reinstalled for a skipped GPU", "x58-polaris",
     "KFD_SKIPPED_NO_ATOMICS", r"(?i)reinstall|linux-firmware", r"(?i)reinstalling ROCm"),
    ("SrcValid+ means that ACS is on", "l40s-acs-grep", None, r"setpci|disable_acs", None),
    ("amd_iommu=pt makes it passthrough", "mi60-pair-stops-after-chunksize",
     "P2P_IOMMU_TRANSLATED", r"amd_iommu=pt", r"amd_iommu=pt"),
    ("a missing iommu=pt has to be set", "mi250x-loud-init", None, r"iommu=pt", None),
    ("fine-grained PCIe memory has to be set", "mi250x-loud-init", None,
     r"HSA_FORCE_FINE_GRAIN", None),
    ("the net plugin has to be installed on one host", "mi250x-loud-init", None,
     r"nccl-net|rccl-net|ibverbs", None),
    ("the IOMMU is at fault when sharing fails", "ipc-handle-in-tree-driver",
     "P2P_IPC_FAILED", r"iommu", r"iommu"),
    ("a high rate proves peer access", "guest-peer-zeros",
     "P2P_GRANTED_BUT_BROKEN", r"NCCL_P2P_LEVEL", r"rate"),
    ("/dev/shm is made larger for a failed registration", "segment-registration",
     "SHM_REGISTER_FAILED", r"/dev/shm|--shm-size|--ipc", r"/dev/shm"),
    ("/dev/shm is made larger for peer access that goes one way", "four-w7800-one-way",
     "P2P_ASYMMETRIC", r"/dev/shm|--shm-size", r"/dev/shm"),
    ("a working rocm-smi proves the container", "pod-without-device-nodes",
     "KFD_NOT_PASSED", r"rocm-smi", r"rocm-smi"),
    ("a group is joined by its name", "kfd-permission-denied",
     "KFD_GROUP_MISSING", r"(?i)(--group-add|-aG|group) (render|video)\b|chmod", r"(?i)by its name"),
    ("the render group is joined for EINVAL", "unprivileged-lxc",
     "KFD_EINVAL", r"(?i)render|--group-add|usermod|chmod", r"(?i)group such as render"),
    ("a group is joined for EPERM", "slurm-step-no-gres",
     "KFD_CGROUP_DENIED", r"--group-add|usermod|chmod", r"(?i)group"),
    ("LL is cured by peer access off or by iommu=pt", "gfx1201-both-spin",
     "PROTO_LL_HANG_GFX12", r"P2P_DISABLE|iommu", r"P2P_DISABLE"),
    ("the version in the image is the one in use", "import-undefined-symbol",
     "LIB_OLDER_THAN_CALLER", r"NCCL_VERSION|torch\.cuda\.nccl", r"NCCL_VERSION"),
    ("the version in the image is the one in use", "image-says-2-23", None, r"NCCL_VERSION", None),
    ("one of two wheels is uninstalled", "two-owners-one-file",
     "LIB_TWO_WHEELS", None, r"(?i)only one"),
    ("any copy may be replaced", "replaced-the-wrong-file",
     "LIB_MULTIPLE_COPIES", None, r"(?i)does not map"),
    ("100 % use means that it computes", "seven-of-eight-report", "RANK_MISSING", None, r"100 %"),
    ("longer time-outs cure a rank that is missing", "seven-of-eight-report",
     "RANK_MISSING", r"(?i)longer time-?out|NCCL_TIMEOUT", r"(?i)longer time-outs"),
    ("settings help a program without the library", "tuning-without-effect", None,
     r"\bNCCL_[A-Z]", None),
    ("ports are opened for a host that is off", "nobody-answers-arp",
     "HOST_OFF_OR_NIC_DEAD", r"(?i)open (a|the) (range|port)", r"(?i)ports"),
)


def faults(motet, case, code, unwanted, wanted):
    try:
        report, _ = judge(motet, inputs(case))
    except Broken as error:
        yield str(error)
        return
    said = [(f["code"], step) for f in report["findings"] for step in f["fix"]]
    said += [("ways_out", w["what"]) for w in report["ways_out"]]
    for whose, step in said:
        if unwanted and re.search(unwanted, step):
            yield f"{whose} says: {step}"
    if wanted and not any(re.search(wanted, text) for f in report["findings"]
                          if f["code"] == code for text in f["will_not_help"]):
        yield f"{code} does not say that it will not help"


def main():
    motet, failed = sys.argv[1], 0
    here = os.path.dirname(os.path.abspath(__file__))
    for claim, case, code, unwanted, wanted in ROWS:
        if not os.path.exists(os.path.join(here, case, "expect.json")):
            failed += 1
            print(f"there is no case {case}")
            continue
        found = list(faults(motet, case, code, unwanted, wanted))
        failed += bool(found)
        for fault in found:
            print(f"'{claim}' ({case}): {fault}")
    print(f"pieces of advice: {len(ROWS)}, given or not warned of: {failed}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
