/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forked children hold nothing of ours. In the child no thread of ours runs, so its
 * communicators are marked: every call on them says why it cannot work. Descriptors
 * that tell peers that this process lives are closed at once, or the peers would
 * take the child for the parent. Mappings stay: the child does not touch them.
 */
#include "comm/registry.h"

#include <unistd.h>

static void before_fork(void)
{
    motet_table_lock();
}

static void after_fork_in_parent(void)
{
    motet_table_unlock();
}

static void after_fork_in_child(void)
{
    for (motet_comm *comm = motet_table_first(); comm != NULL; comm = comm->next) {
        atomic_store_explicit(&comm->forked, 1, memory_order_relaxed);
        if (comm->life_line >= 0)
            close(comm->life_line);
        comm->life_line = -1;
        for (int i = 0; comm->watch_fd != NULL && i < 2 * comm->nranks; i++) {
            if (comm->watch_fd[i] >= 0)
                close(comm->watch_fd[i]);
            comm->watch_fd[i] = -1; /* the child may fork, too */
        }
        /* A thread of the parent may have held it. */
        comm->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        motet_recorder_after_fork(&comm->recorder);
    }
    motet_table_changed();
    motet_table_unlock();
    motet_bootstrap_after_fork();
    motet_watch_after_fork();
    motet_host_stream_after_fork();
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void motet_fork_guard(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
}
