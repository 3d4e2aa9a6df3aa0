# SPDX-License-Identifier: Apache-2.0
"""Files that must be read whole, each with the code objects in it, written by Python alone.

A file that another one refers to (a kpack archive) is its neighbour.
"""

import hashlib
import struct
from collections import namedtuple

import containers as c
import objects as o

# path: below the folder of the fixtures; holds: the objects in it, in any order; container:
# pattern of how the file as a whole is called, "" for any.
Fixture = namedtuple("Fixture", "path data holds container", defaults=("",))

REAL, OTHER = "__ockl_hostcall_internal", "sum_of_all"
NONE = o.code_object("gfx1100")
CALLS = o.code_object("gfx1100", (("plain", False), ("calls", True)), symbols=(OTHER,))
PRINTS = o.code_object(
    "gfx1100",
    (("plain", False), ("prints", True), ("asserts", True)),
    symbols=(OTHER, REAL, "__assert_fail"),
)
BARE = o.code_object("gfx1100", (("calls", True),))  # no symbol table
WIDE = tuple(
    o.code_object(target, ((f"k_{i}", i % 2 == 1), ("calls", True)), symbols=(OTHER,))
    for i, target in enumerate(
        (
            "gfx906",
            "gfx908:xnack+",
            "gfx90a:xnack-",
            "gfx90a:xnack+",
            "gfx90a:sramecc+:xnack-",
            "gfx942",
            "gfx1030",
            "gfx1201",
        )
    )
)
XNACK = o.code_object("gfx942:xnack+", (("plain", False),))
GENERIC = o.code_object("gfx11-generic", (("plain", False), ("calls", True)), 6, (OTHER,))
OLD2 = o.code_object("gfx906", (("plain", False), ("prints", True)), 2, (REAL,))
OLD3 = o.code_object("gfx906", (("plain", False), ("calls", True)), 3, (OTHER,))
V4 = o.code_object("gfx90a:xnack+", (("plain", False), ("calls", True)), 4, (OTHER,))
MANY = o.code_object(
    "gfx1100", tuple((f"kernel_{i}", i % 3 == 0) for i in range(700)), symbols=(OTHER,)
)
DENSE = [
    o.code_object(
        target,
        tuple((hashlib.md5(f"{target} {i}".encode()).hexdigest(), i % 5 == 0) for i in range(900)),
        symbols=(OTHER,),
    )
    for target in ("gfx906", "gfx908", "gfx90a:xnack+", "gfx942", "gfx1030", "gfx1100", "gfx1201")
]
LONG = o.code_object("gfx1100", (("n" * 9000, True), ("_Z5" + "k" * 300, True)), symbols=(OTHER,))


def target_of(blob):
    """Of an object of WIDE and the like, as a bundle's entry names it."""
    mach, features = struct.unpack_from("<I", blob, 48)[0], []
    for name, shift in (("sramecc", 10), ("xnack", 8)):
        setting = mach >> shift & 3
        features += [f":{name}" + "-+"[setting - 2]] if setting >= 2 else []
    return next(k for k, v in o.MACH.items() if v == mach & 0xFF) + "".join(features)


def entries(*blobs):
    return [(target_of(blob), blob) for blob in blobs]


def padded(data, align=4096):
    return data + b"\0" * (-len(data) % align)


