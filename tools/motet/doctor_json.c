/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's report as JSON; motet-doctor(1) documents it. */
#include "doctor_json.h"

#include "json.h"
#include "report.h"

static void add_lines(struct json *j, const struct doctor *d, const char *key,
        const struct dr_list *list)
{
    json_array(j, key);
    for (size_t i = 0; i < list->count; i++) {
        const struct dr_line *line = &d->lines[list->lines[i]];

        json_object(j, NULL);
        json_string(j, "source", d->sources[line->source].name);
        json_uint(j, "line", line->number);
        json_string(j, "text", line->text);
        json_end(j);
    }
    json_end(j);
}

/* A finding's own words, then the catalogue's where they apply. */
static void add_words(struct json *j, const char *key, const struct dr_list *own,
        const char *const *table, bool both)
{
    json_array(j, key);
    for (size_t i = 0; i < own->count; i++)
        json_string(j, NULL, own->words[i]);
    for (; (both || own->count == 0) && *table != NULL; table++)
        json_string(j, NULL, *table);
    json_end(j);
}

static void add_finding(struct json *j, const struct doctor *d,
        const struct dr_finding *f)
{
    const struct dr_code_info *info = &dr_codes[f->code];

    json_object(j, NULL);
    json_string(j, "code", info->name);
    json_string(j, "severity", dr_severity_name(info->severity));
    json_string(j, "subject", f->subject);
    json_string(j, "summary", doctor_summary(f));
    add_lines(j, d, "because", &f->because);
    add_words(j, "fix", &f->fix, info->fix, false);
    add_words(j, "will_not_help", &f->will_not_help, info->will_not_help, true);
    add_lines(j, d, "consequences", &f->consequences);
    json_end(j);
}

bool doctor_json(struct doctor *d, FILE *out)
{
    struct json j;

    json_start(&j, out);
    json_object(&j, NULL);
    json_string(&j, "motet", MOTET_VERSION);
    json_array(&j, "findings");
    for (uint32_t i = 0; i < d->num_findings; i++)
        add_finding(&j, d, &d->findings[i]);
    json_end(&j);
    json_array(&j, "ways_out");
    for (uint32_t i = 0; i < d->num_ways_out; i++) {
        json_object(&j, NULL);
        json_string(&j, "what", d->ways_out[i].what);
        json_string(&j, "cost", d->ways_out[i].cost);
        json_string(&j, "verify", d->ways_out[i].verify);
        json_end(&j);
    }
    json_end(&j);
    json_array(&j, "unread");
    for (uint32_t i = 0; i < d->num_unread; i++) {
        json_object(&j, NULL);
        json_string(&j, "source", d->unread[i].source);
        json_string(&j, "why", d->unread[i].why);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    return json_finish(&j);
}
