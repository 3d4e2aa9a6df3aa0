/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON. The writer keeps track of commas and nesting, so what comes out is
 * always well formed; the caller only says what comes next:
 *
 *     json_start(&j, stdout);
 *     json_object(&j, NULL);
 *         json_int(&j, "rank", 3);
 *         json_array(&j, "times_us");
 *             json_double(&j, NULL, 4.25);
 *         json_end(&j);
 *     json_end(&j);
 *     json_finish(&j);
 *
 * @p key is the member's name inside an object, NULL inside an array or at the top.
 */
#ifndef MOTET_TOOLS_JSON_H
#define MOTET_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/** Deepest nesting. */
#define JSON_DEPTH_MAX 16

struct json {
    FILE *out;
    int depth;
    bool some[JSON_DEPTH_MAX + 1]; /* has a member already                   */
    char close[JSON_DEPTH_MAX];    /* '}' or ']' that ends this level        */
    bool too_deep;                 /* a level was refused: the text is short */
};

void json_start(struct json *j, FILE *out);

void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
/** End the innermost object or array. */
void json_end(struct json *j);

/** NULL gives null. Bytes that are not UTF-8 become U+FFFD. */
void json_string(struct json *j, const char *key, const char *text);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
/** Shortest text that reads back the same; NaN and infinities give null. */
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

/**
 * End what is open, write the last newline and flush. False if anything could not be
 * written (errno says why) or was nested too deep.
 */
bool json_finish(struct json *j);

#endif