def bare_objects():
    for name, blob in (
        ("none", NONE),
        ("calls", CALLS),
        ("prints", PRINTS),
        ("bare", BARE),
        ("generic", GENERIC),
        ("v2", OLD2),
        ("v3", OLD3),
        ("v4", V4),
        ("many", MANY),
        ("long", LONG),
    ):
        yield Fixture(name + ".co", blob, [blob], "code object")
    for blob in WIDE:
        yield Fixture(target_of(blob).replace(":", "_") + ".hsaco", blob, [blob], "code object")
    # Found by one of the two ways only, and names that are nearly those of a hostcall.
    for name, how in (("by_segment", {"sections": False}), ("by_section", {"segments": False})):
        blob = o.code_object("gfx1100", (("plain", False), ("calls", True)), **how)
        yield Fixture(name + ".co", blob, [blob])
    blob = o.code_object(
        "gfx1100",
        (("calls", True),),
        symbols=(
            ("__ockl_hostcall_internal", o.VARIABLE, o.TEXT),
            "my__assert_fail",
            "count_ockl_hostcall",
        ),
    )
    yield Fixture("nearly.co", blob, [blob])
    # Text that says the word where no argument does.
    made = [o.kernel("hidden_hostcall_buffer", more={".language": "hidden_hostcall_buffer"})]
    document = o.metadata(made, "gfx1100", 5)
    document["amdhsa.printf"] = ["1:1:4:hidden_hostcall_buffer %d"]
    blob = o.raw_object(o.pack(document))
    yield Fixture("only_text.co", blob, [blob])
    # Keys in another order than any compiler's, twice the same argument, and unknown keys.
    hidden = {".value_kind": "hidden_hostcall_buffer", ".size": 8, ".offset": 8}
    made = {
        "amdhsa.version": [1, 2],
        "later": {"a": [1, {"b": None}, "c"], "d": 1 << 40},
        "amdhsa.kernels": [
            {
                ".wavefront_size": 32,
                ".symbol": "k.kd",
                ".new": [[], {}, True],
                ".args": [hidden, dict(hidden)],
                ".name": "k",
                ".kernarg_segment_size": 16,
            }
        ],
        "amdhsa.target": "amdgcn-amd-amdhsa--gfx1100",
    }
    blob = o.raw_object(o.pack(made))
    yield Fixture("order.co", blob, [blob])
    # A note of somebody else's before ours.
    notes = (
        o.note(b"GNU", 3, b"id" * 10)
        + o.note(b"AMDGPU", 31, b"no metadata")
        + o.note(b"AMDGPU", 32, o.pack(o.metadata([o.kernel("calls", True)], "gfx1100", 5)))
    )
    blob = o.elf(notes, o.flags("gfx1100", 5), 5)
    yield Fixture("notes.co", blob, [blob])
    # A document for each object that was linked, as lld leaves them: all count.
    for version in (2, 4):
        notes = b""
        for kernels in ((("first", False), ("second", True)), (("third", True),)):
            if version == 2:
                notes += o.notes_v2(kernels, "gfx906")
            else:
                made = [o.kernel(*kernel, version) for kernel in kernels]
                notes += o.note(b"AMDGPU", 32, o.pack(o.metadata(made, "gfx906", version)))
        blob = o.elf(notes, o.flags("gfx906", version), version)
        yield Fixture(f"two_documents_v{version}.co", blob, [blob])


def bundles():
    plain = c.bundle(entries(NONE, *WIDE))
    yield Fixture("plain.hipfb", plain, [NONE, *WIDE], "bundle")
    yield Fixture("no_name_says_so.txt", plain, [NONE, *WIDE], "bundle")
    yield Fixture("kind_hip.hipfb", c.bundle(entries(CALLS, NONE), kind="hip"), [CALLS, NONE])
    yield Fixture("openmp.hipfb", c.bundle(entries(CALLS), kind="openmp"), [CALLS])
    yield Fixture("no_host.hipfb", c.bundle(entries(CALLS, NONE), host=""), [CALLS, NONE])
    yield Fixture(
        "old_host.hipfb", c.bundle(entries(CALLS), host="host-x86_64-unknown-linux"), [CALLS]
    )
    yield Fixture("unaligned.hipfb", c.bundle(entries(PRINTS, NONE), align=1), [PRINTS, NONE])
    yield Fixture(
        "one_by_one.hipfb",
        padded(c.bundle(entries(CALLS))) + c.bundle(entries(NONE, V4)),
        [CALLS, NONE, V4],
    )
    yield Fixture(
        "close.hipfb",
        c.bundle(entries(CALLS), align=8) + b"\0" * 3 + c.bundle(entries(NONE), align=8),
        [CALLS, NONE],
    )
    # One image insists on a setting, one runs with either.
    yield Fixture("settings.hipfb", c.bundle(entries(XNACK, WIDE[5])), [XNACK, WIDE[5]])
    yield Fixture(
        "generic.hipfb", c.bundle([("gfx11-generic", GENERIC), ("gfx1100", NONE)]), [GENERIC, NONE]
    )


