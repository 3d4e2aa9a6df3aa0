/* SPDX-License-Identifier: Apache-2.0 */
/* One text, judged. */
#ifndef MOTET_TEST_DOCTOR_JUDGED_H
#define MOTET_TEST_DOCTOR_JUDGED_H

#include "doctor.h"

#include <string.h>

/* To be freed with doctor_free(). */
static struct doctor *judged(const char *text)
{
    struct doctor *d = doctor_new();

    doctor_add(d, "capture.txt", text, strlen(text));
    doctor_judge(d);
    return d;
}

#endif
