/* SPDX-License-Identifier: Apache-2.0 */
/* Whole blocks of SHA-256, in C and by what a processor has for them. */
#ifndef MOTET_CODEOBJ_SHA256_MIX_H
#define MOTET_CODEOBJ_SHA256_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t sha256_constants[64];

/** Mix @p blocks blocks of 64 bytes into @p state. */
void sha256_mix_plain(uint32_t state[8], const unsigned char *data, size_t blocks);

/** The same, where sha256_has_x86() says that it can be done. */
void sha256_mix_x86(uint32_t state[8], const unsigned char *data, size_t blocks);
bool sha256_has_x86(void);

#endif
