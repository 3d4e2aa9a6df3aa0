/* SPDX-License-Identifier: Apache-2.0 */
/* What a typed command line makes of its words: loops and braces played through. */
#ifndef MOTET_DOCTOR_TYPED_H
#define MOTET_DOCTOR_TYPED_H

#include "doctor.h"
#include "scan.h"

/**
 * The words that begin with, or directly follow, @p before in @p command, in the order in
 * which the shell would use them: `for b in 21 e1; do lspci -s $b:00.0; done` with "-s "
 * gives 21:00.0 and e1:00.0; `cat /sys/{1,2}/type` with "/sys/" gives both paths.
 * @return how many; 0 too if one cannot be told without the machine (globs, `$(…)`).
 */
uint32_t dr_typed_words(struct doctor *d, const char *command, const char *before,
        const char **out, uint32_t room);

/** Index of the first line after @p line that is not its output. */
uint32_t dr_output_end(const struct doctor *d, uint32_t line);

#endif
