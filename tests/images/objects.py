# SPDX-License-Identifier: Apache-2.0
"""AMD code objects, written byte by byte: of every version of the format, whole or broken.

What clang 19 cannot make: versions 2 and 3, and files that no compiler writes. Layouts:
LLVM's AMDGPUUsage; EM_AMDGPU is 224, EI_OSABI 64, EI_ABIVERSION the version less 2.
"""

import struct

MACH = {
    "gfx803": 0x2A,
    "gfx906": 0x2F,
    "gfx908": 0x30,
    "gfx90a": 0x3F,
    "gfx942": 0x4C,
    "gfx1030": 0x36,
    "gfx1100": 0x41,
    "gfx1200": 0x48,
    "gfx1201": 0x4E,
    "gfx9-generic": 0x51,
    "gfx10-3-generic": 0x53,
    "gfx11-generic": 0x54,
}
# What a target has, and so what "any" is in e_flags of version 4 on.
XNACK = ("gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx9-generic")
SRAMECC = ("gfx906", "gfx908", "gfx90a", "gfx942")

HIDDEN_V5 = (
    ("block_count_x", 0, 4),
    ("block_count_y", 4, 4),
    ("block_count_z", 8, 4),
    ("group_size_x", 12, 2),
    ("group_size_y", 14, 2),
    ("group_size_z", 16, 2),
    ("remainder_x", 18, 2),
    ("remainder_y", 20, 2),
    ("remainder_z", 22, 2),
    ("global_offset_x", 40, 8),
    ("global_offset_y", 48, 8),
    ("global_offset_z", 56, 8),
    ("grid_dims", 64, 2),
    ("hostcall_buffer", 80, 8),
    ("multigrid_sync_arg", 88, 8),
    ("heap_v1", 96, 8),
    ("default_queue", 104, 8),
    ("completion_action", 112, 8),
    ("queue_ptr", 200, 8),
)
HIDDEN_V3 = (
    ("global_offset_x", 0, 8),
    ("global_offset_y", 8, 8),
    ("global_offset_z", 16, 8),
    ("hostcall_buffer", 24, 8),
    ("none", 32, 8),
    ("none", 40, 8),
    ("multigrid_sync_arg", 48, 8),
)


def pack(value):
    """MessagePack as LLVM writes it: the shortest form of each."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if value < 0x80:
            return bytes([value])
        for head, form, limit in ((0xCC, ">B", 8), (0xCD, ">H", 16), (0xCE, ">I", 32)):
            if value < 1 << limit:
                return bytes([head]) + struct.pack(form, value)
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        raw = value.encode()
        return head_of(len(raw), 0xA0, 32, 0xD9) + raw
    if isinstance(value, list):
        return head_of(len(value), 0x90, 16, None) + b"".join(map(pack, value))
    body = b"".join(pack(key) + pack(item) for key, item in value.items())
    return head_of(len(value), 0x80, 16, None, 0xDE) + body


def head_of(count, fixed, fixed_limit, one_byte, two_bytes=None):
    """Type and count of a string, an array (0xdc) or a map (0xde)."""
    if count < fixed_limit:
        return bytes([fixed | count])
    if one_byte is not None:
        if count < 0x100:
            return bytes([one_byte, count])
        return struct.pack(
            ">BH" if count < 0x10000 else ">BI", 0xDA if count < 0x10000 else 0xDB, count
        )
    two = two_bytes or 0xDC
    return struct.pack(
        ">BH" if count < 0x10000 else ">BI", two if count < 0x10000 else two + 1, count
    )


def kernel(name, declares=False, version=5, more=None):
    """The metadata of a kernel with one pointer, and the hidden arguments if it declares."""
    args = [{".address_space": "global", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"}]
    for hidden, offset, size in (HIDDEN_V5 if version >= 5 else HIDDEN_V3) if declares else ():
        args.append({".offset": 8 + offset, ".size": size, ".value_kind": "hidden_" + hidden})
    made = {
        ".args": args,
        ".group_segment_fixed_size": 0,
        ".kernarg_segment_align": 8,
        ".kernarg_segment_size": (264 if version >= 5 else 64) if declares else 8,
        ".max_flat_workgroup_size": 1024,
        ".name": name,
        ".private_segment_fixed_size": 0,
        ".sgpr_count": 6,
        ".sgpr_spill_count": 0,
        ".symbol": name + ".kd",
        ".vgpr_count": 2,
        ".vgpr_spill_count": 0,
        ".wavefront_size": 64,
    }
    made.update(more or {})
    return made


def metadata(kernels, target, version):
    """The document of version 3 on. Version 3 has no target in it."""
    made = {"amdhsa.kernels": kernels}
    if version >= 4:
        made["amdhsa.target"] = "amdgcn-amd-amdhsa--" + target
    made["amdhsa.version"] = [1, min(version - 3, 2)]
    return made


def yaml_v2(kernels):
    """Version 2's document, as clang 6 to 11 wrote it: names in quotes only where needed."""
    lines = ["---", "Version:         [ 1, 0 ]", "Kernels:         "]
    for name, declares in kernels:
        lines += [
            "  - Name:            " + name,
            f"    SymbolName:      '{name}@kd'",
            "    Language:        OpenCL C",
            "    LanguageVersion: [ 2, 0 ]",
            "    Args:            ",
            "      - TypeName:        'int*'",
            "        Size:            8",
            "        Align:           8",
            "        ValueKind:       GlobalBuffer",
            "        ValueType:       I32",
            "        AddrSpaceQual:   Global",
        ]
        hidden = ("HiddenGlobalOffsetX", "HiddenGlobalOffsetY", "HiddenGlobalOffsetZ")
        for kind in hidden + (("HiddenHostcallBuffer",) if declares else ("HiddenNone",)):
            lines += [
                "      - Size:            8",
                "        Align:           8",
                "        ValueKind:       " + kind,
                "        ValueType:       I64",
            ]
        lines += [
            "    CodeProps:       ",
            "      KernargSegmentSize: 40",
            "      GroupSegmentFixedSize: 0",
            "      PrivateSegmentFixedSize: 0",
            "      KernargSegmentAlign: 8",
            "      WavefrontSize:   64",
            "      NumSGPRs:        6",
            "      NumVGPRs:        3",
            "      MaxFlatWorkGroupSize: 256",
        ]
    return "\n".join(lines + ["...", ""])


