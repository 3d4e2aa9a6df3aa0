#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says in one line what became of a run of peers.sh, and turns nccl-tests' table into CSV.

    verdict.py LOG STATUS KIND CSV

KIND is "python", or the variant of nccl-tests. The line begins with "passed" or "failed".
"""

import csv
import re
import sys

COLUMNS = (
    "bytes count type op root time_us algbw busbw wrong in_time_us in_algbw in_busbw in_wrong"
).split()


def rows(text):
    """The lines of nccl-tests' table: 13 words, the first a number of bytes."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == len(COLUMNS) and words[0].isdigit() and words[1].isdigit():
            yield words


def judge_table(text, status, path):
    table = list(rows(text))
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(table)
    checked = [w for row in table for w in (row[8], row[12]) if w != "N/A"]
    wrong = sum(float(w) != 0 for w in checked)
    footer = re.search(r"Out of bounds values\s*:\s*(\d+)\s*(\w+)", text)
    if status != 0:
        return f"failed: status {status}, {len(table)} lines, {wrong} wrong"
    if not checked:
        return "failed: nothing was checked"
    if wrong or footer is None or footer.groups() != ("0", "OK"):
        return f"failed: {wrong} of {len(checked)} wrong, {footer.group(0) if footer else 'no footer'}"
    return f"passed: {len(checked)} checked, 0 wrong"


def judge_script(text, status):
    """Our own scripts end with "N passed, M failed[, K skipped]"."""
    last = re.findall(r"^(\d+) passed, (\d+) failed.*$", text, re.MULTILINE)
    if status == 77:
        return "failed: skipped"
    if status != 0 or not last or last[-1][1] != "0" or last[-1][0] == "0":
        return f"failed: status {status}, {' / '.join(last[-1]) if last else 'no count'}"
    return f"passed: {last[-1][0]} passed"


def main():
    log, status, kind, path = sys.argv[1:]
    with open(log, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    if kind == "python":
        line = judge_script(text, int(status))
    else:
        line = judge_table(text, int(status), path)
    if not line.startswith("passed"):
        tail = [x for x in text.splitlines() if re.search(r"error|fail|WARN", x, re.I)]
        line += "".join("\n    " + x[:200] for x in tail[-4:])
    print(line)


main()
