# SPDX-License-Identifier: Apache-2.0
"""What `python -m motet.torch.bridge test` does: a process for each rank, its steps, a deadline."""

from __future__ import annotations

import datetime
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .bridge import make_nccl_backend

# Elements of the tensors: one, a number that is no multiple of anything, and some megabytes.
SIZES = (1, 1021, 1 << 20)
STEPS_OF_TRAINING = 5
# How long the other ranks have to fail for their own part after the first one did.
GRACE_S = 3


class Run(NamedTuple):
    """What all ranks are told."""

    ranks: int
    cards: int  # a rank's card is its number modulo this
    module: str
    device: str
    timeout: float
    folder: str  # in which the ranks meet


class Rank(NamedTuple):
    """One rank, ready: its group is there."""

    rank: int
    size: int
    local: int
    device: str
    backend: Any

    def ramp(self, rank: int, elements: int) -> torch.Tensor:
        """What `rank` gives to a collective. It differs from rank to rank and from element to
        element, so that data of another rank or from another place are told apart, and it is
        whole, so that sums are exact."""
        return torch.arange(elements, device=self.device).remainder(1000).float() + (rank + 1)

    def finish(self, work: Any) -> None:
        """Wait for the work, and for the card too: `wait` itself only orders its streams."""
        work.wait()
        if self.device == "cuda":
            torch.cuda.synchronize()


def _expect(got: torch.Tensor, wanted: torch.Tensor) -> None:
    wrong = (got != wanted).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {got.numel()} elements are wrong, the first is element {first}: "
            f"{got[first].item()}, expected {wanted[first].item()}"
        )


def _total(me: Rank, ranks: range, elements: int) -> torch.Tensor:
    return torch.stack([me.ramp(r, elements) for r in ranks]).sum(0)


# ---- the steps: each returns the end of its line


def _all_reduce(me: Rank) -> str:
    sums = []
    for elements in SIZES:
        t = me.ramp(me.rank, elements)
        me.finish(me.backend.allreduce([t]))
        _expect(t, _total(me, range(me.size), elements))
        sums.append(t[0].item())
    return f"value={sums[0]}"


def _broadcast(me: Rank) -> str:
    for elements in SIZES:
        for root in range(me.size):
            t = me.ramp(me.rank, elements)
            me.finish(me.backend.broadcast(t, root))
            _expect(t, me.ramp(root, elements))
    return f"roots={me.size}"


def _all_gather(me: Rank) -> str:
    for elements in SIZES:
        out = [torch.zeros(elements, device=me.device) for _ in range(me.size)]
        me.finish(me.backend.allgather([out], [me.ramp(me.rank, elements)]))
        _expect(torch.cat(out), torch.cat([me.ramp(r, elements) for r in range(me.size)]))
    return f"parts={me.size}"


def _reduce_scatter(me: Rank) -> str:
    for elements in SIZES:
        t = torch.zeros(elements, device=me.device)
        parts = [me.ramp(me.rank + r, elements) for r in range(me.size)]
        me.finish(me.backend.reduce_scatter([t], [parts]))
        _expect(t, _total(me, range(me.rank, me.rank + me.size), elements))
    return f"parts={me.size}"


def _async_work(me: Rank) -> str:
    """All are begun before the first is waited for."""
    tensors = [me.ramp(me.rank, elements) for elements in SIZES]
    works = [me.backend.allreduce([t]) for t in tensors]
    for t, work in zip(tensors, works):
        me.finish(work)
        if not work.is_completed():
            raise AssertionError("it was waited for, and says that it is not completed")
        _expect(t, _total(me, range(me.size), t.numel()))
    return f"works={len(works)}"


