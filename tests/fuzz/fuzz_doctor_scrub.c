/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a capture that is given pseudonyms: the name and the address of the
 * machine are nowhere in what comes out as words, and it always comes out the same.
 */
#include "scrub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor_scrub: %s\n", what);
    abort();
}

static char *scrub(struct doctor *d, const uint8_t *data, size_t bytes, size_t *count)
{
    struct dr_scrub s = { .d = d };

    dr_scrub_name(&s, "host", "gadget");
    return dr_scrub_text(&s, (const char *)data, bytes, count);
}

static bool has_name(const char *text, size_t bytes)
{
    const char *at = memmem(text, bytes, " gadget ", 8);

    return at != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct doctor *d = doctor_new();
    size_t one = 0, two = 0;
    const char *first = scrub(d, data, bytes, &one),
               *second = scrub(d, data, bytes, &two);

    check(first != NULL && second != NULL, "no memory");
    check(one == two && memcmp(first, second, one) == 0, "not the same twice");
    check(!has_name(first, one), "a name is left");
    doctor_free(d);
    return 0;
}
