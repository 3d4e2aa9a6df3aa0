# SPDX-License-Identifier: Apache-2.0
"""What the bridge is compiled and linked with, for each vendor's build of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from ._build import BuildError, Plan, Torch, missing_libraries

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


# What ProcessGroupNCCL.hpp draws in, beside the header of the collectives.
CUDA_HEADERS = ["cuda.h", "cuda_runtime_api.h", "cusparse.h", "cublas_v2.h", "cusolverDn.h"]

VENDORS = {
    "cuda": Vendor(
        ["c10_cuda", "torch_cuda"],
        "nccl",
        ["CUDA_HOME", "CUDA_PATH"],
        ["usr/local/cuda", "usr/local/cuda-*"],
        ["include", "targets/*-linux/include"],
        ["lib64", "lib"],
        [*CUDA_HEADERS, "nccl.h"],
        ["USE_C10D_NCCL", "C10_CUDA_NO_CMAKE_CONFIGURE_FILE"],
    ),
    "rocm": Vendor(
        ["c10_hip", "torch_hip"],
        "rccl",
        ["ROCM_PATH", "HIP_PATH"],
        ["opt/rocm", "opt/rocm-*"],
        ["include"],
        ["lib", "lib64"],
        ["hip/hip_runtime_api.h", "hipblas/hipblas.h", "hipsparse/hipsparse.h", "rccl/rccl.h"],
        ["USE_C10D_NCCL", "USE_ROCM", "__HIP_PLATFORM_AMD__=1"],
    ),
    "hygon": Vendor(
        ["c10_hip", "torch_hip"],
        "rccl",
        ["DTK_ROOT", "ROCM_PATH"],
        ["opt/dtk", "opt/dtk-*"],
        ["cuda/cuda-*/include", "include", "include/rccl"],
        ["lib", "hip/lib", "lib64"],
        [*CUDA_HEADERS, "nccl.h"],
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


def vendor_named(word: str, source: str = "") -> str:
    """The row of a name, or of another name for it; `source` is where it was said."""
    name = ALIASES.get(word.lower(), word.lower())
    if name not in VENDORS:
        raise BuildError(
            f"{source and f'{source}: '}there is no bridge for the vendor '{word}': need one of "
            f"{', '.join(VENDORS)}"
        )
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


def _is_dtk(environ: Mapping[str, str], system: Path) -> bool:
    """Whether the toolkit is Hygon's: it says so, or has the CUDA-compatible folder in it."""
    root = root_of("hygon", environ, system)
    return bool(environ.get("DTK_ROOT")) or bool(root and _expand(root, "cuda/cuda-*"))


def choose_vendor(
    given: Optional[str], torch_lib: Path, environ: Mapping[str, str], system: Path = ROOT
) -> str:
    """By what is given, else GEMS_VENDOR, else by the libraries of libtorch that are there."""
    if given:
        return vendor_named(given, "--vendor")
    for variable in ("MOTET_TORCH_BRIDGE", "GEMS_VENDOR"):
        word = environ.get(variable, "")
        if word and not (variable == "MOTET_TORCH_BRIDGE" and word.lower() == "off"):
            return vendor_named(word, variable)
    if not torch_lib.is_dir():
        what = "is a file" if torch_lib.exists() else "does not exist"
        raise BuildError(f"{torch_lib} {what}: --torch-lib is the folder of the vendor's libtorch")
    has = [n for n in ("cuda", "hip") if (torch_lib / f"libtorch_{n}.so").exists()]
    if len(has) == 2:
        raise BuildError(
            f"{torch_lib} has both libtorch_cuda.so and libtorch_hip.so: say which with --vendor"
        )
    if has == ["cuda"]:
        return "cuda"
    if has == ["hip"]:
        return "hygon" if _is_dtk(environ, system) else "rocm"
    raise BuildError(
        f"{torch_lib} has neither libtorch_cuda.so nor libtorch_hip.so: name the folder of the "
        "vendor's libtorch with --torch-lib"
    )


def _wheels(places: list[Path], below: str) -> list[Path]:
    """Folders of NVIDIA's wheels beside a PyTorch, of whose libraries the folders are given:
    nvidia/nccl/lib, nvidia/cuda_runtime/include."""
    packages = dict.fromkeys(place.parent.parent for place in places)
    return [p for package in packages for p in sorted(package.glob(f"nvidia/*/{below}"))]


def _has(folders: list[Path], header: str) -> bool:
    return any((folder / header).is_file() for folder in folders)


def _missing_headers(name: str, torch: Torch, includes: list[Path]) -> list[str]:
    lacks = [
        f"{header} in {', '.join(map(str, includes)) or 'no folder'}"
        for header in VENDORS[name].headers
        if not _has(includes, header)
    ]
    header = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
    if not _has(torch.includes, header):
        lacks.append(f"{header} among the headers of PyTorch {torch.version}")
    return lacks


def _collectives(name: str, folders: list[Path]) -> tuple[str, list[Path]]:
    """The library that speaks NCCL's API, as the linker is told it, and its folder."""
    library = VENDORS[name].library
    for folder in folders:
        files = sorted((p.name for p in folder.glob(f"lib{library}.so*")), key=len)
        if files:
            return f":{files[0]}", [folder]
    return library, folders


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
    folders = [torch_lib]
    if name == "cuda":
        places = [torch_lib, torch.libraries]
        includes += _wheels(places, "include")
        folders += _wheels(places, "lib")
    if root:
        folders += [p for d in vendor.library_dirs for p in _expand(root, d)]
    library, linked = _collectives(name, folders)
    # The vendor's libtorch comes first, and Python's, which has torch_python, after it.
    plan = Plan(
        module,
        source,
        into,
        includes,
        vendor.defines,
        list(dict.fromkeys([torch_lib, *linked, torch.libraries])),
        ["torch_python", *vendor.torch_libraries, "torch", "torch_cpu", "c10", library],
    )
    lacks = missing_libraries(plan) + _missing_headers(name, torch, includes)
    if lacks:
        where = f"{root}" if root else f"none; set {' or '.join(vendor.variables)}"
        raise BuildError(
            f"for the vendor {name} (its toolkit: {where}) there is no\n  " + "\n  ".join(lacks)
        )
    return plan
