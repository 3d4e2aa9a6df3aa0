/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges: what the ranks of a communicator say to each other out of band, when one
 * of them is split, shrunk or grown, or registers a window. They have no batch and no
 * ticket of an operation, and may be queued in a group that has not ended. Each draws a
 * number when it is asked for and runs when those before are over, so that several of
 * one group meet in the same order on all ranks.
 *
 * Whoever frees the communicator waits for the exchange that has begun, and not for those
 * that have not: their group may never end. They find out when they begin: they count
 * themselves in and then look whether the communicator is being ended, and who ends it
 * says so and then looks at the count, both sequentially consistent. The struct stays in
 * the graveyard as long as a number is drawn and not over.
 */
#include "comm/comm.h"

#include <time.h>

#define NAP_NS 100000

static bool ending(const motet_comm *comm)
{
    return atomic_load(&comm->cancel) || atomic_load(&comm->disposed);
}

static motet_result refuse(void)
{
    return motet_fail(MOTET_ERR_ARGUMENT, "the communicator is being ended");
}

motet_result motet_exchange_draw(motet_comm *comm, uint64_t *number_out)
{
    if (ending(comm))
        return refuse();
    *number_out = atomic_fetch_add(&comm->exchanges, 1);
    return MOTET_OK;
}

/* Those before end by themselves: they have deadlines and a stop. */
motet_result motet_exchange_begin(motet_comm *comm, uint64_t number)
{
    struct timespec nap = { .tv_nsec = NAP_NS };

    while (atomic_load(&comm->exchanged) < number && !ending(comm))
        nanosleep(&nap, NULL);
    atomic_fetch_add(&comm->exchanging, 1);
    return ending(comm) ? refuse() : MOTET_OK;
}

void motet_exchange_end(motet_comm *comm)
{
    atomic_fetch_sub(&comm->exchanging, 1);
    atomic_fetch_add(&comm->exchanged, 1);
}

void motet_exchange_await_all(motet_comm *comm)
{
    struct timespec nap = { .tv_nsec = NAP_NS };

    while (atomic_load(&comm->exchanged) != atomic_load(&comm->exchanges) &&
            !ending(comm))
        nanosleep(&nap, NULL);
}
