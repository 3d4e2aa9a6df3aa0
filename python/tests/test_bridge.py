# SPDX-License-Identifier: Apache-2.0
"""The bridge. What it is built with, on synthetic trees: libraries, includes, defines, rpaths.
What its command says. And its test of ranks, without a GPU: over gloo, which can be broken."""

import contextlib
import io
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from motet.torch import _bridge_test, _build, _vendors, bridge
from motet.torch._build import BuildError, Torch

MATHS = ("cuda.h", "cusparse.h", "cublas_v2.h", "cusolverDn.h")
# Stands for bridge.cpp, where the headers and libraries are no real ones. It gives back what it
# is called with.
STAND_IN = """
#include <Python.h>
#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
#ifdef NEEDS
extern "C" int NEEDS(void);
int (*needed)(void) = NEEDS;
#endif
static PyObject *make(PyObject *, PyObject *arguments) { Py_INCREF(arguments); return arguments; }
static PyMethodDef functions[] = {
    {"make_nccl_backend", make, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "stand_in", nullptr, -1, functions};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void) { return PyModule_Create(&module); }
"""
# A bridge to gloo. In rank 1, or by exchanging the ranks, it goes wrong as it is told to.
GLOO = """
import datetime, os, signal, time
import torch.distributed as dist

def make_nccl_backend(store, rank, size, timeout_ms=0, high_priority_stream=False):
    how = os.environ.get("GLOO", "")
    if rank == 1 and how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "hangs":
        time.sleep(3600)
    if how == "mixes":
        rank = size - 1 - rank
    return dist.ProcessGroupGloo(store, rank, size, datetime.timedelta(milliseconds=timeout_ms))
"""
HPP = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"


def command(*words, **environ):
    """The command in this process: its status, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(mock.patch.dict(os.environ, environ))
        try:
            status = bridge.main(list(map(str, words)))
        except SystemExit as reason:
            status = reason.code
    return status, out.getvalue(), err.getvalue()


class Tree(unittest.TestCase):
    """A folder with a PyTorch of Python's in it, of empty files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        torch = self.top / "py/torch"
        self.torch = Torch("2.10.0", [torch / "include"], torch / "lib", True)
        self.make(f"py/torch/include/{HPP}")
        for name in ("torch_python", "torch", "torch_cpu", "c10"):
            self.make(f"py/torch/lib/lib{name}.so")
        self.into = self.top / "out"

    def make(self, *paths):
        for path in paths:
            (self.top / path).parent.mkdir(parents=True, exist_ok=True)
            (self.top / path).write_text("")


