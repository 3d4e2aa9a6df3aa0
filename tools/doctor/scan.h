/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for patterns in a line, without regular expressions: fast, and bounded. */
#ifndef MOTET_DOCTOR_SCAN_H
#define MOTET_DOCTOR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A piece of a line. */
struct dr_span {
    const char *at;
    size_t length;
};

/** Most captures of a pattern. */
#define DR_CAPTURES_MAX 12

/**
 * Whether @p text holds @p pattern, anywhere; a pattern that begins with '^' matches at
 * the beginning only. Captures go to @p out (NULL if none are wanted), in their order.
 *
 *     a space  one or more blanks          %%  a percent sign
 *     %d       decimal digits              %x  hexadecimal digits, 0x before them or not
 *     %f       a number, also 1.5e-3, -2   %b  a PCI address, with a domain or without
 *     %w       bytes that are not blank, as many as fit
 *     %*       any bytes, as few as fit (at the end of a pattern: the rest of the line)
 *     %e       the end, blanks before it ignored; captures nothing
 *     %<       not inside a word: the byte before is no letter, digit or _; captures nothing
 *     %>       the same of the byte after
 */
bool dr_scan(const char *text, const char *pattern, struct dr_span *out);

/** strstr() for a yes or no. */
bool dr_has(const char *text, const char *needle);
/** The same, whatever the case of ASCII letters. */
bool dr_has_any_case(const char *text, const char *needle);
/** dr_has_any_case() for any of @p count needles: cheaper than one by one. */
bool dr_has_any_of(const char *text, const char *const *needles, size_t count);
bool dr_begins(const char *text, const char *prefix);

bool dr_span_is(struct dr_span span, const char *text);
/** Decimal; false if it is not only digits or does not fit. */
bool dr_span_u64(struct dr_span span, uint64_t *out);
/** Hexadecimal, "0x" before it or not. */
bool dr_span_hex(struct dr_span span, uint64_t *out);
/** A number as %f takes it; 0 if it is none. */
double dr_span_double(struct dr_span span);

/** "0000:03:00.0" of an address with a domain or without, lower case; false if it is none. */
#define DR_BDF_MAX 16
bool dr_span_bdf(struct dr_span span, char bdf[DR_BDF_MAX]);

/** Next word of @p text from @p *at on, blanks before it skipped; false at the end. */
bool dr_word(const char *text, size_t *at, struct dr_span *out);

#endif
