/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every exported name that motet does not support: a client that was linked against it
 * must load, and learns at the call what is missing and what to do instead. One line
 * for each name; the parameters are those of NCCL 2.31 and RCCL, since a result that is
 * a structure, or an argument that is one, decides how a call is made.
 *
 * NCCL's device API (functions of nccl_device.h that run on the host) is exported but
 * declared nowhere: its structures belong to NCCL's kernels. Pointers to them are
 * void * here. Where a function has no status to return it returns nothing: an empty
 * team, no rank, no slot.
 */
#include "api/export.h"
#include "api/report.h"
#include "base/log.h"

/* The bodies below use no parameter, by intention. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static ncclResult_t unsupported(const char *name, const char *why)
{
    motet_result result =
            motet_fail(MOTET_ERR_USAGE, "%s is not supported: %s", name, why);

    return motet_api_report_text(result, motet_error_trail()); /* `why` is the remedy */
}

#define UNSUPPORTED(name, why, params)    \
    MOTET_API ncclResult_t p##name params \
    {                                     \
        return unsupported(#name, why);   \
    }                                     \
    MOTET_ALIAS(name, p##name)

/* A name without a twin. */
#define UNSUPPORTED_ALONE(name, why, params) \
    MOTET_API ncclResult_t name params       \
    {                                        \
        return unsupported(#name, why);      \
    }

/* A name that no header declares. */
#define UNDECLARED(name, why, params)      \
    MOTET_API ncclResult_t p##name params; \
    UNSUPPORTED(name, why, params)

/* Same, without a status. */
#define UNDECLARED_EMPTY(type, name, empty, params) \
    MOTET_API type p##name params;                  \
    MOTET_API type p##name params                   \
    {                                               \
        unsupported(#name, NO_DEVICE_API);          \
        return empty;                               \
    }                                               \
    MOTET_ALIAS(name, p##name)

#define ARENA_STAYS                                                                   \
    "a communicator's memory is one small arena that its peers have mapped; destroy " \
    "the communicator to give it back"
#define NO_SIGNALS "use ncclSend and ncclRecv inside a group"
#define OUR_PARAMS "`motet params` shows motet's parameters"
#define NO_MSCCL   "motet plans its own algorithms; MOTET_ALGO forces one"
#define NO_RCCL    "motet's algorithms are not RCCL's; `motet bench` shows what ran"
#define NO_DEVICE_API                                                                 \
    "motet has no device API; use host collectives, or a client's setting that does " \
    "not need nccl_device.h"

/* ------------------------------------------------------------ communicators */
/* clang-format off */

UNSUPPORTED(ncclCommSuspend, ARENA_STAYS, (ncclComm_t comm, int flags));
UNSUPPORTED(ncclCommResume,  ARENA_STAYS, (ncclComm_t comm));

/* ------------------------------------------------------- one-sided messages */

UNSUPPORTED(ncclPutSignal, NO_SIGNALS, (const void *localbuff, size_t count,
        ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset,
        int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream));
UNSUPPORTED(ncclSignal, NO_SIGNALS, (int peer, int sigIdx, int ctx, unsigned int flags,
        ncclComm_t comm, cudaStream_t stream));
UNSUPPORTED(ncclWaitSignal, NO_SIGNALS, (int nDesc, ncclWaitSignalDesc_t *signalDescs,
        ncclComm_t comm, cudaStream_t stream));

/* --------------------------------------------------------------- parameters */

UNSUPPORTED(ncclParamBind,   OUR_PARAMS, (ncclParamHandle_t *out, const char *key));
UNSUPPORTED(ncclParamGetI8,  OUR_PARAMS, (ncclParamHandle_t h, int8_t *out));
UNSUPPORTED(ncclParamGetI16, OUR_PARAMS, (ncclParamHandle_t h, int16_t *out));
UNSUPPORTED(ncclParamGetI32, OUR_PARAMS, (ncclParamHandle_t h, int32_t *out));
UNSUPPORTED(ncclParamGetI64, OUR_PARAMS, (ncclParamHandle_t h, int64_t *out));
UNSUPPORTED(ncclParamGetU8,  OUR_PARAMS, (ncclParamHandle_t h, uint8_t *out));
UNSUPPORTED(ncclParamGetU16, OUR_PARAMS, (ncclParamHandle_t h, uint16_t *out));
UNSUPPORTED(ncclParamGetU32, OUR_PARAMS, (ncclParamHandle_t h, uint32_t *out));
UNSUPPORTED(ncclParamGetU64, OUR_PARAMS, (ncclParamHandle_t h, uint64_t *out));
UNSUPPORTED(ncclParamGetStr, OUR_PARAMS, (ncclParamHandle_t h, const char **out));
UNSUPPORTED(ncclParamGet,    OUR_PARAMS, (ncclParamHandle_t h, void *out, int maxLen,
        int *len));
UNSUPPORTED(ncclParamGetParameter, OUR_PARAMS, (const char *key, const char **value,
        int *valueLen));
UNSUPPORTED(ncclParamGetAllParameterKeys, OUR_PARAMS, (const char ***table,
        int *tableLen));

MOTET_API void pncclParamDumpAll(void)
{
    motet_info(MOTET_SUB_ENV, "ncclParamDumpAll: %s", OUR_PARAMS);
}
MOTET_ALIAS(ncclParamDumpAll, pncclParamDumpAll);

/* ------------------------------------------------------------------ of RCCL */

UNSUPPORTED(mscclLoadAlgo, NO_MSCCL, (const char *mscclAlgoFilePath,
        mscclAlgoHandle_t *mscclAlgoHandle, int rank));
UNSUPPORTED(mscclRunAlgo, NO_MSCCL, (const void *sendBuff, const size_t sendCounts[],
        const size_t sDisPls[], void *recvBuff, const size_t recvCounts[],
        const size_t rDisPls[], size_t count, ncclDataType_t dataType, int root,
        int peer, ncclRedOp_t op, mscclAlgoHandle_t mscclAlgoHandle, ncclComm_t comm,
        cudaStream_t stream));
UNSUPPORTED(mscclUnloadAlgo, NO_MSCCL, (mscclAlgoHandle_t mscclAlgoHandle));

UNSUPPORTED_ALONE(rcclGetAlgoInfo, NO_RCCL, (ncclComm_t comm, int coll, uint64_t count,
        ncclDataType_t dataType, int collNetSupport, int nvlsSupport, int numPipeOps,
        int *algo, int *protocol, int *maxChannels))
UNSUPPORTED_ALONE(rcclGetCollImplInfo, NO_RCCL, (ncclComm_t comm, int coll,
        uint64_t count, ncclDataType_t dataType, ncclRedOp_t op, const void *sendbuff,
        void *recvbuff, int graphCapturing, int *algo, int *protocol, int *maxChannels))
UNSUPPORTED_ALONE(rcclGetAlgoName, NO_RCCL, (int algo, const char **name))
UNSUPPORTED_ALONE(rcclGetProtocolName, NO_RCCL, (int protocol, const char **name))

/* --------------------------------------------------------------- device API */

typedef struct team {
    int nRanks, rank, stride;
} team;

typedef struct multimem {
    void *base;
} multimem;

UNDECLARED(ncclCommQueryProperties, NO_DEVICE_API, (ncclComm_t comm, void *props));
UNDECLARED(ncclDevCommCreate, NO_DEVICE_API, (ncclComm_t comm, const void *reqs,
        void *outDevComm));
UNDECLARED(ncclDevCommDestroy, NO_DEVICE_API, (ncclComm_t comm, const void *devComm));
UNDECLARED(ncclGetLsaMultimemDevicePointer, NO_DEVICE_API, (ncclWindow_t window,
        size_t offset, void **outPtr));
UNDECLARED(ncclGetMultimemDevicePointer, NO_DEVICE_API, (ncclWindow_t window,
        size_t offset, multimem handle, void **outPtr));
UNDECLARED(ncclGetLsaDevicePointer, NO_DEVICE_API, (ncclWindow_t window, size_t offset,
        int lsaRank, void **outPtr));
UNDECLARED(ncclGetPeerDevicePointer, NO_DEVICE_API, (ncclWindow_t window, size_t offset,
        int peer, void **outPtr));
UNDECLARED(ncclGetPeerDeviceLeInfo, NO_DEVICE_API, (ncclWindow_t window, size_t offset,
        int peerWorld, void *leId, size_t *leOffset));
UNDECLARED(ncclGetMultimemDeviceLeInfo, NO_DEVICE_API, (ncclWindow_t window,
        size_t offset, void *leId, size_t *leOffset));
UNDECLARED(ncclLsaBarrierCreateRequirement, NO_DEVICE_API, (team peers, int nBarriers,
        void *outHandle, void *outReq));
UNDECLARED(ncclGinBarrierCreateRequirement, NO_DEVICE_API, (ncclComm_t comm, team peers,
        int nBarriers, void *outHandle, void *outReq));
UNDECLARED(ncclGinOutboxCreateRequirement, NO_DEVICE_API, (int nBlocks, int size_log2,
        void *outHandle, void *outReq));
UNDECLARED(ncclGinInboxA2ACreateRequirement, NO_DEVICE_API, (team peers, int nBlocks,
        int size_log2, void *outHandle, void *outReq));
UNDECLARED(ncclLLA2ACreateRequirement, NO_DEVICE_API, (int nBlocks, int nSlots,
        void *outHandle, void *outReq));

UNDECLARED_EMPTY(int, ncclLLA2ACalcSlots, 0, (int maxElts, int maxEltSize));
UNDECLARED_EMPTY(team, ncclTeamWorld, ((team){ 0, 0, 0 }), (ncclComm_t comm));
UNDECLARED_EMPTY(team, ncclTeamLsa,   ((team){ 0, 0, 0 }), (ncclComm_t comm));
UNDECLARED_EMPTY(team, ncclTeamRail,  ((team){ 0, 0, 0 }), (ncclComm_t comm));
UNDECLARED_EMPTY(int, ncclTeamRankToWorld, -1, (ncclComm_t comm, team peers, int rank));
UNDECLARED_EMPTY(int, ncclTeamRankToLsa,   -1, (ncclComm_t comm, team peers, int rank));
