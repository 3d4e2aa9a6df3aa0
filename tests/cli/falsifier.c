/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the NCCL ABI that works, by another one (FALSIFIER_LIB), except that
 * rank 1's all_reduce misbehaves as FALSIFIER_MODE says:
 *
 *     bit     one bit of one element is wrong
 *     type    the same, of half only
 *     large   the same, from a million elements on
 *     past    one byte behind the result is written
 *     input   the input is changed
 *     hang    never returns
 *     crash   is killed
 *     exit    ends the process as if all were well
 *     async   all goes well, but the asynchronous error says otherwise
 *
 * and, of all ranks, once FALSIFIER_COUNT, a file that gets a byte each time, has grown to
 * FALSIFIER_AT bytes, "4", or from then on, "4+":
 *
 *     init    making communicators fails
 *     stuck   making communicators never returns
 *
 * In a group values are falsified when it has ended. What smoke and bench must notice.
 */
#define FORWARD_TO "FALSIFIER_LIB"
#define FORWARD_NO_GROUPS
#include "forward.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

FORWARD(ncclResult_t, ncclGetVersion, (int *version), (version))
FORWARD(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))
FORWARD(const char *, ncclGetLastError, (ncclComm_t comm), (comm))
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

static bool mode_is(const char *name)
{
    const char *mode = getenv("FALSIFIER_MODE");

    return mode != NULL && strcmp(mode, name) == 0;
}

/* Count one more; whether it is the one. */
static bool is_due(void)
{
    const char *file = getenv("FALSIFIER_COUNT"), *at = getenv("FALSIFIER_AT");
    struct stat st = { .st_size = 0 };
    char *rest;
    long wanted;
    int fd;

    if (file == NULL || at == NULL)
        return false;
    fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, ".", 1) != 1 || fstat(fd, &st) != 0)
        _exit(98);
    close(fd);
    wanted = strtol(at, &rest, 10);
    return *rest == '+' ? st.st_size >= wanted : st.st_size == wanted;
}

/* Whether communicators are refused this time; may not return. */
static bool refuses(void)
{
    bool due = (mode_is("init") || mode_is("stuck")) && is_due();

    while (due && mode_is("stuck"))
        pause();
    return due;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    static __typeof__(&ncclCommInitRank) function;
    void *symbol = real("ncclCommInitRank");

    memcpy(&function, &symbol, sizeof(symbol));
    if (rank == 0 && refuses())
        return ncclSystemError;
    return function(comm, nranks, id, rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices)
{
    static __typeof__(&ncclCommInitAll) function;
    void *symbol = real("ncclCommInitAll");

    memcpy(&function, &symbol, sizeof(symbol));
    return refuses() ? ncclSystemError : function(comms, ndev, devices);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    int rank = 0;

    *state = ncclSuccess;
    if (mode_is("async") && ncclCommUserRank(comm, &rank) == ncclSuccess && rank == 1)
        *state = ncclRemoteError;
    return ncclSuccess;
}

static size_t bytes_of(ncclDataType_t type)
{
    static const size_t bytes[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

    return bytes[type];
}

static void misbehave(unsigned char *send, unsigned char *recv, size_t count,
        ncclDataType_t type)
{
    size_t bytes = count * bytes_of(type);

    if (mode_is("bit") || (mode_is("type") && type == ncclHalf) ||
            (mode_is("large") && count >= 1000000))
        recv[bytes - 1] ^= 1;
    else if (mode_is("past"))
        recv[bytes] ^= 1;
    else if (mode_is("input"))
        send[0] ^= 1;
    else if (mode_is("crash"))
        raise(SIGKILL);
    else if (mode_is("exit"))
        exit(0);
    while (mode_is("hang"))
        pause();
}

/* What rank 1 has still to falsify: calls of a group run when it ends. */
static _Thread_local struct {
    unsigned char *send, *recv;
    size_t count;
    ncclDataType_t type;
} pending[16];
static _Thread_local int depth, num_pending;

static void misbehave_pending(void)
{
    for (int i = 0; i < num_pending; i++)
        misbehave(pending[i].send, pending[i].recv, pending[i].count, pending[i].type);
    num_pending = 0;
}

ncclResult_t ncclGroupStart(void)
{
    static __typeof__(&ncclGroupStart) function;
    void *symbol = real("ncclGroupStart");

    memcpy(&function, &symbol, sizeof(symbol));
    depth++;
    return function();
}

ncclResult_t ncclGroupEnd(void)
{
    static __typeof__(&ncclGroupEnd) function;
    void *symbol = real("ncclGroupEnd");
    ncclResult_t result;

    memcpy(&function, &symbol, sizeof(symbol));
    result = function();
    if (--depth == 0)
        misbehave_pending();
    return result;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    static __typeof__(&ncclAllReduce) function;
    void *symbol = real("ncclAllReduce");
    ncclResult_t result;
    int rank = 0;

    memcpy(&function, &symbol, sizeof(symbol));
    result = function(send, recv, count, type, op, comm, stream);
    if (result == ncclSuccess && getenv("FALSIFIER_MODE") != NULL && count > 0 &&
            num_pending < 16 && ncclCommUserRank(comm, &rank) == ncclSuccess &&
            rank == 1) {
        memcpy(&pending[num_pending].send, &send, sizeof(send)); /* without const */
        pending[num_pending].recv = recv;
        pending[num_pending].count = count;
        pending[num_pending].type = type;
        num_pending++;
        if (depth == 0)
            misbehave_pending();
    }
    return result;
}
