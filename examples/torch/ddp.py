#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data parallel: DistributedDataParallel trains a small network, each rank on its share.

    torchrun --nproc-per-node 4 examples/torch/ddp.py [--device cuda]
    motet run -n 4 -- python examples/torch/ddp.py

Rank 0 prints the loss of every 20th step, and beside it the loss of the same network when one
process trains it on the whole batch. The number of ranks must divide 48:

    step  0: loss 0.498139, one process 0.498139
    step 20: loss 0.040309, one process 0.040309
    step 40: loss 0.029320, one process 0.029320
    step 60: loss 0.018834, one process 0.018834
    step 80: loss 0.015047, one process 0.015047
    PASS: 4 ranks, losses as in one process
"""

import sys

import torch
import torch.distributed as dist
from launch import end, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, STEPS = 48, 100


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).double()


def batch():
    """The same on every rank: points, and what the network is to learn of them."""
    points = torch.randn(BATCH, 2, generator=torch.Generator().manual_seed(2)).double()
    return points, points.prod(1, keepdim=True).sin()


def train(model, share, device):
    """Losses of the steps, over the part ``share`` of the batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    points, wanted = (tensor[share].to(device) for tensor in batch())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), wanted)
        loss.backward()  # DDP averages the gradients meanwhile
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    place = start(__doc__, divides=BATCH)
    share = slice(place.rank, BATCH, place.size)
    model = DistributedDataParallel(network().to(place.device))
    losses = train(model, share, place.device)
    dist.all_reduce(losses)
    losses /= place.size

    alone = train(network().to(place.device), slice(None), place.device)
    if place.rank == 0:
        for step in range(0, STEPS, 20):
            print(f"step {step:2d}: loss {losses[step]:.6f}, one process {alone[step]:.6f}")
    return end(place, torch.allclose(losses, alone), "losses as in one process")


if __name__ == "__main__":
    sys.exit(main())
