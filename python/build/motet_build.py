# SPDX-License-Identifier: Apache-2.0
"""How the wheel is built: by scikit-build-core, which calls the wheel linux_ARCH.

What it holds needs glibc alone, of version 2.34 where neither the compiler nor the system
brought in more. If that is so, and only then, the wheel gets the tag manylinux_2_34.

With MOTET_TORCH_BRIDGE=cuda|rocm|hygon, from the environment or as a setting, the bridge to
that vendor's ProcessGroupNCCL is compiled into the wheel, which then is for this Python and
the PyTorch of this Python only.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from packaging.tags import sys_tags
from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

GLIBC = (2, 34)
# Of glibc itself.
LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux[a-z0-9-]*)\.so\.\d+")
BRIDGE = "MOTET_TORCH_BRIDGE"
TORCH = Path(__file__).parents[1] / "motet" / "torch"


def _readelf(path: Path) -> str:
    """What it says, nothing where there is no such program."""
    command = ["readelf", "--wide", "--dynamic", "--version-info", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _version(word: str) -> tuple[int, ...]:
    """Of a glibc; words that are no version, as ABI_DT_RELR, stand for newer ones."""
    return tuple(map(int, word.split("."))) if re.fullmatch(r"[\d.]+", word) else (sys.maxsize,)


def _is_portable(path: Path) -> bool:
    """Whether an ELF file runs where glibc of that version is."""
    text = _readelf(path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    versions = re.findall(r"Name: GLIBC_(\S+)", text)
    return (
        bool(text)
        and all(LIBRARIES.fullmatch(name) for name in needed)
        and all(_version(word)[:2] <= GLIBC for word in versions)
    )


def _all_portable(wheel: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                if member.read(4) != b"\x7fELF" or info.filename.endswith(".co"):
                    continue
            if not _is_portable(Path(archive.extract(info, folder))):
                return False
    return True


def _wheel(*words: object) -> str:
    """The program `wheel`; its last word."""
    command = [sys.executable, "-m", "wheel", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[-1]


def _tag(wheel: Path) -> str:
    """Rename a portable wheel; its name."""
    name, version = platform.libc_ver()
    if name != "glibc" or _version(version) < GLIBC or not _all_portable(wheel):
        return wheel.name  # or pip would refuse here what was built here
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
    return _wheel("tags", "--remove", "--platform-tag", tag, wheel)


def _sources() -> ModuleType:
    """The module `bridge` of motet.torch, without motet, whose library is not built yet."""
    spec = importlib.machinery.ModuleSpec("motet_torch", None, is_package=True)
    spec.submodule_search_locations = [str(TORCH)]
    sys.modules["motet_torch"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("motet_torch.bridge")


def _compile_bridge(vendor: str, into: Path) -> Path:
    """Its file. It finds PyTorch from the place where this Python would install it."""
    bridge = _sources()
    place = Path(sysconfig.get_paths()["platlib"], "motet", "torch")
    try:
        torch = bridge.torch_here()
        name = bridge.vendor_named(vendor)
        plan = bridge.bridge_plan(
            name, torch, torch.libraries, place, bridge.MODULE, bridge.SOURCE, os.environ
        )
        return Path(bridge.build(plan, torch, into))
    except bridge.BuildError as reason:
        sys.exit(
            f"motet: {BRIDGE}={vendor}: {reason}\n"
            "The bridge needs the PyTorch that it will be used with: install that, "
            "scikit-build-core and wheel, and give pip --no-build-isolation. "
            f"{BRIDGE}=off builds the wheel without it."
        )


def _add(wheel: Path, extension: Path) -> str:
    """Put a module of this Python into motet/torch, and name the wheel so; its name."""
    with tempfile.TemporaryDirectory() as folder:
        _wheel("unpack", "--dest", folder, wheel)
        (unpacked,) = Path(folder).iterdir()
        shutil.copy(extension, unpacked / "motet" / "torch")
        wheel.unlink()
        _wheel("pack", "--dest-dir", wheel.parent, unpacked)
    here = next(iter(sys_tags()))
    return _wheel(
        "tags", "--remove", "--python-tag", here.interpreter, "--abi-tag", here.abi, wheel
    )


def build_wheel(
    wheel_directory: str,
    config_settings: Optional[Mapping[str, Any]] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    """PEP 517's hook."""
    settings = dict(config_settings or {})
    vendor = str(settings.pop(f"cmake.define.{BRIDGE}", os.environ.get(BRIDGE)) or "off").lower()
    with tempfile.TemporaryDirectory() as folder:
        # First, because it can fail, and the rest takes minutes.
        extension = None if vendor == "off" else _compile_bridge(vendor, Path(folder))
        wheel = Path(
            wheel_directory, _build.build_wheel(wheel_directory, settings, metadata_directory)
        )
        return _add(wheel, extension) if extension else _tag(wheel)
