#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that do not belong in the tree, each with the reason and what to use.

A rule is a row: key, where it holds (prefixes), the pattern, the sentence. Patterns
are matched against C without its comments and literals, except for the marks of
unfinished work, which are looked for everywhere.
"""

import re

from csource import Lint, code, files, read

C = ("src/", "tools/", "tests/", "bench/", "examples/", "include/")
LIBRARY = ("src/",)

ROWS = [
    (name, C, rf"(?<![\w.>]){name}\s*\(", f"{name}(): {instead}")
    for name, instead in (
        ("sprintf", "no bound; use snprintf()"),
        ("vsprintf", "no bound; use vsnprintf()"),
        ("strcpy", "no bound; use snprintf() or memcpy()"),
        ("stpcpy", "no bound; use snprintf() or memcpy()"),
        ("strcat", "no bound; use snprintf()"),
        ("strncat", "its bound is not the buffer's size; use snprintf()"),
        ("strtok", "hidden state; use strtok_r() or strcspn()"),
        ("gets", "no bound; use fgets() or getline()"),
        ("atoi", "cannot fail; use strtol() and look at the end"),
        ("atol", "cannot fail; use strtol() and look at the end"),
        ("atoll", "cannot fail; use strtoll() and look at the end"),
        ("atof", "cannot fail; use strtod() and look at the end"),
        ("alloca", "no failure, no bound; use an array or malloc()"),
        ("system", "a shell; use posix_spawn() or execvp()"),
        ("tmpnam", "a race; use mkstemp()"),
        ("mktemp", "a race; use mkstemp()"),
    )
]
ROWS += [
    (name, LIBRARY, rf"(?<![\w.>]){name}\s*\(", f"{name}(): {instead}")
    for name, instead in (
        ("abort", "a library does not end its caller; return an error"),
        ("exit", "a library does not end its caller; return an error"),
        ("_exit", "a library does not end its caller; return an error"),
        ("assert", "a library does not end its caller; return an error"),
        ("printf", "stdout is the caller's; use base/log.h"),
        ("puts", "stdout is the caller's; use base/log.h"),
        ("perror", "stderr is the caller's; use motet_fail_errno()"),
        ("setenv", "the environment is the caller's"),
        ("putenv", "the environment is the caller's"),
        ("unsetenv", "the environment is the caller's"),
        ("signal", "handlers are the caller's"),
        ("sigaction", "handlers are the caller's"),
        ("sleep", "coarse and not cut short; use base/clock.h"),
    )
]
ROWS += [
    (
        "getenv",
        LIBRARY,
        r"\b(?:secure_)?getenv\s*\(|\benviron\b",
        "the environment is read by src/base/param.c only; add a row to param.def",
    ),
    (
        "volatile",
        ("src/", "tools/", "include/"),
        r"(?<!asm )(?<!asm__ )\b(?:__)?volatile(?:__)?\b",
        "volatile does not synchronise; use C11 atomics with an explicit order",
    ),
    (
        "constructor",
        C,
        r"__attribute__\s*\(\(\s*(?:__)?(?:con|de)structor",
        "constructors run before main() and in nobody's order; use a table",
    ),
]
# Spelled in halves so that this file does not find itself.
MARKS = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "X" "XX", "HA" "CK")) + r")\b")
MARKED = (
    ".c .h .def .inc .cpp .py .sh .md .txt .cmake .in .json .list .1 .3 .7 run Makefile".split()
)
ALLOWED = {("getenv", "src/base/param.c"), ("printf", "src/base/log.c")}

lint = Lint("banned")

for path in files(".c", ".h", ".inc", ".def", ".cpp"):
    stripped = code(read(path))
    for key, where, pattern, sentence in ROWS:
        if not path.startswith(where) or (key, path) in ALLOWED:
            continue
        for match in re.finditer(pattern, stripped):
            lint.report(path, stripped.count("\n", 0, match.start()) + 1, key, sentence)

for path in files(*MARKED):
    for number, text in enumerate(read(path).splitlines(), 1):
        match = MARKS.search(text)
        # mktemp's templates end in a row of capital X, which is not a mark: \b sees to it
        if match:
            lint.report(path, number, match.group(0), f"{match.group(0)}: finish it, or file it")

lint.finish()
