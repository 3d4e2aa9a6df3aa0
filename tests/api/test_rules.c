/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the rules of rules.h. An argument runs only the rules whose sentence has it. */
#include "rules.h"

#include <stdio.h>
#include <string.h>

static const rule *const tables[] = { rules_arguments, rules_groups, rules_operators,
    rules_life, rules_members, rules_memory, rules_streams, rules_nonblocking,
    rules_process };

const rules_call_info rules_calls[RULES_CALLS] = {
    [CALL_ALL_REDUCE] = { "ncclAllReduce", true, false },
    [CALL_ALL_REDUCE_BIAS] = { "ncclAllReduceWithBias", true, false },
    [CALL_ALL_REDUCE_CONFIG] = { "ncclAllReduceConfig", true, false },
    [CALL_REDUCE] = { "ncclReduce", true, true },
    [CALL_REDUCE_CONFIG] = { "ncclReduceConfig", true, true },
    [CALL_REDUCE_SCATTER] = { "ncclReduceScatter", true, false },
    [CALL_REDUCE_SCATTER_CONFIG] = { "ncclReduceScatterConfig", true, false },
    [CALL_BROADCAST] = { "ncclBroadcast", false, true },
    [CALL_BROADCAST_CONFIG] = { "ncclBroadcastConfig", false, true },
    [CALL_BCAST] = { "ncclBcast", false, true },
    [CALL_ALL_GATHER] = { "ncclAllGather", false, false },
    [CALL_ALL_GATHER_CONFIG] = { "ncclAllGatherConfig", false, false },
    [CALL_ALL_TO_ALL] = { "ncclAlltoAll", false, false },
    [CALL_ALL_TO_ALL_OLD] = { "ncclAllToAll", false, false },
    [CALL_ALL_TO_ALL_CONFIG] = { "ncclAlltoAllConfig", false, false },
    [CALL_ALL_TO_ALL_V] = { "ncclAlltoAllv", false, false },
    [CALL_ALL_TO_ALL_V_OLD] = { "ncclAllToAllv", false, false },
    [CALL_GATHER] = { "ncclGather", false, true },
    [CALL_GATHER_CONFIG] = { "ncclGatherConfig", false, true },
    [CALL_SCATTER] = { "ncclScatter", false, true },
    [CALL_SCATTER_CONFIG] = { "ncclScatterConfig", false, true },
    [CALL_SEND] = { "ncclSend", false, true },
    [CALL_RECV] = { "ncclRecv", false, true },
};

static ncclResult_t call_all_to_all_v(bool old, const rules_args *a)
{
    size_t counts[MULTI_MAX_RANKS], displs[MULTI_MAX_RANKS];

    for (size_t i = 0; i < MULTI_MAX_RANKS; i++) {
        counts[i] = a->count;
        displs[i] = i * a->count;
    }
    return (old ? ncclAllToAllv : ncclAlltoAllv)(a->send, counts, displs, a->recv,
            counts, displs, (ncclDataType_t)a->type, a->comm, a->stream);
}

static ncclResult_t call_config(rules_call which, const rules_args *a)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    ncclDataType_t t = (ncclDataType_t)a->type;
    ncclRedOp_t op = (ncclRedOp_t)a->op;
    const void *s = a->send;
    void *r = a->recv;
    size_t n = a->count;

    switch (which) {
    case CALL_ALL_REDUCE_CONFIG:
        return ncclAllReduceConfig(s, r, n, t, op, a->comm, a->stream, &config);
    case CALL_REDUCE_CONFIG:
        return ncclReduceConfig(s, r, n, t, op, a->root, a->comm, a->stream, &config);
    case CALL_REDUCE_SCATTER_CONFIG:
        return ncclReduceScatterConfig(s, r, n, t, op, a->comm, a->stream, &config);
    case CALL_BROADCAST_CONFIG:
        return ncclBroadcastConfig(s, r, n, t, a->root, a->comm, a->stream, &config);
    case CALL_ALL_GATHER_CONFIG:
        return ncclAllGatherConfig(s, r, n, t, a->comm, a->stream, &config);
    case CALL_ALL_TO_ALL_CONFIG:
        return ncclAlltoAllConfig(s, r, n, t, a->comm, a->stream, &config);
    case CALL_GATHER_CONFIG:
        return ncclGatherConfig(s, r, n, t, a->root, a->comm, a->stream, &config);
    default: return ncclScatterConfig(s, r, n, t, a->root, a->comm, a->stream, &config);
    }
}

