/* SPDX-License-Identifier: Apache-2.0 */
/* What depends on whether a person is watching: colour and progress. */
#ifndef MOTET_TOOLS_TERM_H
#define MOTET_TOOLS_TERM_H

#include <stdbool.h>

/** Whether descriptor @p fd wants colour: a terminal, NO_COLOR unset, TERM not dumb. */
bool term_colour(int fd);

/** Replace the progress line; nothing unless stderr is a terminal. */
void term_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** Remove the progress line, before anything else is written. */
void term_progress_end(void);

#endif