def compressed():
    inner = c.bundle(entries(CALLS, NONE, *WIDE))
    for version in (1, 2, 3):
        for method, name in ((c.ZLIB, "zlib"), (c.ZSTD, "zstd")):
            one = c.ccob(inner, version, method)
            path = f"v{version}_{name}"
            yield Fixture(path + ".ccob", one, [CALLS, NONE, *WIDE], "ccob")
            # Two in a row: that of version 1 does not say where it ends.
            two = c.ccob(c.bundle(entries(PRINTS)), version, method)
            yield Fixture(
                path + "_twice.so",
                c.host_elf(padded(one) + two, [0, len(padded(one))]),
                [CALLS, NONE, *WIDE, PRINTS],
                "elf",
            )
    # "CCOB" and a bundle's magic stand in what is packed, and are nothing there.
    named = o.code_object(
        "gfx1100", (("CCOB", True), ("CCOB\x02", False), (c.BUNDLE.decode(), False))
    )
    holds, trap = [CALLS, named], c.bundle(entries(CALLS, named))
    for version in (2, 3):
        yield Fixture(
            f"trap_v{version}.ccob", c.ccob(trap, version, packed=c.zstd_raw(trap)), holds
        )
    if c.zstd(b"") is None:
        return
    big = c.bundle(entries(CALLS, *WIDE) + entries(MANY))
    yield Fixture("window.ccob", c.ccob(big, 3, packed=c.zstd(big, 19, 27)), [CALLS, *WIDE, MANY])
    yield Fixture(
        "unsized.ccob", c.ccob(big, 3, packed=c.zstd(big, 3, sized=False)), [CALLS, *WIDE, MANY]
    )
    # As dense as a library for many targets is: 20 times smaller than what is in it.
    yield Fixture("dense.ccob", c.ccob(c.bundle(entries(*DENSE)), 3), DENSE)
    half = len(big) // 2
    yield Fixture(
        "two_frames.ccob",
        c.ccob(big, 3, packed=c.zstd(big[:half]) + c.zstd(big[half:])),
        [CALLS, *WIDE, MANY],
    )


def libraries():
    one, two = padded(c.bundle(entries(CALLS, V4))), c.bundle(entries(NONE))
    both = [CALLS, V4, NONE]
    yield Fixture("two_units.so", c.host_elf(one + two, [0, len(one)]), both, "elf")
    yield Fixture(
        "pointers_in_place.so", c.host_elf(one + two, [0, len(one)], relocate=False), both, "elf"
    )
    yield Fixture("no_wrappers.so", c.host_elf(one + two), both, "elf")
    yield Fixture(
        "no_sections.so", c.host_elf(one + two, [0, len(one)], sections=False), both, "elf"
    )
    packed = padded(c.ccob(one, 3)) + padded(two) + c.ccob(c.bundle(entries(PRINTS)), 2)
    yield Fixture(
        "mixed.so",
        c.host_elf(
            packed, [0, len(padded(c.ccob(one, 3))), len(padded(c.ccob(one, 3)) + padded(two))]
        ),
        both + [PRINTS],
        "elf",
    )
    # Code that a wrapper alone leads to, and a table of sections with its numbers in itself.
    others = [(".mine", one)]
    for name, fatbin, wrappers in (
        ("elsewhere.so", b"", [(".mine", 0)]),
        ("here_and_there.so", two, [0, (".mine", 0)]),
    ):
        library = c.host_elf(fatbin, wrappers, others=others)
        yield Fixture(name, library, [CALLS, V4] + ([NONE] if fatbin else []), "elf")
    yield Fixture("extended.so", extended(c.host_elf(one + two, [0, len(one)])), both, "elf")
    yield Fixture(
        "gap.so", c.host_elf(one + b"\0" * 65536 + two, [0, len(one) + 65536]), both, "elf"
    )


