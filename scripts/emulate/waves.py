# SPDX-License-Identifier: Apache-2.0
"""Runs the waves of a grid on tinygrad's instruction emulator, in turns.

The emulator's own loop runs a wave until its barrier, one block after the other, so a wave
that waits for another of its device waits for ever. Here all waves of a grid, of all its
blocks, take turns of a length drawn at random from a seed: whatever order the waves of a
device may have, some run has it. s_sleep ends a turn; when all waves of a grid sleep or
wait at a barrier, the process does, too, so that the other rank's gets on.

Each wave has its own scratch memory and each block its own LDS of the size that the kernel
declares. Denormals are kept or flushed as the kernel's descriptor says.
"""

import contextlib
import ctypes
import random
import time

TURN = (20, 400)  # instructions, at least and at most
NAP_S = 0.001
FLUSH_NONE = 3  # FLOAT_DENORM_MODE_32 of compute_pgm_rsrc1

SHADER_CYCLES = (29, 30)  # hwreg numbers, the second of the upper half
SHADER_CYCLES_HI = SHADER_CYCLES[1]

RUNNING, SLEEPING, AT_BARRIER, ENDED = range(4)
SCALAR_LOAD = 4  # of an instruction: runs, and is looked at before
ARGUMENTS_BYTES, PACKET_BYTES = 8192, 64  # as emu.py lays them out


class Overdue(Exception):
    pass


class StaleLoad(Exception):
    """A scalar load of what others may write: its cache is emptied only between kernels."""


class Wave:
    def __init__(self, state, pointers, packet):
        self.state = state
        self.pointers = pointers
        self.packet = packet
        self.status = RUNNING


