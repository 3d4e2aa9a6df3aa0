# SPDX-License-Identifier: Apache-2.0
"""How ranks and groups of the backend `motet` end: deaths, exits, forks, aborts, timeouts, leaks.

On CPU ranks. What is left behind is told by an exception with a sentence, within a deadline.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import unittest

from rank_processes import (
    DEADLINE_S,
    SECONDS,
    Row,
    begin,
    check,
    dist,
    motet,
    raises,
    torch,
    works,
)

ones = torch.ones


def world():
    return dist.group.WORLD


# ---- ranks that die


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dead_before(rank, size):
    works(rank, size)
    if rank == 1:
        die()
    raises(Exception, "rank 1", lambda: dist.all_reduce(ones(1)))
    raises(Exception, f"rank {rank} of", lambda: dist.all_reduce(ones(1)))


def dead_inside(rank, size):
    works(rank, size)
    if rank == 1:
        threading.Timer(0.5, die).start()
        dist.all_reduce(ones(1))
        time.sleep(DEADLINE_S)
    if rank == 2:
        time.sleep(2)
    raises(Exception, "rank 1", lambda: [dist.all_reduce(ones(1)) for _ in range(3)])


def dead_before_it_is_known(rank, size):
    """Before the first collective: no communicator is there yet."""
    if rank == 1:
        die()
    raises(Exception, f"rank {rank} of", lambda: dist.all_reduce(ones(1)))


def dead_at_init(rank, size):
    if rank == 1:
        die()
    begin(rank, size, 3)
    raises(Exception, "rank 0 of 2", lambda: works(rank, size))


def dead_sender(rank, size):
    if rank == 0:
        t = ones(2)
        dist.recv(t, 1)
        raises(Exception, "rank 1", lambda: dist.recv(t, 1))
        return
    dist.send(ones(2), 0)
    time.sleep(1)
    die()


def dead_in_a_subgroup(rank, size):
    pair, rest = dist.new_group([0, 1]), dist.new_group([2, 3])
    for group in (pair, rest):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.all_reduce(ones(1), group=group)
    if rank == 1:
        die()
    if rank == 0:
        raises(Exception, "rank 1 (pid", lambda: dist.all_reduce(ones(1), group=pair))
    else:
        t = ones(1)
        dist.all_reduce(t, group=rest)  # theirs goes on
        assert t.item() == 2


def leaves_early(rank, size):
    works(rank, size)
    if rank == 1:
        dist.all_reduce(ones(1 << 20), async_op=True)
        return
    time.sleep(1)
    raises(Exception, "rank 1", lambda: [dist.all_reduce(ones(1 << 20)) for _ in range(3)])


DEAD = {1: -signal.SIGKILL}
DEATHS = {
    "dead before a collective": Row(dead_before, 3, ends=DEAD),
    "dead inside a collective": Row(dead_inside, 3, ends=DEAD),
    "dead before the first collective": Row(dead_before_it_is_known, timeout=5, ends=DEAD),
    "dead at init": Row(dead_at_init, init=False, ends=DEAD),
    "dead after a message": Row(dead_sender, ends=DEAD),
    "dead in a subgroup": Row(dead_in_a_subgroup, 4, ends=DEAD),
    "leaves with work in flight": Row(leaves_early),
}

# ---- ends of the interpreter


def in_flight(rank):
    """Work that cannot end: nobody else takes part."""
    kept = [dist.irecv(ones(4), 1 - rank, tag=7), dist.isend(ones(1 << 20), 1 - rank)]
    if rank == 0:
        kept.append(dist.all_reduce(ones(4), async_op=True))
    return kept


def ends_without_destroy(rank, size):
    works(rank, size)


def ends_in_flight(rank, size):
    works(rank, size)
    globals()["kept"] = in_flight(rank)


def ends_at_once(rank, size):
    works(rank, size)
    in_flight(rank)
    os._exit(3)


def ends_in_a_thread(rank, size):
    works(rank, size)
    thread = threading.Thread(target=lambda: (works(rank, size), sys.exit(5)))
    thread.start()
    thread.join()
    works(rank, size)


def ends_by_an_error(rank, size):
    works(rank, size)
    kept = in_flight(rank)
    if rank == 1:
        raise SystemExit(9)
    raises(Exception, "rank 1", kept[-1].wait)


def ends_with_a_thread_waiting(rank, size):
    works(rank, size)

    def waits():
        with contextlib.suppress(Exception):
            dist.recv(ones(1), 1 - rank)

    threading.Thread(target=waits, daemon=True).start()
    time.sleep(0.5)


EXITS = {
    "no destroy": Row(ends_without_destroy),
    "exit with work in flight": Row(ends_in_flight, timeout=5),
    "_exit with work in flight": Row(ends_at_once, ends={0: 3, 1: 3}),
    "exit of a thread": Row(ends_in_a_thread),
    "exit of one rank": Row(ends_by_an_error, ends={1: 9}),
    "exit while a thread waits": Row(ends_with_a_thread_waiting, timeout=5),
}

# ---- forks


def forked(rank, size):
    """A child that uses its parent's group fails, or it works; the parent goes on."""
    works(rank, size)
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(ones(1))
        except Exception as reason:
            os._exit(0 if "fork" in str(reason) else 1)
        os._exit(0)
    end = time.monotonic() + 60
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 0, status
    works(rank, size)
    dist.destroy_process_group()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return float(i * i)