def extended(library):
    """As a file of more than 65,279 sections says how many it has: in section 0."""
    table = struct.unpack_from("<Q", library, 40)[0]
    count, names = struct.unpack_from("<HH", library, 60)
    out = bytearray(library)
    struct.pack_into("<HH", out, 60, 0, 0xFFFF)
    struct.pack_into("<QI", out, table + 32, count, names)
    return bytes(out)


def packs():
    ref = {
        "kernel_name": "librccl.so",
        "kpack_search_paths": ["../.kpack/rccl_lib_@GFXARCH@.kpack"],
    }
    arches = [
        ("librccl.so", "gfx1100", CALLS),
        ("librccl.so", "gfx90a:xnack+", V4),
        ("librccl.so", "gfx906", OLD3),
    ]
    for scheme in ("none", "zstd-per-kernel"):
        whole = c.kpack(arches, scheme)
        yield Fixture(f"{scheme}.kpack", whole, [CALLS, V4, OLD3], "kpack")
        folder = f"wheel_{scheme}"
        for _, arch, blob in arches:
            yield Fixture(
                f"{folder}/.kpack/rccl_lib_{arch.split(':')[0]}.kpack",
                c.kpack([("librccl.so", arch, blob)], scheme),
                [blob],
                "kpack",
            )
        yield Fixture(
            f"{folder}/lib/librccl.so",
            c.host_elf(c.bundle(entries(NONE)), [0], ref=ref, nobits=True),
            [CALLS, V4, OLD3],
            "elf",
        )
        # One archive for all, and one binary of two in it, of two images each.
        ref_all = dict(ref, kpack_search_paths=["nowhere/none.kpack", "all.kpack"])
        yield Fixture(
            f"{scheme}_all/all.kpack",
            c.kpack(
                [
                    ("librccl.so#0", "gfx1100", CALLS),
                    ("librccl.so#1", "gfx1100", PRINTS),
                    ("libother.so#0", "gfx1100", MANY),
                ],
                scheme,
            ),
            [CALLS, PRINTS, MANY],
            "kpack",
        )
        yield Fixture(
            f"{scheme}_all/librccl.so",
            c.host_elf(one_page(), [0, 1], ref=ref_all, nobits=True),
            [CALLS, PRINTS],
            "elf",
        )
    inside = c.bundle(entries(CALLS, NONE))
    yield Fixture(
        "bundles_inside.kpack",
        c.kpack([("a.so", "gfx1100", inside), ("b.so", "gfx1100", c.ccob(inside, 2))]),
        [CALLS, NONE, CALLS, NONE],
        "kpack",
    )
    yield Fixture(
        "from_16.kpack", c.kpack([("a.so", "gfx1100", CALLS)], first=16), [CALLS], "kpack"
    )


def one_page():
    return b"\0" * 4096


def archives():
    host = c.host_elf(c.bundle(entries(PRINTS)), [0])
    members = [
        ("a.o", CALLS),
        ("a_long_name_of_a_member.o", host),
        ("text", b"odd"),
        ("b.hipfb", c.bundle(entries(NONE))),
    ]
    yield Fixture("gnu.a", c.archive(members), [CALLS, PRINTS, NONE], "archive")
    yield Fixture("bsd.a", c.archive_bsd(members), [CALLS, PRINTS, NONE], "archive")


def synthetic():
    for group in (bare_objects, bundles, compressed, libraries, packs, archives):
        for fixture in group():
            yield fixture._replace(path=f"{group.__name__}/{fixture.path}")
