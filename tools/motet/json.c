/* SPDX-License-Identifier: Apache-2.0 */
/* Writing JSON: see json.h. Two blanks for each level; one member a line. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_start(struct json *j, FILE *out)
{
    memset(j, 0, sizeof(*j));
    j->out = out;
}

static void newline(struct json *j)
{
    fputc('\n', j->out);
    for (int i = 0; i < j->depth; i++)
        fputs("  ", j->out);
}

/* Length of the UTF-8 sequence at @p s, 0 if it is none (overlong and surrogates too). */
static int utf8_length(const unsigned char *s)
{
    unsigned lead = s[0];
    int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;

    if (more == 0)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    for (int i = 1; i <= more; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((lead == 0xe0 && s[1] < 0xa0) || (lead == 0xed && s[1] > 0x9f) ||
            (lead == 0xf0 && s[1] < 0x90) || (lead == 0xf4 && s[1] > 0x8f))
        return 0;
    return more + 1;
}

static void quoted(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    fputc('"', out);
    while (*s != 0) {
        int length = utf8_length(s);

        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*s == '"' || *s == '\\') {
            fprintf(out, "\\%c", *s);
        } else if (*s == '\n') {
            fputs("\\n", out);
        } else if (*s == '\t') {
            fputs("\\t", out);
        } else if (*s < 0x20 || *s == 0x7f) {
            fprintf(out, "\\u%04x", *s);
        } else {
            fwrite(s, 1, (size_t)length, out);
        }
        s += length;
    }
    fputc('"', out);
}

/* Comma, newline and key: everything before a value. */
static void before_value(struct json *j, const char *key)
{
    if (j->depth > 0) {
        if (j->some[j->depth])
            fputc(',', j->out);
        newline(j);
    }
    j->some[j->depth] = true;
    if (key != NULL) {
        quoted(j->out, key);
        fputs(": ", j->out);
    }
}

static void open_level(struct json *j, const char *key, char open, char close)
{
    if (j->depth == JSON_DEPTH_MAX) {
        j->too_deep = true;
        return;
    }
    before_value(j, key);
    fputc(open, j->out);
    j->close[j->depth++] = close;
    j->some[j->depth] = false;
}

void json_object(struct json *j, const char *key)
{
    open_level(j, key, '{', '}');
}

void json_array(struct json *j, const char *key)
{
    open_level(j, key, '[', ']');
}

void json_end(struct json *j)
{
    bool some;

    if (j->depth == 0)
        return;
    some = j->some[j->depth];
    j->depth--;
    if (some)
        newline(j);
    fputc(j->close[j->depth], j->out);
}

void json_string(struct json *j, const char *key, const char *text)
{
    before_value(j, key);
    if (text == NULL)
        fputs("null", j->out);
    else
        quoted(j->out, text);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    before_value(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
    before_value(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_double(struct json *j, const char *key, double value)
{
    char text[40];

    before_value(j, key);
    if (!isfinite(value)) {
        fputs("null", j->out);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, j->out);
}

void json_bool(struct json *j, const char *key, bool value)
{
    before_value(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *key)
{
    before_value(j, key);
    fputs("null", j->out);
}

bool json_finish(struct json *j)
{
    while (j->depth > 0)
        json_end(j);
    fputc('\n', j->out);
    return fflush(j->out) == 0 && !ferror(j->out) && !j->too_deep;
}
