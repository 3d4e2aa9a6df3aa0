# SPDX-License-Identifier: Apache-2.0
"""The command of this package, as `motet` on PATH."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Become the command."""
    command = Path(__file__).parent / "bin" / "motet"
    try:
        os.execv(command, ["motet", *sys.argv[1:]])
    except OSError as reason:
        sys.exit(f"motet: {command}: {reason.strerror}; reinstall the package")
