#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The doctor's corpus, by the rules of README.md.

    run.py MOTET [CASE...]     judge each case whole and, if it has several files, with
                               each of them missing; none named: all
    run.py --time MOTET        judge 200 times, every case in turn: less than 2 s of CPU

Each folder with an expect.json is a case.
"""

import json
import os
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ORDER = ("error", "warn", "unknown", "info", "ok")
LOUD = ("error", "warn", "unknown")
JUDGEMENTS, SECONDS = 200, 2.0


def catalogue(motet):
    """{code: (position, severity)} as `motet doctor --list` prints it."""
    out = subprocess.run([motet, "doctor", "--list"], capture_output=True, text=True, check=True)
    rows = [line.split()[:2] for line in out.stdout.splitlines() if line.strip()]
    return {code: (position, severity) for position, (severity, code) in enumerate(rows)}


class Broken(Exception):
    """The command crashed, hung or printed no report."""


def telling(text):
    """The lines of a crash that say what it was."""
    lines = [line for line in text.splitlines() if "error" in line.lower() or " in dr_" in line]
    return " | ".join((lines or text.splitlines())[:4])


def judge(motet, files):
    """The report, and the exit status."""
    try:
        out = subprocess.run([motet, "doctor", "--json", "--read", *files], capture_output=True,
                             text=True, timeout=60, check=False)
        if out.returncode in (0, 1, 2) and not out.stderr:
            return json.loads(out.stdout), out.returncode
    except subprocess.TimeoutExpired as error:
        raise Broken("no end in 60 s") from error
    except ValueError as error:
        raise Broken(f"no JSON: {error}; {telling(out.stderr)}") from error
    raise Broken(f"exit status {out.returncode}: {telling(out.stderr)}")


def inputs(name):
    """The files of a case, in an order that says nothing."""
    folder = os.path.join(HERE, name)
    return sorted(os.path.join(folder, f) for f in os.listdir(folder) if f != "expect.json")


def status_of(findings):
    severities = {f["severity"] for f in findings}
    if severities & {"error", "warn"}:
        return 1
    return 2 if "unknown" in severities else 0


def in_order(findings, codes):
    def key(f):
        position, severity = codes[f["code"]]
        return (f["code"] != "NO_FINDING", ORDER.index(severity), position, f["subject"].encode())
    return [key(f) for f in findings] == sorted(key(f) for f in findings)


def check_form(report, status, codes):
    """What holds of every report."""
    findings = report["findings"]
    for f in findings:
        if f["severity"] != codes[f["code"]][1]:
            yield f"{f['code']} is printed as {f['severity']}"
        if not f["summary"]:
            yield f"{f['code']} has no sentence"
        if f["severity"] in ("error", "warn") and not (f["because"] and f["fix"]):
            yield f"{f['code']} comes without a line or without a fix"
    if not in_order(findings, codes):
        yield "out of order: " + " ".join(f["code"] for f in findings)
    loud = [f for f in findings if f["severity"] in LOUD]
    if loud and any(f["code"] == "NO_FINDING" for f in findings):
        yield "NO_FINDING beside " + loud[0]["code"]
    if findings and status != status_of(findings):
        yield f"exit status {status}, the findings say {status_of(findings)}"


def check_whole(expect, report, status, codes):
    findings = report["findings"]
    have = [f["code"] for f in findings]
    allowed = expect["codes"] + expect["also_allowed"]
    for code in expect["codes"]:
        if code not in have:
            yield f"{code} is missing, there are: {' '.join(have) or 'none'}"
    if have and have[0] not in expect["codes"]:
        yield f"{have[0]} comes first"
    for f in findings:
        if f["code"] in expect["must_not"]:
            yield f"{f['code']} must not be reported: {f['subject']}: {f['summary']}"
        elif f["severity"] in LOUD and f["code"] not in allowed:
            yield f"false alarm {f['code']}: {f['subject']}: {f['summary']}"
    if expect["subject"] is not None and not any(
            expect["subject"] in f["subject"] or expect["subject"] in f["summary"]
            for f in findings if f["code"] in expect["codes"]):
        yield f"no subject names {expect['subject']}: " + "; ".join(
            f"{f['subject']}: {f['summary']}" for f in findings if f["code"] in expect["codes"])
    want = status_of([{"severity": codes[c][1]} for c in expect["codes"]])
    if status != want:
        yield f"exit status {status}, not {want}"


def check_part(expect, report):
    allowed = expect["codes"] + expect["also_allowed"]
    for f in report["findings"]:
        if f["severity"] in ("error", "warn") and (
                f["code"] not in allowed or f["code"] in expect["must_not"]):
            yield f"{f['code']}: {f['subject']}: {f['summary']}"


def run_case(motet, name, codes):
    files = inputs(name)
    with open(os.path.join(HERE, name, "expect.json"), encoding="utf-8") as file:
        expect = json.load(file)
    for code in expect["codes"] + expect["also_allowed"] + expect["must_not"]:
        if code not in codes:
            yield f"{code} is no code"
            return
    report, status = judge(motet, files)
    yield from check_form(report, status, codes)
    yield from check_whole(expect, report, status, codes)
    for gone in files if len(files) > 1 else []:
        report, status = judge(motet, [f for f in files if f != gone])
        for fault in [*check_form(report, status, codes), *check_part(expect, report)]:
            yield f"without {os.path.basename(gone)}: {fault}"


def faults_of(motet, name, codes):
    try:
        return list(run_case(motet, name, codes))
    except Broken as error:
        return [str(error)]


def check_time(motet, names):
    """Seconds of CPU that the judgements took; 1 if they were too many."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for i in range(JUDGEMENTS):
        subprocess.run([motet, "doctor", "--json", "--read", *inputs(names[i % len(names)])],
                       stdout=subprocess.DEVNULL, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{JUDGEMENTS} judgements took {took:.2f} s of CPU, at most {SECONDS:.0f} s are allowed")
    return took > SECONDS


def main():
    words = [word for word in sys.argv[1:] if word != "--time"]
    every = sorted(n for n in os.listdir(HERE)
                   if os.path.exists(os.path.join(HERE, n, "expect.json")))
    if not words or not set(words[1:]) <= set(every):
        print(__doc__.strip(), *sorted(set(words[1:]) - set(every)), sep="\n", file=sys.stderr)
        return 64
    motet, names = words[0], words[1:] or every
    if "--time" in sys.argv[1:]:
        return check_time(motet, names)
    codes = catalogue(motet)
    failed = 0
    for name in names:
        faults = faults_of(motet, name, codes)
        failed += bool(faults)
        for fault in faults:
            print(f"{name}: {fault}")
    print(f"cases: {len(names)}, failed: {failed}, codes: {len(codes)}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
