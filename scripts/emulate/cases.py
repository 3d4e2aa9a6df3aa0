# SPDX-License-Identifier: Apache-2.0
"""What emulate.py runs: sessions of cases that follow each other on the same arenas. The
slots that rank.c asks for are so small (LL 128 bytes, staging 256) that a few hundred
bytes take several steps and two blocks."""

import dataclasses

TYPES = {"float": 4, "half": 2, "bfloat16": 2, "f8e4m3": 1, "int8": 1, "int64": 8}
REDOPS = ("sum", "max", "avg", "mulsum")


@dataclasses.dataclass(frozen=True)
class Collective:
    kind: str
    type: str
    count: int
    redop: str = "sum"
    protocol: str = ""
    root: int = 0
    in_place: int = 0
    bias: int = 0
    scalar_in_memory: int = 0
    captured: int = 0
    shift: int = 0  # bytes that both buffers are off a multiple of 256

    def __str__(self):
        flags = [word for word in ("in_place", "bias", "scalar_in_memory", "captured") if getattr(self, word)]
        return " ".join(
            [self.kind, self.type, self.redop, str(self.count), self.protocol or "planned"]
            + flags
            + ([f"shift {self.shift}"] if self.shift else [])
            + ([f"root {self.root}"] if self.kind in ("broadcast", "reduce") else [])
        )


@dataclasses.dataclass(frozen=True)
class Message:
    source: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Sends and receives of one group call."""

    transfers: tuple
    shift: int = 0
    copies: bool = False

    def __str__(self):
        messages = (f"{t.source}->{1 - t.source}:{t.bytes}" for t in self.transfers)
        return " ".join(("send/recv", *messages)) + (" ce" if self.copies else "")


@dataclasses.dataclass(frozen=True)
class Litmus:
    blocks: int
    rounds: int
    bytes: int

    def __str__(self):
        return f"litmus, {self.rounds} rounds of {self.bytes} bytes"


@dataclasses.dataclass(frozen=True)
class Session:
    name: str
    cases: tuple
    staged: bool = False
    start: int = 0
    window: bool = False

    def __str__(self):
        return self.name


def odd(kind, size, redop):
    """Elements for `size` bytes, and one or two fewer, so that packs are not whole."""
    count = size // TYPES[kind]
    return count - 1 if redop in ("sum", "max") else count


def reductions(protocol, size):
    """An all_reduce of every type with every operation."""
    return tuple(
        Collective("all_reduce", t, odd(t, size, op), op, protocol)
        for t in TYPES
        for op in REDOPS
    )


SMALL = (
    Collective("all_reduce", "float", 32),
    Collective("all_reduce", "half", 40, "avg"),
    Collective("all_reduce", "bfloat16", 60),
    Collective("all_gather", "int8", 40),
    Collective("broadcast", "int64", 15, root=1),
    Collective("all_to_all", "half", 32),
    Collective("reduce_scatter", "float", 30, "avg"),
    Collective("all_reduce", "float", 2, in_place=1),
)

GENERAL = (
    Collective("all_gather", "f8e4m3", 33, shift=3),
    Collective("broadcast", "float", 7),
    Collective("reduce_scatter", "bfloat16", 19, "max", shift=2),
    Collective("all_to_all", "int8", 23, shift=1),
    Collective("all_reduce", "half", 21, bias=1),
    Collective("all_reduce", "float", 9, "mulsum", scalar_in_memory=1, shift=4),
    Collective("reduce", "int64", 5, root=1),
    Collective("all_gather", "int64", 9, in_place=1),
    Collective("all_reduce", "float", 151, protocol="ll", shift=4),
    Collective("broadcast", "int8", 700, protocol="ll", root=1),
)

STAGED = (
    Collective("all_gather", "int64", 67, protocol="staged"),
    Collective("broadcast", "f8e4m3", 1501, protocol="staged", root=1, shift=1),
    Collective("reduce_scatter", "bfloat16", 301, "avg", protocol="staged"),
    Collective("all_to_all", "half", 155, protocol="staged"),
    Collective("all_reduce", "float", 301, protocol="staged", in_place=1),
    Collective("all_reduce", "float", 65, protocol="staged", bias=1),
)

TWOSHOT = (
    Collective("all_reduce", "float", 401, protocol="twoshot"),
    Collective("all_reduce", "bfloat16", 777, "avg", protocol="twoshot", shift=2),
    Collective("all_reduce", "int8", 1301, protocol="twoshot", in_place=1),
)

MESSAGES = (
    Group((Message(0, 1), Message(1, 3))),
    Group((Message(0, 700),), shift=1),
    Group((Message(1, 900),)),
    Group((Message(0, 513), Message(1, 513))),
    Group((Message(0, 0), Message(1, 64), Message(0, 255))),
    Group((Message(1, 257),), shift=3),
)

COPIES = (
    Collective("all_gather", "int64", 167, protocol="ce"),
    Collective("broadcast", "int8", 4001, protocol="ce", root=1),
    Collective("all_to_all", "half", 501, protocol="ce"),
    Collective("all_reduce", "float", 1001, protocol="ce"),
    Collective("all_reduce", "bfloat16", 1501, "avg", protocol="ce"),
    Collective("reduce_scatter", "f8e4m3", 1203, "max", protocol="ce"),
    Collective("all_gather", "float", 500, protocol="ce", captured=1),
    Collective("all_reduce", "half", 1400, protocol="ce", captured=1),
    Group((Message(0, 2001), Message(1, 1500)), copies=True),
    Group((Message(1, 100),), copies=True),
    Group((Message(0, 1), Message(0, 5000), Message(1, 3)), copies=True),
)

LITMUS = (Litmus(2, 6, 128),)

WINDOWED = (
    Collective("all_gather", "float", 200, protocol="staged"),
    Collective("broadcast", "int8", 901, protocol="staged"),
    Collective("all_to_all", "int64", 40, protocol="staged"),
    Collective("all_reduce", "half", 500, protocol="twoshot"),
    Collective("all_reduce", "float", 301, "avg", protocol="twoshot", shift=16),
    Collective("all_reduce", "int64", 77, protocol="twoshot", shift=8),
)

WRAP = 2**32 - 3

SESSIONS = (
    Session("direct", SMALL + GENERAL + STAGED + TWOSHOT + MESSAGES + COPIES + LITMUS),
    Session("staged, wraps", SMALL + GENERAL + STAGED + TWOSHOT + MESSAGES + COPIES + LITMUS,
            staged=True, start=WRAP),
    Session("windows, wraps", WINDOWED, start=WRAP, window=True),
    Session("types, LL", reductions("ll", 48), start=2**31 - 3),
    Session("types, staged", reductions("staged", 304), staged=True, start=WRAP),
    Session("types, two-shot", reductions("twoshot", 304)),
)  # fmt: skip
