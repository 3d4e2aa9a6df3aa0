/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest whole program: every rank brings its number plus one, all get the sum.
 *
 *     motet run -n 4 -- ./allreduce
 */
#include "launch.h"

int main(void)
{
    int rank = launch_number("RANK", 0), nranks = launch_number("WORLD_SIZE", 1);
    float x = (float)(rank + 1), want = (float)(nranks * (nranks + 1) / 2);
    ncclUniqueId id;
    ncclComm_t comm;

    launch_meet();
    launch_check(rank, "ncclGetUniqueId", ncclGetUniqueId(&id));
    launch_check(rank, "ncclCommInitRank", ncclCommInitRank(&comm, nranks, id, rank));
    launch_check(rank, "ncclAllReduce",
            ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
    launch_check(rank, "ncclCommDestroy", ncclCommDestroy(comm));

    printf("rank %d of %d: the sum is %g\n", rank, nranks, (double)x);
    return x == want ? EXIT_SUCCESS : EXIT_FAILURE;
}
