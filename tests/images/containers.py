# SPDX-License-Identifier: Apache-2.0
"""What code objects lie in, written byte by byte, so that no ROCm is needed.

Bundles of clang's, CCOB of version 1 to 3, kpack archives, archives of objects, and host
ELF files with .hip_fatbin, wrappers and .rocm_kpack_ref. Layouts: the sources of LLVM's
OffloadBundler and of TheRock's rocm_kpack.
"""

import ctypes
import hashlib
import struct
import zlib

from objects import pack

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
HOST = "host-x86_64-unknown-linux-gnu-"
ZLIB, ZSTD = 0, 1


def bundle(entries, host=HOST, align=4096, kind="hipv4"):
    """entries: (target or whole id, bytes), in the order wanted; the host's is first."""
    ids = [host] if host else []
    ids += [i if "amdgcn" in i else f"{kind}-amdgcn-amd-amdhsa--{i}" for i, _ in entries]
    blobs = ([b""] if host else []) + [blob for _, blob in entries]
    at = 32 + sum(24 + len(i) for i in ids)
    table, body = BUNDLE + struct.pack("<Q", len(ids)), b""
    for entry, blob in zip(ids, blobs):
        pad = -(at + len(body)) % align
        body += b"\0" * pad
        table += struct.pack("<QQQ", at + len(body), len(blob), len(entry)) + entry.encode()
        body += blob
    return table + body


def zstd_raw(data):
    """A zstd frame of stored blocks: what is in it stands there as it is."""
    blocks = [data[i : i + 65536] for i in range(0, len(data), 65536)] or [b""]
    out = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", len(data))
    for i, block in enumerate(blocks):
        head = (len(block) << 3) | (1 if i == len(blocks) - 1 else 0)
        out += struct.pack("<I", head)[:3] + block
    return out


def zstd_same(byte, count, claimed=None, first=b""):
    """A zstd frame of at most 64 KiB and then @p count equal bytes, 4 bytes for each 128 KiB of
    those, with a window of 8 MiB."""
    out = b"\x28\xb5\x2f\xfd\xc0\x68" + struct.pack(
        "<Q", len(first) + count if claimed is None else claimed
    )
    if first:
        out += struct.pack("<I", len(first) << 3)[:3] + first
    while count > 0:
        run = min(count, 128 << 10)
        count -= run
        out += struct.pack("<I", (run << 3) | 2 | (count == 0))[:3] + bytes([byte])
    return out


def zstd(data, level=19, window=0, sized=True):
    """A real frame by the system's libzstd, with long-distance matching if a window is
    named, and without its size if that is not wanted; None without the library."""
    try:
        lib = ctypes.CDLL("libzstd.so.1")
    except OSError:
        return None
    lib.ZSTD_createCCtx.restype = ctypes.c_void_p
    lib.ZSTD_compressBound.restype = lib.ZSTD_compress2.restype = ctypes.c_size_t
    lib.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    lib.ZSTD_CCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    lib.ZSTD_compress2.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    lib.ZSTD_freeCCtx.argtypes = [ctypes.c_void_p]
    context = lib.ZSTD_createCCtx()
    settings = {100: level, 200: 1 if sized else 0}  # ZSTD_c_compressionLevel, _contentSizeFlag
    if window:
        settings.update({101: window, 160: 1})  # ZSTD_c_windowLog, _enableLongDistanceMatching
    for name, value in settings.items():
        lib.ZSTD_CCtx_setParameter(context, name, value)
    room = ctypes.create_string_buffer(lib.ZSTD_compressBound(len(data)))
    size = lib.ZSTD_compress2(context, room, len(room), data, len(data))
    lib.ZSTD_freeCCtx(context)
    return room.raw[:size]


def ccob(payload, version=2, method=ZSTD, packed=None, claimed=None, total=None):
    """A compressed bundle. packed: the compressed bytes if other than usual; claimed and
    total: what its header says of sizes if other than true."""
    if packed is None:
        packed = zlib.compress(payload, 9) if method == ZLIB else zstd(payload) or zstd_raw(payload)
    size = len(payload) if claimed is None else claimed
    header = {1: 20, 2: 24, 3: 32}.get(version, 24)
    whole = header + len(packed) if total is None else total
    check = hashlib.md5(payload).digest()[:8]
    out = b"CCOB" + struct.pack("<HH", version, method)
    if version == 1:
        out += struct.pack("<I", size)
    elif version == 3:
        out += struct.pack("<QQ", whole, size)
    else:
        out += struct.pack("<II", whole, size)
    return out + check + packed


def kpack(members, scheme="none", family="gfx110X-all", more=None, toc=None, first=64, frame=None):
    """An archive. members: (binary, arch, bytes), of which all of a binary share "binary#0"
    unless the name has its own number; more: keys of its index, instead of the true ones;
    toc: all bytes of the index; frame: how a kernel is compressed."""
    names = sorted({arch for _, arch, _ in members})
    table = {}
    for i, (binary, arch, blob) in enumerate(members):
        key = binary if "#" in binary else binary + "#0"
        table.setdefault(key, {})[arch] = {
            "type": "hsaco",
            "ordinal": i,
            "original_size": len(blob),
        }
    body, index = b"", {
        "format_version": 1,
        "group_name": "rccl",
        "gfx_arch_family": family,
        "gfx_arches": names,
        "compression_scheme": scheme,
    }
    if scheme == "none":
        spans = []
        for _, _, blob in members:
            body += b"\0" * (-(first + len(body)) % 16)
            spans.append({"offset": first + len(body), "size": len(blob)})
            body += blob
        index["blobs"] = spans
    else:
        body = struct.pack("<I", len(members))
        for _, _, blob in members:
            packed = (frame or (lambda data: zstd(data) or zstd_raw(data)))(blob)
            body += struct.pack("<I", len(packed)) + packed
        index.update({"zstd_offset": first, "zstd_size": len(body)})
    index["toc"] = table
    index.update(more or {})
    head = b"KPAK" + struct.pack("<IQ", 1, first + len(body))
    return head + b"\0" * (first - len(head)) + body + (pack(index) if toc is None else toc)


