#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gate.py [--kernels LIST] IMAGE...: what device code must not hold to be shipped.

An image is PTX, a cubin or an AMD code object; the content tells. It fails if

  - a kernel declares a hostcall buffer: without PCIe AtomicOps such a kernel is refused;
  - there is an atomic read-modify-write: over PCIe some of them are silently wrong;
  - a kernel has a stack, of known or unknown size, or keeps registers in memory: a runtime
    allocates that while other kernels run, and may wait for them;
  - it jumps or calls through a register, or AMD code calls at all: what runs must have
    been read here, and it is all inlined;
  - it needs a symbol that it does not contain (printf, malloc, assert);
  - an instruction cannot be read, or there is no kernel;
  - AMD code is named NAME-gfxNNN.co and says that it is for another target, or its kernels
    run in waves of another size than that target's 64 (gfx9) or 32;
  - with --kernels, its kernels are not those of LIST: a KERNEL_ROW(name, …) each.

AMD code needs llvm-objdump, the one beside the compiler of --cc if that is given; cubins
need nvdisasm. A cubin is only made from a PTX that passes, so without nvdisasm it is said
that cubins were not read, and that is all; without llvm-objdump and with AMD code the exit
status is 77. Else 0, or 1 for a problem.
"""

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys

AMDGPU, CUDA = 224, 190  # e_machine
SYMBOLS, NOTE, DYNAMIC_SYMBOLS, METADATA = 2, 7, 11, 32  # SHT_…, NT_AMDGPU_METADATA

# LDS instructions that only load, store or move between lanes. Every other ds_ word is a
# read-modify-write, an ordered count or a global wave sync. The 64-bit exchanges of
# gfx12 begin with ds_store, too, but with no size behind it.
LDS_PLAIN = re.compile(
    r"ds_(?:(?:read|write|load|store)(?:_2addr|2|2st64)?(?:_stride64)?(?:_addtid)?(?:_tr\d*)?"
    r"_[biu]\d+\w*|swizzle_b32|b?permute(?:_fi)?_b32|nop)$"
)
AMD_ATOMIC = re.compile(r"\w*atomic|\w*_gs_reg|ordered_count")
# Scalar jumps whose target is in registers, and calls.
AMD_CALL = re.compile(r"s_(?:setpc|swappc|rfe|call|cbranch_[gi]_fork|cbranch_join|subvector)")
# Metadata of a kernel that must be 0, and what is wrong if it is not. Scalar registers that
# are spilled lie in lanes of vector registers as long as there is no scratch memory.
AMD_NOT_0 = (
    (".uses_dynamic_stack", "has a stack of unknown size"),
    (".private_segment_fixed_size", "has scratch memory"),
    (".vgpr_spill_count", "spills vector registers"),
)
PTX_ATOMIC = re.compile(r"(?:atom|red)(?:\.|$)|multimem\.|cp\.reduce\.")
SASS_ATOMIC = re.compile(r"ATOM|RED(?:G|AS|\.|$)|SUATOM|SURED|UTMAREDG|UBLKRED")


class Broken(Exception):
    """The image cannot be read."""


def unpack(data):
    """The first msgpack value in data: what AMD metadata uses of the format."""

    def take(size):
        nonlocal at
        at += size
        if at > len(data):
            raise Broken("its metadata ends early")
        return data[at - size : at]

    def number(size, signed=False):
        return int.from_bytes(take(size), "big", signed=signed)

    def value():
        byte = number(1)
        if byte < 0x80:
            return byte
        if byte < 0x90:
            return mapping(byte & 15)
        if byte < 0xA0:
            return [value() for _ in range(byte & 15)]
        if byte < 0xC0:
            return take(byte & 31).decode()
        if byte >= 0xE0:
            return byte - 256
        if byte in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[byte]
        if 0xCC <= byte <= 0xD3:
            return number(1 << (byte & 3), signed=byte >= 0xD0)
        if 0xD9 <= byte <= 0xDB:
            return take(number(1 << (byte - 0xD9))).decode()
        if byte in (0xDC, 0xDD):
            return [value() for _ in range(number(2 << (byte - 0xDC)))]
        if byte in (0xDE, 0xDF):
            return mapping(number(2 << (byte - 0xDE)))
        raise Broken(f"its metadata has a byte 0x{byte:02x} where a value begins")

    def mapping(size):
        pairs = [(value(), value()) for _ in range(size)]
        return dict(pairs)

    at = 0
    return value()


class Elf:
    """A 64-bit little-endian ELF file: sections (name, type, content), undefined symbols."""

    def __init__(self, data):
        try:
            (self.machine,) = struct.unpack_from("<H", data, 18)
            (table,) = struct.unpack_from("<Q", data, 40)
            size, count, names = struct.unpack_from("<HHH", data, 58)
            heads = [struct.unpack_from("<IIQQQQI", data, table + i * size) for i in range(count)]
            strings = data[heads[names][4] :]
            self.sections, self.undefined = [], set()
            for name, kind, _, _, offset, length, link in heads:
                text = strings[name : strings.index(0, name)].decode()
                content = data[offset : offset + length]
                self.sections.append((text, kind, content))
                if kind in (SYMBOLS, DYNAMIC_SYMBOLS):
                    self.add_undefined(content, data[heads[link][4] :])
        except (struct.error, IndexError, ValueError) as error:
            raise Broken(f"it is no sound ELF file: {error}") from error

    def add_undefined(self, table, strings):
        for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
            if name != 0 and section == 0:
                self.undefined.add(strings[name : strings.index(0, name)].decode())


def metadata(elf):
    """The AMD metadata document. A runtime reads one, so that there may not be two."""
    documents = []
    for _, kind, content in elf.sections:
        at = 0
        while kind == NOTE and at + 12 <= len(content):
            name, length, type_ = struct.unpack_from("<III", content, at)
            begin = at + 12 + (name + 3) // 4 * 4
            if type_ == METADATA and content[at + 12 : at + 18] == b"AMDGPU":
                documents.append(content[begin : begin + length])
            at = begin + (length + 3) // 4 * 4
    if len(documents) != 1:
        raise Broken(f"it has {len(documents)} documents of AMD metadata")
    return unpack(documents[0])


def disassemble(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Broken(f"{command[0]} fails: {done.stderr.decode().strip()}")
    return done.stdout.decode().splitlines()


def look_at_amd_metadata(path, document, report):
    """Names of the kernels, from what the compiler says of them."""
    named = re.search(r"(?:^|-)(gfx\w+)$", os.path.splitext(os.path.basename(path))[0])
    target = document.get("amdhsa.target", "")
    if named and target != f"amdgcn-amd-amdhsa--{named.group(1)}":
        report(f"it is for '{target}'")
    wave = 64 if "--gfx9" in target else 32
    kernels = []
    for kernel in document.get("amdhsa.kernels", []):
        name = kernel[".name"]
        kernels.append(name)
        if any(a[".value_kind"] == "hidden_hostcall_buffer" for a in kernel.get(".args", [])):
            report(f"{name}: declares a hostcall buffer")
        for key, wrong in AMD_NOT_0:
            if kernel.get(key, 0):
                report(f"{name}: {wrong} ({key} {int(kernel[key])})")
        if kernel[".wavefront_size"] != wave:
            report(f"{name}: runs in waves of {kernel['.wavefront_size']}, not {wave}")
    return kernels


def look_at_amd_word(word):
    """What is wrong with an instruction, or None."""
    if AMD_ATOMIC.match(word) or (word.startswith("ds_") and not LDS_PLAIN.match(word)):
        return "read-modify-write"
    if AMD_CALL.match(word):
        return "call"
    if word != "..." and not re.match(r"[a-z]\w+$", word):  # ...: zeros between functions
        return "cannot be read"
    return None


def look_at_amd(path, elf, tool, report):
    kernels = look_at_amd_metadata(path, metadata(elf), report)
    if tool is None:
        return kernels
    function, words = "?", 0
    for line in disassemble([tool, "-d", path]):
        label = re.match(r"[0-9a-f]{8,} <(.+)>:$", line)
        if label:
            function = label.group(1)
        elif line.startswith("\t"):
            # Two instructions may share a line: "v_dual_… :: v_dual_…".
            words += 1
            wrong = look_at_amd_word(line.split()[0])
            if wrong:
                report(f"{function}: {wrong}: {line.split('//')[0].strip()}")
    if words == 0:
        raise Broken("no instruction was found in it")
    return kernels


def look_at_cubin(path, elf, tool, report):
    kernels = [name[6:] for name, _, _ in elf.sections if name.startswith(".text.")]
    if tool is None:
        return kernels
    function, words = "?", 0
    for line in disassemble([tool, "-c", path]):
        section = re.match(r"\s*\.section\s+\.text\.([^,]+)", line)
        if section:
            function = section.group(1)
        code = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:\{ *)?(?:@!?U?P\w+ +)?([A-Z][\w.]*)", line)
        if code:
            words += 1
            if SASS_ATOMIC.match(code.group(1)):
                report(f"{function}: read-modify-write: {code.group(1)}")
    if words == 0:
        raise Broken("no instruction was found in it")
    return kernels


def look_at_ptx(text, report):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    function, kernels = "?", []
    for statement in re.split(r"[;{}]", text):
        statement = re.sub(r"^(?:\s*[$\w]+:)*\s*(?:@!?%\w+\s+)?", "", statement).strip()
        head = re.search(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([$\w]+)", statement)
        if head:
            function = head.group(2)
            if head.group(1) == "entry":
                kernels.append(function)
            if ".extern" in statement:
                report(f"{function}: is needed and not there")
        words = " ".join(statement.split())
        if head is None and PTX_ATOMIC.match(statement):
            report(f"{function}: read-modify-write: {words}")
        elif re.match(r"call[.\w]* (?:\([^)]*\) ?, )?%", words):
            report(f"{function}: call: {words}")
        elif statement.startswith(".local"):
            report(f"{function}: has a stack: {words}")
    return kernels


def look_at(path, tools, report):
    """Names of the kernels of the image at `path`."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\x7fELF":
        text = data.decode("ascii", "replace")
        if ".version" not in text or ".target" not in text:
            raise Broken("it is neither PTX nor ELF")
        return look_at_ptx(text, report)
    elf = Elf(data)
    for symbol in sorted(elf.undefined):
        # Shared memory that the driver keeps for itself, named so by ptxas.
        if not (elf.machine == CUDA and symbol.startswith(".nv.reservedSmem.")):
            report(f"{symbol}: is needed and not there")
    if elf.machine == AMDGPU:
        return look_at_amd(path, elf, tools["amd"], report)
    if elf.machine == CUDA:
        return look_at_cubin(path, elf, tools["cuda"], report)
    raise Broken(f"it is code for another machine (ELF number {elf.machine})")


