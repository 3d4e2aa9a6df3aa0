/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two captures, as facts: a line that only moved is none. */
#ifndef MOTET_DOCTOR_DIFF_H
#define MOTET_DOCTOR_DIFF_H

#include "doctor.h"

struct dr_change {
    const char *what;           /* "0000:03:00.0 lanes"; "" for a whole line */
    const char *before, *after; /* NULL: not there                           */
};

struct dr_diff {
    struct dr_change *changes;
    uint32_t num, room;
    uint32_t more; /* lines that are only in one of them and are not listed */
};

/** Lines of one side only that are listed. */
#define DR_DIFF_LINES 100u

/** Compare two judged doctors; memory is @p after's. */
void dr_compare(struct doctor *before, struct doctor *after, struct dr_diff *out);

/** Whether @p f of one doctor is among the findings of @p other. */
bool dr_also_found(const struct doctor *other, const struct dr_finding *f);

#endif
