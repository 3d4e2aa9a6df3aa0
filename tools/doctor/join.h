/* SPDX-License-Identifier: Apache-2.0 */
/* Platform and library joined: will the first collective fail on this GPU? */
#ifndef MOTET_DOCTOR_JOIN_H
#define MOTET_DOCTOR_JOIN_H

#include "doctor.h"

/**
 * For each AMD GPU five links, each yes, no or unknown with its source: the path, ReqEn,
 * KFD or HIP, the kernels of the image that it loads, a refusal; and what follows for the
 * first collective. Nothing if there is no AMD GPU whose path anything is known of.
 */
void dr_write_join(const struct doctor *d, FILE *out);

#endif
