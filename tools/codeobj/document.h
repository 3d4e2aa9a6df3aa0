/* SPDX-License-Identifier: Apache-2.0 */
/* A msgpack document as msgpack-c's tree, of bytes that are not trusted. */
#ifndef MOTET_CODEOBJ_DOCUMENT_H
#define MOTET_CODEOBJ_DOCUMENT_H

#include "codeobj.h"

#include <msgpack.h>

struct document {
    msgpack_unpacked unpacked; /* .data is its root; texts lie in what was read */
};

/** Read it. False with a sentence in @p why. For document_clear() in any case. */
bool document_read(const void *data, size_t bytes, struct document *out,
        char why[CODEOBJ_WHY_MAX]);
void document_clear(struct document *document);

/** Whether it is that text. */
bool document_is_text(const msgpack_object *object, const char *text);

/** Whether there is a @p key, whatever its value. */
bool document_has(const msgpack_object *map, const char *key);

/** The value of @p key, of @p type; NULL if there is none or of another type. */
const msgpack_object *document_get(const msgpack_object *map, const char *key,
        msgpack_object_type type);

#endif
