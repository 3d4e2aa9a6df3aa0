/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns in lines. See scan.h. */
#include "scan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps that one call may take: a hostile line ends without a match, not in a hang. */
#define STEPS_MAX 200000

struct match {
    const char *begin;
    struct dr_span found[DR_CAPTURES_MAX];
    unsigned captures;
    unsigned steps;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t digits(const char *at)
{
    size_t n = 0;

    while (isdigit((unsigned char)at[n]))
        n++;
    return n;
}

static size_t hex_digits(const char *at)
{
    size_t n = 0;

    if (at[0] == '0' && (at[1] == 'x' || at[1] == 'X') &&
            isxdigit((unsigned char)at[2]))
        n = 2;
    while (isxdigit((unsigned char)at[n]))
        n++;
    return n;
}

static size_t number(const char *at)
{
    size_t n = at[0] == '-' || at[0] == '+', whole = digits(at + n), part = 0;

    n += whole;
    if (at[n] == '.') {
        part = digits(at + n + 1);
        n += part != 0 || whole != 0 ? 1 + part : 0;
    }
    if (whole + part == 0)
        return 0;
    if (at[n] == 'e' || at[n] == 'E') {
        const size_t sign = at[n + 1] == '-' || at[n + 1] == '+';

        if (digits(at + n + 1 + sign) > 0)
            n += 1 + sign + digits(at + n + 1 + sign);
    }
    return n;
}

/* "03:00.0", "0000:03:00.0" or, from a VMD, "10000:03:00.0"; no longer word around it. */
static size_t address(const char *at)
{
    size_t n = 0, first = 0;

    while (isxdigit((unsigned char)at[first]))
        first++;
    if (first >= 4 && first <= 6 && at[first] == ':')
        n = first + 1;
    for (int i = 0; i < 2; i++, n++)
        if (!isxdigit((unsigned char)at[n]))
            return 0;
    if (at[n++] != ':')
        return 0;
    for (int i = 0; i < 2; i++, n++)
        if (!isxdigit((unsigned char)at[n]))
            return 0;
    if (at[n] != '.' || at[n + 1] < '0' || at[n + 1] > '7' || in_word(at[n + 2]))
        return 0;
    return n + 2;
}

static bool match_here(struct match *m, const char *at, const char *pattern);

static bool captured(struct match *m, const char *at, size_t length, const char *rest)
{
    const unsigned index = m->captures;

    if (index == DR_CAPTURES_MAX)
        return false;
    m->found[index] = (struct dr_span){ at, length };
    m->captures++;
    if (match_here(m, at + length, rest))
        return true;
    m->captures = index;
    return false;
}

/* Where @p rest may begin at the earliest: its first byte says so. */
static size_t skip_to(const char *at, const char *rest)
{
    const char *next;

    if (*rest == '%')
        return 0;
    if (*rest == ' ')
        return strcspn(at, " \t");
    next = strchr(at, *rest);
    return next != NULL ? (size_t)(next - at) : strlen(at);
}

/* Any bytes, the shortest first; at a pattern's end all that is left. */
static bool match_any(struct match *m, const char *at, const char *rest)
{
    if (*rest == 0)
        return captured(m, at, strlen(at), rest);
    for (size_t n = 0; m->steps < STEPS_MAX; n++) {
        const size_t skipped = skip_to(at + n, rest);

        n += skipped;
        m->steps += (unsigned)(skipped / 64);
        if (captured(m, at, n, rest))
            return true;
        if (at[n] == 0)
            break;
    }
    return false;
}

/* A word, the longest first. */
static bool match_word(struct match *m, const char *at, const char *rest)
{
    size_t n = 0;

    while (at[n] != 0 && !is_blank(at[n]))
        n++;
    for (; n > 0 && m->steps < STEPS_MAX; n--)
        if (captured(m, at, n, rest))
            return true;
    return false;
}

static bool match_blank_end(const char *at)
{
    while (is_blank(*at))
        at++;
    return *at == 0;
}

static bool match_special(struct match *m, const char *at, char kind, const char *rest)
{
    size_t n = 0;

    switch (kind) {
    case '*': return match_any(m, at, rest);
    case 'w': return match_word(m, at, rest);
    case 'e': return match_blank_end(at);
    case '<': return (at == m->begin || !in_word(at[-1])) && match_here(m, at, rest);
    case '>': return !in_word(*at) && match_here(m, at, rest);
    case '%': return *at == '%' && match_here(m, at + 1, rest);
    case 'd': n = digits(at); break;
    case 'x': n = hex_digits(at); break;
    case 'f': n = number(at); break;
    case 'b': n = at == m->begin || !in_word(at[-1]) ? address(at) : 0; break;
    default: break;
    }
    m->steps += (unsigned)n; /* what was walked over counts, too */
    return n > 0 && captured(m, at, n, rest);
}

static bool match_here(struct match *m, const char *at, const char *pattern)
{
    for (; *pattern != 0; pattern++) {
        if (++m->steps > STEPS_MAX)
            return false;
        if (*pattern == '%' && pattern[1] != 0)
            return match_special(m, at, pattern[1], pattern + 2);
        if (*pattern == ' ') {
            if (!is_blank(*at))
                return false;
            while (is_blank(*at))
                at++;
            continue;
        }
        if (*at != *pattern)
            return false;
        at++;
    }
    return true;
}

/* Bytes of a pattern's plain part that are looked for. */
#define PLAIN_MAX    31
#define PLAIN_ENOUGH 3

/* A piece of a pattern that stands for itself: the first that is not short, else the
 * longest. */
static struct dr_span plain_part(const char *pattern)
{
    struct dr_span longest = { pattern, 0 };

