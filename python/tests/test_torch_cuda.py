# SPDX-License-Identifier: Apache-2.0
"""The backend `motet` on tensors of GPUs: streams, graphs, messages, mistakes, failures.

Ranks share a card where there are fewer cards. Values of every collective and type are the
business of bench/gpu/torch_collectives.py.
"""

import os
import signal
import sys
import time
import unittest

import torch
import torch.distributed as dist
from rank_processes import SECONDS, Row, check, raises

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the ranks are forked: no CUDA before
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # see docs/gpu.md

LARGE = (1 << 22) + 5  # does not fit into what a sender may send ahead


def mine(rank):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def filled(count, value, device):
    return torch.full((count,), float(value), device=device)


def holds(tensor, value):
    return bool((tensor == value).all())


def work_and_streams(rank, size):
    """What is launched after wait() comes after; before it, beside."""
    device = mine(rank)
    for turn in range(20):
        t = torch.empty(4099, device=device)
        torch.cuda._sleep(1000000)
        t.fill_(rank + turn)
        work = dist.all_reduce(t, async_op=True)
        other = t.new_ones(4099).sum()
        assert work.wait()
        doubled = t * 2
        assert holds(doubled, 2 * (size * turn + size * (size - 1) / 2)), turn
        assert other.item() == 4099
        assert work.is_completed() and work.is_success()
    # in a stream of the caller's own
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        t = filled(1 << 20, rank + 1, device)
        dist.all_reduce(t)
        t += 1
    stream.synchronize()
    assert holds(t, size * (size + 1) / 2 + 1)


def memory_is_kept(rank, size):
    """Of inputs that the caller drops while the work is under way."""
    device = mine(rank)
    outs = []
    for turn in range(30):
        out = torch.empty(size * 10007, device=device)
        works = dist.all_gather_into_tensor(out, filled(10007, turn, device), async_op=True)
        for _ in range(3):
            filled(10007, -1, device)  # takes the memory, if it is free
        outs.append((out, works))
    for turn, (out, work) in enumerate(outs):
        work.wait()
        assert holds(out, turn), turn


def futures(rank, size):
    device = mine(rank)
    t = filled(4099, rank + 1, device)
    future = dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert holds(doubled.wait(), size * (size + 1))


