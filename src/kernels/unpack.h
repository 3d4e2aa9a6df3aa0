/* SPDX-License-Identifier: Apache-2.0 */
/* zstd's decoder, behind one name: the only one that its object shows
 * (gpu/CMakeLists.txt). */
#ifndef MOTET_KERNELS_UNPACK_H
#define MOTET_KERNELS_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

/** True if the frame at @p packed was sound and filled @p raw to its last byte. */
bool motet_unpack(void *raw, size_t raw_bytes, const void *packed, size_t packed_bytes);

#endif
