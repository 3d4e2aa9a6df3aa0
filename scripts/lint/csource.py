# SPDX-License-Identifier: Apache-2.0
"""What the lints share: the files of the tree, C without comments and strings,
findings and waivers. Each lint prints `file:line: message` and exits with 1 if
it found something, or if a waiver in waivers.txt no longer waives anything.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.abspath(
    sys.argv[sys.argv.index("--root") + 1]
    if "--root" in sys.argv
    else os.path.join(os.path.dirname(__file__), "..", "..")
)


def files(*suffixes):
    """Paths, relative to the root, of all files that git does not ignore; in an
    unpacked archive, of all files outside build/ and dist/."""
    try:
        listing = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard", "--", "."],
            capture_output=True,
            check=True,
        ).stdout.decode()
        paths = [path for path in listing.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in (".git", "build", "dist")]
            paths += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names]
    paths = [path for path in paths if os.path.isfile(os.path.join(ROOT, path))]
    return sorted(set(p for p in paths if not suffixes or p.endswith(suffixes)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as stream:
        return stream.read()


_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)


def code(text):
    """The text of a C file with comments and the insides of literals blanked; lines
    and columns stay where they are."""

    def blank(match):
        token = match.group(0)
        if token[0] == "/":
            return re.sub(r"[^\n]", " ", token)
        return token[0] + " " * (len(token) - 2) + token[-1]

    return _TOKEN.sub(blank, text)


class Lint:
    """Collects findings. A waiver is a line `LINT PATH KEY REASON…` in waivers.txt."""

    def __init__(self, name):
        self.name = name
        self.found = []
        self.waivers = {}
        listing = "scripts/lint/waivers.txt"
        if os.path.exists(os.path.join(ROOT, listing)):
            for number, line in enumerate(read(listing).splitlines(), 1):
                words = line.split("#")[0].split()
                if len(words) >= 4 and words[0] == name:
                    self.waivers[(words[1], words[2])] = (listing, number)
                elif words and len(words) < 4:
                    self.found.append((listing, number, "a waiver is LINT PATH KEY REASON"))
        self.used = set()

    def report(self, path, line, key, message):
        if (path, key) in self.waivers:
            self.used.add((path, key))
        else:
            self.found.append((path, line, message))

    def finish(self):
        for pair, (path, line) in self.waivers.items():
            if pair not in self.used:
                self.found.append((path, line, f"nothing is waived by '{' '.join(pair)}'"))
        for path, line, message in sorted(self.found):
            print(f"{path}:{line}: {message}")
        if not self.found:
            print(f"{self.name}: nothing to report")
        sys.exit(1 if self.found else 0)
