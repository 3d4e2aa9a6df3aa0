/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's configuration structures, of any version, into ours (api.md 1.5). */
#ifndef MOTET_API_CONFIG_H
#define MOTET_API_CONFIG_H

#include "base/error.h"
#include "base/param.h"
#include "comm/config.h"
#include "nccl.h"

/**
 * Resolve a communicator's configuration.
 * @param config the caller's; NULL takes @p parent's, or all defaults without one
 * @param parent the communicator that this one is made from, or NULL
 * @param params NCCL_COMM_BLOCKING and so on win over what the caller said
 * @retval MOTET_ERR_ARGUMENT not initialized, or a value out of range; names the field
 */
MOTET_MUST_USE motet_result motet_config_parse(const ncclConfig_t *config,
        const motet_config *parent, const motet_params *params, motet_config *out);

/** What a communicator gets that asks for nothing, before the environment. */
void motet_config_defaults(motet_config *out);

/** Resolve the configuration of one call; NULL gives one that asks for nothing. */
MOTET_MUST_USE motet_result motet_call_config_parse(const ncclCollConfig_t *config,
        motet_call_config *out);

/** Check the argument of ncclGroupSimulateEnd(); NULL is fine. */
MOTET_MUST_USE motet_result motet_sim_info_check(const ncclSimInfo_t *info);

/** Set the estimated time, µs, if the caller's structure has that field; NULL is fine. */
void motet_sim_info_set_time(ncclSimInfo_t *info, float time_us);

#endif
