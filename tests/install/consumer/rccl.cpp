/* SPDX-License-Identifier: Apache-2.0 */
/* A program written for RCCL: its spellings, its feature macros, its C++ function. */
#include <rccl/rccl.h>

#include <cstdio>

int main()
{
    const int ranks = 2;
    int send[ranks][ranks] = { { 1, 2 }, { 3, 4 } }, recv[ranks][ranks] = {};
    std::unordered_map<std::string, std::string> map{ { "key", "value" } };
    ncclComm_t comm[ranks];
    hipStream_t stream = nullptr;

    if (ncclCommInitAll(comm, ranks, nullptr) != ncclSuccess)
        return 1;
    ncclGroupStart();
    for (int rank = 0; rank < ranks; rank++)
        ncclAllToAll(send[rank], recv[rank], 1, ncclInt, comm[rank], stream);
    if (ncclGroupEnd() != ncclSuccess) {
        std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
        return 1;
    }
    if (ncclCommDump(comm[0], map) != ncclSuccess || map.size() != 1 ||
            map["key"] != "value")
        return 1;
    for (int rank = 0; rank < ranks; rank++)
        ncclCommDestroy(comm[rank]);
    return recv[0][0] != 1 || recv[0][1] != 3 || recv[1][0] != 2 || recv[1][1] != 4;
}
