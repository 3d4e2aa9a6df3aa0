# SPDX-License-Identifier: Apache-2.0
"""The ctypes layer: values against a reference, every kind of array, every mistake a sentence."""

import array
import ctypes
import doctest
import os
import signal
import threading
import time
import unittest

import motet
from motet import _arrays, _communicator, _library, _run

TYPECODES = {"b": "int8", "B": "uint8", "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64"}
OPERATORS = {"sum": sum, "max": max, "min": min}


def values(rank, count):
    return [(7 * i + 3 * rank) % 5 + 1 for i in range(count)]


class Docs(unittest.TestCase):
    def test_examples_are_true(self):
        for module in (motet, _arrays, _communicator, _library, _run):
            result = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
            self.assertEqual(result.failed, 0, module)


class Operations(unittest.TestCase):
    """On 3 ranks, by processes and by threads, with odd counts, poison and canaries."""

    def each(self, body):
        for threads in (False, True):
            for count in (1, 5, 1023):
                motet.run(body, 3, count, threads=threads, timeout=120)

    def test_reductions(self):
        def body(comm, count):
            for code in [*TYPECODES, "f", "d"]:
                for word, fold in OPERATORS.items():
                    everyone = [values(r, count) for r in range(comm.nranks)]
                    wanted = [fold(column) for column in zip(*everyone)]
                    mine = array.array(code, values(comm.rank, count))
                    out = array.array(code, [99] * (count + 1))
                    part = memoryview(out)[:count]
                    comm.all_reduce(mine, part, word)
                    assert list(out) == [*wanted, 99], (code, word, count)
                    assert list(mine) == values(comm.rank, count)
                    assert list(comm.all_reduce(mine, op=word)) == wanted
                    again = array.array(code, values(comm.rank, count))
                    comm.reduce(again, op=word, root=1)
                    if comm.rank == 1:
                        assert list(again) == wanted

        self.each(body)

    def test_moves(self):
        def body(comm, count):
            n, r = comm.nranks, comm.rank
            mine = array.array("i", values(r, count))
            whole = array.array("i", [99] * (n * count))
            everyone = [v for k in range(n) for v in values(k, count)]
            assert list(comm.all_gather(mine, whole)) == everyone
            assert list(comm.broadcast(array.array("i", mine), root=2)) == values(2, count)
            got = comm.gather(mine, array.array("i", [99] * (n * count)) if r == 1 else None, 1)
            assert got is None or list(got) == everyone
            out = array.array("i", [99] * count)
            comm.scatter(whole if r == 0 else None, out)
            assert list(out) == values(r, count)
            comm.reduce_scatter(whole, out)
            assert list(out) == [n * v for v in values(r, count)]
            sent = array.array("i", [v + 10 * r for k in range(n) for v in values(k, count)])
            back = array.array("i", [99] * (n * count))
            comm.all_to_all(sent, back)
            assert list(back) == [v + 10 * k for k in range(n) for v in values(r, count)]
            with motet.group():
                comm.send(mine, (r + 1) % n)
                comm.recv(out, (r - 1) % n)
            assert list(out) == values((r - 1) % n, count)
            comm.barrier()

        self.each(body)

    def test_a_stream_returns_at_once_and_keeps_order(self):
        def body(comm, count):
            t = array.array("d", [1.0] * count)
            with motet.Stream() as stream:
                for _ in range(4):
                    comm.all_reduce(t, stream=stream)
                stream.synchronize()
                assert stream.idle()
            assert list(t) == [81.0] * count

        self.each(body)

    def test_split(self):
        def body(comm):
            half = comm.split(comm.rank % 2 if comm.rank < 2 else None)
            if half is None:
                return None
            with half:
                return (half.rank, half.nranks)

        self.assertEqual(motet.run(body, 3), [(0, 1), (0, 1), None])


class Arrays(unittest.TestCase):
    def test_kinds(self):
        class Interface:
            def __init__(self, interface):
                self.__array_interface__ = interface

        store = array.array("f", [1, 2, 3, 4])
        where, _ = store.buffer_info()
        base = {"shape": (2, 2), "typestr": "<f4", "data": (where, False), "version": 3}
        self.assertEqual(motet.memory_of(Interface(base))[:4], (where, 4, "float32", True))
        self.assertEqual(motet.memory_of(store)[:3], (where, 4, "float32"))
        self.assertEqual(motet.memory_of((ctypes.c_int64 * 3)())[1:4], (3, "int64", True))
        self.assertFalse(motet.memory_of(b"abc").writable)
        self.assertEqual(motet.memory_of(bytearray()).count, 0)

    def test_refusals(self):
        class Interface:
            def __init__(self, **changes):
                base = {"shape": (2, 2), "typestr": "<f4", "data": (64, False), "version": 3}
                self.__array_interface__ = {**base, **changes}

        for wrong, error, words in (
            (Interface(strides=(16, 4)), ValueError, "not contiguous"),
            (Interface(typestr=">f4"), TypeError, "big-endian"),
            (Interface(typestr="<c8"), TypeError, "the library has"),
            (Interface(mask=1), TypeError, "masked"),
            (memoryview(bytearray(8))[::2], ValueError, "not contiguous"),
            (memoryview(bytearray(8)).cast("B")[::-1], ValueError, "not contiguous"),
            # four bytes by its format, though the letter alone means eight
            ((ctypes.c_int32.__ctype_be__ * 2)(), TypeError, "elements of format"),
            (Interface(typestr="|O8"), TypeError, "the library has"),
            (Interface(typestr="|V8"), TypeError, "the library has"),
            (Interface(typestr="<f2", strides=(-4, 2)), ValueError, "not contiguous"),
            ("text", TypeError, "no array"),
            (3, TypeError, "no array"),
            (array.array("u", "ab"), TypeError, "elements of format"),
        ):
            with self.assertRaisesRegex(error, words):
                motet.memory_of(wrong)


