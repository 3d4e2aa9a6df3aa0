# SPDX-License-Identifier: Apache-2.0
"""Bad input to the backend `motet`, on CPU ranks: a sentence on every rank, or the right result.

No hang, no crash, and where only the arguments of one call are wrong, the group goes on.
"""

import sys
import unittest

from rank_processes import Row, check, dist, raises, torch, works

# ---- arguments that are wrong by themselves: an error here, and the group goes on

ones = torch.ones


def world():
    return dist.group.WORLD


def quantized():
    return torch.quantize_per_tensor(ones(4), 0.1, 0, torch.quint8)


gap = ones(4, 4).t()
integers = ones(2, dtype=torch.int32)
single = dist.all_to_all_single
into = dist.all_gather_into_tensor
scattered = dist.reduce_scatter_tensor

# Name: (exception, words, call).
ARGUMENTS = {
    "a tensor with gaps": (ValueError, "contiguous", lambda: dist.all_reduce(gap)),
    "a tensor that repeats": (ValueError, "contiguous", lambda: dist.all_reduce(ones(1).expand(4))),
    "an output with gaps": (ValueError, "contiguous", lambda: into(ones(8, 4).t()[:2], ones(4))),
    "gaps in a list": (ValueError, "contiguous", lambda: dist.all_gather([gap, gap], ones(4, 4))),
    "gaps in a message": (
        ValueError,
        "contiguous",
        lambda: world().send([gap], 1 - dist.get_rank(), 0),
    ),
    "COO": (TypeError, "dense", lambda: dist.all_reduce(ones(2, 2).to_sparse())),
    "CSR": (Exception, "parseCsr", lambda: dist.all_reduce(ones(2, 2).to_sparse_csr())),
    "quantized": (Exception, "uantized", lambda: dist.all_reduce(quantized())),
    "quantized, moved": (Exception, "uantized", lambda: dist.broadcast(quantized(), 0)),
    "types of a list": (
        TypeError,
        "Int",
        lambda: world().allgather([[ones(2), integers]], [ones(2)]),
    ),
    "types of input and output": (
        TypeError,
        "Int",
        lambda: world()._allgather_base(ones(4), integers),
    ),
    "types of all_to_all": (
        TypeError,
        "Int",
        lambda: world().alltoall([ones(2), integers], [ones(2)] * 2),
    ),
    "reduction of a type": (
        TypeError,
        "no reduction of Short",
        lambda: dist.all_reduce(ones(1).short()),
    ),
    "no output for all_gather": (ValueError, "a list of 0", lambda: dist.all_gather([], ones(1))),
    "no lists for all_to_all": (Exception, "no tensor arguments", lambda: dist.all_to_all([], [])),
    "no input for reduce_scatter": (
        ValueError,
        "a list of 0",
        lambda: dist.reduce_scatter(ones(1), []),
    ),
    "no tensor at all": (Exception, "no tensor arguments", lambda: world().allreduce([])),
    "two tensors": (ValueError, "one tensor", lambda: world().allreduce([ones(1), ones(1)])),
    "outputs for one rank": (
        ValueError,
        "a list of 1",
        lambda: dist.all_gather([ones(1)], ones(1)),
    ),
    "inputs for three ranks": (
        ValueError,
        "a list of 3",
        lambda: dist.reduce_scatter(ones(1), [ones(1)] * 3),
    ),
    "all_to_all of three": (
        ValueError,
        "a list of 3",
        lambda: dist.all_to_all([ones(1)] * 3, [ones(1)] * 2),
    ),
    "own part of all_to_all": (
        ValueError,
        "sends itself",
        lambda: dist.all_to_all([ones(2), ones(2)], [ones(3), ones(3)]),
    ),
    "size of all_gather": (ValueError, "times as many", lambda: into(ones(3), ones(2))),
    "size of reduce_scatter": (ValueError, "times as many", lambda: scattered(ones(2), ones(3))),
    "splits that do not add up": (
        ValueError,
        "splits",
        lambda: single(ones(4), ones(4), [2, 2], [1, 2]),
    ),
    "splits for three ranks": (
        ValueError,
        "3 splits",
        lambda: single(ones(3), ones(3), [1, 1, 1], [1, 1, 1]),
    ),
    "a negative split": (
        ValueError,
        "a split of -1",
        lambda: single(ones(4), ones(4), [2, 2], [-1, 5]),
    ),
    "rows that do not divide": (ValueError, "3 rows", lambda: single(ones(3), ones(3))),
    "splits of other output": (
        ValueError,
        "splits",
        lambda: single(ones(5), ones(4), [2, 2], [2, 2]),
    ),
    "a root beyond": (Exception, "7", lambda: dist.broadcast(ones(1), 7)),
    "a negative root": (Exception, "-1", lambda: dist.broadcast(ones(1), -1)),
    "a root beyond, of the group": (
        ValueError,
        "rank 2 of 2",
        lambda: dist.broadcast(ones(1), group_src=2),
    ),
    "a destination beyond": (Exception, "7", lambda: dist.reduce(ones(1), 7)),
    "a message beyond": (ValueError, "rank 2 of 2", lambda: world().send([ones(1)], 2, 0)),
    "a message to itself": (ValueError, "", lambda: dist.send(ones(1), dist.get_rank())),
    "a message from itself": (ValueError, "", lambda: dist.recv(ones(1), dist.get_rank())),
    "a huge tag": (Exception, "", lambda: dist.send(ones(1), 1 - dist.get_rank(), tag=1 << 40)),
    "a bitwise operator of floats": (
        TypeError,
        "integers",
        lambda: dist.all_reduce(ones(1), dist.ReduceOp.BXOR),
    ),
    "average of booleans": (
        ValueError,
        "average",
        lambda: dist.all_reduce(ones(1).bool(), dist.ReduceOp.AVG),
    ),
    "product of complex numbers": (
        ValueError,
        "complex",
        lambda: dist.all_reduce(ones(1) * 1j, dist.ReduceOp.PRODUCT),
    ),
    "a second init": (ValueError, "twice", lambda: dist.init_process_group("motet")),
    "no tensor": (TypeError, "", lambda: dist.all_reduce([1.0])),
}


