/* SPDX-License-Identifier: Apache-2.0 */
/* Reading numbers and names: see text.h. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest name that is compared; a longer one is near to nothing. */
#define NAME_MAX_COMPARED 48

bool text_to_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    long long value;

    if (text == NULL || *text == 0 || isspace((unsigned char)*text))
        return false;
    errno = 0;
    value = strtoll(text, &end, 0);
    if (errno != 0 || *end != 0 || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool text_to_small(const char *text, int min, int max, int *out)
{
    int64_t value;

    if (!text_to_int(text, min, max, &value))
        return false;
    *out = (int)value;
    return true;
}

bool text_to_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "kmgt";
    const char *unit;
    char *end;
    double value;
    int shift = 0;

    if (text == NULL || !isdigit((unsigned char)*text))
        return false;
    errno = 0;
    value = strtod(text, &end);
    if (errno != 0)
        return false;
    if (*end != 0) {
        unit = strchr(units, tolower((unsigned char)*end));
        if (unit == NULL)
            return false;
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (tolower((unsigned char)*end) == 'i')
        end++;
    if (tolower((unsigned char)*end) == 'b')
        end++;
    value *= (double)(1ull << shift);
    if (*end != 0 || value > 9e18)
        return false;
    *out = (uint64_t)value;
    return true;
}

const char *text_from_bytes(uint64_t bytes, char *buf, size_t size)
{
    static const char *const unit[] = { "B", "KB", "MB", "GB", "TB" };
    double value = (double)bytes;
    size_t u = 0;

    while (value >= 1024 && u + 1 < sizeof(unit) / sizeof(*unit)) {
        value /= 1024;
        u++;
    }
    snprintf(buf, size, "%.4g %s", value, unit[u]);
    return buf;
}

/* Levenshtein's distance, row by row. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_COMPARED + 1];
    size_t la = strlen(a), lb = strlen(b);

    if (la > NAME_MAX_COMPARED || lb > NAME_MAX_COMPARED)
        return SIZE_MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j - 1] + 1 < change)
                change = row[j - 1] + 1;
            row[j] = row[j] + 1 < change ? row[j] + 1 : change;
        }
    }
    return row[lb];
}

const char *text_nearest(const char *typed, const char *(*name)(size_t i, void *arg),
        void *arg, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(typed) / 3 + 2; /* further away was not meant */

    for (size_t i = 0; i < count; i++) {
        const char *candidate = name(i, arg);
        size_t d = distance(typed, candidate);

        if (d < best_distance) {
            best_distance = d;
            best = candidate;
        }
    }
    return best;
}

char *text_plain(char *text)
{
    for (char *c = text; *c != 0; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return text;
}
