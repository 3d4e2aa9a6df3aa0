/* SPDX-License-Identifier: Apache-2.0 */
/* A stream whose beginning can be looked at, and that gunzips itself if it must. */
#ifndef MOTET_DOCTOR_UNPACK_H
#define MOTET_DOCTOR_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct dr_unpack;

/** NULL and the reason in @p why if the stream is packed in a way that is not read. */
struct dr_unpack *dr_unpack_begin(FILE *in, char *why, size_t why_bytes);

/** The first bytes, as they come out. */
const char *dr_unpack_peek(const struct dr_unpack *u);
size_t dr_unpack_peeked(const struct dr_unpack *u);

/** All bytes, from the first; closed by dr_unpack_end(). */
FILE *dr_unpack_stream(struct dr_unpack *u);

/** False and the reason if it was damaged, or larger than anything is looked at. */
bool dr_unpack_end(struct dr_unpack *u, char *why, size_t why_bytes);

#endif
