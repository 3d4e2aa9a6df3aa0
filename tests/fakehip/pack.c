/* SPDX-License-Identifier: Apache-2.0 */
#include "pack.h"

#include <string.h>

#define DEPTH 16

/* A big-endian number of @p bytes behind the first byte; false: cut off. */
static bool word(const pack *p, unsigned bytes, uint64_t *out)
{
    uint64_t value = 0;

    if ((size_t)(p->end - p->at) < 1 + (size_t)bytes)
        return false;
    for (unsigned i = 1; i <= bytes; i++)
        value = value << 8 | p->at[i];
    *out = value;
    return true;
}

static bool head(pack *p, unsigned bytes, uint64_t *out)
{
    if (!word(p, bytes, out))
        return false;
    p->at += 1 + bytes;
    return true;
}

/* A head with its count in the first byte (@p fix, below @p fix + @p room), or in 8 (if
 * there is such a form), 16 or 32 bits behind it. */
static bool counted(pack *p, unsigned fix, unsigned room, unsigned short_form,
        unsigned form16, uint64_t *out)
{
    unsigned first;

    if (p->at == p->end)
        return false;
    first = *p->at;
    if (first >= fix && first < fix + room) {
        *out = first - fix;
        p->at++;
        return true;
    }
    if (short_form != 0 && first == short_form)
        return head(p, 1, out);
    if (first == form16)
        return head(p, 2, out);
    return first == form16 + 1 && head(p, 4, out);
}

bool pack_map(pack *p, uint32_t *count_out)
{
    uint64_t count;

    if (!counted(p, 0x80, 16, 0, 0xde, &count))
        return false;
    *count_out = (uint32_t)count;
    return true;
}

bool pack_array(pack *p, uint32_t *count_out)
{
    uint64_t count;

    if (!counted(p, 0x90, 16, 0, 0xdc, &count))
        return false;
    *count_out = (uint32_t)count;
    return true;
}

bool pack_text(pack *p, const char **text_out, size_t *bytes_out)
{
    pack q = *p;
    uint64_t bytes;

    if (!counted(&q, 0xa0, 32, 0xd9, 0xda, &bytes) || bytes > (size_t)(q.end - q.at))
        return false;
    *text_out = (const char *)q.at;
    *bytes_out = (size_t)bytes;
    p->at = q.at + bytes;
    return true;
}

bool pack_is(pack *p, const char *wanted, bool *is_out)
{
    const char *text;
    size_t bytes;

    if (!pack_text(p, &text, &bytes))
        return false;
    *is_out = bytes == strlen(wanted) && memcmp(text, wanted, bytes) == 0;
    return true;
}

bool pack_number(pack *p, uint64_t *out)
{
    unsigned first;

    if (p->at == p->end)
        return false;
    first = *p->at;
    if (first < 0x80) {
        *out = first;
        p->at++;
        return true;
    }
    return first >= 0xcc && first <= 0xcf && head(p, 1u << (first - 0xcc), out);
}

/* Bytes behind the first one of a value without values in it; false: it has some, or it
 * is cut off. */
static bool plain(const pack *p, uint64_t *out)
{
    static const unsigned char fixed[] = { [0xca - 0xc0] = 4,
        [0xcb - 0xc0] = 8,
        [0xcc - 0xc0] = 1,
        [0xcd - 0xc0] = 2,
        [0xce - 0xc0] = 4,
        [0xcf - 0xc0] = 8,
        [0xd0 - 0xc0] = 1,
        [0xd1 - 0xc0] = 2,
        [0xd2 - 0xc0] = 4,
        [0xd3 - 0xc0] = 8,
        [0xd4 - 0xc0] = 2,
        [0xd5 - 0xc0] = 3,
        [0xd6 - 0xc0] = 5,
        [0xd7 - 0xc0] = 9,
        [0xd8 - 0xc0] = 17 };
    unsigned first = *p->at, bytes;

    *out = 0;
    if (first < 0x80 || first >= 0xe0)
        return true;
    if (first >= 0xc4 && first <= 0xc9) { /* bytes; with a type of their own from c7 */
        bytes = 1u << (first - (first < 0xc7 ? 0xc4 : 0xc7));
        if (!word(p, bytes, out))
            return false;
        *out += bytes + (first >= 0xc7);
        return true;
    }
    if (first < 0xc0 || first > 0xd8)
        return false;
    *out = fixed[first - 0xc0];
    return true;
}

/* One value; how many are in it. */
static bool skip_one(pack *p, uint64_t *inside)
{
    const char *text;
    uint64_t bytes;
    uint32_t count;

    *inside = 0;
    if (p->at == p->end)
        return false;
    if (pack_text(p, &text, &bytes))
        return true;
    if (pack_map(p, &count)) {
        *inside = 2 * (uint64_t)count;
        return true;
    }
    if (pack_array(p, &count)) {
        *inside = count;
        return true;
    }
    if (!plain(p, &bytes) || bytes + 1 > (size_t)(p->end - p->at))
        return false;
    p->at += bytes + 1;
    return true;
}

bool pack_skip(pack *p)
{
    uint64_t left[DEPTH] = { 1 };
    unsigned depth = 0;

    for (;;) {
        uint64_t inside;

        while (left[depth] == 0) {
            if (depth == 0)
                return true;
            depth--;
        }
        left[depth]--;
        if (!skip_one(p, &inside))
            return false;
        if (inside == 0)
            continue;
        if (++depth == DEPTH)
            return false;
        left[depth] = inside;
    }
}
