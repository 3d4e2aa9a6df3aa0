/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a build without libelf or msgpack-c: it says so. */
#include "internal.h"

#include <stdio.h>

int codeobj_parse(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX])
{
    (void)data;
    (void)bytes;
    (void)out;
    snprintf(why, CODEOBJ_WHY_MAX,
            "this build of motet has no %s and reads no code objects", CODEOBJ_ABSENT);
    return -1;
}

const char *codeobj_library(size_t i)
{
    (void)i;
    return NULL;
}
