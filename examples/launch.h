/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `motet run` and torchrun tell a rank, for the examples: its number, how many
 * there are, and where they meet. NCCL_COMM_ID makes ncclGetUniqueId() return the same
 * id on every rank, so that nobody has to pass it around.
 */
#ifndef EXAMPLES_LAUNCH_H
#define EXAMPLES_LAUNCH_H

#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>

/** The number in variable @p name, or @p otherwise if it is not set. */
static inline int launch_number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

/** Point NCCL_COMM_ID at MASTER_ADDR:MASTER_PORT unless something set it. */
static inline void launch_meet(void)
{
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    char text[256];

    if (address == NULL || port == NULL)
        return;
    snprintf(text, sizeof(text), "%s:%s", address, port);
    setenv("NCCL_COMM_ID", text, 0);
}

/** End the program, with the library's sentence, unless @p result is a success. */
static inline void launch_check(int rank, const char *what, ncclResult_t result)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, ncclGetErrorString(result),
            ncclGetLastError(NULL));
    exit(EXIT_FAILURE);
}

#endif
