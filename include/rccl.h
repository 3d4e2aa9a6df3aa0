/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that include <rccl.h> without its folder. */
#ifndef MOTET_RCCL_WRAPPER_H
#define MOTET_RCCL_WRAPPER_H
#include "rccl/rccl.h"
#endif
