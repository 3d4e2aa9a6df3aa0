#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of `motet probe --gate-kernels`, executed instruction by instruction without a
GPU: what each stores, and that it stores nothing else.

    scripts/emulate/gate.py --emulator DIR --tinygrad DIR IMAGE...

DIR: as of emulate.py. IMAGE: BUILD/images/gate/probe-gate-gfxNNN.co. One line a kernel.
Exit status: 0 all right, 1 not. The emulator is no runtime: it refuses no kernel.
"""

import argparse
import ctypes
import mmap
import os
import struct
import sys

from emulate import E_FLAGS, MACHINES

POISON, VALUE, WORDS = 0xDEAD5EEDDEAD5EED, 0x6D6F746574, 8
LDS_BYTES, WIDE_WORDS = 65536, 511
RSRC2_LDS, LDS_UNIT = 15, 512  # COMPUTE_PGM_RSRC2: where the size of LDS stands, and in what


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--emulator", required=True)
    parser.add_argument("--tinygrad", required=True)
    parser.add_argument("images", metavar="IMAGE", nargs="+")
    return parser.parse_args()


def machine(path):
    with open(path, "rb") as file:
        return MACHINES[struct.unpack_from("<I", file.read(64), E_FLAGS)[0] & 0xFF]


def rows(address):
    """Kernel, arguments, the marker before, and the first two words that must be there."""
    narrow = [("Q", address), ("Q", VALUE)]
    wide = [VALUE * (i + 1) for i in range(WIDE_WORDS)]
    return (
        ("plain", narrow, POISON, (VALUE, POISON)),
        ("hostcall", narrow, POISON, (VALUE, 0)),  # no runtime gives it a buffer
        ("hidden", narrow, POISON, (VALUE, 1)),
        ("wide", [struct.pack(f"<Q{WIDE_WORDS}Q", address, *wide)], POISON, (sum(wide) % 2**64, POISON)),
        ("follow", narrow, VALUE, (VALUE, VALUE + 1)),
        ("lds", narrow, POISON, (VALUE, POISON)),
    )


def main():
    options = parse()
    os.environ["TINYGRAD"] = options.tinygrad
    sys.path.insert(0, options.emulator)
    from emu import Kernel  # reads TINYGRAD when it is imported

    memory = mmap.mmap(-1, mmap.PAGESIZE)
    wrong = 0
    for path in options.images:
        target, arch = machine(path)
        for name, arguments, before, wanted in rows(ctypes.addressof(ctypes.c_char.from_buffer(memory))):
            struct.pack_into(f"<{WORDS}Q", memory, 0, before, *[POISON] * (WORDS - 1))
            kernel = Kernel(path, f"probe_gate_{name}", arch)
            if name == "lds":
                kernel.rsrc2 |= LDS_BYTES // LDS_UNIT << RSRC2_LDS
            kernel.run(1, 64, arguments)
            found = struct.unpack_from(f"<{WORDS}Q", memory, 0)
            fine = found == (*wanted, *[POISON] * (WORDS - 2))
            wrong += not fine
            print(f"{target} {name}: {'ok' if fine else [hex(word) for word in found]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
