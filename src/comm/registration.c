/* SPDX-License-Identifier: Apache-2.0 */
/* Registered buffers and windows. A CPU rank gains nothing from a registered buffer, but
 * clients count on the handles and check them; a window may be read in place. */
#include "comm/comm.h"

#include <stdlib.h>

motet_result motet_register(motet_comm *comm, void *base, size_t bytes, bool window,
        motet_registration **out)
{
    motet_registration *r;
    uint32_t number = 0;

    if (window)
        MOTET_TRY(motet_window_map(comm, base, bytes, &number), "register a window");
    pthread_mutex_lock(&comm->lock);
    for (r = comm->registrations; r != NULL; r = r->next)
        if (!window && !r->window && r->base == base && r->bytes == bytes)
            break;
    if (r != NULL) {
        r->references++;
    } else if ((r = calloc(1, sizeof(*r))) != NULL) {
        *r = (motet_registration){
            .next = comm->registrations,
            .base = base,
            .bytes = bytes,
            .references = 1,
            .window = window,
            .number = number,
        };
        comm->registrations = r;
    }
    pthread_mutex_unlock(&comm->lock);
    if (r == NULL) {
        motet_window_unmap(comm, number);
        return motet_fail_errno(MOTET_ERR_SYSTEM, "registration");
    }
    *out = r;
    return MOTET_OK;
}

static motet_registration **find(motet_comm *comm, const motet_registration *handle,
        bool window)
{
    motet_registration **at = &comm->registrations;

    while (*at != NULL && (*at != handle || (*at)->window != window))
        at = &(*at)->next;
    return at;
}

bool motet_registration_live(motet_comm *comm, const motet_registration *handle,
        bool window)
{
    bool live;

    pthread_mutex_lock(&comm->lock);
    live = *find(comm, handle, window) != NULL;
    pthread_mutex_unlock(&comm->lock);
    return live;
}

motet_result motet_deregister(motet_comm *comm, motet_registration *handle, bool window)
{
    motet_registration **at, *found;

    if (window && motet_comm_drain(comm) != MOTET_OK)
        motet_error_clear(); /* it failed before; nothing reads the window any more */
    pthread_mutex_lock(&comm->lock);
    at = find(comm, handle, window);
    found = *at;
    if (found != NULL && --found->references == 0) {
        *at = found->next;
        motet_window_unmap(comm, found->number);
        free(found);
    }
    pthread_mutex_unlock(&comm->lock);
    if (found == NULL)
        return motet_fail(MOTET_ERR_USAGE, "%p is no %s of this communicator",
                (const void *)handle, window ? "window" : "registration");
    return MOTET_OK;
}

void motet_registration_free_all(motet_comm *comm)
{
    while (comm->registrations != NULL) {
        motet_registration *next = comm->registrations->next;

        motet_window_unmap(comm, comm->registrations->number);
        free(comm->registrations);
        comm->registrations = next;
    }
}
