# SPDX-License-Identifier: Apache-2.0
"""Ranks of a script of this folder: one process each, counted cases, a deadline.

A script calls run(body): in the process that the user starts it spawns the ranks, each
again the same script, and adds up what they counted; in a rank it calls body(cases).
Every rank counts the same cases, so a case has passed if it has on all of them. The last
line is "N passed, M failed, K skipped"; the exit status is 0, 1, or 77 if what the script
needs is not installed.
"""

import argparse
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback

SKIPPED = 77


class Cases:
    """What one rank counts. Its lines go to the parent by a pipe."""

    def __init__(self, rank, ranks, options):
        self.rank = rank
        self.ranks = ranks
        self.options = options
        self.only = options.only
        self.out = os.fdopen(int(os.environ["BENCH_GPU_PIPE"]), "w", buffering=1)

    def tell(self, what, name, why=""):
        print(what, name, why.replace("\n", " | "), sep="\t", file=self.out)

    def wanted(self, name):
        return self.only is None or self.only in name

    def run(self, name, function, *arguments):
        """Run one case; returns what it returned, or None. After a failure of one rank
        the others would wait for it in vain: it ends the rank."""
        if not self.wanted(name):
            return None
        self.tell("begin", name)
        try:
            result = function(*arguments)
        except Unsupported as reason:
            self.tell("skip", name, str(reason))
            return None
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            self.tell("fail", name, f"{type(error).__name__}: {error}")
            sys.stderr.flush()
            os._exit(1)
        self.tell("pass", name)
        return result


class Unsupported(Exception):
    """The client itself refuses this case, before the library sees it."""


def expect(holds, text):
    """An assert that -O leaves alone."""
    if not holds:
        raise AssertionError(text)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def spawn(options, rank, port):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    environment = dict(
        os.environ,
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(options.ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        BENCH_GPU_PIPE=str(write),
        PYTHONUNBUFFERED="1",
    )
    process = subprocess.Popen(
        [sys.executable, *sys.argv], env=environment, pass_fds=[write], start_new_session=True
    )
    os.close(write)
    os.set_blocking(read, False)
    return process, read


def drain(read, lines, partial):
    try:
        while chunk := os.read(read, 65536):
            partial += chunk.decode()
    except BlockingIOError:
        pass
    *whole, partial = partial.split("\n")
    lines += [line.split("\t") for line in whole]
    return partial


class Tally:
    """What became of each case on each rank."""

    def __init__(self):
        self.seen = {}
        self.doing = {}

    def add(self, rank, what, name, why):
        self.doing[rank] = name if what == "begin" else ""
        if what != "begin":
            self.seen.setdefault(name, []).append((rank, what, why))

    def report(self, options, codes, may_die):
        failed = {n for n, r in self.seen.items() if any(w == "fail" for _, w, _ in r)}
        skipped = {n for n, r in self.seen.items() if all(w == "skip" for _, w, _ in r)}
        passed = {
            n
            for n, r in self.seen.items()
            if sum(w == "pass" for _, w, _ in r) >= options.ranks - len(may_die)
        }
        for name in sorted(failed):
            for rank, what, why in self.seen[name]:
                if what == "fail":
                    print(f"FAIL  {name}: rank {rank}: {why}")
        for name in sorted(skipped):
            print(f"skip  {name}: {self.seen[name][0][2]}")
        ended_badly = 0
        for rank, code in enumerate(codes):
            if code != 0 and rank not in may_die:
                ended_badly += 1
                print(f"FAIL  rank {rank} ended with {code}, in {self.doing.get(rank) or 'no case'}")
        print(f"{len(passed)} passed, {max(len(failed), ended_badly)} failed, {len(skipped)} skipped")
        return 0 if passed and not failed and not ended_badly else 1


def watch(options, processes, tally):
    """Until all ranks ended, or the deadline, or long after the first failure."""
    deadline = time.monotonic() + options.seconds
    partial = [""] * len(processes)
    while True:
        running = False
        for rank, (process, read) in enumerate(processes):
            lines = []
            running |= process.poll() is None
            partial[rank] = drain(read, lines, partial[rank])
            for what, name, why in lines:
                tally.add(rank, what, name, why)
                if what == "fail":
                    deadline = min(deadline, time.monotonic() + 20)
        if not running:
            return
        if time.monotonic() > deadline:
            for rank, (process, _) in enumerate(processes):
                if process.poll() is None:
                    print(f"rank {rank} is ended in {tally.doing.get(rank) or 'no case'}")
                    os.killpg(process.pid, signal.SIGKILL)
            deadline += 10
        time.sleep(0.02)


def run(body, more=None, may_die=()):
    """@p more adds options to the parser; ranks of may_die may end in any way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=400, help="deadline of all")
    parser.add_argument("--backend", default="nccl", help="of torch.distributed: nccl or motet")
    parser.add_argument("--only", help="cases with this in their names")
    if more is not None:
        more(parser)
    options = parser.parse_args()
    if "BENCH_GPU_PIPE" in os.environ:
        if options.backend == "motet":
            importlib.import_module("motet.torch")  # makes the name known
        body(Cases(int(os.environ["RANK"]), options.ranks, options))
        sys.stdout.flush()
        return
    port = free_port()
    tally = Tally()
    processes = [spawn(options, rank, port) for rank in range(options.ranks)]
    watch(options, processes, tally)
    codes = [process.returncode for process, _ in processes]
    if SKIPPED in codes:
        sys.exit(SKIPPED)
    sys.exit(tally.report(options, codes, set(may_die)))


def skip(reason):
    """What the script needs is not there."""
    print(f"SKIPPED  {reason}")
    sys.stdout.flush()
    os._exit(SKIPPED)
