/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: check the arguments in NCCL's order (api.md 1.6), then run, or add to
 * the group. What differs between the calls is in the motet_op that each fills.
 */
#include "api/config.h"
#include "api/export.h"
#include "api/internal.h"
#include "comm/gpu.h"

#include <stdint.h>

/* NCCL's numbers are ours. */
_Static_assert((int)ncclInt8 == (int)MOTET_INT8 &&
                (int)ncclFloat64 == (int)MOTET_FLOAT64 &&
                (int)ncclBfloat16 == (int)MOTET_BFLOAT16 &&
                (int)ncclFloat8e5m2 == (int)MOTET_FLOAT8E5M2 &&
                (int)ncclNumTypes == (int)MOTET_NUM_TYPES,
        "types");
_Static_assert((int)ncclSum == (int)MOTET_SUM && (int)ncclProd == (int)MOTET_PROD &&
                (int)ncclMax == (int)MOTET_MAX && (int)ncclMin == (int)MOTET_MIN &&
                (int)ncclAvg == (int)MOTET_AVG &&
                (int)ncclNumOps == MOTET_NUM_BUILTIN_REDOPS,
        "operators");

/* A call as it came in. */
typedef struct call {
    motet_op op;
    int redop;  /* the caller's handle                                  */
    int slices; /* the larger buffer holds this many times op.count; 0 = nranks */
    ncclComm_t comm;
    const void *stream;
} call;

static motet_result check_redop(call *c)
{
    const motet_made_redop *made;

    if (!motet_kind_table[c->op.kind].reduces)
        return MOTET_OK;
    if (c->redop < 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : invalid reduction operation %d",
                motet_kind_table[c->op.kind].api_name, c->redop);
    if (c->redop < MOTET_NUM_BUILTIN_REDOPS) {
        c->op.redop = (motet_redop)c->redop;
        return MOTET_OK;
    }
    made = motet_redop_find(motet_api_handle(c->comm), c->redop);
    if (made == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : reduction operation %d unknown to this communicator",
                motet_kind_table[c->op.kind].api_name, c->redop);
    if (made->type != c->op.type)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : data type %s differs from that of the operator, %s",
                motet_kind_table[c->op.kind].api_name,
                motet_type_table[c->op.type].name, motet_type_table[made->type].name);
    c->op.redop = MOTET_PREMUL_SUM;
    c->op.scalar = made->scalar;
    c->op.scalar_ptr = made->scalar_ptr;
    return MOTET_OK;
}

/* A count whose buffers would not fit into an address space is a mistake. */
static motet_result check_count(const call *c, int nranks)
{
    size_t slices = c->slices != 0 ? (size_t)c->slices : (size_t)nranks;

    if (c->op.count > SIZE_MAX / 2 / motet_type_table[c->op.type].bytes / slices)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : count %zu is more than memory can hold",
                motet_kind_table[c->op.kind].api_name, c->op.count);
    return MOTET_OK;
}

/* Buffers that this rank's part of the operation touches may not be NULL. */
static motet_result check_buffers(const call *c, motet_comm *comm)
{
    motet_kind kind = c->op.kind;
    bool root = comm->rank == c->op.root;
    bool sends = kind == MOTET_RECV                            ? false
            : kind == MOTET_BROADCAST || kind == MOTET_SCATTER ? root
                                                               : true;
    bool receives = kind == MOTET_SEND                     ? false
            : kind == MOTET_REDUCE || kind == MOTET_GATHER ? root
                                                           : true;

    if (c->op.count == 0)
        return MOTET_OK;
    if (sends && c->op.send == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : sendbuff argument is NULL",
                motet_kind_table[kind].api_name);
    if (receives && c->op.recv == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : recvbuff argument is NULL",
                motet_kind_table[kind].api_name);
    return comm->gpu_device != NULL && comm->check_pointers
            ? motet_comm_gpu_check_buffers(comm, &c->op)
            : MOTET_OK;
}

static motet_result check(call *c)
{
    const motet_kind_info *kind = &motet_kind_table[c->op.kind];
    motet_result result = motet_api_comm_ready(kind->api_name, c->comm);
    motet_comm *comm = motet_api_handle(c->comm);

    if (result != MOTET_OK)
        return result;
    if (kind->rooted && (c->op.root < 0 || c->op.root >= comm->nranks))
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : invalid %s %d, need 0..%d",
                kind->api_name, kind->pairwise ? "peer" : "root", c->op.root,
                comm->nranks - 1);
    if ((int)c->op.type < 0 || c->op.type >= MOTET_NUM_TYPES)
        return motet_fail(MOTET_ERR_ARGUMENT, "%s : invalid type %d, need 0..%d",
                kind->api_name, (int)c->op.type, MOTET_NUM_TYPES - 1);
    result = check_redop(c);
    if (result == MOTET_OK)
        result = motet_comm_check_fp8(comm, &c->op);
    if (result == MOTET_OK)
        result = check_count(c, comm->nranks);
    if (result == MOTET_OK)
        result = check_buffers(c, comm);
    if (result == MOTET_OK)
        result = comm->device->stream_check(c->stream);
    return result;
}

