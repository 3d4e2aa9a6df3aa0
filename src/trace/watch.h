/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One watcher thread for each process, started with the first item and ended with
 * the last. It polls descriptors that tell of death (pidfds, life lines) and calls
 * every item's tick each 250 ms. Blocks all signals; its stack is small.
 */
#ifndef MOTET_TRACE_WATCH_H
#define MOTET_TRACE_WATCH_H

#include "base/error.h"

#include <stdint.h>

typedef struct motet_watch_item motet_watch_item;

struct motet_watch_item {
    /** Descriptors to poll for readability or hang-up; −1 entries are skipped. Owned by the item. */
    int *fds;
    int nfds;
    /** fds[index] became readable or hung up. Set fds[index] to −1 to stop polling it. */
    void (*on_event)(motet_watch_item *item, int index);
    /** Every 250 ms. */
    void (*on_tick)(motet_watch_item *item, uint64_t now_ns);
    motet_watch_item *next; /* the watcher's */
};

/**
 * Add @p item, which stays in place until removed; its callbacks run on the watcher
 * thread, one at a time, and must not block nor add or remove items.
 * @retval MOTET_ERR_SYSTEM the thread could not be started.
 */
MOTET_MUST_USE motet_result motet_watch_add(motet_watch_item *item);

/** Remove @p item: after this returns no callback of it runs. Ends the thread with the last item. */
void motet_watch_remove(motet_watch_item *item);

/** In the child of a fork: no thread, no items. */
void motet_watch_after_fork(void);

#endif
