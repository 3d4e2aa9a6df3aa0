/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about communicators and devices. */
#include "api/export.h"
#include "api/internal.h"
#include "comm/gpu.h"
#include "motet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

MOTET_API ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    motet_result result = motet_api_comm("CommGetAsyncError", comm);

    if (result == MOTET_OK && asyncError == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommGetAsyncError : asyncError argument is NULL");
    if (result != MOTET_OK)
        return motet_api_report_comm(comm, result);
    *asyncError = (ncclResult_t)motet_comm_async(motet_api_handle(comm));
    /* For GetLastError, and once in the log: it is polled. */
    if (*asyncError != ncclSuccess && *asyncError != ncclInProgress &&
            atomic_exchange(&motet_api_handle(comm)->told, 1) == 0)
        (void)motet_api_report_comm(comm, (motet_result)*asyncError);
    return ncclSuccess;
}
MOTET_ALIAS(ncclCommGetAsyncError, pncclCommGetAsyncError);

/* Wait for a creation that runs in the background: the answer depends on it. */
static motet_result await_start(motet_comm *comm)
{
    struct timespec nap = { .tv_nsec = 100000 };

    while (atomic_load_explicit(&comm->state, memory_order_acquire) ==
            MOTET_COMM_STARTING)
        nanosleep(&nap, NULL);
    return atomic_load_explicit(&comm->state, memory_order_acquire) == MOTET_COMM_BROKEN
            ? motet_comm_async(comm)
            : MOTET_OK;
}

static ncclResult_t ask(const char *call, ncclComm_t comm, int *out, size_t offset)
{
    motet_result result = motet_api_comm(call, comm);

    if (result == MOTET_OK && out == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "%s : the argument for the answer is NULL", call);
    if (result == MOTET_OK)
        result = await_start(motet_api_handle(comm));
    if (result == MOTET_OK)
        memcpy(out, (const char *)motet_api_handle(comm) + offset, sizeof(*out));
    return motet_api_report_comm(comm, result);
}

MOTET_API ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    return ask("CommCount", comm, count, offsetof(motet_comm, nranks));
}
MOTET_ALIAS(ncclCommCount, pncclCommCount);

MOTET_API ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return ask("CommUserRank", comm, rank, offsetof(motet_comm, rank));
}
MOTET_ALIAS(ncclCommUserRank, pncclCommUserRank);

MOTET_API ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return ask("CommCuDevice", comm, device, offsetof(motet_comm, ordinal));
}
MOTET_ALIAS(ncclCommCuDevice, pncclCommCuDevice);

/* Memory of a CPU rank: its arena. None of it can be suspended. */
MOTET_API ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat,
        uint64_t *value)
{
    motet_result result = motet_api_comm_ready("CommMemStats", comm);
    uint64_t bytes;

    if (result == MOTET_OK && value == NULL)
        result =
                motet_fail(MOTET_ERR_ARGUMENT, "CommMemStats : value argument is NULL");
    if (result == MOTET_OK && ((int)stat < 0 || stat > ncclStatGpuMemTotal))
        result = motet_fail(MOTET_ERR_ARGUMENT, "CommMemStats : stat is %d, need 0..3",
                (int)stat);
    if (result != MOTET_OK)
        return motet_api_report_comm(comm, result);
    bytes = motet_api_handle(comm)->arena[motet_api_handle(comm)->rank].bytes;
    *value = stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal ? bytes : 0;
    return ncclSuccess;
}
MOTET_ALIAS(ncclCommMemStats, pncclCommMemStats);

MOTET_API ncclResult_t motet_comm_set_timeout(ncclComm_t comm, unsigned int seconds)
{
    motet_result result = motet_api_comm_ready("motet_comm_set_timeout", comm);

    if (result == MOTET_OK)
        atomic_store(&motet_api_handle(comm)->engine.timeout_ns,
                seconds * MOTET_NS_PER_S);
    return motet_api_report_comm(comm, result);
}

void motet_api_answer(void *to, const void *from, size_t own_size)
{
    size_t size;

    memcpy(&size, to, sizeof(size));
    size = size < own_size ? size : own_size;
    memcpy((char *)to + sizeof(size), (const char *)from + sizeof(size),
            size - sizeof(size));
}

