# SPDX-License-Identifier: Apache-2.0
"""Work, messages, groups, mistakes and failures of the backend `motet`, on CPU ranks."""

import os
import signal
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rank_processes import SECONDS, begin, raises


def entry(rank, size, path, body, timeout):
    begin(rank, size, timeout, path)
    body(rank, size)
    dist.destroy_process_group()


def run(body, size=2, timeout=120):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(entry, (size, os.path.join(folder, "store"), body, timeout), nprocs=size)


def what_was_sent_arrives(rank, size):
    """Though its sender has destroyed the group meanwhile."""
    for number in range(20):
        group = dist.new_group([0, 1])
        t = torch.full((3,), float(number)) if rank == 0 else torch.zeros(3)
        if rank == 0:
            dist.send(t, 1, group=group)
        else:
            time.sleep(0.02 * (number % 3))
            dist.recv(t, 0, group=group)
        assert t.tolist() == [float(number)] * 3
        dist.destroy_process_group(group)


def leaves_are_outputs(rank, size):
    """Though they want gradients."""
    outputs = [torch.zeros(1, requires_grad=True) for _ in range(size)]
    dist.all_gather(outputs, torch.full((1,), float(rank)))
    assert [x.item() for x in outputs] == [0.0, 1.0]


def absent_ranks_are_named(rank, size):
    """Within the group's time, although no communicator has been made yet."""
    group = dist.new_group([0, 1], timeout=2 * SECONDS)
    begin = time.monotonic()
    if rank == 1:
        raises(dist.DistBackendError, "rank 0", lambda: dist.all_reduce(torch.ones(1), group=group))
        assert time.monotonic() - begin < 60
    dist.barrier()
    other = dist.new_group([0, 1], timeout=2 * SECONDS)
    if rank == 0:
        raises(dist.DistBackendError, "rank 1", lambda: dist.all_reduce(torch.ones(1), group=other))
    dist.barrier()


