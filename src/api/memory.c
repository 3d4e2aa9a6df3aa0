/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, registrations, windows, made operators, and the streams of CPU ranks. */
#include "api/export.h"
#include "api/internal.h"
#include "motet.h"

#include <stdlib.h>

MOTET_API ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    const motet_device_ops *device;
    motet_result result;

    if (ptr == NULL)
        return motet_api_report(
                motet_fail(MOTET_ERR_ARGUMENT, "MemAlloc : ptr argument is NULL"));
    result = motet_device_choose_now(MOTET_CHOOSE_AUTO, &device);
    if (result == MOTET_OK)
        result = device->alloc(size, ptr);
    return motet_api_report(result);
}
MOTET_ALIAS(ncclMemAlloc, pncclMemAlloc);

MOTET_API ncclResult_t pncclMemFree(void *ptr)
{
    const motet_device_ops *device;
    motet_result result = motet_device_choose_now(MOTET_CHOOSE_AUTO, &device);

    if (result == MOTET_OK)
        result = device->free(ptr);
    return motet_api_report(result);
}
MOTET_ALIAS(ncclMemFree, pncclMemFree);

MOTET_API ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
        void **handle)
{
    motet_registration *registration;
    motet_result result = motet_api_comm_ready("CommRegister", comm);

    if (result == MOTET_OK && (handle == NULL || buff == NULL || size == 0))
        result = motet_fail(MOTET_ERR_ARGUMENT, "CommRegister : %s",
                handle == NULL ? "handle argument is NULL"
                               : "the buffer is NULL or empty");
    if (result == MOTET_OK)
        result = motet_register(motet_api_handle(comm), buff, size, false,
                &registration);
    if (result == MOTET_OK)
        *handle = registration;
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclCommRegister, pncclCommRegister);

MOTET_API ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    motet_result result = motet_api_comm("CommDeregister", comm);

    if (result == MOTET_OK && handle != NULL)
        result = motet_deregister(motet_api_handle(comm), handle, false);
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclCommDeregister, pncclCommDeregister);

/* Collective. A buffer of ncclMemAlloc() is mapped by all ranks, which then read it in
 * place; any other buffer gets a window too, and goes through the arenas. */
MOTET_API ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
        ncclWindow_t *win, int winFlags)
{
    const int known =
            NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY;
    const motet_window_wish wish = { .base = buff, .bytes = size, .handle = win };
    motet_result result = motet_api_comm_ready("CommWindowRegister", comm);

    if (result == MOTET_OK && (win == NULL || buff == NULL || size == 0))
        result = motet_fail(MOTET_ERR_ARGUMENT, "CommWindowRegister : %s",
                win == NULL ? "win argument is NULL" : "the buffer is NULL or empty");
    if (result == MOTET_OK && (winFlags & ~known) != 0)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommWindowRegister : winFlags is %#x, need bits of %#x",
                (unsigned)winFlags, (unsigned)known);
    if (result == MOTET_OK && (uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommWindowRegister : the buffer starts at %p, need a multiple of %d",
                buff, NCCL_WIN_REQUIRED_ALIGNMENT);
    if (result == MOTET_OK)
        result = motet_group_window(motet_api_handle(comm), &wish);
    if (result != MOTET_OK && motet_group_open())
        motet_group_note(result);
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclCommWindowRegister, pncclCommWindowRegister);

MOTET_API ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    motet_result result;

    if (win == NULL)
        return ncclSuccess;
    result = motet_api_comm("CommWindowDeregister", comm);
    if (result == MOTET_OK)
        result = motet_deregister(motet_api_handle(comm),
                (motet_registration *)(void *)win, true);
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclCommWindowDeregister, pncclCommWindowDeregister);

MOTET_API ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win,
        void **outUserPtr)
{
    motet_registration *window = (motet_registration *)(void *)win;
    motet_result result = motet_api_comm("WinGetUserPtr", comm);

    if (result == MOTET_OK && (outUserPtr == NULL || win == NULL))
        result = motet_fail(MOTET_ERR_ARGUMENT, "WinGetUserPtr : %s argument is NULL",
                outUserPtr == NULL ? "outUserPtr" : "win");
    if (result == MOTET_OK &&
            !motet_registration_live(motet_api_handle(comm), window, true))
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "WinGetUserPtr : %p is no window of this communicator", (void *)win);
    if (result == MOTET_OK)
        *outUserPtr = window->base;
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclWinGetUserPtr, pncclWinGetUserPtr);

