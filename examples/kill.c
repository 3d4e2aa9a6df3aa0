/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a death looks like from the other ranks: all reduce without end, until the rank
 * that is named kills itself with SIGKILL, half a second after the start. The survivors
 * print what the library says and how long they took to notice.
 *
 *     motet run -n 3 -- ./kill 1
 */
#include "launch.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 4096 };

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/** Reduce until a call fails, or, on the victim, until it is time to die. */
static ncclResult_t reduce_until(ncclComm_t comm, double death)
{
    static float data[COUNT];
    ncclResult_t result;

    do {
        if (death > 0 && seconds() > death)
            kill(getpid(), SIGKILL);
        result = ncclAllReduce(data, data, COUNT, ncclFloat, ncclMax, comm, NULL);
    } while (result == ncclSuccess);
    return result;
}

int main(int argc, char **argv)
{
    int rank = launch_number("RANK", 0), nranks = launch_number("WORLD_SIZE", 1);
    int victim = argc > 1 ? (int)strtol(argv[1], NULL, 10) : nranks - 1;
    double begin;
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t result;

    /* `motet run` ends the other ranks when one has failed; here they are to speak first. */
    signal(SIGTERM, SIG_IGN);
    launch_meet();
    launch_check(rank, "ncclGetUniqueId", ncclGetUniqueId(&id));
    launch_check(rank, "ncclCommInitRank", ncclCommInitRank(&comm, nranks, id, rank));

    begin = seconds();
    result = reduce_until(comm, rank == victim ? begin + 0.5 : 0);
    printf("rank %d: %s after %.2f s: %s\n", rank, ncclGetErrorString(result),
            seconds() - begin, ncclGetLastError(comm));
    fflush(stdout);
    ncclCommAbort(comm);
    return EXIT_FAILURE;
}