class Mistakes(unittest.TestCase):
    def alone(self):
        return motet.Communicator(1, 0, motet.unique_id())

    def test_of_arguments(self):
        a = array.array
        with self.alone() as comm:
            for call, error, words in (
                (lambda: comm.all_reduce(b"abc"), ValueError, "cannot be written"),
                (lambda: comm.all_reduce(a("i", [1]), a("f", [1])), TypeError, "send has int32"),
                (lambda: comm.all_reduce(a("i", [1]), a("i", [1, 2])), ValueError, "need 1"),
                (lambda: comm.all_reduce(a("i", [1]), op="mean"), ValueError, "need one of sum"),
                (lambda: comm.all_reduce(a("i", [1]), stream="x"), TypeError, "no stream"),
                (lambda: comm.send(a("i", [1]), 5), motet.ArgumentError, "5"),
                (lambda: comm.explain("all_reduce", 1, dtype="x"), ValueError, "dtype"),
            ):
                with self.assertRaisesRegex(error, words):
                    call()
            for seconds in (-1, float("nan"), 1e12):
                with self.assertRaisesRegex(ValueError, "a timeout of"):
                    comm.set_timeout(seconds)
            self.assertIn("path", comm.explain("all_reduce", 1024))
        with self.assertRaisesRegex(ValueError, "was destroyed"):
            comm.all_reduce(a("i", [1]))
        comm.destroy()
        with self.assertRaisesRegex(ValueError, "128 bytes"):
            motet.Communicator(1, 0, b"short")
        with self.assertRaises(motet.MotetError):
            motet.Communicator(2, 2, motet.unique_id())
        with self.assertRaisesRegex(ValueError, "nranks is 0"):
            motet.run(lambda comm: None, 0)

    def test_of_the_length_of_elements(self):
        class Longs(ctypes.Structure):
            _fields_ = [("x", ctypes.c_int64)]

        with self.assertRaisesRegex(TypeError, "elements of format"):
            motet.memory_of((Longs * 2)())

    def test_an_error_without_a_text_and_a_run_inside_a_run(self):
        def fails(comm):
            raise KeyError

        with self.assertRaisesRegex(motet.RankError, "rank 0: KeyError"):
            motet.run(fails, 1)
        with self.assertRaisesRegex(motet.RankError, "rank 0: KeyError"):
            motet.run(fails, 1, threads=True)
        with self.assertRaisesRegex(motet.RankError, "daemonic processes"):
            motet.run(lambda comm: motet.run(lambda inner: 1, 2), 1)
        nested = motet.run(lambda comm: motet.run(lambda c: c.nranks, 2, threads=True), 2)
        self.assertEqual(nested, [[2, 2], [2, 2]])

    def test_of_counts_between_ranks(self):
        def body(comm):
            comm.all_reduce(array.array("i", [1] * (1 + comm.rank)))

        with self.assertRaises(motet.RankError) as caught:
            motet.run(body, 2)
        self.assertIsInstance(caught.exception.__cause__, motet.MotetError)

    def test_a_rank_that_dies_raises_or_is_late(self):
        def dies(comm):
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            comm.all_reduce(array.array("i", [1]))

        with self.assertRaises(motet.RankError):
            motet.run(dies, 2, timeout=60)
        with self.assertRaisesRegex(TimeoutError, "no answer for 1.0 s from rank 1"):
            motet.run(lambda comm: time.sleep(30 * comm.rank), 2, timeout=1.0)
        with self.assertRaisesRegex(motet.RankError, "rank 1: integer division"):
            motet.run(lambda comm: 1 // (1 - comm.rank), 2)
        with self.assertRaisesRegex(motet.RankError, "cannot be pickled"):
            motet.run(lambda comm: threading.Lock(), 1)

    def test_an_absent_peer_is_a_remote_error_after_the_deadline(self):
        def body(comm):
            comm.set_timeout(1)
            if comm.rank == 0:
                comm.recv(array.array("i", [0]), 1)
            else:
                time.sleep(5)

        with self.assertRaises(motet.RankError) as caught:
            motet.run(body, 2)
        self.assertIsInstance(caught.exception.__cause__, motet.RemoteError)


class Leaks(unittest.TestCase):
    def test_a_thousand_communicators_do_not_grow(self):
        def resident():
            with open("/proc/self/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        def cycle(count):
            for _ in range(count):
                with motet.Communicator(1, 0, motet.unique_id()) as comm:
                    comm.all_reduce(array.array("i", [1]))

        cycle(200)
        files, before = len(os.listdir("/proc/self/fd")), resident()
        cycle(1000)
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)
        self.assertLess(resident() - before, 4 << 20)


if __name__ == "__main__":
    unittest.main()
