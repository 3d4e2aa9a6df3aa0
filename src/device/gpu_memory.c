/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses which memory. An allocation is listed with the peers of this process that use
 * it in place; it goes when its owner has freed it and the last of them has let go. Host
 * memory that several devices register is registered with the runtime once.
 */
#include "device/gpu_shared.h"

#include <stdint.h>
#include <stdlib.h>

struct motet_gpu_registration {
    motet_gpu_registration *next;
    void *memory;
    unsigned holds;
    bool ours; /* not registered by the application before us   */
    bool busy; /* a thread registers it, or lets go, without the lock */
};

/* With the lock held: where the allocation that holds @p address is listed. */
static motet_gpu_allocation **listed(motet_gpu_memories *m, uint64_t address)
{
    motet_gpu_allocation **at = &m->allocations;

    while (*at != NULL && address - (*at)->address >= (*at)->bytes)
        at = &(*at)->next;
    return at;
}

/* With the lock held: take *at out of the list if nobody uses it any more, else NULL. */
static motet_gpu_allocation *take_unused(motet_gpu_allocation **at)
{
    motet_gpu_allocation *a = *at;

    if (a == NULL || !a->freed || a->holds != 0)
        return NULL;
    *at = a->next;
    return a;
}

static void discard(const motet_gpu_memories *m, motet_gpu_allocation *a)
{
    if (a != NULL && !motet_gpu_given_up(a->gpu))
        m->unmake(a);
    free(a);
}

/* Discard what peers have let go of since @p gpu's owner called last. */
static void discard_left(motet_gpu_memories *m, const motet_gpu *gpu)
{
    motet_gpu_allocation **at, *unused;

    do {
        unused = NULL;
        pthread_mutex_lock(&m->lock);
        for (at = &m->allocations; *at != NULL && unused == NULL;)
            if ((*at)->gpu != gpu || (unused = take_unused(at)) == NULL)
                at = &(*at)->next;
        pthread_mutex_unlock(&m->lock);
        discard(m, unused);
    } while (unused != NULL);
}

