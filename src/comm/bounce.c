/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy path: no kernel of ours runs. The runtime copies what an operation reads into
 * host memory, the host executor runs it as for CPU ranks, the runtime copies the result
 * back. The call returns when the result is there, so it cannot be captured.
 */
#include "comm/gpu.h"

#include <stdlib.h>
#include <string.h>

/* Host stand-ins of one operation. */
typedef struct bounce {
    motet_op op; /* with host addresses */
    size_t send_bytes, recv_bytes;
    uint8_t *send, *recv, *bias;
} bounce;

static motet_result copy(motet_comm *comm, void *dst, const void *src, size_t bytes)
{
    const motet_gpu_ops *ops = comm->device->gpu;

    if (bytes == 0)
        return MOTET_OK;
    MOTET_TRY(ops->copy(comm->gpu_device, (uint64_t)(uintptr_t)dst,
                      (uint64_t)(uintptr_t)src, bytes, comm->copies),
            "copy %zu bytes", bytes);
    return ops->stream_sync(comm->gpu_device, comm->copies);
}

static motet_result fetch(motet_comm *comm, uint8_t **host, const void *device,
        size_t bytes)
{
    *host = malloc(bytes != 0 ? bytes : 1);
    if (*host == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "host copy of %zu bytes", bytes);
    return device == NULL ? MOTET_OK : copy(comm, *host, device, bytes);
}

/* Bring in what @p given reads. */
static motet_result bring_in(motet_comm *comm, const motet_op *given, bounce *b)
{
    size_t bytes = motet_op_bytes(given), send, recv;

    motet_op_pieces(given, comm->rank, comm->nranks, &send, &recv);
    b->op = *given;
    b->send_bytes = send * bytes;
    b->recv_bytes = recv * bytes;
    MOTET_TRY(fetch(comm, &b->send, given->send, b->send_bytes), "send buffer");
    MOTET_TRY(fetch(comm, &b->recv, NULL, b->recv_bytes), "receive buffer");
    b->op.send = b->send;
    b->op.recv = b->recv;
    if (given->bias != NULL) {
        MOTET_TRY(fetch(comm, &b->bias, given->bias, bytes), "bias");
        b->op.bias = b->bias;
    }
    if (given->scalar_ptr != NULL) {
        b->op.scalar_ptr = NULL;
        MOTET_TRY(copy(comm, &b->op.scalar, given->scalar_ptr,
                          motet_type_table[given->type].bytes),
                "scalar");
    }
    return MOTET_OK;
}

static void drop(bounce *b)
{
    free(b->send);
    free(b->recv);
    free(b->bias);
}

static motet_result collective(motet_comm *comm, const motet_op *op)
{
    bounce b = { 0 };
    motet_result result = bring_in(comm, op, &b);

    if (result == MOTET_OK)
        result = motet_engine_collective(&comm->engine, &b.op);
    if (result == MOTET_OK)
        result = copy(comm, op->recv, b.recv, b.recv_bytes);
    drop(&b);
    return result;
}

static motet_result transfers(motet_comm *comm, motet_transfer *given, int count)
{
    bounce *b = calloc((size_t)count, sizeof(*b));
    motet_transfer *host = calloc((size_t)count, sizeof(*host));
    motet_result result = MOTET_OK;

    if (b == NULL || host == NULL)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "group of %d transfers", count);
    for (int i = 0; i < count && result == MOTET_OK; i++) {
        result = bring_in(comm, &given[i].op, &b[i]);
        host[i].op = b[i].op;
    }
    if (result == MOTET_OK)
        result = motet_engine_pairs(&comm->engine, host, count);
    for (int i = 0; i < count && result == MOTET_OK; i++)
        result = copy(comm, given[i].op.recv, b[i].recv, b[i].recv_bytes);
    for (int i = 0; b != NULL && i < count; i++)
        drop(&b[i]);
    free(b);
    free(host);
    return result;
}

/* What the streams hold before this must have run. */
static motet_result await_streams(motet_comm *comm, const motet_batch *batch)
{
    const motet_gpu_ops *ops = comm->device->gpu;

    for (int i = 0; i < batch->streams; i++) {
        void *stream = (void *)(uintptr_t)batch->stream[i];
        motet_stream_state state;

        MOTET_TRY(ops->stream_state(comm->gpu_device, stream, &state), "stream");
        if (state.capturing)
            return motet_fail(MOTET_ERR_USAGE,
                    "a communicator on the copy path cannot be captured in a graph");
        MOTET_TRY(ops->stream_sync(comm->gpu_device, stream), "stream");
    }
    if (comm->copies == NULL)
        return ops->stream_create(comm->gpu_device, false, &comm->copies);
    return MOTET_OK;
}

motet_result motet_comm_bounce(motet_comm *comm, motet_batch *batch)
{
    motet_result result = await_streams(comm, batch);

    for (int i = 0; i < batch->collectives && result == MOTET_OK; i++)
        result = collective(comm, &batch->collective[i]);
    if (result == MOTET_OK && batch->transfers != 0)
        result = transfers(comm, batch->transfer, batch->transfers);
    if (result == MOTET_OK || atomic_load(&comm->engine.stop) != 0)
        return result;
    return motet_engine_fail(&comm->engine, result, comm->rank,
            "rank %d cannot run its part: %s", comm->rank, motet_error_trail());
}
