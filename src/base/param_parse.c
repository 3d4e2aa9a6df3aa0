/* SPDX-License-Identifier: Apache-2.0 */
#include "base/param_parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The word that starts at @p words, or NULL at the end; words are separated by one blank. */
static const char *next_word(const char *words, size_t *length_out)
{
    while (*words == ' ')
        words++;
    *length_out = strcspn(words, " ");
    return *length_out > 0 ? words : NULL;
}

static bool find_word(const char *words, const char *text, int64_t *index_out)
{
    const char *word;
    size_t length;
    int64_t index = 0;

    while ((word = next_word(words, &length)) != NULL) {
        if (strlen(text) == length && strncasecmp(word, text, length) == 0) {
            *index_out = index;
            return true;
        }
        words = word + length;
        index++;
    }
    return false;
}

static bool in_range(const motet_param_info *info, int64_t number)
{
    return info->min <= number && number <= info->max;
}

static bool parse_scale(const char *suffix, int *shift_out)
{
    static const struct {
        const char *text;
        int shift;
    } units[] = { { "", 0 }, { "k", 10 }, { "m", 20 }, { "g", 30 } };

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (strcasecmp(suffix, units[i].text) == 0) {
            *shift_out = units[i].shift;
            return true;
        }
    }
    return false;
}

/* Our own numbers: decimal or 0x, '-' for INT, a unit for BYTES, nothing else. */
static bool parse_strict(const motet_param_info *info, const char *text, int64_t *out)
{
    const bool negative = info->type == MOTET_PARAM_INT && text[0] == '-';
    const char *digits = negative ? text + 1 : text;
    const bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    unsigned long long number;
    int shift = 0;
    char *end;

    /* strtoull() by itself would take blanks, signs and a bare "0x" */
    if (!isdigit((unsigned char)digits[0]))
        return false;
    if (hex && !isxdigit((unsigned char)digits[2]))
        return false;
    errno = 0;
    number = strtoull(digits, &end, hex ? 16 : 10);
    if (errno != 0)
        return false;
    if (info->type == MOTET_PARAM_BYTES ? !parse_scale(end, &shift) : *end != '\0')
        return false;
    if (number > (unsigned long long)INT64_MAX >> shift)
        return false;
    *out = (int64_t)(number << shift);
    if (negative)
        *out = -*out;
    return true;
}

static bool parse_loose(const char *text, int64_t *out)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 0);
    if (errno != 0 || end == text)
        return false;
    while (isspace((unsigned char)*end))
        end++;
    if (*end != '\0')
        return false;
    *out = number;
    return true;
}

static bool parse_bool(motet_param_grammar grammar, const char *text, int64_t *out)
{
    if (grammar == MOTET_GRAMMAR_OTHERS && parse_loose(text, out)) {
        *out = *out != 0;
        return true;
    }
    if (!find_word("0 1 no yes false true", text, out))
        return false;
    *out &= 1; /* the words alternate: false, true */
    return true;
}

static bool parse_enum(const motet_param_info *info, motet_param_grammar grammar,
        const char *text, int64_t *out)
{
    if (find_word(info->words, text, out))
        return true;
    /* a row with a unit is one whose words have well-known numbers (see param.def) */
    return info->unit[0] != '\0' &&
            (grammar == MOTET_GRAMMAR_OURS ? parse_strict(info, text, out)
                                           : parse_loose(text, out)) &&
            in_range(info, *out);
}

static bool parse_number(const motet_param_info *info, motet_param_grammar grammar,
        const char *text, int64_t *out)
{
    if (grammar == MOTET_GRAMMAR_OURS ? !parse_strict(info, text, out)
                                      : !parse_loose(text, out))
        return false;
    return in_range(info, *out);
}

bool motet_param_parse(const motet_param_info *info, motet_param_grammar grammar,
        const char *text, motet_param_value *out)
{
    int64_t number = 0;
    bool fine = true;

    switch (info->type) {
    case MOTET_PARAM_UINT:
    case MOTET_PARAM_INT:
    case MOTET_PARAM_BYTES: fine = parse_number(info, grammar, text, &number); break;
    case MOTET_PARAM_BOOL: fine = parse_bool(grammar, text, &number); break;
    case MOTET_PARAM_ENUM: fine = parse_enum(info, grammar, text, &number); break;
    case MOTET_PARAM_STRING:
    case MOTET_PARAM_NOTED:
        if (strlen(text) >= sizeof(out->text))
            return false;
        memcpy(out->text, text, strlen(text) + 1);
        out->number = 0;
        out->set = true;
        return true;
    }
    if (!fine)
        return false;
    out->number = number;
    out->text[0] = '\0';
    out->set = true;
    return true;
}

void motet_param_wanted(const motet_param_info *info, char *buf, size_t bytes)
{
    switch (info->type) {
    case MOTET_PARAM_UINT:
    case MOTET_PARAM_INT:
        snprintf(buf, bytes, "%" PRId64 "..%" PRId64 "%s%s", info->min, info->max,
                info->unit[0] != '\0' ? " " : "", info->unit);
        break;
    case MOTET_PARAM_BYTES:
        snprintf(buf, bytes,
                "%" PRId64 "..%" PRId64 " bytes, with k, m or g if you like", info->min,
                info->max);
        break;
    case MOTET_PARAM_BOOL: snprintf(buf, bytes, "0 or 1, no or yes"); break;
    case MOTET_PARAM_ENUM: snprintf(buf, bytes, "one of: %s", info->words); break;
    case MOTET_PARAM_STRING:
    case MOTET_PARAM_NOTED:
        snprintf(buf, bytes, "at most %d bytes", MOTET_PARAM_STRING_MAX - 1);
        break;
    }
}

void motet_param_default(const motet_param_info *info, motet_param_value *out)
{
    out->number = info->dflt;
    out->set = false;
    snprintf(out->text, sizeof(out->text), "%s", info->dflt_text);
}

static void format_word(const motet_param_info *info, int64_t index, char *buf,
        size_t bytes)
{
    const char *words = info->words, *word;
    size_t length;

    for (; (word = next_word(words, &length)) != NULL; words = word + length) {
        if (index-- == 0) {
            snprintf(buf, bytes, "%.*s", (int)length, word);
            return;
        }
    }
    snprintf(buf, bytes, "?");
}

void motet_param_format(const motet_params *params, motet_param_id id, char *buf,
        size_t bytes)
{
    const motet_param_info *info = &motet_param_table[id];
    const motet_param_value *value = &params->value[id];

    switch (info->type) {
    case MOTET_PARAM_UINT:
    case MOTET_PARAM_INT:
    case MOTET_PARAM_BYTES:
        snprintf(buf, bytes, "%" PRId64 "%s%s", value->number,
                info->unit[0] != '\0' ? " " : "", info->unit);
        break;
    case MOTET_PARAM_BOOL:
        snprintf(buf, bytes, "%s", value->number ? "yes" : "no");
        break;
    case MOTET_PARAM_ENUM: format_word(info, value->number, buf, bytes); break;
    case MOTET_PARAM_STRING:
    case MOTET_PARAM_NOTED:
        snprintf(buf, bytes, "%s", value->text[0] != '\0' ? value->text : "unset");
        break;
    }
}
