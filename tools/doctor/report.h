/* SPDX-License-Identifier: Apache-2.0 */
/* The report for a person. */
#ifndef MOTET_DOCTOR_REPORT_H
#define MOTET_DOCTOR_REPORT_H

#include "doctor.h"

/** What was found: subject, what, why with the quoted line and its place, what to do, what
 *  will not help; then the ways out, the paths of the GPUs, and what was not read. */
void doctor_report(struct doctor *d, FILE *out, bool colour);

/** Everything known of a code, for `--explain`. */
void doctor_explain(enum dr_code code, FILE *out);

/** All codes, one a line: severity, code, sentence. */
void doctor_list(FILE *out);

/** Its sentence: the finding's own, or the catalogue's. */
const char *doctor_summary(const struct dr_finding *f);

#endif
