/* SPDX-License-Identifier: Apache-2.0 */
/* `motet doctor --host NAME`: is a neighbour off, deaf, or wedged. */
#ifndef MOTET_DOCTOR_ASK_HOST_H
#define MOTET_DOCTOR_ASK_HOST_H

#include "collect.h"

/**
 * Resolve @p name, ping its addresses, connect to their ssh port, and then ask the kernel
 * for the neighbours' entries; each with a deadline. Written down as ping, ssh and ip
 * print it.
 */
void dr_ask_host(struct doctor *d, const char *name, struct dr_captures *out);

#endif