static motet_result dispatch(call *c)
{
    motet_comm *comm = motet_api_handle(c->comm);
    motet_result result = check(c);

    if (result == MOTET_OK && !motet_group_open() &&
            comm->device->stream_blocks(c->stream))
        return motet_comm_run(comm, &c->op);
    if (result == MOTET_OK && motet_group_open())
        return motet_group_add(comm, &c->op, c->stream);
    if (result == MOTET_OK) {
        motet_batch *batch;

        MOTET_TRY(motet_batch_get(comm, &batch), "%s",
                motet_kind_table[c->op.kind].api_name);
        result = motet_batch_add(batch, &c->op, c->stream);
        if (result == MOTET_OK)
            return motet_launch_group(batch);
        motet_batch_drop(batch);
    }
    if (motet_group_open())
        motet_group_note(result);
    return result;
}

static ncclResult_t issue(call *c)
{
    motet_result result = dispatch(c);

    return __builtin_expect(result == MOTET_OK, 1)
            ? ncclSuccess
            : motet_api_report_comm(c->comm, result);
}

/* A call that cannot be made, also not at the end of the open group. */
static ncclResult_t refuse(ncclComm_t comm, motet_result result)
{
    if (motet_group_open())
        motet_group_note(result);
    return motet_api_report_comm(comm, result);
}

/* The same with the options of one call. */
static ncclResult_t issue_configured(call *c, const ncclCollConfig_t *config)
{
    motet_call_config options;
    motet_result result = motet_call_config_parse(config, &options);

    if (result != MOTET_OK)
        return refuse(c->comm, result);
    if (options.has_timeout)
        c->op.timeout_ms = options.timeout_ms == 0 ? UINT32_MAX : options.timeout_ms;
    return issue(c);
}

/* clang-format off */
#define OP(kind_, send_, recv_, count_, type_, root_) \
    { .kind = (kind_), .send = (send_), .recv = (recv_), .count = (count_), \
      .type = (motet_type)(type_), .root = (root_) }
/* clang-format on */

static call all_reduce(const void *send, void *recv, size_t count, ncclDataType_t type,
        ncclRedOp_t op, ncclComm_t comm, const void *stream)
{
    return (call){ OP(MOTET_ALL_REDUCE, send, recv, count, type, -1), (int)op, 1, comm,
        stream };
}

static call reduce(const void *send, void *recv, size_t count, ncclDataType_t type,
        ncclRedOp_t op, int root, ncclComm_t comm, const void *stream)
{
    return (call){ OP(MOTET_REDUCE, send, recv, count, type, root), (int)op, 1, comm,
        stream };
}

static call reduce_scatter(const void *send, void *recv, size_t count,
        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, const void *stream)
{
    return (call){ OP(MOTET_REDUCE_SCATTER, send, recv, count, type, -1), (int)op, 0,
        comm, stream };
}

/* Kinds that only move data; @p slices as in call. */
static call move(motet_kind kind, const void *send, void *recv, size_t count,
        ncclDataType_t type, int root, int slices, ncclComm_t comm, const void *stream)
{
    return (call){ OP(kind, send, recv, count, type, root), 0, slices, comm, stream };
}

MOTET_API ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream)
{
    call c = all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclAllReduce, pncclAllReduce);

MOTET_API ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclAllReduceConfig, pncclAllReduceConfig);

MOTET_API ncclResult_t pncclAllReduceWithBias(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream, const void *acc)
{
    call c = all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    motet_result result = motet_api_comm_ready("AllReduceWithBias", comm);

    if (result == MOTET_OK && acc == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "AllReduceWithBias : acc argument is NULL");
    if (result != MOTET_OK)
        return refuse(comm, result);
    c.op.bias = acc;
    return issue(&c);
}
MOTET_ALIAS(ncclAllReduceWithBias, pncclAllReduceWithBias);

MOTET_API ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
        ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
        cudaStream_t stream)
{
    call c = reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclReduce, pncclReduce);

MOTET_API ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclReduceConfig, pncclReduceConfig);

MOTET_API ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff,
        size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream)
{
    call c = reduce_scatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclReduceScatter, pncclReduceScatter);

MOTET_API ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff,
        size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = reduce_scatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclReduceScatterConfig, pncclReduceScatterConfig);

MOTET_API ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
        cudaStream_t stream)
{
    call c = move(MOTET_BROADCAST, sendbuff, recvbuff, count, datatype, root, 1, comm,
            stream);

    return issue(&c);
}
MOTET_ALIAS(ncclBroadcast, pncclBroadcast);

MOTET_API ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
        cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = move(MOTET_BROADCAST, sendbuff, recvbuff, count, datatype, root, 1, comm,
            stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclBroadcastConfig, pncclBroadcastConfig);

MOTET_API ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_BROADCAST, buff, buff, count, datatype, root, 1, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclBcast, pncclBcast);

MOTET_API ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff,
        size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, -1, 0,
            comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclAllGather, pncclAllGather);

