/* SPDX-License-Identifier: Apache-2.0 */
/* Where a root service listens. */
#ifndef MOTET_BOOTSTRAP_LISTEN_H
#define MOTET_BOOTSTRAP_LISTEN_H

#include "bootstrap/root.h"

/**
 * Open the listeners of root->id and note in it where they are. On failure some may
 * be open: motet_root_close().
 */
MOTET_MUST_USE motet_result motet_root_listen(const motet_params *params,
        motet_root *root);

/** NCCL_SOCKET_FAMILY as AF_INET, AF_INET6, or 0 for both. */
int motet_root_family(const motet_params *params);

#endif