def arguments(rank, size):
    for name, (error, words, call) in ARGUMENTS.items():
        print(name, file=sys.stderr, flush=True)
        raises(error, words, call)
        works(rank, size)
    dist.destroy_process_group()


# ---- ranks that do not agree: an error on every rank, or the right result


def everywhere(call, unaware=None):
    """`call(rank, size)` fails on every rank with our sentence; rank `unaware` may get nothing."""

    def body(rank, size):
        try:
            call(rank, size)
        except Exception as reason:
            assert f"motet: rank {rank}" in str(reason), reason
        else:
            assert rank == unaware, "no error"

    return Row(body, timeout=20)


def shaped(call, unaware=None):
    """`call` with tensors that are larger on rank 1."""
    return everywhere(lambda rank, size: call(rank, 4 + 2 * rank), unaware)


def typed(call, unaware=None):
    types = (torch.float32, torch.int32)
    return everywhere(lambda rank, size: call(rank, types[rank]), unaware)


def pick(rank, *calls):
    return calls[rank]()


DISAGREEMENTS = {
    "sizes of all_reduce": shaped(lambda r, n: dist.all_reduce(ones(n))),
    "large sizes of all_reduce": shaped(lambda r, n: dist.all_reduce(ones(n << 18))),
    "sizes of broadcast": shaped(lambda r, n: dist.broadcast(ones(n), 0), 0),
    "sizes of reduce": shaped(lambda r, n: dist.reduce(ones(n), 0), 1),
    "sizes of all_gather": shaped(lambda r, n: into(ones(2 * n), ones(n))),
    "sizes of reduce_scatter": shaped(lambda r, n: scattered(ones(n), ones(2 * n))),
    "sizes of all_to_all": shaped(lambda r, n: single(ones(n), ones(n))),
    "sizes of gather": shaped(
        lambda r, n: dist.gather(ones(n), [ones(n)] * 2 if r == 0 else None, 0), 1
    ),
    "sizes of scatter": shaped(
        lambda r, n: dist.scatter(ones(n), [ones(n)] * 2 if r == 0 else None, 0), 0
    ),
    "zero on one rank": everywhere(lambda r, n: dist.all_reduce(ones(3 * r)), 0),
    "splits between ranks": everywhere(
        lambda r, n: single(ones(4 + r), ones(4), [2, 2 + r], [2, 2])
    ),
    "types of all_reduce": typed(lambda r, t: dist.all_reduce(ones(4, dtype=t))),
    "types of broadcast": typed(lambda r, t: dist.broadcast(ones(4, dtype=t), 0), 0),
    "types of all_gather": typed(lambda r, t: into(ones(8, dtype=t), ones(4, dtype=t))),
    "operators": everywhere(
        lambda r, n: dist.all_reduce(ones(4), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[r])
    ),
    # who sends need not hear of it at once: what comes next does not fit
    "roots": everywhere(lambda r, n: (dist.broadcast(ones(4), r), dist.all_reduce(ones(4)))),
    "collectives": everywhere(
        lambda r, n: pick(r, lambda: dist.all_reduce(ones(4)), lambda: dist.broadcast(ones(4), 0))
    ),
    "collective and barrier": everywhere(
        lambda r, n: pick(r, lambda: into(ones(8), ones(4)), dist.barrier)
    ),
}


