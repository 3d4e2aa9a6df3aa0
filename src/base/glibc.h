/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before everything else, by the compiler's command line. From glibc 2.38 on,
 * _GNU_SOURCE turns strtol(), sscanf() and their like into new symbols that older
 * systems do not have; the library promises to run from glibc 2.34 on.
 */
#ifndef MOTET_BASE_GLIBC_H
#define MOTET_BASE_GLIBC_H

#include <features.h>

#undef __GLIBC_USE_C23_STRTOL /* its name from 2.40 on */
#define __GLIBC_USE_C23_STRTOL 0
#undef __GLIBC_USE_C2X_STRTOL /* and in 2.38 and 2.39  */
#define __GLIBC_USE_C2X_STRTOL 0

#endif
