/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor_diff.h. */
#include "doctor_diff.h"

#include "cmd.h"
#include "diff.h"
#include "input.h"
#include "json.h"
#include "report.h"

#include <stdio.h>
#include <string.h>

static bool came(const struct doctor *other, const struct dr_finding *f)
{
    return !f->dropped && f->code != DR_NO_FINDING && !dr_also_found(other, f);
}

static bool any_came(const struct doctor *d, const struct doctor *other)
{
    for (uint32_t i = 0; i < d->num_findings; i++)
        if (came(other, &d->findings[i]))
            return true;
    return false;
}

static void write_findings(const struct doctor *d, const struct doctor *other,
        const char *title)
{
    if (!any_came(d, other))
        return;
    printf("%s:\n", title);
    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];

        if (came(other, f))
            printf("  %s %s%s%s: %s\n", dr_severity_name(dr_codes[f->code].severity),
                    dr_codes[f->code].name, f->subject[0] != 0 ? " " : "", f->subject,
                    doctor_summary(f));
    }
}

static void write_text(const struct dr_diff *diff)
{
    bool lines = false;

    for (uint32_t i = 0; i < diff->num; i++) {
        const struct dr_change *c = &diff->changes[i];

        if (c->what[0] != 0) {
            printf("%s: %s -> %s\n", c->what,
                    c->before != NULL ? c->before : "not there",
                    c->after != NULL ? c->after : "not there");
            continue;
        }
        if (!lines)
            printf("lines of one side only:\n");
        lines = true;
        if (c->before != NULL)
            printf("  - %s\n", c->before);
        if (c->after != NULL)
            printf("  + %s\n", c->after);
    }
    if (diff->more > 0)
        printf("  and %u more lines\n", diff->more);
}

static void json_findings(struct json *j, const char *key, const struct doctor *d,
        const struct doctor *other)
{
    json_array(j, key);
    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];

        if (!came(other, f))
            continue;
        json_object(j, NULL);
        json_string(j, "code", dr_codes[f->code].name);
        json_string(j, "severity", dr_severity_name(dr_codes[f->code].severity));
        json_string(j, "subject", f->subject);
        json_string(j, "summary", doctor_summary(f));
        json_end(j);
    }
    json_end(j);
}

static bool write_json(const struct dr_diff *diff, const struct doctor *a,
        const struct doctor *b)
{
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_string(&j, "motet", MOTET_VERSION);
    json_array(&j, "changed");
    for (uint32_t i = 0; i < diff->num; i++) {
        json_object(&j, NULL);
        json_string(&j, "what", diff->changes[i].what);
        json_string(&j, "before", diff->changes[i].before);
        json_string(&j, "after", diff->changes[i].after);
        json_end(&j);
    }
    json_end(&j);
    json_findings(&j, "came", b, a);
    json_findings(&j, "went", a, b);
    json_end(&j);
    return json_finish(&j);
}

/* Nothing at all came from there: say why. */
static bool nothing(const struct doctor *d, const char *path)
{
    if (d->num_lines > 0)
        return false;
    (void)cmd_error("doctor", EXIT_UNDECIDED, "read '%s': %s", path,
            d->num_unread > 0 ? d->unread[0].why : "nothing is in it");
    return true;
}

int doctor_diff(const char *before, const char *after, bool json)
{
    struct doctor *a = doctor_new(), *b = doctor_new();
    struct dr_diff diff = { 0 };
    int status = EXIT_UNDECIDED;

    dr_read_path(a, before);
    dr_read_path(b, after);
    if (!nothing(a, before) && !nothing(b, after)) {
        doctor_judge(a);
        doctor_judge(b);
        dr_compare(a, b, &diff);
        status = diff.num > 0 || any_came(a, b) || any_came(b, a) ? EXIT_PROBLEM
                                                                  : EXIT_FINE;
        if (json) {
            if (!write_json(&diff, a, b))
                status = cmd_error("doctor", EXIT_UNDECIDED,
                        "standard output: write error");
        } else {
            write_findings(b, a, "came");
            write_findings(a, b, "went");
            write_text(&diff);
            if (status == EXIT_FINE)
                printf("no fact differs\n");
        }
    }
    doctor_free(a);
    doctor_free(b);
    return status;
}
