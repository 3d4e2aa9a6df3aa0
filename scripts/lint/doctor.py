#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/doctor/ has a page for each code of the doctor, made from tools/doctor/codes_*.def
(`scripts/lint/doctor.py --write`), and its README.md lists them; no page is left over."""

import os
import re
import sys

from csource import ROOT, Lint, files, read

TABLE = "tools/doctor/codes.def"
MACROS = "tools/doctor/codes.c"
FOLDER = "docs/doctor"
INDEX = f"{FOLDER}/README.md"
BEGIN, END = "<!-- from codes.def -->", "<!-- end -->"
SEVERITIES = {
    "error": "It fails, hangs or corrupts, or the device is missing.",
    "warn": "It works, but badly or on luck.",
    "unknown": "The text does not decide it.",
    "info": "It explains; there is nothing to repair.",
    "ok": "Checked and good.",
}
lint = Lint("doctor")
_TOKEN = re.compile(r'/\*.*?\*/|"((?:\\.|[^"\\])*)"|[A-Za-z_]\w*|[(),]|\s+', re.DOTALL)


def literal(text):
    return text.replace('\\"', '"').replace("\\\\", "\\")


def macros():
    """Words that stand for a text: `#define NAME "…"`, over several lines."""
    text = read(MACROS) if os.path.exists(os.path.join(ROOT, MACROS)) else ""
    found = {}
    for match in re.finditer(r'^#define (DR_\w+)\s*\\?\n?((?:\s*"(?:\\.|[^"\\\n])*"\s*\\?\n?)+)', text,
                             re.MULTILINE):
        found[match.group(1)] = literal("".join(re.findall(r'"((?:\\.|[^"\\])*)"', match.group(2))))
    return found


def rows_of(path, words):
    """The rows of a table: each a list of strings, words and lists."""
    text, at, rows, stack, joined = read(path), 0, [], [], False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            lint.report(path, text.count("\n", 0, at) + 1, "table", "cannot be read")
            break
        token, at = match.group(0), match.end()
        if token.isspace() or token.startswith("/*"):
            continue
        if token in ("DR_ROW", "DR_LIST"):
            stack.append([])
            joined = False
        elif token == ")":
            done = stack.pop()
            (stack[-1] if stack else rows).append(done)
            joined = False
        elif token in ("(", ","):
            joined = False
        elif token[0] == '"' or token in words:
            said = literal(match.group(1)) if token[0] == '"' else words[token]
            if joined:
                stack[-1][-1] += said
            else:
                stack[-1].append(said)
            joined = True
        else:
            stack[-1].append([] if token == "DR_NOTHING" else token)
    return rows


def catalogue():
    """All rows, in the order of codes.def, as dictionaries."""
    keys = "name severity rule means when fix will_not_help not_this sources".split()
    words, rows = macros(), []
    for name in re.findall(r'^#include "(codes_\w+\.def)"', read(TABLE), re.MULTILINE):
        path = f"{os.path.dirname(TABLE)}/{name}"
        for values in rows_of(path, words):
            if len(values) != len(keys):
                lint.report(path, 1, "table", f"{values[0]} has {len(values)} parts")
                continue
            row = dict(zip(keys, values))
            row["severity"] = row["severity"][len("DR_"):].lower()
            rows.append(row)
    return rows


def linked(text, names, own):
    """Codes outside of backticks become links to their pages."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(
            r"\b[A-Z][A-Z0-9_]{3,}\b",
            lambda m: f"[{m.group(0)}]({m.group(0)}.md)"
            if m.group(0) in names and m.group(0) != own else m.group(0),
            parts[i],
        ).replace("<", "&lt;").replace("*", "\\*")
    return "".join(parts)


def section(title, items, numbered):
    if not items:
        return []
    marks = [f"{n}." if numbered and len(items) > 1 else "-" for n in range(1, len(items) + 1)]
    return ["", f"## {title}", ""] + [f"{mark} {item}" for mark, item in zip(marks, items)]


def page(row, names):
    def link(text):
        return linked(text, names, row["name"])

    out = [
        f"# {row['name']}", "", link(row["means"]), "",
        f"Severity: **{row['severity']}**. {SEVERITIES[row['severity']]}", "",
        "## When it is said", "", link(row["when"]),
    ]
    out += section("What to do", [link(item) for item in row["fix"]], True)
    out += section("What will not help", [link(item) for item in row["will_not_help"]], False)
    out += section("Not to be confused with", [link(item) for item in row["not_this"]], False)
    out += section("Where the rule is from",
                   [f"<{item}>" if item.startswith("http") else item for item in row["sources"]],
                   False)
    return "\n".join(out + ["", "[All codes](README.md)", ""])


def index_section(rows):
    names = {row["name"] for row in rows}
    out = [BEGIN]
    for severity, sentence in SEVERITIES.items():
        out += ["", f"### {severity}", "", sentence, "", "| code | what it means |", "| --- | --- |"]
        for row in rows:
            if row["severity"] == severity:
                means = linked(row["means"], names, row["name"]).replace("|", "\\|")
                out.append(f"| [{row['name']}]({row['name']}.md) | {means} |")
    return "\n".join(out + ["", END])


def settle(path, fresh):
    """Write a page, or say that it differs."""
    full = os.path.join(ROOT, path)
    now = read(path) if os.path.exists(full) else None
    if now == fresh:
        return
    if "--write" in sys.argv:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as stream:
            stream.write(fresh)
    else:
        lint.report(path, 1, "page", "differs from the table; run scripts/lint/doctor.py --write")


def main():
    if not os.path.exists(os.path.join(ROOT, TABLE)):
        lint.finish()
    rows = catalogue()
    names = {row["name"] for row in rows}
    for row in rows:
        settle(f"{FOLDER}/{row['name']}.md", page(row, names))
    index = read(INDEX) if os.path.exists(os.path.join(ROOT, INDEX)) else ""
    if BEGIN in index and END in index:
        head, rest = index.split(BEGIN, 1)
        settle(INDEX, head + index_section(rows) + rest.split(END, 1)[1])
    else:
        lint.report(INDEX, 1, "page", f"lacks the lines '{BEGIN}' and '{END}'")
    for path in files(".md"):
        folder, name = os.path.split(path)
        if folder == FOLDER and name != "README.md" and name[:-3] not in names:
            lint.report(path, 1, "page", f"there is no code {name[:-3]}")
    lint.finish()


main()