MOTET_API ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
        ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)
{
    int handle;
    motet_result result = motet_api_comm_ready("RedOpCreatePreMulSum", comm);

    if (result == MOTET_OK && (op == NULL || scalar == NULL))
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "RedOpCreatePreMulSum : %s argument is NULL",
                op == NULL ? "op" : "scalar");
    if (result == MOTET_OK && ((int)datatype < 0 || datatype >= ncclNumTypes))
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "RedOpCreatePreMulSum : invalid type %d, need 0..%d", (int)datatype,
                ncclNumTypes - 1);
    if (result == MOTET_OK && residence != ncclScalarDevice &&
            residence != ncclScalarHostImmediate)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "RedOpCreatePreMulSum : residence is %d, need 0 or 1", (int)residence);
    if (result == MOTET_OK)
        result = motet_redop_make(motet_api_handle(comm), (motet_type)datatype, scalar,
                residence == ncclScalarHostImmediate, &handle);
    if (result == MOTET_OK)
        *op = (ncclRedOp_t)handle;
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclRedOpCreatePreMulSum, pncclRedOpCreatePreMulSum);

MOTET_API ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    motet_result result = motet_api_comm("RedOpDestroy", comm);

    if (result == MOTET_OK && (int)op >= 0 && (int)op < MOTET_NUM_BUILTIN_REDOPS)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "RedOpDestroy : operator %s is built in and cannot be destroyed",
                motet_redop_names[op]);
    if (result == MOTET_OK && (int)op < 0)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "RedOpDestroy : operator is garbage, %d", (int)op);
    if (result == MOTET_OK)
        result = motet_redop_destroy(motet_api_handle(comm), (int)op);
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclRedOpDestroy, pncclRedOpDestroy);

/* ---- streams ---- */

static motet_result check_stream(const char *call, cudaStream_t stream)
{
    if (!motet_host_stream_valid(stream))
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : %p is no stream of motet's", call,
                (void *)stream);
    return MOTET_OK;
}

static motet_host_stream *host_stream(cudaStream_t stream)
{
    return (motet_host_stream *)(void *)stream;
}

MOTET_API ncclResult_t motet_stream_create(cudaStream_t *stream)
{
    motet_host_stream *made;
    motet_result result;

    if (stream == NULL)
        return motet_api_report(motet_fail(MOTET_ERR_ARGUMENT,
                "motet_stream_create : stream argument is NULL"));
    motet_fork_guard();
    result = motet_host_stream_create(&made);
    if (result == MOTET_OK)
        *stream = (cudaStream_t)(void *)made;
    return motet_api_report(result);
}

MOTET_API ncclResult_t motet_stream_destroy(cudaStream_t stream)
{
    motet_result result = check_stream("motet_stream_destroy", stream);

    if (result == MOTET_OK)
        result = motet_host_stream_destroy(host_stream(stream));
    return motet_api_report(result);
}

MOTET_API ncclResult_t motet_stream_synchronize(cudaStream_t stream)
{
    motet_result result = check_stream("motet_stream_synchronize", stream);

    if (result == MOTET_OK)
        result = motet_host_stream_sync(host_stream(stream));
    return motet_api_report(result);
}

MOTET_API ncclResult_t motet_stream_query(cudaStream_t stream)
{
    motet_result result = check_stream("motet_stream_query", stream);

    if (result == MOTET_OK)
        result = motet_host_stream_query(host_stream(stream));
    return motet_api_report(result);
}

MOTET_API ncclResult_t motet_stream_wait(cudaStream_t stream, cudaStream_t other)
{
    motet_result result = check_stream("motet_stream_wait", stream);

    if (result == MOTET_OK)
        result = check_stream("motet_stream_wait", other);
    if (result == MOTET_OK)
        result = motet_host_stream_wait(host_stream(stream), host_stream(other));
    return motet_api_report(result);
}

/* A function of the caller's, with its argument. */
typedef struct errand {
    void (*fn)(void *arg);
    void *arg;
} errand;

static motet_result run_errand(void *arg)
{
    errand e = *(errand *)arg;

    free(arg);
    e.fn(e.arg);
    return MOTET_OK;
}

MOTET_API ncclResult_t motet_stream_launch(cudaStream_t stream, void (*fn)(void *arg),
        void *arg)
{
    errand *e = NULL;
    motet_result result = check_stream("motet_stream_launch", stream);

    if (result == MOTET_OK && fn == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "motet_stream_launch : fn argument is NULL");
    if (result == MOTET_OK && (e = malloc(sizeof(*e))) == NULL)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "errand for a stream");
    if (result == MOTET_OK) {
        *e = (errand){ fn, arg };
        result = motet_host_stream_submit(host_stream(stream), run_errand, e);
        if (result != MOTET_OK)
            free(e);
    }
    return motet_api_report(result);
}
