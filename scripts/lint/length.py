#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A function has at most 70 lines, from its first word to its brace, and a file at
most 700. Relies on the layout that clang-format gives: the braces of a function,
and no other closing brace of code, stand in the first column."""

import re

from csource import Lint, code, files, read

FUNCTION_LINES = 70
FILE_LINES = 700
# The word before the parenthesis of `name(…)` at the head of a definition.
HEAD = re.compile(r"(\w+)\s*\(")

lint = Lint("length")


def head_of(lines, brace):
    """Line and name of the function whose opening brace is on line `brace`, or None:
    a struct, an enum or a table."""
    first = brace
    while first > 0:
        above = lines[first - 1].strip()
        if not above or above[-1] in ";}{" or above.startswith("#"):
            break
        first -= 1
    match = HEAD.search(" ".join(lines[first:brace]))
    return (first, match.group(1)) if match else None


for path in files(".c", ".h", ".inc", ".cpp"):
    lines = code(read(path)).splitlines()
    if len(lines) > FILE_LINES:
        lint.report(
            path, FILE_LINES + 1, "file", f"the file has {len(lines)} lines, at most {FILE_LINES}"
        )
    opened = None
    for number, text in enumerate(lines):
        if text.rstrip() == "{":
            opened = head_of(lines, number)
        elif text.startswith("}") and opened:
            first, name = opened
            length = number - first + 1
            opened = None
            if length > FUNCTION_LINES:
                lint.report(
                    path, first + 1, name, f"{name}() has {length} lines, at most {FUNCTION_LINES}"
                )

for path in files(".sh", ".py"):
    count = len(read(path).splitlines())
    if count > FILE_LINES:
        lint.report(path, FILE_LINES + 1, "file", f"the file has {count} lines, at most {FILE_LINES}")

lint.finish()
