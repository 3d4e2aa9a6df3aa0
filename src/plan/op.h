/* SPDX-License-Identifier: Apache-2.0 */
/* An operation as a rank asks for it: what api makes, comm stamps, plan reads and
 * engine runs. */
#ifndef MOTET_PLAN_OP_H
#define MOTET_PLAN_OP_H

#include "base/types.h"

#include <stdint.h>

typedef struct motet_op {
    motet_kind kind;
    motet_type type;
    motet_redop
            redop; /* MOTET_SUM where the kind does not reduce                       */
    int root;      /* root of a rooted collective, peer of SEND and RECV, else −1     */
    const void
            *send; /* caller's, valid until the operation has run                     */
    void *recv;
    size_t count; /* elements, as the API counts them for this kind                       */
    const void *bias; /* ALL_REDUCE only: added on each rank; NULL none             */
    const void *
            scalar_ptr; /* PREMUL_SUM: where the factor is read when it runs, or NULL */
    uint64_t scalar;    /* PREMUL_SUM: the factor's bytes if scalar_ptr is NULL       */
    uint32_t
            timeout_ms; /* 0 = the communicator's                                     */
} motet_op;

/** Bytes of the send and of the receive buffer of @p op on any rank that has one. */
static inline size_t motet_op_bytes(const motet_op *op)
{
    return op->count * motet_type_table[op->type].bytes;
}

/** Pieces of motet_op_bytes() each that @p op reads and writes on @p rank of @p nranks. */
void motet_op_pieces(const motet_op *op, int rank, int nranks, size_t *send_out,
        size_t *recv_out);

#endif
