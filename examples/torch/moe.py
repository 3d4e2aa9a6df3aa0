#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts: tokens travel to the rank of their expert, and back.

    torchrun --nproc-per-node 4 examples/torch/moe.py [--device cuda]
    motet run -n 4 -- python examples/torch/moe.py

A gate gives each token to one of 12 experts, which are spread over the ranks. How many go from
one rank to another differs, and may be none: rank 0 has no tokens, unless it is alone. It prints
the loss of each step, beside that of all experts in one place. The number of ranks must divide 12:

    step 0: loss 17.220353, in one place 17.220353
    step 1: loss 16.381862, in one place 16.381862
    step 2: loss 15.570455, in one place 15.570455
    PASS: 4 ranks, losses and weights as in one place
"""

import sys

import torch
import torch.distributed as dist
from launch import end, start, values

EXPERTS, WIDTH, TOKENS, STEPS = 12, 16, 50, 3


class Travel(torch.autograd.Function):
    """Rows to the ranks, as many as ``sent`` says; gradients go the other way."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.splits = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.splits
        out = gradient.new_empty(sum(sent), gradient.shape[1])
        dist.all_to_all_single(out, gradient.contiguous(), sent, received)
        return out, None, None


def here(tokens, expert, weights):
    """Each token through its expert; ``weights`` has a matrix for each."""
    return torch.tanh(tokens.unsqueeze(1) @ weights[expert]).squeeze(1)


def there(tokens, expert, weights, size):
    """The same, where ``weights`` has only this rank's experts."""
    order = torch.argsort(expert, stable=True)
    counts = torch.bincount(expert, minlength=EXPERTS)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)  # how many each rank has for each expert of ours
    sent = counts.view(size, -1).sum(1).tolist()
    received = arriving.view(size, -1).sum(1).tolist()
    guests = Travel.apply(tokens[order], sent, received)
    local = torch.arange(len(weights), device=tokens.device).repeat(size)
    back = Travel.apply(here(guests, local.repeat_interleave(arriving), weights), received, sent)
    return back[torch.argsort(order)]


def train(device, tokens, experts, size):
    """Losses and weights; ``tokens`` and ``experts`` are what this rank has of them."""
    gate = (values(1, WIDTH, EXPERTS) / WIDTH**0.5).to(device).requires_grad_()
    weights = (values(2, EXPERTS, WIDTH, WIDTH)[experts] / WIDTH**0.5).to(device).requires_grad_()
    x, wanted = (values(seed, TOKENS, WIDTH)[tokens].to(device) for seed in (3, 4))
    losses = []
    for _ in range(STEPS):
        chance, expert = torch.softmax(x @ gate, 1).max(1)
        results = there(x, expert, weights, size) if size > 1 else here(x, expert, weights)
        loss = ((results * chance.unsqueeze(1) - wanted) ** 2).sum() / TOKENS
        losses.append(loss.detach())
        of_gate, of_experts = torch.autograd.grad(loss, (gate, weights))
        if size > 1:
            dist.all_reduce(of_gate)  # each rank has its tokens' part
        with torch.no_grad():
            gate -= of_gate
            weights -= of_experts
    return torch.stack(losses), gate, weights


def main():
    rank, size, device = place = start(__doc__, divides=EXPERTS)
    tokens = [t for t in range(TOKENS) if size == 1 or 1 + t * t % (size - 1) == rank]
    experts = slice(EXPERTS * rank // size, EXPERTS * (rank + 1) // size)
    losses, *ours = train(device, tokens, experts, size)
    dist.all_reduce(losses)
    whole, gate, weights = train(device, slice(None), slice(None), 1)
    if rank == 0:
        for step in range(STEPS):
            print(f"step {step}: loss {losses[step]:.6f}, in one place {whole[step]:.6f}")
    pairs = zip((losses, *ours), (whole, gate, weights[experts]))
    same = all(torch.allclose(mine, theirs) for mine, theirs in pairs)
    return end(place, same, "losses and weights as in one place")


if __name__ == "__main__":
    sys.exit(main())