def work_and_futures(rank, size):
    t = torch.full((5,), float(rank + 1))
    work = dist.all_reduce(t, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda f: [x * 2 for x in f.value()])
    assert work.wait() and work.is_completed() and work.is_success()
    assert t.tolist() == [3.0] * 5
    assert doubled.wait()[0].tolist() == [6.0] * 5
    # a callback that waits for another call
    again = (
        dist.all_reduce(torch.ones(3), async_op=True)
        .get_future()
        .then(lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0])
    )
    assert again.wait().tolist() == [4.0] * 3
    # many at once, in order
    tensors = [torch.full((3,), float(i + rank)) for i in range(50)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    dist.all_reduce(t)  # waits for its turn
    assert all(w.is_completed() for w in works)
    for i, x in enumerate(tensors):
        assert x.tolist() == [2.0 * i + 1] * 3
    assert t.tolist() == [6.0] * 5


def messages(rank, size):
    # both ways at once, larger than any buffer, then out of the order of their tags
    big = torch.arange(3_000_001, dtype=torch.float32) + rank
    got = torch.empty_like(big)
    works = [dist.isend(big, 1 - rank), dist.irecv(got, 1 - rank)]
    for work in works:
        work.wait()
    assert torch.equal(got, big - rank + (1 - rank))
    small = [torch.full((4,), float(10 * rank + tag)) for tag in range(3)]
    sends = [dist.isend(small[tag], 1 - rank, tag=tag) for tag in range(3)]
    for tag in (2, 0, 1):
        out = torch.zeros(4)
        assert dist.recv(out, 1 - rank, tag=tag) == 1 - rank
        assert out.tolist() == [10.0 * (1 - rank) + tag] * 4
    for work in sends:
        work.wait()
    # batched, empty ones among them
    empty, none = torch.empty(0), torch.empty(0)
    out = torch.zeros(4)
    operations = [
        dist.P2POp(dist.isend, small[0], 1 - rank),
        dist.P2POp(dist.irecv, out, 1 - rank),
        dist.P2POp(dist.isend, empty, 1 - rank, tag=5),
        dist.P2POp(dist.irecv, none, 1 - rank, tag=5),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert out.tolist() == [10.0 * (1 - rank)] * 4


def any_source(rank, size):
    if rank != 0:
        time.sleep(0.2 * (size - rank))
        dist.send(torch.tensor([float(rank)]), 0)
        return
    heard = set()
    for _ in range(size - 1):
        t = torch.zeros(1)
        source = dist.recv(t)
        assert source == int(t.item())
        heard.add(source)
    assert heard == set(range(1, size))


def last_words(rank, size):
    """What was sent before the sender left still arrives."""
    if rank == 1:
        dist.send(torch.full((10,), 5.0), 0)
        return
    time.sleep(3)
    t = torch.zeros(10)
    dist.recv(t, 1)
    assert t.tolist() == [5.0] * 10


def groups(rank, size):
    odd = dist.new_group([1, 3])
    assert (odd is not dist.GroupMember.NON_GROUP_MEMBER) == (rank in (1, 3))
    if rank in (1, 3):
        t = torch.tensor([rank])
        dist.all_reduce(t, group=odd)
        assert t.item() == 4
    subgroup, _ = dist.new_subgroups(2)
    t = torch.tensor([rank])
    dist.all_reduce(t, group=subgroup)
    assert t.item() == (1 if rank < 2 else 5)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    t = torch.tensor([rank])
    dist.all_reduce(t, group=mesh.get_group("a"))
    assert t.item() == 2 * (rank % 2) + 2
    dist.group.WORLD.monitored_barrier(10 * SECONDS)
    t = torch.full((3,), float(rank + 1))
    dist.all_reduce_coalesced([t, t])  # the same memory is reduced once
    assert t.tolist() == [size * (size + 1) / 2] * 3


def operators(rank, size):
    t = torch.tensor([True, False, rank == 0])
    dist.all_reduce(t)
    assert t.tolist() == [True, False, True]
    z = torch.tensor([1 + 2j]) * (rank + 1)
    dist.all_reduce(z)
    assert z.item() == 3 + 6j
    raises(Exception, "average", lambda: dist.all_reduce(t, dist.ReduceOp.AVG))
    raises(TypeError, "no reduction of Short", lambda: dist.all_reduce(torch.ones(1).short()))
    raises(TypeError, "integers", lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND))


def mistakes(rank, size):
    ones = torch.ones
    for error, words, call in (
        (ValueError, "contiguous", lambda: dist.all_reduce(ones(4, 4).t()[:2])),
        (TypeError, "dense", lambda: dist.all_reduce(ones(2, 2).to_sparse())),
        (ValueError, "times as many", lambda: dist.all_gather_into_tensor(ones(3), ones(2))),
        (ValueError, "rank 2 of 2", lambda: dist.group.WORLD.send([ones(1)], 2, 0)),
        (ValueError, "is this rank", lambda: dist.group.WORLD.send([ones(1)], rank, 0)),
    ):
        raises(error, words, call)
    # a size of zero is no mistake
    nothing = torch.empty(0)
    dist.all_reduce(nothing)
    raises(ValueError, "twice", lambda: dist.init_process_group("motet"))


def shapes_differ(rank, size):
    text = raises(Exception, "rank", lambda: dist.all_reduce(torch.ones(3 + rank)))
    assert f"motet: rank {rank} of {size}, all_reduce: " in text, text


def dead_rank(rank, size):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    raises(Exception, "rank 1", lambda: dist.all_reduce(torch.ones(1)))
    assert time.monotonic() - begin < 60


def late_rank(rank, size):
    dist.barrier()
    if rank == 1:
        time.sleep(8)
        return
    begin = time.monotonic()
    raises(Exception, "all_reduce", lambda: dist.all_reduce(torch.ones(1)))
    raises(Exception, "did not end within", lambda: dist.recv(torch.ones(1), 1))
    assert time.monotonic() - begin < 30


def absent_from_the_barrier(rank, size):
    if rank == 1:
        return
    group = dist.group.WORLD
    raises(RuntimeError, "rank 1", lambda: group.monitored_barrier(SECONDS))
    raises(RuntimeError, "within 0 ms", lambda: group.monitored_barrier(0 * SECONDS))


def leaves_work_behind(rank, size):
    dist.barrier()
    dist.irecv(torch.ones(1), 1 - rank)
    dist.isend(torch.ones(1_000_000), 1 - rank, tag=9)
    os._exit(0) if rank == 1 else None


class Semantics(unittest.TestCase):
    def test_work_and_futures(self):
        run(work_and_futures)

    def test_messages(self):
        run(messages)

    def test_any_source(self):
        run(any_source, 3)

    def test_what_was_sent_before_leaving_arrives(self):
        run(last_words)

    def test_what_was_sent_arrives(self):
        run(what_was_sent_arrives)

    def test_leaves_are_outputs(self):
        run(leaves_are_outputs)

    def test_absent_ranks_are_named(self):
        run(absent_ranks_are_named)

    def test_groups(self):
        run(groups, 4)

    def test_operators(self):
        run(operators)

    def test_mistakes(self):
        run(mistakes)

    def test_shapes_that_differ_name_the_rank(self):
        run(shapes_differ)

    def test_a_dead_rank_is_named(self):
        with self.assertRaisesRegex(mp.ProcessExitedException, "SIGKILL"):
            run(dead_rank)

    def test_a_late_rank_is_given_up_on(self):
        run(late_rank, timeout=2)

    def test_who_is_absent_from_the_barrier_is_named(self):
        run(absent_from_the_barrier)

    def test_exit_with_messages_under_way(self):
        begin = time.monotonic()
        run(leaves_work_behind)
        self.assertLess(time.monotonic() - begin, 90)


if __name__ == "__main__":
    unittest.main()
