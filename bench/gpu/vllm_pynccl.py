#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM's binding of NCCL, pynccl_wrapper.py, by itself: the file is given, the modules of
vLLM that it imports are stood in for. Values are compared, eagerly and in CUDA graphs.

    motet run --as nccl -- python3 vllm_pynccl.py --wrapper pynccl_wrapper.py --ranks 2
"""

import ctypes
import importlib.util
import logging
import os
import sys
import types
from datetime import timedelta

from ranks import expect, run, skip

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    skip(f"PyTorch: {error}")

DTYPES = "int8 uint8 int32 int64 float16 bfloat16 float32 float64".split()
OPS = ("SUM", "PRODUCT", "MAX", "MIN", "AVG")
SIZES = (1, 17, 4099, 262147)
LIBRARY = os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2"


class Platform:
    @staticmethod
    def is_rocm():
        return False

    @staticmethod
    def fp8_dtype():
        return torch.float8_e4m3fn


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    return made


def load(path):
    """The wrapper, among modules that stand for vLLM's."""
    envs = module("vllm.envs", VLLM_USE_NCCL_SYMM_MEM=False)
    module("vllm", envs=envs)
    module("vllm.logger", init_logger=logging.getLogger)
    module("vllm.platforms", current_platform=Platform)
    module("vllm.utils", find_nccl_library=lambda: LIBRARY, nccl_integrity_check=lambda path: None)
    module("vllm.utils.nccl", find_nccl_library=lambda: LIBRARY)
    spec = importlib.util.spec_from_file_location("pynccl_wrapper", path)
    wrapper = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = wrapper
    spec.loader.exec_module(wrapper)
    return wrapper


