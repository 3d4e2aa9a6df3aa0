/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges: what the ranks of a communicator say to each other out of band, when one
 * of them is split, shrunk or grown, or registers a window. They have no batch and no
 * ticket of an operation, and may be queued in a group that has not ended. Each draws a
 * number when it is asked for and runs when its turn has come, so that several of one
 * group meet in the same order on all ranks, and whoever ends the communicator waits for
 * all that were drawn.
 *
 * Whoever draws looks at `cancel` and `disposed` afterwards; whoever ends the
 * communicator sets one of them before it looks at the numbers, both sequentially
 * consistent: either the exchange sees the end, or the end waits for the exchange.
 */
#include "comm/comm.h"

#include <time.h>

#define NAP_NS 100000

motet_result motet_exchange_draw(motet_comm *comm, uint64_t *number_out)
{
    uint64_t number = atomic_fetch_add(&comm->exchanges, 1);

    if (!atomic_load(&comm->cancel) && !atomic_load(&comm->disposed)) {
        *number_out = number;
        return MOTET_OK;
    }
    motet_exchange_begin(comm, number);
    motet_exchange_end(comm, number);
    return motet_fail(MOTET_ERR_ARGUMENT, "the communicator is being ended");
}

/* Those before end by themselves: they have deadlines and a stop. */
void motet_exchange_begin(motet_comm *comm, uint64_t number)
{
    struct timespec nap = { .tv_nsec = NAP_NS };

    while (atomic_load(&comm->exchanged) != number)
        nanosleep(&nap, NULL);
}

void motet_exchange_end(motet_comm *comm, uint64_t number)
{
    atomic_store(&comm->exchanged, number + 1);
}
