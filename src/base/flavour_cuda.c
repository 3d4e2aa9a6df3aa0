/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into libnccl alone: it carries no code for AMD GPUs. */
#include "base/param.h"

const char *const motet_conf_gpus = "cuda";
