#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories of src/ are layers, and an include points down only.

    find < base < trace < device < bootstrap < transport < plan < engine < comm < api

`find` includes nothing of ours. `kernels` includes its own headers and
base/types.h. Nothing below `api` knows NCCL's names. Tools use the public headers,
their own, and the subsystems that they share whole; benchmarks measure kernels, too.
Examples are users: public headers only. Tests may look at everything.
"""

import glob
import os
import re

from csource import ROOT, Lint, code, files, read

LAYERS = "find base trace device bootstrap transport plan engine comm api".split()
SHARED_WITH_TOOLS = ("find", "base", "trace", "device", "bootstrap", "kernels")
# Whose headers, of any folder in it, are included by their names alone.
PARTS = {"tests": ("tests", "tools"), "tools": ("tools",)}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]')
NCCL_NAME = re.compile(r"\bp?nccl[A-Z]\w*|\bNCCL_[A-Z]\w*")

lint = Lint("includes")


def allowed(path, header):
    """None, or why `path` may not include `header` of src/."""
    layer = path.split("/")[1] if path.startswith("src/") else None
    target = header.split("/")[0]
    if layer is None:
        if path.startswith("tools/") and target not in SHARED_WITH_TOOLS:
            return f"tools share {', '.join(SHARED_WITH_TOOLS)} with the library, not {target}"
        if path.startswith("bench/") and target not in ("base", "kernels"):
            return f"benchmarks use public headers, base and kernels, not {target}"
        if path.startswith("examples/"):
            return "examples use public headers only"
        return None
    if layer == "kernels":
        if target != "kernels" and header != "base/types.h":
            return "kernels include their own headers and base/types.h only"
        return None
    if layer == "find":
        return None if target == "find" else "find includes nothing of ours"
    if target == "kernels":
        return None if layer in LAYERS[1:] else f"{layer} is not a layer"
    if layer not in LAYERS:
        return f"src/{layer} is not a layer; add it to {__file__.split('/')[-1]}"
    if target not in LAYERS:
        return f"src/{target} is not a layer"
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{layer} is below {target}: an include points down only"
    return None


def check_include(path, line, quote, header):
    folder = os.path.dirname(path)
    if os.path.exists(os.path.join(ROOT, "include", header)):
        if path.startswith("src/") and not path.startswith("src/api/"):
            lint.report(path, line, header, f"{header} is known to src/api only")
        return
    if quote == "<":
        return
    if os.path.exists(os.path.join(ROOT, "src", header)) and "/" in header:
        reason = allowed(path, header)
        if reason:
            lint.report(path, line, header, f'"{header}": {reason}')
    elif not os.path.exists(os.path.join(ROOT, folder, header)) and not any(
        glob.glob(os.path.join(ROOT, part, "*", header)) for part in PARTS.get(path.split("/")[0], ())
    ):
        lint.report(path, line, header, f'"{header}": not in {folder}, src/ or include/')


for path in files(".c", ".h", ".inc"):
    raw = read(path)
    stripped = code(raw)
    for number, text in enumerate(raw.splitlines(), 1):
        match = INCLUDE.match(text)
        if match:
            check_include(path, number, match.group(1), match.group(2))
    below_api = path.startswith("src/") and not path.startswith("src/api/")
    if below_api:
        for match in NCCL_NAME.finditer(stripped):
            line = stripped.count("\n", 0, match.start()) + 1
            name = match.group(0)
            if not raw.splitlines()[line - 1].lstrip().startswith("PARAM("):
                lint.report(path, line, name, f"{name}: NCCL's names are known to src/api only")

lint.finish()
