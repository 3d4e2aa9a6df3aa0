# SPDX-License-Identifier: Apache-2.0
"""Every collective of c10d by `motet`, against what gloo gives, on CPU ranks.

For each: types, sizes that are odd, one and zero, asynchronous or not, in the whole group and
in two groups of its halves. Outputs are poisoned before.
"""

import itertools
import os
import sys
import tempfile

import motet.torch  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
MOVED = FLOATS + INTEGERS + [torch.int16, torch.bool, torch.complex64]
COUNTS = [1, 5, 1023, 0]
OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}
BITWISE = {
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


where = {"motet": "cpu", "gloo": "cpu", "now": "cpu"}  # the devices of tensors


def values(shape, dtype, rank, salt=0):
    """Small numbers, exact in every type, that differ by rank and place."""
    count = 1
    for extent in shape:
        count *= extent
    plain = (torch.arange(count) * 7 + rank * 3 + salt) % 5 + 1
    return plain.reshape(shape).to(dtype).to(where["now"])


def poison(shape, dtype):
    return torch.full(shape, 77).to(dtype).to(where["now"])


class Case:
    """One group, in both backends: `run` compares what a function leaves in its outputs."""

    def __init__(self, groups, async_op):
        self.groups = groups
        self.async_op = async_op
        self.ranks = dist.get_process_group_ranks(groups["motet"])
        self.size = len(self.ranks)
        self.rank = self.ranks.index(dist.get_rank())
        self.count = 0

    def run(self, name, function):
        outputs = {}
        for backend, group in self.groups.items():
            where["now"] = where[backend]
            made, work = function(group)
            if work is not None:
                assert work.wait()
                assert backend == "gloo" or where["now"] != "cpu" or work.is_completed()
            outputs[backend] = [t.cpu() for t in made]
        for ours, theirs in zip(outputs["motet"], outputs["gloo"], strict=True):
            assert ours.dtype == theirs.dtype, name
            assert torch.equal(ours, theirs), f"{name}: {ours} is not {theirs}"
        self.count += 1


def all_reduces(case, dtype, count):
    ops = dict(OPS)
    if dtype in INTEGERS:
        ops.update(BITWISE)
    for word, op in ops.items():

        def function(group):
            t = values([count], dtype, case.rank)
            return [t], dist.all_reduce(t, op, group, case.async_op)

        case.run(f"all_reduce {dtype} {word} {count}", function)


def reduces(case, dtype, count):
    for root, (word, op) in itertools.product(range(case.size), OPS.items()):

        def function(group):
            t = values([count], dtype, case.rank)
            work = dist.reduce(t, case.ranks[root], op, group, case.async_op)
            return [t] if root == case.rank else [], work

        case.run(f"reduce {dtype} {word} {count} to {root}", function)


def reduce_scatters(case, dtype, count):
    def tensor(group):
        whole = values([case.size * count], dtype, case.rank)
        out = poison([count], dtype)
        return [out], dist.reduce_scatter_tensor(out, whole, group=group, async_op=case.async_op)

    def by_list(group):
        parts = [values([count], dtype, case.rank, salt=i) for i in range(case.size)]
        out = poison([count], dtype)
        return [out], dist.reduce_scatter(out, parts, group=group, async_op=case.async_op)

    case.run(f"reduce_scatter_tensor {dtype} {count}", tensor)
    case.run(f"reduce_scatter {dtype} {count}", by_list)


def broadcasts(case, dtype, count):
    for root in range(case.size):

        def function(group):
            t = values([count], dtype, case.rank)
            return [t], dist.broadcast(t, case.ranks[root], group, case.async_op)

        case.run(f"broadcast {dtype} {count} from {root}", function)


def all_gathers(case, dtype, count):
    def by_list(group):
        outs = [poison([count], dtype) for _ in range(case.size)]
        mine = values([count], dtype, case.rank)
        return outs, dist.all_gather(outs, mine, group, case.async_op)

    def tensor(group):
        out = poison([case.size * count], dtype)
        mine = values([count], dtype, case.rank)
        return [out], dist.all_gather_into_tensor(out, mine, group, case.async_op)

    case.run(f"all_gather {dtype} {count}", by_list)
    case.run(f"all_gather_into_tensor {dtype} {count}", tensor)


def gathers(case, dtype, count):
    for root in range(case.size):
        is_root = case.rank == root

        def gather(group):
            outs = [poison([count], dtype) for _ in range(case.size)] if is_root else None
            mine = values([count], dtype, case.rank)
            work = dist.gather(mine, outs, case.ranks[root], group, case.async_op)
            return outs or [], work

        def scatter(group):
            parts = None
            if is_root:
                parts = [values([count], dtype, case.rank, salt=i) for i in range(case.size)]
            out = poison([count], dtype)
            return [out], dist.scatter(out, parts, case.ranks[root], group, case.async_op)

        case.run(f"gather {dtype} {count} to {root}", gather)
        case.run(f"scatter {dtype} {count} from {root}", scatter)


def all_to_alls(case, dtype, count):
    def even(group):
        whole = values([case.size * count, 2], dtype, case.rank)
        out = poison([case.size * count, 2], dtype)
        return [out], dist.all_to_all_single(out, whole, group=group, async_op=case.async_op)

    def uneven(group):
        # rank r sends (r + i) % 3 rows to rank i: some are empty
        to = [(case.rank + i) % 3 for i in range(case.size)]
        of = [(i + case.rank) % 3 for i in range(case.size)]
        whole = values([sum(to), max(count, 1)], dtype, case.rank)
        out = poison([sum(of), max(count, 1)], dtype)
        work = dist.all_to_all_single(out, whole, of, to, group, case.async_op)
        return [out], work

    case.run(f"all_to_all_single {dtype} {count}", even)
    case.run(f"all_to_all_single, uneven {dtype} {count}", uneven)


def all_to_all_lists(case, dtype, count):
    """gloo has none: against the rule itself."""
    group = case.groups["motet"]
    parts = [values([count], dtype, case.rank, salt=i) for i in range(case.size)]
    outs = [poison([count], dtype) for _ in range(case.size)]
    work = dist.all_to_all(outs, parts, group, case.async_op)
    if work is not None:
        work.wait()
    for i, out in enumerate(outs):
        assert torch.equal(out, values([count], dtype, i, salt=case.rank)), f"all_to_all {dtype}"
    case.count += 1


def averages(case, dtype, count):
    """gloo has none: against a float64 reference."""
    t = values([count], dtype, case.rank)
    work = dist.all_reduce(t, dist.ReduceOp.AVG, case.groups["motet"], case.async_op)
    if work is not None:
        work.wait()
    mean = sum(values([count], torch.float64, r) for r in range(case.size)) / case.size
    assert torch.allclose(t.double(), mean, rtol=1e-2 if dtype != torch.float64 else 1e-15)
    case.count += 1


def barriers(case):
    for group in case.groups.values():
        work = dist.barrier(group, case.async_op)
        if work is not None:
            work.wait()
    case.count += 1


def check(case):
    for dtype, count in itertools.product(FLOATS + INTEGERS, COUNTS):
        all_reduces(case, dtype, count)
        reduces(case, dtype, count)
        reduce_scatters(case, dtype, count)
    for dtype, count in itertools.product(MOVED, COUNTS):
        if dtype in FLOATS + INTEGERS:  # what gloo moves
            broadcasts(case, dtype, count)
            all_gathers(case, dtype, count)
            gathers(case, dtype, count)
            all_to_alls(case, dtype, count)
        all_to_all_lists(case, dtype, count)
    for dtype, count in itertools.product(FLOATS, COUNTS):
        averages(case, dtype, count)
    barriers(case)


def body(rank, size, path):
    torch.set_num_threads(1)
    store = dist.FileStore(path, size)
    dist.init_process_group("motet", store=store, rank=rank, world_size=size)
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    groups = [list(range(size)), *halves]
    total = 0
    for ranks in groups:
        both = {name: dist.new_group(ranks, backend=name) for name in ("motet", "gloo")}
        if rank not in ranks:
            continue
        for async_op in (False, True):
            case = Case(both, async_op)
            check(case)
            total += case.count
    dist.barrier()
    if rank == 0:
        print(f"{size} ranks: {total} cases", flush=True)
    dist.destroy_process_group()


def main():
    sizes = [int(word) for word in sys.argv[1:]] or [2, 4]
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(body, args=(size, os.path.join(folder, "store")), nprocs=size)


if __name__ == "__main__":
    main()
