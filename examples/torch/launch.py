# SPDX-License-Identifier: Apache-2.0
"""What torchrun and `motet run` tell a rank, for the examples beside this file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NamedTuple, Optional

import motet.torch  # noqa: F401  makes the backend "motet" known
import torch
import torch.distributed as dist


class Place(NamedTuple):
    """This rank, how many there are, and where its tensors live."""

    rank: int
    size: int
    device: torch.device


def start(description: Optional[str], divides: int) -> Place:
    """Join the others. ``divides``: what must be divisible by the number of ranks."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        sys.exit("start this with torchrun or `motet run`, which tell each rank its number")
    if divides % int(os.environ["WORLD_SIZE"]) != 0:
        sys.exit(f"{os.environ['WORLD_SIZE']} ranks: need a number that divides {divides}")
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("motet")
    return Place(dist.get_rank(), dist.get_world_size(), device)


def values(seed: int, *shape: int) -> torch.Tensor:
    """Numbers that are the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def end(place: Place, as_expected: bool, what: str) -> int:
    """Say the verdict of all ranks and leave; the status to exit with."""
    verdict = torch.tensor([int(as_expected)], device=place.device)
    dist.all_reduce(verdict, dist.ReduceOp.MIN)
    passed = bool(verdict.item())
    if place.rank == 0:
        print(f"{'PASS' if passed else 'FAIL'}: {place.size} ranks, {what}", flush=True)
    dist.destroy_process_group()
    return 0 if passed else 1
