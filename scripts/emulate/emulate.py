#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks in two processes, whose kernels are our code objects, executed instruction by
instruction without a GPU.

    cmake --build BUILD --target device_images emulate_rank
    scripts/emulate/emulate.py --emulator DIR --tinygrad DIR --build BUILD IMAGE...

DIR: folders of emu.py and of a checkout of tinygrad. Needs python3-pyelftools, and clang,
which the emulator calls for each instruction that it meets. IMAGE: a code object; what it
is for is read from it. rank.c makes a rank of the library's own transport, plans and
engine, so that layouts and arguments are what the library makes of them.

Two ranks exchange arenas as files, as processes do with a GPU's memory; collectives run in
a row, so that slots and positions are reused. Every value is compared with the reference of
the tests, bit by bit; outputs are poisoned before, with canaries around. One line a case.
Exit status: 0 all right, 1 not, 2 it could not be tried.

It proves values, addresses, predication, epochs and flags. The emulated memory is
sequentially consistent: it says nothing of the order in which a GPU's memory is seen
(docs/memory-model.md).
"""

import argparse
import ctypes
import hashlib
import os
import re
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time

import cases

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# e_flags & 0xff: name, what the emulator calls the family.
MACHINES = {0x41: ("gfx1100", "rdna3"), 0x4E: ("gfx1201", "rdna4"), 0x4C: ("gfx942", "cdna")}
RANKS = 2
EI_OSABI, E_FLAGS = 7, 48


class Failure(Exception):
    pass


class Call(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char_p), ("type", ctypes.c_char_p), ("redop", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p), ("count", ctypes.c_uint64), ("root", ctypes.c_int32),
        ("in_place", ctypes.c_int32), ("biased", ctypes.c_int32),
        ("scalar_in_memory", ctypes.c_int32), ("captured", ctypes.c_int32), ("send_shift", ctypes.c_uint32),
        ("recv_shift", ctypes.c_uint32), ("salt", ctypes.c_uint32), ("spoil", ctypes.c_uint64),
    ]  # fmt: skip


class Transfer(ctypes.Structure):
    _fields_ = [
        ("receive", ctypes.c_int32), ("peer", ctypes.c_int32), ("bytes", ctypes.c_uint64),
        ("salt", ctypes.c_uint32), ("shift", ctypes.c_uint32),
    ]  # fmt: skip


class Outcome(ctypes.Structure):
    _fields_ = [
        ("checked", ctypes.c_uint64), ("wrong", ctypes.c_uint64), ("at", ctypes.c_uint64),
        ("got", ctypes.c_uint64), ("wanted", ctypes.c_uint64),
        ("position", ctypes.c_uint32 * 2), ("error", ctypes.c_uint32),
    ]  # fmt: skip


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p,
    ctypes.c_size_t,
)  # fmt: skip


class Rank:
    """One rank of one session, in its own process."""

    def __init__(self, options, image, family, number, peer):
        self.number = number
        self.peer = peer  # a socket
        self.options = options
        self.trouble = ""
        self.kernels = {}
        self.ran = []
        self.image = image
        self.family = family
        self.lib = ctypes.CDLL(options.library)
        self.lib.emulate_error.restype = ctypes.c_char_p
        self.lib.emulate_offer_bytes.restype = ctypes.c_uint64
        self.callback = LAUNCH(self.launch)
        self.open_emulator()

    def open_emulator(self):
        os.environ["TINYGRAD"] = self.options.tinygrad
        sys.path.insert(0, self.options.emulator)
        import emu
        from test.mockgpu.amd import emu as module
        from waves import Machine

        self.emu = emu
        self.machine = Machine(
            module, self.family, self.options.seed + self.number, self.options.deadline
        )

    def kernel(self, name):
        if name not in self.kernels:
            kernel = self.emu.Kernel(self.image, name, self.family)
            symbols = self.emu.load(self.image, self.family)[2]
            descriptor = kernel.image[symbols[name + ".kd"] :][:64]
            kernel.rsrc1 = struct.unpack_from("<I", descriptor, 48)[0]
            self.kernels[name] = kernel
        return self.kernels[name]

    def launch(self, name, blocks, threads, args, size):
        """Called by the engine. An exception must not pass through it."""
        try:
            self.ran.append((name.decode(), blocks))
            self.machine.launch(
                self.kernel(name.decode()), blocks, min(threads, self.options.threads),
                ctypes.string_at(args, size),
            )  # fmt: skip
            return 0
        except Exception as error:  # noqa: BLE001
            self.trouble = f"{name.decode()}: {type(error).__name__}: {error}"
            return 1

    def must(self, status):
        if status != 0:
            raise Failure(self.trouble or self.lib.emulate_error().decode())

    def meet(self):
        """Both ranks are here."""
        self.peer.sendall(b"m")
        if self.peer.recv(1, socket.MSG_WAITALL) != b"m":
            raise Failure("the other rank is gone")

    def open(self, staged, fnuz):
        self.rank = ctypes.c_void_p()
        self.must(
            self.lib.emulate_open(
                self.number, RANKS, int(staged), int(fnuz), self.callback, ctypes.byref(self.rank)
            )
        )
        size = self.lib.emulate_offer_bytes()
        offer, fds = ctypes.create_string_buffer(size), (ctypes.c_int * 2)()
        self.must(self.lib.emulate_offer(self.rank, ctypes.c_uint64(77 + self.number), offer, fds))
        socket.send_fds(self.peer, [offer.raw], list(fds))
        theirs, got, _, _ = socket.recv_fds(self.peer, size, 2)
        while len(theirs) < size:
            theirs += self.peer.recv(size - len(theirs))
        self.must(
            self.lib.emulate_map(self.rank, 1 - self.number, theirs, (ctypes.c_int * 2)(*got))
        )
        for fd in list(fds) + got:
            os.close(fd)
        self.meet()  # what was seen in the arenas goes when they are reset

    def begin(self, session, fnuz):
        """The words of a session: its arenas are fresh."""
        self.open(session.staged, fnuz)
        self.must(self.lib.emulate_reset(self.rank, ctypes.c_uint32(session.start)))
        self.must(self.lib.emulate_window(self.rank, int(session.window)))
        self.meet()

    def run(self, case, salt, spoil):
        """(outcome, seconds, instructions) of one case."""
        self.ran = []
        outcome, begun, before = Outcome(), time.monotonic(), self.machine.instructions
        to = ctypes.byref(outcome)
        if isinstance(case, cases.Collective):
            call = Call(
                case.kind.encode(), case.type.encode(), case.redop.encode(),
                case.protocol.encode(), case.count, case.root, case.in_place, case.bias,
                case.scalar_in_memory, case.captured, case.shift, case.shift, salt, spoil,
            )  # fmt: skip
            self.must(self.lib.emulate_collective(self.rank, ctypes.byref(call), to))
        elif isinstance(case, cases.Group):
            group = [
                Transfer(int(self.number != t.source), 1 - self.number, t.bytes,
                         salt + 1000 * i, case.shift)
                for i, t in enumerate(case.transfers)
            ]  # fmt: skip
            self.must(
                self.lib.emulate_transfers(
                    self.rank, (Transfer * len(group))(*group), len(group), int(case.copies), to
                )
            )
        else:
            self.must(
                self.lib.emulate_litmus(self.rank, case.blocks, case.rounds, case.bytes, to)
            )
        return outcome, time.monotonic() - begun, self.machine.instructions - before


def rank_main(options, image, machine, number, peer, report):
    """A rank's process: a line on `report` for each case."""

    def say(*words):
        os.write(report, ("\t".join(str(w) for w in words) + "\n").encode())

    try:
        rank = Rank(options, image, machine[1], number, peer)
        salt = 0
        for session in cases.SESSIONS:
            wanted = [c for c in session.cases if re.search(options.only, f"{session}/{c}")]
            if not wanted:
                continue
            rank.begin(session, machine[0] == "gfx942")
            for case in wanted:
                salt += 1
                spoil = 1 if options.spoil and number == 0 else 0
                outcome, took, instructions = rank.run(case, salt, spoil)
                say(
                    session, case, "+".join(sorted({f"{k}x{b}" for k, b in rank.ran})) or "-",
                    outcome.checked, outcome.wrong, outcome.error,
                    f"{outcome.position[0]:#x},{outcome.position[1]:#x}",
                    f"{outcome.at}: {outcome.got:#x} for {outcome.wanted:#x}",
                    f"{took:.1f}", instructions,
                )  # fmt: skip
        say("end")
    except Failure as error:
        say("failure", error)
    except Exception as error:  # noqa: BLE001
        say("failure", f"{type(error).__name__}: {error}")


