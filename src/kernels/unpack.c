/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/unpack.h"

#include <zstd.h>

bool motet_unpack(void *raw, size_t raw_bytes, const void *packed, size_t packed_bytes)
{
    return ZSTD_decompress(raw, raw_bytes, packed, packed_bytes) == raw_bytes;
}