    while (*pattern != 0) {
        const char *begin = pattern;

        while (*pattern != 0 && *pattern != '%' && *pattern != ' ')
            pattern++;
        if ((size_t)(pattern - begin) > longest.length)
            longest = (struct dr_span){ begin, (size_t)(pattern - begin) };
        if (longest.length >= PLAIN_ENOUGH)
            break;
        if (*pattern != 0)
            pattern += *pattern == '%' && pattern[1] != 0 ? 2 : 1;
    }
    if (longest.length > PLAIN_MAX)
        longest.length = PLAIN_MAX;
    return longest;
}

/* Whether a pattern that begins as @p pattern does and matches at @p at would have matched
 * before: its first piece takes all that it can, so it is asked once of each run. */
static bool asked_before(const char *text, const char *at, const char *pattern)
{
    if (at == text)
        return false;
    if (*pattern == ' ')
        return is_blank(at[-1]);
    switch (pattern[1]) {
    case '*': return true;
    case 'w': return !is_blank(at[-1]);
    case 'd': return isdigit((unsigned char)at[-1]);
    default: return false;
    }
}

/* A pattern whose beginning can be anywhere. */
static bool match_somewhere(struct match *m, const char *pattern)
{
    for (const char *at = m->begin; m->steps < STEPS_MAX; at++) {
        m->captures = 0;
        if (!asked_before(m->begin, at, pattern) && match_here(m, at, pattern))
            return true;
        if (*at == 0)
            break;
    }
    return false;
}

/* A pattern that begins with @p word, the first of which is at @p at. */
static bool match_from(struct match *m, const char *at, const char *pattern,
        const char *word)
{
    for (; at != NULL && m->steps < STEPS_MAX; at = strstr(at + 1, word)) {
        m->captures = 0;
        if (match_here(m, at, pattern))
            return true;
    }
    return false;
}

static bool match_line(struct match *m, const char *pattern)
{
    const bool anchored = *pattern == '^';
    const char *first = pattern + anchored;
    const bool plain = *first != '%' && *first != ' ';
    struct dr_span part;
    char word[PLAIN_MAX + 1];
    const char *at = m->begin;

    if (anchored && plain)
        return match_here(m, m->begin, first);
    /* most lines fit no pattern: whether its plain part is there says so fast */
    part = plain_part(first);
    memcpy(word, part.at, part.length);
    word[part.length] = 0;
    if (part.length > 1 || plain)
        at = strstr(at, word);
    if (at == NULL)
        return false;
    if (anchored)
        return match_here(m, m->begin, first);
    if (part.length > 0 &&
            (part.at == first || (part.at == first + 2 && first[1] == '<')))
        return match_from(m, at == m->begin ? strstr(at, word) : at, first, word);
    return match_somewhere(m, first);
}

bool dr_scan(const char *text, const char *pattern, struct dr_span *out)
{
    struct match m;

    m.begin = text;
    m.captures = 0;
    m.steps = 0;
    if (!match_line(&m, pattern))
        return false;
    if (out != NULL)
        memcpy(out, m.found, m.captures * sizeof(*out));
    return true;
}

bool dr_has(const char *text, const char *needle)
{
    return strstr(text, needle) != NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* The letter of @p needle that text has least often. */
static size_t rarest(const char *needle)
{
    /* how many letters of English are less frequent, from 'a' to 'z' */
    static const unsigned char ranks[] = { 23, 6, 14, 15, 25, 9, 8, 19, 21, 2, 4, 16,
        13, 20, 22, 7, 1, 17, 18, 24, 12, 5, 10, 3, 11, 0 };
    size_t best = 0;
    unsigned least = 99;

    for (size_t i = 0; needle[i] != 0; i++) {
        const unsigned letter = (unsigned char)lower(needle[i]) - (unsigned)'a';

        if (letter < sizeof(ranks) && ranks[letter] < least) {
            least = ranks[letter];
            best = i;
        }
    }
    return best;
}

static bool is_any_case(const char *text, const char *needle)
{
    while (*needle != 0 && lower(*text) == lower(*needle)) {
        text++;
        needle++;
    }
    return *needle == 0;
}

bool dr_has_any_case(const char *text, const char *needle)
{
    const size_t n = rarest(needle);
    const char small = lower(needle[n]);
    const char other =
            small >= 'a' && small <= 'z' ? (char)(small - ('a' - 'A')) : small;

    if (*needle == 0)
        return true;
    if (strnlen(text, n) < n)
        return false;
    /* both cases of that letter in turn: plain searches are fast */
    for (int i = 0; i < 1 + (other != small); i++)
        for (const char *at = text + n;
                (at = strchr(at, i == 0 ? small : other)) != NULL; at++)
            if (is_any_case(at - n, needle))
                return true;
    return false;
}

/* Two letters next to each other, whatever their case: other bytes may look the same. */
static unsigned pair_of(const char *at)
{
    return (unsigned)(at[0] & 31) << 5 | (unsigned)(at[1] & 31);
}

bool dr_has_any_of(const char *text, const char *const *needles, size_t count)
{
    uint32_t pairs[32 * 32 / 32] = { 0 };

    for (const char *at = text; at[0] != 0 && at[1] != 0; at++)
        pairs[pair_of(at) / 32] |= 1u << pair_of(at) % 32;
    for (size_t i = 0; i < count; i++) {
        bool maybe = true;

        for (const char *at = needles[i]; maybe && at[0] != 0 && at[1] != 0; at++)
            maybe = (pairs[pair_of(at) / 32] >> pair_of(at) % 32 & 1) != 0;
        if (maybe && dr_has_any_case(text, needles[i]))
            return true;
    }
    return false;
}

bool dr_begins(const char *text, const char *prefix)
{
    while (*prefix != 0 && *text == *prefix) {
        text++;
        prefix++;
    }
    return *prefix == 0;
}

bool dr_span_is(struct dr_span span, const char *text)
{
    /* byte for byte: most differ in the first one */
    for (size_t i = 0; i < span.length; i++)
        if (text[i] == 0 || text[i] != span.at[i])
            return false;
    return text[span.length] == 0;
}

static bool to_number(struct dr_span span, unsigned base, uint64_t *out)
{
    uint64_t value = 0;

    if (base == 16 && span.length > 2 && span.at[0] == '0' &&
            (span.at[1] == 'x' || span.at[1] == 'X')) {
        span.at += 2;
        span.length -= 2;
    }
    if (span.length == 0)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        const char c = (char)tolower((unsigned char)span.at[i]);
        const unsigned digit = isdigit((unsigned char)c) ? (unsigned)(c - '0')
                : c >= 'a' && c <= 'f'                   ? (unsigned)(c - 'a') + 10
                                                         : 16;

        if (digit >= base || value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *out = value;
    return true;
}

bool dr_span_u64(struct dr_span span, uint64_t *out)
{
    return to_number(span, 10, out);
}

bool dr_span_hex(struct dr_span span, uint64_t *out)
{
    return to_number(span, 16, out);
}

double dr_span_double(struct dr_span span)
{
    char text[64];

    if (span.length == 0 || span.length >= sizeof(text))
        return 0;
    memcpy(text, span.at, span.length);
    text[span.length] = 0;
    return strtod(text, NULL);
}

bool dr_span_bdf(struct dr_span span, char bdf[DR_BDF_MAX])
{
    char text[DR_BDF_MAX];
    int used = 0;

    if (span.length == 0 || span.length >= sizeof(text))
        return false;
    for (size_t i = 0; i < span.length; i++)
        text[i] = (char)tolower((unsigned char)span.at[i]);
    text[span.length] = 0;
    if (address(text) != span.length)
        return false;
    used = snprintf(bdf, DR_BDF_MAX, "%s%s", span.length == 7 ? "0000:" : "", text);
    return used > 0 && used < DR_BDF_MAX;
}

bool dr_word(const char *text, size_t *at, struct dr_span *out)
{
    while (is_blank(text[*at]))
        ++*at;
    out->at = text + *at;
    while (text[*at] != 0 && !is_blank(text[*at]))
        ++*at;
    out->length = (size_t)(text + *at - out->at);
    return out->length > 0;
}
