/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each instruction set has of its own: narrow elements to the low ends of 32-bit
 * lanes, zero above, and back (the lanes hold nothing above the element); the smaller
 * and the greater; and, where the CPU converts them, halves. Intrinsics, because
 * __builtin_convertvector compiles to a scalar for each lane on x86.
 */
#ifndef MOTET_KERNELS_LANES_H
#define MOTET_KERNELS_LANES_H

#include "kernels/vector.h"

#if VEC_BYTES == 64

static ALWAYS_INLINE vec load_u16(const void *p)
{
    return (vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}

static ALWAYS_INLINE void store_u16(void *p, vec v)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)v));
}

static ALWAYS_INLINE void store_u8(void *p, vec v)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8((__m512i)v));
}

static ALWAYS_INLINE v_i32 min_i32(v_i32 a, v_i32 b)
{
    return (v_i32)_mm512_min_epi32((__m512i)a, (__m512i)b);
}

static ALWAYS_INLINE v_i32 max_i32(v_i32 a, v_i32 b)
{
    return (v_i32)_mm512_max_epi32((__m512i)a, (__m512i)b);
}

#define HAVE_HALVES 1
/* Sixteen halves, or other elements of 16 bits. */
typedef int16_t v_halves __attribute__((vector_size(32)));

static ALWAYS_INLINE v_halves load_halves(const void *p)
{
    return (v_halves)_mm256_loadu_si256(p);
}

static ALWAYS_INLINE void store_halves(void *p, v_halves h)
{
    _mm256_storeu_si256(p, (__m256i)h);
}

static ALWAYS_INLINE v_halves load_bytes_as_i16(const void *p)
{
    return (v_halves)_mm256_cvtepi8_epi16(_mm_loadu_si128(p));
}

static ALWAYS_INLINE vec widen_halves(v_halves h)
{
    return (vec)_mm512_cvtph_ps((__m256i)h);
}

static ALWAYS_INLINE v_halves narrow_to_halves(vec v)
{
    return (v_halves)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
}

#elif VEC_BYTES == 32

static ALWAYS_INLINE vec load_u16(const void *p)
{
    return (vec)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}

/* The pack works within each half of the register; the permutation joins the two. */
static ALWAYS_INLINE __m128i pack_u16(vec v)
{
    __m256i packed = _mm256_packus_epi32((__m256i)v, (__m256i)v);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

static ALWAYS_INLINE void store_u16(void *p, vec v)
{
    _mm_storeu_si128(p, pack_u16(v));
}

static ALWAYS_INLINE void store_u8(void *p, vec v)
{
    __m128i h = pack_u16(v);
    _mm_storel_epi64(p, _mm_packus_epi16(h, h));
}

static ALWAYS_INLINE v_i32 min_i32(v_i32 a, v_i32 b)
{
    return (v_i32)_mm256_min_epi32((__m256i)a, (__m256i)b);
}

static ALWAYS_INLINE v_i32 max_i32(v_i32 a, v_i32 b)
{
    return (v_i32)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

#define HAVE_HALVES 1
/* Eight halves, or other elements of 16 bits. */
typedef int16_t v_halves __attribute__((vector_size(16)));

static ALWAYS_INLINE v_halves load_halves(const void *p)
{
    return (v_halves)_mm_loadu_si128(p);
}

static ALWAYS_INLINE void store_halves(void *p, v_halves h)
{
    _mm_storeu_si128(p, (__m128i)h);
}

static ALWAYS_INLINE v_halves load_bytes_as_i16(const void *p)
{
    return (v_halves)_mm_cvtepi8_epi16(_mm_loadl_epi64(p));
}

static ALWAYS_INLINE vec widen_halves(v_halves h)
{
    return (vec)_mm256_cvtph_ps((__m128i)h);
}

static ALWAYS_INLINE v_halves narrow_to_halves(vec v)
{
    return (v_halves)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
}

#else

#if defined(__x86_64__)

static ALWAYS_INLINE vec load_u16(const void *p)
{
    return (vec)_mm_unpacklo_epi16(_mm_loadl_epi64(p), _mm_setzero_si128());
}

/* SSE2 packs with signed saturation only: make the lanes' low halves signed first. */
static ALWAYS_INLINE void store_u16(void *p, vec v)
{
    __m128i h = _mm_srai_epi32(_mm_slli_epi32((__m128i)v, 16), 16);
    _mm_storel_epi64(p, _mm_packs_epi32(h, h));
}

static ALWAYS_INLINE vec load_u8(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof(four));
    __m128i h = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_setzero_si128());
    return (vec)_mm_unpacklo_epi16(h, _mm_setzero_si128());
}

static ALWAYS_INLINE void store_u8(void *p, vec v)
{
    __m128i h = _mm_packs_epi32((__m128i)v, (__m128i)v);
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(h, h));
    memcpy(p, &four, sizeof(four));
}

#else

/* As many narrow elements as a register has 32-bit lanes. */
typedef uint16_t four_u16 __attribute__((vector_size(VEC_BYTES / 2)));
typedef uint8_t four_u8 __attribute__((vector_size(VEC_BYTES / 4)));

static ALWAYS_INLINE vec load_u16(const void *p)
{
    four_u16 four;
    memcpy(&four, p, sizeof(four));
    return __builtin_convertvector(four, vec);
}

static ALWAYS_INLINE void store_u16(void *p, vec v)
{
    four_u16 four = __builtin_convertvector(v, four_u16);
    memcpy(p, &four, sizeof(four));
}

static ALWAYS_INLINE vec load_u8(const void *p)
{
    four_u8 four;
    memcpy(&four, p, sizeof(four));
    return __builtin_convertvector(four, vec);
}

static ALWAYS_INLINE void store_u8(void *p, vec v)
{
    four_u8 four = __builtin_convertvector(v, four_u8);
    memcpy(p, &four, sizeof(four));
}

#endif

static ALWAYS_INLINE v_i32 min_i32(v_i32 a, v_i32 b)
{
    return (v_i32)select_vec((vec)(a < b), (vec)a, (vec)b);
}

static ALWAYS_INLINE v_i32 max_i32(v_i32 a, v_i32 b)
{
    return (v_i32)select_vec((vec)(a > b), (vec)a, (vec)b);
}

#endif

#endif
