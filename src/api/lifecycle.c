/* SPDX-License-Identifier: Apache-2.0 */
/* Making communicators, from ids and from each other, and ending them. */
#include "api/config.h"
#include "api/export.h"
#include "api/internal.h"
#include "motet.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(motet_id),
        "an id is what NCCL's clients carry");

/* A configuration, from the caller's, a parent's, and the environment. */
static motet_result parse_config(const ncclConfig_t *config, const motet_config *parent,
        motet_config *out)
{
    motet_params *params = NULL;
    motet_result result = motet_params_new(&params);

    if (result == MOTET_OK) {
        result = motet_config_parse(config, parent, params, out);
        free(params);
    }
    return result;
}

/* The end of every call here: what failed inside a group fails the group. */
static ncclResult_t finish(ncclComm_t comm, motet_result result)
{
    if (result != MOTET_OK && result != MOTET_IN_PROGRESS && motet_group_open())
        motet_group_note(result);
    return motet_api_report_comm(comm, result);
}

MOTET_API ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    motet_params *params = NULL;
    motet_id id;
    motet_result result;

    motet_log_version();
    if (uniqueId == NULL)
        return motet_api_report(motet_fail(MOTET_ERR_ARGUMENT,
                "GetUniqueId : uniqueId argument is NULL"));
    motet_fork_guard();
    result = motet_params_new(&params);
    if (result == MOTET_OK) {
        result = motet_id_create(params, &id);
        free(params);
    }
    if (result == MOTET_OK)
        memcpy(uniqueId, &id, sizeof(id));
    return motet_api_report(result);
}
MOTET_ALIAS(ncclGetUniqueId, pncclGetUniqueId);

/* Start the job of a communicator that is new; `*handle` shows it from now on, so that
 * another thread can abort its creation. */
static motet_result launch_new(motet_job *job, ncclComm_t *handle)
{
    bool blocking =
            (job->kind == MOTET_JOB_INIT ? job->spec.config : job->derive.config)
                    .blocking != 0;
    motet_result result = motet_comm_new(&job->comm);

    if (result != MOTET_OK) {
        motet_job_drop(job);
        return result;
    }
    job->comm->config.blocking = blocking;
    job->handle = handle;
    *handle = (ncclComm_t)(void *)job->comm;
    return motet_group_job(job, blocking);
}

typedef struct init_call {
    ncclComm_t *comm;
    int nranks, rank, ordinal;
    bool has_ordinal;
    const ncclUniqueId *id;
    motet_device_choice choice;
    const ncclConfig_t *config;
    unsigned int timeout_s; /* 0: as MOTET_INIT_TIMEOUT_S says */
} init_call;

/* A GPU rank is made for the device that is current on the calling thread. */
static motet_result current_ordinal(const motet_device_ops *device, int *out)
{
    *out = 0;
    return device->gpu == NULL ? MOTET_OK : device->gpu->current(out);
}

static motet_result init_rank(const init_call *c)
{
    const motet_device_ops *device;
    int ordinal;
    motet_job *job;
    motet_result result;

    if (c->comm == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "CommInitRank : comm argument is NULL");
    *c->comm = NULL;
    if (c->nranks < 1 || c->rank < 0 || c->rank >= c->nranks)
        return motet_fail(MOTET_ERR_ARGUMENT, "Invalid rank requested : %d/%d", c->rank,
                c->nranks);
    if (c->nranks > MOTET_MAX_RANKS)
        return motet_fail(MOTET_ERR_USAGE,
                "%d ranks were asked for, and %d are the most", c->nranks,
                MOTET_MAX_RANKS);
    MOTET_TRY(motet_device_choose_now(c->choice, &device), "CommInitRank");
    MOTET_TRY(current_ordinal(device, &ordinal), "CommInitRank");
    MOTET_TRY(motet_job_new(MOTET_JOB_INIT, &job), "CommInitRank");
    job->spec = (motet_comm_spec){
        .nranks = c->nranks,
        .rank = c->rank,
        .ordinal = c->has_ordinal ? c->ordinal : ordinal,
        .thread = (int)gettid(),
        .choice = c->choice,
        .timeout_s = c->timeout_s,
    };
    memcpy(&job->spec.id, c->id, sizeof(job->spec.id));
    result = motet_id_check(&job->spec.id);
    if (result == MOTET_OK)
        result = parse_config(c->config, NULL, &job->spec.config);
    if (result != MOTET_OK) {
        free(job);
        return result;
    }
    return launch_new(job, c->comm);
}

