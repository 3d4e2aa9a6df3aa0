# SPDX-License-Identifier: Apache-2.0
"""Training with the backend `motet` gives the losses and the parameters that `gloo` gives.

On CPU ranks, from the same seeds: data parallel, sharded, tensor parallel and pipelined. Each
case runs once with each backend, in processes of its own; what the ranks leave is compared.
"""

import functools
import os
import shutil
import sys
import tempfile
import unittest
from typing import NamedTuple

from rank_processes import SECONDS, Row, check, dist, torch

try:
    import torch.distributed.fsdp as fsdp
    import torch.distributed.pipelining as pp
    import torch.distributed.tensor.parallel as tp
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.join import Join
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.nn.utils import clip_grad_norm_
except ImportError as reason:
    print(f"not run: {reason}")
    sys.exit(77)

STEPS, BATCH, WIDTH, SEED = 6, 12, 10, 7  # ten rows divide by two ranks, not by four
BUCKETS_MB = 0.0005  # several buckets, though the network is tiny


class Network(nn.Module):
    def __init__(self, seed, norm=nn.BatchNorm1d):
        super().__init__()
        torch.manual_seed(seed)
        self.enter = nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = norm(2 * WIDTH)  # has buffers, which DDP broadcasts
        self.middle = nn.Linear(2 * WIDTH, WIDTH)
        self.leave = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.leave(torch.tanh(self.middle(torch.relu(self.norm(self.enter(x))))))


class Branches(nn.Module):
    """A step uses one branch of two, another on each rank; the third is never used."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.branches = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(3))
        self.calls = dist.get_rank()

    def forward(self, x):
        self.calls += 1
        return self.branches[self.calls % 2](x)


def share(seed, step, rank):
    """What a rank learns in a step, and from what."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * step + rank)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, torch.sin(x[:, :3] * x[:, 3:6])


def loss_of(model, *of_a_share):
    x, wanted = share(*of_a_share)
    return nn.functional.mse_loss(model(x).float(), wanted)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def learn(model, seed, rank, optimizer=None, steps=STEPS, clip=None):
    """Losses of the steps. Clipped, gradients have one norm over all ranks: listed too."""
    optimizer, losses = optimizer or sgd(model), []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, seed, step, rank)
        loss.backward()
        losses += [loss.item()] + ([whole([clip()])[0].item()] if clip else [])
        optimizer.step()
    return losses


def whole(tensors):
    return [t.full_tensor() if isinstance(t, DTensor) else t.clone() for t in tensors]


def result(model, losses):
    with torch.no_grad():
        return losses, whole(model.parameters()), whole(model.buffers())


# ---- data parallel: ranks begin with other parameters, DDP broadcasts those of rank 0


def ddp(seed, kind=Network, **options):
    model = kind(seed + dist.get_rank())
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=BUCKETS_MB, **options)


def data_parallel(rank, size, seed, hook=None, **options):
    model = ddp(seed, **options)
    if hook:
        model.register_comm_hook(None, hook)
    return result(model, learn(model, seed, rank))


def accumulated(rank, size, seed):
    model = ddp(seed, gradient_as_bucket_view=True)
    optimizer, losses = sgd(model), []
    for step in range(STEPS):
        with model.no_sync():
            loss_of(model, seed, 2 * step, rank).backward()
        loss = loss_of(model, seed, 2 * step + 1, rank)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return result(model, losses)


def to_bf16(state, bucket):
    """DDP refuses the hook inside by its name where there is no CUDA, though it works."""
    return default_hooks.bf16_compress_hook(state, bucket)


def to_wrong(state, bucket):
    """For the control: a little more than the average."""
    return default_hooks.allreduce_hook(None, bucket).then(lambda future: future.value() * 1.001)


def uneven_inputs(rank, size, seed):
    """Ranks that have no more input take part until the last has done its steps."""
    model = ddp(seed)
    with Join([model]):
        losses = learn(model, seed, rank, steps=STEPS - rank)
    return result(model, losses)


def sharded_optimizer(rank, size, seed):
    model = ddp(seed)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05, eps=1e-3)
    return result(model, learn(model, seed, rank, optimizer))


# ---- sharded


def mesh_of(*sizes):
    return init_device_mesh("cpu", sizes, mesh_dim_names=("outer", "inner")[-len(sizes) :])