def loads_data(rank, size):
    work = dist.all_reduce(ones(1), async_op=True)  # a thread of the group runs
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    total = torch.zeros(1, dtype=torch.float64)
    for batch in loader:
        part = batch.sum().reshape(1)
        dist.all_reduce(part)
        total += part
    assert total.item() == size * sum(i * i for i in range(64))
    work.wait()
    dist.destroy_process_group()


FORKS = {"fork": Row(forked, timeout=20), "workers of a DataLoader": Row(loads_data)}

# ---- the life of groups


def again_and_again(rank, size):
    for i in range(20):
        begin(rank, size, 60, f"store{i}")
        works(rank, size)
        dist.destroy_process_group()


def after_the_end(rank, size):
    t = ones(3)
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    group = world()
    dist.destroy_process_group()
    assert work.wait() and work.is_completed() and t.tolist() == [2] * 3
    raises(AssertionError, "", dist.destroy_process_group)
    raises(Exception, "not been initialized", lambda: dist.all_reduce(t))
    raises(Exception, "aborted", lambda: group.allreduce([t]).wait())
    raises(Exception, "aborted", lambda: group.recv([t], 1 - rank, 0).wait())


def aborted_by_a_thread(rank, size):
    works(rank, size)
    if rank == 1:
        time.sleep(3)
        return
    backend = world()._get_backend(torch.device("cpu"))
    threading.Timer(0.5, backend.abort).start()
    raises(Exception, "rank 0 of 2", lambda: dist.all_reduce(ones(1)))
    raises(Exception, "aborted", lambda: dist.all_reduce(ones(1)))


def group_of_some(rank, size):
    """Only rank 0 makes it: an error after the deadline, not a hang."""
    if rank == 1:
        time.sleep(4)
        return
    raises(Exception, "", lambda: works(rank, size, dist.new_group([0, 1], timeout=2 * SECONDS)))


def many_groups(rank, size):
    groups = [dist.new_group([0, 1]) for _ in range(50)]
    for group in groups:
        works(rank, size, group)
    for group in groups if rank else reversed(groups):
        dist.destroy_process_group(group)
    works(rank, size)
    dist.destroy_process_group()


def timeouts(rank, size):
    works(rank, size)
    if rank == 1:
        time.sleep(6)
        return
    work = dist.irecv(ones(1), 1, tag=3)
    raises(Exception, "did not end within 300 ms", lambda: work.wait(0.3 * SECONDS))
    late = dist.all_reduce(ones(1), async_op=True)
    raises(Exception, "did not end within 200 ms", lambda: late.wait(0.2 * SECONDS))
    raises(Exception, "rank 0 of 2", late.wait)


