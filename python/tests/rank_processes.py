# SPDX-License-Identifier: Apache-2.0
"""Rank processes for the tests of the backend `motet`: rows, each with ranks and a deadline.

Ranks are forked from the test, which has imported PyTorch already, and end like an interpreter.
"""

import ctypes
import datetime
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from typing import NamedTuple

try:
    import motet.torch  # noqa: F401  registers the backend
    import torch
    import torch.distributed as dist
except ImportError as reason:
    print(f"not run: {reason}")
    sys.exit(77)

DEADLINE_S = 150  # of a row: this machine may be busy with other things
AT_ONCE = 4  # rows
SECONDS = datetime.timedelta(seconds=1)
WORDS_OF_A_CRASH = ("terminate called", "Segmentation", "Fatal Python error", "AddressSanitizer")
warnings.simplefilter("ignore")


class Row(NamedTuple):
    """What a rank does, on how many ranks, with which timeout, and how ranks end if not well."""

    body: object
    size: int = 2
    timeout: int = 60
    ends: dict = {}
    init: bool = True


# ---- rank processes


def begin(rank, size, timeout, path="store"):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.abspath(path), size)
    dist.init_process_group(
        "motet", store=store, rank=rank, world_size=size, timeout=timeout * SECONDS
    )


def rank_process(rank, row, folder):
    """Never returns. Ends like an interpreter: threads are waited for, objects destroyed."""
    errors = os.open(os.path.join(folder, f"errors{rank}"), os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    status = 1
    try:
        os.chdir(folder)
        if row.init:
            begin(rank, row.size, row.timeout)
        row.body(rank, row.size)
        status = 0
    except SystemExit as wanted:
        status = wanted.code
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    ctypes.pythonapi.Py_Exit(status)


class Running:
    """The ranks of one row."""

    def __init__(self, name, row):
        self.name, self.row = name, row
        self.folder = tempfile.mkdtemp()  # a child that ends must not remove it
        self.end = time.monotonic() + DEADLINE_S
        self.ranks = {}
        self.faults = []
        for rank in range(row.size):
            pid = os.fork()
            if pid == 0:
                rank_process(rank, row, self.folder)
            self.ranks[pid] = rank

    def said(self, rank):
        with open(os.path.join(self.folder, f"errors{rank}"), errors="replace") as file:
            return file.read()

    def is_over(self):
        for pid in list(self.ranks):
            late = time.monotonic() > self.end
            if late:
                os.kill(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if not ended:
                continue
            rank = self.ranks.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            said = self.said(rank)
            if late:
                self.faults.append(f"rank {rank} hangs\n{said}")
            elif code != self.row.ends.get(rank, 0) or any(w in said for w in WORDS_OF_A_CRASH):
                self.faults.append(f"rank {rank} ended with {code}\n{said}")
        if not self.ranks:
            shutil.rmtree(self.folder, ignore_errors=True)
        return not self.ranks


def failures_of(rows):
    """Name: what went wrong. Some rows at a time."""
    waiting, running, failed = list(rows.items()), [], {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(Running(*waiting.pop(0)))
        for one in list(running):
            if one.is_over():
                running.remove(one)
                if one.faults:
                    failed[one.name] = "\n".join(one.faults)
        time.sleep(0.01)
    return failed


def raises(error, words, call):
    try:
        call()
    except error as reason:
        assert words in str(reason), f"'{words}' is not in {type(reason).__name__}: {reason}"
        return str(reason)
    raise AssertionError(f"no {error.__name__}: {words}")


def works(rank, size, group=None):
    """The group does what it should."""
    t = torch.full((3,), float(rank + 1))
    dist.all_reduce(t, group=group)
    assert t.tolist() == [size * (size + 1) / 2] * 3, t


def check(case, rows):
    """Run them; the test case fails with what went wrong in each."""
    failed = failures_of(rows)
    case.assertFalse(failed, "".join(f"\n{name}: {what}" for name, what in failed.items()))
