#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `motet hostcall --json` says of files made here, against what llvm-readelf says.

    check.py MOTET FOLDER        make the files below FOLDER, and compare
    check.py --of FILE MOTET     compare what MOTET says of a library with code for GPUs, whose
                                 plain bundles are cut out here

Every difference is printed. Exit status: 0; 1 if there is one; 77 if llvm-readelf-19 is
missing, or if clang 19 is, with the rest compared, or if the library has no plain bundles.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys

import broken
import compiled
import folders
import good
import readelf

SECONDS = 240  # for one command, on a loaded machine; all together take 10, with sanitizers
MEMORY_MB = 700  # for bombs; a program with sanitizers is not held to it
PIECES, SEED = 400, 19
NUMBERS = ("code_object", "kernels", "hostcall", "real", "conservative", "unknown")
NOBODY = 65534


class Wrong(Exception):
    """There is no answer that could be compared."""


class Tally:
    checks = failures = 0

    def true(self, condition, sentence):
        self.checks += 1
        if not condition:
            self.failures += 1
            print(sentence)

    def same(self, what, expected, got):
        self.true(expected == got, f"{what}:\n  wanted {expected}\n  got    {got}")


tally = Tally()


def hostcall(motet, *arguments, memory=None, user=None):
    """Status and document of `motet hostcall --json`."""

    def confine():
        resource.setrlimit(resource.RLIMIT_NOFILE, (folders.OPEN_FILES, folders.OPEN_FILES))
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory << 20, memory << 20))
        if user:
            os.setgroups([])
            os.setuid(user)

    shown = f"hostcall {' '.join(arguments)}"
    try:
        done = subprocess.run(
            [motet, "hostcall", "--json", *arguments],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            preexec_fn=confine,
        )
    except subprocess.TimeoutExpired:
        raise Wrong(f"{shown}: still running after {SECONDS} s") from None
    words = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 2) or "Sanitizer" in words or "runtime error" in words:
        raise Wrong(f"{shown}: status {done.returncode}: {words[:3000]}")
    tally.checks += 1
    try:
        return done.returncode, json.loads(done.stdout.decode())
    except ValueError as error:
        raise Wrong(f"{shown}: not JSON: {error}: {done.stdout[:300]!r}") from None


def by_path(document, folder):
    return {os.path.relpath(row["path"], folder): row for row in document["files"]}


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def comparable(images):
    """Images in an order of their own, with the members that are compared."""
    rows = []
    for image in images:
        wrong = [name for name in NUMBERS if not is_number(image.get(name))]
        if wrong:
            raise Wrong(f"no numbers: {wrong} of {image}")
        row = {name: image[name] for name in NUMBERS + ("target", "sha256")}
        row["names"] = sorted(image["names"])
        rows.append(row)
    return sorted(rows, key=lambda row: (row["sha256"], row["target"]))


def expected(blobs):
    return comparable([readelf.facts(blob) for blob in blobs])


def loosely(rows):
    """Of a target of version 3 the processor: there a feature that is not set is off."""
    return [
        dict(row, target=row["target"].split(":")[0]) if row["code_object"] == 3 else row
        for row in rows
    ]


