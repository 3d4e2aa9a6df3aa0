#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy's binding of NCCL, cupy.cuda.nccl: every call that it has, values compared.

    motet run --as nccl -- python3 cupy_nccl.py --ranks 2
"""

import os
import socket
import time

from ranks import Unsupported, expect, run, skip

try:
    import cupy
    import numpy
    from cupy.cuda import nccl
except ImportError as error:
    skip(f"CuPy: {error}")

TYPES = (
    ("int8", nccl.NCCL_INT8),
    ("uint8", nccl.NCCL_UINT8),
    ("int32", nccl.NCCL_INT32),
    ("uint32", nccl.NCCL_UINT32),
    ("int64", nccl.NCCL_INT64),
    ("uint64", nccl.NCCL_UINT64),
    ("float16", nccl.NCCL_FLOAT16),
    ("float32", nccl.NCCL_FLOAT32),
    ("float64", nccl.NCCL_FLOAT64),
)
OPS = (("sum", nccl.NCCL_SUM), ("prod", nccl.NCCL_PROD), ("max", nccl.NCCL_MAX), ("min", nccl.NCCL_MIN))
SIZES = (1, 17, 4099, 262147)


def values(name, size, rank):
    index = numpy.arange(size)
    return ((index * 7 + rank * 3 + index // 11) % 3).astype(name)


def reduced(op, name, size, ranks):
    rows = numpy.stack([values(name, size, r).astype("float64") for r in range(ranks)])
    return getattr(rows, op)(0).astype(name)


def same(got, want, what):
    got = cupy.asnumpy(got)
    bad = numpy.flatnonzero(got != want)
    expect(bad.size == 0, f"{what}: element {bad[:1]} is {got[bad[:1]]}, expected {want[bad[:1]]}")


def shared_id(cases):
    """Rank 0's id, over a socket on the loopback."""
    port = int(os.environ["MASTER_PORT"])
    if cases.rank == 0:
        unique = nccl.get_unique_id()
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(60)
            for _ in range(cases.ranks - 1):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(bytes(b & 255 for b in unique))
        return unique
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                raw = b""
                while len(raw) < 128:
                    raw += connection.recv(128 - len(raw))
            return raw
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise RuntimeError("rank 0 does not answer")


