/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared between processes: anonymous files, passed by descriptor. No name,
 * so nothing to clean up, and no use of /dev/shm, whatever its size. */
#ifndef MOTET_BASE_SEGMENT_H
#define MOTET_BASE_SEGMENT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * Create a segment of @p bytes, mapped, zeroed and touched, and sealed against resizing.
 * @param fd_out CLOEXEC; the caller's to close.
 * @retval MOTET_ERR_SYSTEM no memory or descriptors, with bytes and errno in the trail.
 */
MOTET_MUST_USE motet_result motet_segment_create(const char *label, size_t bytes,
        void **map_out, int *fd_out);

/** Map somebody's segment; refuses one that is smaller than @p bytes or not sealed. */
MOTET_MUST_USE motet_result motet_segment_map(int fd, size_t bytes, bool writable,
        void **map_out);

/**
 * Ask for huge pages behind @p bytes at @p map, now: a large segment that several
 * processes read misses the TLB otherwise. A wish: nothing changes where it cannot be
 * had. Takes some milliseconds for each MiB.
 */
void motet_segment_compact(void *map, size_t bytes);

void motet_segment_unmap(void *map, size_t bytes);

#endif
