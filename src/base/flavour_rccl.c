/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into librccl alone: its configuration files and version line are RCCL's, and AMD
 * GPUs are what it is asked for first. */
#include "base/param.h"

const char *const motet_conf_name = "rccl";
const char *const motet_conf_gpus = "hip cuda";
