/* SPDX-License-Identifier: Apache-2.0 */
/* Which library this is: NCCL's, unless flavour_rccl.c is linked too, whose
 * definition is not weak. */
#include "base/param.h"

const char *const motet_conf_name __attribute__((weak)) = "nccl";
