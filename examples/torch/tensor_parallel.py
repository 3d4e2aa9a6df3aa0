#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel: an MLP whose first matrix is split by columns and the second by rows.

    torchrun --nproc-per-node 4 examples/torch/tensor_parallel.py [--device cuda]
    motet run -n 4 -- python examples/torch/tensor_parallel.py

Each rank holds a slice of the hidden layer. Two all_reduces make the whole of it: one of the
output on the way forward, one of the input's gradient on the way back. Rank 0 prints the loss
of each step, beside that of the unsplit MLP. The number of ranks must divide 48:

    step 0: loss 1.367618, unsplit 1.367618
    step 1: loss 0.900634, unsplit 0.900634
    step 2: loss 0.770720, unsplit 0.770720
    step 3: loss 0.696037, unsplit 0.696037
    PASS: 4 ranks, losses and weights as unsplit
"""

import sys

import torch
import torch.distributed as dist
from launch import end, start, values

WIDTH, HIDDEN, TOKENS, STEPS = 16, 48, 32, 4


class Enter(torch.autograd.Function):
    """The input of the split part: each rank's gradient of it is a part of the sum."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class Leave(torch.autograd.Function):
    """The output of the split part: each rank's is a part of the sum."""

    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def unsplit(x, up, down):
    return torch.tanh(x @ up) @ down


def split(x, up, down):
    return Leave.apply(torch.tanh(Enter.apply(x) @ up) @ down)


def train(mlp, share, device):
    """Losses and the weights after the last step; ``share`` of the hidden layer is ours."""
    before = (values(1, WIDTH, WIDTH) / WIDTH**0.5).to(device).requires_grad_()  # not split
    up = (values(2, WIDTH, HIDDEN)[:, share] / WIDTH**0.5).to(device).requires_grad_()
    down = (values(3, HIDDEN, WIDTH)[share] / HIDDEN**0.5).to(device).requires_grad_()
    x, wanted = (values(seed, TOKENS, WIDTH).to(device) for seed in (4, 5))
    losses = []
    for _ in range(STEPS):
        loss = ((mlp(x @ before, up, down) - wanted) ** 2).mean()
        losses.append(loss.detach())
        gradients = torch.autograd.grad(loss, (before, up, down))
        with torch.no_grad():
            for weights, gradient in zip((before, up, down), gradients):
                weights.sub_(gradient)
    return torch.stack(losses), (before, up, down)


def main():
    place = start(__doc__, divides=HIDDEN)
    part = HIDDEN // place.size
    share = slice(place.rank * part, (place.rank + 1) * part)
    losses, ours = train(split, share, place.device)
    whole, (before, up, down) = train(unsplit, slice(None), place.device)
    if place.rank == 0:
        for step in range(STEPS):
            print(f"step {step}: loss {losses[step]:.6f}, unsplit {whole[step]:.6f}")
    pairs = zip((losses, *ours), (whole, before, up[:, share], down[share]))
    same = all(torch.allclose(mine, theirs) for mine, theirs in pairs)
    return end(place, same, "losses and weights as unsplit")


if __name__ == "__main__":
    sys.exit(main())
