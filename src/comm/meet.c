/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a communicator that is there tell each other more: in words through the
 * arenas, with descriptors at another rendezvous. */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>

/* Rank 0 brings the rendezvous, or says that it could make none. */
typedef struct invitation {
    motet_id id;
    uint32_t has_id;
} invitation;

motet_result motet_comm_say(motet_comm *comm, const void *mine, size_t bytes, void *all,
        uint64_t deadline_ns, const _Atomic uint32_t *cancel)
{
    bool everybody[MOTET_MAX_RANKS];
    motet_result result;

    for (int r = 0; r < comm->nranks; r++)
        everybody[r] = true;
    result = motet_engine_oob(&comm->engine, everybody, mine, bytes, all, deadline_ns,
            cancel);
    if (result != MOTET_OK && atomic_load(&comm->engine.stop) != 0)
        return motet_engine_failure(&comm->engine);
    return result;
}

/* Rank 0 makes an id for all to meet at; all learn whether it could. */
static motet_result invite(motet_comm *comm, motet_params *params, uint64_t deadline_ns,
        const _Atomic uint32_t *cancel, motet_id *id_out)
{
    invitation mine = { .has_id = 0 },
               *all = calloc((size_t)comm->nranks, sizeof(*all));
    char text[MOTET_ERROR_TRAIL_MAX];
    motet_result made = MOTET_OK, result;

    if (all == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "exchange with %d ranks",
                comm->nranks);
    params->value[MOTET_P_COMM_ID].text[0] = '\0';
    if (comm->rank == 0)
        made = motet_id_create(params, &mine.id);
    mine.has_id = comm->rank == 0 && made == MOTET_OK;
    snprintf(text, sizeof(text), "%s", motet_error_trail());
    result = motet_comm_say(comm, &mine, sizeof(mine), all, deadline_ns, cancel);
    if (made != MOTET_OK)
        result = motet_error_adopt(made, text);
    else if (result != MOTET_OK && mine.has_id)
        motet_id_cancel(&mine.id);
    else if (result == MOTET_OK && !all[0].has_id)
        result = motet_fail(MOTET_ERR_REMOTE, "rank 0 could make no id to meet at");
    *id_out = all[0].id;
    free(all);
    return result;
}

motet_result motet_comm_meet(motet_comm *comm, const void *blob, size_t bytes, int fd,
        uint64_t deadline_ns, const _Atomic uint32_t *cancel, motet_roster *roster)
{
    motet_params *params = NULL;
    motet_id id;
    motet_join_args args = {
        .rank = comm->rank,
        .nranks = comm->nranks,
        .settings = "",
        .blob = blob,
        .blob_bytes = bytes,
        .fds = { fd },
        .nfds = fd >= 0 ? 1 : 0,
        .deadline_ns = deadline_ns,
        .cancel = cancel,
    };
    motet_result result = motet_params_new(&params);

    if (result == MOTET_OK)
        result = invite(comm, params, deadline_ns, cancel, &id);
    if (result == MOTET_OK)
        result = motet_bootstrap_join(params, &id, &args, roster);
    free(params);
    return result;
}
