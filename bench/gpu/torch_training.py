#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DDP and FSDP training on tensors of GPUs by torch.distributed: the losses of each step
must be those of one process that trains on all ranks' batches.

    motet run --as nccl -- python3 torch_training.py --ranks 2
    python3 torch_training.py --ranks 2 --backend motet

Where there is a GPU for every rank the losses can also be compared with those of another
library: `--write FILE` under it, then `--against FILE` under motet.
"""

import copy
import json
import os

from ranks import Unsupported, expect, run, skip

try:
    import torch
    import torch.distributed as dist
    from torch import nn
except ImportError as error:
    skip(f"PyTorch: {error}")

STEPS = 30
BATCH = 16
WORDS = 128
WIDTH = 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Model(nn.Module):
    """A small transformer that learns the next of a periodic sequence of words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    start = torch.randint(0, WORDS, (BATCH, 1), generator=generator)
    stride = torch.randint(1, 4, (BATCH, 1), generator=generator)
    words = (start + stride * torch.arange(33)) % WORDS
    return words[:, :-1], words[:, 1:]


def loss_of(model, step, rank, device):
    words, following = (t.to(device) for t in batch(step, rank))
    logits = model(words)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())


def fresh(device):
    torch.manual_seed(7)
    return Model().to(device)


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def alone(device, ranks):
    """The reference: one process, the mean of the gradients of all ranks' batches."""
    model = fresh(device)
    optimizer = optimizer_of(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for rank in range(ranks):
            loss = loss_of(model, step, rank, device) / ranks
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def train(model, device, rank):
    """Losses of all steps, averaged over the ranks."""
    optimizer = optimizer_of(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step, rank, device)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def close(got, want, what, slack):
    expect(len(got) == len(want), f"{what}: {len(got)} steps")
    for step, (a, b) in enumerate(zip(got, want)):
        expect(abs(a - b) <= slack * (1 + abs(b)), f"{what}: step {step}: loss {a}, expected {b}")
    expect(got[-1] < got[0] * 0.9, f"{what}: nothing was learned: {got[0]} … {got[-1]}")


class Training:
    def __init__(self, cases):
        self.cases = cases
        self.rank = cases.rank
        self.device = torch.device("cuda", cases.rank % torch.cuda.device_count())
        self.losses = {}

    def reference(self):
        self.losses["alone"] = alone(self.device, self.cases.ranks)

    def keep(self, name, losses, slack=2e-3):
        self.losses[name] = losses
        close(losses, self.losses["alone"], name, slack)

    def ddp(self):
        model = nn.parallel.DistributedDataParallel(
            fresh(self.device), device_ids=[self.device.index], bucket_cap_mb=1
        )
        self.keep("ddp", train(model, self.device, self.rank))

    def ddp_again(self):
        """Bit for bit the same as before: same inputs, same topology, same bits."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        runs = []
        for _ in range(2):
            model = nn.parallel.DistributedDataParallel(fresh(self.device), device_ids=[self.device.index])
            train(model, self.device, self.rank)
            runs.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        torch.use_deterministic_algorithms(False)
        gathered = [torch.empty_like(runs[1]) for _ in range(self.cases.ranks)]
        dist.all_gather(gathered, runs[1])
        for rank, other in enumerate(gathered):
            expect(torch.equal(other, runs[1]), f"rank {rank} has other parameters")

    def ddp_bf16_hook(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model = nn.parallel.DistributedDataParallel(fresh(self.device), device_ids=[self.device.index])
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        self.keep("ddp_bf16", train(model, self.device, self.rank), 3e-2)

    def fsdp(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(fresh(self.device), device_id=self.device, use_orig_params=True)
        self.keep("fsdp", train(model, self.device, self.rank))

    def fsdp2(self):
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError as error:
            raise Unsupported(str(error)) from error
        from torch.distributed.device_mesh import init_device_mesh

        if self.cases.ranks > torch.cuda.device_count():
            # The mesh sets the device by the rank's number.
            mesh = dist.device_mesh.DeviceMesh.from_group(dist.group.WORLD, "cuda")
        else:
            mesh = init_device_mesh("cuda", (self.cases.ranks,))
        model = fresh(self.device)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.keep("fsdp2", train(model, self.device, self.rank))

    def zero(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        model = nn.parallel.DistributedDataParallel(fresh(self.device), device_ids=[self.device.index])
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, step, self.rank, self.device)
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(mean.item())
        self.keep("zero", losses)

    def files(self):
        options = self.cases.options
        if options.write and self.rank == 0:
            with open(options.write, "w", encoding="utf-8") as stream:
                json.dump(self.losses, stream)
        if options.against:
            with open(options.against, encoding="utf-8") as stream:
                other = json.load(stream)
            for name, losses in copy.copy(other).items():
                if name in self.losses:
                    close(self.losses[name], losses, f"{name} against the other library", 2e-3)


def body(cases):
    training = Training(cases)
    torch.cuda.set_device(training.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    dist.init_process_group(cases.options.backend, device_id=training.device)
    for case in "reference ddp ddp_again ddp_bf16_hook fsdp fsdp2 zero files".split():
        cases.run(case, getattr(training, case))
    cases.run("destroy_process_group", dist.destroy_process_group)


def more(parser):
    parser.add_argument("--write", help="leave the losses in this file")
    parser.add_argument("--against", help="compare with the losses in this file")


if __name__ == "__main__":
    run(body, more)
