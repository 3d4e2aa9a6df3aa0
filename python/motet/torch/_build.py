# SPDX-License-Identifier: Apache-2.0
"""Compiling an extension of PyTorch with the C++ compiler: one source, one shared object.

No part of motet is imported here, so that the build of the wheel can use it as well.
"""

from __future__ import annotations

import keyword
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

LEAST_TORCH = (2, 2)

# Where the vendors put their toolkits: the same on every machine, so named as they are.
PUBLIC = ("/opt/dtk", "/opt/rocm", "/usr/local/cuda")


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


def check_torch(torch: Torch) -> None:
    """Refuse a PyTorch whose c10d is older than the sources are written for."""
    if _numbers(torch.version) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        raise BuildError(f"motet needs PyTorch {least} or later, this is {torch.version}")


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
    try:
        return shlex.split(os.environ.get("CXX", "")) or ["c++"]
    except ValueError as reason:
        raise BuildError(f"CXX is no command: {os.environ['CXX']!r}: {reason}") from None


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
    """A folder as the extension finds it from its own place.

    Where the folder itself is a link, its name is kept: a package that moves takes the link
    along, but not what it points to.
    """
    plain = Path(os.path.abspath(library_dir))
    if any(str(plain) == root or re.match(rf"{root}[-/]", str(plain)) for root in PUBLIC):
        return str(plain)
    return "$ORIGIN/" + os.path.relpath(plain.parent.resolve() / plain.name, into.resolve())


def _file_of(library: str) -> str:
    """What `-l` looks for: `:name` is the name of a file."""
    return library[1:] if library.startswith(":") else f"lib{library}.so"


def missing_libraries(plan: Plan) -> list[str]:
    """All that would not be found, each with the folders looked in."""
    where = ", ".join(map(str, plan.library_dirs))
    return [
        f"{name} in {where}"
        for name in map(_file_of, plan.libraries)
        if not any((folder / name).exists() for folder in plan.library_dirs)
    ]


def command_of(plan: Plan, torch: Torch, output: Optional[Path] = None) -> list[str]:
    """The command line; `output` is where the file is made, if not yet at its place."""
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
    words += [str(plan.source), "-o", str(output or plan.output)]
    words += [f"-L{folder}" for folder in plan.library_dirs]
    # Some compilers leave out what no symbol is taken from: then a file loads only by luck.
    words.append("-Wl,--no-as-needed")
    words += [f"-l{library}" for library in plan.libraries]
    # As RUNPATH, whichever kind is the linker's own choice: LD_LIBRARY_PATH goes before it, and
    # so another library can be put in the place of the vendor's.
    words.append("-Wl,--enable-new-dtags")
    words += [f"-Wl,-rpath,{relative_rpath(f, plan.into)}" for f in plan.library_dirs]
    return words


def _check(plan: Plan, torch: Torch) -> None:
    """All that can be said before the compiler runs."""
    if not plan.name.isidentifier() or keyword.iskeyword(plan.name):
        raise BuildError(f"'{plan.name}' cannot be the name of a Python module")
    if not plan.source.is_file():
        raise BuildError(f"the source {plan.source} is missing")
    check_torch(torch)
    lacks = missing_libraries(plan)
    if lacks:
        raise BuildError(f"for {plan.name} there is no\n  " + "\n  ".join(lacks))
    check_compiler(compiler(), torch)


def check_runtime(compiler_name: str, output: Path) -> None:
    """Refuse a file that brings its own copy of the C++ library: PyTorch uses the shared one,
    and objects of one in the hands of the other crash."""
    if b"\0libstdc++.so." not in output.read_bytes():
        raise BuildError(
            f"{compiler_name} links its C++ library into what it makes, and PyTorch uses the "
            "shared libstdc++: set CXX to another compiler"
        )


def _compile(plan: Plan, torch: Torch, output: Path) -> None:
    command = command_of(plan, torch, output)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0 and output.is_file():
        check_runtime(command[0], output)
        return
    said = re.compile("error|cannot find|undefined reference")
    lines = [line for line in done.stderr.splitlines() if said.search(line)]
    text = "\n".join(lines[:10]) or done.stderr[-2000:] or f"{command[0]} made no file"
    raise BuildError(f"{plan.source.name} does not compile:\n{text}")


def build(plan: Plan, torch: Torch, into: Optional[Path] = None) -> Path:
    """Compile; the file. `into` is the folder that gets it when it is not yet at its place.

    What was there stays until the new file is whole, and programs that have it loaded keep it.
    """
    _check(plan, torch)
    folder = into or plan.into
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".build-", dir=folder)
    except OSError as reason:
        raise BuildError(
            f"cannot write into {folder}: {reason.strerror}; name another folder, or use a "
            "virtual environment of your own"
        ) from None
    with scratch:
        made = Path(scratch.name) / plan.output.name
        _compile(plan, torch, made)
        made.replace(folder / made.name)
    return folder / made.name


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