def start(options, image, machine):
    """Both processes; nothing of the emulator is in this one. [(pid, file)]"""
    ends, ranks = socket.socketpair(), []
    for number in range(RANKS):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            ends[1 - number].close()
            os.close(reading)
            rank_main(options, image, machine, number, ends[number], writing)
            os._exit(0)
        os.close(writing)
        ranks.append((pid, os.fdopen(reading, "rb")))
    for end in ends:
        end.close()
    return ranks


def next_line(stream, deadline_s):
    if not select.select([stream], [], [], deadline_s)[0]:
        return ["failure", f"nothing was heard for {deadline_s} s"]
    line = stream.readline().decode().rstrip("\n")
    return line.split("\t") if line else ["failure", "the process ended early"]


class Log:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None

    def __call__(self, text):
        print(text, flush=True)
        if self.file:
            self.file.write(text + "\n")
            self.file.flush()


def judge(lines, log):
    """One case, as both ranks saw it. True: right."""
    session, case = lines[0][:2]
    kernels = "+".join(sorted({k for line in lines for k in line[2].split("+")}))
    notes = []
    for number, line in enumerate(lines):
        checked, wrong, error, positions, first = line[3:8]
        if wrong != "0":
            notes.append(f"rank {number}: {wrong} of {checked} values wrong, first {first}")
        if error != "0":
            notes.append(f"rank {number}: the kernel reports error {error}")
        if int(checked) == 0:
            notes.append(f"rank {number}: nothing was compared")
        if positions != lines[0][6]:
            notes.append(f"rank {number}: at positions {positions}, rank 0 at {lines[0][6]}")
    right = not notes
    checked = sum(int(line[3]) for line in lines)
    instructions = sum(int(line[9]) for line in lines)
    log(
        f"{'ok  ' if right else 'FAIL'} {session}: {case} [{kernels}] {checked} values,"
        f" {instructions} instructions, positions {lines[0][6]}, {lines[0][8]} s"
    )
    for note in notes:
        log(f"     {note}")
    return right


