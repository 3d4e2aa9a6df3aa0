# SPDX-License-Identifier: Apache-2.0
"""Files that lie, end too soon or cost too much.

Each has to be answered with a sentence that names it, and must not keep others from being
read. holds: the objects that can be read all the same, None if that is open; silent: nothing
need be said, since some readers may rightly take the file for what it is not.
"""

import random
import struct
import zlib
from collections import namedtuple

import containers as c
import good as g
import objects as o

Broken = namedtuple("Broken", "path data holds silent", defaults=((), False))

HUGE = (1 << 32) - 1
BOMB = 6 << 30  # more than an image may have


def patched(data, at, form, value):
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return bytes(out)


def objects():
    """Bare code objects: the ELF header, its tables, the note, and the document in it."""
    whole = g.CALLS
    for name, at, form, value in (
        ("section table far away", 40, "<Q", 1 << 62),
        ("segment table far away", 32, "<Q", 1 << 62),
        ("sections of no size", 58, "<H", 0),
        ("segments of no size", 54, "<H", 0),
        ("65535 segments", 56, "<H", 0xFFFF),
        ("65535 sections", 60, "<H", 0xFFFF),
        ("names outside the table", 62, "<H", 0xFFFE),
    ):
        yield Broken(name + ".co", patched(whole, at, form, value), None, True)
    for name, at, value in (
        ("note far away", 64 + 56 + 8, 1 << 60),
        ("note of 4 GiB", 64 + 56 + 32, HUGE),
        ("note wraps around", 64 + 56 + 8, (1 << 64) - 8),
    ):
        blob = o.code_object("gfx1100", (("calls", True),), sections=False)
        yield Broken(name + ".co", patched(blob, at, "<Q", value))
    yield Broken("no note.co", o.elf(b"\0" * 4, 0x41, 5))
    for name, notes in (
        ("name of 4 GiB", struct.pack("<III", HUGE, 8, 32) + b"AMDGPU\0\0" + b"\0" * 8),
        ("document of 4 GiB", struct.pack("<III", 7, HUGE, 32) + b"AMDGPU\0\0" + b"\0" * 8),
        ("document is empty", o.note(b"AMDGPU", 32, b"")),
        ("note is cut off", o.note(b"AMDGPU", 32, b"\x80")[:14]),
        ("v2 without kernels", o.note(b"AMD", 10, b"---\nVersion: [ 1, 0 ]\nKernels: 7\n...\n")),
    ):
        yield Broken(name + ".co", o.elf(notes, 0x41, 2 if name.startswith("v2") else 5))
    document = o.pack(o.metadata([o.kernel("calls", True)], "gfx1100", 5))
    for name, raw in (
        ("array of 4 Gi", b"\x81\xaeamdhsa.kernels\xdd\xff\xff\xff\xff"),
        ("map of 4 Gi", b"\xdf\xff\xff\xff\xff\xaeamdhsa.kernels\x90"),
        ("name of 4 Gi", b"\x81\xaeamdhsa.kernels\x91\x81\xa5.name\xdb\xff\xff\xff\xff"),
        ("deep", b"\x91" * 100000 + b"\x90"),
        ("deep maps", b"\x81\xa1a" * 50000 + b"\xc0"),
        ("deep unknown", b"\x82\xa1a" + b"\x91" * 60000 + b"\xc0\xaeamdhsa.kernels\x90"),
        ("kernels are text", b"\x81\xaeamdhsa.kernels\xa3abc"),
        ("a kernel is a number", b"\x81\xaeamdhsa.kernels\x91\x07"),
        ("reserved byte", b"\x81\xaeamdhsa.kernels\xc1"),
        ("cut off", document[:-40]),
        ("no map", b"\x90"),
        ("args are a map", b"\x81\xaeamdhsa.kernels\x91\x82\xa5.name\xa1k\xa5.args\x80"),
    ):
        yield Broken(f"document {name}.co", o.raw_object(raw))
    yield Broken("32 bits.co", patched(whole, 4, "B", 1), (), True)
    yield Broken("big endian.co", patched(whole, 5, "B", 2), (), True)
    yield Broken("version 9.co", patched(whole, 8, "B", 7))


