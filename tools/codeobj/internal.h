/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the reader tell each other. */
#ifndef MOTET_CODEOBJ_INTERNAL_H
#define MOTET_CODEOBJ_INTERNAL_H

#include "codeobj.h"

/**
 * The ELF file of codeobj_read(), whose header is that of an AMD code object. On failure
 * what is in @p out already is the caller's to clear.
 */
int codeobj_parse(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX]);

/** Text of files is in sentences: nothing of it may command a terminal. */
void codeobj_tame(char *text);

/**
 * The msgpack document of a note: kernels and declared target.
 * @param offset  of @p data in the file, for sentences
 */
int codeobj_metadata(const void *data, size_t bytes, uint64_t offset,
        struct codeobj *out, char why[CODEOBJ_WHY_MAX]);

/** The YAML document of a note of version 2: kernels. Offsets of arguments are computed from
 *  sizes and alignments, as it has none. */
int codeobj_yaml(const void *data, size_t bytes, uint64_t offset, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX]);

/**
 * Whether a symbol of that name is a function that makes a hostcall, or asks for one:
 * assert, printf, malloc of the device libraries.
 */
bool codeobj_makes_hostcall(const char *name);

#endif
