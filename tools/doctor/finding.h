/* SPDX-License-Identifier: Apache-2.0 */
/* What rules.c does with findings when all are there. */
#ifndef MOTET_DOCTOR_FINDING_H
#define MOTET_DOCTOR_FINDING_H

#include "doctor.h"

/** Drop findings that are a consequence of another one; it gets their lines. */
void dr_overrule(struct doctor *d);

/** NO_FINDING first, then by severity, the catalogue's order, the subject; drop what is
 *  dropped. */
void dr_put_in_order(struct doctor *d);

#endif
