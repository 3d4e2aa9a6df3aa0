/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration files: KEY=VALUE lines that stand for variables which the
 * environment does not set. Only param.c uses this; everybody else asks param.h.
 */
#ifndef MOTET_BASE_CONF_H
#define MOTET_BASE_CONF_H

#include "base/error.h"

#include <stddef.h>

/** Longest key and value kept, bytes with the NUL; a line with a longer one is ignored. */
#define MOTET_CONF_KEY_MAX   128
#define MOTET_CONF_VALUE_MAX 4096

/** Most pairs kept of one file, and the longest file read, bytes. */
#define MOTET_CONF_PAIRS_MAX 1024
#define MOTET_CONF_FILE_MAX  (1u << 20)

typedef struct motet_conf_pair {
    char *key, *value;
} motet_conf_pair;

/** The pairs of one file, in its order. All zero is an empty one. */
typedef struct motet_conf {
    motet_conf_pair *pairs;
    size_t count;
    char path[MOTET_CONF_VALUE_MAX]; /* "" if there is no such file to read */
    motet_result result; /* of reading it: MOTET_OK also when the file does not exist */
    int error; /* errno of that; ENOENT if it does not exist, 0 if it was read */
} motet_conf;

/** Read the file @p path into @p conf. Logs nothing: see `result` and `error`. */
void motet_conf_read(motet_conf *conf, const char *path);

/** Value of @p key, NULL if absent. The first line that has the key counts. */
const char *motet_conf_get(const motet_conf *conf, const char *key);

/** Free the pairs; @p conf is empty afterwards. */
void motet_conf_clear(motet_conf *conf);

#endif