def sharded(rank, size, seed, strategy="FULL_SHARD", mesh=(), **options):
    model = fsdp.FullyShardedDataParallel(
        Network(seed, nn.LayerNorm),
        sharding_strategy=fsdp.ShardingStrategy[strategy],
        device_id=torch.device("cpu"),
        auto_wrap_policy=lambda module, recurse, **_: recurse or isinstance(module, nn.Linear),
        use_orig_params=True,
        device_mesh=mesh_of(*mesh) if mesh else None,
        **options,
    )
    losses = learn(model, seed, rank, clip=lambda: model.clip_grad_norm_(1.0))
    with model.summon_full_params(model):
        return result(model, losses)


def sharded_fully(rank, size, seed, mesh=(), **options):
    mesh = mesh_of(*(mesh or (size,)))
    model = Network(seed, nn.LayerNorm)
    for part in (model.enter, model.middle, model):
        fsdp.fully_shard(part, mesh=mesh, **options)
    losses = learn(model, seed, rank, clip=lambda: clip_grad_norm_(model.parameters(), 1.0))
    return result(model, losses)


# ---- tensor parallel, the activations between the layers whole or split too; pipelined

WHOLE = {"enter": tp.ColwiseParallel(), "middle": tp.RowwiseParallel()}
SPLIT = {
    "enter": tp.ColwiseParallel(),
    "middle": tp.RowwiseParallel(output_layouts=Shard(0)),
    "leave": tp.ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
}


def tensor_parallel(rank, size, seed, plan=WHOLE, shards=1):
    mesh = mesh_of(shards, size // shards)
    model = tp.parallelize_module(Network(seed, nn.Identity), mesh["inner"], plan)
    if shards > 1:
        fsdp.fully_shard(model, mesh=mesh["outer"])
    return result(model, learn(model, seed, mesh.get_local_rank("outer")))


def pipelined(rank, size, seed, schedule):
    """Ranks hold a layer each; the last knows the losses."""
    torch.manual_seed(seed + rank)
    last = rank == size - 1
    layer = nn.Sequential(nn.Linear(WIDTH, 3 if last else WIDTH), nn.Tanh())
    stage = pp.PipelineStage(layer, rank, size, torch.device("cpu"))
    pipeline = schedule(stage, 4, loss_fn=nn.functional.mse_loss)
    optimizer, losses = sgd(layer), []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, wanted = share(seed, step, 0)
        parts = []
        pipeline.step(*([] if rank else [x]), target=wanted if last else None, losses=parts)
        optimizer.step()
        losses += [loss.item() for loss in parts]
    return result(layer, losses)


# ---- the cases


class Case(NamedTuple):
    """What the ranks do, and how far the sums of the backends may be apart, relatively."""

    train: object
    size: int = 2
    options: dict = {}
    apart: float = 1e-5
    alike: bool = True  # at the end, ranks hold equal parameters


def of_sizes(name, train, options=None):
    return {f"{name}, {n} ranks": Case(train, n, options or {}) for n in (2, 4)}


DATA_PARALLEL = {
    **of_sizes("DDP", data_parallel),
    **of_sizes("DDP, no_sync", accumulated),
    **of_sizes("DDP, unused", data_parallel, {"kind": Branches, "find_unused_parameters": True}),
    "DDP, bf16, 2 ranks": Case(data_parallel, 2, {"hook": to_bf16}),
    "DDP, bf16, 4 ranks": Case(data_parallel, 4, {"hook": to_bf16}, apart=1e-3),
    "DDP, fp16": Case(data_parallel, 4, {"hook": default_hooks.fp16_compress_hook}, apart=1e-4),
    "DDP, Join": Case(uneven_inputs, 4),
    **of_sizes("ZeRO", sharded_optimizer),
}
BF16 = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
SHARDED = {
    **of_sizes("FULL_SHARD", sharded),
    **of_sizes("SHARD_GRAD_OP", sharded, {"strategy": "SHARD_GRAD_OP"}),
    "FULL_SHARD, bf16": Case(sharded, 4, {"mixed_precision": fsdp.MixedPrecision(**BF16)}),
    "HYBRID_SHARD": Case(sharded, 4, {"strategy": "HYBRID_SHARD", "mesh": (2, 2)}),
    **of_sizes("fully_shard", sharded_fully),
    "fully_shard, kept": Case(sharded_fully, 4, {"reshard_after_forward": False}),
    "fully_shard, bf16": Case(sharded_fully, 4, {"mp_policy": fsdp.MixedPrecisionPolicy(**BF16)}),
    "fully_shard, 2 x 2": Case(sharded_fully, 4, {"mesh": (2, 2)}),
}
OTHERS = {
    **of_sizes("tensor parallel", tensor_parallel),
    "tensor parallel, split": Case(tensor_parallel, 2, {"plan": SPLIT}),
    "fully_shard and tensor parallel": Case(tensor_parallel, 4, {"shards": 2}),
    "GPipe": Case(pipelined, 2, {"schedule": pp.ScheduleGPipe}, alike=False),
    "1F1B": Case(pipelined, 4, {"schedule": pp.Schedule1F1B}, alike=False),
}


# ---- runs and comparisons


def trained(case, backend, seed, left, rank, size):
    """A rank: trains, and leaves its losses, parameters and buffers in a file."""
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.abspath("store"), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=60 * SECONDS)
    torch.save(case.train(rank, size, seed, **case.options), f"{left}.{rank}")
    groups = {name for name, _ in dist.distributed_c10d._world.pg_map.values()}
    assert groups == {backend}, f"training made groups of {groups}"
    dist.destroy_process_group()
    os._exit(0)  # to take down all of PyTorch takes longer than to train


