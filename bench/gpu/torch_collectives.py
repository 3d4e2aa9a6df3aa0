#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed on tensors of GPUs, over every dtype, values
compared; async work, subgroups, CUDA graphs, coalescing. Ranks share GPUs where there are
fewer, which NVIDIA's library refuses and motet does not.

    motet run --as nccl -- python3 torch_collectives.py --ranks 2
    python3 torch_collectives.py --ranks 2 --backend motet
"""

import os

from ranks import Unsupported, expect, run, skip

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    skip(f"PyTorch: {error}")

SIZES = (1, 17, 1023, 4099, 262147)
# What PyTorch hands to the library. Of others it complains in the middle of a group of
# calls, which it then leaves open: whatever follows on that thread never runs.
NAMES = (
    "int8 uint8 int32 int64 bool float16 bfloat16 float32 float64 float8_e4m3fn "
    "float8_e5m2 complex64"
).split()
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG")


def values(name, size, rank, salt=0):
    """Small integers of a rank: exact in every type, and so are their sums."""
    index = torch.arange(size, dtype=torch.int64)
    number = (index * 7 + rank * 3 + salt * 5 + index // 11) % 3
    if name == "bool":
        return number > 0
    if name == "complex64":
        return torch.complex(number.float(), (2 - number).float())
    return number.to(torch.float64).to(getattr(torch, name))


def wide(tensor):
    """For comparing: float64 on the host."""
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        return torch.view_as_real(tensor).to(torch.float64)
    return tensor.to(torch.float32 if tensor.element_size() == 1 else tensor.dtype).to(torch.float64)


def same(got, want, what, slack=0.0):
    got, want = wide(got), wide(want)
    expect(got.shape == want.shape, f"{what}: shape {tuple(got.shape)}")
    difference = (got - want).abs()
    bad = difference > slack * want.abs()
    if bool(bad.any()):
        at = int(bad.flatten().nonzero()[0])
        raise AssertionError(
            f"{what}: element {at} is {got.flatten()[at]}, expected {want.flatten()[at]}"
        )


def reduced(name, size, ranks, op, salt=0):
    if name == "bool":
        all_of = torch.stack([values(name, size, r, salt) for r in ranks])
        return all_of.all(0) if op in ("PRODUCT", "MIN") else all_of.any(0)
    rows = torch.stack([wide(values(name, size, r, salt)) for r in ranks])
    if op == "SUM":
        result = rows.sum(0)
    elif op == "PRODUCT":
        result = rows.prod(0)
    elif op == "MIN":
        result = rows.min(0).values
    elif op == "MAX":
        result = rows.max(0).values
    else:
        result = rows.sum(0) / len(ranks)
        if not getattr(torch, name).is_floating_point and name != "complex64":
            result = result.trunc()
    return result


def slack_of(name, op):
    """Sums are exact; an average is rounded once."""
    if op != "AVG":
        return 0.0
    return {"float16": 1e-3, "bfloat16": 8e-3, "float8_e4m3fn": 0.07, "float8_e5m2": 0.14}.get(name, 1e-6)


class Suite:
    def __init__(self, cases):
        self.cases = cases
        self.rank = cases.rank
        self.ranks = cases.ranks
        self.device = torch.device("cuda", cases.rank % torch.cuda.device_count())

    def mine(self, name, size, salt=0):
        return values(name, size, self.rank, salt).to(self.device)

    def call(self, function, *arguments, **keywords):
        """A refusal of PyTorch's own is no case of the library."""
        try:
            work = function(*arguments, **keywords)
        except (RuntimeError, TypeError, ValueError) as error:
            text = str(error)
            for word in ("Unconvertible", "not supported", "not support", "Unsupported", "not implemented", "Cannot use", "Complex", "have no average", "averages only"):
                if word in text and "NCCL error" not in text:
                    raise Unsupported(text.splitlines()[0][:120]) from error
            raise
        return work

    # ---- collectives, one dtype at a time ----

    def all_reduce(self, name, op):
        for size in SIZES:
            tensor = self.mine(name, size)
            self.call(dist.all_reduce, tensor, getattr(dist.ReduceOp, op))
            want = reduced(name, size, range(self.ranks), op)
            same(tensor, want, f"all_reduce {size}", slack_of(name, op))

    def premul(self, name):
        if name == "bfloat16":
            raise Unsupported("PyTorch hands a float over as the factor")
        for size in SIZES:
            tensor = self.mine(name, size)
            # pylint: disable=protected-access
            self.call(dist.all_reduce, tensor, dist._make_nccl_premul_sum(2.0))
            same(tensor, reduced(name, size, range(self.ranks), "SUM") * 2, f"premul {size}")

    def reduce(self, name, op):
        for root in range(self.ranks):
            tensor = self.mine(name, 1023)
            self.call(dist.reduce, tensor, root, getattr(dist.ReduceOp, op))
            if self.rank == root:
                same(tensor, reduced(name, 1023, range(self.ranks), op), "reduce", slack_of(name, op))

    def broadcast(self, name):
        for size in SIZES:
            for root in range(self.ranks):
                tensor = self.mine(name, size)
                self.call(dist.broadcast, tensor, root)
                same(tensor, values(name, size, root), f"broadcast {size}")

    def gathered(self, name, size):
        return torch.cat([values(name, size, r).reshape(-1) for r in range(self.ranks)])

    def all_gather(self, name):
        for size in SIZES:
            pieces = [torch.empty_like(self.mine(name, size)) for _ in range(self.ranks)]
            self.call(dist.all_gather, pieces, self.mine(name, size))
            for r, piece in enumerate(pieces):
                same(piece, values(name, size, r), f"all_gather {size}")
            whole = torch.empty(size * self.ranks, dtype=pieces[0].dtype, device=self.device)
            self.call(dist.all_gather_into_tensor, whole, self.mine(name, size))
            same(whole, self.gathered(name, size), f"all_gather_into_tensor {size}")

    def all_gather_uneven(self, name):
        pieces = [
            torch.empty(10 + 3 * r, dtype=self.mine(name, 1).dtype, device=self.device)
            for r in range(self.ranks)
        ]
        self.call(dist.all_gather, pieces, self.mine(name, 10 + 3 * self.rank))
        for r, piece in enumerate(pieces):
            same(piece, values(name, 10 + 3 * r, r), "uneven all_gather")

    def reduce_scatter(self, name, op):
        for size in SIZES:
            total = size * self.ranks
            want = reduced(name, total, range(self.ranks), op)[self.rank * size : (self.rank + 1) * size]
            out = torch.empty_like(self.mine(name, size))
            self.call(dist.reduce_scatter_tensor, out, self.mine(name, total), getattr(dist.ReduceOp, op))
            same(out, want, f"reduce_scatter_tensor {size}", slack_of(name, op))
            out = torch.empty_like(out)
            inputs = list(self.mine(name, total).chunk(self.ranks))
            self.call(dist.reduce_scatter, out, inputs, getattr(dist.ReduceOp, op))
            same(out, want, f"reduce_scatter {size}", slack_of(name, op))

    def all_to_all(self, name):
        for size in SIZES:
            source = self.mine(name, size * self.ranks)
            want = torch.cat(
                [
                    values(name, size * self.ranks, r)[self.rank * size : (self.rank + 1) * size]
                    for r in range(self.ranks)
                ]
            )
            out = torch.empty_like(source)
            self.call(dist.all_to_all_single, out, source)
            same(out, want, f"all_to_all_single {size}")
            outs = [torch.empty_like(piece) for piece in source.chunk(self.ranks)]
            self.call(dist.all_to_all, outs, [p.contiguous() for p in source.chunk(self.ranks)])
            same(torch.cat(outs), want, f"all_to_all {size}")

    def all_to_all_uneven(self, name):
        def count(source, target):
            return (source * 5 + target * 3) % 7 * 11

        sends = [count(self.rank, r) for r in range(self.ranks)]
        takes = [count(r, self.rank) for r in range(self.ranks)]
        source = self.mine(name, sum(sends))
        out = torch.empty(sum(takes), dtype=source.dtype, device=self.device)
        self.call(dist.all_to_all_single, out, source, takes, sends)
        parts = []
        for r in range(self.ranks):
            first = sum(count(r, t) for t in range(self.rank))
            total = sum(count(r, t) for t in range(self.ranks))
            parts.append(values(name, total, r)[first : first + count(r, self.rank)])
        same(out, torch.cat(parts), "uneven all_to_all_single")

    def gather_scatter(self, name):
        size = 1023
        for root in range(self.ranks):
            here = self.rank == root
            pieces = [torch.empty_like(self.mine(name, size)) for _ in range(self.ranks)] if here else None
            self.call(dist.gather, self.mine(name, size), pieces, root)
            for r, piece in enumerate(pieces or []):
                same(piece, values(name, size, r), "gather")
            out = torch.empty_like(self.mine(name, size))
            inputs = [values(name, size, root, r).to(self.device) for r in range(self.ranks)]
            self.call(dist.scatter, out, inputs if here else None, root)
            same(out, values(name, size, root, self.rank), "scatter")

    def send_recv(self, name):
        to, source = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        for size in SIZES:
            out = torch.empty_like(self.mine(name, size))
            if self.ranks > 1:
                first, second = (dist.send, dist.recv) if self.rank % 2 == 0 else (dist.recv, dist.send)
                if self.ranks % 2 == 0:
                    for function in (first, second):
                        peer, tensor = (to, self.mine(name, size)) if function is dist.send else (source, out)
                        self.call(function, tensor, peer)
                    same(out, values(name, size, source), f"send and recv {size}")
            out = torch.empty_like(out)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, self.mine(name, size), to),
                    dist.P2POp(dist.irecv, out, source),
                ]
            )
            for work in works:
                work.wait()
            same(out, values(name, size, source), f"batch_isend_irecv {size}")

    # ---- beyond single calls ----

    def async_work(self):
        tensors = [self.mine("float32", 4099, salt) for salt in range(50)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()
        torch.cuda.synchronize(self.device)
        for salt, tensor in enumerate(tensors):
            want = reduced("float32", 4099, range(self.ranks), "SUM", salt)
            same(tensor, want, f"async all_reduce {salt}")
        expect(all(work.is_completed() for work in works), "a work is not complete")

    def several_streams(self):
        streams = [torch.cuda.Stream(self.device) for _ in range(3)]
        tensors = [self.mine("bfloat16", 4099, salt) for salt in range(30)]
        torch.cuda.synchronize(self.device)
        for salt, tensor in enumerate(tensors):
            with torch.cuda.stream(streams[salt % 3]):
                tensor += 0
                dist.all_reduce(tensor)
        torch.cuda.synchronize(self.device)
        for salt, tensor in enumerate(tensors):
            want = reduced("bfloat16", 4099, range(self.ranks), "SUM", salt)
            same(tensor, want, f"stream {salt % 3}")

    def coalesced(self):
        tensors = [self.mine("float32", 100 + salt, salt) for salt in range(20)]
        # pylint: disable=protected-access
        with dist._coalescing_manager(device=self.device, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for salt, tensor in enumerate(tensors):
            want = reduced("float32", 100 + salt, range(self.ranks), "SUM", salt)
            same(tensor, want, f"coalesced {salt}")

    def objects(self):
        got = [None] * self.ranks
        dist.all_gather_object(got, {"rank": self.rank, "text": "x" * (100 * self.rank)})
        expect([g["rank"] for g in got] == list(range(self.ranks)), f"objects {got}")
        listed = [self.rank, "from"] if self.rank == 0 else [None, None]
        dist.broadcast_object_list(listed, 0)
        expect(listed == [0, "from"], f"broadcast_object_list {listed}")

    def barrier(self):
        for _ in range(20):
            dist.barrier()
        dist.barrier(device_ids=[self.device.index])

    def subgroups(self):
        groups = {}
        for parity in (0, 1):
            members = [r for r in range(self.ranks) if r % 2 == parity]
            if members:
                groups[parity] = (members, dist.new_group(members))
        members, group = groups[self.rank % 2]
        for salt in range(10):
            tensor = self.mine("float32", 1023, salt)
            dist.all_reduce(tensor, group=group)
            same(tensor, reduced("float32", 1023, members, "SUM", salt), "subgroup")
            tensor = self.mine("float32", 1023, salt)
            dist.all_reduce(tensor)
            same(tensor, reduced("float32", 1023, range(self.ranks), "SUM", salt), "all")
        dist.destroy_process_group(group)

    def split(self):
        order = [list(range(self.ranks))]
        if not hasattr(dist, "split_group"):
            raise Unsupported("this PyTorch has no split_group")
        group = dist.split_group(split_ranks=order)
        tensor = self.mine("float32", 1023)
        dist.all_reduce(tensor, group=group)
        same(tensor, reduced("float32", 1023, range(self.ranks), "SUM"), "split group")
        dist.destroy_process_group(group)

    def graph(self):
        tensor = self.mine("float32", 4099)
        out = torch.empty(4099 * self.ranks, device=self.device)
        dist.all_reduce(tensor.clone())
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = tensor * 2
            dist.all_reduce(doubled)
            dist.all_gather_into_tensor(out, doubled)
        for salt in range(20):
            tensor.copy_(self.mine("float32", 4099, salt))
            graph.replay()
            eager = self.mine("float32", 1023, salt)
            dist.all_reduce(eager)
            torch.cuda.synchronize(self.device)
            want = reduced("float32", 4099, range(self.ranks), "SUM", salt) * 2
            same(doubled, want, f"replay {salt}")
            same(out, want.repeat(self.ranks), f"gathered in replay {salt}")
            same(eager, reduced("float32", 1023, range(self.ranks), "SUM", salt), "eager")
        del graph

    def large(self):
        for size in (1 << 22, (1 << 24) + 5, 1 << 26):
            tensor = torch.full((size,), float(self.rank + 1), dtype=torch.bfloat16, device=self.device)
            dist.all_reduce(tensor)
            want = float(sum(range(1, self.ranks + 1)))
            expect(bool((tensor == want).all()), f"all_reduce of {size} bfloat16")

    def window_pool(self):
        """Tensors of NCCL's own allocator, registered as windows."""
        backend = dist.group.WORLD._get_backend(self.device)  # pylint: disable=protected-access
        try:
            pool = torch.cuda.MemPool(backend.mem_allocator)
        except (AttributeError, RuntimeError) as reason:  # of PyTorch, before it asks us
            raise Unsupported(str(reason).splitlines()[0]) from None
        with torch.cuda.use_mem_pool(pool, device=self.device):
            tensor = torch.full((1 << 20,), float(self.rank), device=self.device)
        backend.register_mem_pool(pool)
        dist.all_reduce(tensor)
        expect(bool((tensor == sum(range(self.ranks))).all()), "all_reduce in a pool")
        torch.cuda.synchronize(self.device)
        backend.deregister_mem_pool(pool)
        del tensor, pool


def which_library():
    """Whose ncclX this process calls."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line})


def body(cases):
    suite = Suite(cases)
    torch.cuda.set_device(suite.device)
    dist.init_process_group(cases.options.backend, device_id=suite.device)
    if cases.rank == 0:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {which_library()}", flush=True)
    for name in NAMES:
        if not hasattr(torch, name):
            continue
        for op in OPS:
            cases.run(f"all_reduce {op} {name}", suite.all_reduce, name, op)
            cases.run(f"reduce {op} {name}", suite.reduce, name, op)
            cases.run(f"reduce_scatter {op} {name}", suite.reduce_scatter, name, op)
        if name in ("float16", "bfloat16", "float32", "float64"):
            cases.run(f"premul {name}", suite.premul, name)
        for case in ("broadcast", "all_gather", "all_gather_uneven", "all_to_all", "all_to_all_uneven"):
            cases.run(f"{case} {name}", getattr(suite, case), name)
        for case in ("gather_scatter", "send_recv"):
            cases.run(f"{case} {name}", getattr(suite, case), name)
    for case in (
        "async_work several_streams coalesced objects barrier subgroups split graph large window_pool"
    ).split():
        cases.run(case, getattr(suite, case))
    cases.run("destroy_process_group", dist.destroy_process_group)


if __name__ == "__main__":
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    run(body)