def first(*names):
    return next((found for found in map(shutil.which, names) if found), None)


def beside(compiler):
    """The compiler's own llvm-objdump, which knows the targets that it knows."""
    if compiler is None:
        return None
    try:
        answer = subprocess.run(
            [compiler, "--print-prog-name=llvm-objdump"], stdout=subprocess.PIPE, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return shutil.which(answer.stdout.decode().strip())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--kernels", metavar="LIST", help="file with the kernels that must be there")
    parser.add_argument("--cc", metavar="CLANG", help="compiler of the AMD code")
    parser.add_argument("images", metavar="IMAGE", nargs="+")
    return parser.parse_args()


def main():
    options = arguments()
    tools = {
        "amd": beside(options.cc) or first("llvm-objdump-19", "llvm-objdump"),
        "cuda": first("nvdisasm", "/usr/local/cuda/bin/nvdisasm"),
    }
    wanted = None
    if options.kernels:
        with open(options.kernels, encoding="utf-8") as file:
            wanted = sorted(re.findall(r"^KERNEL_ROW\((\w+)", file.read(), re.M))
    problems, count, kinds = [], 0, set()

    for path in options.images:
        name = os.path.basename(path)
        kinds.add(os.path.splitext(name)[1])

        def report(text, path=path):
            problems.append(f"{path}: {text}")

        try:
            kernels = look_at(path, tools, report)
        except Broken as broken:
            report(str(broken))
            continue
        count += len(kernels)
        if not kernels:
            report("it has no kernel")
        if wanted is not None and sorted(kernels) != wanted:
            lacks = sorted(set(wanted) - set(kernels))
            extra = sorted(set(kernels) - set(wanted))
            report(f"lacks the kernels [{' '.join(lacks)}], has also [{' '.join(extra)}]")

    for problem in problems:
        print(problem)
    if ".cubin" in kinds and tools["cuda"] is None:
        print("gate: cubins were not disassembled: nvdisasm is not installed")
    names = " ".join(os.path.splitext(os.path.basename(path))[0] for path in options.images)
    print(f"gate: {len(options.images)} images ({names}), {count} kernels, {len(problems)} problems")
    if problems:
        return 1
    if ".co" in kinds and tools["amd"] is None:
        print("gate: SKIPPED for AMD code, llvm-objdump is not installed")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