# ---- tensors that are unusual, and right


def leaves_of_autograd(rank, size):
    """What wants a gradient is written to, as by every other backend."""

    def leaf(*values):
        return torch.tensor([float(v) for v in values], requires_grad=True)

    t = leaf(rank + 1, 5)
    dist.all_reduce(t)
    assert t.tolist() == [3, 10], t
    outputs = [leaf(0), leaf(0)]
    dist.all_gather(outputs, leaf(rank + 1))
    assert [o.item() for o in outputs] == [1, 2], outputs
    out = leaf(0)
    dist.reduce_scatter(out, [leaf(rank), leaf(rank + 1)])
    assert out.item() == 1 + 2 * rank, out
    dist.all_to_all(outputs, [leaf(10 * rank), leaf(10 * rank + 1)])
    assert [o.item() for o in outputs] == [rank, 10 + rank], outputs
    dist.gather(leaf(rank), outputs if rank == 0 else None, 0)
    assert rank or [o.item() for o in outputs] == [0, 1], outputs
    dist.scatter(out, [leaf(3), leaf(4)] if rank == 0 else None, 0)
    assert out.item() == 3 + rank, out
    t = leaf(1)
    dist.all_reduce(t, dist.ReduceOp.SUM, async_op=True).wait()
    assert t.item() == 2
    with torch.inference_mode():
        works(rank, size)
        t = torch.ones(2)
        dist.all_gather([torch.empty(2)] * 2, t)
    dist.all_reduce(t)  # of inference mode, used outside
    assert t.tolist() == [2, 2]
    works(rank, size)


def shared_memory(rank, size):
    """Input and output that overlap: as if they did not, or an error."""

    def check(call, right):
        try:
            got = call()
        except Exception as reason:
            assert "overlap" in str(reason), reason
        else:
            assert got.tolist() == right, (got, right)

    def of(call, *arguments):
        def made():
            call(*arguments)
            return arguments[0]

        return made

    mine = [10.0 * rank + i for i in range(4)]
    t = torch.tensor(mine)
    check(of(into, t, t[2 * rank : 2 * rank + 2]), [0, 1, 12, 13])
    t = torch.tensor(mine)
    check(of(into, t, t[1:3]), [1, 2, 11, 12])
    t = torch.tensor(mine)
    check(of(single, t, t), [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank])
    t = torch.tensor(mine)
    check(of(scattered, t[1:3], t), [10 + 4 * rank, 12 + 4 * rank])


def nothing_at_all(rank, size):
    """Sizes of zero."""
    empty, none = torch.empty(0), torch.empty(3, 0)
    dist.all_reduce(empty)
    dist.broadcast(none, 1)
    into(torch.empty(0), empty)
    scattered(empty, torch.empty(0))
    single(torch.empty(0), torch.empty(0), [0, 0], [0, 0])
    dist.all_gather([torch.empty(0), torch.empty(0)], empty)
    dist.send(empty, 1) if rank == 0 else dist.recv(none, 0)
    works(rank, size)


def messages(rank, size):
    for tag in (0, -3, (1 << 31) - 1):
        if rank == 0:
            dist.send(ones(2) * tag, 1, tag=tag)
        else:
            t = torch.zeros(2)
            dist.recv(t, 0, tag=tag)
            assert torch.equal(t, ones(2) * tag), t
    # of another size than was sent, small and large; then all is as before
    for sent in (3, 3_000_000):
        if rank == 0:
            dist.send(ones(sent), 1)
        else:
            raises(Exception, f"rank 0 sent {4 * sent} bytes", lambda: dist.recv(ones(2), 0))
    works(rank, size)


def from_any(rank, size):
    if rank != 0:
        for i in range(20):
            dist.send(torch.tensor([rank, i]), 0, tag=i % 2)
        return
    t = torch.zeros(2, dtype=torch.int64)
    seen = {r: {0: -2, 1: -1} for r in range(1, size)}
    for tag in [0, 1] * 10 * (size - 1):
        source = dist.recv(t, tag=tag)
        assert source == t[0] and t[1] == seen[source][tag] + 2, (source, t, seen)
        seen[source][tag] = int(t[1])


UNUSUAL = {
    "leaves of autograd": Row(leaves_of_autograd),
    "memory that is shared": Row(shared_memory),
    "nothing at all": Row(nothing_at_all),
    "messages": Row(messages),
    "messages from any": Row(from_any, 4),
}


class Bad(unittest.TestCase):
    def test_arguments(self):
        check(self, {"arguments": Row(arguments)})

    def test_ranks_that_disagree(self):
        check(self, DISAGREEMENTS)

    def test_what_is_unusual(self):
        check(self, UNUSUAL)


if __name__ == "__main__":
    unittest.main()