def note(owner, kind, desc):
    name = owner + b"\0"
    return (
        struct.pack("<III", len(name), len(desc), kind)
        + name
        + b"\0" * (-len(name) % 4)
        + desc
        + b"\0" * (-len(desc) % 4)
    )


def notes_v2(kernels, target):
    """All that clang wrote for version 2; the document is the last of them."""
    major, minor, step = int(target[3:-2]), int(target[-2]), int(target[-1], 16)
    isa = struct.pack("<HHIII", 4, 7, major, minor, step) + b"AMD\0AMDGPU\0"
    return (
        note(b"AMD", 1, struct.pack("<II", 2, 1))
        + note(b"AMD", 3, isa)
        + note(b"AMD", 11, b"amdgcn-amd-amdhsa--" + target.encode())
        + note(b"AMD", 10, yaml_v2(kernels).encode())
    )


def flags(target, version):
    """e_flags of "gfx90a:sramecc+:xnack-"; a generic target's version stands in the top byte."""
    processor, *features = target.split(":")
    value = MACH[processor]
    if version <= 3:
        return (
            value
            | (0x100 if "xnack+" in features else 0)
            | (0x200 if "sramecc+" in features else 0)
        )
    for name, has, shift in (("xnack", XNACK, 8), ("sramecc", SRAMECC, 10)):
        if processor in has:
            setting = 3 if name + "+" in features else 2 if name + "-" in features else 1
            value |= setting << shift
    return value | (0x01000000 if processor.endswith("-generic") else 0)


def elf(notes, e_flags, version, symbols=(), segments=True, sections=True):
    """An ELF file with a note, and a table of the local functions @p symbols if there are any.

    segments: whether a PT_NOTE leads to it; sections: whether an SHT_NOTE does.
    """
    at = 64 + 56 * 2
    strings = b"\0"
    table = b"\0" * 24
    for name, info, section in symbols:
        table += struct.pack("<IBBHQQ", len(strings), info, 0, section, 0x1000, 16)
        strings += name.encode() + b"\0"
    names = b"\0.note\0.symtab\0.strtab\0.shstrtab\0.text\0"
    parts = [notes, table, strings, names]
    offsets = []
    for part in parts:
        at += -at % 8
        offsets.append(at)
        at += len(part)
    headers = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 7, 2, offsets[0], offsets[0], len(notes), 0, 0, 4, 0),
    ]
    if symbols:
        headers += [
            (7, 2, 0, 0, offsets[1], len(table), 3, len(symbols) + 1, 8, 24),
            (15, 3, 0, 0, offsets[2], len(strings), 0, 0, 1, 0),
        ]
    headers += [
        (23, 3, 0, 0, offsets[3], len(names), 0, 0, 1, 0),
        (33, 8, 6, 0x1000, offsets[3], 0x100, 0, 0, 4, 0),
    ]
    at += -at % 8
    count = len(headers) if sections else 0
    out = bytearray(b"\x7fELF\x02\x01\x01\x40" + bytes([version - 2]) + b"\0" * 7)
    out += struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        224,
        1,
        0,
        64,
        at if sections else 0,
        e_flags,
        64,
        56,
        2 if segments else 0,
        64 if sections else 0,
        count,
        count - 2 if sections else 0,
    )
    out += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, at, at, 0x1000)
    out += struct.pack(
        "<IIQQQQQQ", 4, 4, offsets[0], offsets[0], offsets[0], len(notes), len(notes), 4
    )
    for offset, part in zip(offsets, parts):
        out += b"\0" * (offset - len(out)) + part
    out += b"\0" * (at - len(out))
    if sections:
        for head in headers:
            out += struct.pack("<IIQQQQIIQQ", *head)
    return bytes(out)


FUNCTION, VARIABLE, NO_TYPE = 2, 1, 0  # STT_… of a local symbol
TEXT = 5  # the section that functions of elf() are in; 0 is "not here"


def code_object(target="gfx1100", kernels=(("plain", False),), version=5, symbols=(), **how):
    """A whole object. kernels: (name, declares); symbols: names of local functions."""
    table = [(name, FUNCTION, TEXT) if isinstance(name, str) else name for name in symbols]
    if version == 2:
        notes = notes_v2(kernels, target.split(":")[0])
    else:
        made = [kernel(name, declares, version) for name, declares in kernels]
        notes = note(b"AMDGPU", 32, pack(metadata(made, target, version)))
    return elf(notes, flags(target, version), version, table, **how)


def raw_object(document, target="gfx1100", version=5):
    """An object whose metadata is these bytes."""
    return elf(note(b"AMDGPU", 32, document), flags(target, version), version)
