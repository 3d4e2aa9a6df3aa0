# SPDX-License-Identifier: Apache-2.0
"""What the bridge is built with, on synthetic trees: libraries, includes, defines, rpaths."""

import os
import stat
import tempfile
import unittest
from pathlib import Path

from motet.torch import _build, _vendors
from motet.torch._build import BuildError, Torch

MATHS = ("cuda.h", "cusparse.h", "cublas_v2.h", "cusolverDn.h")
HPP = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"


class Trees(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        self.torch = Torch("2.10.0", [self.top / "py/torch/include"], self.top / "py/torch/lib", True)
        self.make(f"py/torch/include/{HPP}")
        for name in ("torch_python", "torch", "torch_cpu", "c10"):
            self.make(f"py/torch/lib/lib{name}.so")
        self.into = self.top / "out"

    def make(self, *paths):
        for path in paths:
            (self.top / path).parent.mkdir(parents=True, exist_ok=True)
            (self.top / path).write_text("")

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


if __name__ == "__main__":
    unittest.main()