ncclResult_t rules_make_call(rules_call which, const rules_args *a)
{
    ncclDataType_t t = (ncclDataType_t)a->type;
    ncclRedOp_t op = (ncclRedOp_t)a->op;
    const void *s = a->send;
    void *r = a->recv;
    size_t n = a->count;

    switch (which) {
    case CALL_ALL_REDUCE: return ncclAllReduce(s, r, n, t, op, a->comm, a->stream);
    case CALL_ALL_REDUCE_BIAS:
        return ncclAllReduceWithBias(s, r, n, t, op, a->comm, a->stream, s);
    case CALL_REDUCE: return ncclReduce(s, r, n, t, op, a->root, a->comm, a->stream);
    case CALL_REDUCE_SCATTER:
        return ncclReduceScatter(s, r, n, t, op, a->comm, a->stream);
    case CALL_BROADCAST: return ncclBroadcast(s, r, n, t, a->root, a->comm, a->stream);
    case CALL_BCAST: return ncclBcast(r, n, t, a->root, a->comm, a->stream);
    case CALL_ALL_GATHER: return ncclAllGather(s, r, n, t, a->comm, a->stream);
    case CALL_ALL_TO_ALL: return ncclAlltoAll(s, r, n, t, a->comm, a->stream);
    case CALL_ALL_TO_ALL_OLD: return ncclAllToAll(s, r, n, t, a->comm, a->stream);
    case CALL_ALL_TO_ALL_V: return call_all_to_all_v(false, a);
    case CALL_ALL_TO_ALL_V_OLD: return call_all_to_all_v(true, a);
    case CALL_GATHER: return ncclGather(s, r, n, t, a->root, a->comm, a->stream);
    case CALL_SCATTER: return ncclScatter(s, r, n, t, a->root, a->comm, a->stream);
    case CALL_SEND: return ncclSend(s, n, t, a->root, a->comm, a->stream);
    case CALL_RECV: return ncclRecv(r, n, t, a->root, a->comm, a->stream);
    default: return call_config(which, a);
    }
}

bool rules_works(multi_rank *rank, ncclComm_t comm, const char *when)
{
    int32_t mine[3], sum[3] = { -1, -1, -1 };
    int me = -1, n = 0;

    if (!multi_ok(rank, ncclCommUserRank(comm, &me), "ncclCommUserRank") ||
            !multi_ok(rank, ncclCommCount(comm, &n), "ncclCommCount"))
        return false;
    for (int i = 0; i < 3; i++)
        mine[i] = (me + 1) * (i + 1);
    if (!multi_expect(rank, ncclAllReduce(mine, sum, 3, ncclInt32, ncclSum, comm, NULL),
                ncclSuccess, "all_reduce %s", when))
        return false;
    for (int i = 0; i < 3; i++)
        if (!multi_check(rank, sum[i] == n * (n + 1) / 2 * (i + 1),
                    "all_reduce %s: element %d is %d, expected %d", when, i, sum[i],
                    n * (n + 1) / 2 * (i + 1)))
            return false;
    return true;
}

bool rules_all_work(multi_rank *rank, const ncclComm_t *comms, int n, const char *when)
{
    int32_t mine[MULTI_MAX_RANKS], sum[MULTI_MAX_RANKS];
    bool fine = multi_ok(rank, ncclGroupStart(), "ncclGroupStart");

    for (int i = 0; i < n && fine; i++) {
        mine[i] = i + 1;
        sum[i] = -1;
        fine = multi_expect(rank,
                ncclAllReduce(&mine[i], &sum[i], 1, ncclInt32, ncclSum, comms[i], NULL),
                ncclSuccess, "all_reduce of rank %d %s", i, when);
    }
    fine = multi_expect(rank, ncclGroupEnd(), ncclSuccess, "ncclGroupEnd %s", when) &&
            fine;
    for (int i = 0; i < n && fine; i++)
        fine = multi_check(rank, sum[i] == n * (n + 1) / 2,
                "all_reduce %s: rank %d has %d, expected %d", when, i, sum[i],
                n * (n + 1) / 2);
    return fine;
}

bool rules_settle(multi_rank *rank, ncclComm_t comm, ncclResult_t *state)
{
    uint64_t end = multi_now_ns() + 20000000000ull;

    *state = ncclInProgress;
    while (*state == ncclInProgress) {
        if (!multi_ok(rank, ncclCommGetAsyncError(comm, state),
                    "ncclCommGetAsyncError"))
            return false;
        if (!multi_check(rank, multi_now_ns() < end, "still in progress after 20 s"))
            return false;
        multi_sleep_us(100);
    }
    return true;
}

bool rules_says(multi_rank *rank, ncclComm_t comm, const char *word)
{
    const char *text = ncclGetLastError(comm);

    return multi_check(rank, text != NULL && strstr(text, word) != NULL,
            "the last error is \"%s\", expected \"%s\" in it",
            text == NULL ? "NULL" : text, word);
}

int main(int argc, char **argv)
{
    int ran = 0, failed = 0;

    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
        for (const rule *r = tables[t]; r->body != NULL; r++) {
            multi_spec spec = { .name = r->sentence,
                .layout = r->layout,
                .nranks = r->nranks,
                .init = r->init,
                .environment = r->environment,
                .deadline_s = r->deadline_s == 0 ? 30 : r->deadline_s,
                .body = r->body,
                .shared_bytes = 4096 };
            int bad;

            if (argc > 1 && strstr(r->sentence, argv[1]) == NULL)
                continue;
            bad = multi_run(&spec);
            printf("%s  %s\n", bad ? "FAIL" : "ok  ", r->sentence);
            ran++;
            failed += bad != 0;
        }
    printf("rules: %d ran, %d failed\n", ran, failed);
    return ran == 0 || failed != 0;
}
