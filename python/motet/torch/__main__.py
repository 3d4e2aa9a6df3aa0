# SPDX-License-Identifier: Apache-2.0
"""python -m motet.torch build: compile motet's backend for the PyTorch of this Python."""

import sys
from pathlib import Path

from ._build import BuildError, backend_plan, build, torch_here

USAGE = "usage: python -m motet.torch build"


def main() -> int:
    """The command; its exit status."""
    if sys.argv[1:] != ["build"]:
        print(USAGE, file=sys.stderr)
        return 64
    try:
        torch = torch_here()
        output = build(backend_plan(Path(__file__).parent.parent, torch), torch)
    except BuildError as reason:
        print(f"motet.torch: {reason}", file=sys.stderr)
        return 2
    print(f"built for PyTorch {torch.version}: {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