def differences(case, ours, theirs):
    """Of two runs of a case, each what its ranks left; nothing if there is none."""
    found = []
    for rank, (mine, wanted) in enumerate(zip(ours, theirs)):
        losses, other = (torch.tensor(run[0]) for run in (mine, wanted))
        if len(losses) != len(other) or not torch.allclose(losses, other, case.apart, 0):
            found.append(f"rank {rank}, losses: {mine[0]}, not {wanted[0]}")
        for one, another in zip(mine[1] + mine[2], wanted[1] + wanted[2]):
            if not torch.allclose(one, another, case.apart, case.apart):
                found.append(f"rank {rank}, parameters or buffers: {one}, not {another}")
        if case.alike and not all(map(torch.equal, mine[1], ours[0][1])):
            found.append(f"rank {rank}: other parameters than rank 0")
    return "\n".join(found)


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()  # a child that ends must not remove it
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def left_by(self, runs):
        """What the ranks left, by the name of the run: a case, a backend and a seed."""
        rows, left = {}, {}
        for number, (name, run) in enumerate(runs.items()):
            path, size = os.path.join(self.folder, str(number)), run[0].size
            rows[name] = Row(functools.partial(trained, *run, path), size, init=False)
            left[name] = [f"{path}.{rank}" for rank in range(size)]
        check(self, rows)
        return {name: [torch.load(path) for path in paths] for name, paths in left.items()}

    def compare(self, cases):
        runs = {f"{n} by {b}": (cases[n], b, SEED) for n in cases for b in ("gloo", "motet")}
        left = self.left_by(runs)
        found = ""
        for name, case in cases.items():
            what = differences(case, left[f"{name} by motet"], left[f"{name} by gloo"])
            found += what and f"\n{name}: {what}"
        self.assertFalse(found, found)

    def test_data_parallel(self):
        self.compare(DATA_PARALLEL)

    def test_sharded(self):
        self.compare(SHARDED)

    def test_tensor_parallel_and_pipelined(self):
        self.compare(OTHERS)

    def test_the_comparison_can_fail(self):
        case = Case(data_parallel)
        runs = {
            "right": (case, "gloo", SEED),
            "again": (case, "motet", SEED),
            "seed": (case, "motet", SEED + 1),
            "wrong": (Case(data_parallel, options={"hook": to_wrong}), "motet", SEED),
        }
        left = self.left_by(runs)
        left["mixed"] = [left["right"][0], left["seed"][1]]
        found = {name: differences(case, left[name], left["right"]) for name in left}
        self.assertEqual(found["again"], "")
        for name in ("seed", "wrong", "mixed"):
            self.assertRegex(found[name], "(?s)losses.*parameters or buffers")
        self.assertIn("other parameters than rank 0", found["mixed"])


if __name__ == "__main__":
    unittest.main()
