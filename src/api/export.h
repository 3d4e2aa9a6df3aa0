/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an entry point is defined: the strong name does the work, the weak one is an
 * alias of it, so that a profiler can replace ncclX and call pncclX (api.md 1.1).
 *
 *     MOTET_API ncclResult_t pncclCommCount(const ncclComm_t comm, int *count) { … }
 *     MOTET_ALIAS(ncclCommCount, pncclCommCount);
 *
 * The library itself calls neither. What each library finally shows is decided by
 * its list in src/exports.
 */
#ifndef MOTET_API_EXPORT_H
#define MOTET_API_EXPORT_H

#include "nccl.h"

#define MOTET_API __attribute__((visibility("default")))

#define MOTET_ALIAS(weak_name, strong_name)  \
    extern __typeof__(strong_name) weak_name \
            __attribute__((weak, alias(#strong_name), visibility("default")))

#endif
