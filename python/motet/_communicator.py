# SPDX-License-Identifier: Apache-2.0
"""Communicators."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Optional, TypeVar

from ._arrays import TYPES, Memory, memory_of
from ._library import CommInfo, UniqueId, call, fail, library

Array = TypeVar("Array")

DEVICES = {"auto": 0, "cpu": 1, "gpu": 2, "cuda": 2, "hip": 2}
OPERATORS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


class Info(NamedTuple):
    """What motet_comm_query() says."""

    rank: int
    nranks: int
    nodes: int
    device: str
    ordinal: int
    path: str
    version: str
    number: int
    operations: int
    recorder: str


def _one_of(table: dict[str, int], word: str, what: str) -> int:
    if word not in table:
        raise ValueError(f"{what} is '{word}', need one of " + ", ".join(table))
    return table[word]


def _stream_of(stream: Any) -> Optional[int]:
    """An address: of torch.cuda.Stream, cupy.cuda.Stream, motet.Stream, or given as one."""
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        address = getattr(stream, name, None)
        if isinstance(address, int):
            return address
    raise TypeError(f"{type(stream).__name__} is no stream")


class Stream:
    """A queue of a CPU rank: calls that name it return at once and run in order.

    >>> with Stream() as stream:
    ...     stream.idle()
    True
    """

    def __init__(self) -> None:
        made = ctypes.c_void_p()
        call("motet_stream_create", ctypes.byref(made))
        self.handle: Optional[int] = made.value
        self._kept: list[Any] = []

    def keep(self, *memories: Memory) -> None:
        """Buffers that must live until the stream has used them."""
        self._kept.extend(m.owner for m in memories)

    def synchronize(self) -> None:
        """Wait until all that was given has run; its first failure is raised."""
        try:
            call("motet_stream_synchronize", self.handle)
        finally:
            self._kept.clear()

    def idle(self) -> bool:
        """Whether all that was given has run. Never waits."""
        return bool(library.motet_stream_query(self.handle) == 0)

    def close(self) -> None:
        """Wait for the work, then end the stream."""
        handle, self.handle = self.handle, None
        if handle is not None:
            call("motet_stream_destroy", handle)
        self._kept.clear()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


def _whole_seconds(seconds: float) -> int:
    if not 0 <= seconds < 1 << 32:
        raise ValueError(f"a timeout of {seconds} s: need 0, for none, or more")
    return int(seconds) + (seconds > int(seconds))


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls inside are one group: they are issued together when it ends (ncclGroupStart)."""
    call("ncclGroupStart")
    try:
        yield
    finally:
        call("ncclGroupEnd")