def bundles():
    blobs = g.entries(g.CALLS, g.NONE)
    whole = c.bundle(blobs)
    first = 32 + 24 + len(c.HOST)  # of the first entry for a GPU
    for name, at, value in (
        ("2^40 entries", 24, 1 << 40),
        ("4 Gi entries", 24, HUGE),
        ("one entry too many", 24, 4),
        ("size of 4 GiB", first + 8, HUGE),
        ("offset far away", first, 1 << 62),
        ("offset wraps around", first, (1 << 64) - 16),
        ("sum wraps around", first + 8, (1 << 64) - 4096),
        ("id of 2^63", first + 16, 1 << 63),
        ("entry in the table", first, 8),
    ):
        yield Broken(name + ".hipfb", patched(whole, at, "<Q", value), None)
    yield Broken("no entries.hipfb", patched(whole[:32], 24, "<Q", 0), (), True)
    yield Broken("magic alone.hipfb", c.BUNDLE)
    # Two entries of which one begins within the other.
    second = first + 24 + len("hipv4-amdgcn-amd-amdhsa--gfx1100")
    start = struct.unpack_from("<Q", whole, first)[0]
    yield Broken("overlapping.hipfb", patched(whole, second, "<Q", start + 64), None)
    yield Broken(
        "not an object.hipfb",
        c.bundle([("gfx1100", b"no object" * 9), ("gfx1100", g.NONE)]),
        [g.NONE],
    )
    yield Broken(
        "spirv.hipfb",
        c.bundle(
            [
                ("hip-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07" + b"\0" * 60),
                ("gfx1100", g.NONE),
            ]
        ),
        [g.NONE],
    )
    bitcode = c.bundle([("gfx1100", b"BC\xc0\xde" + b"\0" * 60), ("gfx1100", g.NONE)])
    yield Broken("bitcode.hipfb", bitcode, [g.NONE])
    # A bundle that is in itself, as far as its offset says so.
    itself = c.bundle([("gfx1100", c.BUNDLE)])
    yield Broken("in itself.hipfb", patched(itself, first, "<Q", 0), None)
    nest = g.NONE
    for _ in range(64):
        nest = c.bundle([("gfx1100", nest)], align=8)
    yield Broken("64 deep.hipfb", nest, None)


