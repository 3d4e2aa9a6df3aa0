#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_reduce through torch.distributed: motet beside gloo, in one run, on CPU ranks.

    python bench/torch/allreduce.py [-n RANKS] [-r ROUNDS]

The backends take turns in every round; a figure is the median over the rounds of the mean
time of a call on the slowest rank.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import motet.torch  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [4 << shift for shift in range(0, 25, 2)]
SECONDS_A_TURN = 0.15


def turn(tensor, group, calls):
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begin) / calls


def calls_for(tensor, group):
    """As many calls as fill a turn; the same on every rank."""
    mean = torch.tensor([turn(tensor, group, 3)], dtype=torch.float64)
    dist.all_reduce(mean, op=dist.ReduceOp.MAX, group=group)
    return max(2, min(5000, int(SECONDS_A_TURN / mean.item())))


def worker(rank, size, path, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)
    groups = {name: dist.new_group(backend=name) for name in ("motet", "gloo")}
    if rank == 0:
        print(f"# PyTorch {torch.__version__}, {size} ranks, float32, {os.cpu_count()} cores,")
        print(f"# median of {rounds} rounds, lowest and highest of motet; microseconds a call")
        print(f"{'bytes':>10} {'motet':>10} {'low':>10} {'high':>10} {'gloo':>10} {'ratio':>7}")
    for count in SIZES:
        tensor = torch.zeros(count // 4)
        calls = {name: calls_for(tensor, group) for name, group in groups.items()}
        took = {name: [] for name in groups}
        for _ in range(rounds):
            for name, group in groups.items():
                mean = torch.tensor([turn(tensor, group, calls[name])], dtype=torch.float64)
                dist.all_reduce(mean, op=dist.ReduceOp.MAX, group=groups["gloo"])
                took[name].append(mean.item() * 1e6)
        ours, theirs = (statistics.median(took[name]) for name in ("motet", "gloo"))
        if rank == 0:
            low, high = min(took["motet"]), max(took["motet"])
            print(
                f"{count:10d} {ours:10.1f} {low:10.1f} {high:10.1f} {theirs:10.1f} "
                f"{theirs / ours:7.1f}",
                flush=True,
            )
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        mp.spawn(worker, args=(options.ranks, path, options.rounds), nprocs=options.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
