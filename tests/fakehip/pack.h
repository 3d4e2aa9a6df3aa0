/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading msgpack, as far as the metadata of AMD code objects needs it: maps, arrays,
 * strings, numbers. What a value is must be asked in the order in which it lies there;
 * anything else is skipped. Nothing is read behind `end`, and nesting is limited.
 */
#ifndef FAKEHIP_PACK_H
#define FAKEHIP_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pack {
    const unsigned char *at, *end;
} pack;

/* Each reads one value, or its head, and goes on behind it; false: it is no such value,
 * and nothing was read. */
/** @param count_out keys; each is followed by its value */
bool pack_map(pack *p, uint32_t *count_out);
bool pack_array(pack *p, uint32_t *count_out);
/** @param text_out where it lies in the input; not ended by 0 */
bool pack_text(pack *p, const char **text_out, size_t *bytes_out);
/** An integer that is not negative. */
bool pack_number(pack *p, uint64_t *out);
/** Any value, with all that is in it. @retval false cut off, or nested too deeply */
bool pack_skip(pack *p);
/** Reads a text and compares it. @retval false there is no text; @p is_out untouched */
bool pack_is(pack *p, const char *wanted, bool *is_out);

#endif
