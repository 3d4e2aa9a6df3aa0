/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comes before every file of ours (-include). From 2.38 on, glibc's headers turn
 * strtol() and scanf() into functions that older ones lack, as soon as _GNU_SOURCE is
 * defined; what is built on a new distribution would no longer run on an old one. The
 * difference, binary constants like 0b101, is nothing that we want to accept.
 */
#ifndef MOTET_CMAKE_GLIBC_H
#define MOTET_CMAKE_GLIBC_H

#include <features.h>

#ifdef __GLIBC__
#undef __GLIBC_USE_C2X_STRTOL /* 2.38, 2.39 */
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL /* newer */
#define __GLIBC_USE_C23_STRTOL 0
#endif

#endif
