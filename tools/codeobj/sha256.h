/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), to name a library file beyond doubt. */
#ifndef MOTET_TOOLS_SHA256_H
#define MOTET_TOOLS_SHA256_H

#include <stddef.h>
#include <stdint.h>

/** Hexadecimal digest with its NUL. */
#define SHA256_TEXT 65

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

void sha256_start(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t bytes);
/** Ends the computation and writes the digest in lower case. */
void sha256_end(struct sha256 *s, char text[SHA256_TEXT]);

/** Digest of the file at @p path. Returns 0, or −1 with errno. */
int sha256_file(const char *path, char text[SHA256_TEXT]);

#endif