def _subgroup(me: Rank) -> str:
    """A group of each half, with a sum of its own."""
    mine = range(0)
    for ranks in (range(me.size // 2), range(me.size // 2, me.size)):
        group = dist.new_group(list(ranks)) if ranks else None
        if me.rank not in ranks:
            continue
        mine = ranks
        for elements in SIZES:
            t = me.ramp(me.rank, elements)
            dist.all_reduce(t, group=group)
            _expect(t, _total(me, ranks, elements))
    return f"ranks={','.join(map(str, mine))}"


def _network(device: str) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = (torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    return torch.nn.Sequential(*layers).to(device)


def _losses(me: Rank, model: torch.nn.Module, ranks: range, wanted: int) -> list[float]:
    """Train on the data of `ranks`; the losses on those of rank `wanted`, one of them."""
    data = []
    for rank in ranks:
        torch.manual_seed(100 + rank)
        data.append((torch.randn(8, 16).to(me.device), torch.randn(8, 1).to(me.device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    said = []
    for _ in range(STEPS_OF_TRAINING):
        optimizer.zero_grad()
        losses = [torch.nn.functional.mse_loss(model(x), y) for x, y in data]
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        said.append(losses[ranks.index(wanted)].item())
    return said


def _compare(me: Rank, model: torch.nn.Module) -> str:
    """The model is trained on this rank's data; its losses are those of one process that has
    the data of all ranks."""
    losses = _losses(me, model, range(me.rank, me.rank + 1), me.rank)
    wanted = _losses(me, _network(me.device), range(me.size), me.rank)
    if any(not abs(a - b) <= 1e-4 * max(1.0, abs(b)) for a, b in zip(losses, wanted)):
        raise AssertionError(f"the losses are {losses}, one process alone has {wanted}")
    return f"losses={losses[0]:.6f}..{losses[-1]:.6f}"


def _ddp(me: Rank) -> str:
    ids = [me.local] if me.device == "cuda" else None
    return _compare(
        me, torch.nn.parallel.DistributedDataParallel(_network(me.device), device_ids=ids)
    )


def _hsdp(me: Rank) -> str:
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return f"skipped: PyTorch {torch.__version__} has no fully_shard"
    shape = (me.size // 2, 2) if me.size >= 4 and me.size % 2 == 0 else (1, me.size)
    mesh = init_device_mesh(me.device, shape, mesh_dim_names=("replicate", "shard"))
    model = _network(me.device)
    fully_shard(model, mesh=mesh)
    return f"mesh={shape[0]}x{shape[1]} {_compare(me, model)}"


STEPS: dict[str, Callable[[Rank], str]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "async Work": _async_work,
    "subgroup": _subgroup,
    "DDP": _ddp,
    "HSDP": _hsdp,
}
# How a line begins, where not with the name of the step.
LABELS = {"all_reduce": "RANK_PASS"}


# ---- a rank's process


def _create(options: Any, _backend_options: Any, module: str) -> Any:
    milliseconds = int(options.timeout.total_seconds() * 1000)
    return make_nccl_backend(
        options.store, options.group_rank, options.group_size, milliseconds, module=module
    )


def _join(run: Run, rank: int) -> Rank:
    local = rank % run.cards
    if run.device == "cuda":
        torch.cuda.set_device(local)
    create = functools.partial(_create, module=run.module)
    dist.Backend.register_backend("bridge", create, extended_api=True, devices=[run.device])
    dist.init_process_group(
        "bridge",
        store=dist.FileStore(os.path.join(run.folder, "group"), run.ranks),
        rank=rank,
        world_size=run.ranks,
        timeout=datetime.timedelta(seconds=run.timeout),
    )
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device(run.device))
    return Rank(rank, run.ranks, local, run.device, backend)


def _take_steps(run: Run, rank: int) -> None:
    step = "init_process_group"
    try:
        me = _join(run, rank)
        # The ranks take each step together, not by the backend that is tested: the lines of
        # all of them stand together then, and what fails is the step that is named.
        meeting = dist.FileStore(os.path.join(run.folder, "steps"), run.ranks)
        meeting.set_timeout(datetime.timedelta(seconds=run.timeout))
        for step, take in STEPS.items():
            line = f"{LABELS.get(step, step)} rank={rank} local_rank={me.local} {take(me)}"
            # With its end in one piece: lines of other ranks come in between otherwise.
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            meeting.set(f"{step} {rank}", "done")
            meeting.wait([f"{step} {r}" for r in range(run.ranks)])
        step = "destroy_process_group"
        dist.destroy_process_group()
    except Exception as reason:
        kind = "" if isinstance(reason, AssertionError) else f"{type(reason).__name__}: "
        raise RuntimeError(f"{step}: {kind}{reason}") from None


def rank_process(run: Run, rank: int) -> None:
    """One rank; what fails in it is said, and its status is 1."""
    try:
        _take_steps(run, rank)
    except RuntimeError as reason:
        print(f"motet.torch.bridge: rank {rank}: {reason}", file=sys.stderr, flush=True)
        # At once: the group's destructor may wait for ranks that are no more.
        os._exit(1)


# ---- the process that starts them


def _named(process: SpawnProcess) -> str:
    return f"{process.name} (pid {process.pid})"


def _how(code: int) -> str:
    return f"status {code}" if code >= 0 else signal.Signals(-code).name


def _watch(ranks: list[SpawnProcess], timeout: float) -> list[str]:
    """Until all have ended, or are given up: what went wrong, a sentence each."""
    end, why = time.monotonic() + timeout, f"{timeout:g} s"
    running, faults = ranks, []
    while running:
        left = end - time.monotonic()
        if left <= 0:
            names = ", ".join(map(_named, running))
            faults.append(f"still running after {why}, and so ended: {names}")
            break
        multiprocessing.connection.wait([p.sentinel for p in running], left)
        ended = [p for p in running if p.exitcode is not None]
        running = [p for p in running if p not in ended]
        failed = [p for p in ended if p.exitcode]
        if failed and not faults:
            end, why = min(end, time.monotonic() + GRACE_S), f"the failure of {failed[0].name}"
        faults += [f"{_named(p)} ended with {_how(p.exitcode or 0)}" for p in failed]
    return faults


def _end(ranks: list[SpawnProcess]) -> None:
    """Those that still run, each by its number; first so that they can clean up."""
    for stop in (SpawnProcess.terminate, SpawnProcess.kill):
        running = [p for p in ranks if p.is_alive()]
        for process in running:
            stop(process)
        for process in running:
            process.join(GRACE_S)


def run_ranks(run: Run) -> list[str]:
    """All ranks; what went wrong, nothing if all went well."""
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=rank_process, args=(run, rank), name=f"rank {rank}")
        for rank in range(run.ranks)
    ]
    started = []
    try:
        for process in ranks:
            process.start()
            started.append(process)
        return _watch(started, run.timeout)
    finally:
        _end(started)
