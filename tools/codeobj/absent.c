/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a build without libelf or msgpack-c: it says so. */
#include "images_walk.h"
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

uint64_t images_kpack(struct images_walk *w, const struct images_span *span,
        const char *name)
{
    (void)name;
    images_problem(w, span->offset,
            "a kpack archive, this build of motet has no %s and reads none",
            CODEOBJ_ABSENT);
    return 0;
}

void images_kpack_reference(struct images_walk *w, const struct images_span *span)
{
    images_problem(w, span->offset,
            "its code is in kpack archives, this build of motet has no %s and reads "
            "none",
            CODEOBJ_ABSENT);
}

const char *codeobj_library(size_t i)
{
    (void)i;
    return NULL;
}
