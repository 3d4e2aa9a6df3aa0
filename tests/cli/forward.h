/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For libraries that stand before another one with the NCCL ABI, whose path is in the
 * environment variable FORWARD_TO: calls that nobody wants to change. Who changes groups
 * defines FORWARD_NO_GROUPS.
 */
#ifndef MOTET_TESTS_CLI_FORWARD_H
#define MOTET_TESTS_CLI_FORWARD_H

#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *real(const char *name)
{
    void *library = dlopen(getenv(FORWARD_TO), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, name);

    if (symbol == NULL) {
        fprintf(stderr, FORWARD_TO ": %s\n", dlerror());
        _exit(99);
    }
    return symbol;
}

/* name(params) calls the real one. */
#define FORWARD(type, name, params, args)               \
    type name params                                    \
    {                                                   \
        static __typeof__(&name) function;              \
        if (function == NULL) {                         \
            void *symbol = real(#name);                 \
            memcpy(&function, &symbol, sizeof(symbol)); \
        }                                               \
        return function args;                           \
    }

FORWARD(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
FORWARD(const char *, ncclGetErrorString, (ncclResult_t result), (result))
FORWARD(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))
FORWARD(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank),
        (comm, rank))
#ifndef FORWARD_NO_GROUPS
FORWARD(ncclResult_t, ncclGroupStart, (void), ())
FORWARD(ncclResult_t, ncclGroupEnd, (void), ())
#endif
FORWARD(ncclResult_t, ncclRedOpCreatePreMulSum,
        (ncclRedOp_t * op, void *scalar, ncclDataType_t type,
                ncclScalarResidence_t residence, ncclComm_t comm),
        (op, scalar, type, residence, comm))
FORWARD(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))
FORWARD(ncclResult_t, ncclReduce,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, op, root, comm, stream))

#endif
