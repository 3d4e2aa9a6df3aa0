/* SPDX-License-Identifier: Apache-2.0 */
/* From a variable's text to its value, and what to say when that fails: pure, and
 * only for param.c. */
#ifndef MOTET_BASE_PARAM_PARSE_H
#define MOTET_BASE_PARAM_PARSE_H

#include "base/param.h"

/**
 * Whose grammar a text follows. Ours is strict. Other people's numbers go through
 * strtoll() base 0, as NCCL reads them, and any number but 0 is true.
 */
typedef enum motet_param_grammar {
    MOTET_GRAMMAR_OURS,
    MOTET_GRAMMAR_OTHERS
} motet_param_grammar;

/** False if @p text is malformed or out of range; @p out is written only on success. */
bool motet_param_parse(const motet_param_info *info, motet_param_grammar grammar,
        const char *text, motet_param_value *out);

/** What would have been accepted: "0..1800 s", "one of auto cpu gpu". */
void motet_param_wanted(const motet_param_info *info, char *buf, size_t bytes);

/** The row's default. */
void motet_param_default(const motet_param_info *info, motet_param_value *out);

#endif
