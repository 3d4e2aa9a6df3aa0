/* SPDX-License-Identifier: Apache-2.0 */
/* The table of live communicators, and the graveyard of those that have ended. */
#include "comm/registry.h"

#include <stdlib.h>
#include <time.h>

/* A call that races with an abort is a few instructions long; this many later
 * communicators have to end before its struct goes. */
#define GRAVES 16

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static motet_comm *table;
static motet_comm *graveyard; /* newest first */
static _Atomic uint64_t generation = 1;
static uint32_t made;

/* The last communicator that this thread found alive, and when. */
static _Thread_local struct {
    const motet_comm *comm;
    uint64_t generation;
} last_seen;

void motet_table_lock(void)
{
    pthread_mutex_lock(&table_lock);
}

void motet_table_unlock(void)
{
    pthread_mutex_unlock(&table_lock);
}

motet_comm *motet_table_first(void)
{
    return table;
}

void motet_table_changed(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
}

bool motet_comm_live(const motet_comm *comm)
{
    uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
    bool found = false;

    if (last_seen.comm == comm && last_seen.generation == now && comm != NULL)
        return true;
    pthread_mutex_lock(&table_lock);
    for (const motet_comm *c = table; c != NULL && !found; c = c->next)
        found = c == comm;
    pthread_mutex_unlock(&table_lock);
    if (found) {
        last_seen.comm = comm;
        last_seen.generation = now;
    }
    return found;
}

motet_result motet_comm_new(motet_comm **out)
{
    motet_comm *comm = calloc(1, sizeof(*comm));
    pthread_condattr_t monotonic;

    if (comm == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "communicator of %zu bytes",
                sizeof(*comm));
    atomic_init(&comm->state, MOTET_COMM_STARTING);
    comm->life_line = -1;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->turned, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_lock(&table_lock);
    comm->redop_seed = ++made;
    comm->next = table;
    table = comm;
    pthread_mutex_unlock(&table_lock);
    *out = comm;
    return MOTET_OK;
}

/* With what calls that came too late may have used of it until now. */
static void free_struct(motet_comm *comm)
{
    motet_batch_free_all(comm);
    motet_engine_release(&comm->engine);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->turned);
    free(comm);
}

/* A queued exchange will still look at it. */
static bool pinned(const motet_comm *comm)
{
    return atomic_load(&comm->exchanged) != atomic_load(&comm->exchanges);
}

void motet_comm_bury(motet_comm *comm)
{
    motet_comm **at = &table, *old = NULL;
    int graves = 0;

    atomic_store_explicit(&comm->state, MOTET_COMM_ENDED, memory_order_release);
    pthread_mutex_lock(&table_lock);
    while (*at != NULL && *at != comm)
        at = &(*at)->next;
    if (*at == comm)
        *at = comm->next;
    motet_table_changed();
    comm->next = graveyard;
    graveyard = comm;
    for (at = &graveyard; *at != NULL && (graves < GRAVES || pinned(*at));
            at = &(*at)->next)
        graves++;
    old = *at;
    if (old != NULL)
        *at = old->next;
    pthread_mutex_unlock(&table_lock);
    if (old != NULL)
        free_struct(old);
}

int motet_comm_count_live(void)
{
    int count = 0;

    pthread_mutex_lock(&table_lock);
    for (const motet_comm *c = table; c != NULL; c = c->next)
        count++;
    pthread_mutex_unlock(&table_lock);
    return count;
}
