/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of peer.h on MPI: built once with Open MPI's and once with MPICH's compiler. */
#include "peer.h"

#include <mpi.h>
#include <stdlib.h>

static int nranks;

static void run(enum peer_op op, const void *send, void *recv, size_t bytes, int root)
{
    int part = (int)(bytes / (size_t)nranks), got;

    switch (op) {
    case PEER_ALL_REDUCE:
        got = MPI_Allreduce(send, recv, (int)(bytes / sizeof(float)), MPI_FLOAT,
                MPI_SUM, MPI_COMM_WORLD);
        break;
    case PEER_ALL_GATHER:
        got = MPI_Allgather(send, part, MPI_BYTE, recv, part, MPI_BYTE, MPI_COMM_WORLD);
        break;
    case PEER_BROADCAST:
        got = MPI_Bcast(recv, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        break;
    default:
        got = MPI_Alltoall(send, part, MPI_BYTE, recv, part, MPI_BYTE, MPI_COMM_WORLD);
    }
    if (got != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    struct peer peer = { .run = run };
    int status;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.nranks);
    nranks = peer.nranks;
    status = peer_main(&peer, argc, argv);
    MPI_Finalize();
    return status;
}
