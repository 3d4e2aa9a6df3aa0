#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Process groups of torch.distributed made, destroyed, aborted; and a rank that is killed:
the others must get an error that names it, in bounded time.

    motet run --as nccl -- python3 torch_life.py --ranks 2
    python3 torch_life.py --ranks 2 --backend motet
"""

import os
import signal
import time
from datetime import timedelta

from ranks import expect, run, skip

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    skip(f"PyTorch: {error}")

# From the death to the error. PyTorch's own watchdog looks every few seconds.
PATIENCE_S = 30


def device_of(cases):
    return torch.device("cuda", cases.rank % torch.cuda.device_count())


def start(cases, **more):
    dist.init_process_group(cases.options.backend, timeout=timedelta(seconds=60), **more)


def check_sum(cases, device):
    tensor = torch.full((4099,), float(cases.rank + 1), device=device)
    dist.all_reduce(tensor)
    torch.cuda.synchronize(device)
    want = cases.ranks * (cases.ranks + 1) / 2
    expect(bool((tensor == want).all()), f"the sum is {tensor[0].item()}, expected {want}")


def lives(cases):
    """Made and destroyed again and again, eagerly and lazily."""
    device = device_of(cases)
    for life in range(6):
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
        start(cases, **({"device_id": device} if life % 2 else {}))
        check_sum(cases, device)
        dist.destroy_process_group()


def destroyed_with_work(cases):
    """destroy_process_group() right after a call whose work nobody waited for."""
    device = device_of(cases)
    start(cases, device_id=device)
    tensor = torch.ones(1 << 22, device=device)
    dist.all_reduce(tensor, async_op=True)
    dist.destroy_process_group()
    torch.cuda.synchronize(device)
    expect(bool((tensor == cases.ranks).all()), "the work was lost")


def destroyed_with_graph(cases):
    """A graph outlives its group; it is dropped later and never replayed."""
    device = device_of(cases)
    start(cases, device_id=device)
    tensor = torch.ones(4099, device=device)
    dist.all_reduce(tensor.clone())
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    graph.replay()
    torch.cuda.synchronize(device)
    dist.destroy_process_group()
    del graph
    torch.cuda.synchronize(device)


def killed_rank(cases):
    """The last rank dies inside an endless row of operations."""
    device = device_of(cases)
    start(cases, device_id=device)
    check_sum(cases, device)
    victim = cases.ranks - 1
    if cases.rank == victim:
        cases.tell("pass", "killed_rank")
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    text = ""
    tensor = torch.ones(4099, device=device)
    while not text and time.monotonic() - began < PATIENCE_S:
        try:
            work = dist.all_reduce(tensor, async_op=True)
            work.wait(timedelta(seconds=PATIENCE_S))
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            text = str(error)
    expect(text != "", f"no error in {PATIENCE_S} s")
    print(f"rank {cases.rank}: after {time.monotonic() - began:.1f} s: {text.splitlines()[0]}", flush=True)
    expect(f"rank {victim}" in text, f"the error does not name rank {victim}: {text}")


def body(cases):
    torch.cuda.set_device(device_of(cases))
    cases.run("lives", lives, cases)
    for case in (destroyed_with_work, destroyed_with_graph):
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 10)
        cases.run(case.__name__, case, cases)
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 10)
    if cases.ranks > 1:
        cases.run("killed_rank", killed_rank, cases)
    # What is left of the process group would wait for the dead at exit.
    os._exit(0)


class _LastMayDie:
    """The parent knows the number of ranks only after it has parsed its options."""

    def __iter__(self):
        import sys

        ranks = 2
        if "--ranks" in sys.argv:
            ranks = int(sys.argv[sys.argv.index("--ranks") + 1])
        return iter([ranks - 1] if ranks > 1 else [])


if __name__ == "__main__":
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    run(body, may_die=_LastMayDie())
