# SPDX-License-Identifier: Apache-2.0
"""The lints find what they should: each case is a small tree with one mistake, and
the words that the lint must say about it, at the right line."""

import os
import subprocess
import sys
import tempfile

LINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "lint")
LONG_FUNCTION = "int f(int a,\n        int b)\n{\n" + "    a++;\n" * 70 + "}\n"
SHORT_FUNCTION = "int f(int a)\n{\n" + "    a++;\n" * 67 + "}\n"
LONG_TABLE = "static const int t[] =\n{\n" + "    1,\n" * 90 + "};\n"
ROW = 'PARAM(A, "MOTET_A", NULL, UINT, 1, 0, 9, "", NULL, "s",\n    "What it is.")\n'
PAGE = (
    "<!-- from param.def -->\n<!-- end -->\n"
)
CODE = {
    "tools/doctor/codes.def": '#include "codes_x.def"\n',
    "tools/doctor/codes_x.def": 'DR_ROW(A_CODE, DR_OK, f, "m.", "w.", DR_LIST("f."),\n'
                                '    DR_NOTHING, DR_NOTHING, DR_LIST("s"))\n',
}
WAIVER = "length src/base/a.c f it is a table in disguise\n"

# (lint, files, words that must be printed; None: the lint must be content)
CASES = [
    ("includes", {"src/base/a.c": '#include "base/a.h"\n', "src/base/a.h": ""}, None),
    ("includes", {"src/comm/a.c": '#include "base/a.h"\n', "src/base/a.h": ""}, None),
    ("includes", {"src/base/a.c": '\n#include "comm/a.h"\n', "src/comm/a.h": ""},
     "src/base/a.c:2: \"comm/a.h\": base is below comm"),
    ("includes", {"src/base/a.c": '#include "base/none.h"\n'}, "src/base/a.c:1:"),
    ("includes", {"src/kernels/a.c": '#include "base/error.h"\n', "src/base/error.h": ""},
     "kernels include their own"),
    ("includes", {"src/kernels/a.c": '#include "base/types.h"\n', "src/base/types.h": ""}, None),
    ("includes", {"src/comm/a.c": '#include <nccl.h>\n', "include/nccl.h": ""}, "known to src/api only"),
    ("includes", {"src/comm/a.c": 'int ncclFoo(void);\n'}, "src/comm/a.c:1: ncclFoo"),
    ("includes", {"src/comm/a.c": '/* like ncclFoo */ const char *s = "ncclFoo";\n'}, None),
    ("includes", {"src/api/a.c": '#include <nccl.h>\nint ncclFoo(void);\n'}, None),
    ("includes", {"src/find/a.c": '#include "base/a.h"\n', "src/base/a.h": ""},
     "find includes nothing of ours"),
    ("includes", {"src/misc/a.c": '#include "base/a.h"\n', "src/base/a.h": ""}, "not a layer"),
    ("includes", {"tools/motet/a.c": '#include "comm/a.h"\n', "src/comm/a.h": ""},
     "tools share"),
    ("includes", {"tools/motet/a.c": '#include "base/a.h"\n', "src/base/a.h": ""}, None),
    ("includes", {"examples/a.c": '#include "base/a.h"\n', "src/base/a.h": ""},
     "public headers only"),
    ("includes", {"bench/a.c": '#include "kernels/a.h"\n', "src/kernels/a.h": ""}, None),
    ("includes", {"bench/a.c": '#include "comm/a.h"\n', "src/comm/a.h": ""}, "benchmarks use"),
    ("banned", {"src/base/a.c": "void f(char *s)\n{\n    strcpy(s, s);\n}\n"}, "src/base/a.c:3: strcpy()"),
    ("banned", {"src/base/a.c": "/* strcpy(a, b) */ const char *s = \"strcpy(\";\n"}, None),
    ("banned", {"tools/a.c": "int f(void) { return atoi(x); }\n"}, "atoi()"),
    ("banned", {"tools/a.c": "int f(void) { return my_atoi(x); }\n"}, None),
    ("banned", {"src/base/a.c": "x = getenv(n);\n"}, "param.c only"),
    ("banned", {"src/base/param.c": "x = getenv(n);\n"}, None),
    ("banned", {"tools/a.c": "x = getenv(n);\n"}, None),
    ("banned", {"src/base/a.c": "static volatile int x;\n"}, "volatile does not synchronise"),
    ("banned", {"src/base/a.c": '__asm__ volatile("pause");\n'}, None),
    ("banned", {"src/base/a.c": "__attribute__((constructor)) void f(void);\n"}, "constructors"),
    ("banned", {"src/base/a.c": "exit(1);\n"}, "does not end its caller"),
    ("banned", {"tools/a.c": "exit(1);\n"}, None),
    ("banned", {"docs/a.md": "a\nTO" "DO: more\n"}, "docs/a.md:2:"),
    ("banned", {"src/base/a.c": 'char name[] = "/tmp/aXX' 'XXXX";\n'}, None),
    ("length", {"src/base/a.c": LONG_FUNCTION}, "src/base/a.c:1: f() has 74 lines"),
    ("length", {"src/base/a.c": SHORT_FUNCTION}, None),
    ("length", {"src/base/a.c": LONG_TABLE}, None),
    ("length", {"src/base/a.c": "\n" * 701}, "the file has 701 lines"),
    ("length", {"src/base/a.c": LONG_FUNCTION, "scripts/lint/waivers.txt": WAIVER}, None),
    ("length", {"src/base/a.c": SHORT_FUNCTION, "scripts/lint/waivers.txt": WAIVER},
     "scripts/lint/waivers.txt:1: nothing is waived"),
    ("length", {"scripts/lint/waivers.txt": "length src/a.c f\n"}, "a waiver is"),
    ("docs", {"src/base/param.def": ROW, "docs/params.md": PAGE}, "docs/params.md:2: differs"),
    ("docs", {"src/base/param.def": ROW}, "lacks the lines"),
    ("docs", {"src/base/param.def": 'PARAM(A, "MOTET_A")\n'}, "can be read"),
    ("docs", {"README.md": "see `MOTET_NOWHERE`\n", "src/base/param.def": ROW, "docs/params.md": PAGE},
     "README.md:1: MOTET_NOWHERE exists nowhere"),
    ("docs", {"README.md": "[a](docs/none.md)\n"}, "README.md:1: the link"),
    ("docs", {"README.md": "[a](docs/b.md#x) [c](https://example.org)\n", "docs/b.md": ""}, None),
    ("docs", {"src/exports/nccl.list": "ncclA\n"}, "src/exports/nccl.list:1: ncclA is in no"),
    ("docs", {"src/exports/nccl.list": "pncclA\n", "docs/api.md": "`ncclA`\n"}, None),
    ("docs", {"src/exports/nccl.list": "ncclA\n", "include/nccl.h": "/** Does a. */\nint ncclA(int a,\n        int b);\n"}, None),
    ("docs", {"src/exports/nccl.list": "ncclB\n",
              "include/nccl.h": "/** Does a, and b. */\nint ncclA(void);\nint ncclB(void);\n"}, None),
    ("docs", {"src/exports/nccl.list": "pncclA\n",
              "include/nccl.h": "/** Does a. */\nMOTET_DECLARE(int, ncclA,\n        (int a));\n"}, None),
    ("docs", {"src/exports/nccl.list": "ncclA\n", "include/nccl.h": "int x;\n\nint ncclA(void);\n"},
     "include/nccl.h:3: ncclA has no comment"),
    ("docs", {"src/base/error.h": "    MOTET_ERR_A = 1,\n"}, "MOTET_ERR_A is not explained"),
    ("doctor", {"README.md": ""}, None),
    ("doctor", CODE, "docs/doctor/A_CODE.md:1: differs"),
    ("doctor", CODE, "docs/doctor/README.md:1: lacks the lines"),
    ("doctor", {**CODE, "docs/doctor/OLD.md": ""}, "docs/doctor/OLD.md:1: there is no code OLD"),
    ("doctor", {**CODE, "tools/doctor/codes_x.def": "DR_ROW(A_CODE, DR_OK)\n"}, "A_CODE has 2 parts"),
    ("docs", {"tools/motet/main.c": '    { "run", motet_cmd_run, "x" },\n'}, "has no man/motet-run.1"),
    ("docs", {"tools/motet/main.c": '    { "run", motet_cmd_run, "x" },\n', "man/motet-run.1": "",
              "man/motet.1": "motet run\n", "man/motet-walk.1": ""}, "there is no subcommand 'walk'"),
]


def run(lint, tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as stream:
                stream.write(text)
        done = subprocess.run(
            [sys.executable, os.path.join(LINTS, f"{lint}.py"), "--root", root],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def main():
    wrong = 0
    for lint, tree, words in CASES:
        status, printed = run(lint, tree)
        good = status == 0 if words is None else status == 1 and words in printed
        if not good:
            wrong += 1
            print(f"{lint} on {tree}:\n  wanted {words!r}, got status {status} and:\n{printed}")
    print(f"{len(CASES)} cases, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
