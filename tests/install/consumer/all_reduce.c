/* SPDX-License-Identifier: Apache-2.0 */
/* A program written for NCCL, in C: nothing but nccl.h. Two ranks in one thread. */
#include <nccl.h>

#include <stdio.h>

#define RANKS 2
#define COUNT 4314

static float input[RANKS][COUNT], output[RANKS][COUNT];

static int check(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return 0;
    fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result),
            ncclGetLastError(NULL));
    return 1;
}

int main(void)
{
    ncclComm_t comm[RANKS];
    int version = 0, wrong = 0, rank, i;

    if (check(ncclGetVersion(&version), "ncclGetVersion") ||
            check(ncclCommInitAll(comm, RANKS, NULL), "ncclCommInitAll"))
        return 1;
    for (rank = 0; rank < RANKS; rank++) {
        for (i = 0; i < COUNT; i++)
            input[rank][i] = (float)(i + rank);
    }
    if (check(ncclGroupStart(), "ncclGroupStart"))
        return 1;
    for (rank = 0; rank < RANKS; rank++) {
        if (check(ncclAllReduce(input[rank], output[rank], COUNT, ncclFloat, ncclSum,
                          comm[rank], NULL),
                    "ncclAllReduce"))
            return 1;
    }
    if (check(ncclGroupEnd(), "ncclGroupEnd"))
        return 1;
    for (rank = 0; rank < RANKS; rank++) {
        for (i = 0; i < COUNT; i++)
            wrong += output[rank][i] != (float)(2 * i + 1);
        if (check(ncclCommDestroy(comm[rank]), "ncclCommDestroy"))
            return 1;
    }
    printf("version %d, %d of %d values wrong\n", version, wrong, RANKS * COUNT);
    return wrong != 0 || version != NCCL_VERSION_CODE;
}
