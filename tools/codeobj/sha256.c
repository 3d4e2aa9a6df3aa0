/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, as FIPS 180-4 describes it. */
#include "sha256.h"
#include "sha256_mix.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
/* clang-format on */

static uint32_t rotate(uint32_t x, int n)
{
    return (x >> n) | (x << (32 - n));
}

static uint32_t big_endian(const unsigned char *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof(value));
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(value) : value;
}

/* Round @p i on the working variables, which the next round takes one place further. */
static inline void mix_round(const uint32_t w[16], int i, uint32_t a, uint32_t b,
        uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g, uint32_t *h)
{
    uint32_t t = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
            (g ^ (e & (f ^ g))) + sha256_constants[i] + w[i & 15];

    *d += t;
    *h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));
}

/* The words of the next 16 rounds, in place of those of the last. */
static inline void expand(uint32_t w[16])
{
    for (int i = 0; i < 16; i++) {
        uint32_t a = w[(i + 1) & 15], b = w[(i + 14) & 15];

        w[i] += w[(i + 9) & 15] + (rotate(a, 7) ^ rotate(a, 18) ^ (a >> 3)) +
                (rotate(b, 17) ^ rotate(b, 19) ^ (b >> 10));
    }
}

static void mix_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3],
                    e = state[4], f = state[5], g = state[6], h = state[7];

    for (int i = 0; i < 16; i++)
        w[i] = big_endian(block + 4 * i);
    for (int i = 0; i < 64; i += 8) {
        if (i > 0 && (i & 15) == 0)
            expand(w);
        mix_round(w, i, a, b, c, &d, e, f, g, &h);
        mix_round(w, i + 1, h, a, b, &c, d, e, f, &g);
        mix_round(w, i + 2, g, h, a, &b, c, d, e, &f);
        mix_round(w, i + 3, f, g, h, &a, b, c, d, &e);
        mix_round(w, i + 4, e, f, g, &h, a, b, c, &d);
        mix_round(w, i + 5, d, e, f, &g, h, a, b, &c);
        mix_round(w, i + 6, c, d, e, &f, g, h, a, &b);
        mix_round(w, i + 7, b, c, d, &e, f, g, h, &a);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void sha256_mix_plain(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        mix_block(state, data + 64 * i);
}

static void mix(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    if (sha256_has_x86())
        sha256_mix_x86(state, data, blocks);
    else
        sha256_mix_plain(state, data, blocks);
}

void sha256_start(struct sha256 *s)
{
    static const uint32_t first[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    memset(s, 0, sizeof(*s));
    memcpy(s->state, first, sizeof(first));
}

void sha256_add(struct sha256 *s, const void *data, size_t bytes)
{
    const size_t block = sizeof(s->block), have = (size_t)(s->bytes % block);
    const unsigned char *p = data;

    s->bytes += bytes;
    if (have > 0 || bytes < block) {
        const size_t take = block - have < bytes ? block - have : bytes;

        if (take > 0)
            memcpy(s->block + have, p, take);
        if (have + take < block)
            return;
        mix(s->state, s->block, 1);
        p += take;
        bytes -= take;
    }
    if (bytes >= block)
        mix(s->state, p, bytes / block);
    if (bytes % block > 0)
        memcpy(s->block, p + bytes / block * block, bytes % block);
}

void sha256_end(struct sha256 *s, char text[SHA256_TEXT])
{
    static const unsigned char end[64] = { 0x80 };
    uint64_t bits = s->bytes * 8;
    size_t have = (size_t)(s->bytes % 64);
    unsigned char length[8];

    sha256_add(s, end, have < 56 ? 56 - have : 120 - have);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", s->state[i]);
}

int sha256_file(const char *path, char text[SHA256_TEXT])
{
    unsigned char buffer[16384];
    struct sha256 s;
    FILE *file = fopen(path, "rbe");
    size_t got;
    int bad;

    if (file == NULL)
        return -1;
    sha256_start(&s);
    while ((got = fread(buffer, 1, sizeof(buffer), file)) > 0)
        sha256_add(&s, buffer, got);
    bad = ferror(file);
    fclose(file);
    if (bad)
        return -1;
    sha256_end(&s, text);
    return 0;
}
