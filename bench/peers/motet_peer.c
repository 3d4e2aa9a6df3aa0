/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of peer.h on motet, through nccl.h; started by `motet run -n N`. Where the last
 * argument ends in "windows", the buffers are ncclMemAlloc()'s and registered as windows,
 * so that ranks read them in place; otherwise they are ordinary memory. */
#define _GNU_SOURCE
#include "peer.h"

#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ncclComm_t comm;
static int nranks;

static void require(ncclResult_t got, const char *what)
{
    if (got == ncclSuccess)
        return;
    fprintf(stderr, "motet_peer: %s: %s\n", what, ncclGetLastError(comm));
    exit(1);
}

static void run(enum peer_op op, const void *send, void *recv, size_t bytes, int root)
{
    size_t part = bytes / (size_t)nranks;

    switch (op) {
    case PEER_ALL_REDUCE:
        require(ncclAllReduce(send, recv, bytes / sizeof(float), ncclFloat32, ncclSum,
                        comm, NULL),
                "all_reduce");
        break;
    case PEER_ALL_GATHER:
        require(ncclAllGather(send, recv, part, ncclInt8, comm, NULL), "all_gather");
        break;
    case PEER_BROADCAST:
        require(ncclBcast(recv, bytes, ncclInt8, root, comm, NULL), "broadcast");
        break;
    default:
        require(ncclAlltoAll(send, recv, part, ncclInt8, comm, NULL), "all_to_all");
    }
}

static void *allocate_window(size_t bytes)
{
    ncclWindow_t window;
    void *memory;

    require(ncclMemAlloc(&memory, bytes), "memory");
    require(ncclCommWindowRegister(comm, memory, bytes, &window,
                    NCCL_WIN_COLL_SYMMETRIC),
            "window");
    return memory;
}

/* The window goes with its communicator, which still has it when the memory goes. */
static void release_window(void *memory)
{
    require(ncclMemFree(memory), "free");
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    if (value == NULL) {
        fprintf(stderr, "motet_peer: %s is not set; start it by `motet run -n N`\n",
                name);
        exit(64);
    }
    return value;
}

/** One core for each rank where there are as many, as the launchers of MPI do. */
static void bind_to_core(int rank)
{
    cpu_set_t allowed, mine;
    int seen = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
            CPU_COUNT(&allowed) < nranks)
        return;
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank)
            CPU_SET(cpu, &mine);
    (void)sched_setaffinity(0, sizeof(mine), &mine);
}

int main(int argc, char **argv)
{
    struct peer peer = { .run = run };
    ncclUniqueId id;
    char address[256];
    int status;

    peer.rank = (int)strtol(variable("RANK"), NULL, 10);
    peer.nranks = nranks = (int)strtol(variable("WORLD_SIZE"), NULL, 10);
    bind_to_core(peer.rank);
    (void)snprintf(address, sizeof(address), "%s:%s", variable("MASTER_ADDR"),
            variable("MASTER_PORT"));
    (void)setenv("NCCL_COMM_ID", address, 1);
    require(ncclGetUniqueId(&id), "unique id");
    require(ncclCommInitRank(&comm, nranks, id, peer.rank), "init");
    if (argc > 1 && strstr(argv[argc - 1], "windows") != NULL) {
        peer.allocate = allocate_window;
        peer.release = release_window;
    }
    status = peer_main(&peer, argc, argv);
    require(ncclCommDestroy(comm), "destroy");
    return status;
}
