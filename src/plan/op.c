/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/op.h"

void motet_op_pieces(const motet_op *op, int rank, int nranks, size_t *send_out,
        size_t *recv_out)
{
    bool root = op->root == rank;
    size_t n = (size_t)nranks;

    *send_out = *recv_out = 1;
    switch (op->kind) {
    case MOTET_ALL_GATHER: *recv_out = n; break;
    case MOTET_REDUCE_SCATTER: *send_out = n; break;
    case MOTET_ALL_TO_ALL: *send_out = *recv_out = n; break;
    case MOTET_REDUCE: *recv_out = root; break;
    case MOTET_BROADCAST: *send_out = root; break;
    case MOTET_GATHER: *recv_out = root ? n : 0; break;
    case MOTET_SCATTER: *send_out = root ? n : 0; break;
    case MOTET_SEND: *recv_out = 0; break;
    case MOTET_RECV: *send_out = 0; break;
    default: break;
    }
}
