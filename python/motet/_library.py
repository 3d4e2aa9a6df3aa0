# SPDX-License-Identifier: Apache-2.0
"""The C library: where it is, its functions, and its statuses as exceptions."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, NoReturn

SONAME = "libmotet.so.0"
UNIQUE_ID_BYTES = 128


class MotetError(RuntimeError):
    """A call of the library failed. The text is the library's own sentence.

    ``status`` is the number of its ``ncclResult_t``, ``operation`` the function's name.
    """

    status = -1

    def __init__(self, sentence: str, status: int, operation: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.operation = operation

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.status, self.operation)


class DeviceError(MotetError):
    """A device or its driver failed, or there is none (ncclUnhandledCudaError)."""


class SystemRefusedError(MotetError):
    """The operating system refused something (ncclSystemError)."""


class InternalError(MotetError):
    """A mistake inside the library (ncclInternalError)."""


class ArgumentError(MotetError, ValueError):
    """One argument is wrong by itself (ncclInvalidArgument)."""


class UsageError(MotetError):
    """Arguments do not fit together, or this is not supported (ncclInvalidUsage)."""


class RemoteError(MotetError):
    """A peer died, left, or did not answer in time (ncclRemoteError, ncclTimeout)."""


class InProgressError(MotetError):
    """A non-blocking communicator still works on it (ncclInProgress)."""


# By ncclResult_t.
_ERRORS: dict[int, type[MotetError]] = {
    1: DeviceError,
    2: SystemRefusedError,
    3: InternalError,
    4: ArgumentError,
    5: UsageError,
    6: RemoteError,
    7: InProgressError,
    8: RemoteError,
}


class UniqueId(ctypes.Structure):
    """What the ranks of a communicator share: made by one, handed to all as bytes."""

    _fields_ = [("internal", ctypes.c_char * UNIQUE_ID_BYTES)]

    def __bytes__(self) -> bytes:
        return ctypes.string_at(ctypes.addressof(self), UNIQUE_ID_BYTES)

    @classmethod
    def of(cls, data: bytes) -> "UniqueId":
        """The id that ``bytes()`` of another one gave."""
        if len(data) != UNIQUE_ID_BYTES:
            raise ValueError(f"a unique id has {UNIQUE_ID_BYTES} bytes, not {len(data)}")
        return cls.from_buffer_copy(data)


class CommInfo(ctypes.Structure):
    """motet_comm_info_t."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("nranks", ctypes.c_int),
        ("nodes", ctypes.c_int),
        ("device", ctypes.c_int),
        ("ordinal", ctypes.c_int),
        ("path", ctypes.c_char * 16),
        ("version", ctypes.c_char * 32),
        ("number", ctypes.c_ulonglong),
        ("operations", ctypes.c_uint64),
        ("recorder", ctypes.c_char * 256),
    ]


class DeviceInfo(ctypes.Structure):
    """motet_device_info_t."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("ordinal", ctypes.c_int),
        ("count", ctypes.c_int),
        ("name", ctypes.c_char * 64),
        ("identity", ctypes.c_char * 64),
        ("memory_bytes", ctypes.c_uint64),
    ]


_void = ctypes.c_void_p
_int = ctypes.c_int
_size = ctypes.c_size_t
_out = ctypes.POINTER(_void)

# Name: types of the arguments. All of them return an ncclResult_t.
_FUNCTIONS: dict[str, list[Any]] = {
    "ncclGetVersion": [ctypes.POINTER(_int)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "motet_comm_init_rank": [_out, _int, UniqueId, _int, _int, _void, ctypes.c_uint],
    "motet_comm_set_timeout": [_void, ctypes.c_uint],
    "motet_comm_query": [_void, ctypes.POINTER(CommInfo)],
    "motet_device_query": [_int, _int, ctypes.POINTER(DeviceInfo)],
    "motet_explain": [_void, ctypes.c_char_p, _size, _int, _int, ctypes.c_char_p, _size],
    "ncclCommSplit": [_void, _int, _int, _out, _void],
    "ncclCommDestroy": [_void],
    "ncclCommAbort": [_void],
    "ncclCommGetAsyncError": [_void, ctypes.POINTER(_int)],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclAllReduce": [_void, _void, _size, _int, _int, _void, _void],
    "ncclReduce": [_void, _void, _size, _int, _int, _int, _void, _void],
    "ncclBroadcast": [_void, _void, _size, _int, _int, _void, _void],
    "ncclAllGather": [_void, _void, _size, _int, _void, _void],
    "ncclReduceScatter": [_void, _void, _size, _int, _int, _void, _void],
    "ncclAlltoAll": [_void, _void, _size, _int, _void, _void],
    "ncclGather": [_void, _void, _size, _int, _int, _void, _void],
    "ncclScatter": [_void, _void, _size, _int, _int, _void, _void],
    "ncclSend": [_void, _size, _int, _int, _void, _void],
    "ncclRecv": [_void, _size, _int, _int, _void, _void],
    "ncclRedOpCreatePreMulSum": [ctypes.POINTER(_int), _void, _int, _int, _void],
    "ncclRedOpDestroy": [_int, _void],
    "motet_stream_create": [_out],
    "motet_stream_destroy": [_void],
    "motet_stream_synchronize": [_void],
    "motet_stream_query": [_void],
}


def library_path() -> Path:
    """The file that is used: ``PYMOTET_LIBRARY`` names it, else the one in this package."""
    named = os.environ.get("PYMOTET_LIBRARY")
    return Path(named) if named else Path(__file__).parent / "lib" / SONAME


def _open() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as reason:
        raise ImportError(
            f"motet's library cannot be loaded: {reason}; reinstall the package, or name "
            "the file with PYMOTET_LIBRARY"
        ) from None
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _int
    library.motet_version.restype = ctypes.c_char_p
    library.ncclGetErrorString.argtypes = [_int]
    library.ncclGetErrorString.restype = ctypes.c_char_p
    library.ncclGetLastError.argtypes = [_void]
    library.ncclGetLastError.restype = ctypes.c_char_p
    return library


library = _open()
version: str = library.motet_version().decode()


def fail(status: int, operation: str) -> NoReturn:
    """Raise what a status means, in the library's words."""
    sentence = library.ncclGetLastError(None) or library.ncclGetErrorString(status)
    text = sentence.decode("utf-8", "replace")
    raise _ERRORS.get(status, MotetError)(text, status, operation)


def call(operation: str, *arguments: Any) -> None:
    """Call a function of the table; a status other than ncclSuccess is raised."""
    status = getattr(library, operation)(*arguments)
    if status != 0:
        fail(status, operation)


def unique_id() -> bytes:
    """A new id, for the ranks of one communicator.

    >>> len(unique_id())
    128
    """
    made = UniqueId()
    call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)
