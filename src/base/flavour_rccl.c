/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into librccl alone: its configuration files and version line are RCCL's. */
#include "base/param.h"

const char *const motet_conf_name = "rccl";
