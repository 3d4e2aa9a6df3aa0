/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the NCCL ABI that works, by another one (FALSIFIER_LIB), except that
 * rank 1's all_reduce misbehaves as FALSIFIER_MODE says:
 *
 *     bit     one bit of one element is wrong
 *     past    one byte behind the result is written
 *     input   the input is changed
 *     hang    never returns
 *     crash   is killed
 *
 * What smoke and bench must notice.
 */
#include "nccl.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *real(const char *name)
{
    void *library = dlopen(getenv("FALSIFIER_LIB"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, name);

    if (symbol == NULL) {
        fprintf(stderr, "falsifier: %s\n", dlerror());
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

FORWARD(ncclResult_t, ncclGetVersion, (int *version), (version))
FORWARD(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
FORWARD(const char *, ncclGetErrorString, (ncclResult_t result), (result))
FORWARD(const char *, ncclGetLastError, (ncclComm_t comm), (comm))
FORWARD(ncclResult_t, ncclCommInitRank,
        (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),
        (comm, nranks, id, rank))
FORWARD(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))
FORWARD(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))
FORWARD(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank),
        (comm, rank))
FORWARD(ncclResult_t, ncclGroupStart, (void), ())
FORWARD(ncclResult_t, ncclGroupEnd, (void), ())
FORWARD(ncclResult_t, ncclRedOpCreatePreMulSum,
        (ncclRedOp_t * op, void *scalar, ncclDataType_t type,
                ncclScalarResidence_t residence, ncclComm_t comm),
        (op, scalar, type, residence, comm))
FORWARD(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))
FORWARD(ncclResult_t, ncclReduce,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, op, root, comm, stream))
FORWARD(ncclResult_t, ncclBroadcast,
        (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, root, comm, stream))
FORWARD(ncclResult_t, ncclAllGather,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, comm, stream))
FORWARD(ncclResult_t, ncclReduceScatter,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, op, comm, stream))
FORWARD(ncclResult_t, ncclSend,
        (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream),
        (send, count, type, peer, comm, stream))
FORWARD(ncclResult_t, ncclRecv,
        (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream),
        (recv, count, type, peer, comm, stream))

static size_t bytes_of(ncclDataType_t type)
{
    static const size_t bytes[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

    return bytes[type];
}

static void misbehave(const char *mode, unsigned char *send, unsigned char *recv,
        size_t bytes)
{
    if (strcmp(mode, "bit") == 0)
        recv[bytes - 1] ^= 1;
    else if (strcmp(mode, "past") == 0)
        recv[bytes] ^= 1;
    else if (strcmp(mode, "input") == 0)
        send[0] ^= 1;
    else if (strcmp(mode, "crash") == 0)
        raise(SIGKILL);
    while (strcmp(mode, "hang") == 0)
        pause();
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    static __typeof__(&ncclAllReduce) function;
    const char *mode = getenv("FALSIFIER_MODE");
    void *symbol = real("ncclAllReduce");
    ncclResult_t result;
    int rank = 0;

    memcpy(&function, &symbol, sizeof(symbol));
    result = function(send, recv, count, type, op, comm, stream);
    if (result == ncclSuccess && mode != NULL && count > 0 &&
            ncclCommUserRank(comm, &rank) == ncclSuccess && rank == 1) {
        unsigned char *input;

        memcpy(&input, &send, sizeof(input)); /* without const: what it is here for */
        misbehave(mode, input, recv, count * bytes_of(type));
    }
    return result;
}
