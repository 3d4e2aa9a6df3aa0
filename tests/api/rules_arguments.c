/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about arguments of the calls that move data, and about what needs no communicator. */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

static int32_t in[256], out[256];

static rules_args good(ncclComm_t comm)
{
    return (rules_args){ .send = in,
        .recv = out,
        .count = 4,
        .type = ncclInt32,
        .op = ncclSum,
        .root = 0,
        .comm = comm };
}

/** Hold one refusal against every call that @p applies. */
static void refuse(multi_rank *rank, rules_args a, ncclResult_t want, const char *what,
        bool (*applies)(const rules_call_info *))
{
    for (int c = 0; c < RULES_CALLS; c++) {
        if (applies != NULL && !applies(&rules_calls[c]))
            continue;
        (void)multi_expect(rank, rules_make_call((rules_call)c, &a), want, "%s with %s",
                rules_calls[c].name, what);
        (void)multi_check(rank, ncclGetLastError(NULL)[0] != '\0',
                "%s with %s says nothing", rules_calls[c].name, what);
    }
}

static bool reduces(const rules_call_info *c)
{
    return c->reduces;
}

static bool rooted(const rules_call_info *c)
{
    return c->rooted;
}

static void null_communicator_is_refused(multi_rank *rank)
{
    rules_args a = good(NULL);

    refuse(rank, a, ncclInvalidArgument, "a NULL communicator", NULL);
    a.type = 99; /* the communicator comes first */
    refuse(rank, a, ncclInvalidArgument, "a NULL communicator and a bad type", NULL);
    (void)rules_says(rank, NULL, "comm");
}

static void corrupt_communicator_is_refused(multi_rank *rank)
{
    void *zeros = calloc(1, 65536), *noise = malloc(65536);
    ncclComm_t handles[] = { zeros, noise, (ncclComm_t)(void *)in };

    memset(noise, 0x5a, 65536);
    for (size_t i = 0; i < sizeof(handles) / sizeof(*handles); i++) {
        ncclResult_t state;
        int n;

        refuse(rank, good(handles[i]), ncclInvalidArgument,
                "memory that is no communicator", NULL);
        (void)multi_expect(rank, ncclCommDestroy(handles[i]), ncclInvalidArgument,
                "ncclCommDestroy of memory that is no communicator");
        (void)multi_expect(rank, ncclCommAbort(handles[i]), ncclInvalidArgument,
                "ncclCommAbort of memory that is no communicator");
        (void)multi_expect(rank, ncclCommFinalize(handles[i]), ncclInvalidArgument,
                "ncclCommFinalize of memory that is no communicator");
        (void)multi_expect(rank, ncclCommCount(handles[i], &n), ncclInvalidArgument,
                "ncclCommCount of memory that is no communicator");
        (void)multi_expect(rank, ncclCommGetAsyncError(handles[i], &state),
                ncclInvalidArgument, "ncclCommGetAsyncError of no communicator");
    }
    free(zeros);
    free(noise);
}

static void bad_types_are_refused(multi_rank *rank)
{
    static const int types[] = { -1, ncclNumTypes, 99 };
    rules_args a = good(rank->comm);

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        a.type = types[i];
        refuse(rank, a, ncclInvalidArgument, "a bad type", NULL);
    }
    (void)rules_says(rank, rank->comm, "99");
    a.count = 0;
    refuse(rank, a, ncclInvalidArgument, "a bad type and count 0", NULL);
    (void)rules_works(rank, rank->comm, "after refused calls");
}

static void bad_operators_are_refused(multi_rank *rank)
{
    static const int ops[] = { -1, ncclNumOps, 77, 0x7fffffff };
    rules_args a = good(rank->comm);

    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        a.op = ops[i];
        refuse(rank, a, ncclInvalidArgument, "a bad operator", reduces);
    }
    (void)rules_works(rank, rank->comm, "after refused calls");
}

static void bad_roots_and_peers_are_refused(multi_rank *rank)
{
    static const int roots[] = { -1, 1, 1000 };
    rules_args a = good(rank->comm);

    for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
        a.root = roots[i];
        refuse(rank, a, ncclInvalidArgument, "a bad root or peer", rooted);
    }
    (void)rules_says(rank, rank->comm, "1000");
    a.count = 0;
    refuse(rank, a, ncclInvalidArgument, "a bad root or peer and count 0", rooted);
    (void)rules_works(rank, rank->comm, "after refused calls");
}

static void null_buffers_are_refused_when_there_is_something_to_move(multi_rank *rank)
{
    for (int c = 0; c < RULES_CALLS; c++) {
        rules_args a = good(rank->comm);

        if (c == CALL_SEND || c == CALL_RECV)
            continue; /* to self they need a group */
        a.send = a.recv = NULL;
        (void)multi_expect(rank, rules_make_call((rules_call)c, &a),
                ncclInvalidArgument, "%s with NULL buffers", rules_calls[c].name);
        if (c == CALL_ALL_REDUCE_BIAS)
            continue; /* its bias must not be NULL */
        a.count = 0;
        (void)multi_expect(rank, rules_make_call((rules_call)c, &a), ncclSuccess,
                "%s with NULL buffers and count 0", rules_calls[c].name);
    }
    (void)rules_works(rank, rank->comm, "after refused calls");
}

