/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what somebody pasted: one file, or up to three where the byte 0x1c stands
 * between them. All readers, all rules, both reports. What is found is in order and has
 * its evidence, and no report holds a byte that a terminal would act upon.
 */
#include "doctor.h"
#include "doctor_json.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor: %s\n", what);
    abort();
}

static void add_files(struct doctor *d, const char *bytes, size_t count)
{
    static const char *const names[] = { "file", "guest-file", "host-file" };

    for (int i = 0; i < 3 && bytes != NULL; i++) {
        const char *end = i < 2 && count > 0 ? memchr(bytes, 0x1c, count) : NULL;
        const size_t length = end != NULL ? (size_t)(end - bytes) : count;

        doctor_add(d, names[i], bytes, length);
        count -= length + (end != NULL);
        bytes = end != NULL ? end + 1 : NULL;
    }
}

static void check_lines(const struct doctor *d, const struct dr_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        check(list->lines[i] < d->num_lines, "a quoted line that is not there");
}

static void check_findings(const struct doctor *d)
{
    const int status = doctor_status(d);

    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];
        const enum dr_severity severity = dr_codes[f->code].severity;

        check(!f->dropped, "a dropped finding");
        check(severity > DR_WARN || f->because.count > 0, "a fault without a line");
        check(severity > DR_WARN || status == 1, "a fault and status 0");
        check(f->code != DR_NO_FINDING || (i == 0 && status == 0),
                "NO_FINDING beside others");
        check(i == 0 || d->findings[i - 1].code == DR_NO_FINDING ||
                        dr_codes[d->findings[i - 1].code].severity <= severity,
                "out of order");
        check_lines(d, &f->because);
        check_lines(d, &f->consequences);
    }
}

static void check_report(struct doctor *d, bool json)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    check(out != NULL, "no memory");
    if (json)
        check(doctor_json(d, out), "the JSON is not whole");
    else
        doctor_report(d, out, false);
    fclose(out);
    check(strlen(text) == bytes, "a NUL in a report");
    for (const char *at = text; *at != 0; at++) /* a tab does nothing to a terminal */
        check(*at == '\n' || *at == '\t' || ((unsigned char)*at >= 32 && *at != 127),
                "a control byte in a report");
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct doctor *d = doctor_new();

    add_files(d, bytes > 0 ? (const char *)data : "", bytes);
    doctor_judge(d);
    check_findings(d);
    check_report(d, false);
    check_report(d, true);
    doctor_free(d);
    return 0;
}
