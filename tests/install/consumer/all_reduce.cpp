/* SPDX-License-Identifier: Apache-2.0 */
/* A program written for NCCL, in C++: nothing but nccl.h. Two ranks in two threads. */
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

static const int ranks = 2;
static std::atomic<int> wrong{ 0 };

static void run(int rank, ncclUniqueId id)
{
    std::vector<int64_t> data(65537);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NCCL_COMM_NULL;
    ncclResult_t result;

    for (size_t i = 0; i < data.size(); i++)
        data[i] = static_cast<int64_t>(i) * (rank + 1);
    config.blocking = 1;
    result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    if (result == ncclSuccess)
        result = ncclAllReduce(data.data(), data.data(), data.size(), ncclInt64,
                ncclSum, comm, nullptr);
    if (result != ncclSuccess) {
        std::fprintf(stderr, "rank %d: %s: %s\n", rank, ncclGetErrorString(result),
                ncclGetLastError(comm));
        wrong++;
    }
    for (size_t i = 0; i < data.size(); i++)
        wrong += data[i] != static_cast<int64_t>(i) * 3;
    wrong += ncclCommDestroy(comm) != ncclSuccess;
}

int main()
{
    std::vector<std::thread> threads;
    ncclUniqueId id;

    if (ncclGetUniqueId(&id) != ncclSuccess)
        return 1;
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back(run, rank, id);
    for (std::thread &thread : threads)
        thread.join();
    std::printf("%d values wrong\n", wrong.load());
    return wrong != 0;
}
