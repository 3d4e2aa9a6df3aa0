/* SPDX-License-Identifier: Apache-2.0 */
/* `motet doctor -- CMD`: a command is run with its libraries' logs turned on, and what it
 * left is added to the doctor's sources. */
#ifndef MOTET_DOCTOR_RUN_COMMAND_H
#define MOTET_DOCTOR_RUN_COMMAND_H

#include "doctor.h"

struct dr_command {
    char *const *argv;  /* ends with NULL                                      */
    unsigned timeout_s; /* 0: none                                             */
    int out_fd, err_fd; /* where its output is shown                           */
    const char *host;   /* for the prompt before its output                    */
};

/**
 * Run it in a process group of its own until it ends, the time is up, or somebody
 * interrupts; then end the whole group. Its output is shown as it comes. False and errno
 * if it could not be started.
 */
bool dr_run_command(struct doctor *d, const struct dr_command *command);

#endif