class Machine:
    """One device: its instructions are looked up once."""

    def __init__(self, module, architecture, seed, deadline_s):
        self.emu = module
        self.architecture = architecture
        self.random = random.Random(seed)
        self.deadline_s = deadline_s
        self.program = {}
        self.instructions = self.ticks = 0
        self.buffers = []

    def buffer(self, size):
        """`size` bytes, zeroed, that live as long as the launch."""
        memory = (ctypes.c_uint8 * max(size, 64))()
        self.buffers.append(memory)
        return ctypes.addressof(memory)

    def clock(self, inst, name):
        """What reads a clock, which the emulator has none of: a function of the state."""
        size = inst.size()
        if name == "S_MEMTIME":
            first, words = inst.sdata.offset, (0, 32)
        else:
            first, words = inst.sdst.offset, ((inst.simm16 & 63 == SHADER_CYCLES_HI) * 32,)

        def read(state):
            self.ticks += 1
            for i, shift in enumerate(words):
                state._write_sgpr(first + i, self.ticks << 7 >> shift)
            state.pc += size

        return read

    def fetch(self, pc):
        """(function, its arguments' numbers, what the scheduler must know of it, and its
        first register)"""
        raw = bytes((ctypes.c_char * 16).from_address(pc).raw)
        inst = self.emu.decode_inst(raw, self.architecture)
        name = self.emu._op_name(inst)
        if name == "S_MEMTIME" or (name == "S_GETREG_B32" and inst.simm16 & 63 in SHADER_CYCLES):
            entry = (self.clock(inst, name), None, RUNNING, 0)
            self.program[pc] = entry
            return entry
        (program, runtime), inst = self.emu._decode_at(pc, self.architecture)
        kind = {
            "S_SLEEP": SLEEPING,
            "S_BARRIER": AT_BARRIER,
            "S_BARRIER_WAIT": AT_BARRIER,
        }.get(name, RUNNING)
        base = 0
        if name.startswith("S_LOAD_"):
            kind, base = SCALAR_LOAD, inst.sbase.offset
        entry = (runtime.fxn, program.arg.globals, kind, base)
        self.program[pc] = entry
        return entry

    def turn(self, wave):
        """Let a wave run for some instructions, or until it sleeps, meets or ends."""
        program, pointers, state = self.program, wave.pointers, wave.state
        end = self.emu.ENDPGM_PC
        for done in range(self.random.randint(*TURN)):
            pc = state.pc
            if pc == end:
                wave.status = ENDED
                break
            function, numbers, kind, base = program.get(pc) or self.fetch(pc)
            if kind == SCALAR_LOAD:
                wave.packet.check(state._read_sgpr(base) | state._read_sgpr(base + 1) << 32)
                kind = RUNNING
            if numbers is None:
                function(state)
            else:
                function(*[pointers[n] for n in numbers])
            if kind != RUNNING:
                wave.status = kind
                done += 1
                break
        else:
            done += 1
        self.instructions += done

    def block(self, index, kernel, threads, packet):
        """The waves of a block."""
        size = self.emu._wave_size(self.architecture)
        lds = self.buffer(kernel.lds)
        waves = []
        for first in range(0, threads, size):
            state = self.emu._init_wave(
                packet.entry, first, threads, threads, 1, 1, packet.arguments, packet.rsrc2,
                packet.scratch, self.architecture, index, 0, 0, packet.user_data, size,
            )  # fmt: skip
            addresses = (
                state.sgpr_buf._buf.va_addr, state.vgpr_buf._buf.va_addr, 0, lds,
                self.buffer(packet.scratch * size), state.accvgpr_buf._buf.va_addr,
            )  # fmt: skip
            waves.append(Wave(state, [ctypes.c_uint64(a) for a in addresses], packet))
        return waves

    def run(self, blocks):
        """Until all waves have ended."""
        begun = time.monotonic()
        while True:
            alive = [w for waves in blocks for w in waves if w.status != ENDED]
            if not alive:
                return
            awake = [w for w in alive if w.status == RUNNING]
            if not awake:
                if time.monotonic() - begun > self.deadline_s:
                    raise Overdue(f"no end after {self.deadline_s} s")
                if not any(w.status == SLEEPING for w in alive):
                    raise Overdue("all waves wait at barriers that some have left")
                time.sleep(NAP_S)
                for wave in alive:
                    if wave.status == SLEEPING:
                        wave.status = RUNNING
                continue
            self.turn(self.random.choice(awake))
            for waves in blocks:
                if all(w.status in (AT_BARRIER, ENDED) for w in waves):
                    for wave in waves:
                        if wave.status == AT_BARRIER:
                            wave.status = RUNNING

    def launch(self, kernel, grid, threads, raw):
        """`kernel`: emu.Kernel. Its way of preparing a launch, our way of running it."""

        def instead(entry, _size, _gx, _gy, _gz, _lx, _ly, _lz, arguments, rsrc2=0,
                    scratch_size=0, arch=None, user_data=None):  # fmt: skip
            packet = Packet(entry, arguments, rsrc2, scratch_size, user_data, kernel)
            blocks = [self.block(i, kernel, threads, packet) for i in range(grid)]
            with self.denormals(kernel):
                self.run(blocks)

        theirs, self.emu.run_asm = self.emu.run_asm, instead
        try:
            kernel.run(grid, threads, [raw])
        finally:
            self.emu.run_asm = theirs
            self.buffers.clear()

    def denormals(self, kernel):
        if kernel.rsrc1 >> 16 & 3 == FLUSH_NONE:
            return contextlib.nullcontext()
        return self.emu._MXCSRContext()


class Packet:
    """What the waves of one launch begin with."""

    def __init__(self, entry, arguments, rsrc2, scratch, user_data, kernel):
        self.entry = entry
        self.arguments = arguments
        self.rsrc2 = rsrc2
        self.scratch = scratch
        self.user_data = user_data
        self.constant = [
            (arguments, ARGUMENTS_BYTES),
            (kernel.base, len(kernel.image)),
        ]
        if kernel.properties & 2:
            at = 4 * (kernel.properties & 1)
            self.constant.append((user_data[at] | user_data[at + 1] << 32, PACKET_BYTES))

    def check(self, address):
        if not any(0 <= address - base < size for base, size in self.constant):
            raise StaleLoad(f"a scalar load from {address:#x}")
