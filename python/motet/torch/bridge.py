# SPDX-License-Identifier: Apache-2.0
"""The bridge to a vendor's own ProcessGroupNCCL.

    python -m motet.torch.bridge build --name _flagos_nccl --into DIR --torch-lib DIR
    python -m motet.torch.bridge inspect PACKAGE
    python -m motet.torch.bridge test -n 2

For a Python whose PyTorch was built without NCCL, beside the libtorch of a vendor that has it.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from ._build import BuildError, build, torch_here
from ._vendors import VENDORS, bridge_plan, choose_vendor, vendor_named

# The build of the wheel takes what it needs from here.
__all__ = [
    "MODULE",
    "SOURCE",
    "BuildError",
    "bridge_plan",
    "build",
    "load",
    "main",
    "make_nccl_backend",
    "torch_here",
    "vendor_named",
]

MODULE = "_nccl_bridge"
SOURCE = Path(__file__).parent / "bridge.cpp"
# One library that is missing makes hundreds of symbols undefined; it comes before them.
MOST_FAULTS = 20
MAKES_IT = "python -m motet.torch.bridge build makes it"


@functools.cache
def _load(module: str) -> Any:
    """A bridge by its file, by its name in this package, or by its name elsewhere."""
    if os.sep in module or module.endswith(".so"):
        path = Path(module)
        if not path.is_file():
            raise ImportError(f"there is no file {module}: {MAKES_IT}")
        # A module's initialiser has the name that it was built with, that of its file.
        spec = importlib.util.spec_from_file_location(path.name.split(".")[0], path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{module} is no file of a Python module")
        built = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(built)
        return built
    if not all(part.isidentifier() for part in module.split(".")):
        raise ImportError(f"'{module}' is neither the name of a module nor the path of one")
    for name in (f"{__package__}.{module}", module):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as reason:
            # Another module may be the one that lacks: one that this one imports.
            if not reason.name or not f"{name}.".startswith(f"{reason.name}."):
                raise
    raise ImportError(
        f"there is no module {module}, neither in {__package__} nor elsewhere: {MAKES_IT}"
    )


def load(module: str | os.PathLike[str] = MODULE) -> Any:
    """The module of a bridge; an ImportError with a sentence if there is none."""
    where = os.fspath(module)
    try:
        built = _load(where)
    except ImportError as reason:
        raise ImportError(f"the bridge {where} cannot be loaded: {reason}") from None
    if not callable(getattr(built, "make_nccl_backend", None)):
        raise ImportError(f"{where} is no bridge: it has no make_nccl_backend")
    return built


def make_nccl_backend(
    store: Any,
    rank: int,
    size: int,
    timeout_ms: int = 0,
    high_priority_stream: bool = False,
    *,
    module: str | os.PathLike[str] = MODULE,
) -> Any:
    """A c10d backend over the vendor's library: its own ``ProcessGroupNCCL``.

    ``module`` is what ``build`` made: its name in this package or elsewhere
    (``torch_fl.comm._nccl_ext._flagos_nccl``), or the path of its file.
    """
    return load(module).make_nccl_backend(store, rank, size, timeout_ms, high_priority_stream)


def _build(options: argparse.Namespace) -> int:
    torch = torch_here()
    torch_lib = Path(options.torch_lib) if options.torch_lib else torch.libraries
    vendor = choose_vendor(options.vendor, torch_lib, os.environ)
    into = Path(options.into)
    plan = bridge_plan(vendor, torch, torch_lib, into, options.name, SOURCE, os.environ)
    print(f"vendor:    {vendor}")
    print(f"headers:   PyTorch {torch.version}, {torch.includes[0]}")
    print(f"libraries: {', '.join(plan.libraries)}")
    output = build(plan, torch)
    print(f"built:     {output}, {output.stat().st_size} bytes")
    return 0


def _folder_of(what: str) -> Path:
    if os.path.isdir(what):
        return Path(what)
    try:
        spec = importlib.util.find_spec(what)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"'{what}' is neither a folder nor an installed package")
    return Path(next(iter(spec.submodule_search_locations)))


def _interpreter_gives(symbol: str) -> bool:
    """Extensions do not link the interpreter, which is there when they are loaded: to `ldd`
    its symbols are undefined. Those that this one lacks as well are faults."""
    return bool(re.match("_?Py", symbol)) and hasattr(ctypes.pythonapi, symbol)


def _linkage(path: Path) -> tuple[list[str], list[str]]:
    """What `ldd -r` says of a file: the libraries that are found, and what is wrong."""
    try:
        done = subprocess.run(
            ["ldd", "-r", str(path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as reason:
        raise BuildError(f"cannot run ldd: {reason.strerror}") from None
    found, faults = [], []
    for line in map(str.strip, (done.stdout + done.stderr).splitlines()):
        symbol = re.match(r"undefined symbol: (\w+)", line)
        if symbol:
            if not _interpreter_gives(symbol.group(1)):
                faults.append(line)
        elif "not found" in line or "not defined in file" in line:
            faults.append(line)
        elif "=>" in line:
            found.append(line)
    if done.returncode != 0 and not faults:
        faults.append(f"ldd ends with status {done.returncode}: {done.stderr.strip()}")
    return found, faults


def _inspect(options: argparse.Namespace) -> int:
    """An installed release: is the extension in it, is its source, what does it link."""
    folder = _folder_of(options.what)
    names = (f"{options.name}*.so", f"{MODULE}*.so")
    found = sorted({p for name in names for p in folder.rglob(name)})
    sources = sorted({*folder.rglob("nccl_backend.cpp"), *folder.rglob("bridge.cpp")})
    libraries = sorted(
        p for name in ("libtorch_hip.so*", "libtorch_cuda.so*") for p in folder.rglob(name)
    )
    print(f"folder:         {folder}")
    print(f"extensions:     {', '.join(map(str, found)) or 'none'}")
    print(f"source present: {', '.join(map(str, sources)) or 'no'}")
    print(f"libtorch:       {', '.join(map(str, libraries)) or 'none'}")
    good = bool(found)
    for path in found:
        links, faults = _linkage(path)
        print(f"  {path.name}: {f'{len(faults)} faults' if faults else 'all is found'}")
        for line in [*links, *faults[:MOST_FAULTS]]:
            print(f"    {line}")
        if len(faults) > MOST_FAULTS:
            print(f"    and {len(faults) - MOST_FAULTS} more faults")
        good = good and not faults
    return 0 if good else 1


def _cards(options: argparse.Namespace) -> int:
    """Over how many cards the ranks are dealt."""
    if options.device == "cpu":
        return int(options.ranks)
    import torch

    have = int(torch.cuda.device_count())
    if have == 0:
        raise BuildError(f"no GPU: PyTorch {torch.__version__} sees none")
    if have < options.ranks and not options.share_cards:
        raise BuildError(
            f"{options.ranks} ranks need as many GPUs, PyTorch sees {have}; --share-cards puts "
            "several ranks on one, which motet's library allows, NCCL and RCCL refuse"
        )
    return have


def _test(options: argparse.Namespace) -> int:
    try:
        load(options.module)
    except ImportError as reason:
        raise BuildError(str(reason)) from None
    cards = _cards(options)
    from ._bridge_test import Run, run_ranks

    with tempfile.TemporaryDirectory() as folder:
        faults = run_ranks(
            Run(options.ranks, cards, options.module, options.device, options.timeout, folder)
        )
    for fault in faults:
        print(f"motet.torch.bridge: {fault}", file=sys.stderr)
    print("FAIL" if faults else "PASS")
    return 1 if faults else 0


def _number(kind: Callable[[str], float], most: float) -> Callable[[str], float]:
    """A reader of numbers above 0, for argparse."""

    def read(word: str) -> float:
        try:
            value = kind(word)
        except ValueError:
            value = 0
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"'{word}' is no number above 0 and up to {most:g}")
        return value

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m motet.torch.bridge", description=__doc__)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("build", help="compile the bridge")
    make.add_argument("--name", default=MODULE, help="of the module (default %(default)s)")
    make.add_argument("--into", default=str(Path(__file__).parent), help="the folder for it")
    make.add_argument("--torch-lib", help="the folder of the vendor's libtorch")
    make.add_argument(
        "--vendor",
        help=", ".join(VENDORS) + "; default: GEMS_VENDOR, else what --torch-lib holds",
    )
    make.set_defaults(run=_build)
    look = commands.add_parser("inspect", help="what an installed release holds")
    look.add_argument("what", nargs="?", default="motet", help="a package or a folder")
    look.add_argument("--name", default="_flagos_nccl", help="of the module to look for")
    look.set_defaults(run=_inspect)
    test = commands.add_parser("test", help="run it on GPUs")
    test.add_argument("-n", "--ranks", type=_number(int, 4096), default=2)
    test.add_argument(
        "--module",
        default=MODULE,
        help="the bridge: its name, or the path of its file (default %(default)s)",
    )
    test.add_argument(
        "--share-cards",
        action="store_true",
        help="more ranks than GPUs: rank R takes GPU R modulo their number; only motet's "
        "library allows that",
    )
    test.add_argument(
        "--timeout",
        type=_number(float, 1e6),
        default=300.0,
        metavar="S",
        help="seconds until ranks that still run are ended (default %(default)g)",
    )
    test.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="where the tensors are (default %(default)s); cpu for a bridge to something else",
    )
    test.set_defaults(run=_test)
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BuildError as reason:
        print(f"motet.torch.bridge: {reason}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
