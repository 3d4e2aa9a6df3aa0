/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the NCCL ABI that works, by another one (FAULTY_LIB), except where
 * FAULTY_MODE says otherwise. On CPUs: its calls return with their results.
 *
 *     load-crash load-hang load-exit    the constructor
 *     load-fork                         it starts a process that never ends
 *     init init-hang                    ncclCommInitRank
 *     launch hang crash                 the operation FAULTY_OP, by default all_reduce
 *     sync sync-hang                    the wait for it, which is motet's host streams
 *     async                             it goes well, but for the asynchronous error
 *     async-hang                        the same, and the wait never ends
 *     values                            its last element is wrong, if it is of bfloat16
 *     past                              it writes behind its result
 *     destroy-hang                      ncclCommDestroy
 *
 * FAULTY_RANK: only this rank. What probe must put into the right cell.
 */
#define FORWARD_TO "FAULTY_LIB"
#include "forward.h"

#include <signal.h>
#include <stdbool.h>

static const char *why = "";
static bool pending; /* a fault that shows after the call */

static bool mode_is(const char *name)
{
    const char *mode = getenv("FAULTY_MODE");

    return mode != NULL && strcmp(mode, name) == 0;
}

static void hang(void)
{
    for (;;)
        pause();
}

/* In words of its own, and in a line as NCCL's. */
static ncclResult_t refuse(ncclResult_t result, const char *sentence)
{
    why = sentence;
    fprintf(stderr, "\n0123456789ab:%d:%d [0] faulty.cc:12 NCCL WARN %s\n",
            (int)getpid(), (int)getpid(), sentence);
    return result;
}

static bool rank_is_meant(int rank)
{
    const char *only = getenv("FAULTY_RANK");

    return only == NULL || rank == (int)strtol(only, NULL, 10);
}

static bool is_meant(const char *operation, ncclComm_t comm)
{
    const char *wanted = getenv("FAULTY_OP");
    int rank = 0;

    return strcmp(operation, wanted != NULL ? wanted : "all_reduce") == 0 &&
            ncclCommUserRank(comm, &rank) == ncclSuccess && rank_is_meant(rank);
}

__attribute__((constructor)) static void construct(void)
{
    if (mode_is("load-crash"))
        raise(SIGSEGV);
    if (mode_is("load-exit"))
        exit(0);
    if (mode_is("load-hang"))
        hang();
    if (mode_is("load-fork") && fork() == 0)
        hang();
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22304;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return why;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    static __typeof__(&ncclCommInitRank) function;
    void *symbol = real("ncclCommInitRank");

    memcpy(&function, &symbol, sizeof(symbol));
    if (nranks > 1 && rank_is_meant(rank)) {
        if (mode_is("init"))
            return refuse(ncclSystemError, "the network is on fire");
        if (mode_is("init-hang"))
            hang();
    }
    return function(comm, nranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    static __typeof__(&ncclCommDestroy) function;
    void *symbol = real("ncclCommDestroy");

    memcpy(&function, &symbol, sizeof(symbol));
    if (mode_is("destroy-hang") && is_meant("all_reduce", comm))
        hang();
    return function(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    *state = ncclSuccess;
    if (pending && (mode_is("async") || mode_is("async-hang"))) {
        *state = ncclInternalError;
        why = "a thread of mine has bad news";
    }
    return ncclSuccess;
}

/* ------------------------------------------------------------------- streams */

ncclResult_t motet_stream_create(void **stream);
ncclResult_t motet_stream_destroy(void *stream);
ncclResult_t motet_stream_synchronize(void *stream);

ncclResult_t motet_stream_create(void **stream)
{
    *stream = &pending;
    return ncclSuccess;
}

ncclResult_t motet_stream_destroy(void *stream)
{
    (void)stream;
    return ncclSuccess;
}

ncclResult_t motet_stream_synchronize(void *stream)
{
    (void)stream;
    if (pending && (mode_is("sync-hang") || mode_is("async-hang")))
        hang();
    if (pending && mode_is("sync"))
        return refuse(ncclUnhandledCudaError,
                "the operation cannot be performed in the present state");
    return ncclSuccess;
}

/* ---------------------------------------------------------------- operations */

static size_t bytes_of(ncclDataType_t type)
{
    static const size_t bytes[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

    return bytes[type];
}

static ncclResult_t before(const char *operation, ncclComm_t comm)
{
    if (!is_meant(operation, comm))
        return ncclSuccess;
    if (mode_is("hang"))
        hang();
    if (mode_is("crash"))
        raise(SIGSEGV);
    if (mode_is("launch"))
        return refuse(ncclUnhandledCudaError,
                "unhandled cuda error, I cannot say more");
    pending = true;
    return ncclSuccess;
}

static ncclResult_t after(ncclResult_t result, void *recv, size_t count,
        ncclDataType_t type)
{
    size_t bytes = count * bytes_of(type);

    if (pending && mode_is("values") && type == ncclBfloat16)
        ((unsigned char *)recv)[bytes - 1] ^= 1;
    if (pending && mode_is("past"))
        ((unsigned char *)recv)[bytes] ^= 1;
    return result;
}

/* An operation that receives @p n elements into recv. */
#define OPERATION(symbol, operation, n, params, args)  \
    ncclResult_t symbol params                         \
    {                                                  \
        static __typeof__(&symbol) function;           \
        void *found = real(#symbol);                   \
        ncclResult_t result = before(operation, comm); \
                                                       \
        memcpy(&function, &found, sizeof(found));      \
        if (result != ncclSuccess)                     \
            return result;                             \
        (void)stream;                                  \
        return after(function args, recv, n, type);    \
    }

static size_t ranks_of(ncclComm_t comm)
{
    static __typeof__(&ncclCommCount) function;
    void *found = real("ncclCommCount");
    int count = 1;

    memcpy(&function, &found, sizeof(found));
    (void)function(comm, &count);
    return (size_t)count;
}

OPERATION(ncclAllReduce, "all_reduce", count,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, op, comm, NULL))
OPERATION(ncclBroadcast, "broadcast", count,
        (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, root, comm, NULL))
OPERATION(ncclAllGather, "all_gather", count *ranks_of(comm),
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, comm, NULL))
OPERATION(ncclReduceScatter, "reduce_scatter", count,
        (const void *send, void *recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
        (send, recv, count, type, op, comm, NULL))
OPERATION(ncclRecv, "recv", count,
        (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream),
        (recv, count, type, peer, comm, NULL))

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    static __typeof__(&ncclSend) function;
    void *found = real("ncclSend");
    ncclResult_t result = before("send", comm);

    (void)stream;
    memcpy(&function, &found, sizeof(found));
    return result != ncclSuccess ? result
                                 : function(send, count, type, peer, comm, NULL);
}