def raising_callbacks(rank, size):
    def bad(future):
        raise ValueError("of the callback")

    work = dist.all_reduce(ones(1), async_op=True)
    chained = work.get_future().then(bad)
    work.wait()
    raises(Exception, "of the callback", chained.wait)
    dist.all_reduce(ones(1), async_op=True).get_future().add_done_callback(bad)
    works(rank, size)


def threads(rank, size):
    """A group for each thread; then one group by two threads that take turns."""
    groups = [dist.new_group([0, 1]) for _ in range(6)]
    wrong = []

    def use(group):
        try:
            for _ in range(30):
                works(rank, size, group)
        except Exception as reason:
            wrong.append(reason)

    for group in [*groups, None]:
        thread = threading.Thread(target=use, args=(group,))
        thread.start()
        if group is None:
            thread.join()
        else:
            groups[groups.index(group)] = thread
    for thread in groups:
        thread.join()
    assert not wrong, wrong


def ten_thousand(rank, size):
    t = torch.zeros(1, dtype=torch.int64) + rank
    total = [t.clone() for _ in range(10_000)]
    for one in total:
        dist.all_reduce(one, async_op=True)  # nobody waits for it
    works(rank, size)
    assert all(one.item() == 1 for one in total)


LIFE = {
    "init and destroy, 20 times": Row(again_and_again, init=False),
    "after the end": Row(after_the_end),
    "aborted by a thread": Row(aborted_by_a_thread),
    "a group of some": Row(group_of_some, timeout=5),
    "50 groups": Row(many_groups),
    "timeouts": Row(timeouts, timeout=3),
    "callbacks that raise": Row(raising_callbacks),
    "threads": Row(threads),
    "10,000 operations": Row(ten_thousand),
}

# ---- a backend for another PyTorch


class OfAnother:
    torch_version = "1.9.0"


def other_version(rank, size):
    sys.modules["motet.torch._backend"] = motet.torch._backend = OfAnother
    raises(ImportError, "was built for PyTorch 1.9.0", lambda: begin(0, 1, 5))


def does_not_load(rank, size):
    import importlib.machinery

    with open(f"_backend{importlib.machinery.EXTENSION_SUFFIXES[0]}", "wb") as file:
        file.write(b"\x7fELF, but no more")
    sys.modules.pop("motet.torch._backend", None)
    if hasattr(motet.torch, "_backend"):
        del motet.torch._backend
    motet.torch.__path__ = [os.getcwd()]
    raises(ImportError, "python -m motet.torch build", lambda: begin(0, 1, 5))


BUILDS = {
    "of another version": Row(other_version, 1, init=False),
    "does not load": Row(does_not_load, 1, init=False),
}

# ---- leaks

COUNTERS = {
    "descriptors": lambda: len(os.listdir("/proc/self/fd")),
    "threads": lambda: len(os.listdir("/proc/self/task")),
}


def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def leaks(rank, size):
    def cycle(count):
        for _ in range(count):
            group = dist.new_group([0, 1])
            works(rank, size, group)
            t = ones(2)
            if rank == 0:
                dist.send(t, 1, group=group)
            else:
                dist.recv(t, 0, group=group)
            dist.barrier(group=group)
            dist.destroy_process_group(group)
            del group
        gc.collect()

    cycle(20)
    before = {name: count() for name, count in COUNTERS.items()}
    memory = resident_mb()
    cycle(300)
    after = {name: count() for name, count in COUNTERS.items()}
    grown = resident_mb() - memory
    print(before, after, grown, file=sys.stderr)
    assert grown < 16, f"{grown} MB more"
    for name in COUNTERS:
        assert after[name] <= before[name], (name, before, after)


LEAKS = {"300 groups": Row(leaks)}


class Life(unittest.TestCase):
    def test_deaths(self):
        check(self, DEATHS)

    def test_ends_of_the_interpreter(self):
        check(self, EXITS)

    def test_forks(self):
        check(self, FORKS)

    def test_life_of_groups(self):
        check(self, {**LIFE, **LEAKS})

    def test_a_backend_for_another_pytorch(self):
        check(self, BUILDS)


if __name__ == "__main__":
    unittest.main()
