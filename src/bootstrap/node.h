/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine this is: host name, boot id, and NCCL_HOSTID over both. */
#ifndef MOTET_BOOTSTRAP_NODE_H
#define MOTET_BOOTSTRAP_NODE_H

#include "bootstrap/wire.h"

typedef struct motet_node {
    char host[MOTET_NAME_MAX];
    char name
            [MOTET_NAME_MAX]; /**< NCCL_HOSTID if set, else host                      */
    uint64_t boot_hash;       /**< of the kernel's boot id, or of the host name       */
    uint64_t hash;            /**< of NCCL_HOSTID if set, else boot_hash              */
} motet_node;

void motet_node_describe(const motet_params *params, motet_node *out);

/** Copy @p text, cut to fit, with '?' for what a message must not hold. */
void motet_text_clean(char *out, size_t bytes, const char *text);

#endif
