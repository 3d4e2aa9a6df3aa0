/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by the instructions that x86 has for it. They keep the working variables in two
 * registers, ABEF and CDGH, and do two rounds at a time.
 */
#include "sha256_mix.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define SHA_BIT   (1u << 29) /* CPUID 7, EBX */
#define SSE41_BIT (1u << 19) /* CPUID 1, ECX */

bool sha256_has_x86(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & SSE41_BIT) != 0 &&
            __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & SHA_BIT) != 0;
}

/* The next four words, in place of the oldest four. */
__attribute__((target("sha,sse4.1"))) static inline __m128i expand(__m128i w0,
        __m128i w1, __m128i w2, __m128i w3)
{
    const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));

    return _mm_sha256msg2_epu32(sum, w3);
}

__attribute__((target("sha,sse4.1"))) void sha256_mix_x86(uint32_t state[8],
        const unsigned char *data, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)state);
    __m128i high = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i abef, cdgh;

    low = _mm_shuffle_epi32(low, 0xb1);   /* CDAB */
    high = _mm_shuffle_epi32(high, 0x1b); /* EFGH */
    abef = _mm_alignr_epi8(low, high, 8);
    cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks > 0; blocks--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];

        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)),
                    swap);
        for (int i = 0; i < 16; i++) {
            __m128i sum;

            if (i >= 4)
                w[i & 3] = expand(w[i & 3], w[(i + 1) & 3], w[(i + 2) & 3],
                        w[(i + 3) & 3]);
            sum = _mm_add_epi32(w[i & 3],
                    _mm_loadu_si128((const __m128i *)(sha256_constants + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);  /* FEBA */
    high = _mm_shuffle_epi32(cdgh, 0xb1); /* DCHG */
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}
#else
bool sha256_has_x86(void)
{
    return false;
}

void sha256_mix_x86(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    (void)state;
    (void)data;
    (void)blocks;
}
#endif
