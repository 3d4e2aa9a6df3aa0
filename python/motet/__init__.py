# SPDX-License-Identifier: Apache-2.0
"""Collective communication between the ranks of a machine: motet's library from Python.

>>> import array, motet
>>> motet.run(lambda comm: list(comm.all_reduce(array.array("f", [1, comm.rank]))), 2)
[[2.0, 1.0], [2.0, 1.0]]
"""

from ._arrays import TYPES, Memory, memory_of
from ._communicator import Communicator, Info, Stream, group
from ._library import (
    ArgumentError,
    DeviceError,
    InProgressError,
    InternalError,
    MotetError,
    RemoteError,
    SystemRefusedError,
    UsageError,
    library_path,
    unique_id,
)
from ._library import version as __version__
from ._run import RankError, run

__all__ = [
    "TYPES",
    "ArgumentError",
    "Communicator",
    "DeviceError",
    "InProgressError",
    "Info",
    "InternalError",
    "Memory",
    "MotetError",
    "RankError",
    "RemoteError",
    "Stream",
    "SystemRefusedError",
    "UsageError",
    "__version__",
    "group",
    "library_path",
    "memory_of",
    "run",
    "unique_id",
]