def write(folder, fixtures):
    for fixture in fixtures:
        path = os.path.join(folder, fixture.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(fixture.data)


def check_good(motet, folder, fixtures):
    """All at once, as a folder, and some alone: the status, and the same answer."""
    status, document = hostcall(motet, folder)
    tally.same(f"status of {folder}", 1, status)
    rows = by_path(document, folder)
    for fixture in fixtures:
        row, path = rows.get(fixture.path), os.path.join(folder, fixture.path)
        if row is None:
            tally.true(False, f"{path} is not among the files")
            continue
        tally.true(not said(row), f"{path}: {said(row)}")
        want, got = loosely(expected(fixture.holds)), loosely(comparable(row["images"]))
        tally.same(path, want, got)
        if fixture.container:
            tally.same(f"container of {path}", fixture.container, row["container"])
    for fixture in fixtures[::5]:
        path = os.path.join(folder, fixture.path)
        status, document = hostcall(motet, path)
        declared = any(image["hostcall"] for image in expected(fixture.holds))
        tally.same(f"status of {path}", 1 if declared else 0, status)
        tally.same(path, [rows.get(fixture.path)], document["files"])


def said(row):
    """The sentences about a file and its images."""
    return [one["error"] for one in [row] + row["images"] if one.get("error")]


HEALTHY = good.Fixture("healthy.co", good.CALLS, [good.CALLS])


def healthy_is_there(folder, rows):
    row = rows.get(HEALTHY.path)
    tally.true(row is not None, f"{folder}: the healthy file is not there")
    if row is not None:
        tally.same(f"{folder}: healthy.co", expected(HEALTHY.holds), comparable(row["images"]))


def check_broken(motet, folder, files, memory=None):
    """A sentence for each, what can be read is read, and the healthy one among them too."""
    write(folder, [*files, HEALTHY])
    status, document = hostcall(motet, folder, memory=memory)
    tally.same(f"status of {folder}", 1, status)
    rows = by_path(document, folder)
    healthy_is_there(folder, rows)
    for file in files:
        row, path = rows.get(file.path), os.path.join(folder, file.path)
        if row is None:
            tally.true(file.silent, f"{path} is not among the files")
            continue
        tally.true(said(row) or file.silent or file.holds is None, f"{path}: no word: {row}")
        if file.holds is not None:
            read = [image for image in row["images"] if not image.get("error")]
            tally.same(path, expected(file.holds), comparable(read))
            if not file.holds and not file.silent:
                check_place(path, row)


def check_place(path, row):
    """Of what could not be read at all: no images, and a sentence that has a place."""
    words = row.get("error") or ""
    tally.same(f"images of {path}", [], row["images"])
    tally.true(re.search(r"\d", words), f"{path}: no place in '{words}'")


def check_alone(motet, folder, files):
    """Each alone: the status is that it could not be decided."""
    for file in files:
        if file.holds is None or file.silent:
            continue
        path = os.path.join(folder, file.path)
        status, document = hostcall(motet, path)
        tally.same(f"status of {path}", 2, status)
        tally.same(f"files of {path}", [path], [row["path"] for row in document["files"]])


def check_folders(motet, below):
    for make in (folders.loops, folders.specials, folders.deep, folders.names, folders.many):
        folder = below(make.__name__)
        make(folder)
        status, document = hostcall(motet, folder)
        tally.same(f"status of {folder}", 1, status)
        rows = by_path(document, folder)
        healthy_is_there(folder, rows)
        if make is folders.names:
            for i, name in enumerate(folders.NAMES):
                got = rows[f"kernel {i}.co"]["images"][0]["names"]
                tally.same(f"{folder}: names of kernel {i}.co", [name], got)
    for name in ("fifo", "socket", "empty", "one byte"):
        check_one(motet, os.path.join(below("specials"), name))
    for path in ("/dev/zero", "/dev/full", below("loops") + "/a", below("loops") + "/gone"):
        check_one(motet, path)
    check_unreadable(motet, below("unreadable"))


def check_one(motet, path):
    """Not read, and said so, within the deadline."""
    status, document = hostcall(motet, path)
    tally.same(f"status of {path}", 2, status)
    tally.same(f"images of {path}", [[]], [row["images"] for row in document["files"]])
    for row in document["files"]:
        tally.true(row.get("error") or row["container"] is None, f"{path}: no word: {row}")


def check_unreadable(motet, folder):
    """As somebody who may not read, which root always may."""
    user = NOBODY if os.getuid() == 0 else None
    folders.unreadable(folder)
    if user is not None and not reachable(motet, folder, user):
        print(f"not checked as another user, who cannot reach {motet} or {folder}")
        return
    status, document = hostcall(motet, folder, user=user)
    tally.same(f"status of {folder}", 1, status)
    rows = by_path(document, folder)
    healthy_is_there(folder, rows)
    words = rows.get("secret.co", {}).get("error") or ""
    tally.true("Permission denied" in words, f"{folder}/secret.co: '{words}'")
    for name in ("secret.co", "closed"):
        status, document = hostcall(motet, os.path.join(folder, name), user=user)
        tally.same(f"status of {name}, which may not be read", 2, status)


def reachable(motet, folder, user):
    probe = ["sh", "-c", 'test -x "$0" && test -r "$1"', motet, folder]
    return subprocess.run(probe, user=user, extra_groups=[], check=False).returncode == 0


def sanitized(motet):
    with open(motet, "rb") as file:
        return b"__asan_init" in file.read()


def check_library(motet, path):
    """Each image as llvm-readelf says. Returns what kept it from being compared."""
    blobs = readelf.bundles_of(path)
    if not blobs:
        return f"{path} has no plain bundles"
    status, document = hostcall(motet, path)
    want = expected(blobs)
    declare = sum(row["hostcall"] for row in want)
    tally.same(f"images of {path}", want, comparable(document["files"][0]["images"]))
    tally.same(f"status of {path}", 1 if declare else 0, status)
    print(f"{path}: {len(want)} images, {declare} of their kernels declare a hostcall")
    return None


def check_made(motet, folder):
    """Returns what was left out, None if nothing."""

    def below(name):
        return os.path.join(folder, name)

    fixtures, files = list(good.synthetic()), list(broken.lying())
    write(below("good"), fixtures)
    check_good(motet, below("good"), fixtures)
    check_broken(motet, below("lying"), files)
    check_alone(motet, below("lying"), files[::3])
    check_broken(motet, below("pieces"), list(broken.cut_and_flipped(SEED, PIECES)))
    memory = None if sanitized(motet) else MEMORY_MB
    check_broken(motet, below("bombs"), list(broken.bombs()), memory)
    check_folders(motet, below)
    missing = compiled.missing()
    if missing is not None:
        return f"without {missing} nothing was compiled; what is written byte by byte was checked"
    check_good(motet, below("made"), list(compiled.compiled(below("made"))))
    return None


def main(arguments):
    if shutil.which(readelf.READELF) is None:
        print(f"no {readelf.READELF}")
        return 77
    try:
        if arguments[0] == "--of":
            left_out = check_library(arguments[2], arguments[1])
        else:
            left_out = check_made(*arguments)
    except Wrong as error:
        print(error)
        return 1
    if tally.failures > 0:
        print(f"{tally.failures} of {tally.checks} checks failed")
        return 1
    print(f"{tally.checks} checks passed")
    if left_out is not None:
        print(left_out)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