def archive(members, thin=False):
    """ar, as GNU writes it: a symbol table, long names, even offsets; thin: without bodies."""
    names, out = b"", b"!<thin>\n" if thin else b"!<arch>\n"

    def member(name, data, body=True):
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        return head + (data + b"\n" * (len(data) % 2) if body else b"")

    spots = []
    for name, _ in members:
        if len(name) > 15 or thin:
            spots.append(f"/{len(names)}")
            names += name.encode() + b"/\n"
        else:
            spots.append(name + "/")
    out += member("/", struct.pack(">I", 0))
    if names:
        out += member("//", names)
    for spot, (_, data) in zip(spots, members):
        out += member(spot, data, not thin)
    return out


def archive_bsd(members):
    """ar, as BSD writes it: a long name stands before the data and counts as data."""
    out = b"!<arch>\n"
    for name, data in members:
        raw = name.encode() + b"\0" * (-len(name) % 4)
        size = len(raw) + len(data)
        out += f"#1/{len(raw):<13}{0:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode()
        out += raw + data + b"\n" * (size % 2)
    return out


PROGBITS, RELA, DYNAMIC, NOBITS = 1, 4, 6, 8  # SHT_…
PAGE = 4096


def host_elf(
    fatbin=b"", wrappers=(), ref=None, nobits=False, sections=True, relocate=True, others=()
):
    """A shared library for x86_64 that carries code for GPUs.

    wrappers: offsets in fatbin of what each wrapper means, or (section, offset); with ref, the
    kpack form, each with its number instead; nobits: the fat binary's bytes were taken away;
    relocate: the pointers are in R_X86_64_RELATIVE, else in the words; others: more sections
    (name, bytes); sections: whether the file has a table of them.
    """
    bodies = [(".hip_fatbin", NOBITS if nobits else PROGBITS, fatbin)]
    bodies += [(".rocm_kpack_ref", PROGBITS, pack(ref) if ref is not None else b"")]
    bodies = [body for body in bodies + [(n, PROGBITS, d) for n, d in others] if body[2]]
    addresses = addresses_of(bodies, PAGE)
    end = PAGE + sum(pages(data) for _, _, data in bodies)
    segment, rela = b"", b""
    for i, place in enumerate(wrappers):
        section, offset = place if isinstance(place, tuple) else (".hip_fatbin", place)
        kpack_form = ref is not None
        target = addresses[".rocm_kpack_ref"] if kpack_form else addresses[section] + offset
        segment += struct.pack("<II", 0x4B504948 if kpack_form else 0x48495046, 1)
        segment += struct.pack("<QQ", 0 if relocate else target, place if kpack_form else 0)
        rela += struct.pack("<QQq", end + 24 * i + 8, 8, target)
    more = [(".hipFatBinSegment", PROGBITS, segment)]
    if relocate and rela:
        table = end + pages(segment)
        tags = struct.pack("<qQqQqQqQ", 7, table, 8, len(rela), 9, 24, 0, 0)  # DT_RELA…
        more += [(".rela.dyn", RELA, rela), (".dynamic", DYNAMIC, tags)]
    more = [body for body in more if body[2]]
    addresses.update(addresses_of(more, end))
    return linked(bodies + more, addresses, sections)


def pages(data):
    return (len(data) + PAGE - 1) & -PAGE


def addresses_of(bodies, at):
    """Where each is loaded, in pages of its own."""
    found = {}
    for name, _, data in bodies:
        found[name] = at
        at += pages(data)
    return found


def linked(bodies, addresses, sections):
    """An ELF file of these sections (name, type, bytes), each in a segment of its own."""
    names, headers, segments = b"\0", [(0,) * 10], []
    out = bytearray(PAGE)
    for name, kind, data in bodies:
        out += b"\0" * (-len(out) % PAGE)
        writable = name in (".hipFatBinSegment", ".dynamic")
        at, size = addresses[name], len(data)
        align, entry = (8, {RELA: 24, DYNAMIC: 16}[kind]) if kind in (RELA, DYNAMIC) else (PAGE, 0)
        headers.append(
            (len(names), kind, 3 if writable else 2, at, len(out), size, 0, 0, align, entry)
        )
        stored = 0 if kind == NOBITS else size
        segments.append((1, 6 if writable else 4, len(out), at, at, stored, size, PAGE))
        if kind == DYNAMIC:
            segments.append((2, 6, len(out), at, at, size, size, 8))
        names += name.encode() + b"\0"
        out += data[:stored]
    last = len(names)
    names += b".shstrtab\0"
    headers.append((last, 3, 0, 0, len(out), len(names), 0, 0, 1, 0))
    out += names + b"\0" * (-(len(out) + len(names)) % 8)
    count = len(headers) if sections else 0
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHI", 3, 62, 1)
    head += struct.pack("<QQQI", 0, 64, len(out) if sections else 0, 0)
    head += struct.pack("<HHH", 64, 56, len(segments))
    head += struct.pack("<HHH", 64 if sections else 0, count, max(count - 1, 0))
    for load in segments:
        head += struct.pack("<IIQQQQQQ", *load)
    out[: len(head)] = head
    for header in headers[:count]:
        out += struct.pack("<IIQQQQIIQQ", *header)
    return bytes(out)
