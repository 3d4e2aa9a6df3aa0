/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the process: its environment, its devices, its children. */
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

static void devices_that_are_missing_are_an_error(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "an id needs no device");
    (void)multi_expect(rank, ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError,
            "a CPU rank where a GPU was meant");
    (void)rules_says(rank, NULL, "VISIBLE_DEVICES");
    (void)multi_expect(rank, ncclCommInitAll(&comm, 1, NULL), ncclUnhandledCudaError,
            "ncclCommInitAll where a GPU was meant");
    (void)multi_check(rank, comm == NULL, "a communicator was left");
    if (!multi_ok(rank,
                motet_comm_init_rank(&comm, 1, id, 0, MOTET_DEVICE_CPU, NULL, 0),
                "a CPU rank that was asked for"))
        return;
    (void)rules_works(rank, comm, "of a CPU rank that was asked for");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void cpu_can_be_chosen_by_variable(multi_rank *rank)
{
    ncclComm_t comm = NULL;

    if (!multi_comm(rank, 0, &comm))
        return;
    (void)rules_works(rank, comm, "with MOTET_DEVICE=cpu");
    (void)multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy");
}

static void a_gpu_that_is_asked_for_must_be_there(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    (void)multi_expect(rank, ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError,
            "MOTET_DEVICE=gpu without one");
    (void)multi_expect(rank,
            motet_comm_init_rank(&comm, 1, id, 0, MOTET_DEVICE_GPU, NULL, 0),
            ncclUnhandledCudaError, "MOTET_DEVICE_GPU without one");
}

static void the_caller_says_how_long_to_wait(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;

    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    (void)multi_expect(rank,
            motet_comm_init_rank(&comm, 2, id, 0, MOTET_DEVICE_CPU, NULL, 1),
            ncclRemoteError, "a rank that does not come");
    (void)rules_says(rank, NULL, "rank 1 of 2 did not join within 1 s");
    (void)multi_check(rank, comm == NULL, "a communicator was left");
}

static void malformed_variables_are_named(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t got = ncclGetUniqueId(&id);

    if (got == ncclSuccess)
        got = ncclCommInitRank(&comm, 1, id, 0);
    (void)multi_check(rank, got != ncclSuccess, "MOTET_OP_TIMEOUT_S=soon was taken");
    (void)rules_says(rank, NULL, "MOTET_OP_TIMEOUT_S");
    (void)rules_says(rank, NULL, "soon");
}

static void malformed_nccl_variables_are_passed_over(multi_rank *rank)
{
    cpu_can_be_chosen_by_variable(rank);
}

/** What a forked child finds: every handle refused with a sentence, nothing that hangs. */
static int look_in_child(ncclComm_t comm, cudaStream_t stream)
{
    int32_t mine = 1, sum = 0;
    ncclResult_t got = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL);
    ncclComm_t own = NULL;

    if (got == ncclSuccess)
        return 10;
    if (strstr(ncclGetLastError(NULL), "fork") == NULL)
        return 11;
    if (motet_stream_query(stream) != ncclInvalidArgument)
        return 12;
    (void)ncclCommDestroy(comm);
#ifdef __SANITIZE_ADDRESS__
    return 0; /* its allocator may be locked for ever in a child of several threads */
#endif
    if (ncclCommInitAll(&own, 1, NULL) != ncclSuccess)
        return 13; /* a child may begin anew */
    if (ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, own, NULL) != ncclSuccess ||
            sum != 1)
        return 14;
    return ncclCommDestroy(own) == ncclSuccess ? 0 : 15;
}

static void a_forked_child_holds_nothing_of_ours(multi_rank *rank)
{
    cudaStream_t stream = NULL;
    int status = -1;
    pid_t child;

#ifdef UNDER_TSAN
    (void)rules_works(rank, rank->comm,
            "without fork: it is not followed by this sanitizer");
    return;
#endif
    (void)multi_ok(rank, motet_stream_create(&stream), "motet_stream_create");
    (void)rules_works(rank, rank->comm, "before the fork");
    child = fork();
    if (child == 0)
        _exit(look_in_child(rank->comm, stream));
    (void)multi_check(rank, child > 0 && waitpid(child, &status, 0) == child,
            "no child");
    (void)multi_check(rank, WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "the child ended with status 0x%x (see look_in_child)", (unsigned)status);
    (void)rules_works(rank, rank->comm, "after the child");
    (void)multi_ok(rank, motet_stream_destroy(stream), "motet_stream_destroy");
}

