/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One search, shared by find.c (who is looked at, in which order), find_file.c (how) and
 * find_ask.c (what is asked and said).
 */
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
    const motet_find_install *install; /* NULL: configured, or shown by a tool */
    bool selects;                      /* of the family of an unversioned root */
    bool holds;                        /* the library                        */
    bool whole;                        /* an SDK, for a library that has one */
    motet_find_file_id id;             /* of the library's file, if holds    */
    motet_find_file_id folder;
} motet_find_root;

typedef struct motet_find_search {
    const motet_find_request *request;
    const motet_find_library *library;
    motet_find_report *report;
    motet_find_candidate spare;         /* for what does not fit into the report */
    char last[MOTET_FIND_SENTENCE_MAX]; /* "PATH: why not", of the last one refused */
    bool decided;                       /* no other one may be loaded */
    size_t num_seen;
    motet_find_file_id seen[MOTET_FIND_ROOTS_MAX]; /* files that were listed */
    size_t num_roots;
    motet_find_root roots[MOTET_FIND_ROOTS_MAX];
} motet_find_search;

static inline bool motet_find_is_set(const motet_find_setting *setting)
{
    return setting->value != NULL && setting->value[0] != 0;
}

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

/** The device and inode of what @p path leads to; false if it leads nowhere. */
bool motet_find_identify(const char *path, motet_find_file_id *id_out);

bool motet_find_same(motet_find_file_id a, motet_find_file_id b);

/** Does something for one path; false ends the walk. */
typedef bool motet_find_visitor(motet_find_search *s, const char *path, void *arg);

/**
 * Visit each folder that @p pattern means below @p base ("" is the file system's root):
 * a part of it may have a '*', and what that means comes newest first. @p base is taken
 * as it is, with any characters.
 * @return false if the visitor ended the walk
 */
bool motet_find_folders(motet_find_search *s, const char *base, const char *pattern,
        motet_find_visitor *visit, void *arg);

/** Visit each file of these names in these folders below @p base, in this order. */
bool motet_find_files(motet_find_search *s, const char *base,
        const char *const *folders, const char *const *names, motet_find_visitor *visit,
        void *arg);

/** The list of folders that means the base alone. */
extern const char *const motet_find_itself[];

/** False if a file was asked about before, by whatever path. */
bool motet_find_is_new(motet_find_search *s, const char *path);

/** Note @p pattern below @p base as roots of an install (NULL: configured, or shown). */
void motet_find_note_roots(motet_find_search *s, const char *base, const char *pattern,
        const motet_find_install *install, bool selects);

/** Note @p path with what TheRock's packages put below it: core, or core-VERSION. */
void motet_find_note_family(motet_find_search *s, const char *path,
        const motet_find_install *install);

/** Note the SDKs outside the usual folders: by tools on PATH, then /usr and /usr/local. */
void motet_find_note_sdks(motet_find_search *s);

/** List the files that a root could have had, with why each cannot be used. */
void motet_find_list_expected(motet_find_search *s, const char *path,
        motet_find_origin origin);

/** The folder that a variable means: no slashes at its end, nor a last part "hip". */
void motet_find_root_of(const char *value, char path[MOTET_FIND_PATH_MAX]);

/** The folder of a Python environment: of itself, or of its bin/python. */
void motet_find_environment_of(const char *value, char path[MOTET_FIND_PATH_MAX]);

/** Visit the library in the wheels of the environment @p base, or of a site-packages. */
void motet_find_each_wheel(motet_find_search *s, const char *base,
        motet_find_visitor *visit, void *arg);

typedef void motet_find_path_visitor(motet_find_search *s, const char *folder);

/** Each folder of a list like PATH; NULL is an empty one. */
void motet_find_each_of(motet_find_search *s, const char *list,
        motet_find_path_visitor *visit);

#endif