motet_result motet_api_check_size(const char *call, const void *info)
{
    size_t size = 0;

    if (info == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : info argument is NULL", call);
    memcpy(&size, info, sizeof(size));
    if (size < sizeof(size))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : info was not initialized, its size is %zu", call, size);
    return MOTET_OK;
}

MOTET_API ncclResult_t motet_comm_query(ncclComm_t comm, motet_comm_info_t *info)
{
    motet_comm *c = motet_api_handle(comm);
    motet_comm_info_t own = MOTET_COMM_INFO_INITIALIZER;
    motet_result result = motet_api_comm("motet_comm_query", comm);

    if (result == MOTET_OK)
        result = motet_api_check_size("motet_comm_query", info);
    if (result == MOTET_OK)
        result = await_start(c);
    if (result != MOTET_OK)
        return motet_api_report_comm(comm, result);
    own.rank = c->rank;
    own.nranks = c->nranks;
    own.nodes = 1;
    own.device = c->gpu_device != NULL ? MOTET_DEVICE_GPU : MOTET_DEVICE_CPU;
    own.ordinal = c->ordinal;
    own.number = c->number;
    own.operations =
            c->recorder.file != NULL ? atomic_load(&c->recorder.file->begun) : 0;
    snprintf(own.path, sizeof(own.path), "%s", motet_comm_path_name(c));
    snprintf(own.version, sizeof(own.version), "%s", MOTET_VERSION);
    snprintf(own.recorder, sizeof(own.recorder), "%s", c->recorder.path);
    motet_api_answer(info, &own, sizeof(own));
    return ncclSuccess;
}

/* Operations as motet bench spells them, where that is not their name. */
static const struct {
    const char *word;
    motet_kind kind;
} spellings[] = {
    { "alltoall", MOTET_ALL_TO_ALL },
    { "alltoallv", MOTET_ALL_TO_ALL_V },
    { "sendrecv", MOTET_SEND },
    { "hypercube", MOTET_SEND },
};

static bool find_kind(const char *operation, motet_kind *out)
{
    for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); i++)
        if (strcmp(operation, spellings[i].word) == 0) {
            *out = spellings[i].kind;
            return true;
        }
    for (int k = 0; k < MOTET_NUM_KINDS; k++)
        if (strcmp(operation, motet_kind_table[k].name) == 0) {
            *out = (motet_kind)k;
            return true;
        }
    return false;
}

/* The call as an operation, as far as a plan depends on it. */
static motet_result describe_call(motet_comm *comm, const char *operation, size_t count,
        ncclDataType_t datatype, ncclRedOp_t redop, motet_op *out)
{
    motet_kind kind;

    if (operation == NULL || !find_kind(operation, &kind))
        return motet_fail(MOTET_ERR_ARGUMENT, "motet_explain : '%s' is no operation",
                operation != NULL ? operation : "");
    if ((int)datatype < 0 || (int)datatype >= MOTET_NUM_TYPES)
        return motet_fail(MOTET_ERR_ARGUMENT, "motet_explain : invalid type %d",
                (int)datatype);
    if (count > SIZE_MAX / 4096)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "motet_explain : count %zu is more than memory can hold", count);
    *out = (motet_op){ .kind = kind,
        .type = (motet_type)datatype,
        .count = count,
        .root = motet_kind_table[kind].rooted     ? 0
                : motet_kind_table[kind].pairwise ? (comm->rank + 1) % comm->nranks
                                                  : -1 };
    if (motet_kind_table[kind].reduces)
        out->redop = (int)redop >= 0 && (int)redop < MOTET_NUM_BUILTIN_REDOPS
                ? (motet_redop)redop
                : MOTET_PREMUL_SUM;
    return MOTET_OK;
}

MOTET_API ncclResult_t motet_explain(ncclComm_t comm, const char *operation,
        size_t count, ncclDataType_t datatype, ncclRedOp_t op, char *text, size_t bytes)
{
    motet_comm *c = motet_api_handle(comm);
    motet_result result = motet_api_comm("motet_explain", comm);
    motet_op call;

    if (result == MOTET_OK && (text == NULL || bytes == 0))
        result = motet_fail(MOTET_ERR_ARGUMENT, "motet_explain : no room for the text");
    if (result == MOTET_OK)
        result = await_start(c);
    if (result == MOTET_OK)
        result = describe_call(c, operation, count, datatype, op, &call);
    if (result == MOTET_OK)
        result = motet_comm_explain(c, &call, text, bytes);
    return motet_api_report_comm(comm, result);
}

static motet_result describe_device(motet_device kind, int ordinal,
        motet_device_info_t *own)
{
    const motet_device_ops *device;
    motet_device_info described;
    motet_result result = motet_device_choose_now((motet_device_choice)kind, &device);

    if (result == MOTET_OK)
        result = device->describe(ordinal, &described);
    if (result == MOTET_OK)
        result = device->count(&own->count);
    if (result != MOTET_OK)
        return result;
    own->device = MOTET_DEVICE_CPU;
    own->ordinal = ordinal;
    own->memory_bytes = described.memory_bytes;
    snprintf(own->name, sizeof(own->name), "%s", described.name);
    snprintf(own->identity, sizeof(own->identity), "%s", described.identity);
    return MOTET_OK;
}

MOTET_API ncclResult_t motet_device_query(motet_device device, int ordinal,
        motet_device_info_t *info)
{
    motet_device_info_t own = MOTET_DEVICE_INFO_INITIALIZER;
    motet_result result = motet_api_check_size("motet_device_query", info);

    if (result == MOTET_OK && ((int)device < 0 || device > MOTET_DEVICE_GPU))
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "motet_device_query : device is %d, need 0..2", (int)device);
    if (result == MOTET_OK)
        result = describe_device(device, ordinal, &own);
    if (result == MOTET_OK)
        motet_api_answer(info, &own, sizeof(own));
    return motet_api_report(result);
}

MOTET_API const char *motet_version(void)
{
    return MOTET_VERSION;
}