class Suite:
    def __init__(self, cases, comm):
        self.cases, self.comm = cases, comm
        self.rank, self.ranks = cases.rank, cases.ranks
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def mine(self, name, size):
        array = cupy.asarray(values(name, size, self.rank))
        cupy.cuda.get_current_stream().synchronize()
        return array

    def all_reduce(self, name, code, op, op_code):
        for size in SIZES:
            source = self.mine(name, size)
            out = cupy.zeros_like(source)
            cupy.cuda.get_current_stream().synchronize()
            self.comm.allReduce(source.data.ptr, out.data.ptr, size, code, op_code, self.stream.ptr)
            self.stream.synchronize()
            same(out, reduced(op, name, size, self.ranks), f"allReduce {size}")
            self.comm.allReduce(source.data.ptr, source.data.ptr, size, code, op_code, self.stream.ptr)
            self.stream.synchronize()
            same(source, reduced(op, name, size, self.ranks), f"allReduce in place {size}")

    def reduce(self, name, code, op, op_code):
        for root in range(self.ranks):
            source = self.mine(name, 4099)
            out = cupy.zeros_like(source)
            cupy.cuda.get_current_stream().synchronize()
            self.comm.reduce(source.data.ptr, out.data.ptr, 4099, code, op_code, root, self.stream.ptr)
            self.stream.synchronize()
            if self.rank == root:
                same(out, reduced(op, name, 4099, self.ranks), "reduce")

    def moves(self, name, code):
        for size in SIZES:
            source = self.mine(name, size)
            whole = cupy.zeros(size * self.ranks, dtype=name)
            out = cupy.zeros(size, dtype=name)
            cupy.cuda.get_current_stream().synchronize()
            self.comm.allGather(source.data.ptr, whole.data.ptr, size, code, self.stream.ptr)
            self.stream.synchronize()
            want = numpy.concatenate([values(name, size, r) for r in range(self.ranks)])
            same(whole, want, f"allGather {size}")
            self.comm.broadcast(source.data.ptr, out.data.ptr, size, code, self.ranks - 1, self.stream.ptr)
            self.stream.synchronize()
            same(out, values(name, size, self.ranks - 1), f"broadcast {size}")
            self.comm.bcast(source.data.ptr, size, code, 0, self.stream.ptr)
            self.stream.synchronize()
            same(source, values(name, size, 0), f"bcast {size}")
            total = self.mine(name, size * self.ranks)
            self.comm.reduceScatter(total.data.ptr, out.data.ptr, size, code, nccl.NCCL_SUM, self.stream.ptr)
            self.stream.synchronize()
            part = slice(self.rank * size, (self.rank + 1) * size)
            same(out, reduced("sum", name, size * self.ranks, self.ranks)[part], f"reduceScatter {size}")

    def messages(self, name, code):
        to, source = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        for size in SIZES:
            mine, out = self.mine(name, size), cupy.zeros(size, dtype=name)
            cupy.cuda.get_current_stream().synchronize()
            nccl.groupStart()
            self.comm.send(mine.data.ptr, size, code, to, self.stream.ptr)
            self.comm.recv(out.data.ptr, size, code, source, self.stream.ptr)
            nccl.groupEnd()
            self.stream.synchronize()
            same(out, values(name, size, source), f"send and recv {size}")

    def questions(self):
        expect(self.comm.rank_id() == self.rank, f"rank_id {self.comm.rank_id()}")
        expect(self.comm.size() == self.ranks, f"size {self.comm.size()}")
        device = cupy.cuda.runtime.getDevice()
        expect(self.comm.device_id() == device, f"device_id {self.comm.device_id()}")
        self.comm.check_async_error()
        expect(nccl.get_version() > 20000, f"get_version {nccl.get_version()}")

    def init_all(self):
        """One process with every device."""
        if self.rank != 0:
            return
        count = cupy.cuda.runtime.getDeviceCount()
        comms = nccl.NcclCommunicator.initAll(list(range(count)))
        expect(len(comms) == count, f"initAll made {len(comms)}")
        for comm in comms:
            comm.destroy()

    def graph(self):
        source, out = self.mine("float32", 4099), cupy.zeros(4099, dtype="float32")
        cupy.cuda.get_current_stream().synchronize()
        with self.stream:
            try:
                self.stream.begin_capture()
            except (AttributeError, RuntimeError) as error:
                raise Unsupported(f"capture: {error}") from error
            self.comm.allReduce(
                source.data.ptr, out.data.ptr, 4099, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, self.stream.ptr
            )
            graph = self.stream.end_capture()
        for _ in range(10):
            graph.launch(self.stream)
            self.stream.synchronize()
            same(out, reduced("sum", "float32", 4099, self.ranks), "a replay")


def body(cases):
    cupy.cuda.Device(cases.rank % cupy.cuda.runtime.getDeviceCount()).use()
    unique = shared_id(cases)
    comm = nccl.NcclCommunicator(cases.ranks, unique, cases.rank)
    suite = Suite(cases, comm)
    if cases.rank == 0:
        print(f"cupy {cupy.__version__}, nccl {nccl.get_version()}", flush=True)
    cases.run("questions", suite.questions)
    for name, code in TYPES:
        for op, op_code in OPS:
            cases.run(f"allReduce {op} {name}", suite.all_reduce, name, code, op, op_code)
            cases.run(f"reduce {op} {name}", suite.reduce, name, code, op, op_code)
        cases.run(f"moves {name}", suite.moves, name, code)
        cases.run(f"messages {name}", suite.messages, name, code)
    cases.run("graph", suite.graph)
    cases.run("init_all", suite.init_all)
    cases.run("destroy", comm.destroy)


if __name__ == "__main__":
    if not getattr(nccl, "available", True):
        skip("CuPy was built without NCCL")
    run(body)
