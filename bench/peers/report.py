#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and a picture from the lines of run.sh: report.py peers.csv peers.md peers.svg

A cell is the median, over the rounds, of a program's median; its spread is the median of
the 10th and of the 90th percentile. Of several settings of one peer the fastest counts,
for each operation and size by itself. A ratio above 1 means that motet is faster.
"""

import csv
import math
import os
import platform
import subprocess
import sys
from collections import defaultdict
from statistics import median

PEERS = ["openmpi", "mpich", "gloo"]
# motet with ordinary buffers, and with buffers registered as windows
OURS = ["motet", "windows"]
NAMES = {"motet": "motet", "windows": "motet, windows", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}
OPS = ["all_reduce", "all_gather", "broadcast", "all_to_all"]

# (ranks, peer, operations, least bytes, most bytes, least ratio, what it is called)
BARS = [
    ([2], "openmpi", 8, 8, 1.0, "not slower at 8 B, within the spread"),
    ([2], "openmpi", 512, 4096, 1.3, "1.3x at 512 B to 4 KB"),
    ([2], "openmpi", 32 << 10, 2 << 20, 2.0, "2x at 32 KB to 2 MB"),
    ([2], "openmpi", 16 << 20, 16 << 20, 1.3, "1.3x at 16 MB"),
    ([2, 4, 8], "gloo", 8, (64 << 10) - 1, 10.0, "10x Gloo below 64 KB"),
    ([4, 8], "openmpi", 8, 64 << 20, 1.5, "1.5x at 4 and 8 ranks, every size"),
]


class Cell:
    """One program at one number of ranks, operation and size."""

    def __init__(self, setting, rows):
        self.setting = setting
        self.us = median(r[0] for r in rows)
        self.low = median(r[1] for r in rows)
        self.high = median(r[2] for r in rows)


def read(path):
    """{(ranks, op, bytes): {who: Cell}}, with the best setting of each."""
    samples = defaultdict(list)
    with open(path, newline="", encoding="ascii") as f:
        for row in csv.DictReader(f):
            who = "windows" if row["setting"] == "windows" else row["who"]
            key = (int(row["ranks"]), row["op"], int(row["bytes"]), who, row["setting"])
            samples[key].append(tuple(float(row[c]) for c in ("median_us", "p10_us", "p90_us")))
    cells = defaultdict(dict)
    for (ranks, op, size, who, setting), rows in samples.items():
        cell = Cell(setting, rows)
        best = cells[(ranks, op, size)].get(who)
        if best is None or cell.us < best.us:
            cells[(ranks, op, size)][who] = cell
    return cells


def size_text(size):
    for unit, bytes_ in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= bytes_:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


def us_text(us):
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    if us >= 1e4:
        return f"{us / 1e3:.1f} ms"
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def version(command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return (out.stdout + out.stderr).splitlines()[0].strip()
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None


def head(path):
    with open(path, encoding="ascii") as f:
        rounds = max((int(line.split(",")[0]) for line in f if line[0].isdigit()), default=0)
    lines = [
        "# motet and its peers on this machine",
        "",
        f"{cpu_model()}, {os.cpu_count()} cores, Linux {platform.release()}; "
        f"{rounds} round{'s' if rounds != 1 else ''}, all programs interleaved.",
        "Times are microseconds of one operation where no unit is given: the median, with the",
        "10th to 90th percentile in brackets. A ratio is peer / motet: above 1 motet is faster.",
        "Open MPI and Gloo run under several settings; the fastest counts, for each cell by",
        "itself, and is named. `bytes` is the larger buffer of a rank. \"windows\": the buffers",
        "come from ncclMemAlloc() and are registered with ncclCommWindowRegister(), so ranks read",
        "them in place; the second ratio is with them.",
        "",
    ]
    for name, command in (
        ("Open MPI", ["mpirun.openmpi", "--version"]),
        ("MPICH", ["mpichversion"]),
        ("Gloo", ["dpkg-query", "-W", "-f", "${Package} ${Version}", "libgloo-dev"]),
    ):
        text = version(command)
        if text:
            lines.append(f"- {name}: {' '.join(text.split())}")
    return lines + [""]


def cell_text(cell, named):
    if cell is None:
        return "–"
    text = f"{us_text(cell.us)} [{us_text(cell.low)}–{us_text(cell.high)}]"
    return text + (f" {cell.setting}" if named and cell.setting != "default" else "")


def ratio_text(peer, ours):
    return f"{peer.us / ours.us:.2f}" if peer and ours else "–"


def table(cells, ranks, op):
    sizes = sorted(s for r, o, s in cells if (r, o) == (ranks, op))
    lines = [
        f"### {op}, {ranks} ranks",
        "",
        "| bytes | " + " | ".join(NAMES[o] for o in OURS) + " | "
        + " | ".join(f"{NAMES[p]} | ratio | windows" for p in PEERS) + " |",
        "|---|---|---|" + "---|---|---|" * len(PEERS),
    ]
    for size in sizes:
        row = cells[(ranks, op, size)]
        texts = [size_text(size)] + [cell_text(row.get(o), False) for o in OURS]
        for peer in PEERS:
            texts.append(cell_text(row.get(peer), True))
            texts += [ratio_text(row.get(peer), row.get(o)) for o in OURS]
        lines.append("| " + " | ".join(texts) + " |")
    return lines + [""]


def worst(cells, bar, op, who):
    """The cell of a bar that is nearest to breaking it: (ratio, where, verdict)."""
    ranks, peer, least, most, want, _ = bar
    found = [
        (row[peer].us / row[who].us, r, size, row)
        for (r, o, size), row in cells.items()
        if r in ranks and o == op and least <= size <= most and {who, peer} <= set(row)
    ]
    if not found:
        return None
    ratio, r, size, row = min(found, key=lambda f: f[0])
    verdict = f"{ratio / want:.2f} of it"
    if ratio >= want:
        verdict = "met"
    elif want == 1.0 and row[who].low <= row[peer].high:
        verdict = "within the spread"
    return f"{ratio:.2f} at {size_text(size)}, {r} ranks", verdict


def bars(cells):
    """Every promise, with the cell that is nearest to breaking it."""
    lines = [
        "## The bars",
        "",
        "| bar | operation | least ratio | | least ratio with windows | |",
        "|---|---|---|---|---|---|",
    ]
    for bar in BARS:
        for op in OPS:
            results = [worst(cells, bar, op, who) or ("–", "–") for who in OURS]
            if results[0][0] != "–":
                lines.append(f"| {NAMES[bar[1]]}: {bar[5]} | {op} | "
                             + " | ".join(f"{where} | {verdict}" for where, verdict in results) + " |")
    return lines + [""]


# ---- the picture

COLORS = {"motet": "#c0392b", "windows": "#e8882b", "openmpi": "#2c6fbb", "mpich": "#2e8b57", "gloo": "#8e6bbf"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 200, 60, 60, 50


def panel(cells, ranks, op, x0, y0, limits):
    low, high = limits
    sizes = sorted(s for r, o, s in cells if (r, o) == (ranks, op))
    least, most = math.log2(sizes[0]), math.log2(sizes[-1])

    def x(size):
        return x0 + (math.log2(size) - least) / max(most - least, 1) * WIDTH

    def y(us):
        return y0 + HEIGHT - (math.log10(us) - low) / max(high - low, 1) * HEIGHT

    out = [f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" class="frame"/>',
           f'<text x="{x0}" y="{y0 - 8}" class="title">{op}, {ranks} ranks</text>']
    for power in range(math.ceil(low), math.floor(high) + 1):
        at = y(10.0 ** power)
        out.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        out.append(f'<text x="{x0 - 4}" y="{at + 4:.1f}" class="end">{us_text(10.0 ** power)}</text>')
    for size in sizes[::3]:
        out.append(f'<text x="{x(size):.1f}" y="{y0 + HEIGHT + 14}" class="middle">'
                   f'{size_text(size)}</text>')
    for who, color in COLORS.items():
        points = [(x(s), y(cells[(ranks, op, s)][who].us)) for s in sizes
                  if who in cells[(ranks, op, s)]]
        if points:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            out.append(f'<polyline points="{path}" stroke="{color}"/>')
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2" fill="{color}"/>'
                    for px, py in points]
    return out


def picture(cells):
    counts = sorted({r for r, _, _ in cells})
    ops = [o for o in OPS if any(o == k[1] for k in cells)]
    width = LEFT + len(ops) * (WIDTH + GAP)
    height = TOP + len(counts) * (HEIGHT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif" font-size="11">',
           "<style>.frame{fill:none;stroke:#999}.grid{stroke:#ddd}polyline{fill:none;"
           "stroke-width:1.5}.title{font-weight:bold}.end{text-anchor:end;fill:#555}"
           ".middle{text-anchor:middle;fill:#555}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for i, (who, color) in enumerate(COLORS.items()):
        out.append(f'<text x="{LEFT + i * 110}" y="24" fill="{color}">{NAMES[who]}</text>')
    out.append(f'<text x="{LEFT + 5 * 110}" y="24" fill="#555">microseconds of one operation, '
               "by bytes; lower is better</text>")
    for row, ranks in enumerate(counts):
        times = [c.us for key, who in cells.items() if key[0] == ranks for c in who.values()]
        limits = (math.log10(min(times)) - 0.1, math.log10(max(times)) + 0.1)
        for column, op in enumerate(ops):
            if any(key[:2] == (ranks, op) for key in cells):
                out += panel(cells, ranks, op, LEFT + column * (WIDTH + GAP),
                             TOP + row * (HEIGHT + GAP), limits)
    return out + ["</svg>"]


def main():
    if len(sys.argv) != 4:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 64
    cells = read(sys.argv[1])
    if not cells:
        print(f"report.py: no lines in '{sys.argv[1]}'", file=sys.stderr)
        return 1
    lines = head(sys.argv[1]) + bars(cells) + ["## All of it", ""]
    for ranks in sorted({r for r, _, _ in cells}):
        for op in OPS:
            if any(key[:2] == (ranks, op) for key in cells):
                lines += table(cells, ranks, op)
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write("\n".join(lines))
    with open(sys.argv[3], "w", encoding="utf-8") as f:
        f.write("\n".join(picture(cells)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
