/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of texts and the one code that each must and must not give. After cmocka.h. */
#ifndef MOTET_TEST_DOCTOR_CODED_H
#define MOTET_TEST_DOCTOR_CODED_H

#include "judged.h"

#define NO_CODE DR_NUM_CODES

struct row {
    const char *what, *text;
    enum dr_code code, not; /* NO_CODE: nothing is asked                */
    const char *subject;    /* that a finding of `code` names, or NULL  */
};

static bool names(const struct doctor *d, enum dr_code code, const char *subject)
{
    for (uint32_t i = 0; i < d->num_findings; i++)
        if (d->findings[i].code == code &&
                (strstr(d->findings[i].subject, subject) != NULL ||
                        strstr(d->findings[i].summary, subject) != NULL))
            return true;
    return false;
}

static void check(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        struct doctor *d = judged(r->text);

        if (r->code != NO_CODE && !dr_has_finding(d, r->code, NULL))
            fail_msg("%s: %s is missing", r->what, dr_codes[r->code].name);
        if (r->not!= NO_CODE && dr_has_finding(d, r->not, NULL))
            fail_msg("%s: %s is a false alarm", r->what, dr_codes[r->not].name);
        if (r->subject != NULL && !names(d, r->code, r->subject))
            fail_msg("%s: %s is not named", r->what, r->subject);
        doctor_free(d);
    }
}

#endif
