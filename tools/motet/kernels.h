/* SPDX-License-Identifier: Apache-2.0 */
/* motet kernels: its subcommands, one file each; kernels.c holds the table. */
#ifndef MOTET_TOOLS_KERNELS_H
#define MOTET_TOOLS_KERNELS_H

#include <stdint.h>

/**
 * The next hidden kind of argument after @p kind (-1: the first) in a set of 1 << kind; of
 * those with one short name the first. -1: none is left.
 */
int kernels_next_hidden(uint64_t kinds, int kind);

/** motet kernels build: argv[0] is "build". Returns an exit code. */
int kernels_build(int argc, char **argv);

/** motet kernels list: argv[0] is "list". Returns an exit code. */
int kernels_list(int argc, char **argv);

#endif
