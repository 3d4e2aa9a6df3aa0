/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as two captures, parted by the byte 0x1c: each equals itself, and what only
 * one has is what the other lacks.
 */
#include "diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor_diff: %s\n", what);
    abort();
}

static struct doctor *judged(const char *text, size_t bytes)
{
    struct doctor *d = doctor_new();

    doctor_add(d, "a", text, bytes);
    doctor_judge(d);
    return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = bytes > 0 ? (const char *)data : "",
               *cut = bytes > 0 ? memchr(text, 0x1c, bytes) : NULL;
    const size_t first = cut != NULL ? (size_t)(cut - text) : bytes;
    struct doctor *a = judged(text, first),
                  *b = cut != NULL ? judged(cut + 1, bytes - first - 1)
                                   : judged(text, bytes);
    struct dr_diff there = { 0 }, back = { 0 }, none = { 0 };

    dr_compare(a, b, &there);
    dr_compare(b, a, &back);
    dr_compare(a, a, &none);
    check(none.num == 0 && none.more == 0, "it differs from itself");
    check(there.num + there.more == back.num + back.more, "not the same both ways");
    for (uint32_t i = 0; i < there.num; i++)
        check(there.changes[i].before != NULL || there.changes[i].after != NULL,
                "a change of nothing");
    doctor_free(a);
    doctor_free(b);
    return 0;
}
