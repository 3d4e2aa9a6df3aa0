/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of memory, registration, windows, and of what is not supported. */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

static void memory_is_aligned_and_zeroed(multi_rank *rank)
{
    static const size_t sizes[] = { 1, 4095, 4096, 4097, 3u << 20 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned char *p = NULL;

        if (!multi_ok(rank, ncclMemAlloc((void **)&p, sizes[i]), "ncclMemAlloc"))
            continue;
        (void)multi_check(rank, (uintptr_t)p % NCCL_WIN_REQUIRED_ALIGNMENT == 0,
                "%zu bytes at %p are not aligned", sizes[i], (void *)p);
        (void)multi_check(rank, p[0] == 0 && p[sizes[i] - 1] == 0,
                "%zu bytes are not zeroed", sizes[i]);
        memset(p, 0x11, sizes[i]);
        (void)multi_ok(rank, ncclMemFree(p), "ncclMemFree");
    }
}

static void wrong_memory_is_refused(multi_rank *rank)
{
    void *p = NULL, *foreign = malloc(64);

    (void)multi_check(rank, ncclMemAlloc(NULL, 64) != ncclSuccess,
            "no place was taken");
    (void)multi_check(rank, ncclMemAlloc(&p, 0) != ncclSuccess, "size 0 was taken");
    (void)multi_check(rank, ncclMemAlloc(&p, SIZE_MAX / 2) != ncclSuccess,
            "half of the address space was given");
    (void)multi_check(rank, p == NULL, "a refused call wrote its output");
    (void)multi_ok(rank, ncclMemFree(NULL), "ncclMemFree(NULL)");
    (void)multi_check(rank, ncclMemFree(foreign) != ncclSuccess,
            "memory of malloc was freed");
    if (multi_ok(rank, ncclMemAlloc(&p, 64), "ncclMemAlloc")) {
        (void)multi_ok(rank, ncclMemFree(p), "ncclMemFree");
        (void)multi_check(rank, ncclMemFree(p) != ncclSuccess,
                "memory was freed twice");
    }
    free(foreign);
}

static void registrations_are_checked(multi_rank *rank)
{
    char buffer[64];
    void *handle = NULL, *again = NULL;

    (void)multi_expect(rank, ncclCommRegister(NULL, buffer, 64, &handle),
            ncclInvalidArgument, "register without communicator");
    (void)multi_expect(rank, ncclCommRegister(rank->comm, buffer, 64, NULL),
            ncclInvalidArgument, "register without place");
    if (!multi_ok(rank, ncclCommRegister(rank->comm, buffer, 64, &handle),
                "register") ||
            !multi_ok(rank, ncclCommRegister(rank->comm, buffer, 64, &again), "again"))
        return;
    (void)multi_ok(rank, ncclCommDeregister(rank->comm, handle), "deregister");
    (void)multi_ok(rank, ncclCommDeregister(rank->comm, again),
            "deregister the second");
    (void)multi_expect(rank, ncclCommDeregister(rank->comm, again), ncclInvalidUsage,
            "deregister once too often");
    (void)multi_expect(rank, ncclCommDeregister(rank->comm, buffer), ncclInvalidUsage,
            "deregister what was never registered");
    (void)multi_ok(rank, ncclCommDeregister(rank->comm, NULL), "deregister NULL");
    (void)multi_expect(rank, ncclCommDeregister(NULL, again), ncclInvalidArgument,
            "deregister without communicator");
    (void)rules_works(rank, rank->comm, "after registrations");
}

