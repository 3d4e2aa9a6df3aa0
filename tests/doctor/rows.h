/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of texts and the codes that they must and must not give. After cmocka.h. */
#ifndef MOTET_TEST_DOCTOR_ROWS_H
#define MOTET_TEST_DOCTOR_ROWS_H

#include "doctor.h"

#include <stdlib.h>
#include <string.h>

/* One text, the codes that it must and must not give, and what one of the first names. */
struct row {
    const char *name, *text, *codes, *not, *subject;
};

/* Whether the finding is one of the codes in a list of words. */
static bool listed(const char *list, const char *code)
{
    const size_t length = strlen(code);

    for (const char *at = list; (at = strstr(at, code)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

static void check(const struct row *row)
{
    struct doctor *d = doctor_new();
    char *words = strdup(row->codes);
    bool named = row->subject == NULL;

    doctor_add(d, "run.log", row->text, strlen(row->text));
    doctor_judge(d);
    for (char *save = NULL, *code = strtok_r(words, " ", &save); code != NULL;
            code = strtok_r(NULL, " ", &save))
        if (!dr_has_finding(d, dr_code_find(code), NULL))
            fail_msg("%s: no %s", row->name, code);
    for (uint32_t i = 0; i < d->num_findings; i++) {
        const struct dr_finding *f = &d->findings[i];
        const char *code = dr_codes[f->code].name;

        if (listed(row->not, code))
            fail_msg("%s: %s: %s", row->name, code, f->summary);
        if (row->subject != NULL && listed(row->codes, code))
            named = named || strstr(f->subject, row->subject) != NULL ||
                    strstr(f->summary, row->subject) != NULL;
        if (dr_codes[f->code].severity <= DR_WARN && f->because.count == 0)
            fail_msg("%s: %s without a line", row->name, code);
    }
    if (!named)
        fail_msg("%s: nothing names %s", row->name, row->subject);
    free(words);
    doctor_free(d);
}

static void check_all(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check(&rows[i]);
}

#define CHECK(rows) check_all(rows, sizeof(rows) / sizeof(*(rows)))

#endif
