/* SPDX-License-Identifier: Apache-2.0 */
/* `motet doctor --diff A B`. */
#ifndef MOTET_TOOLS_DOCTOR_DIFF_H
#define MOTET_TOOLS_DOCTOR_DIFF_H

#include <stdbool.h>

/** Compare what lies at two paths and print it; the exit status: 0 the same, 1 something
 *  changed, 2 one of them could not be read. */
int doctor_diff(const char *before, const char *after, bool json);

#endif
