/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what people type, and writing sizes as they read them. */
#ifndef MOTET_TOOLS_TEXT_H
#define MOTET_TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A whole number, decimal or 0x…, in min … max; false (and no output) otherwise. */
bool text_to_int(const char *text, int64_t min, int64_t max, int64_t *out);

/** Same, into an int. */
bool text_to_small(const char *text, int min, int max, int *out);

/** A number of bytes with an optional K, M, G or T (×1024), as in 64M or 1.5G. */
bool text_to_bytes(const char *text, uint64_t *out);

/** "4 KB", "1.5 MB", "7 B": by 1024, as in the smoke test's table. */
const char *text_from_bytes(uint64_t bytes, char *buf, size_t size);

/** Replace what could command a terminal, of a text that comes from a file, by '?'. */
char *text_plain(char *text);

/**
 * The one of @p count names that is nearest to @p typed, or NULL if none is near
 * enough to have been meant. name(i, arg) gives the i-th.
 */
const char *text_nearest(const char *typed, const char *(*name)(size_t i, void *arg),
        void *arg, size_t count);

#endif
