# SPDX-License-Identifier: Apache-2.0
"""The examples, started as their docstrings say, print what their docstrings say."""

import ast
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BIN = Path(sys.executable).parent
SHOWN = 4  # the ranks of the docstrings
DEADLINE_S = 240


def missing():
    """Why the examples cannot run here, or nothing."""
    if importlib.util.find_spec("torch") is None:
        return "the examples need PyTorch"
    if not EXAMPLES.is_dir():
        return f"the examples are not here: {EXAMPLES}"
    return ""


def torchrun(ranks):
    """The command beside this Python, or what it runs. Standalone: on a free port."""
    command = shutil.which("torchrun", path=BIN)
    run = [command] if command else [sys.executable, "-m", "torch.distributed.run"]
    return [*run, "--standalone", "--nproc-per-node", str(ranks)]


def motet_run(ranks):
    return [str(BIN / "motet"), "run", "-n", str(ranks), "--", sys.executable]


def play(command, path, **variables):
    """Status, output without the ranks' prefixes, and what was complained of."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    environment.update(variables)
    process = subprocess.Popen(
        [*command, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, complained = process.communicate()
        complained += f"\nno end within {DEADLINE_S} s"
    return process.returncode, re.sub(r"(?m)^\[\d+\] ", "", said), complained


def promised(path, ranks):
    """What the docstring of an example says that it prints: its last block of code."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    lines = text.rstrip().splitlines()
    begin = max(i for i, line in enumerate(lines) if not line.startswith("    "))
    block = "".join(line[4:] + "\n" for line in lines[begin + 1 :])
    return block.replace(f"{SHOWN} ranks", f"{ranks} ranks")


class Examples(unittest.TestCase):
    maxDiff = None

    def expect(self, command, path, ranks):
        status, said, complained = play(command, path)
        self.assertEqual(status, 0, f"{command}: {said}{complained}")
        self.assertEqual(said, promised(path, ranks), complained)

    def test_a_docstring_promises_something(self):
        for path in sorted(EXAMPLES.glob("torch/*.py")):
            if path.name != "launch.py":
                self.assertRegex(promised(path, 3), r"\Astep(?s:.+)PASS: 3 ranks, .+\n\Z")

    def test_data_parallel(self):
        self.both(EXAMPLES / "torch" / "ddp.py")

    def test_tensor_parallel(self):
        self.both(EXAMPLES / "torch" / "tensor_parallel.py")

    def test_mixture_of_experts(self):
        self.both(EXAMPLES / "torch" / "moe.py")

    def both(self, path):
        self.expect(torchrun(2), path, 2)
        self.expect(motet_run(3), path, 3)

    def test_ranks_that_do_not_divide_the_work_are_refused(self):
        path = EXAMPLES / "torch" / "moe.py"
        status, _, complained = play([sys.executable], path, RANK="0", WORLD_SIZE="5")
        self.assertNotEqual(status, 0)
        self.assertIn("5 ranks: need a number that divides 12", complained)

    def test_without_a_launcher_it_says_so(self):
        status, _, complained = play([sys.executable], EXAMPLES / "torch" / "ddp.py")
        self.assertNotEqual(status, 0)
        self.assertIn("start this with torchrun", complained)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "needs NumPy")
    def test_ranks_in_one_script(self):
        self.expect([sys.executable], EXAMPLES / "python" / "allreduce.py", SHOWN)


if __name__ == "__main__":
    if missing():
        print(missing())
        sys.exit(77)
    unittest.main()
