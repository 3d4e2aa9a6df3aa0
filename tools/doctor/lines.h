/* SPDX-License-Identifier: Apache-2.0 */
/* From bytes to lines; for whatever brings text into the doctor. */
#ifndef MOTET_DOCTOR_LINES_H
#define MOTET_DOCTOR_LINES_H

#include "doctor.h"
#include "scan.h"

/** One line as UTF-8, without escapes, control characters and trailing blanks; bytes
 *  written, without the NUL. @p cut: it did not fit. */
size_t dr_clean(const char *text, size_t length, char *out, size_t size, bool *cut);

/** UTF-8 of UTF-16 with a byte order mark, to free(); NULL if it is something else. */
char *dr_from_utf16(const char *bytes, size_t count, size_t *out_count);

/** More control bytes than any text has. */
bool dr_is_binary(const char *bytes, size_t count);

/** Set DR_COMMAND and DR_REMARK; @p host gets the name in the prompt, or nothing. */
void dr_look_at_line(struct dr_line *line, struct dr_span *host);

/** What was typed, of a line with DR_COMMAND. */
const char *dr_typed(const struct dr_line *line);

#endif
