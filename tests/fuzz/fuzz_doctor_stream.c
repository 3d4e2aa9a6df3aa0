/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes over and over, as a log that is too long to be kept whole: its beginning and
 * its end are kept, and no more than that.
 */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define LOG_BYTES (18u << 20)
#define LINES_MAX 400000u

struct endless {
    const uint8_t *data;
    size_t bytes, at, left;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor_stream: %s\n", what);
    abort();
}

static ssize_t read_again(void *cookie, char *buf, size_t bytes)
{
    struct endless *e = cookie;
    size_t used = 0;

    while (used < bytes && e->left > 0) {
        size_t part = e->bytes - e->at;

        part = part < bytes - used ? part : bytes - used;
        part = part < e->left ? part : e->left;
        memcpy(buf + used, e->data + e->at, part);
        e->at = (e->at + part) % e->bytes;
        e->left -= part;
        used += part;
    }
    return (ssize_t)used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct endless e = { data, bytes, 0, LOG_BYTES };
    struct doctor *d;
    FILE *in;

    if (bytes == 0)
        return 0;
    d = doctor_new();
    in = fopencookie(&e, "r", (cookie_io_functions_t){ .read = read_again });
    check(in != NULL, "no memory");
    check(doctor_add_stream(d, "log", in), "not read");
    check(e.left == 0 || d->num_unread > 0, "what is left is not said");
    check(d->num_lines <= LINES_MAX, "too many lines are kept");
    for (uint32_t i = 0; i < d->num_sources; i++)
        check(d->sources[i].first + d->sources[i].count <= d->num_lines,
                "lines that are not there");
    fclose(in);
    doctor_free(d);
    return 0;
}
