# SPDX-License-Identifier: Apache-2.0
"""The bridge to a vendor's own ProcessGroupNCCL.

    python -m motet.torch.bridge build --name _flagos_nccl --into DIR --torch-lib DIR
    python -m motet.torch.bridge inspect PACKAGE
    python -m motet.torch.bridge test -n 2

For a Python whose PyTorch was built without NCCL, beside the libtorch of a vendor that has it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ._build import BuildError, build, torch_here
from ._vendors import VENDORS, bridge_plan, choose_vendor, vendor_named

MODULE = "_nccl_bridge"
SOURCE = Path(__file__).parent / "bridge.cpp"


def make_nccl_backend(
    store: Any,
    rank: int,
    size: int,
    timeout_ms: int = 0,
    high_priority_stream: bool = False,
    *,
    module: str = MODULE,
) -> Any:
    """A c10d backend over the vendor's library: its own ``ProcessGroupNCCL``."""
    try:
        built = importlib.import_module(f"{__package__}.{module}")
    except ImportError as reason:
        raise ImportError(
            f"the bridge is not built, or does not load: {reason}; python -m "
            "motet.torch.bridge build makes it"
        ) from None
    return built.make_nccl_backend(store, rank, size, timeout_ms, high_priority_stream)


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
    spec = importlib.util.find_spec(what)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"'{what}' is neither a folder nor an installed package")
    return Path(next(iter(spec.submodule_search_locations)))


def _print_linkage(path: Path) -> bool:
    """What `ldd -r` says of it; whether all was found."""
    done = subprocess.run(["ldd", "-r", str(path)], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    bad = [line for line in lines if "not found" in line or "undefined symbol" in line]
    for line in lines:
        if "=>" in line or line in bad:
            print(f"    {line.strip()}")
    return not bad


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
        print(f"  {path.name}:")
        good = _print_linkage(path) and good
    return 0 if good else 1


def _create(options: Any, _backend_options: Any, module: str) -> Any:
    milliseconds = int(options.timeout.total_seconds() * 1000)
    return make_nccl_backend(
        options.store, options.group_rank, options.group_size, milliseconds, module=module
    )


def _rank(rank: int, size: int, path: str, module: str) -> None:
    """One rank of the test; what fails is raised, and ends all."""
    import functools

    import torch
    import torch.distributed as dist

    from . import _bridge_test

    torch.cuda.set_device(rank)
    create = functools.partial(_create, module=module)
    dist.Backend.register_backend("bridge", create, extended_api=True, devices=["cuda"])
    dist.init_process_group(
        "bridge", store=dist.FileStore(path, size), rank=rank, world_size=size
    )
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    _bridge_test.collectives(backend, rank, size)
    _bridge_test.training(rank, size)
    dist.barrier()
    if rank == 0:
        print("PASS", flush=True)
    dist.destroy_process_group()


def _test(options: argparse.Namespace) -> int:
    import torch
    import torch.multiprocessing as mp

    have = torch.cuda.device_count()
    if have < options.ranks:
        raise BuildError(f"{options.ranks} ranks need as many GPUs, PyTorch sees {have}")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, os.path.join(folder, "store"), options.module)
        mp.spawn(_rank, args=arguments, nprocs=options.ranks)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m motet.torch.bridge", description=__doc__)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("build", help="compile the bridge")
    make.add_argument("--name", default=MODULE, help="of the module (default %(default)s)")
    make.add_argument("--into", default=str(Path(__file__).parent), help="the folder for it")
    make.add_argument("--torch-lib", help="the folder of the vendor's libtorch")
    make.add_argument(
        "--vendor",
        type=vendor_named,
        help=", ".join(VENDORS) + "; default: GEMS_VENDOR, else what --torch-lib holds",
    )
    make.set_defaults(run=_build)
    look = commands.add_parser("inspect", help="what an installed release holds")
    look.add_argument("what", nargs="?", default="motet", help="a package or a folder")
    look.add_argument("--name", default="_flagos_nccl", help="of the module to look for")
    look.set_defaults(run=_inspect)
    test = commands.add_parser("test", help="run it on GPUs")
    test.add_argument("-n", "--ranks", type=int, default=2)
    test.add_argument("--module", default=MODULE)
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