static void windows_are_checked(multi_rank *rank)
{
    void *memory = NULL, *user = rank;
    ncclWindow_t window = NULL;
    int32_t *sums;

    if (!multi_ok(rank, ncclMemAlloc(&memory, 8192), "ncclMemAlloc"))
        return;
    (void)multi_expect(rank, ncclCommWindowRegister(NULL, memory, 8192, &window, 0),
            ncclInvalidArgument, "a window without communicator");
    (void)multi_expect(rank, ncclCommWindowRegister(rank->comm, memory, 8192, NULL, 0),
            ncclInvalidArgument, "a window without place");
    (void)multi_expect(rank, ncclCommWindowRegister(rank->comm, NULL, 8192, &window, 0),
            ncclInvalidArgument, "a window without buffer");
    (void)multi_expect(rank, ncclCommWindowRegister(rank->comm, memory, 0, &window, 0),
            ncclInvalidArgument, "an empty window");
    if (!multi_ok(rank,
                ncclCommWindowRegister(rank->comm, memory, 8192, &window,
                        NCCL_WIN_COLL_SYMMETRIC),
                "ncclCommWindowRegister"))
        return;
    (void)multi_expect(rank, ncclWinGetUserPtr(rank->comm, window, NULL),
            ncclInvalidArgument, "a pointer without place");
    if (window != NULL) {
        (void)multi_ok(rank, ncclWinGetUserPtr(rank->comm, window, &user),
                "user pointer");
        (void)multi_check(rank, user == memory || user == NULL,
                "the pointer is another");
    }
    sums = memory;
    sums[0] = rank->rank + 1;
    (void)multi_ok(rank,
            ncclAllReduce(sums, sums, 1, ncclInt32, ncclSum, rank->comm, NULL),
            "all_reduce in a window");
    (void)multi_check(rank, sums[0] == 3, "sum is %d, expected 3", sums[0]);
    (void)multi_ok(rank, ncclCommWindowDeregister(rank->comm, window), "deregister");
    (void)multi_ok(rank, ncclCommWindowDeregister(rank->comm, NULL), "deregister NULL");
    (void)multi_ok(rank, ncclMemFree(memory), "ncclMemFree");
}

static void memory_statistics_are_checked(multi_rank *rank)
{
    uint64_t total = 0, suspended = 9;

    (void)multi_expect(rank, ncclCommMemStats(NULL, ncclStatGpuMemTotal, &total),
            ncclInvalidArgument, "statistics without communicator");
    (void)multi_expect(rank, ncclCommMemStats(rank->comm, ncclStatGpuMemTotal, NULL),
            ncclInvalidArgument, "statistics without place");
    (void)multi_expect(rank, ncclCommMemStats(rank->comm, (ncclCommMemStat_t)9, &total),
            ncclInvalidArgument, "an unknown statistic");
    (void)multi_ok(rank, ncclCommMemStats(rank->comm, ncclStatGpuMemTotal, &total),
            "total");
    (void)multi_check(rank, total > 0 && total < (64u << 20), "total is %llu bytes",
            (unsigned long long)total);
    (void)multi_ok(rank,
            ncclCommMemStats(rank->comm, ncclStatGpuMemSuspended, &suspended),
            "suspended");
    (void)multi_check(rank, suspended == 0, "suspended is %llu",
            (unsigned long long)suspended);
}

static void what_is_not_supported_says_so(multi_rank *rank)
{
    ncclParamHandle_t handle = NULL;
    const char *text = NULL;
    int length = 0;
    mscclAlgoHandle_t algo = 0;
    int32_t word = 0;

    (void)multi_expect(rank, ncclCommSuspend(rank->comm, NCCL_SUSPEND_MEM),
            ncclInvalidUsage, "ncclCommSuspend");
    (void)multi_expect(rank, ncclCommResume(rank->comm), ncclInvalidUsage,
            "ncclCommResume");
    (void)multi_expect(rank, ncclSignal(0, 0, 0, 0, rank->comm, NULL), ncclInvalidUsage,
            "ncclSignal");
    (void)multi_expect(rank,
            ncclPutSignal(&word, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, rank->comm, NULL),
            ncclInvalidUsage, "ncclPutSignal");
    (void)multi_expect(rank, ncclParamBind(&handle, "NCCL_DEBUG"), ncclInvalidUsage,
            "ncclParamBind");
    (void)multi_expect(rank, ncclParamGetParameter("NCCL_DEBUG", &text, &length),
            ncclInvalidUsage, "ncclParamGetParameter");
    (void)multi_expect(rank, mscclLoadAlgo("/nowhere", &algo, 0), ncclInvalidUsage,
            "mscclLoadAlgo");
    (void)rules_says(rank, NULL, "not supported");
    (void)rules_works(rank, rank->comm, "after what is not supported");
}

#define ALONE MULTI_THREADS, 1, true, NULL, 0

const rule rules_memory[] = {
    { "memory is aligned and zeroed", memory_is_aligned_and_zeroed, ALONE },
    { "wrong sizes and foreign memory are refused", wrong_memory_is_refused, ALONE },
    { "registrations are counted and checked", registrations_are_checked, ALONE },
    { "windows are checked, and work", windows_are_checked, MULTI_PROCESSES, 2, true,
            NULL, 0 },
    { "memory statistics are checked", memory_statistics_are_checked, ALONE },
    { "what is not supported says so", what_is_not_supported_says_so, ALONE },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
