/* SPDX-License-Identifier: Apache-2.0 */
/* Which library this is: NCCL's and for all GPUs, unless another flavour is linked too,
 * whose definitions are not weak. */
#include "base/param.h"

const char *const motet_conf_name __attribute__((weak)) = "nccl";
const char *const motet_conf_gpus __attribute__((weak)) = "cuda hip";
