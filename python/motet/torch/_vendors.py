# SPDX-License-Identifier: Apache-2.0
"""What the bridge is compiled and linked with, for each vendor's build of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from ._build import BuildError, Plan, Torch

ROOT = Path("/")


class Vendor(NamedTuple):
    """One row of the table. Folders may hold `*`; the newest that fits is taken."""

    torch_libraries: list[str]  # in the folder of libtorch
    library: str  # that speaks NCCL's API
    variables: list[str]  # roots of the toolkit, the first that is set
    places: list[str]  # and where it is by default
    includes: list[str]  # below the root
    library_dirs: list[str]  # below the root
    headers: list[str]  # that must be found
    defines: list[str]


VENDORS = {
    "cuda": Vendor(
        ["c10_cuda", "torch_cuda"],
        "nccl",
        ["CUDA_HOME", "CUDA_PATH"],
        ["usr/local/cuda", "usr/local/cuda-*"],
        ["include", "targets/*-linux/include"],
        ["lib64", "lib"],
        ["cuda_runtime_api.h", "nccl.h"],
        ["USE_C10D_NCCL", "C10_CUDA_NO_CMAKE_CONFIGURE_FILE"],
    ),
    "rocm": Vendor(
        ["c10_hip", "torch_hip"],
        "rccl",
        ["ROCM_PATH", "HIP_PATH"],
        ["opt/rocm", "opt/rocm-*"],
        ["include"],
        ["lib", "lib64"],
        ["hip/hip_runtime_api.h", "rccl/rccl.h"],
        ["USE_C10D_NCCL", "USE_ROCM", "__HIP_PLATFORM_AMD__=1"],
    ),
    "hygon": Vendor(
        ["c10_hip", "torch_hip"],
        "rccl",
        ["DTK_ROOT", "ROCM_PATH"],
        ["opt/dtk", "opt/dtk-*"],
        ["cuda/cuda-*/include", "include", "include/rccl"],
        ["lib", "hip/lib", "lib64"],
        ["cuda_runtime_api.h", "rccl.h"],
        ["USE_C10D_NCCL", "C10_CUDA_NO_CMAKE_CONFIGURE_FILE"],
    ),
}

# What others call them.
ALIASES = {"nvidia": "cuda", "amd": "rocm", "du": "hygon", "dcu": "hygon"}


def _version_key(path: Path) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", path.name)]


def _expand(root: Path, pattern: str) -> list[Path]:
    """Folders that fit, the newest first; numbers in names count as numbers."""
    if "*" not in pattern:
        return [root / pattern] if (root / pattern).is_dir() else []
    found = [p for p in root.glob(pattern) if p.is_dir()]
    star = pattern.split("/").index(next(part for part in pattern.split("/") if "*" in part))
    return sorted(
        found,
        key=lambda p: _version_key(Path(p.relative_to(root).parts[star])),
        reverse=True,
    )[:1]


def vendor_named(word: str) -> str:
    """The row of a name, or of another name for it."""
    name = ALIASES.get(word.lower(), word.lower())
    if name not in VENDORS:
        raise BuildError(f"vendor '{word}' is not known: need one of {', '.join(VENDORS)}")
    return name


def root_of(name: str, environ: Mapping[str, str], system: Path = ROOT) -> Optional[Path]:
    """The root of a vendor's toolkit: as configured, else where it is by default."""
    vendor = VENDORS[name]
    for variable in vendor.variables:
        if environ.get(variable):
            path = Path(environ[variable])
            return path.parent if path.name == "hip" else path
    for place in vendor.places:
        for path in _expand(system, place):
            return path
    return None


def choose_vendor(
    given: Optional[str], torch_lib: Path, environ: Mapping[str, str], system: Path = ROOT
) -> str:
    """By what is given, else GEMS_VENDOR, else by the libraries of libtorch that are there."""
    word = given or environ.get("MOTET_TORCH_BRIDGE") or environ.get("GEMS_VENDOR")
    if word:
        return vendor_named(word)
    if (torch_lib / "libtorch_cuda.so").exists():
        return "cuda"
    if (torch_lib / "libtorch_hip.so").exists():
        dtk = environ.get("DTK_ROOT") or _expand(system, "opt/dtk")
        return "hygon" if dtk else "rocm"
    raise BuildError(
        f"{torch_lib} has neither libtorch_cuda.so nor libtorch_hip.so: name the folder of the "
        "vendor's libtorch with --torch-lib"
    )


def _wheels(torch_lib: Path, below: str) -> list[Path]:
    """Folders of NVIDIA's wheels beside PyTorch: nvidia/nccl/lib, nvidia/cuda_runtime/include."""
    return sorted((torch_lib.parent.parent / "nvidia").glob(f"*/{below}"))


def _has(folders: list[Path], header: str) -> bool:
    return any((folder / header).is_file() for folder in folders)


def _missing(
    name: str, torch: Torch, torch_lib: Path, includes: list[Path], library_dirs: list[Path]
) -> list[str]:
    vendor = VENDORS[name]
    lacks = [
        f"lib{library}.so in {torch_lib}"
        for library in vendor.torch_libraries
        if not (torch_lib / f"lib{library}.so").exists()
    ]
    if not any(list(d.glob(f"lib{vendor.library}.so*")) for d in library_dirs):
        lacks.append(f"lib{vendor.library}.so in {', '.join(map(str, library_dirs))}")
    lacks += [
        f"{header} in {', '.join(map(str, includes)) or 'no folder'}"
        for header in vendor.headers
        if not _has(includes, header)
    ]
    header = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
    if not _has(torch.includes, header):
        lacks.append(f"{header} among the headers of PyTorch {torch.version}")
    return lacks


def bridge_plan(
    name: str,
    torch: Torch,
    torch_lib: Path,
    into: Path,
    module: str,
    source: Path,
    environ: Mapping[str, str],
    system: Path = ROOT,
) -> Plan:
    """What is compiled, or a BuildError with all that is missing for it."""
    vendor = VENDORS[name]
    root = root_of(name, environ, system)
    includes = [p for i in vendor.includes for p in _expand(root, i)] if root else []
    library_dirs = [torch_lib]
    if name == "cuda":
        includes += _wheels(torch_lib, "include")
        library_dirs += _wheels(torch_lib, "lib")
    if root:
        library_dirs += [p for d in vendor.library_dirs for p in _expand(root, d)]
    lacks = _missing(name, torch, torch_lib, includes, library_dirs)
    if lacks:
        where = f"{root}" if root else f"none; set {' or '.join(vendor.variables)}"
        raise BuildError(
            f"for the vendor {name} (its toolkit: {where}) there is no\n  " + "\n  ".join(lacks)
        )
    linked = next(
        d for d in library_dirs if list(d.glob(f"lib{vendor.library}.so*"))
    )
    soname = sorted(linked.glob(f"lib{vendor.library}.so*"), key=lambda p: len(p.name))[0].name
    keep = [torch_lib, linked, *([] if torch_lib == torch.libraries else [torch.libraries])]
    return Plan(
        module,
        source,
        into,
        includes,
        vendor.defines,
        list(dict.fromkeys(keep)),
        ["torch_python", *vendor.torch_libraries, "torch", "torch_cpu", "c10", f":{soname}"],
    )
