#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What users meet is written down, and what is written down exists.

- Every row of src/base/param.def stands in docs/params.md, which is made from it
  (`scripts/lint/docs.py --write`).
- Every subcommand has man/motet-NAME.1, and man/motet.1 names it.
- Every export of src/exports/*.list is declared in a public header below a comment,
  or named in docs/api.md.
- Every result code of src/base/error.h stands in docs/errors.md.
- Every relative link of a page leads somewhere.
"""

import os
import re
import sys

from csource import ROOT, Lint, code, files, read

PARAM_TABLE = "src/base/param.def"
PARAM_PAGE = "docs/params.md"
BEGIN, END = "<!-- from param.def -->", "<!-- end -->"
lint = Lint("docs")


def exists(path):
    return os.path.exists(os.path.join(ROOT, path))


_ROW = re.compile(
    r'^PARAM\((\w+),\s*"(\w+)",\s*(?:NULL|"(\w+)"),\s*(\w+),\s*(.+?),\s*(\S+?),\s*(.+?),\s*'
    r'"([^"]*)",\s*(?:NULL|"([^"]*)"),\s*"([^"]*)",\s*((?:"(?:\\.|[^"])*"\s*)+)\)',
    re.MULTILINE,
)


def params():
    """Rows of the table as dictionaries, with their line."""
    if not exists(PARAM_TABLE):
        return []
    text = read(PARAM_TABLE)
    rows = []
    keys = "id name alias type default min max default_text words unit help".split()
    for match in _ROW.finditer(text):
        row = dict(zip(keys, match.groups()))
        row["help"] = "".join(re.findall(r'"((?:\\.|[^"])*)"', row["help"]))
        row["line"] = text.count("\n", 0, match.start()) + 1
        rows.append(row)
    heads = len(re.findall(r"^PARAM\(", text, re.MULTILINE))
    if heads != len(rows):
        lint.report(PARAM_TABLE, 1, "table", f"{heads} rows, but only {len(rows)} can be read")
    return rows


_KINDS = {"UINT": "number", "INT": "number", "BYTES": "bytes", "BOOL": "0 or 1", "STRING": "text"}


def accepted(row):
    kind = row["type"]
    if kind == "ENUM":
        return ", ".join(f"`{word}`" for word in row["words"].split()).replace("|", "\\|")
    if kind in ("UINT", "INT") and not row["max"].startswith("INT"):
        return f"{row['min']}…{row['max']}"
    if kind in ("UINT", "INT"):
        return f"{row['min']} or more"
    return _KINDS.get(kind, "anything")


def default(row):
    if row["type"] == "NOTED":
        return "none"
    if row["type"] == "STRING":
        return f"`{row['default_text']}`" if row["default_text"] else "empty"
    if row["type"] == "ENUM":
        return f"`{row['words'].split()[int(row['default'])]}`"
    return f"{row['default']} {row['unit']}".strip()


def param_section(rows):
    out = [BEGIN]
    for title, chosen in (
        ("motet's own", [r for r in rows if r["name"].startswith("MOTET_") and not r["alias"]]),
        ("NCCL's, with NCCL's meaning", [r for r in rows if r["alias"]]),
        (
            "Other people's, under their own names",
            [r for r in rows if not r["name"].startswith("MOTET_") and r["type"] != "NOTED"],
        ),
        ("NCCL's, accepted and logged, without effect on CPU ranks",
         [r for r in rows if r["type"] == "NOTED"]),
    ):
        out += ["", f"## {title}", "", "| variable | accepts | default | what it does |",
                "| --- | --- | --- | --- |"]
        for row in chosen:
            names = f"`{row['name']}`" + (f", `{row['alias']}`" if row["alias"] else "")
            text = row["help"].replace("|", "\\|")
            out.append(f"| {names} | {accepted(row)} | {default(row)} | {text} |")
    return "\n".join(out + ["", END])


def check_params():
    rows = params()
    if not rows:
        return
    page = read(PARAM_PAGE) if exists(PARAM_PAGE) else ""
    if BEGIN not in page or END not in page:
        lint.report(PARAM_PAGE, 1, "table", f"lacks the lines '{BEGIN}' and '{END}'")
        return
    head, rest = page.split(BEGIN, 1)
    fresh = head + param_section(rows) + rest.split(END, 1)[1]
    if "--write" in sys.argv and fresh != page:
        with open(os.path.join(ROOT, PARAM_PAGE), "w", encoding="utf-8") as stream:
            stream.write(fresh)
    elif fresh != page:
        line = next(
            (n for n, (a, b) in enumerate(zip(fresh.split("\n"), page.split("\n")), 1) if a != b),
            1,
        )
        lint.report(PARAM_PAGE, line, "table", "differs from param.def; run scripts/lint/docs.py --write")
    for path in files(".md"):
        known = {row["name"] for row in rows}
        for number, text in enumerate(read(path).splitlines(), 1):
            for name in re.findall(r"`(MOTET_[A-Z0-9_]+)(?:=[^`]*)?`", text):
                if name not in known and not exists_in_code(name):
                    lint.report(path, number, name, f"{name} exists nowhere")


_code_words = set()


def exists_in_code(name):
    if not _code_words:
        for path in files(".c", ".h", ".txt", ".cmake", ".sh", ".json", ".in", ".def"):
            _code_words.update(re.findall(r"\bMOTET_[A-Z0-9_]+\b", read(path)))
    return name in _code_words


def commands():
    """Subcommands: the `{ "NAME", motet_cmd_NAME…` or `cmd_NAME` rows of tools/motet."""
    found = {}
    for path in files(".c"):
        if not path.startswith("tools/motet/"):
            continue
        for number, text in enumerate(read(path).splitlines(), 1):
            match = re.match(r'\s*\{\s*"([a-z]+)",.*\b(?:motet_)?cmd_\1\b', text)
            if match:
                found[match.group(1)] = (path, number)
    return found


def check_commands():
    top = read("man/motet.1") if exists("man/motet.1") else ""
    rows = commands()
    if any(path.startswith("tools/motet/") for path in files(".c")) and not rows:
        lint.report("tools/motet", 1, "table", "no table of subcommands found")
    for name, (path, line) in rows.items():
        if not exists(f"man/motet-{name}.1"):
            lint.report(path, line, name, f"'motet {name}' has no man/motet-{name}.1")
        if not re.search(rf"\b{name}\b", top):
            lint.report(path, line, name, f"'motet {name}' is not named in man/motet.1")
    for page in files(".1"):
        match = re.fullmatch(r"man/motet-([a-z]+)\.1", page)
        if match and rows and match.group(1) not in rows:
            lint.report(page, 1, match.group(1), f"there is no subcommand '{match.group(1)}'")


def declared():
    """Functions of the public headers: name -> (path, line, whether it is explained).
    A declaration is explained by the comment right above it; declarations that follow
    each other without a blank line share one."""
    found = {}
    for path in files(".h"):
        if not path.startswith("include/"):
            continue
        raw = read(path)
        plain = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                       code(raw), flags=re.MULTILINE)
        explained = False
        for match in re.finditer(r"[^;{}]+[;{}]", plain):
            chunk = match.group(0)
            start = match.start() + len(chunk) - len(chunk.lstrip())
            before = raw[match.start():start]
            explained = "*/" in before or (explained and "\n\n" not in before)
            name = re.search(r"MOTET_DECLARE\([^,]+,\s*(\w+)", chunk) or re.search(
                r"(\w+)\s*\((?!\()", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", chunk))
            if name and chunk.endswith(";"):
                line = raw.count("\n", 0, start) + 1
                found.setdefault(name.group(1), (path, line, explained))
    return found


def check_exports():
    headers = declared()
    api = read("docs/api.md") if exists("docs/api.md") else ""
    for path in files(".list"):
        if not path.startswith("src/exports/"):
            continue
        for number, text in enumerate(read(path).splitlines(), 1):
            name = text.split("#")[0].strip().split(" ")[0]
            plain = re.sub(r"^p(?=(?:nccl|msccl)[A-Z])", "", name)
            mangled = re.match(r"_Z(\d+)(\w+)", name)
            if mangled:
                plain = mangled.group(2)[: int(mangled.group(1))]
            if not name or re.search(rf"\b{plain}\b", api):
                continue
            if plain not in headers:
                lint.report(path, number, name, f"{plain} is in no public header and not in docs/api.md")
            elif not headers[plain][2]:
                header, line, _ = headers[plain]
                lint.report(header, line, plain, f"{plain} has no comment above it")


def check_results():
    if not exists("src/base/error.h"):
        return
    page = read("docs/errors.md") if exists("docs/errors.md") else ""
    for match in re.finditer(r"^\s*(MOTET_(?:OK|ERR_\w+|IN_PROGRESS))\s*=", read("src/base/error.h"), re.M):
        if f"`{match.group(1)}`" not in page:
            lint.report("docs/errors.md", 1, match.group(1), f"{match.group(1)} is not explained")


def check_links():
    for path in files(".md"):
        for number, text in enumerate(read(path).splitlines(), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                if not exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
                    lint.report(path, number, target, f"the link to {target} leads nowhere")


for check in (check_params, check_commands, check_exports, check_results, check_links):
    check()
lint.finish()