static void null_bias_is_refused(multi_rank *rank)
{
    (void)multi_expect(rank,
            ncclAllReduceWithBias(in, out, 4, ncclInt32, ncclSum, rank->comm, NULL,
                    NULL),
            ncclInvalidArgument, "a NULL bias");
    (void)rules_works(rank, rank->comm, "after a refused call");
}

static void destroyed_communicator_is_refused(multi_rank *rank)
{
    ncclComm_t comm = NULL;
    ncclResult_t state;
    int n;

    if (!multi_ok(rank, ncclCommInitAll(&comm, 1, NULL), "ncclCommInitAll") ||
            !multi_ok(rank, ncclCommDestroy(comm), "ncclCommDestroy"))
        return;
    refuse(rank, good(comm), ncclInvalidArgument, "a destroyed communicator", NULL);
    (void)multi_expect(rank, ncclCommDestroy(comm), ncclInvalidArgument,
            "second destroy");
    (void)multi_expect(rank, ncclCommAbort(comm), ncclInvalidArgument,
            "abort after destroy");
    (void)multi_expect(rank, ncclCommCount(comm, &n), ncclInvalidArgument,
            "count after destroy");
    (void)multi_expect(rank, ncclCommGetAsyncError(comm, &state), ncclInvalidArgument,
            "async error after destroy");
}

static void revoked_comes_before_the_arguments(multi_rank *rank)
{
    rules_args a = good(rank->comm);

    (void)multi_ok(rank, ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT),
            "ncclCommRevoke");
    refuse(rank, a, ncclInvalidUsage, "a revoked communicator", NULL);
    a.type = 99;
    refuse(rank, a, ncclInvalidUsage, "a revoked communicator and a bad type", NULL);
}

static void bad_streams_are_refused(multi_rank *rank)
{
    rules_args a = good(rank->comm);
    cudaStream_t gone = NULL;

    a.stream = (cudaStream_t)(void *)in;
    refuse(rank, a, ncclInvalidArgument, "memory that is no stream", NULL);
    if (!multi_ok(rank, motet_stream_create(&gone), "motet_stream_create") ||
            !multi_ok(rank, motet_stream_destroy(gone), "motet_stream_destroy"))
        return;
    a.stream = gone;
    refuse(rank, a, ncclInvalidArgument, "a destroyed stream", NULL);
    (void)rules_works(rank, rank->comm, "after refused calls");
}

static void default_stream_handles_return_with_the_result(multi_rank *rank)
{
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        int32_t mine = 5, sum = 0;

        (void)multi_ok(rank,
                ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm,
                        (cudaStream_t)handle),
                "all_reduce on a default stream");
        (void)multi_check(rank, sum == 5 * rank->nranks, "handle %d: %d, expected %d",
                (int)handle, sum, 5 * rank->nranks);
    }
}

