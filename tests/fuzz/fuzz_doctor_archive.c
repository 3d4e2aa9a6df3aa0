/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an archive, packed or not: what is kept stays within the bounds, every
 * source is named after the archive, and what is judged of it prints nothing that a
 * terminal would act upon.
 */
#include "archive.h"
#include "doctor.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor_archive: %s\n", what);
    abort();
}

/* C1 control characters are U+0080 to U+009F, in UTF-8 two bytes. */
static void check_report(struct doctor *d)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    check(out != NULL, "no memory");
    doctor_judge(d);
    doctor_report(d, out, false);
    fclose(out);
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i],
                            before = i > 0 ? (unsigned char)text[i - 1] : 0;

        check(c == '\n' || c == '\t' || (c >= 32 && c != 127),
                "a control byte in a report");
        check(before != 0xc2 || c < 0x80 || c > 0x9f, "a C1 byte in a report");
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct doctor *d = doctor_new();
    FILE *in = tmpfile();

    check(in != NULL && fwrite(data, 1, bytes, in) == bytes, "no temporary file");
    rewind(in);
    if (!dr_add_file(d, "a.tar", in))
        check(d->num_sources == 0, "not read, but kept");
    fclose(in);
    check(d->num_sources <= DR_ARCHIVE_ENTRIES + 1, "too many entries");
    for (uint32_t i = 0; i < d->num_sources; i++) {
        const struct dr_source *s = &d->sources[i];

        check(strncmp(s->name, "a.tar", 5) == 0, "a source of another name");
        check(s->first + s->count <= d->num_lines, "lines that are not there");
    }
    check_report(d);
    doctor_free(d);
    return 0;
}
