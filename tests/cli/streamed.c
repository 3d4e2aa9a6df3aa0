/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the NCCL ABI whose ranks want GPU memory and streams, where there is no
 * GPU: on tests/fakecuda, whose device memory the CPU sees. What is called on a stream
 * runs there as a host function, on CPU ranks of the library STREAMED_LIB; so it is
 * ordered, captured and replayed like a kernel. For the tests of the command it is the
 * other library: not motet.
 */
#include "nccl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 64

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct call {
    enum kind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
    ncclComm_t comm;
};

/* The calls of one group on one stream. Never freed: a graph may run it again. */
struct batch {
    cudaStream_t stream;
    int count;
    struct call call[CALLS_MAX];
};

static _Thread_local int depth;
static _Thread_local struct batch *open_batch[CALLS_MAX];
static _Thread_local int nopen;

static void *find(void *library, const char *name)
{
    void *symbol = library == NULL ? NULL : dlsym(library, name);

    if (symbol == NULL) {
        fprintf(stderr, "streamed: %s\n", dlerror());
        _exit(1);
    }
    return symbol;
}

static void *real(const char *name)
{
    setenv("MOTET_DEVICE", "cpu", 1); /* its own ranks; it reads this when it is used */
    return find(dlopen(getenv("STREAMED_LIB"), RTLD_NOW | RTLD_LOCAL), name);
}

/* Call the real one of that name; the pointer is looked up once. */
#define REAL(name, ...)                                                      \
    (__extension__({                                                         \
        static __typeof__(&name) function_;                                  \
        if (function_ == NULL)                                               \
            memcpy(&function_, &(void *){ real(#name) }, sizeof(function_)); \
        function_(__VA_ARGS__);                                              \
    }))

static ncclResult_t run_call(const struct call *c)
{
    switch (c->kind) {
    case ALL_REDUCE:
        return REAL(ncclAllReduce, c->send, c->recv, c->count, c->type, c->op, c->comm,
                NULL);
    case REDUCE:
        return REAL(ncclReduce, c->send, c->recv, c->count, c->type, c->op, c->peer,
                c->comm, NULL);
    case BROADCAST:
        return REAL(ncclBroadcast, c->send, c->recv, c->count, c->type, c->peer,
                c->comm, NULL);
    case ALL_GATHER:
        return REAL(ncclAllGather, c->send, c->recv, c->count, c->type, c->comm, NULL);
    case REDUCE_SCATTER:
        return REAL(ncclReduceScatter, c->send, c->recv, c->count, c->type, c->op,
                c->comm, NULL);
    case SEND:
        return REAL(ncclSend, c->send, c->count, c->type, c->peer, c->comm, NULL);
    case RECV:
        return REAL(ncclRecv, c->recv, c->count, c->type, c->peer, c->comm, NULL);
    }
    return ncclInternalError;
}

static void run_batch(void *arg)
{
    const struct batch *batch = arg;
    ncclResult_t result = batch->count > 1 ? REAL(ncclGroupStart, ) : ncclSuccess;

    for (int i = 0; i < batch->count && result == ncclSuccess; i++)
        result = run_call(&batch->call[i]);
    if (batch->count > 1 && result == ncclSuccess)
        result = REAL(ncclGroupEnd, );
    if (result != ncclSuccess) {
        fprintf(stderr, "streamed: %s\n", REAL(ncclGetLastError, NULL));
        _exit(1);
    }
}

/* Hand what the group has collected to the streams. */
static ncclResult_t flush_group(void)
{
    static int (*launch)(cudaStream_t stream, void (*fn)(void *), void *arg);
    ncclResult_t result = ncclSuccess;

    if (launch == NULL)
        memcpy(&launch,
                &(void *){ find(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchHostFunc") },
                sizeof(launch));
    for (int i = 0; i < nopen; i++)
        if (launch(open_batch[i]->stream, run_batch, open_batch[i]) != 0)
            result = ncclUnhandledCudaError;
    nopen = 0;
    return result;
}

static ncclResult_t add(cudaStream_t stream, struct call call)
{
    int i = 0;

    while (i < nopen && open_batch[i]->stream != stream)
        i++;
    if (i == CALLS_MAX || (i < nopen && open_batch[i]->count == CALLS_MAX))
        return ncclInternalError;
    if (i == nopen) {
        open_batch[i] = calloc(1, sizeof(*open_batch[i]));
        if (open_batch[i] == NULL)
            return ncclSystemError;
        open_batch[i]->stream = stream;
        nopen++;
    }
    open_batch[i]->call[open_batch[i]->count++] = call;
    return depth == 0 ? flush_group() : ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return REAL(ncclGroupStart, );
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = REAL(ncclGroupEnd, );

    depth--;
    return result == ncclSuccess && depth == 0 ? flush_group() : result;
}

ncclResult_t ncclGetVersion(int *version)
{
    return REAL(ncclGetVersion, version);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    return REAL(ncclGetUniqueId, id);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return REAL(ncclGetErrorString, result);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return REAL(ncclCommInitRank, comm, nranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return REAL(ncclCommDestroy, comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return REAL(ncclCommAbort, comm);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
        ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm)
{
    return REAL(ncclRedOpCreatePreMulSum, op, scalar, type, residence, comm);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return REAL(ncclRedOpDestroy, op, comm);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ ALL_REDUCE, send, recv, count, type, op, 0, comm });
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ REDUCE, send, recv, count, type, op, root, comm });
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
        ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ BROADCAST, send, recv, count, type, ncclSum, root, comm });
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ ALL_GATHER, send, recv, count, type, ncclSum, 0, comm });
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ REDUCE_SCATTER, send, recv, count, type, op, 0, comm });
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ SEND, send, NULL, count, type, ncclSum, peer, comm });
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    return add(stream,
            (struct call){ RECV, NULL, recv, count, type, ncclSum, peer, comm });
}
