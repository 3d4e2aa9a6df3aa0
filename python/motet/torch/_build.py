# SPDX-License-Identifier: Apache-2.0
"""Compiling an extension of PyTorch with the C++ compiler: one source, one shared object.

No part of motet is imported here, so that the build of the wheel can use it as well.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional


class BuildError(RuntimeError):
    """The extension cannot be built; the text says what is missing."""


class Torch(NamedTuple):
    """The PyTorch whose headers are compiled against."""

    version: str
    includes: list[Path]
    libraries: Path
    new_abi: bool


class Plan(NamedTuple):
    """What the compiler is told."""

    name: str
    source: Path
    into: Path
    includes: list[Path]
    defines: list[str]
    library_dirs: list[Path]
    libraries: list[str]

    @property
    def output(self) -> Path:
        suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
        return self.into / f"{self.name}{suffix}"


def torch_here() -> Torch:
    """The PyTorch of this Python."""
    try:
        import torch
        from torch.utils import cpp_extension
    except ImportError as reason:
        raise BuildError(f"no PyTorch in this Python: {reason}") from None
    return Torch(
        torch.__version__,
        [Path(p) for p in cpp_extension.include_paths()],
        Path(torch.__file__).parent / "lib",
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def standard_of(torch: Torch) -> str:
    """The C++ that the headers are written in."""
    return "c++20" if _numbers(torch.version) >= (2, 11) else "c++17"


def least_gcc(torch: Torch) -> int:
    """The oldest GCC for the headers: as they say themselves, else by their C++."""
    said = []
    for folder in torch.includes:
        for name in ("c10/util/C++17.h", "c10/util/C++20.h", "c10/macros/Macros.h"):
            try:
                text = (folder / name).read_text(errors="replace")
            except OSError:
                continue
            said += [int(n) for n in re.findall(r"__GNUC__\s*<\s*(\d+)", text)]
    return max([*said, 11 if standard_of(torch) == "c++20" else 9])


def compiler() -> list[str]:
    """The C++ compiler: CXX, else c++."""
    return shlex.split(os.environ.get("CXX", "")) or ["c++"]


def gcc_version(command: Sequence[str]) -> Optional[int]:
    """The major version, None if it is no GCC."""
    try:
        done = subprocess.run(
            [*command, "-dM", "-E", "-x", "c++", os.devnull],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        raise BuildError(f"no C++ compiler: there is no {command[0]}; set CXX to one") from None
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise BuildError(f"the C++ compiler {command[0]} does not answer: {reason}") from None
    if done.returncode != 0:
        raise BuildError(f"the C++ compiler {command[0]} fails: {done.stderr.strip()[-500:]}")
    if "#define __clang__ " in done.stdout:
        return None
    found = re.search(r"#define __GNUC__ (\d+)", done.stdout)
    return int(found.group(1)) if found else None


def check_compiler(command: Sequence[str], torch: Torch) -> None:
    """Refuse a GCC that is older than the headers need."""
    have, need = gcc_version(command), least_gcc(torch)
    if have is not None and have < need:
        raise BuildError(
            f"PyTorch {torch.version} requires GCC {need} or later, and {command[0]} is GCC "
            f"{have}: set CXX to a newer one"
        )


def relative_rpath(library_dir: Path, into: Path) -> str:
    """A folder as the extension finds it from its own place."""
    return "$ORIGIN/" + os.path.relpath(library_dir.resolve(), into.resolve())


def command_of(plan: Plan, torch: Torch) -> list[str]:
    """The command line."""
    python = sysconfig.get_paths()["include"]
    words = [
        *compiler(),
        f"-std={standard_of(torch)}",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-DTORCH_EXTENSION_NAME={plan.name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.new_abi)}",
    ]
    words += [f"-D{define}" for define in plan.defines]
    words += [f"-I{folder}" for folder in plan.includes]
    for folder in [*torch.includes, Path(python)]:
        words += ["-isystem", str(folder)]
    words += [str(plan.source), "-o", str(plan.output)]
    words += [f"-L{folder}" for folder in plan.library_dirs]
    words += [f"-l{library}" for library in plan.libraries]
    words += [f"-Wl,-rpath,{relative_rpath(f, plan.into)}" for f in plan.library_dirs]
    return words


def build(plan: Plan, torch: Torch) -> Path:
    """Compile; the file."""
    if not plan.source.is_file():
        raise BuildError(f"the source {plan.source} is missing")
    check_compiler(compiler(), torch)
    plan.into.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command_of(plan, torch), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        text = "\n".join(errors[:10]) or done.stderr[-2000:]
        raise BuildError(f"{plan.source.name} does not compile:\n{text}")
    return plan.output


def backend_plan(package: Path, torch: Torch, into: Optional[Path] = None) -> Plan:
    """That of motet's own backend; `package` is the folder of the package `motet`."""
    here = package / "torch"
    return Plan(
        "_backend",
        here / "backend.cpp",
        into or here,
        [package / "include"],
        [],
        [package / "lib", torch.libraries],
        [":libmotet.so.0", "torch_python", "torch", "torch_cpu", "c10"],
    )