MOTET_API ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks,
        ncclUniqueId commId, int rank)
{
    init_call c = { .comm = comm, .nranks = nranks, .rank = rank, .id = &commId };

    motet_log_version();
    return finish(NULL, init_rank(&c));
}
MOTET_ALIAS(ncclCommInitRank, pncclCommInitRank);

MOTET_API ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks,
        ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    init_call c = { .comm = comm,
        .nranks = nranks,
        .rank = rank,
        .id = &commId,
        .config = config };

    motet_log_version();
    return finish(NULL, init_rank(&c));
}
MOTET_ALIAS(ncclCommInitRankConfig, pncclCommInitRankConfig);

/* Several ids spread the work of meeting over several roots; the ranks of one node need
 * only one, and end the others. */
MOTET_API ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks,
        int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config)
{
    init_call c = { .comm = newcomm,
        .nranks = nranks,
        .rank = myrank,
        .id = commIds,
        .config = config };
    motet_result result = MOTET_OK;

    motet_log_version();
    if (nId <= 0 || nId > nranks)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommInitRankScalable : nId is %d, need 1..%d", nId, nranks);
    else if (commIds == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommInitRankScalable : commIds argument is NULL");
    if (result == MOTET_OK) {
        for (int i = 1; i < nId; i++) {
            motet_id id;

            memcpy(&id, &commIds[i], sizeof(id));
            motet_id_cancel(&id);
        }
        result = init_rank(&c);
    }
    return finish(NULL, result);
}
MOTET_ALIAS(ncclCommInitRankScalable, pncclCommInitRankScalable);

MOTET_API ncclResult_t motet_comm_init_rank(ncclComm_t *comm, int nranks,
        ncclUniqueId id, int rank, motet_device device, ncclConfig_t *config,
        unsigned int timeout_s)
{
    init_call c = { .comm = comm,
        .nranks = nranks,
        .rank = rank,
        .id = &id,
        .config = config,
        .timeout_s = timeout_s };

    motet_log_version();
    if ((int)device < 0 || device > MOTET_DEVICE_GPU)
        return finish(NULL,
                motet_fail(MOTET_ERR_ARGUMENT,
                        "motet_comm_init_rank : device is %d, need 0..2", (int)device));
    c.choice = (motet_device_choice)device;
    return finish(NULL, init_rank(&c));
}

/* Ordinals of CPU ranks are labels, but one each. */
static motet_result check_list(int ndev, const int *devlist)
{
    for (int i = 0; devlist != NULL && i < ndev; i++) {
        if (devlist[i] < 0)
            return motet_fail(MOTET_ERR_ARGUMENT, "CommInitAll : invalid device %d",
                    devlist[i]);
        for (int j = 0; j < i; j++)
            if (devlist[j] == devlist[i])
                return motet_fail(MOTET_ERR_USAGE,
                        "CommInitAll : device %d is in the list twice", devlist[i]);
    }
    return MOTET_OK;
}

static motet_result init_all(ncclComm_t *comm, int ndev, const int *devlist)
{
    const motet_device_ops *device;
    ncclUniqueId id;
    motet_result result;

    MOTET_TRY(motet_device_choose_now(MOTET_CHOOSE_AUTO, &device), "CommInitAll");
    if (comm == NULL || ndev < 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "CommInitAll : %s",
                comm == NULL ? "comm argument is NULL" : "ndev is negative");
    MOTET_TRY(check_list(ndev, devlist), "CommInitAll");
    if (ndev == 0)
        return MOTET_OK;
    if (pncclGetUniqueId(&id) != ncclSuccess)
        return motet_error_wrap(MOTET_ERR_SYSTEM, "CommInitAll");
    motet_group_start();
    for (int i = 0; i < ndev; i++) {
        init_call c = {
            .comm = &comm[i],
            .nranks = ndev,
            .rank = i,
            .ordinal = devlist == NULL ? i : devlist[i],
            .has_ordinal = true,
            .id = &id,
        };

        motet_group_note(init_rank(&c));
    }
    result = motet_group_end();
    return result;
}

MOTET_API ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    motet_log_version();
    return finish(NULL, init_all(comm, ndev, devlist));
}
MOTET_ALIAS(ncclCommInitAll, pncclCommInitAll);

/* ---- communicators from communicators ---- */

/* A handle that can be split, shrunk or grown: made, and not finalized; failed and revoked
 * ones too, since that is how people recover. */
