# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests and notebooks: a function, run by each of a number of processes."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, Optional, cast

from ._communicator import Communicator
from ._library import unique_id

END_S = 5.0  # what is asked to end is killed after this


class RankError(RuntimeError):
    """A rank failed. ``rank`` says which; its own exception is the cause."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.rank = rank


def _body(
    function: Callable[..., Any],
    nranks: int,
    rank: int,
    id: bytes,
    device: str,
    arguments: tuple[Any, ...],
) -> Any:
    with Communicator(nranks, rank, id, device=device) as comm:
        return function(comm, *arguments)


def _answer(pipe: Connection, *body: Any) -> None:
    """In a process of its own: send (True, result) or (False, exception, its trace)."""
    said: tuple[Any, ...]
    try:
        said = (True, _body(*body))
    except BaseException as error:  # also SystemExit: the parent tells
        said = (False, error, traceback.format_exc())
    try:
        data = pickle.dumps(said)
    except Exception as reason:
        text = f"what it {'returned' if said[0] else 'raised'} cannot be pickled: {reason}"
        data = pickle.dumps((False, TypeError(text), text))
    pipe.send_bytes(data)
    pipe.close()


class _Process:
    def __init__(self, rank: int, body: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("fork")
        self.rank = rank
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_answer, args=(theirs, *body), daemon=True)
        self.process.start()
        theirs.close()

    def answer(self) -> tuple[Any, ...]:
        try:
            said: tuple[Any, ...] = pickle.loads(self.pipe.recv_bytes())
            return said
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            killed = code is not None and code < 0
            how = f"was killed by signal {-(code or 0)}" if killed else f"exited with {code}"
            return False, None, f"its process {how}"

    def end(self) -> None:
        self.process.join(0)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(END_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _text_of(error: BaseException) -> str:
    """An exception without a text gives its name."""
    return str(error) or repr(error)


def _by_processes(bodies: list[tuple[Any, ...]], timeout: Optional[float]) -> list[Any]:
    results: list[Any] = [None] * len(bodies)
    ranks: list[_Process] = []
    try:
        for rank, body in enumerate(bodies):
            ranks.append(_Process(rank, body))
        left = {r.pipe: r for r in ranks}
        while left:
            ready = wait(list(left), timeout)
            if not ready:
                late = ", ".join(str(r.rank) for r in left.values())
                raise TimeoutError(f"no answer for {timeout} s from rank {late}")
            for pipe in ready:
                one = left.pop(cast("Connection[Any, Any]", pipe))
                said = one.answer()
                if not said[0]:
                    text = _text_of(said[1]) if said[1] is not None else str(said[2])
                    raise RankError(one.rank, text) from said[1]
                results[one.rank] = said[1]
        for one in ranks:
            one.process.join(END_S)
        return results
    finally:
        for one in ranks:
            one.end()


def _by_threads(bodies: list[tuple[Any, ...]], timeout: Optional[float]) -> list[Any]:
    results: list[Any] = [None] * len(bodies)
    errors: list[Optional[BaseException]] = [None] * len(bodies)

    def work(rank: int) -> None:
        try:
            results[rank] = _body(*bodies[rank])
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(len(bodies))]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(timeout)
        if thread.is_alive():
            raise TimeoutError(f"no answer for {timeout} s from rank {rank}")
    for rank, error in enumerate(errors):
        if error is not None:
            raise RankError(rank, _text_of(error)) from error
    return results


def run(
    function: Callable[..., Any],
    nranks: int,
    *arguments: Any,
    device: str = "cpu",
    threads: bool = False,
    timeout: Optional[float] = 300.0,
) -> list[Any]:
    """Call ``function(comm, *arguments)`` on each of ``nranks`` ranks; their results, by rank.

    Ranks are processes forked from this one, so the function may be a lambda or one of a
    notebook; with ``threads`` they are threads of it. The first rank that fails ends all, and
    its exception is the cause of a :class:`RankError`. ``timeout``: seconds without an answer
    of any rank; None waits for ever.

    >>> import array
    >>> run(lambda comm: comm.all_reduce(array.array("i", [comm.rank]))[0], 4)
    [6, 6, 6, 6]
    """
    if nranks < 1:
        raise ValueError(f"nranks is {nranks}, need 1 or more")
    id = unique_id()
    bodies = [(function, nranks, rank, id, device, arguments) for rank in range(nranks)]
    return (_by_threads if threads else _by_processes)(bodies, timeout)
