#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_gate.py GATE CLANG: the gate refuses what it should, and nothing else.

offenders/ has a folder for each thing that it must refuse: kernel.c, which is compiled,
and `says`, lines of "KIND TEXT". KIND is ptx, amd (all TARGETS) or a target: what is said
of the image must hold TEXT. `compile` and `link` give options for AMD targets. Cubins are
tried where ptxas and nvdisasm are installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
OFFENDERS = os.path.join(HERE, "offenders")
FLAGS = "-x c -std=c17 -O3 -ffreestanding -nostdlibinc -nogpulib".split()
PTX = "--target=nvptx64-nvidia-cuda -march=sm_70 --cuda-feature=+ptx70 -S".split()
AMD = "--target=amdgcn-amd-amdhsa -mcode-object-version=5 -fvisibility=protected".split()
TARGETS = ("gfx906", "gfx942", "gfx1100", "gfx1201")  # each has other words for the same
RMW = "read-modify-write"


class Test:
    def __init__(self, gate, clang, work):
        self.gate, self.clang, self.work = gate, clang, work
        self.failures, self.tried = 0, 0

    def build(self, source, flags, name):
        path = os.path.join(self.work, name)
        command = [self.clang, *FLAGS, *flags, os.path.join(HERE, source), "-o", path]
        subprocess.run(command, check=True)
        return path

    def build_amd(self, source, target, name, compiling=(), linking=()):
        """In two steps: what the compiler's driver gives to the linker may be too strict."""
        part = self.build(source, [*AMD, f"-mcpu={target}", *compiling, "-c"], "part.o")
        path = os.path.join(self.work, name)
        lld = subprocess.run(
            [self.clang, "--print-prog-name=ld.lld"], stdout=subprocess.PIPE, check=True
        )
        linker = lld.stdout.decode().strip()
        subprocess.run([linker, "-shared", *linking, part, "-o", path], check=True)
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


def judged(test, source, name, says):
    """The gate says of each image of `source` what `says` has for its kind."""
    if "ptx" in says:
        path = test.build(source, PTX, f"{name}.ptx")
        test.expect(path, says["ptx"])
        if shutil.which("ptxas") and shutil.which("nvdisasm") and RMW in (says["ptx"] or ""):
            cubin = path.replace(".ptx", ".cubin")
            subprocess.run(["ptxas", "-arch=sm_90", path, "-o", cubin], check=True)
            test.expect(cubin, RMW)
    for target in TARGETS:
        if target in says or "amd" in says:
            options = [says.get(step, "").split() for step in ("compile", "link")]
            path = test.build_amd(source, target, f"{name}-{target}.co", *options)
            test.expect(path, says.get(target, says.get("amd")))


def planted(test):
    for name in sorted(os.listdir(OFFENDERS)):
        if os.path.isdir(os.path.join(OFFENDERS, name)):
            with open(os.path.join(OFFENDERS, name, "says"), encoding="utf-8") as file:
                says = dict(line.rstrip("\n").split(" ", 1) for line in file)
            judged(test, os.path.join("offenders", name, "kernel.c"), name, says)
    judged(test, "good.c", "good", {"ptx": None, "amd": None})


def linked(test):
    """Two objects linked into one: the second one's kernels are lost to a runtime."""
    flags = [*AMD, "-mcpu=gfx1100"]
    both = ("good.c", "offenders/wave/kernel.c")
    objects = [test.build(s, [*flags, "-c"], f"{i}.o") for i, s in enumerate(both)]
    path = os.path.join(test.work, "linked.co")
    subprocess.run([test.clang, *flags[:1], "-mcpu=gfx1100", *objects, "-o", path], check=True)
    test.expect(path, "has 2 documents")


def damaged(test):
    with open(test.build_amd("good.c", "gfx1100", "whole.co"), "rb") as file:
        whole = file.read()
    test.expect(test.write("half.co", whole[: len(whole) // 2]), "no sound ELF")
    test.expect(test.write("cut.co", whole[:100]), "no sound ELF")
    test.expect(test.write("text.ptx", b"hello"), "neither PTX nor ELF")
    nameless = whole.replace(b"AMDGPU\0", b"XMDGPU\0")
    test.expect(test.write("good-gfx1101.co", whole), "it is for 'amdgcn-amd-amdhsa--gfx1100'")
    test.expect(test.write("nameless.co", nameless), "has 0 documents")
    other = whole[:18] + b"\x3e\x00" + whole[20:]
    test.expect(test.write("x86.co", other), "another machine")


def listed(test):
    good = test.build("good.c", PTX, "listed.ptx")
    test.expect(good, None, "--kernels", test.write("right", b"KERNEL_ROW(atomic_in_name, int)\n"))
    more = test.write("more", b"KERNEL_ROW(atomic_in_name, int)\nKERNEL_ROW(other, int)\n")
    test.expect(good, "lacks the kernels [other]", "--kernels", more)
    less = test.write("less", b"KERNEL_ROW(other, int)\n")
    test.expect(good, "has also [atomic_in_name]", "--kernels", less)


def main():
    with tempfile.TemporaryDirectory() as work:
        test = Test(sys.argv[1], sys.argv[2], work)
        planted(test)
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