static motet_result check_parent(const char *call, ncclComm_t comm)
{
    motet_comm *c = motet_api_handle(comm);

    MOTET_TRY(motet_api_comm(call, comm), "%s", call);
    switch ((motet_comm_state)atomic_load(&c->state)) {
    case MOTET_COMM_READY: return MOTET_OK;
    case MOTET_COMM_STARTING:
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%s : Attempt to use communicator before the previous operation "
                "returned "
                "ncclSuccess",
                call);
    default:
        return motet_fail(MOTET_ERR_USAGE, "%s : the communicator has ended", call);
    }
}

/* Queue a derivation; with @p newcomm NULL this rank only takes part in the exchange. */
static motet_result derive(const motet_derive *what, const ncclConfig_t *config,
        ncclComm_t *newcomm)
{
    motet_job *job;
    motet_result result;

    result = motet_job_new(MOTET_JOB_DERIVE, &job);
    if (result != MOTET_OK) {
        free(what->excluded);
        return result;
    }
    job->derive = *what;
    result = parse_config(config, &what->parent->config, &job->derive.config);
    if (result == MOTET_OK)
        result = motet_exchange_draw(what->parent, &job->derive.exchange);
    if (result != MOTET_OK) {
        free(job->derive.excluded);
        free(job);
        return result;
    }
    if (newcomm == NULL)
        return motet_group_job(job, what->parent->config.blocking != 0);
    return launch_new(job, newcomm);
}

static motet_result split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
        const ncclConfig_t *config)
{
    const motet_device_ops *device;
    motet_derive what = { .how = MOTET_SPLIT,
        .parent = motet_api_handle(comm),
        .color = color,
        .key = key };

    MOTET_TRY(motet_device_choose_now(MOTET_CHOOSE_AUTO, &device), "CommSplit");
    MOTET_TRY(check_parent("CommSplit", comm), "split");
    if (newcomm == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "CommSplit : newcomm argument is NULL");
    *newcomm = NULL;
    return derive(&what, config, color == NCCL_SPLIT_NOCOLOR ? NULL : newcomm);
}

MOTET_API ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key,
        ncclComm_t *newcomm, ncclConfig_t *config)
{
    return finish(comm, split(comm, color, key, newcomm, config));
}
MOTET_ALIAS(ncclCommSplit, pncclCommSplit);

/* The list as flags. Numbers that are no rank are passed over, as in NCCL. */
static motet_result exclude(const motet_comm *parent, const int *list, int count,
        bool **excluded_out)
{
    bool *excluded = calloc((size_t)parent->nranks, sizeof(*excluded));

    if (excluded == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "list of ranks");
    for (int i = 0; i < count; i++)
        if (list[i] >= 0 && list[i] < parent->nranks)
            excluded[list[i]] = true;
    if (excluded[parent->rank]) {
        free(excluded);
        return motet_fail(MOTET_ERR_ARGUMENT,
                "CommShrink : rank %d is in the list of those to exclude, and must not "
                "call",
                parent->rank);
    }
    *excluded_out = excluded;
    return MOTET_OK;
}

static motet_result shrink(ncclComm_t comm, const int *list, int count,
        ncclComm_t *newcomm, const ncclConfig_t *config, int flags)
{
    motet_derive what = { .how = MOTET_SHRINK, .parent = motet_api_handle(comm) };

    MOTET_TRY(check_parent("CommShrink", comm), "shrink");
    if (newcomm == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "CommShrink : newcomm argument is NULL");
    *newcomm = NULL;
    if (list == NULL || count <= 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "CommShrink : the list of ranks to exclude is empty");
    if ((flags & ~NCCL_SHRINK_ABORT) != 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "CommShrink : shrinkFlags is %d, need 0 or 1", flags);
    what.abort_first = (flags & NCCL_SHRINK_ABORT) != 0;
    MOTET_TRY(exclude(what.parent, list, count, &what.excluded), "shrink");
    return derive(&what, config, newcomm);
}

MOTET_API ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList,
        int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config,
        int shrinkFlags)
{
    return finish(comm,
            shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config,
                    shrinkFlags));
}
MOTET_ALIAS(ncclCommShrink, pncclCommShrink);

