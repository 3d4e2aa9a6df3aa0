/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pseudonyms for what says whose machine it is: host and user names, MAC addresses,
 * serial numbers, UUIDs, public IP addresses. The same name becomes the same pseudonym in
 * every archive, so that two of them can be compared; addresses keep their class, their
 * network and their shape. What diagnosis needs stays: PCI addresses, private and
 * documentation addresses, names of boards, versions.
 */
#ifndef MOTET_DOCTOR_SCRUB_H
#define MOTET_DOCTOR_SCRUB_H

#include "collect.h"

struct dr_scrub {
    struct doctor *d;
    struct {
        const char *name, *pseudonym;
        size_t length;
    } *names;
    uint32_t num, room;
};

/** A host or user name to replace wherever it stands as a word; names that many machines
 *  have ("localhost", "pve") are left. @p kind begins the pseudonym: "host", "user". */
void dr_scrub_name(struct dr_scrub *s, const char *kind, const char *name);

/** The names that this machine's own files give: its own, and those of its users. */
void dr_scrub_own_names(struct dr_scrub *s);

/** @p text with pseudonyms; memory of the doctor's. */
char *dr_scrub_text(struct dr_scrub *s, const char *text, size_t bytes,
        size_t *out_bytes);

/** All captures, in place. */
void dr_scrub_captures(struct dr_scrub *s, struct dr_captures *captures);

#endif
