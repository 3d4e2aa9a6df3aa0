#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks in one Python script: four processes add their NumPy arrays.

    python examples/python/allreduce.py

It prints:

    rank 0 of 4 had 1.0, all have 10.0
    rank 1 of 4 had 2.0, all have 10.0
    rank 2 of 4 had 3.0, all have 10.0
    rank 3 of 4 had 4.0, all have 10.0
"""

import motet
import numpy


def work(comm: motet.Communicator) -> str:
    """What each rank does: its result goes back to the script."""
    x = numpy.full(1_000_000, comm.rank + 1, dtype=numpy.float32)
    had = x[0]
    comm.all_reduce(x)  # in place
    assert (x == x[0]).all()
    return f"rank {comm.rank} of {comm.nranks} had {had}, all have {x[0]}"


if __name__ == "__main__":
    print("\n".join(motet.run(work, 4)))
