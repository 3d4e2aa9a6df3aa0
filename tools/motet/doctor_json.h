/* SPDX-License-Identifier: Apache-2.0 */
/* The report of motet doctor as JSON. */
#ifndef MOTET_TOOLS_DOCTOR_JSON_H
#define MOTET_TOOLS_DOCTOR_JSON_H

#include "doctor.h"

/** The report as JSON; false if it could not be written. */
bool doctor_json(struct doctor *d, FILE *out);

#endif