/** A child that lives on must not keep the rank alive in the eyes of its peers, nor hold fds. */
static void a_living_child_does_not_disturb(multi_rank *rank)
{
    pid_t child;

#ifdef UNDER_TSAN
    return;
#endif
    child = fork();
    if (child == 0) {
        multi_sleep_us(300000);
        _exit(0);
    }
    for (int i = 0; i < 20; i++)
        if (!rules_works(rank, rank->comm, "beside a living child"))
            break;
    (void)waitpid(child, NULL, 0);
    (void)rules_works(rank, rank->comm, "after the child has gone");
}

static void exit_with_work_in_flight_does_not_hang(multi_rank *rank)
{
    static int32_t mine = 1, sum;
    cudaStream_t stream = NULL;
    int status = -1;
    pid_t child = fork(); /* before anything of the library lives here */

    if (child == 0) {
        ncclComm_t comms[2] = { NULL, NULL };

        if (ncclCommInitAll(comms, 2, NULL) != ncclSuccess ||
                motet_stream_create(&stream) != ncclSuccess ||
                ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comms[0], stream) !=
                        ncclSuccess)
            _exit(9);
        exit(0);
    }
    for (int i = 0; i < 500 && waitpid(child, &status, WNOHANG) == 0; i++)
        multi_sleep_us(10000);
    (void)multi_check(rank, WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "exit with work in flight: status 0x%x", (unsigned)status);
}

static const char *const cuda_meant[] = { "CUDA_VISIBLE_DEVICES=0", NULL };
static const char *const hip_meant[] = { "HIP_VISIBLE_DEVICES=0,1", NULL };
static const char *const rocr_meant[] = { "ROCR_VISIBLE_DEVICES=0", NULL };
static const char *const cpu_chosen[] = { "CUDA_VISIBLE_DEVICES=0", "MOTET_DEVICE=cpu",
    NULL };
static const char *const gpu_chosen[] = { "MOTET_DEVICE=gpu", NULL };
static const char *const malformed[] = { "MOTET_OP_TIMEOUT_S=soon", NULL };
static const char *const malformed_alias[] = { "NCCL_MAX_CTAS=many", "MOTET_DEBUG=0",
    NULL };

const rule rules_process[] = {
    { "CUDA_VISIBLE_DEVICES without a device is an error",
            devices_that_are_missing_are_an_error, MULTI_THREADS, 1, false, cuda_meant,
            0 },
    { "HIP_VISIBLE_DEVICES without a device is an error",
            devices_that_are_missing_are_an_error, MULTI_THREADS, 1, false, hip_meant,
            0 },
    { "ROCR_VISIBLE_DEVICES without a device is an error",
            devices_that_are_missing_are_an_error, MULTI_THREADS, 1, false, rocr_meant,
            0 },
    { "MOTET_DEVICE=cpu takes the CPU all the same", cpu_can_be_chosen_by_variable,
            MULTI_PROCESSES, 2, false, cpu_chosen, 0 },
    { "a GPU that is asked for must be there", a_gpu_that_is_asked_for_must_be_there,
            MULTI_THREADS, 1, false, gpu_chosen, 0 },
    { "the caller says how long to wait for absent ranks",
            the_caller_says_how_long_to_wait, MULTI_THREADS, 1, false, NULL, 0 },
    { "a malformed MOTET variable is named with its value",
            malformed_variables_are_named, MULTI_THREADS, 1, false, malformed, 0 },
    { "a malformed NCCL variable is passed over",
            malformed_nccl_variables_are_passed_over, MULTI_PROCESSES, 2, false,
            malformed_alias, 0 },
    { "a forked child holds nothing of ours and may begin anew",
            a_forked_child_holds_nothing_of_ours, MULTI_PROCESSES, 2, true, NULL, 0 },
    { "a living child does not disturb its parent", a_living_child_does_not_disturb,
            MULTI_PROCESSES, 2, true, NULL, 0 },
    { "exit with work in flight does not hang", exit_with_work_in_flight_does_not_hang,
            MULTI_THREADS, 1, false, NULL, 0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
