/* SPDX-License-Identifier: Apache-2.0 */
/* Made operators. A handle carries the number of its communicator, so that one of
 * another communicator is unknown here. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#define SEED_MASK 0xfffffu

static int handle_of(const motet_comm *comm, int slot)
{
    return (int)((comm->redop_seed & SEED_MASK) * MOTET_MADE_REDOPS) + slot +
            MOTET_NUM_BUILTIN_REDOPS;
}

motet_result motet_comm_check_fp8(const motet_comm *comm, const motet_op *op)
{
    const char *name = motet_kind_table[op->kind].api_name;

    if (!motet_kind_table[op->kind].reduces ||
            (op->type != MOTET_FLOAT8E4M3 && op->type != MOTET_FLOAT8E5M2))
        return MOTET_OK;
    if (comm->fp8_odd != 0)
        return motet_fail(MOTET_ERR_USAGE,
                "%s : fp8 is %s on this rank's device and %s on rank %d's: no sum has "
                "both; reduce float16 or bfloat16",
                name, comm->fp8_fnuz ? "FNUZ" : "OCP", comm->fp8_fnuz ? "OCP" : "FNUZ",
                comm->fp8_odd - 1);
    if (comm->fp8_fnuz && comm->gpu == NULL)
        return motet_fail(MOTET_ERR_USAGE,
                "%s : fp8 is FNUZ on these devices, and on the copy path the host "
                "reduces, which has OCP only; reduce float16 or bfloat16",
                name);
    return MOTET_OK;
}

motet_result motet_redop_make(motet_comm *comm, motet_type type, const void *scalar,
        bool immediate, int *handle_out)
{
    motet_result result = MOTET_OK;
    int slot = 0;

    pthread_mutex_lock(&comm->lock);
    if (comm->redop == NULL)
        comm->redop = calloc(MOTET_MADE_REDOPS, sizeof(*comm->redop));
    while (comm->redop != NULL && slot < MOTET_MADE_REDOPS && comm->redop[slot].used)
        slot++;
    if (comm->redop == NULL)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "table of operators");
    else if (slot == MOTET_MADE_REDOPS)
        result = motet_fail(MOTET_ERR_USAGE,
                "%d operators are alive, and no more can be", MOTET_MADE_REDOPS);
    if (result == MOTET_OK) {
        motet_made_redop *redop = &comm->redop[slot];

        *redop = (motet_made_redop){ .used = true, .type = type };
        if (immediate)
            memcpy(&redop->scalar, scalar, motet_type_table[type].bytes);
        else
            redop->scalar_ptr = scalar;
        *handle_out = handle_of(comm, slot);
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

const motet_made_redop *motet_redop_find(motet_comm *comm, int handle)
{
    const motet_made_redop *found = NULL;
    int slot = handle - handle_of(comm, 0);

    pthread_mutex_lock(&comm->lock);
    if (comm->redop != NULL && slot >= 0 && slot < MOTET_MADE_REDOPS &&
            comm->redop[slot].used)
        found = &comm->redop[slot];
    pthread_mutex_unlock(&comm->lock);
    return found;
}

motet_result motet_redop_destroy(motet_comm *comm, int handle)
{
    const motet_made_redop *redop = motet_redop_find(comm, handle);

    if (redop == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "operator %d is unknown to this communicator", handle);
    pthread_mutex_lock(&comm->lock);
    comm->redop[redop - comm->redop].used = false;
    pthread_mutex_unlock(&comm->lock);
    return MOTET_OK;
}
