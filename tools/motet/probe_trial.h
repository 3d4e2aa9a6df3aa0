/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of motet probe, and what a process of a cell does for each. */
#ifndef MOTET_TOOLS_PROBE_TRIAL_H
#define MOTET_TOOLS_PROBE_TRIAL_H

#include "collective.h"
#include "probe.h"

/** For whom a row is there. */
enum probe_scope {
    PROBE_ONCE = 1, /* one process for the library         */
    PROBE_EACH = 2, /* each card by itself                 */
    PROBE_PAIR = 4, /* each pair of cards                  */
    PROBE_ALL = 8   /* all cards, if they are more than 2  */
};

struct probe_operation {
    const char *name;
    unsigned scopes; /* of enum probe_scope */
    probe_body *body;
    const char *collective;       /* its name in collective.h               */
    const struct collective *way; /* instead of that: messages one way  */
    size_t count; /* of elements: only this one, in one type; 0: all that are checked */
};

/** In the order in which they run; each scope from the first to the last. */
extern const struct probe_operation probe_operations[];
extern const size_t nprobe_operations;

/** What the processes of a cell bring home; memory that they share with the command. */
struct probe_found {
    char path[PATH_MAX];
    int version;
    bool motet;
    double step_us[PROBE_RANKS_MAX]; /* an all_reduce of the model's size; 0: none */
};

/** The argument of the bodies. */
struct probe_trial {
    const struct probe_options *options;
    const struct backend *backend;
    const struct probe_library *library;
    const struct probe_operation *operation;
    struct probe_found *found;
};

#endif
