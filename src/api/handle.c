/* SPDX-License-Identifier: Apache-2.0 */
/* Communicator handles: are they ours, alive, and in a state to work; and what each
 * communicator, and the process, remember of their last error. */
#include "api/export.h"
#include "api/internal.h"

#include <stdio.h>
#include <string.h>

motet_result motet_api_comm(const char *call, ncclComm_t comm)
{
    motet_comm *c = motet_api_handle(comm);

    if (comm == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : comm argument is NULL", call);
    if (!motet_comm_live(c))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : corrupted comm object detected: %p is no live communicator of "
                "this "
                "library (destroyed, overwritten, or made by another copy of it)",
                call, (void *)comm);
    if (atomic_load_explicit(&c->forked, memory_order_relaxed))
        return motet_fail(MOTET_ERR_USAGE,
                "%s : the communicator was made before a fork, by the parent process: "
                "only "
                "the parent can use it, make one after the fork",
                call);
    if (atomic_load_explicit(&c->state, memory_order_relaxed) == MOTET_COMM_STARTING &&
            motet_group_holds(c))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : the communicator is made at the end of the group, which has not "
                "come yet",
                call);
    return MOTET_OK;
}

/* What is wrong with a communicator that is not simply ready. */
static motet_result explain(const char *call, motet_comm *c)
{
    motet_result result = motet_comm_async(c);

    if (result == MOTET_IN_PROGRESS)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : Attempt to use communicator before the previous operation "
                "returned "
                "ncclSuccess",
                call);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "%s", call);
    if (atomic_load_explicit(&c->state, memory_order_acquire) == MOTET_COMM_FINALIZED)
        return motet_fail(MOTET_ERR_USAGE, "%s : the communicator is finalized", call);
    return MOTET_OK;
}

motet_result motet_api_comm_ready(const char *call, ncclComm_t comm)
{
    motet_comm *c = motet_api_handle(comm);
    motet_result result = motet_api_comm(call, comm);

    if (result != MOTET_OK)
        return result;
    if (atomic_load_explicit(&c->revoked, memory_order_relaxed))
        return motet_fail(MOTET_ERR_USAGE, "%s : the communicator was revoked", call);
    if (__builtin_expect(atomic_load_explicit(&c->state, memory_order_acquire) ==
                                MOTET_COMM_READY &&
                        atomic_load_explicit(&c->engine.stop, memory_order_acquire) ==
                                0,
                1))
        return MOTET_OK;
    return explain(call, c);
}

ncclResult_t motet_api_report_comm(ncclComm_t comm, motet_result result)
{
    motet_comm *c = motet_api_handle(comm);

    if (result != MOTET_OK && result != MOTET_IN_PROGRESS && comm != NULL &&
            motet_comm_live(c)) {
        pthread_mutex_lock(&c->lock);
        motet_api_format_error(result, c->last_error, sizeof(c->last_error));
        pthread_mutex_unlock(&c->lock);
    }
    return motet_api_report(result);
}

/* A communicator's own sentence; (NULL) or a handle that is not ours gives the process's. */
MOTET_API const char *pncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char text[MOTET_COMM_ERROR_MAX];
    motet_comm *c = motet_api_handle(comm);

    if (comm == NULL || !motet_comm_live(c))
        return motet_api_last_error();
    pthread_mutex_lock(&c->lock);
    memcpy(text, c->last_error, sizeof(text));
    pthread_mutex_unlock(&c->lock);
    if (text[0] == '\0') {
        motet_result result = motet_comm_async(c);

        if (result != MOTET_OK && result != MOTET_IN_PROGRESS)
            motet_api_format_error(result, text, sizeof(text));
    }
    return text;
}
MOTET_ALIAS(ncclGetLastError, pncclGetLastError);