def captured(rank, size):
    """Synchronous and asynchronous calls in one graph, and eager ones between replays."""
    device = mine(rank)
    t, gathered = filled(4099, 0, device), torch.empty(4099 * size, device=device)
    dist.all_reduce(t.clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        summed = t * 2
        work = dist.all_reduce(summed, async_op=True)
        beside = t + 1
        work.wait()
        dist.all_gather_into_tensor(gathered, summed + beside)
    for turn in range(10):
        t.fill_(rank + turn)
        graph.replay()
        eager = filled(17, rank, device)
        dist.all_reduce(eager)
        torch.cuda.synchronize()
        total = 2 * (size * turn + size * (size - 1) / 2)
        assert holds(summed, total)
        for r in range(size):
            assert holds(gathered[r * 4099 : (r + 1) * 4099], total + r + turn + 1)
        assert holds(eager, size * (size - 1) / 2)


def messages(rank, size):
    """Both ranks send first, more than fits ahead: the directions do not wait for each other."""
    device, peer = mine(rank), (rank + 1) % size
    source = (rank - 1) % size
    for count in (1, 4099, LARGE):
        out = torch.empty(count, device=device)
        works = [dist.isend(filled(count, rank, device), peer), dist.irecv(out, source)]
        for work in works:
            work.wait()
        assert holds(out, source), count
        out.fill_(-1)
        ops = [
            dist.P2POp(dist.isend, filled(count, rank, device), peer),
            dist.P2POp(dist.irecv, out, source),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert holds(out, source), count


def messages_beside_collectives(rank, size):
    """In another order on the other rank."""
    device = mine(rank)
    t, message = filled(4099, 1, device), filled(4099, rank, device)
    if rank == 0:
        work = dist.isend(message, 1)
        dist.all_reduce(t)
        work.wait()
    else:
        dist.all_reduce(t)
        dist.recv(message, 0)
    assert holds(t, size) and holds(message, 0)


def barriers(rank, size):
    """Who has passed one knows that the device has done what came before it."""
    device = mine(rank)
    t = filled(4099, 1, device)
    dist.all_reduce(t)
    torch.cuda._sleep(50000000)
    end = torch.cuda.Event()
    end.record()
    dist.barrier()
    assert end.query()
    dist.barrier(device_ids=[device.index], async_op=True).wait()


def destroyed_with_work(rank, size):
    """What was started is completed."""
    t = filled(LARGE, rank, mine(rank))
    dist.all_reduce(t, async_op=True)
    dist.destroy_process_group()
    torch.cuda.synchronize()
    assert holds(t, size * (size - 1) / 2)


def bound_to_a_device(rank, size):
    """init_process_group(device_id=...) makes the communicator, and groups are made beside."""
    device = mine(rank)
    dist.destroy_process_group()
    store = dist.FileStore(os.path.abspath("bound"), size)
    dist.init_process_group("motet", store=store, rank=rank, world_size=size, device_id=device)
    alone = [dist.new_group([r]) for r in range(size)][rank]
    whole = dist.split_group(split_ranks=[list(range(size))])
    for group, wanted in ((alone, 1), (whole, size), (None, size)):
        t = filled(5, 1, device)
        dist.all_reduce(t, group=group)
        assert holds(t, wanted)


def groups_of_both_kinds(rank, size):
    device = mine(rank)
    group = dist.new_group(list(range(size)), backend="cpu:gloo,cuda:motet")
    for t in (torch.full((5,), 1.0), filled(5, 1, device)):
        dist.all_reduce(t, group=group)
        assert t.tolist() == [size] * 5
    for t in (torch.full((5,), 1.0), filled(5, 1, device)):
        dist.all_reduce(t)
        assert t.tolist() == [size] * 5
    objects = [None] * size
    dist.all_gather_object(objects, rank, group=group)
    assert objects == list(range(size))


def mistakes(rank, size):
    """Exceptions of this rank alone; the group works on."""
    device = mine(rank)
    t = filled(5, 1, device)
    raises(ValueError, "cpu", lambda: dist.all_gather([t, torch.ones(5)], t))
    raises(ValueError, "cuda", lambda: dist.all_gather_into_tensor(torch.ones(5 * size), t))
    raises(ValueError, "contiguous", lambda: dist.all_reduce(torch.ones(4, 4, device=device).t()))
    raises(TypeError, "Short", lambda: dist.all_reduce(t.to(torch.int16)))
    raises(NotImplementedError, "any source", lambda: dist.recv(t))
    dist.all_reduce(t)
    if torch.cuda.device_count() > 1:
        other = torch.ones(5, device=torch.device("cuda", (device.index + 1) % size))
        raises(ValueError, "first one was on", lambda: dist.all_reduce(other))
    assert holds(t, size)


def disagreement(rank, size):
    """Different counts: both are told."""
    t = filled(5 + rank, 1, mine(rank))

    def call():
        dist.all_reduce(t, async_op=True).wait(30 * SECONDS)

    raises(dist.DistBackendError, "rank", call)


def deadline(rank, size):
    """A peer that does not come is named, and its waiting kernel is freed."""
    device = mine(rank)
    dist.all_reduce(filled(5, 1, device))
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(20)
        return
    begin = time.monotonic()
    work = dist.all_reduce(filled(5, 1, device), async_op=True)
    raises(dist.DistBackendError, "rank 1", lambda: work.wait(40 * SECONDS))
    torch.cuda.synchronize()
    assert time.monotonic() - begin < 15


def patience_of_wait(rank, size):
    """wait(timeout) gives up; the work goes on."""
    device = mine(rank)
    t = filled(5, 1, device)
    dist.all_reduce(filled(5, 1, device))
    if rank == 1:
        time.sleep(3)
    work = dist.all_reduce(t, async_op=True)
    if rank == 0:
        raises(dist.DistBackendError, "did not end within", lambda: work.wait(0.5 * SECONDS))
    work.wait()
    assert holds(t, size)


def killed(rank, size):
    device = mine(rank)
    t = filled(4099, 1, device)
    dist.all_reduce(t)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)

    def call():
        for _ in range(1000):
            dist.all_reduce(t, async_op=True).wait(30 * SECONDS)

    raises(dist.DistBackendError, "rank 1", call)


ROWS = {
    body.__name__: Row(body, timeout=60)
    for body in (
        work_and_streams,
        memory_is_kept,
        futures,
        captured,
        messages,
        messages_beside_collectives,
        barriers,
        bound_to_a_device,
        groups_of_both_kinds,
        mistakes,
        patience_of_wait,
    )
}
ROWS["messages of three"] = Row(messages, size=3, timeout=60)
ROWS["destroyed with work"] = Row(destroyed_with_work, timeout=60)
ROWS["disagreement"] = Row(disagreement, timeout=20)
ROWS["deadline"] = Row(deadline, timeout=5)
ROWS["killed"] = Row(killed, timeout=60, ends={1: -signal.SIGKILL})


class Cuda(unittest.TestCase):
    """Each row in processes of its own."""

    def test_rows(self):
        check(self, ROWS)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("SKIPPED  no GPU that this PyTorch can use")
        sys.exit(77)
    unittest.main()