motet_result motet_gpu_allocate(motet_gpu_memories *m, motet_gpu *gpu, int ordinal,
        size_t bytes, motet_gpu_memory *out)
{
    motet_gpu_allocation *a;
    motet_result result;

    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return motet_fail(MOTET_ERR_ARGUMENT, "allocate %zu bytes, need 1..%zu", bytes,
                SIZE_MAX / 2);
    discard_left(m, gpu);
    a = calloc(1, sizeof(*a));
    if (a == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate %zu bytes", bytes);
    a->gpu = gpu;
    a->ordinal = ordinal;
    result = m->make(gpu, bytes, a);
    if (result != MOTET_OK) {
        free(a);
        return motet_error_wrap(result, "allocate %zu bytes on device %d", bytes,
                ordinal);
    }
    pthread_mutex_lock(&m->lock);
    a->id = MOTET_GPU_OWN_ID | m->made++;
    a->next = m->allocations;
    m->allocations = a;
    pthread_mutex_unlock(&m->lock);
    *out = (motet_gpu_memory){ .address = a->address, .bytes = a->bytes, .owned = a };
    return MOTET_OK;
}

void motet_gpu_hold(motet_gpu_memories *m, uint64_t address)
{
    motet_gpu_allocation *a;

    pthread_mutex_lock(&m->lock);
    a = *listed(m, address);
    if (a != NULL)
        a->holds++;
    pthread_mutex_unlock(&m->lock);
}

void motet_gpu_release(motet_gpu_memories *m, uint64_t address)
{
    motet_gpu_allocation **at, *unused;

    pthread_mutex_lock(&m->lock);
    at = listed(m, address);
    if (*at != NULL && (*at)->holds != 0)
        (*at)->holds--;
    unused = m->unmake_waits ? NULL : take_unused(at);
    pthread_mutex_unlock(&m->lock);
    discard(m, unused);
}

motet_result motet_gpu_free_at(motet_gpu_memories *m, uint64_t address)
{
    const motet_gpu *gpu = NULL;
    motet_gpu_allocation *a;
    bool known;

    pthread_mutex_lock(&m->lock);
    a = *listed(m, address);
    known = a != NULL && a->address == address && !a->freed;
    if (known) {
        a->freed = true;
        gpu = a->gpu;
    }
    pthread_mutex_unlock(&m->lock);
    if (known)
        discard_left(m, gpu);
    return known
            ? MOTET_OK
            : motet_fail(MOTET_ERR_ARGUMENT,
                      "free 0x%llx: it was not allocated here, or was freed already",
                      (unsigned long long)address);
}

void motet_gpu_give_back(motet_gpu_memories *m, motet_gpu_memory *memory)
{
    if (memory->owned != NULL && motet_gpu_free_at(m, memory->address) != MOTET_OK)
        motet_error_clear(); /* freed before */
    *memory = (motet_gpu_memory){ .address = 0 };
}

bool motet_gpu_allocation_at(motet_gpu_memories *m, uint64_t address,
        motet_gpu_allocation *out)
{
    const motet_gpu_allocation *a;

    pthread_mutex_lock(&m->lock);
    a = *listed(m, address);
    if (a != NULL)
        *out = *a;
    pthread_mutex_unlock(&m->lock);
    return a != NULL;
}

motet_pointer motet_gpu_own_pointer(const motet_gpu_allocation *allocation)
{
    return (motet_pointer){ .kind = MOTET_POINTER_DEVICE,
        .ordinal = allocation->ordinal,
        .base = allocation->address,
        .bytes = allocation->bytes,
        .buffer_id = allocation->id };
}

/* ---- host memory ---- */

static motet_gpu_registration **registration_of(motet_gpu_memories *m,
        const void *memory)
{
    motet_gpu_registration **at = &m->registrations;

    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    return at;
}

/* With the lock held: the same, when nobody is at work on it. */
static motet_gpu_registration **settled_registration_of(motet_gpu_memories *m,
        const void *memory)
{
    motet_gpu_registration **at;

    while (*(at = registration_of(m, memory)) != NULL && (*at)->busy)
        pthread_cond_wait(&m->changed, &m->lock);
    return at;
}

/* The work on @p r has ended; it stays if it @p lives. */
static void settle(motet_gpu_memories *m, motet_gpu_registration *r, bool lives)
{
    pthread_mutex_lock(&m->lock);
    r->busy = false;
    if (!lives)
        *registration_of(m, r->memory) = r->next;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (!lives)
        free(r);
}

motet_result motet_gpu_enrol(motet_gpu_memories *m, motet_gpu *gpu, void *memory,
        size_t bytes)
{
    motet_gpu_registration *fresh = calloc(1, sizeof(*fresh)), *r;
    motet_result result;

    if (fresh == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "note of registered memory");
    pthread_mutex_lock(&m->lock);
    r = *settled_registration_of(m, memory);
    if (r != NULL) {
        r->holds++;
    } else {
        *fresh = (motet_gpu_registration){ .next = m->registrations,
            .memory = memory,
            .holds = 1,
            .busy = true };
        m->registrations = fresh;
    }
    pthread_mutex_unlock(&m->lock);
    if (r != NULL) {
        free(fresh);
        return MOTET_OK;
    }
    result = m->enrol(gpu, memory, bytes, &fresh->ours);
    settle(m, fresh, result == MOTET_OK);
    return result;
}

void motet_gpu_dismiss(motet_gpu_memories *m, motet_gpu *gpu, void *memory)
{
    motet_gpu_registration *r;

    pthread_mutex_lock(&m->lock);
    r = *settled_registration_of(m, memory);
    if (r != NULL && --r->holds == 0)
        r->busy = true;
    else
        r = NULL;
    pthread_mutex_unlock(&m->lock);
    if (r == NULL)
        return;
    if (r->ours)
        m->dismiss(gpu, memory);
    settle(m, r, false);
}
