/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A msgpack document that is not trusted. msgpack-c makes a tree of it and asks for as
 * much memory as an array claims to need, so the document is walked once before: then it
 * holds what it claims, and is no deeper than metadata is.
 */
#include "document.h"

#include <stdio.h>
#include <string.h>

/* LLVM writes five levels: document, kernels, kernel, arguments, argument. */
#define DEPTH_MAX 16
/* Of the largest libraries' objects it is a tenth. */
#define DOCUMENT_MAX ((size_t)64 << 20)
/* Of msgpack-c's tree each takes 24 bytes; 40,000 kernels have 6 million. */
#define VALUES_MAX (UINT64_C(16) << 20)

struct walk {
    const uint8_t *data;
    size_t bytes, at;
};

/* The next @p bytes as a big-endian number; false at the end of the data. */
static bool take(struct walk *w, size_t bytes, uint64_t *out)
{
    uint64_t value = 0;

    if (bytes > w->bytes - w->at)
        return false;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | w->data[w->at++];
    *out = value;
    return true;
}

static bool skip(struct walk *w, uint64_t bytes)
{
    if (bytes > w->bytes - w->at)
        return false;
    w->at += (size_t)bytes;
    return true;
}

/* What follows a first byte from 0xc4 to 0xdf: how many bytes hold a length, and of what. */
enum shape { INVALID, PLAIN, TEXT, EXTENSION, ARRAY, MAP };
static const struct {
    uint8_t shape, length_bytes, plain_bytes;
} formats[256] = {
    [0xc0] = { PLAIN, 0, 0 }, /* nil, false, true */
    [0xc2] = { PLAIN, 0, 0 },
    [0xc3] = { PLAIN, 0, 0 },
    [0xc4] = { TEXT, 1, 0 }, /* bin */
    [0xc5] = { TEXT, 2, 0 },
    [0xc6] = { TEXT, 4, 0 },
    [0xc7] = { EXTENSION, 1, 0 },
    [0xc8] = { EXTENSION, 2, 0 },
    [0xc9] = { EXTENSION, 4, 0 },
    [0xca] = { PLAIN, 0, 4 }, /* float, unsigned, signed */
    [0xcb] = { PLAIN, 0, 8 },
    [0xcc] = { PLAIN, 0, 1 },
    [0xcd] = { PLAIN, 0, 2 },
    [0xce] = { PLAIN, 0, 4 },
    [0xcf] = { PLAIN, 0, 8 },
    [0xd0] = { PLAIN, 0, 1 },
    [0xd1] = { PLAIN, 0, 2 },
    [0xd2] = { PLAIN, 0, 4 },
    [0xd3] = { PLAIN, 0, 8 },
    [0xd4] = { PLAIN, 0, 2 }, /* extensions of a fixed size, with their type */
    [0xd5] = { PLAIN, 0, 3 },
    [0xd6] = { PLAIN, 0, 5 },
    [0xd7] = { PLAIN, 0, 9 },
    [0xd8] = { PLAIN, 0, 17 },
    [0xd9] = { TEXT, 1, 0 }, /* str */
    [0xda] = { TEXT, 2, 0 },
    [0xdb] = { TEXT, 4, 0 },
    [0xdc] = { ARRAY, 2, 0 },
    [0xdd] = { ARRAY, 4, 0 },
    [0xde] = { MAP, 2, 0 },
    [0xdf] = { MAP, 4, 0 },
};

/* One value without its members, whose number goes into *@p members. */
static bool walk_value(struct walk *w, uint64_t *members)
{
    uint64_t first, length = 0;
    unsigned byte;

    *members = 0;
    if (!take(w, 1, &first))
        return false;
    byte = (unsigned)first;
    if (byte < 0x80 || byte >= 0xe0) /* a small number */
        return true;
    if (byte < 0x90) {
        *members = 2 * (uint64_t)(byte & 0x0f);
        return true;
    }
    if (byte < 0xa0) {
        *members = byte & 0x0f;
        return true;
    }
    if (byte < 0xc0)
        return skip(w, byte & 0x1f);
    if (!take(w, formats[byte].length_bytes, &length))
        return false;
    switch (formats[byte].shape) {
    case PLAIN: return skip(w, formats[byte].plain_bytes);
    case TEXT: return skip(w, length);
    case EXTENSION: return skip(w, length + 1);
    case ARRAY: *members = length; return true;
    case MAP: *members = 2 * length; return true;
    default: return false;
    }
}

/* Why the document is not one, or NULL; w->at is where. Each member takes a byte at least. */
static const char *walk_document(struct walk *w)
{
    uint64_t left[DEPTH_MAX], members, values = 0;
    int depth = 0;

    left[0] = 1;
    while (depth >= 0) {
        if (left[depth] == 0) {
            depth--;
            continue;
        }
        left[depth]--;
        if (!walk_value(w, &members))
            return "ends early or holds what is no msgpack";
        if (members > w->bytes - w->at)
            return "claims more than it holds";
        values += members;
        if (values > VALUES_MAX)
            return "holds more than 16777216 values";
        if (members == 0)
            continue;
        if (++depth == DEPTH_MAX)
            return "is nested too deep";
        left[depth] = members;
    }
    return NULL;
}

bool document_read(const void *data, size_t bytes, struct document *out,
        char why[CODEOBJ_WHY_MAX])
{
    struct walk w = { data, bytes, 0 };
    const char *problem;
    size_t end = 0;

    msgpack_unpacked_init(&out->unpacked);
    if (bytes > DOCUMENT_MAX) {
        snprintf(why, CODEOBJ_WHY_MAX, "%zu bytes, at most %zu are read", bytes,
                DOCUMENT_MAX);
        return false;
    }
    problem = walk_document(&w);
    if (problem != NULL) {
        snprintf(why, CODEOBJ_WHY_MAX, "%s, at byte %zu of %zu", problem, w.at, bytes);
        return false;
    }
    if (msgpack_unpack_next(&out->unpacked, data, bytes, &end) !=
            MSGPACK_UNPACK_SUCCESS) {
        snprintf(why, CODEOBJ_WHY_MAX,
                "msgpack-c cannot read it, or there is no memory");
        return false;
    }
    return true;
}

void document_clear(struct document *document)
{
    msgpack_unpacked_destroy(&document->unpacked);
}

bool document_is_text(const msgpack_object *object, const char *text)
{
    size_t length = strlen(text);

    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == length &&
            memcmp(object->via.str.ptr, text, length) == 0;
}

bool document_has(const msgpack_object *map, const char *key)
{
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (document_is_text(&map->via.map.ptr[i].key, key))
            return true;
    return false;
}

const msgpack_object *document_get(const msgpack_object *map, const char *key,
        msgpack_object_type type)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];

        if (document_is_text(&pair->key, key))
            return pair->val.type == type ? &pair->val : NULL;
    }
    return NULL;
}
