#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_gate.py GATE CLANG: the gate refuses what it should, and nothing else.

Compiles the kernels of bad.c, one at a time, and looks at what the gate says. Cubins are
tried where ptxas and nvdisasm are installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = "-x c -std=c17 -O3 -ffreestanding -nostdlibinc -nogpulib".split()
PTX = "--target=nvptx64-nvidia-cuda -march=sm_70 --cuda-feature=+ptx70 -S".split()
AMD = "--target=amdgcn-amd-amdhsa -fvisibility=protected".split()
TARGETS = ("gfx906", "gfx942", "gfx1100", "gfx1201")  # each has other words for the same

RMW = "read-modify-write"
# kernel of bad.c | what the gate says about its PTX, and about its AMD code; None: nothing
CASES = (
    ("GOOD", None, None),
    ("ADD", f"add: {RMW}", f"add: {RMW}"),
    ("EXCHANGE", f"exchange: {RMW}", f"exchange: {RMW}"),
    ("COMPARE", f"compare: {RMW}", f"compare: {RMW}"),
    ("SHARED_MAX", f"shared_max: {RMW}", f"shared_max: {RMW}: ds_"),
    ("INDIRECT", None, "indirect: declares a hostcall buffer"),
    ("EXTERN", "elsewhere: is called and not there", None),
    ("NOTHING", "it has no kernel", None),
)


class Test:
    def __init__(self, gate, clang, work):
        self.gate, self.clang, self.work = gate, clang, work
        self.failures, self.tried = 0, 0

    def build(self, case, flags, name):
        path = os.path.join(self.work, name)
        source = os.path.join(HERE, "bad.c")
        command = [self.clang, *FLAGS, *flags, f"-D{case}", source, "-o", path]
        subprocess.run(command, check=True)
        return path

    def expect(self, path, says, *options):
        """The gate lets `path` pass if `says` is None, else it fails and says that."""
        done = subprocess.run(
            [sys.executable, self.gate, *options, path],
            stdout=subprocess.PIPE,
            check=False,
            universal_newlines=True,
        )
        self.tried += 1
        if done.returncode != (0 if says is None else 1) or (says or "") not in done.stdout:
            print(f"FAIL: {os.path.basename(path)}: expected {says or 'nothing'}, got:")
            print(done.stdout)
            self.failures += 1

    def write(self, name, content):
        path = os.path.join(self.work, name)
        with open(path, "wb") as file:
            file.write(content)
        return path


def compiled(test):
    for case, ptx, amd in CASES:
        path = test.build(case, PTX, f"{case}.ptx")
        test.expect(path, ptx)
        if shutil.which("ptxas") and shutil.which("nvdisasm") and ptx is not None and RMW in ptx:
            cubin = path.replace(".ptx", ".cubin")
            subprocess.run(["ptxas", "-arch=sm_90", path, "-o", cubin], check=True)
            test.expect(cubin, RMW)
        for target in TARGETS:
            if case in ("EXTERN", "NOTHING"):
                continue  # the linker refuses the one, the other has no AMD metadata
            test.expect(test.build(case, [*AMD, f"-mcpu={target}"], f"{case}.{target}.co"), amd)


def linked(test):
    """Two objects linked into one: the second one's kernels are lost to a runtime."""
    flags = [*AMD, "-mcpu=gfx1100"]
    objects = [test.build(case, [*flags, "-c"], f"{case}.o") for case in ("GOOD", "ADD")]
    path = os.path.join(test.work, "linked.co")
    subprocess.run([test.clang, *flags[:1], "-mcpu=gfx1100", *objects, "-o", path], check=True)
    test.expect(path, "has 2 documents")


def damaged(test):
    with open(test.build("GOOD", [*AMD, "-mcpu=gfx1100"], "whole.co"), "rb") as file:
        whole = file.read()
    test.expect(test.write("half.co", whole[: len(whole) // 2]), "no sound ELF")
    test.expect(test.write("cut.co", whole[:100]), "no sound ELF")
    test.expect(test.write("text.ptx", b"hello"), "neither PTX nor ELF")
    nameless = whole.replace(b"AMDGPU\0", b"XMDGPU\0")
    test.expect(test.write("gfx1101.co", whole), "it is for 'amdgcn-amd-amdhsa--gfx1100'")
    test.expect(test.write("nameless.co", nameless), "has 0 documents")
    other = whole[:18] + b"\x3e\x00" + whole[20:]
    test.expect(test.write("x86.co", other), "another machine")


def listed(test):
    good = test.build("GOOD", PTX, "listed.ptx")
    test.expect(good, None, "--kernels", test.write("right", b"KERNEL_ROW(atomic_in_name, int)\n"))
    more = test.write("more", b"KERNEL_ROW(atomic_in_name, int)\nKERNEL_ROW(other, int)\n")
    test.expect(good, "lacks the kernels [other]", "--kernels", more)
    less = test.write("less", b"KERNEL_ROW(other, int)\n")
    test.expect(good, "has also [atomic_in_name]", "--kernels", less)


def main():
    with tempfile.TemporaryDirectory() as work:
        test = Test(sys.argv[1], sys.argv[2], work)
        compiled(test)
        linked(test)
        damaged(test)
        listed(test)
    print(f"gate: {test.tried} images judged, {test.failures} failures")
    return 1 if test.failures else 0


if __name__ == "__main__":
    if not shutil.which("llvm-objdump-19") and not shutil.which("llvm-objdump"):
        print("SKIPPED: llvm-objdump is not installed (package llvm-19)")
        sys.exit(77)
    sys.exit(main())