MOTET_API ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    motet_params *params = NULL;
    motet_result result = check_parent("CommGetUniqueId", comm);

    if (result != MOTET_OK)
        return finish(comm, result);
    if (uniqueId == NULL)
        return finish(comm,
                motet_fail(MOTET_ERR_ARGUMENT,
                        "CommGetUniqueId : uniqueId argument is NULL"));
    result = motet_params_new(&params);
    if (result == MOTET_OK) {
        if (motet_param_text(params, MOTET_P_COMM_ID)[0] != '\0')
            result = motet_fail(MOTET_ERR_USAGE,
                    "CommGetUniqueId : NCCL_COMM_ID is set, so no other id can be "
                    "made");
        free(params);
    }
    return result == MOTET_OK ? pncclGetUniqueId(uniqueId) : finish(comm, result);
}
MOTET_ALIAS(ncclCommGetUniqueId, pncclCommGetUniqueId);

/* A rank of the old communicator; the id may be known to one of them only. */
static motet_result grow_old(ncclComm_t comm, int nranks, const ncclUniqueId *id,
        int rank, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    motet_derive what = { .how = MOTET_GROW,
        .parent = motet_api_handle(comm),
        .nranks = nranks };

    MOTET_TRY(check_parent("CommGrow", comm), "grow");
    if (rank != -1)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "CommGrow : rank is %d, need -1 on ranks of the old communicator",
                rank);
    if (nranks <= what.parent->nranks || nranks > MOTET_MAX_RANKS)
        return motet_fail(MOTET_ERR_ARGUMENT, "CommGrow : nRanks is %d, need %d..%d",
                nranks, what.parent->nranks + 1, MOTET_MAX_RANKS);
    if (id != NULL) {
        what.has_id = true;
        memcpy(&what.id, id, sizeof(what.id));
        MOTET_TRY(motet_id_check(&what.id), "CommGrow");
    }
    return derive(&what, config, newcomm);
}

MOTET_API ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks,
        const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
        ncclConfig_t *config)
{
    init_call c = { .comm = newcomm,
        .nranks = nRanks,
        .rank = rank,
        .id = uniqueId,
        .config = config };
    motet_result result;

    if (newcomm == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT, "CommGrow : newcomm argument is NULL");
    else if (comm != NULL)
        result = grow_old(comm, nRanks, uniqueId, rank, newcomm, config);
    else if (uniqueId == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT, "CommGrow : a new rank needs the id");
    else
        result = init_rank(&c);
    return finish(comm, result);
}
MOTET_ALIAS(ncclCommGrow, pncclCommGrow);

/* ---- ends ---- */

MOTET_API ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    motet_comm *c = motet_api_handle(comm);
    motet_job *job;
    motet_result result;

    if (comm == NULL)
        return ncclSuccess;
    result = motet_api_comm("CommFinalize", comm);
    if (result == MOTET_OK)
        result = motet_job_new(MOTET_JOB_FINALIZE, &job);
    if (result == MOTET_OK) {
        job->comm = c;
        result = motet_group_job(job, c->config.blocking != 0);
    }
    return finish(comm, result);
}
MOTET_ALIAS(ncclCommFinalize, pncclCommFinalize);

/* Is the handle one that can be freed? A forked child's can. */
static motet_result check_end(const char *call, ncclComm_t comm)
{
    motet_result result = motet_api_comm(call, comm);

    return result == MOTET_ERR_USAGE ? MOTET_OK : result;
}

MOTET_API ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    motet_result result;

    if (comm == NULL)
        return ncclSuccess;
    result = check_end("CommDestroy", comm);
    if (result == MOTET_OK && motet_group_holds(motet_api_handle(comm)))
        result = motet_fail(MOTET_ERR_USAGE,
                "CommDestroy : a call in this thread's open group still uses the "
                "communicator, end the group first");
    if (result == MOTET_OK)
        result = motet_comm_destroy(motet_api_handle(comm));
    return motet_api_report(result);
}
MOTET_ALIAS(ncclCommDestroy, pncclCommDestroy);

MOTET_API ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    motet_result result;

    if (comm == NULL)
        return ncclSuccess;
    result = check_end("CommAbort", comm);
    if (result == MOTET_OK)
        result = motet_comm_abort(motet_api_handle(comm));
    return motet_api_report(result);
}
MOTET_ALIAS(ncclCommAbort, pncclCommAbort);

MOTET_API ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    motet_result result;

    if (comm == NULL)
        return ncclSuccess;
    result = motet_api_comm("CommRevoke", comm);
    if (result == MOTET_OK && revokeFlags != NCCL_REVOKE_DEFAULT)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "CommRevoke : revokeFlags is %d, need 0", revokeFlags);
    if (result == MOTET_OK)
        result = motet_comm_revoke(motet_api_handle(comm));
    return motet_api_report_comm(comm, result);
}
MOTET_ALIAS(ncclCommRevoke, pncclCommRevoke);
