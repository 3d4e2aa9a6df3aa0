/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling what may crash, hang or leave threads behind (a driver, a vendor's library), in
 * a process of its own: the command's first process must stay able to fork.
 */
#ifndef MOTET_TOOLS_APART_H
#define MOTET_TOOLS_APART_H

#include <stddef.h>

enum apart {
    APART_FINE,    /* it came back */
    APART_CRASHED, /* or ended the process */
    APART_LATE,    /* it did not come back in time and was killed */
    APART_STUCK,   /* the same, and the kernel does not let go of it */
    APART_FAILED   /* no process could be started: errno */
};

/** Memory that such a process shares with this one, zeroed; NULL without. */
void *apart_memory(size_t bytes);

void apart_free(void *memory, size_t bytes);

/**
 * Run @p body on @p shared, memory from apart_memory(), for @p seconds at most. Processes
 * that it started end with it, unless they left its process group.
 */
enum apart apart_run(void (*body)(void *shared), void *shared, unsigned seconds);

/** Same; @p status_out gets what waitpid() says of one that crashed. */
enum apart apart_run_status(void (*body)(void *shared), void *shared, unsigned seconds,
        int *status_out);

#endif