class Trees(Tree):
    def plan(self, vendor, torch_lib, **environ):
        values = {name: str(self.top / value) for name, value in environ.items()}
        source = self.top / "bridge.cpp"
        return _vendors.bridge_plan(
            vendor, self.torch, self.top / torch_lib, self.into, "_x", source, values, self.top
        )

    def rpaths(self, plan):
        words = _build.command_of(plan, self.torch)
        return [w.removeprefix("-Wl,-rpath,") for w in words if w.startswith("-Wl,-rpath,")]

    def test_hygon_with_two_torches(self):
        self.make(
            "fl/lib_dcu/libtorch_hip.so",
            "fl/lib_dcu/libc10_hip.so",
            "opt/dtk-24.04/cuda/cuda-11/include/cuda_runtime_api.h",
            "opt/dtk-24.04/cuda/cuda-12/include/cuda_runtime_api.h",
            *(f"opt/dtk-24.04/cuda/cuda-12/include/{name}" for name in MATHS),
            "opt/dtk-24.04/include/rccl/rccl.h",
            "opt/dtk-24.04/include/rccl/nccl.h",
            "opt/dtk-24.04/lib/librccl.so.1",
        )
        self.assertEqual(
            _vendors.choose_vendor(None, self.top / "fl/lib_dcu", {"DTK_ROOT": "x"}), "hygon"
        )
        plan = self.plan("hygon", "fl/lib_dcu", DTK_ROOT="opt/dtk-24.04")
        self.assertEqual(plan.defines, ["USE_C10D_NCCL", "C10_CUDA_NO_CMAKE_CONFIGURE_FILE"])
        root = self.top / "opt/dtk-24.04"
        self.assertEqual(
            plan.includes,
            [root / "cuda/cuda-12/include", root / "include", root / "include/rccl"],
        )
        for library in ("c10_hip", "torch_hip", ":librccl.so.1", "torch_python"):
            self.assertIn(library, plan.libraries)
        self.assertEqual(
            self.rpaths(plan),
            ["$ORIGIN/../fl/lib_dcu", "$ORIGIN/../opt/dtk-24.04/lib", "$ORIGIN/../py/torch/lib"],
        )
        # without the variable: where DTK is by default
        self.assertEqual(self.plan("hygon", "fl/lib_dcu").includes, plan.includes)

    def test_cuda_by_wheels_and_by_toolkit(self):
        self.make(
            "py/torch/lib/libtorch_cuda.so",
            "py/torch/lib/libc10_cuda.so",
            "py/nvidia/cuda_runtime/include/cuda_runtime_api.h",
            *(f"py/nvidia/cuda_runtime/include/{name}" for name in MATHS),
            "py/nvidia/nccl/include/nccl.h",
            "py/nvidia/nccl/lib/libnccl.so.2",
        )
        lib = self.top / "py/torch/lib"
        self.assertEqual(_vendors.choose_vendor(None, lib, {}), "cuda")
        plan = self.plan("cuda", "py/torch/lib")
        for library in ("c10_cuda", "torch_cuda", ":libnccl.so.2"):
            self.assertIn(library, plan.libraries)
        self.assertIn(self.top / "py/nvidia/nccl/include", plan.includes)
        # libtorch in another folder, which has no wheels beside it
        self.make("fl/lib/libtorch_cuda.so", "fl/lib/libc10_cuda.so")
        apart = self.plan("cuda", "fl/lib")
        self.assertEqual((apart.includes, apart.libraries), (plan.includes, plan.libraries))
        self.assertEqual(
            self.rpaths(apart),
            ["$ORIGIN/../fl/lib", "$ORIGIN/../py/nvidia/nccl/lib", "$ORIGIN/../py/torch/lib"],
        )
        self.make("usr/local/cuda-12.4/include/x.h", "usr/local/cuda-9.1/include/x.h")
        plan = self.plan("cuda", "py/torch/lib")
        self.assertEqual(plan.includes[0], self.top / "usr/local/cuda-12.4/include")

    def test_rocm(self):
        self.make(
            "py/torch/lib/libtorch_hip.so",
            "py/torch/lib/libc10_hip.so",
            "opt/rocm/include/hip/hip_runtime_api.h",
            "opt/rocm/include/hipblas/hipblas.h",
            "opt/rocm/include/hipsparse/hipsparse.h",
            "opt/rocm/include/rccl/rccl.h",
            "opt/rocm/lib/librccl.so.1",
        )
        lib = self.top / "py/torch/lib"
        self.assertEqual(_vendors.choose_vendor(None, lib, {}, self.top), "rocm")
        plan = self.plan("rocm", "py/torch/lib", ROCM_PATH="opt/rocm/hip")
        self.assertIn("USE_ROCM", plan.defines)
        self.assertEqual(plan.includes, [self.top / "opt/rocm/include"])

    def test_words_for_vendors(self):
        lib = self.top / "py/torch/lib"
        for word, name in (("nvidia", "cuda"), ("DCU", "hygon"), ("du", "hygon"), ("amd", "rocm")):
            self.assertEqual(_vendors.choose_vendor(None, lib, {"GEMS_VENDOR": word}), name)
        self.assertEqual(_vendors.choose_vendor("cuda", lib, {"GEMS_VENDOR": "hygon"}), "cuda")
        with self.assertRaisesRegex(BuildError, "need one of cuda, rocm, hygon"):
            _vendors.vendor_named("metax9")
        with self.assertRaisesRegex(BuildError, "name the folder of the vendor's libtorch"):
            _vendors.choose_vendor(None, lib, {}, self.top)

    def test_all_that_is_missing_is_named(self):
        with self.assertRaises(BuildError) as caught:
            self.plan("hygon", "fl/lib_dcu")
        text = str(caught.exception)
        for word in ("libc10_hip.so", "libtorch_hip.so", "librccl.so", "nccl.h", "DTK_ROOT"):
            self.assertIn(word, text)

    def compiler(self, version):
        path = self.top / f"c++-{version}"
        path.write_text(f"#!/bin/sh\necho '#define __GNUC__ {version}'\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    def test_a_compiler_that_is_too_old_is_refused(self):
        header = self.top / "py/torch/include/c10/util/C++17.h"
        header.parent.mkdir(parents=True)
        header.write_text("#if defined(__GNUC__) && __GNUC__ < 9\n#error old\n#endif\n")
        self.assertEqual(_build.least_gcc(self.torch), 9)
        with self.assertRaisesRegex(BuildError, "2.10.0 requires GCC 9 or later, and .* is GCC 8"):
            _build.check_compiler(self.compiler(8), self.torch)
        _build.check_compiler(self.compiler(11), self.torch)
        with self.assertRaisesRegex(BuildError, "set CXX to one"):
            _build.check_compiler([str(self.top / "none")], self.torch)

    def test_a_source_that_does_not_compile_is_told(self):
        plan = _build.Plan("_x", self.top / "bad.cpp", self.into, [], [], [], [])
        with self.assertRaisesRegex(BuildError, "is missing"):
            _build.build(plan, self.torch)
        (self.top / "bad.cpp").write_text("#error nothing here\n")
        with self.assertRaisesRegex(BuildError, "does not compile:\n.*nothing here"):
            _build.build(plan, self.torch)
        self.assertFalse(os.path.exists(plan.output))


class TwoFolders(Tree):
    """As Torch-FL lies on a disk: a PyTorch for CPUs in Python, the vendor's libtorch in a
    package. The libraries are real ones, though there is nothing in them."""

    def setUp(self):
        super().setUp()
        for header in (*MATHS, "cuda_runtime_api.h"):
            self.make(f"dtk/cuda/cuda-12/include/{header}")
        self.make("dtk/include/rccl/nccl.h")
        for name in ("torch_python", "torch", "torch_cpu", "c10"):
            self.library(f"py/torch/lib/lib{name}.so")
        for name in ("torch_hip", "c10_hip"):
            self.library(f"fl/lib_dcu/lib{name}.so")
        self.library("dtk/lib/librccl.so.1")
        self.into = self.top / "fl/comm/_nccl_ext"
        self.source = self.top / "stand_in.cpp"
        self.source.write_text(STAND_IN)

    def library(self, path):
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        words = ["-shared", "-fPIC", f"-Wl,-soname,{file.name}", "-o", file, "-x", "c++"]
        subprocess.run([*_build.compiler(), *words, os.devnull], check=True)

    def build(self, name="_flagos_nccl"):
        environ = {"DTK_ROOT": str(self.top / "dtk"), "GEMS_VENDOR": "hygon"}
        words = ("--name", name, "--into", self.into, "--torch-lib", self.top / "fl/lib_dcu")
        here = {"torch_here": lambda: self.torch, "SOURCE": self.source}
        with mock.patch.multiple(bridge, **here):
            status, out, err = command("build", *words, **environ)
        self.assertEqual(status, 0, err)
        (built,) = self.into.glob(f"{name}.*.so")
        self.assertIn(f"built:     {built}", out)
        return built

    def test_run_paths_are_relative_to_both(self):
        built = self.build()
        said = subprocess.check_output(["readelf", "-d", "-W", built], text=True)
        self.assertEqual(
            re.findall(r"\(RUNPATH\).*\[(.*)\]", said),
            ["$ORIGIN/../../lib_dcu:$ORIGIN/../../../dtk/lib:$ORIGIN/../../../py/torch/lib"],
        )
        self.assertNotIn(bytes(self.top), built.read_bytes())
        for name in ("torch_hip", "c10_hip", "torch_python"):
            self.assertIn(f"[lib{name}.so]", said)
        self.assertIn("[librccl.so.1]", said)

    def test_it_is_found_by_name_and_by_path_wherever_it_moves(self):
        name = "_flagos_nccl_moved"
        self.build(name)
        moved = self.top / "moved"
        moved.mkdir()
        for folder in ("fl", "py", "dtk"):
            (self.top / folder).rename(moved / folder)
        (built,) = moved.glob(f"fl/comm/_nccl_ext/{name}.*.so")
        status, out, _ = command("inspect", moved, "--name", name)
        self.assertEqual(status, 0, out)
        self.assertIn(f"libtorch_hip.so => {built.parent}/../../lib_dcu/libtorch_hip.so", out)
        arguments = ("store", 1, 2, 0, False)
        self.assertEqual(bridge.make_nccl_backend("store", 1, 2, module=built), arguments)
        with mock.patch.object(sys, "path", [str(built.parent), *sys.path]):
            module = __import__(name)
            self.assertEqual(module.make_nccl_backend(*arguments), arguments)
            arguments = ("store", 0, 1, 500, True)
            made = bridge.make_nccl_backend("store", 0, 1, 500, True, module=name)
            self.assertEqual(made, arguments)

    def test_inspect_tells_pythons_symbols_from_those_that_are_missing(self):
        self.build()
        status, out, _ = command("inspect", self.top / "fl")
        self.assertEqual(status, 0, out)
        self.assertIn(": all is found", out)
        self.assertNotIn("undefined", out)
        (self.top / "dtk/lib/librccl.so.1").unlink()
        status, out, _ = command("inspect", self.top / "fl")
        self.assertEqual(status, 1)
        self.assertIn("librccl.so.1 => not found", out)
        self.library("dtk/lib/librccl.so.1")
        # No interpreter gives the second one either, though its name begins like theirs.
        for symbol in ("ncclNowhere", "PyNowhere"):
            self.source.write_text(f"#define NEEDS {symbol}\n{STAND_IN}")
            self.build()
            status, out, _ = command("inspect", self.top / "fl")
            self.assertEqual(status, 1)
            self.assertEqual(re.findall(r"undefined symbol: (\w+)", out), [symbol])
        with mock.patch.object(bridge, "MOST_FAULTS", 0):
            self.assertIn("and 1 more faults", command("inspect", self.top / "fl")[1])

    def test_inspect_says_what_is_not_there(self):
        self.make("fl/comm/_nccl_ext/_flagos_nccl.so", "empty/x")
        status, out, _ = command("inspect", self.top / "fl")
        self.assertEqual(status, 1)
        self.assertIn("ldd ends with status 1: not a dynamic executable", out)
        status, out, _ = command("inspect", self.top / "empty")
        self.assertEqual(status, 1)
        self.assertIn("extensions:     none", out)
        for what in ("no_such_package.at_all", ".x", "", "ast"):
            status, _, err = command("inspect", what)
            self.assertEqual(status, 2)
            self.assertIn(f"'{what}' is neither a folder nor an installed package", err)
        with mock.patch.dict(os.environ, PATH=str(self.top)):
            status, _, err = command("inspect", self.top / "fl")
        self.assertEqual((status, err[:30]), (2, "motet.torch.bridge: cannot run"))


class Words(unittest.TestCase):
    """What the command is given, and what it answers."""

    def one_sentence(self, words, said, **environ):
        status, _, err = command(*words, **environ)
        self.assertEqual(status, 2)
        self.assertRegex(err, f"^motet.torch.bridge: {said}.*\n$")

    def test_vendors(self):
        known = "there is no bridge for the vendor 'none': need one of cuda, rocm, hygon"
        self.one_sentence(("build", "--vendor", "none"), f"--vendor: {known}")
        for name in ("MOTET_TORCH_BRIDGE", "GEMS_VENDOR"):
            self.one_sentence(("build",), f"{name}: {known}", **{name: "none"})

    def test_modules(self):
        with self.assertRaisesRegex(ImportError, "no module nowhere, neither in motet.torch nor"):
            bridge.make_nccl_backend(None, 0, 1, module="nowhere")
        self.one_sentence(
            ("test", "--module", "a.b"), "the bridge a.b cannot be loaded: there is no module a.b"
        )
        self.one_sentence(("test", "--module", "/none.so"), "the bridge /none.so .* no file")
        self.one_sentence(("test", "--module", "a b"), "the bridge a b .* neither the name")
        self.one_sentence(("test", "--module", "json"), "json is no bridge")

    def test_a_module_that_does_not_load_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "lacks_another.py").write_text("import another_one_that_is_not_there\n")
            Path(folder, "broken.so").write_text("")
            with mock.patch.object(sys, "path", [folder, *sys.path]):
                self.one_sentence(("test", "--module", "lacks_another"), ".* 'another_one_that")
            self.one_sentence(("test", "--module", f"{folder}/broken.so"), ".* file too short")

    def test_ranks_and_cards(self):
        seen = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(bridge, "load"))
            count = stack.enter_context(mock.patch("torch.cuda.device_count", return_value=0))
            run_ranks = stack.enter_context(mock.patch.object(_bridge_test, "run_ranks"))
            run_ranks.side_effect = lambda run: seen.append(run) or []
            self.one_sentence(("test", "-n", "2"), "no GPU: PyTorch .* sees none")
            self.one_sentence(("test", "-n", "2", "--share-cards"), "no GPU")
            count.return_value = 2
            self.one_sentence(
                ("test", "-n", "3"), "3 ranks need as many GPUs, PyTorch sees 2; --share-cards"
            )
            for words, cards in ((("-n", "3", "--share-cards"), 2), (("--device", "cpu"), 2)):
                self.assertEqual(command("test", *words)[:2], (0, "PASS\n"))
                self.assertEqual((seen[-1].cards, seen[-1].timeout), (cards, 300))
        for words in (("-n", "0"), ("-n", "x"), ("--timeout", "-1"), ("--timeout", "nan")):
            status, _, err = command("test", *words)
            self.assertEqual(status, 2)
            self.assertIn(f"'{words[1]}' is no number above 0", err)


