#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pair.py GATE CC OTHERS... -- PAIR...

The pair of `motet probe --gate-kernels`, which CC compiled, is the one exception to what
device code may declare. GATE (scripts/gate.py) refuses each PAIR, and for nothing but the hostcall of that
one kernel: it stays as strict as it is. No other file (library or image) holds one.
"""

import os
import subprocess
import sys

KERNEL = "probe_gate_hostcall"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    words = sys.argv[1:]
    gate, compiler = words[:2]
    others, pairs = words[2 : words.index("--")], words[words.index("--") + 1 :]
    failures = []
    command = [sys.executable, gate, "--cc", compiler, *pairs]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = answer.stdout.splitlines()
    if answer.returncode == 77:
        print(answer.stdout, end="")
        return 77
    for pair in pairs:
        wanted = f"{pair}: {KERNEL}: declares a hostcall buffer"
        found = [line for line in lines if line.startswith(f"{pair}: ")]
        if found != [wanted]:
            failures.append(f"{pair}: the gate says {found}, not {[wanted]}")
    if answer.returncode != 1:
        failures.append(f"the gate's status is {answer.returncode}")
    for other in others:
        content = read(other)
        if KERNEL.encode() in content:
            failures.append(f"{other}: has {KERNEL}")
        failures += [f"{other}: holds {os.path.basename(p)}" for p in pairs if read(p) in content]
    for failure in failures:
        print(failure)
    print(f"pair: {len(pairs)} pairs, {len(others)} other files, {len(failures)} failures")
    return 1 if failures or not pairs or not others else 0


if __name__ == "__main__":
    sys.exit(main())
