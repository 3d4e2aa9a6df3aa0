/* SPDX-License-Identifier: Apache-2.0 */
/* One search, shared by find.c (who is looked at, in which order) and find_file.c (how). */
#ifndef MOTET_FIND_INTERNAL_H
#define MOTET_FIND_INTERNAL_H

#include "find.h"

#include <sys/types.h>

typedef struct motet_find_file_id {
    dev_t device;
    ino_t inode;
} motet_find_file_id;

/** A folder that an install may be in, and the first file of it that has a wanted name. */
typedef struct motet_find_root {
    char path[MOTET_FIND_PATH_MAX];
    const motet_find_install *install; /* NULL: configured */
    bool unversioned;
    bool holds;
    motet_find_file_id id; /* if holds */
} motet_find_root;

typedef struct motet_find_search {
    const motet_find_request *request;
    const motet_find_library *library;
    motet_find_report *report;
    motet_find_candidate spare;         /* for what does not fit into the report */
    char last[MOTET_FIND_SENTENCE_MAX]; /* "PATH: why not", of the last one refused */
    bool decided;                       /* a copy was loaded: no other one may be */
    size_t num_tried;
    motet_find_file_id tried[MOTET_FIND_ROOTS_MAX];
    size_t num_roots;
    motet_find_root roots[MOTET_FIND_ROOTS_MAX];
} motet_find_search;

/** snprintf(), where a text that is cut is fine. */
__attribute__((format(printf, 3, 4))) void motet_find_say(char *buf, size_t bytes,
        const char *fmt, ...);

/** Append to a terminated text that may be full already. */
__attribute__((format(printf, 3, 4))) void motet_find_add(char *buf, size_t bytes,
        const char *fmt, ...);

/** A new row of the report, or one that is only counted. The search's, until the next. */
motet_find_candidate *motet_find_list(motet_find_search *s, const char *path,
        motet_find_origin origin, motet_find_verdict verdict);

/** TAKEN if the file may be opened as a library, else why not; @p c gets the reason. */
motet_find_verdict motet_find_look(motet_find_candidate *c);

/** Open @p c with @p flags beside RTLD_NOW; it gets verdict and reason. True if taken. */
bool motet_find_load(motet_find_search *s, motet_find_candidate *c, int flags);

/**
 * List, look at and open a path or a bare SONAME. Unless it is taken, @c last says why.
 * @return its row, as motet_find_list() does
 */
const motet_find_candidate *motet_find_try(motet_find_search *s, const char *path,
        motet_find_origin origin);

#endif