class Ranks(unittest.TestCase):
    """`bridge test`, each rank a process, over gloo in the place of NCCL."""

    def ranks(self, *words, how=""):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "gloo_bridge.py").write_text(GLOO)
            path = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
            here = ["--device", "cpu", "--module", "gloo_bridge"]
            done = subprocess.run(
                [sys.executable, "-m", "motet.torch.bridge", "test", *here, *words],
                env={**os.environ, "PYTHONPATH": path, "GLOO": how},
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertNotIn("Traceback", done.stderr)
        for pid in map(int, re.findall(r"pid (\d+)", done.stderr)):
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def test_all_steps(self):
        status, out, err = self.ranks()
        self.assertEqual(status, 0, err)
        self.assertEqual(
            sorted(out[:2]), [f"RANK_PASS rank={r} local_rank={r} value=3.0" for r in (0, 1)]
        )
        steps = "broadcast all_gather reduce_scatter async-Work subgroup DDP HSDP".split()
        for place, step in enumerate((name.replace("-", " ") for name in steps), 1):
            begins = sorted(line[: len(step) + 7] for line in out[2 * place : 2 * place + 2])
            self.assertEqual(begins, [f"{step} rank={r}" for r in (0, 1)])
        self.assertEqual(out[16:], ["PASS"])

    def test_a_wrong_value(self):
        status, out, err = self.ranks(how="mixes")
        self.assertEqual((status, out[-1]), (1, "FAIL"))
        self.assertIn("rank 0: broadcast: 1 of 1 elements are wrong, the first is", err)
        self.assertRegex(err, r"motet.torch.bridge: rank 0 \(pid \d+\) ended with status 1")

    def test_a_dead_rank(self):
        status, out, err = self.ranks(how="dies")
        self.assertEqual((status, out), (1, ["FAIL"]))
        self.assertRegex(err, r"rank 1 \(pid \d+\) ended with SIGKILL")
        self.assertRegex(err, r"after the failure of rank 1, and so ended: rank 0 \(pid \d+\)\n")

    def test_the_deadline(self):
        status, out, err = self.ranks("--timeout", "20", how="hangs")
        self.assertEqual((status, out), (1, ["FAIL"]))
        self.assertRegex(err, r"running after 20 s, and so ended: .*rank 1 \(pid \d+\)\n")


if __name__ == "__main__":
    unittest.main()