def compressed():
    inner = c.bundle(g.entries(g.CALLS, g.NONE))
    for version in (1, 2, 3):
        for method, name in ((c.ZLIB, "zlib"), (c.ZSTD, "zstd")):
            whole, path = c.ccob(inner, version, method), f"v{version} {name}"
            yield Broken(path + " cut off.ccob", whole[: len(whole) // 2])
            yield Broken(path + " header alone.ccob", whole[:16])
            yield Broken(
                path + " says less.ccob",
                c.ccob(inner, version, method, claimed=len(inner) - 100),
                None,
            )
            yield Broken(
                path + " says more.ccob",
                c.ccob(inner, version, method, claimed=len(inner) + 100),
                None,
            )
            yield Broken(
                path + " says 4 GiB.ccob", c.ccob(inner, version, method, claimed=HUGE), None
            )
            yield Broken(
                path + " says nothing.ccob", c.ccob(inner, version, method, claimed=0), None
            )
            yield Broken(
                path + " of text.ccob", c.ccob(b"no bundle at all, only text", version, method)
            )
        if version >= 2:
            yield Broken(
                f"v{version} total of 4 GiB.ccob", c.ccob(inner, version, total=HUGE), None
            )
            yield Broken(f"v{version} total of 3.ccob", c.ccob(inner, version, total=3), None)
            yield Broken(f"v{version} total of 0.ccob", c.ccob(inner, version, total=0), None)
    yield Broken("v3 says 2^63.ccob", c.ccob(inner, 3, claimed=1 << 63), None)
    yield Broken("v3 total of 2^63.ccob", c.ccob(inner, 3, total=1 << 63), None)
    yield Broken("method 7.ccob", c.ccob(inner, 2, 7, packed=c.zstd_raw(inner)), None)
    yield Broken("version 0.ccob", c.ccob(inner, 0))
    yield Broken("version 9.ccob", c.ccob(inner, 9))
    yield Broken(
        "window of 2 GiB.ccob",
        c.ccob(inner, 3, packed=b"\x28\xb5\x2f\xfd\x00\xa8" + c.zstd_raw(inner)[13:]),
        None,
    )
    nest = inner
    for _ in range(64):
        nest = c.ccob(nest, 2, packed=c.zstd_raw(nest))
    yield Broken("64 deep.ccob", nest)


def bombs():
    """Small files that are gigabytes unpacked; what they say of it is true, or a lie."""
    zeros = c.zstd_same(0, BOMB)
    yield Broken("zstd.ccob", c.ccob(b"", 3, packed=zeros, claimed=BOMB))
    yield Broken("zstd lies.ccob", c.ccob(b"", 3, packed=zeros, claimed=100))
    yield Broken(
        "zstd lies twice.ccob", c.ccob(b"", 3, packed=c.zstd_same(0, BOMB, 100), claimed=100)
    )
    yield Broken("zstd v2.ccob", c.ccob(b"", 2, packed=zeros, claimed=1 << 20))
    # A run of zeros that deflate leaves on a byte's boundary can be repeated.
    squeeze = zlib.compressobj(9)
    run = 64 << 20
    head, middle = squeeze.compress(b"\0" * run) + squeeze.flush(
        zlib.Z_FULL_FLUSH
    ), zlib.compressobj(9, zlib.DEFLATED, -15)
    again = middle.compress(b"\0" * run) + middle.flush(zlib.Z_FULL_FLUSH)
    yield Broken(
        "zlib.ccob", c.ccob(b"", 3, c.ZLIB, packed=head + again * (BOMB // run), claimed=BOMB)
    )
    yield Broken(
        "zlib lies.ccob", c.ccob(b"", 1, c.ZLIB, packed=head + again * (BOMB // run), claimed=1000)
    )
    member = [("librccl.so", "gfx1100", b"")]
    yield Broken(
        "zstd.kpack",
        c.kpack(
            member,
            "zstd-per-kernel",
            frame=lambda _: zeros,
            more={
                "toc": {
                    "librccl.so#0": {
                        "gfx1100": {"type": "hsaco", "ordinal": 0, "original_size": BOMB}
                    }
                }
            },
        ),
    )
    yield Broken("zstd lies.kpack", c.kpack(member, "zstd-per-kernel", frame=lambda _: zeros), None)
    # An image that is nearly all zeros: more than any real one is packed, and just as much.
    for name, run in (("image of 3 GiB", 3 << 30), ("image of 200 MiB", 200 << 20)):
        head = c.bundle([("gfx1100", g.CALLS)])
        first = 32 + 24 + len(c.HOST)
        head = patched(head, first + 8, "<Q", len(g.CALLS) + run)
        packed = c.zstd_same(0, run, first=head)
        whole = c.ccob(b"", 3, packed=packed, claimed=len(head) + run)
        yield Broken(name + ".ccob", whole, None, True)
    # Many entries of one object: what is read of a file has an end.
    yield Broken("4095 entries.hipfb", many_entries(), None, True)


def many_entries():
    one = c.bundle(g.entries(g.MANY), host="")
    count, name = 4095, b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    at = (32 + count * (24 + len(name)) + 4095) & ~4095
    table = c.BUNDLE + struct.pack("<Q", count)
    table += (struct.pack("<QQQ", at, len(g.MANY), len(name)) + name) * count
    assert one.endswith(g.MANY)
    return table + b"\0" * (at - len(table)) + g.MANY


def packs():
    members = [("librccl.so", "gfx1100", g.CALLS), ("librccl.so", "gfx906", g.OLD3)]
    for scheme in ("none", "zstd-per-kernel"):
        whole = c.kpack(members, scheme)
        for name, at, form, value in (
            ("index far away", 8, "<Q", 1 << 63),
            ("index at 0", 8, "<Q", 0),
            ("index at the end", 8, "<Q", len(whole)),
            ("version 7", 4, "<I", 7),
        ):
            yield Broken(f"{scheme} {name}.kpack", patched(whole, at, form, value))
        for name, toc in (
            ("deep", b"\x81\xa3toc" + b"\x81\xa1a" * 50000 + b"\xc0"),
            ("of 4 Gi", b"\xdf\xff\xff\xff\xff"),
            ("is a list", b"\x90"),
            ("is empty", b"\x80"),
            ("is text", b"\xa3toc"),
            ("cut off", c.pack({"toc": {}})[:-2]),
        ):
            yield Broken(f"{scheme} index {name}.kpack", c.kpack(members, scheme, toc=toc))
        yield Broken(f"{scheme} cut off.kpack", whole[: len(whole) - 30])
        for name, ordinal in (
            ("far", 99),
            ("of 4 Gi", HUGE),
            ("of 2^63", 1 << 63),
            ("is text", "one"),
        ):
            yield Broken(
                f"{scheme} number {name}.kpack",
                c.kpack(
                    members,
                    scheme,
                    more={
                        "toc": {
                            "librccl.so#0": {
                                "gfx1100": {"type": "hsaco", "ordinal": ordinal, "original_size": 8}
                            }
                        }
                    },
                ),
            )
    whole = len(c.kpack(members))
    for name, span in (
        ("far away", (1 << 62, 8)),
        ("of 4 GiB", (64, HUGE)),
        ("wraps around", ((1 << 64) - 8, 64)),
        ("is the file", (0, whole)),
    ):
        spans = [{"offset": span[0], "size": span[1]}] * 2
        yield Broken(f"blob {name}.kpack", c.kpack(members, more={"blobs": spans}), None)
    yield Broken("scheme unknown.kpack", c.kpack(members, more={"compression_scheme": "lzma"}))
    packed = c.kpack(members, "zstd-per-kernel")
    yield Broken("4 Gi frames.kpack", patched(packed, 64, "<I", HUGE), None)
    yield Broken("frame of 4 GiB.kpack", patched(packed, 68, "<I", HUGE), None)
    ref = {"kernel_name": "librccl.so", "kpack_search_paths": ["gone/@GFXARCH@.kpack"]}
    for name, how in (
        ("gone", ref),
        ("climbs", dict(ref, kpack_search_paths=["../" * 40 + "etc/passwd"])),
        ("absolute", dict(ref, kpack_search_paths=["/proc/self/mem", "/dev/zero"])),
        ("wrong", ["a"]),
        ("paths are text", dict(ref, kpack_search_paths="a")),
        ("no paths", {"kernel_name": "x"}),
        ("to itself", dict(ref, kpack_search_paths=["ref to itself.so"])),
        ("to a folder", dict(ref, kpack_search_paths=["."])),
        ("with NUL", dict(ref, kpack_search_paths=["a\0b.kpack"])),
        ("of 1 MB", dict(ref, kpack_search_paths=["a" * 1000000])),
    ):
        yield Broken(f"ref {name}.so", c.host_elf(b"\0" * 4096, [0], ref=how, nobits=True))


def libraries():
    fat = c.bundle(g.entries(g.CALLS))
    whole = c.host_elf(fat, [0])
    table = struct.unpack_from("<Q", whole, 40)[0]
    for name, at, form, value in (
        ("section far away", table + 64 + 24, "<Q", 1 << 62),
        ("section of 4 GiB", table + 64 + 32, "<Q", HUGE),
        ("section wraps around", table + 64 + 24, "<Q", (1 << 64) - 16),
        ("name far away", table + 64, "<I", HUGE),
        ("65535 sections", 60, "<H", 0xFFFF),
        ("names outside the table", 62, "<H", 0x7FFF),
        ("sections of 1 byte", 58, "<H", 1),
        ("table at the end", 40, "<Q", len(whole) - 1),
    ):
        yield Broken(name + ".so", patched(whole, at, form, value), None, True)
    yield Broken(
        "cut in the code.so", c.host_elf(fat, [0], sections=False)[: 4096 + 900], None, True
    )
    yield Broken("pointer far away.so", c.host_elf(fat, [1 << 40]), None, True)
    yield Broken("pointer into a bundle.so", c.host_elf(fat, [0, 100]), None, True)
    yield Broken("nothing there.so", c.host_elf(fat, [0], nobits=True))
    yield Broken("head.so", whole[:20])
    zeros = c.host_elf(b"\0" * (4 << 20))
    yield Broken("only zeros.so", zeros, (), True)
    magics = (c.BUNDLE + b"\xff" * 8) * 50000 + b"CCOB" * 100000
    yield Broken("only magics.so", c.host_elf(magics))
    yield Broken("only magics no sections.so", c.host_elf(magics, sections=False), (), True)


def archives():
    whole = c.archive([("a.o", g.CALLS), ("b.o", g.NONE)])
    size = whole.index(b"a.o/") + 48
    for name, text in (
        ("4 GiB", b"4294967295"),
        ("nothing", b"          "),
        ("less than nothing", b"-1        "),
        ("a word", b"abc       "),
        ("9999999999", b"9999999999"),
    ):
        yield Broken(f"member of {name}.a", whole[:size] + text + whole[size + 10 :], None)
    yield Broken("cut off.a", whole[:-200], None)
    yield Broken("no end of header.a", whole.replace(b"`\n", b"xx"))
    yield Broken(
        "name far away.a", whole.replace(b"a.o/            ", b"/99999999999    "), None, True
    )
    yield Broken(
        "BSD name of 4 GiB.a", whole.replace(b"a.o/            ", b"#1/4294967295   "), None
    )
    yield Broken("nothing in it.a", b"!<arch>\n", (), True)
    yield Broken("thin, gone.a", c.archive([("gone.o", g.CALLS)], thin=True))
    yield Broken("thin, itself.a", c.archive([("thin, itself.a", g.CALLS)], thin=True))
    nest = g.CALLS
    for _ in range(64):
        nest = c.archive([("a.a", nest)])
    yield Broken("64 deep.a", nest)


def lying():
    for group in (objects, bundles, compressed, packs, libraries, archives):
        for broken in group():
            yield broken._replace(path=f"{group.__name__}/{broken.path}")


def cut_and_flipped(seed, count):
    """Pieces of good files, and good files with bits flipped, where the layout is densest."""
    dice = random.Random(seed)
    inner = c.bundle(g.entries(g.CALLS, g.NONE), align=8)
    whole = [
        g.CALLS,
        g.OLD2,
        inner,
        c.ccob(inner, 3),
        c.ccob(inner, 1, c.ZLIB),
        c.archive([("a.o", inner)]),
        c.kpack([("l.so", "gfx1100", g.CALLS)]),
        c.kpack([("l.so", "gfx1100", g.CALLS)], "zstd-per-kernel"),
        c.host_elf(c.ccob(inner, 2), [0]),
        c.host_elf(inner, [0], sections=False),
    ]
    for number in range(count):
        data = bytearray(whole[number % len(whole)])
        if dice.random() < 0.4:
            del data[dice.randrange(len(data)) :]
        for _ in range(dice.choice((0, 1, 1, 2, 8))):
            if data:
                at = dice.randrange(len(data))
                data[at] = dice.choice(
                    (data[at] ^ 1 << dice.randrange(8), 0xFF, 0, dice.randrange(256))
                )
        yield Broken(f"{number}.bin", bytes(data), None, True)
