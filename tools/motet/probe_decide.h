/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of motet probe decide: ways to use several cards for one model. */
#ifndef MOTET_TOOLS_PROBE_DECIDE_H
#define MOTET_TOOLS_PROBE_DECIDE_H

#include "probe.h"

enum probe_word { PROBE_NO, PROBE_YES, PROBE_UNKNOWN };

struct probe_answer {
    enum probe_word word;
    char because[256];
    double step_ms; /* of a token step, −1: not measured or not a matter of it */
};

struct probe_use {
    const char *key, *name; /* "tensor_parallel", "tensor parallel" */
    const char *const
            *group;          /* rows that all ranks need as one communicator; or NULL */
    const char *const *next; /* rows that each card needs with the next one; or NULL  */
    const char *needs;       /* in words                                              */
    bool steps;              /* its all_reduces make a token step */
};

extern const struct probe_use probe_uses[];
extern const size_t nprobe_uses;

/** Whether the cards can be used so with the library of that index. */
void probe_decide(const struct probe_report *report, const struct probe_use *use,
        int library, struct probe_answer *out);

/** "no", "yes", "unknown". */
const char *probe_word_name(enum probe_word word);

#endif
