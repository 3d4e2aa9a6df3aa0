/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a run of motet probe. */
#ifndef MOTET_TOOLS_PROBE_RUN_H
#define MOTET_TOOLS_PROBE_RUN_H

#include "probe_trial.h"

/** Fill in which libraries are probed, and why. */
void probe_choose_libraries(struct probe_report *report);

/** Why @p library cannot be tried here: its ranks need a GPU. NULL: it can. */
const char *probe_needs_gpu(const struct probe_report *report,
        const struct probe_library *library);

/**
 * What stands before work on a GPU that is called @p stage: whether there is time, whether
 * anybody computes there (@p refused: serving_refuse()'s exit code so far), whether it came
 * back last time. @return NULL: it is written down, and probe_end() is due; why not, else,
 * in @p buf if need be
 */
const char *probe_begin(const struct probe_options *options, const char *stage,
        int *refused, char *buf, size_t bytes);
/** Nothing of it is under way any more, unless the kernel still holds one of @p ranks. */
void probe_end(const char *stage, const struct probe_rank *ranks, int nranks);

/** Where the ranks' traces go meanwhile. */
struct probe_traces {
    char path[PATH_MAX];
    int fd; /* −1: there is none */
};

void probe_traces_make(struct probe_traces *traces);
void probe_traces_remove(struct probe_traces *traces);

/** Fill in the cards: what they are, and what is above them on PCI. */
void probe_look_at_cards(struct probe_report *report);

#endif