def read_cases(ranks, options, log):
    """(cases, cases that were right, kernels that ran)"""
    tried = right = 0
    ran = set()
    patience = options.deadline + 120
    while True:
        lines = [next_line(stream, patience) for _, stream in ranks]
        if all(line == ["end"] for line in lines):
            return tried, right, ran
        tried += 1
        broken = [(n, line) for n, line in enumerate(lines) if len(line) < 10]
        if broken:
            for number, line in broken:
                log(f"FAIL rank {number}: {' '.join(line[1:]) or 'ended early'}")
            return tried, right, ran
        ran |= {k.rpartition("x")[0] for line in lines for k in line[2].split("+")}
        right += judge(lines, log)


def kernels_of(image):
    from elftools.elf.elffile import ELFFile

    with open(image, "rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        return {s.name[:-3] for s in table.iter_symbols() if s.name.endswith(".kd")}


def try_image(options, image):
    with open(image, "rb") as stream:
        content = stream.read()
    header = content[:64]
    number = struct.unpack_from("<I", header, E_FLAGS)[0] & 0xFF
    if header[:4] != b"\x7fELF" or number not in MACHINES:
        print(f"{image}: not a code object of {', '.join(m[0] for m in MACHINES.values())}")
        return 2
    machine = MACHINES[number]
    log = Log(os.path.join(options.log, f"emulator-{machine[0]}.log") if options.log else None)
    log(f"# {machine[0]}: {RANKS} ranks, blocks of {options.threads} threads, seed {options.seed}")
    log(f"# image: SHA-256 {hashlib.sha256(content).hexdigest()}")
    begun = time.monotonic()
    ranks = start(options, image, machine)
    tried, right, ran = read_cases(ranks, options, log)
    for pid, stream in ranks:
        stream.close()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
    log(f"# kernels that ran: {' '.join(sorted(ran))}")
    log(f"# kernels that did not: {' '.join(sorted(kernels_of(image) - ran)) or 'none'}")
    good = tried > 0 and tried == right
    log(
        f"# {machine[0]}: {right} of {tried} cases right, {time.monotonic() - begun:.0f} s:"
        f" {'PASS' if good else 'FAIL'}"
    )
    return 0 if good else 1


def find_clang():
    """The emulator asks for `clang`: Debian's has its version in its name."""
    if shutil.which("clang"):
        return None
    for name in ("clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"):
        path = shutil.which(name)
        if path:
            folder = tempfile.TemporaryDirectory()
            os.symlink(path, os.path.join(folder.name, "clang"))
            os.environ["PATH"] += os.pathsep + folder.name
            return folder
    sys.exit("no clang on PATH")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--emulator", required=True, help="folder of emu.py")
    parser.add_argument("--tinygrad", required=True, help="folder of a checkout of tinygrad")
    parser.add_argument("--build", required=True, help="build folder with emulate_rank")
    parser.add_argument("--threads", type=int, default=128, help="of a block, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the waves")
    parser.add_argument("--only", default="", help="cases whose name this regex matches")
    parser.add_argument("--deadline", type=int, default=300, help="seconds for a launch")
    parser.add_argument("--log", help="folder for emulator-gfxNNN.log")
    parser.add_argument(
        "--spoil", action="store_true",
        help="change a byte of each input after the reference was taken: must fail",
    )  # fmt: skip
    options = parser.parse_args()
    options.library = os.path.join(options.build, "scripts", "emulate", "libemulate_rank.so")
    if not os.path.exists(options.library):
        print(f"{options.library} is missing: build emulate_rank")
        return 2
    keep = find_clang()
    status = max(try_image(options, image) for image in options.images)
    del keep
    return status


if __name__ == "__main__":
    sys.exit(main())
