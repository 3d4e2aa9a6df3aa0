/* SPDX-License-Identifier: Apache-2.0 */
/* What fork.c needs of the table of communicators. */
#ifndef MOTET_COMM_REGISTRY_H
#define MOTET_COMM_REGISTRY_H

#include "comm/comm.h"

void motet_table_lock(void);
void motet_table_unlock(void);
/** First live communicator; the others follow by `next`. With the lock held. */
motet_comm *motet_table_first(void);
/** No thread may rely on what it saw of the table before. */
void motet_table_changed(void);

#endif