def values(dtype, size, rank, salt=0):
    index = torch.arange(size, dtype=torch.int64)
    return ((index * 7 + rank * 3 + salt + index // 11) % 3).to(getattr(torch, dtype))


class Suite:
    def __init__(self, cases, wrapper):
        self.w = wrapper
        self.rank, self.ranks = cases.rank, cases.ranks
        self.device = torch.device("cuda", cases.rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        self.nccl = wrapper.NCCLLibrary(LIBRARY)
        self.stream = torch.cuda.Stream(self.device)
        self.comm = self.join()

    def join(self):
        """As vLLM does: rank 0's id goes over a group on the CPU."""
        unique = self.nccl.ncclGetUniqueId() if self.rank == 0 else self.w.ncclUniqueId()
        raw = torch.ByteTensor(list(bytes(unique)))
        dist.broadcast(raw, 0)
        ctypes.memmove(ctypes.byref(unique), bytes(raw.tolist()), 128)
        with torch.cuda.device(self.device):
            return self.nccl.ncclCommInitRank(self.ranks, unique, self.rank)

    def mine(self, dtype, size, salt=0):
        tensor = values(dtype, size, self.rank, salt).to(self.device)
        torch.cuda.synchronize(self.device)
        return tensor

    @staticmethod
    def at(tensor):
        return ctypes.c_void_p(tensor.data_ptr())

    def on(self):
        return ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)

    def type_of(self, tensor):
        return self.w.ncclDataTypeEnum.from_torch(tensor.dtype)

    def op_of(self, op):
        return self.w.ncclRedOpTypeEnum.from_torch(getattr(dist.ReduceOp, op))

    def want(self, op, dtype, size, salt=0):
        rows = torch.stack([values(dtype, size, r, salt).to(torch.float64) for r in range(self.ranks)])
        if op == "AVG":
            mean = rows.sum(0) / self.ranks
            return mean if getattr(torch, dtype).is_floating_point else mean.trunc()
        return {
            "SUM": rows.sum(0),
            "PRODUCT": rows.prod(0),
            "MAX": rows.max(0).values,
            "MIN": rows.min(0).values,
        }[op]

    def same(self, got, want, what, slack=0.0):
        torch.cuda.synchronize(self.device)
        got = got.cpu().to(torch.float64)
        bad = ((got - want.to(torch.float64)).abs() > slack * want.abs()).nonzero()
        expect(len(bad) == 0, f"{what}: element {bad[:1].tolist()} of {len(got)}: {got[bad[:1]].tolist()}")

    def all_reduce(self, dtype, op):
        slack = {"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 1e-6) if op == "AVG" else 0.0
        for size in SIZES:
            source = self.mine(dtype, size)
            out = torch.empty_like(source)
            with torch.cuda.stream(self.stream):
                self.nccl.ncclAllReduce(
                    self.at(source), self.at(out), size, self.type_of(source), self.op_of(op), self.comm, self.on()
                )
            self.same(out, self.want(op, dtype, size), f"ncclAllReduce {size}", slack)

    def moves(self, dtype):
        for size in SIZES:
            source = self.mine(dtype, size)
            kind = self.type_of(source)
            whole = torch.empty(size * self.ranks, dtype=source.dtype, device=self.device)
            total = self.mine(dtype, size * self.ranks)
            out = torch.empty_like(source)
            with torch.cuda.stream(self.stream):
                self.nccl.ncclAllGather(self.at(source), self.at(whole), size, kind, self.comm, self.on())
                self.nccl.ncclReduceScatter(
                    self.at(total), self.at(out), size, kind, self.op_of("SUM"), self.comm, self.on()
                )
                if hasattr(self.nccl, "ncclBroadcast"):
                    self.nccl.ncclBroadcast(self.at(source), self.at(source), size, kind, 0, self.comm, self.on())
            gathered = torch.cat([values(dtype, size, r) for r in range(self.ranks)])
            self.same(whole, gathered, f"ncclAllGather {size}")
            part = slice(self.rank * size, (self.rank + 1) * size)
            self.same(out, self.want("SUM", dtype, size * self.ranks)[part], f"ncclReduceScatter {size}")
            self.same(source, values(dtype, size, 0), f"ncclBroadcast {size}")

    def messages(self, dtype):
        to, source = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        for size in SIZES:
            mine = self.mine(dtype, size)
            out = torch.empty_like(mine)
            with torch.cuda.stream(self.stream):
                self.nccl.ncclGroupStart()
                self.nccl.ncclSend(self.at(mine), size, self.type_of(mine), to, self.comm, self.on())
                self.nccl.ncclRecv(self.at(out), size, self.type_of(out), source, self.comm, self.on())
                self.nccl.ncclGroupEnd()
            self.same(out, values(dtype, size, source), f"ncclSend and ncclRecv {size}")

    def graph(self):
        """Captured as vLLM captures its decode step, and replayed with new inputs."""
        source = self.mine("bfloat16", 4099)
        out = torch.empty_like(source)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(4):
                self.nccl.ncclAllReduce(
                    self.at(source), self.at(out), 4099, self.type_of(source), self.op_of("SUM"), self.comm, self.on()
                )
        for salt in range(50):
            source.copy_(self.mine("bfloat16", 4099, salt))
            graph.replay()
            self.same(out, self.want("SUM", "bfloat16", 4099, salt), f"replay {salt}")
        del graph

    def version(self):
        expect(self.nccl.ncclGetVersion().startswith("2."), self.nccl.ncclGetVersion())

    def window(self):
        if not hasattr(self.nccl, "ncclCommWindowRegister"):
            return
        tensor = self.mine("float32", 1 << 20)
        window = self.nccl.ncclCommWindowRegister(self.comm, self.at(tensor), tensor.numel() * 4, 1)
        with torch.cuda.stream(self.stream):
            self.nccl.ncclAllReduce(
                self.at(tensor), self.at(tensor), 1 << 20, self.type_of(tensor), self.op_of("SUM"), self.comm, self.on()
            )
        self.same(tensor, self.want("SUM", "float32", 1 << 20), "in a window")
        self.nccl.ncclCommWindowDeregister(self.comm, window)

    def destroy(self):
        self.nccl.ncclCommDestroy(self.comm)


def body(cases):
    wrapper = load(cases.options.wrapper)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    suite = Suite(cases, wrapper)
    if cases.rank == 0:
        print(f"{LIBRARY}: {suite.nccl.ncclGetVersion()}", flush=True)
    cases.run("version", suite.version)
    for dtype in DTYPES:
        for op in OPS:
            cases.run(f"ncclAllReduce {op} {dtype}", suite.all_reduce, dtype, op)
        cases.run(f"moves {dtype}", suite.moves, dtype)
        cases.run(f"messages {dtype}", suite.messages, dtype)
    for case in ("graph", "window", "destroy"):
        cases.run(case, getattr(suite, case))
    dist.destroy_process_group()


def more(parser):
    parser.add_argument("--wrapper", required=True, help="vLLM's pynccl_wrapper.py")


if __name__ == "__main__":
    run(body, more)
