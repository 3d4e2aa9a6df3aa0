# SPDX-License-Identifier: Apache-2.0
"""What llvm-readelf says of a code object, in the words of `motet hostcall --json`."""

import hashlib
import re
import struct
import subprocess

import containers

READELF = "llvm-readelf-19"
# The functions of the device library by which a kernel reaches the host (amd-hosts §6.5).
HOSTCALL = re.compile(r"__assert_fail|__assertfail|__ockl_(hostcall|fprintf|printf)\w*")
known = {}  # facts() of each object that was asked for


def facts(blob):
    """An image of the list `images`, without where it lies."""
    digest = hashlib.sha256(blob).hexdigest()
    if digest not in known:
        done = subprocess.run(
            [READELF, "--file-header", "--symbols", "--notes", "-"],
            input=blob,
            capture_output=True,
            check=True,
        )
        known[digest] = parsed(done.stdout.decode(), digest)
    return known[digest]


def parsed(text, digest):
    version = int(re.search(r"ABI Version: +(\d+)", text).group(1)) + 2
    processor, *features = re.search(r"Flags: +0x\w+, (.*)", text).group(1).split(", ")
    names = []
    kernels = re.split(r"\n  - (?=\.|Name:)", text.partition("Metadata:\n")[2])[1:]
    for one in kernels:
        current = re.search(r"(?:^|\n    )(?:\.name|Name): +'?([^'\n]*)", one).group(1)
        if re.search(
            r"value_kind: +'?hidden_hostcall_buffer|ValueKind: +HiddenHostcallBuffer", one
        ):
            names.append(current)
    table = text.partition("Symbol table '.symtab'")[2]
    rows = [row.split() for row in table.partition("\n\n")[0].splitlines()]
    real = any(
        len(row) == 8 and row[3] == "FUNC" and row[6] != "UND" and HOSTCALL.fullmatch(row[7])
        for row in rows
    )
    kind = "unknown" if not table else "real" if real else "conservative"
    made = {
        "code_object": version,
        "kernels": len(kernels),
        "hostcall": len(names),
        "real": 0,
        "conservative": 0,
        "unknown": 0,
        "names": sorted(names),
        "sha256": digest,
    }
    made[kind] = len(names)
    # Version 3 has no "any": a bit that is not set is off.
    made["target"] = processor if version <= 3 else target(processor, features)
    return made


def target(processor, features):
    """llvm-readelf prints "xnack+" if it is on, "xnack-" if off, "xnack" if any."""
    wanted = sorted(name for name in features if name[-1] in "+-")
    return ":".join([processor] + wanted)


def bundles_of(path):
    """The code objects in a library's plain bundles."""
    with open(path, "rb") as file:
        data = file.read()
    at, blobs = data.find(containers.BUNDLE), []
    while at >= 0:
        number, end = struct.unpack_from("<Q", data, at + 24)[0], at + 32
        if number < 4096:
            for _ in range(number):
                offset, size, length = struct.unpack_from("<QQQ", data, end)
                blobs += [data[at + offset : at + offset + size]] if size else []
                end += 24 + length
        at = data.find(containers.BUNDLE, end)
    return blobs
