# SPDX-License-Identifier: Apache-2.0
"""What `python -m motet.torch.bridge test` does on each rank, with any c10d backend."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def _expect(what: str, got: torch.Tensor, wanted: list[float]) -> None:
    if got.tolist() != wanted:
        raise AssertionError(f"{what}: {got.tolist()}, expected {wanted}")


def collectives(backend: Any, rank: int, size: int, device: str = "cuda") -> None:
    """all_reduce first, which is what people look for, then the others, by the backend itself."""

    def tensor(*values: float) -> torch.Tensor:
        return torch.tensor(values, device=device)

    def finish(work: Any) -> None:
        work.wait()
        if device == "cuda":
            torch.cuda.synchronize()

    total = float(size * (size + 1) // 2)
    t = tensor(rank + 1.0)
    finish(backend.allreduce([t]))
    _expect("all_reduce", t, [total])
    print(f"RANK_PASS rank={rank} local_rank={rank} value={t.item()}", flush=True)

    t = tensor(rank + 1.0, 7.0)
    finish(backend.broadcast(t, 0))
    _expect("broadcast", t, [1.0, 7.0])

    out = [tensor(0.0) for _ in range(size)]
    finish(backend.allgather([out], [tensor(rank + 1.0)]))
    _expect("all_gather", torch.cat(out), [r + 1.0 for r in range(size)])

    t = tensor(0.0)
    parts = [tensor(float(rank + r)) for r in range(size)]
    finish(backend.reduce_scatter([t], [parts]))
    _expect("reduce_scatter", t, [float(sum(range(size)) + size * rank)])

    t = tensor(rank + 1.0)
    work = backend.allreduce([t])
    finish(work)
    if not work.is_completed():
        raise AssertionError("async Work: waited for, and not completed")
    _expect("async Work", t, [total])


def _network(device: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    ).to(device)


def _losses(model: torch.nn.Module, rank: int, device: str, steps: int = 5) -> list[float]:
    torch.manual_seed(100 + rank)
    x, y = torch.randn(8, 16, device=device), torch.randn(8, 1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def subgroup(rank: int, size: int, device: str) -> None:
    """Two groups of the halves, each with a sum of its own."""
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    for ranks in halves:
        group = dist.new_group(ranks)
        if rank in ranks:
            t = torch.tensor([rank + 1.0], device=device)
            dist.all_reduce(t, group=group)
            _expect("subgroup", t, [float(sum(r + 1 for r in ranks))])


def training(rank: int, size: int, device: str = "cuda") -> None:
    """DDP and, where this PyTorch has it, HSDP on a DeviceMesh; in the group that is there."""
    subgroup(rank, size, device)
    ids = [rank] if device == "cuda" else None
    model = torch.nn.parallel.DistributedDataParallel(_network(device), device_ids=ids)
    losses = _losses(model, rank, device)
    if not losses[-1] < losses[0]:
        raise AssertionError(f"DDP: the loss does not fall: {losses}")
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        print(f"HSDP: not tried, PyTorch {torch.__version__} has no fully_shard", flush=True)
        return
    shape = (size // 2, 2) if size >= 4 else (1, size)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("replicate", "shard"))
    sharded = _network(device)
    fully_shard(sharded, mesh=mesh)
    theirs = _losses(sharded, rank, device)
    if any(abs(a - b) > 1e-4 * max(1.0, abs(a)) for a, b in zip(losses, theirs)):
        raise AssertionError(f"HSDP: losses {theirs}, DDP has {losses}")