static void version_and_texts_need_no_communicator(multi_rank *rank)
{
    static const char *const texts[] = { "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress", "timeout", "unknown result code" };
    ncclUniqueId id;
    int version = 0;

    (void)multi_check(rank, strcmp(ncclGetLastError(NULL), "") == 0,
            "the last error at the start is \"%s\"", ncclGetLastError(NULL));
    (void)multi_ok(rank, ncclGetVersion(&version), "ncclGetVersion");
    (void)multi_check(rank, version == 22707, "version is %d", version);
    (void)multi_expect(rank, ncclGetVersion(NULL), ncclInvalidArgument, "NULL version");
    (void)multi_expect(rank, ncclGetUniqueId(NULL), ncclInvalidArgument, "NULL id");
    (void)multi_ok(rank, ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (int i = 0; i < 10; i++) {
        const char *text = ncclGetErrorString((ncclResult_t)i);

        (void)multi_check(rank, strcmp(text, texts[i]) == 0, "text of %d is \"%s\"", i,
                text);
    }
    (void)multi_check(rank,
            strcmp(ncclGetErrorString((ncclResult_t)-3), "unknown result code") == 0,
            "text of -3");
}

static void success_leaves_no_last_error(multi_rank *rank)
{
    (void)rules_works(rank, rank->comm, "first");
    (void)multi_check(rank, strcmp(ncclGetLastError(NULL), "") == 0,
            "the process's last error is \"%s\"", ncclGetLastError(NULL));
    (void)multi_check(rank, strcmp(ncclGetLastError(rank->comm), "") == 0,
            "the communicator's last error is \"%s\"", ncclGetLastError(rank->comm));
}

static void last_error_belongs_to_the_communicator(multi_rank *rank)
{
    ncclComm_t other = NULL;

    if (!multi_ok(rank, ncclCommInitAll(&other, 1, NULL), "ncclCommInitAll"))
        return;
    (void)multi_expect(rank,
            ncclAllReduce(in, out, 4, (ncclDataType_t)55, ncclSum, other, NULL),
            ncclInvalidArgument, "a bad type");
    (void)rules_says(rank, other, "55");
    (void)rules_says(rank, NULL, "55");
    (void)multi_check(rank, strcmp(ncclGetLastError(rank->comm), "") == 0,
            "another communicator's last error is \"%s\"",
            ncclGetLastError(rank->comm));
    (void)multi_ok(rank, ncclCommDestroy(other), "ncclCommDestroy");
}

/** Every collective, in place and not, with its value: what one rank has it keeps. */
static void one_rank_gets_its_own_data(multi_rank *rank)
{
    for (int c = 0; c < RULES_CALLS; c++) {
        rules_args a = good(rank->comm);
        int32_t want = c == CALL_ALL_REDUCE_BIAS ? 14 : 7;

        for (int place = 0; place < 2; place++) {
            /* Messages to self need a group; in place the bias would be the output. */
            if (c == CALL_SEND || c == CALL_RECV ||
                    (place == 1 && c == CALL_ALL_REDUCE_BIAS))
                continue;
            for (int i = 0; i < 4; i++) {
                in[i] = 7;
                out[i] = c == CALL_BCAST ? 7 : -1;
            }
            a.recv = place == 0 || c == CALL_BCAST ? (void *)out : (void *)in;
            (void)multi_expect(rank, rules_make_call((rules_call)c, &a), ncclSuccess,
                    "%s alone", rules_calls[c].name);
            (void)multi_check(rank, ((int32_t *)a.recv)[3] == want,
                    "%s alone, %s place: %d, expected %d", rules_calls[c].name,
                    place ? "in" : "out of", ((int32_t *)a.recv)[3], want);
        }
    }
}

static void twins_do_the_same(multi_rank *rank)
{
    int32_t mine = 3, sum = 0;
    int version = 0, n = 0;

    (void)multi_ok(rank, pncclGetVersion(&version), "pncclGetVersion");
    (void)multi_check(rank, version == 22707, "version is %d", version);
    (void)multi_ok(rank, pncclCommCount(rank->comm, &n), "pncclCommCount");
    (void)multi_check(rank, n == rank->nranks, "count is %d", n);
    (void)multi_ok(rank,
            pncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL),
            "pncclAllReduce");
    (void)multi_check(rank, sum == 3 * rank->nranks, "sum is %d", sum);
}

#define ALONE MULTI_THREADS, 1

const rule rules_arguments[] = {
    { "a NULL communicator is refused before anything else",
            null_communicator_is_refused, ALONE, false, NULL, 0 },
    { "memory that is no communicator is refused by every call",
            corrupt_communicator_is_refused, ALONE, false, NULL, 0 },
    { "bad types are refused and leave the communicator usable", bad_types_are_refused,
            ALONE, true, NULL, 0 },
    { "bad operators are refused and leave the communicator usable",
            bad_operators_are_refused, ALONE, true, NULL, 0 },
    { "bad roots and peers are refused, with count 0 too",
            bad_roots_and_peers_are_refused, ALONE, true, NULL, 0 },
    { "NULL buffers are refused, but not with count 0",
            null_buffers_are_refused_when_there_is_something_to_move, ALONE, true, NULL,
            0 },
    { "a NULL bias is refused", null_bias_is_refused, ALONE, true, NULL, 0 },
    { "a destroyed communicator is refused by every call",
            destroyed_communicator_is_refused, ALONE, false, NULL, 0 },
    { "revoked is reported before wrong arguments", revoked_comes_before_the_arguments,
            ALONE, true, NULL, 0 },
    { "memory that is no stream, and a destroyed stream, are refused",
            bad_streams_are_refused, ALONE, true, NULL, 0 },
    { "NULL and the handles 1 and 2 return with the result",
            default_stream_handles_return_with_the_result, MULTI_THREADS, 2, true, NULL,
            0 },
    { "version, id and error texts need no communicator",
            version_and_texts_need_no_communicator, ALONE, false, NULL, 0 },
    { "after success only the last error is empty", success_leaves_no_last_error,
            MULTI_THREADS, 2, true, NULL, 0 },
    { "the last error belongs to the communicator that failed",
            last_error_belongs_to_the_communicator, ALONE, true, NULL, 0 },
    { "a single rank gets its own data from every collective",
            one_rank_gets_its_own_data, ALONE, true, NULL, 0 },
    { "the pnccl twins do the same", twins_do_the_same, MULTI_THREADS, 2, true, NULL,
            0 },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