MOTET_API ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff,
        size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
        const ncclCollConfig_t *config)
{
    call c = move(MOTET_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, -1, 0,
            comm, stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclAllGatherConfig, pncclAllGatherConfig);

MOTET_API ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
        ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, -1, 0, comm,
            stream);

    return issue(&c);
}
MOTET_ALIAS(ncclAlltoAll, pncclAlltoAll);

MOTET_API ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
        const ncclCollConfig_t *config)
{
    call c = move(MOTET_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, -1, 0, comm,
            stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclAlltoAllConfig, pncclAlltoAllConfig);

/* RCCL's older spelling. */
MOTET_API ncclResult_t pncclAllToAll(const void *sendbuff, void *recvbuff, size_t count,
        ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, -1, 0, comm,
            stream);

    return issue(&c);
}
MOTET_ALIAS(ncclAllToAll, pncclAllToAll);

MOTET_API ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
        ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_GATHER, sendbuff, recvbuff, count, datatype, root, 0, comm,
            stream);

    return issue(&c);
}
MOTET_ALIAS(ncclGather, pncclGather);

MOTET_API ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
        cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = move(MOTET_GATHER, sendbuff, recvbuff, count, datatype, root, 0, comm,
            stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclGatherConfig, pncclGatherConfig);

MOTET_API ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
        ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_SCATTER, sendbuff, recvbuff, count, datatype, root, 0, comm,
            stream);

    return issue(&c);
}
MOTET_ALIAS(ncclScatter, pncclScatter);

MOTET_API ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff,
        size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
        cudaStream_t stream, const ncclCollConfig_t *config)
{
    call c = move(MOTET_SCATTER, sendbuff, recvbuff, count, datatype, root, 0, comm,
            stream);

    return issue_configured(&c, config);
}
MOTET_ALIAS(ncclScatterConfig, pncclScatterConfig);

MOTET_API ncclResult_t pncclSend(const void *sendbuff, size_t count,
        ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_SEND, sendbuff, NULL, count, datatype, peer, 1, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclSend, pncclSend);

MOTET_API ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype,
        int peer, ncclComm_t comm, cudaStream_t stream)
{
    call c = move(MOTET_RECV, NULL, recvbuff, count, datatype, peer, 1, comm, stream);

    return issue(&c);
}
MOTET_ALIAS(ncclRecv, pncclRecv);

/* Every pair of ranks exchanges one message, perhaps of nothing: only the two ends know
 * its size, so a size that the other end does not expect is found by them. */
static motet_result all_to_all_v(const uint8_t *send, const size_t *sendcounts,
        const size_t *sdispls, uint8_t *recv, const size_t *recvcounts,
        const size_t *rdispls, ncclDataType_t type, ncclComm_t comm, const void *stream)
{
    size_t element;
    motet_result result = motet_api_comm_ready("AlltoAllv", comm);

    if (result != MOTET_OK)
        return result;
    if ((int)type < 0 || type >= ncclNumTypes)
        return motet_fail(MOTET_ERR_ARGUMENT, "AlltoAllv : invalid type %d, need 0..%d",
                (int)type, MOTET_NUM_TYPES - 1);
    if (sendcounts == NULL || sdispls == NULL || recvcounts == NULL || rdispls == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "AlltoAllv : a list of counts or displacements is NULL");
    element = motet_type_table[type].bytes;
    motet_group_start();
    for (int r = 0; r < motet_api_handle(comm)->nranks && result == MOTET_OK; r++) {
        call s = move(MOTET_SEND, send == NULL ? NULL : send + sdispls[r] * element,
                NULL, sendcounts[r], type, r, 1, comm, stream);
        call t = move(MOTET_RECV, NULL,
                recv == NULL ? NULL : recv + rdispls[r] * element, recvcounts[r], type,
                r, 1, comm, stream);

        result = dispatch(&s);
        if (result == MOTET_OK)
            result = dispatch(&t);
    }
    return motet_group_end();
}

MOTET_API ncclResult_t pncclAlltoAllv(const void *sendbuff, const size_t sendcounts[],
        const size_t sdispls[], void *recvbuff, const size_t recvcounts[],
        const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
        cudaStream_t stream)
{
    motet_result result = all_to_all_v(sendbuff, sendcounts, sdispls, recvbuff,
            recvcounts, rdispls, datatype, comm, stream);

    return result == MOTET_OK ? ncclSuccess : refuse(comm, result);
}
MOTET_ALIAS(ncclAlltoAllv, pncclAlltoAllv);

/* RCCL's older spelling. */
MOTET_API ncclResult_t pncclAllToAllv(const void *sendbuff, const size_t sendcounts[],
        const size_t sdispls[], void *recvbuff, const size_t recvcounts[],
        const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
        cudaStream_t stream)
{
    motet_result result = all_to_all_v(sendbuff, sendcounts, sdispls, recvbuff,
            recvcounts, rdispls, datatype, comm, stream);

    return result == MOTET_OK ? ncclSuccess : refuse(comm, result);
}
MOTET_ALIAS(ncclAllToAllv, pncclAllToAllv);