class Communicator:
    """One rank of a communicator.

    Made by all ranks together, with the same ``id`` (of :func:`motet.unique_id`). As a
    context manager it is destroyed at the end, or aborted if an exception ends the block.

    Arrays are of any kind that :mod:`motet` knows; an operation writes into ``recv`` and
    returns it. Where ``recv`` is left out, it works in place, in ``send``. ``count`` is taken
    from the arrays. ``timeout``: seconds that making it, and each operation, waits for the
    other ranks. Operators are ``"sum"``, ``"prod"``, ``"max"``, ``"min"`` and ``"avg"``.

    >>> import array, motet
    >>> with Communicator(1, 0, motet.unique_id()) as comm:
    ...     comm.all_reduce(array.array("i", [3, 4]))
    array('i', [3, 4])
    """

    def __init__(
        self,
        nranks: int,
        rank: int,
        id: bytes,
        *,
        device: str = "auto",
        timeout: Optional[float] = None,
    ) -> None:
        self._handle: Optional[int] = None
        made = ctypes.c_void_p()
        kind = _one_of(DEVICES, device, "device")
        call(
            "motet_comm_init_rank",
            ctypes.byref(made),
            nranks,
            UniqueId.of(id),
            rank,
            kind,
            None,
            _whole_seconds(timeout or 0),
        )
        self._begin(made.value)
        if timeout is not None:
            self.set_timeout(timeout)

    def _begin(self, handle: Optional[int]) -> None:
        self._handle = handle
        info = self.info()
        self.rank, self.nranks = info.rank, info.nranks
        self._on_gpu = info.device == "gpu"

    # ---- its life

    @property
    def handle(self) -> int:
        """The ncclComm_t."""
        if self._handle is None:
            raise ValueError("this communicator was destroyed")
        return self._handle

    def info(self) -> Info:
        """What and where it is."""
        raw = CommInfo(size=ctypes.sizeof(CommInfo))
        call("motet_comm_query", self.handle, ctypes.byref(raw))
        words = {name: getattr(raw, name).decode() for name in ("path", "version", "recorder")}
        return Info(
            raw.rank,
            raw.nranks,
            raw.nodes,
            "cpu" if raw.device == 1 else "gpu",
            raw.ordinal,
            words["path"],
            words["version"],
            raw.number,
            raw.operations,
            words["recorder"],
        )

    def set_timeout(self, seconds: float) -> None:
        """How long operations from now on wait for their peers; 0 is no limit."""
        call("motet_comm_set_timeout", self.handle, _whole_seconds(seconds))

    def split(self, color: Optional[int], key: int = 0) -> Optional["Communicator"]:
        """Ranks of one color make a communicator, in the order of their keys; None: none."""
        made = ctypes.c_void_p()
        number = -1 if color is None else color
        call("ncclCommSplit", self.handle, number, key, ctypes.byref(made), None)
        if color is None:
            return None
        new = Communicator.__new__(Communicator)
        new._begin(made.value)
        return new

    def check(self) -> None:
        """Raise what has befallen it in the background (ncclCommGetAsyncError)."""
        state = ctypes.c_int()
        call("ncclCommGetAsyncError", self.handle, ctypes.byref(state))
        if state.value != 0:
            fail(state.value, "ncclCommGetAsyncError")

    def destroy(self) -> None:
        """End it; all ranks do. Once more does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            call("ncclCommDestroy", handle)

    def abort(self) -> None:
        """End it now, whatever its peers do. Once more does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            call("ncclCommAbort", handle)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.destroy()
        else:
            self.abort()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<motet.Communicator, destroyed>"
        return f"<motet.Communicator, rank {self.rank} of {self.nranks}>"

    # ---- operations

    def _memory(self, array: Any, writes: bool) -> Memory:
        memory = memory_of(array)
        if memory.on_gpu != self._on_gpu:
            where = ("host memory", "GPU memory")
            raise ValueError(
                f"the array is in {where[memory.on_gpu]}, and the ranks of this communicator "
                f"work in {where[self._on_gpu]}"
            )
        if writes and not memory.writable:
            raise ValueError(f"{type(array).__name__} cannot be written to")
        return memory

    def _pair(self, send: Any, recv: Any, up: int = 1, down: int = 1) -> tuple[Memory, Memory]:
        """Both sides; ``recv`` has up/down times as many elements as ``send``."""
        s, r = self._memory(send, False), self._memory(recv, True)
        if s.dtype != r.dtype:
            raise TypeError(f"send has {s.dtype}, recv has {r.dtype}")
        if s.count * up != r.count * down:
            raise ValueError(
                f"send has {s.count} elements and recv {r.count}, need {s.count * up // down}"
                if s.count * up % down == 0
                else f"send has {s.count} elements, need a multiple of {down}"
            )
        return s, r

    def _run(self, name: str, memories: Sequence[Memory], stream: Any, *arguments: Any) -> None:
        if isinstance(stream, Stream):
            stream.keep(*memories)
        call(name, *arguments, self.handle, _stream_of(stream))

    def all_reduce(
        self, send: Array, recv: Optional[Array] = None, op: str = "sum", *, stream: Any = None
    ) -> Array:
        """Every rank gets the reduction of all ranks' elements."""
        recv = send if recv is None else recv
        s, r = self._pair(send, recv)
        number = _one_of(OPERATORS, op, "op")
        self._run(
            "ncclAllReduce", (s, r), stream, s.address, r.address, s.count, s.type_number, number
        )
        return recv

    def reduce(
        self,
        send: Array,
        recv: Optional[Array] = None,
        op: str = "sum",
        root: int = 0,
        *,
        stream: Any = None,
    ) -> Array:
        """Rank ``root`` gets the reduction; the others' ``recv`` is not touched."""
        recv = send if recv is None else recv
        s, r = self._pair(send, recv)
        number = _one_of(OPERATORS, op, "op")
        self._run(
            "ncclReduce",
            (s, r),
            stream,
            s.address,
            r.address,
            s.count,
            s.type_number,
            number,
            root,
        )
        return recv

    def broadcast(self, array: Array, root: int = 0, *, stream: Any = None) -> Array:
        """Every rank gets what rank ``root`` has."""
        m = self._memory(array, True)
        self._run("ncclBroadcast", (m,), stream, m.address, m.address, m.count, m.type_number, root)
        return array

    def all_gather(self, send: Any, recv: Array, *, stream: Any = None) -> Array:
        """Every rank gets all ranks' elements, one after the other."""
        s, r = self._pair(send, recv, up=self.nranks)
        self._run("ncclAllGather", (s, r), stream, s.address, r.address, s.count, s.type_number)
        return recv

    def reduce_scatter(
        self, send: Any, recv: Array, op: str = "sum", *, stream: Any = None
    ) -> Array:
        """Each rank gets its part of the reduction of all ranks' elements."""
        s, r = self._pair(send, recv, down=self.nranks)
        number = _one_of(OPERATORS, op, "op")
        self._run(
            "ncclReduceScatter",
            (s, r),
            stream,
            s.address,
            r.address,
            r.count,
            s.type_number,
            number,
        )
        return recv

    def all_to_all(self, send: Any, recv: Array, *, stream: Any = None) -> Array:
        """Part i of each rank's elements goes to rank i."""
        s, r = self._pair(send, recv)
        if s.count % self.nranks != 0:
            raise ValueError(f"send has {s.count} elements, need a multiple of {self.nranks}")
        self._run(
            "ncclAlltoAll",
            (s, r),
            stream,
            s.address,
            r.address,
            s.count // self.nranks,
            s.type_number,
        )
        return recv

    def gather(
        self, send: Any, recv: Optional[Array] = None, root: int = 0, *, stream: Any = None
    ) -> Optional[Array]:
        """Rank ``root`` gets all ranks' elements; others leave ``recv`` out."""
        if self.rank == root:
            s, r = self._pair(send, recv, up=self.nranks)
        else:
            s, r = self._memory(send, False), None
        self._run(
            "ncclGather",
            (s,) if r is None else (s, r),
            stream,
            s.address,
            None if r is None else r.address,
            s.count,
            s.type_number,
            root,
        )
        return recv

    def scatter(self, send: Any, recv: Array, root: int = 0, *, stream: Any = None) -> Array:
        """Part i of rank ``root``'s elements goes to rank i; others give None as ``send``."""
        if self.rank == root:
            s, r = self._pair(send, recv, down=self.nranks)
        else:
            s, r = None, self._memory(recv, True)
        self._run(
            "ncclScatter",
            (r,) if s is None else (s, r),
            stream,
            None if s is None else s.address,
            r.address,
            r.count,
            r.type_number,
            root,
        )
        return recv

    def send(self, array: Any, peer: int, *, stream: Any = None) -> None:
        """To rank ``peer``, which receives as many elements of the same type."""
        m = self._memory(array, False)
        self._run("ncclSend", (m,), stream, m.address, m.count, m.type_number, peer)

    def recv(self, array: Array, peer: int, *, stream: Any = None) -> Array:
        """From rank ``peer``, into all of ``array``."""
        m = self._memory(array, True)
        self._run("ncclRecv", (m,), stream, m.address, m.count, m.type_number, peer)
        return array

    def barrier(self) -> None:
        """Wait for all ranks; host ranks only, as a GPU's rank waits on its stream."""
        if self._on_gpu:
            raise ValueError("a barrier of GPU ranks is an all_reduce and a synchronisation")
        word = (ctypes.c_int32 * 1)()
        self.all_reduce(word)

    def explain(self, operation: str, count: int, dtype: str = "float32", op: str = "sum") -> str:
        """What a call would run as, and why; for people."""
        text = ctypes.create_string_buffer(4096)
        number = TYPES[dtype][0] if dtype in TYPES else -1
        if number < 0:
            raise ValueError(f"dtype is '{dtype}', need one of " + ", ".join(TYPES))
        call(
            "motet_explain",
            self.handle,
            operation.encode(),
            count,
            number,
            _one_of(OPERATORS, op, "op"),
            text,
            len(text),
        )
        return text.value.decode()
