/* SPDX-License-Identifier: Apache-2.0 */
/* Asking what may never answer: a driver of a sick machine, a runtime, a name server. */
#ifndef MOTET_DOCTOR_DEADLINE_H
#define MOTET_DOCTOR_DEADLINE_H

#include "doctor.h"

/** An answer is cut there. */
#define DR_ANSWER_MAX 65536u

/**
 * Run @p question in a process of its own, which has @p ms milliseconds, and give what it
 * wrote until then, memory of the doctor's. False in @p in_time if it did not end.
 */
char *dr_ask_in_child(struct doctor *d, int ms,
        void (*question)(FILE *out, const void *about), const void *about,
        bool *in_time);

#endif
