/* SPDX-License-Identifier: Apache-2.0 */
/* What to do when two cards cannot work together, best first; and what a model asks of the
 * link between them. */
#ifndef MOTET_DOCTOR_WAYS_OUT_H
#define MOTET_DOCTOR_WAYS_OUT_H

#include "doctor.h"

/** Rank the ways that apply to what was found; after the rules. */
void dr_ways_out(struct doctor *d);

/** Bytes that a token step of d->model moves, the time on usual links, and the narrowest
 *  link that would not be the limit. Nothing if the model is not known. */
void dr_write_model(const struct doctor *d, FILE *out);

#endif
